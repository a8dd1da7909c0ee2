"""The summariser that is a chat model, against a server on this machine that answers well, badly and with malice.

Whatever the server does, the day's file has an entry: its own words where they may be used, else the extract.
"""

import json
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from vault_memory import settings as settings_module
from vault_memory.agent import chat, journal, worker
from vault_memory.errors import ConfigError, EgressBlocked, EmbeddingError
from vault_memory.settings import Settings
from vault_memory_tests.fixtures.online import Answer, drip, echo, flood, reply, served
from vault_memory_tests.fixtures.sessions import SECRET, SESSION, assistant, user, write

NOW = datetime.fromisoformat("2026-11-30T10:05:00+01:00")
KEY = "sk-KEYCANARY-77aa"
EXTRACT = "- Asked: Which queue?\n- Answered: We took NATS.\n"


def said(content: object) -> bytes:
    """Return a chat model's answer."""
    return json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": content}}]}).encode()


@pytest.fixture
def make_settings(tmp_path: Path) -> Callable[..., Settings]:
    """Return a factory of settings whose journal is summarised by a model at an address."""

    def make(url: str, *, base_url: str | None = None, seconds: float = 5.0, **environment: str) -> Settings:
        (tmp_path / "home").mkdir(exist_ok=True)
        settings = settings_module.load(
            {
                "HOME": str(tmp_path),
                "VAULT_MEMORY_HOME": str(tmp_path / "home"),
                "VAULT_MEMORY_EMBEDDING_BASE_URL": url,
                "VAULT_MEMORY_EMBEDDING_ALLOW_HTTP_LOOPBACK": "1",
                "OPENROUTER_API_KEY": KEY,
                **environment,
            }
        )
        told = replace(settings.journal, model="summary-1", base_url=base_url, timeout_seconds=seconds)
        return replace(settings, journal=told)

    return make


def day_of(settings: Settings, folder: Path, *records: Any) -> str:
    """Write a session down and return the day's file."""
    records = records or (user("Which queue?"), assistant("We took NATS."))
    journal.write_down(settings, SESSION, write(folder / "t.jsonl", *records), now=NOW)
    return (settings.journal_folder / "2026-11-30.md").read_text()


def test_a_model_s_summary_is_the_entry(make_settings: Callable[..., Settings], tmp_path: Path) -> None:
    """One request of the documented form; the answer becomes lines of a list, its Markdown shown as it stands."""
    asked: list[tuple[str, dict[str, str], Any]] = []

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        asked.append((handler.path, dict(handler.headers), json.loads(body)))
        reply(handler, 200, said("* Decided on NATS\n\n## Not a heading\n<!-- no comment --> #private"))

    with served(answer) as (url, _):
        text = day_of(make_settings(url), tmp_path)

    ((path, headers, body),) = asked
    assert "/v1/chat/completions" == path
    assert ("summary-1", 1, "user") == (body["model"], len(body["messages"]), body["messages"][0]["role"])
    assert "We took NATS." in body["messages"][0]["content"]
    assert {"Host", "Content-Type", "Accept", "Accept-Encoding", "Content-Length", "Authorization"} >= set(headers)
    assert text.endswith("- Decided on NATS\n- \\#\\# Not a heading\n- \\#private\n")
    assert "We took" not in text


def _late(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    time.sleep(1.5)
    reply(handler, 200, said("too late"))


def _cut(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "5000")
    handler.end_headers()
    handler.wfile.write(said("half an answ")[:40])
    handler.close_connection = True


def _status(code: int) -> Answer:
    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        reply(handler, code, said("words of an error"))

    return answer


def _body(content: bytes) -> Answer:
    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        reply(handler, 200, content)

    return answer


FAULTS: dict[str, Answer] = {
    "late": _late,
    "dripping": drip,
    "echoing in an error": echo,
    "huge": flood,
    "cut off": _cut,
    **{f"status {code}": _status(code) for code in (201, 204, 400, 401, 402, 404, 429, 500, 503)},
    "no json": _body(b"<html>"),
    "deep json": _body(b"[" * 100_000),
    "another json": _body(b'{"data": []}'),
    "a list": _body(b"[1]"),
    "no choice": _body(b'{"choices": []}'),
    "no message": _body(b'{"choices": [null]}'),
    "a number": _body(said(7)),
    "nothing": _body(said(None)),
    "blank": _body(said(" \n \n")),
    "binary": _body(bytes(range(256))),
    "signs that show nothing": _body(said("\u200b\u2060\u202e")),
    "a secret": _body(said(f"- Decided on NATS\n- with {SECRET}")),
    "a secret in two halves": _body(said(f"- with {SECRET[:8]}\u200b{SECRET[8:]}")),
    "a secret over two lines": _body(said(f"- the key\n{SECRET[:10]}\n{SECRET[10:]}")),
    "a labelled password": _body(said("- 数据库密码：Xk9" + "#mQ2vLp7w")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_the_model_s_words_not_the_entry(
    make_settings: Callable[..., Settings], tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    """In bounded time the extract is the entry; nothing that the server said stands in it or in a log."""
    started = time.monotonic()
    with served(FAULTS[fault]) as (url, received), caplog.at_level(logging.DEBUG):
        text = day_of(make_settings(url, seconds=0.5), tmp_path)
    assert 1 == len(received)
    assert text.endswith(EXTRACT)
    assert SECRET not in text
    assert "KEYCANARY" not in text + caplog.text
    assert "NATS" not in caplog.text
    assert 15 > time.monotonic() - started


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(make_settings: Callable[..., Settings], tmp_path: Path, code: int) -> None:
    """Neither the session nor the key goes to the other host."""
    with (
        served(lambda handler, _: reply(handler, 200, said("stolen"))) as (other, stolen),
        served(lambda handler, _: reply(handler, code, headers={"Location": f"{other}/chat/completions"})) as (url, _),
    ):
        text = day_of(make_settings(url), tmp_path)
    assert [] == stolen
    assert text.endswith(EXTRACT)


def test_a_secret_is_in_no_request(make_settings: Callable[..., Settings], tmp_path: Path) -> None:
    """A turn that holds one is left out before the model is asked, and a text that holds one is refused at the door."""
    records = (user(f"Use {SECRET}"), assistant("Fine."), user("Which queue?"), assistant("We took NATS."))
    with served(lambda handler, _: reply(handler, 200, said("Decided on NATS"))) as (url, received):
        settings = make_settings(url)
        text = day_of(settings, tmp_path, *records)
        with pytest.raises(EgressBlocked, match="not sent") as caught:
            chat.ask(f"Use {SECRET}", settings)
    assert 1 == len(received)
    assert SECRET.encode() not in received[0]
    assert "- Decided on NATS\n" in text
    assert SECRET not in text + str(caught.value)


@pytest.mark.parametrize(
    ("change", "url"),
    [
        ({}, "https://models.example.org/v1"),
        ({"VAULT_MEMORY_EMBEDDING_ALLOW_HTTP_LOOPBACK": "0"}, None),
        ({}, "http://169.254.169.254/v1"),
        ({}, "http://user:password@127.0.0.1/v1"),
        ({}, "http://127.0.0.1.nip.io/v1"),
    ],
    ids=["unlisted host", "loopback without the flag", "metadata", "password in it", "a name for loopback"],
)
def test_hosts_are_held_to_the_embedding_s_rules(
    make_settings: Callable[..., Settings], tmp_path: Path, change: dict[str, str], url: str | None
) -> None:
    """A host that note text may not go to is sent no session either."""
    with served(lambda handler, _: reply(handler, 200, said("words"))) as (known, received):
        settings = make_settings(known, base_url=url, **change)
        with pytest.raises(ConfigError) as caught:
            chat.ask("hello", settings)
        assert day_of(settings, tmp_path).endswith(EXTRACT)
    assert [] == received
    assert "password@" not in str(caught.value)


def test_the_key_goes_to_its_own_host_alone(make_settings: Callable[..., Settings], tmp_path: Path) -> None:
    """A summariser elsewhere is not handed the embedding provider's key; proxies of the environment are not used."""
    keys: list[str | None] = []

    def answer(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        keys.append(handler.headers["Authorization"])
        reply(handler, 200, said("words"))

    with served(answer) as (one, _), served(answer) as (two, _), pytest.MonkeyPatch.context() as patch:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            patch.setenv(name, "http://127.0.0.1:9")
        chat.ask("hello", make_settings(one))
        chat.ask("hello", make_settings(one, base_url=two))
    assert [f"Bearer {KEY}", None] == keys


def test_an_error_quotes_nothing(make_settings: Callable[..., Settings]) -> None:
    """A provider that repeats the request in its error is not repeated in ours."""
    with served(echo) as (url, _), pytest.raises(EmbeddingError, match="answered 500") as caught:
        chat.ask("canary0b5c", make_settings(url))
    assert "canary0b5c" not in str(caught.value)
    assert "KEYCANARY" not in str(caught.value)


def test_the_worker_asks_the_model(
    make_settings: Callable[..., Settings], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the request that a hook leaves to the entry; the log of the worker has no word of it."""
    path = write(tmp_path / "t.jsonl", user("Which queue?"), assistant("We took NATS."))
    with served(lambda handler, _: reply(handler, 200, said("Decided on NATS"))) as (url, received):
        settings = make_settings(url)
        folder = settings.home / "agent" / "requests"
        folder.mkdir(parents=True)
        (folder / "s.json").write_text(json.dumps({"session": "s", "transcript": str(path), "directory": "/p/app"}))
        assert 1 == worker.carry_out(settings)
    (day,) = settings.journal_folder.iterdir()
    assert day.read_text().endswith("- Decided on NATS\n")
    assert 1 == len(received)
    assert ("", "") == capsys.readouterr()
