"""One question to an OpenAI-compatible chat model, by the rules that hold for the embedding's requests.

Belongs here: the request and its answer. Does not: which hosts may be asked (``adapters.egress``), and what is asked.
No redirect, no proxy variable, no words of the provider in a message, one time limit for all of it.
"""

from __future__ import annotations

import http.client
import json
import threading
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from vault_memory.adapters import egress
from vault_memory.errors import ConfigError, EgressBlocked, EmbeddingError, EmbeddingUnavailable
from vault_memory.notes import secrets

if TYPE_CHECKING:
    from vault_memory.adapters.egress import Endpoint
    from vault_memory.settings import Settings

MAX_ANSWER_BYTES: Final = 262_144
_MAX_TOKENS: Final = 800


def ask(text: str, settings: Settings) -> str:
    """Return the model's answer; empty if it gives none.

    Raises:
        ConfigError: The settings do not allow the text to be sent.
        EgressBlocked: The text matches a rule of the secret scan.
        EmbeddingError: The provider does not answer, or not with an answer.
    """
    journal, embedding = settings.journal, settings.embedding
    endpoint = egress.check_base_url(
        journal.base_url or embedding.base_url,
        allow_hosts=embedding.allow_hosts,
        allow_http_loopback=embedding.allow_http_loopback,
    )
    if secrets.scan(text):
        raise EgressBlocked("a session's extract matched a rule of the secret scan: it was not sent")
    own_key = journal.base_url is None or _host(journal.base_url) == _host(embedding.base_url)
    key = settings.api_key() if own_key else None
    if key is None and endpoint.provider.needs_key:
        raise ConfigError(f"there is no API key for {endpoint.host}")
    body = json.dumps(
        {
            "model": journal.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": _MAX_TOKENS,
            **endpoint.provider.extra_body,
        }
    ).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
    if key is not None:
        headers["Authorization"] = f"Bearer {egress.check_key(key)}"
    return _answer(_within(journal.timeout_seconds, endpoint, body, headers))


def _host(url: str) -> str:
    return url.partition("://")[2].partition("/")[0].lower()


def _within(seconds: float, endpoint: Endpoint, body: bytes, headers: dict[str, str]) -> bytes:
    """Make the request in a thread that nobody waits for longer: a socket's limit starts anew with every byte."""
    outcome: list[bytes | EmbeddingError] = []

    def work() -> None:
        try:
            outcome.append(_post(endpoint, body, headers, seconds))
        except EmbeddingError as error:
            outcome.append(error)

    thread = threading.Thread(target=work, name="journal-summary", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise EmbeddingUnavailable(f"{endpoint.host} did not answer within {seconds:g} s")
    if isinstance(outcome[0], EmbeddingError):
        raise outcome[0]
    return outcome[0]


def _post(endpoint: Endpoint, body: bytes, headers: dict[str, str], seconds: float) -> bytes:
    scheme, _, rest = endpoint.base_url.partition("://")
    path = rest.partition("/")[1] + rest.partition("/")[2]
    kind = http.client.HTTPConnection if scheme == "http" else http.client.HTTPSConnection
    connection = kind(endpoint.host, endpoint.port, timeout=seconds)
    try:
        connection.request("POST", f"{path}/chat/completions", body, headers)
        with connection.getresponse() as response:
            if response.status != HTTPStatus.OK:
                raise egress.failure_of_status(response.status, endpoint)
            answer = response.read(MAX_ANSWER_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        raise EmbeddingUnavailable(f"{endpoint.host} cannot be reached ({type(error).__name__})") from None
    finally:
        connection.close()
    return answer if len(answer) <= MAX_ANSWER_BYTES else b""


def _answer(body: bytes) -> str:
    try:
        payload: Any = json.loads(body)
        content: Any = payload["choices"][0]["message"]["content"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return ""
    return content if isinstance(content, str) else ""
