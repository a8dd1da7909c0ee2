"""Every fault of an embeddings provider, met by the command: what it does, says, keeps and makes good."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

import pytest
from click.testing import CliRunner, Result

from vault_memory.cli import cli
from vault_memory.commands.status import status
from vault_memory.query.search import search
from vault_memory_tests.fixtures.embedding_server import EmbeddingServer
from vault_memory_tests.fixtures.installation import Installation
from vault_memory_tests.fixtures.online import (
    MISSING_VECTORS,
    QUICK,
    Answer,
    drip,
    echo,
    fill,
    flood,
    forget,
    good,
    quiet,
    reply,
    rows,
    served,
    states,
    vectors,
)

NOTES = 4
UNAVAILABLE, WRONG, DENIED = "EmbeddingUnavailable", "EmbeddingAnswerError", "EmbeddingDenied"


@dataclass
class Provider:
    """A provider that can be made to fail.

    Attributes:
        url: Of its API.
        fail: Starts the fault.
        mend: Ends it.
        stolen: What another host was sent.
    """

    url: str
    fail: Callable[[], object]
    mend: Callable[[], object]
    stolen: list[bytes] = field(default_factory=list)


@pytest.fixture
def make_provider(embedding_server: EmbeddingServer) -> Iterator[Callable[[str], Provider]]:
    """Return a factory of providers by their fault: the real server's, or a hostile one."""
    with ExitStack() as stack:

        def hostile(answer: Answer) -> Provider:
            mood: list[Answer] = [lambda handler, body: reply(handler, 200, good(body))]

            def moody(handler: BaseHTTPRequestHandler, body: bytes) -> None:
                mood[-1](handler, body)

            url, _ = stack.enter_context(served(moody))
            return Provider(url, lambda: mood.append(answer), mood.pop)

        def make(fault: str) -> Provider:
            if fault == "redirecting":
                other, stolen = stack.enter_context(served(lambda handler, body: reply(handler, 200, good(body))))
                location = {"Location": f"{other}/embeddings"}
                made = hostile(lambda handler, _: reply(handler, 307, headers=location))
                made.stolen = stolen
                return made
            if fault in HOSTILE:
                return hostile(HOSTILE[fault])
            return Provider(
                embedding_server.url,
                lambda: embedding_server.control(faults={fault: 1.0}, timeout_s=1.0, retry_after=0),
                lambda: embedding_server.control(faults={}),
            )

        yield make


HOSTILE = {"slow": drip, "echoing": echo, "huge": flood}


@contextmanager
def asking(installation: Installation) -> Iterator[list[tuple[set[str], set[bool]]]]:
    """Ask for the old words again and again; yields the answers: sources, and whether all text was old."""
    answers: list[tuple[set[str], set[bool]]] = []
    over = threading.Event()

    def ask() -> None:
        while not over.wait(0.02):
            found = search("caches", settings=installation.settings, mode="keyword").items
            answers.append(({hit.source for hit in found}, {"caches" in hit.text for hit in found}))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield answers
    finally:
        over.set()
        thread.join()


def sync(installation: Installation) -> Result:
    """Run ``vault-memory sync --json`` in this process."""
    return CliRunner().invoke(cli, ["sync", "--json"], env={**installation.environment, "DAGSTER_HOME": ""})


@pytest.mark.parametrize(
    ("fault", "error_class", "exit_status", "message"),
    [
        ("429", UNAVAILABLE, 1, "127.0.0.1 answered 429"),
        ("500", UNAVAILABLE, 1, "127.0.0.1 answered 500"),
        ("503", UNAVAILABLE, 1, "127.0.0.1 answered 503"),
        ("401", DENIED, 3, "127.0.0.1 answered 401"),
        ("timeout", UNAVAILABLE, 1, "127.0.0.1 did not answer within 0.6 s"),
        ("reset", UNAVAILABLE, 1, "no connection to 127.0.0.1"),
        ("badjson", WRONG, 1, "JSON"),
        ("short", WRONG, 1, "vectors"),
        ("wrongdim", WRONG, 1, "768"),
        ("nan", WRONG, 1, "finite"),
        ("shuffle", None, 0, ""),
        ("slow", UNAVAILABLE, 1, "127.0.0.1 did not answer within 0.6 s"),
        ("redirecting", DENIED, 3, "redirects are not followed"),
        ("echoing", UNAVAILABLE, 1, "127.0.0.1 answered 500"),
        ("huge", WRONG, 1, "127.0.0.1 answered more than"),
    ],
)
def test_a_fault_loses_nothing(
    make_online: Callable[..., Installation],
    make_provider: Callable[[str], Provider],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: str,
    error_class: str | None,
    exit_status: int,
    message: str,
) -> None:
    """The command ends with its status and message; old rows answer all the while; the next sync heals everything."""
    monkeypatch.setenv("DAGSTER_HOME", "")  # so that what the command sets is taken back
    provider = make_provider(fault)
    installation = make_online(provider.url, QUICK)
    fill(installation, NOTES)
    installation.steps()
    sources = {f"01_Projects/n{number}.md" for number in range(NOTES)}
    before = vectors(installation)
    head = fill(installation, NOTES, words="queues")
    provider.fail()

    with asking(installation) as answers:
        done = sync(installation)
        hybrid = search("caches", settings=installation.settings)

    assert (exit_status, True) == (done.exit_code, message in done.stderr), done.stderr
    quiet(done.stdout, done.stderr, caplog.text, *hybrid.notices)
    assert [] == provider.stolen
    result = json.loads(done.stdout)
    assert head == result["to"]
    if error_class is not None:
        assert (NOTES, 0) == (result["failed"], result["texts_embedded"])
        assert (NOTES if exit_status == 1 else 1) == len(done.stderr.splitlines())
        # every answer, from before the sync to after its end, is the whole of the old version
        assert len(answers) >= 2
        assert all((sources, {True}) == answer for answer in answers)
        assert (sources, "keyword") == ({hit.source for hit in hybrid.items}, hybrid.mode)
        assert before == vectors(installation)
        assert {("failed", "embed", error_class)} == states(installation)
        assert [(1, True)] == rows(installation, "SELECT DISTINCT attempts, next_retry_at > updated_at FROM note_state")
        listed = status(installation.settings).failures
        assert [(source, "embed", error_class, 1) for source in sorted(sources)] == [
            (one.source, one.step, one.error_class, one.attempts) for one in listed
        ]
        assert [] == list(search("queues", settings=installation.settings, mode="keyword").items)
        provider.mend()
        assert 0 == sync(installation).exit_code

    assert {("indexed", None, None)} == states(installation)
    assert [(head,)] == rows(installation, "SELECT commit FROM sync_state")
    assert [(0,)] == rows(installation, MISSING_VECTORS)
    assert [] == status(installation.settings).failures
    asked = search("queues", settings=installation.settings, mode="keyword")
    assert (sources, {True}) == ({hit.source for hit in asked.items}, {"queues" in hit.text for hit in asked.items})
    after = vectors(installation)
    if fault == "shuffle":
        provider.mend()
    forget(installation)
    installation.steps()
    assert 2 * NOTES == len(after)
    assert after == vectors(installation)
