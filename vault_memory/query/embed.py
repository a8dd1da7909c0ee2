"""The question as a vector, by the embedder that made the stored ones.

Belongs here: choosing the embedder that is recorded, and one careful request. Does not: which hosts may be asked
and what an answer must look like (``adapters.egress``, shared with the ingest).

``http.client`` and not an SDK: it follows no redirect and knows no proxy variable, and nothing else of an SDK is
needed for one request. The question's text is in no message of this module.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from vault_memory.errors import EmbeddingAnswerError, EmbeddingError, EmbeddingUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from http.client import HTTPConnection

    from vault_memory.adapters.egress import Endpoint
    from vault_memory.settings import Settings

TIMEOUT_SECONDS: Final = 10.0
HASHING_NOTICE: Final = (
    "vectors come from the offline embedder, since no API key was set when this memory was made: "
    "shared words are found, meanings are not"
)


@dataclass(frozen=True, slots=True)
class RecordedEmbedder:
    """What the database says of its vectors.

    Attributes:
        name: ``openai``, ``hashing`` or None where nothing was indexed yet.
        model: Model of the stored vectors.
        dimensions: Their width before padding.
    """

    name: str | None
    model: str | None
    dimensions: int | None

    @property
    def is_semantic(self) -> bool:
        """Whether the vectors know meaning, and not only spelling."""
        return self.name != "hashing"


def embed_query(
    text: str, recorded: RecordedEmbedder, settings: Settings, *, timeout_seconds: float = TIMEOUT_SECONDS
) -> Sequence[float]:
    """Embed a question.

    Raises:
        EmbeddingError: It could not be embedded; the keyword leg can still answer.
        ConfigError: The settings do not allow it to be sent.
    """
    if recorded.name == "hashing":
        from vault_memory.notes import hashing  # noqa: PLC0415 - only where it is the embedder (25 ms)

        if recorded.model != hashing.MODEL:
            raise EmbeddingError("the stored vectors are of another version of the hashing embedder: run a sync")
        return hashing.embed(text)
    if recorded.name is None or recorded.model is None or recorded.dimensions is None:
        raise EmbeddingError("nothing was embedded yet")
    key = settings.api_key()
    embedding = settings.embedding

    from vault_memory.adapters import egress  # noqa: PLC0415 - the keyword leg alone needs no network

    endpoint = egress.check_base_url(
        embedding.base_url, allow_hosts=embedding.allow_hosts, allow_http_loopback=embedding.allow_http_loopback
    )
    if key is None and endpoint.provider.needs_key:
        raise EmbeddingError(f"there is no API key for {endpoint.host}")
    body = json.dumps(endpoint.request_body(recorded.model, recorded.dimensions, [text])).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
    if key is not None:
        headers["Authorization"] = f"Bearer {egress.check_key(key)}"
    answer = _within(timeout_seconds, endpoint, body, headers, egress.max_answer_bytes(1, recorded.dimensions))
    return egress.read_answer(answer, 1, recorded.dimensions, endpoint).vectors[0]


def _within(seconds: float, endpoint: Endpoint, body: bytes, headers: dict[str, str], max_bytes: int) -> bytes:
    """Make the request in a thread that nobody waits for longer than ``seconds``.

    A socket's time-out starts anew with every byte, and name resolution has none at all.
    """
    outcome: list[bytes | EmbeddingError] = []

    def work() -> None:
        try:
            outcome.append(_post(endpoint, body, headers, max_bytes, seconds))
        except EmbeddingError as error:
            outcome.append(error)

    thread = threading.Thread(target=work, name="embed-query", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise _late(endpoint, seconds)
    if isinstance(outcome[0], EmbeddingError):
        raise outcome[0]
    return outcome[0]


def _post(endpoint: Endpoint, body: bytes, headers: dict[str, str], max_bytes: int, seconds: float) -> bytes:
    from http.client import HTTPException  # noqa: PLC0415 - imported where a request is made

    from vault_memory.adapters.egress import failure_of_status  # noqa: PLC0415 - as above

    connection = _connection(endpoint, seconds)
    try:
        connection.request("POST", endpoint.embeddings_url.removeprefix(_origin(endpoint)), body, headers)
        # A response outlives its connection where the server closes it: both are closed.
        with connection.getresponse() as response:
            if response.status != HTTPStatus.OK:
                raise failure_of_status(response.status, endpoint, response.headers.get("x-request-id"))
            answer = response.read(max_bytes + 1)
    except TimeoutError:
        # The socket's own limit is as long as the caller's: whichever is noticed first, the reason is the same.
        raise _late(endpoint, seconds) from None
    except (OSError, HTTPException) as error:
        raise EmbeddingUnavailable(f"{endpoint.host} cannot be reached ({type(error).__name__})") from None
    finally:
        connection.close()
    if len(answer) > max_bytes:
        raise EmbeddingAnswerError(f"{endpoint.host} sent more than {max_bytes} bytes for one vector")
    return answer


def _late(endpoint: Endpoint, seconds: float) -> EmbeddingUnavailable:
    return EmbeddingUnavailable(f"{endpoint.host} did not answer within {seconds:g} s")


def _origin(endpoint: Endpoint) -> str:
    scheme, _, rest = endpoint.base_url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def _connection(endpoint: Endpoint, seconds: float) -> HTTPConnection:
    import http.client  # noqa: PLC0415 - imported where a request is made

    if endpoint.scheme == "http":
        return http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=seconds)
    return http.client.HTTPSConnection(endpoint.host, endpoint.port, timeout=seconds)
