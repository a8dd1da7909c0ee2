"""The question as a vector, by the embedder that made the stored ones.

Belongs here: choosing the embedder that is recorded, and one careful request. Does not: which hosts may be asked
and what an answer must look like (``adapters.egress``, shared with the ingest).

``http.client`` and not an SDK: it follows no redirect and knows no proxy variable, and nothing else of an SDK is
needed for one request. The question's text is in no message of this module.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class Kept:
    """What a process that answers many questions keeps from one to the next; nothing of it is written anywhere.

    Attributes:
        questions: Vectors of at most this many questions, those asked last; 0: none.
    """

    questions: int
    _vectors: OrderedDict[tuple[object, ...], Sequence[float]] = field(
        default_factory=OrderedDict[tuple[object, ...], "Sequence[float]"], repr=False
    )
    _connection: tuple[str, HTTPConnection] | None = field(default=None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def vector(self, key: tuple[object, ...]) -> Sequence[float] | None:
        """Return what was remembered under a key."""
        with self._lock:
            found = self._vectors.get(key)
            if found is not None:
                self._vectors.move_to_end(key)
            return found

    def remember(self, key: tuple[object, ...], vector: Sequence[float]) -> None:
        """Remember a vector and forget the one that was not asked for the longest."""
        with self._lock:
            self._vectors[key] = vector
            while len(self._vectors) > self.questions:
                self._vectors.popitem(last=False)

    def take(self, origin: str) -> HTTPConnection | None:
        """Hand out the open connection to a place; nobody else has it until it is put back."""
        with self._lock:
            kept, self._connection = self._connection, None
        if kept is None or kept[0] == origin:
            return kept and kept[1]
        kept[1].close()
        return None

    def put_back(self, origin: str, connection: HTTPConnection) -> None:
        """Keep a connection whose answer was read to its end."""
        with self._lock:
            kept, self._connection = self._connection, (origin, connection)
        if kept is not None:
            kept[1].close()

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            kept, self._connection = self._connection, None
        if kept is not None:
            kept[1].close()


def embed_query(
    text: str,
    recorded: RecordedEmbedder,
    settings: Settings,
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    kept: Kept | None = None,
) -> Sequence[float]:
    """Embed a question.

    Args:
        text: The question.
        recorded: Who made the stored vectors.
        settings: Where that one is asked, and with which key.
        timeout_seconds: For all of it.
        kept: Of a process that asks often.

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
    asked = (endpoint.base_url, recorded.model, recorded.dimensions, text)
    known = kept.vector(asked) if kept is not None else None
    if known is not None:
        return known
    body = json.dumps(endpoint.request_body(recorded.model, recorded.dimensions, [text])).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
    if key is not None:
        headers["Authorization"] = f"Bearer {egress.check_key(key)}"
    request = _Request(endpoint, body, headers, egress.max_answer_bytes(1, recorded.dimensions))
    answer = _within(timeout_seconds, request, kept)
    vector = egress.read_answer(answer, 1, recorded.dimensions, endpoint).vectors[0]
    if kept is not None and kept.questions:
        kept.remember(asked, vector)
    return vector


@dataclass(frozen=True, slots=True)
class _Request:
    endpoint: Endpoint
    body: bytes = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    max_bytes: int


def _within(seconds: float, request: _Request, kept: Kept | None) -> bytes:
    """Make the request in a thread that nobody waits for longer than ``seconds``.

    A socket's time-out starts anew with every byte, and name resolution has none at all.
    """
    outcome: list[bytes | EmbeddingError] = []

    def work() -> None:
        try:
            outcome.append(_answer(request, seconds, kept))
        except EmbeddingError as error:
            outcome.append(error)

    thread = threading.Thread(target=work, name="embed-query", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise _late(request.endpoint, seconds)
    if isinstance(outcome[0], EmbeddingError):
        raise outcome[0]
    return outcome[0]


def _answer(request: _Request, seconds: float, kept: Kept | None) -> bytes:
    origin = _origin(request.endpoint)
    connection = kept.take(origin) if kept is not None else None
    if connection is not None:
        try:
            return _post(connection, request, seconds, kept)
        except EmbeddingUnavailable as error:
            # Closed by the other side while nobody asked; what it refused or did not answer in time is not asked twice.
            if not isinstance(error.__cause__, ConnectionError):
                raise
    return _post(_connection(request.endpoint, seconds), request, seconds, kept)


def _post(connection: HTTPConnection, request: _Request, seconds: float, kept: Kept | None) -> bytes:
    from http.client import HTTPException  # noqa: PLC0415 - imported where a request is made

    from vault_memory.adapters.egress import failure_of_status  # noqa: PLC0415 - as above

    endpoint, is_done = request.endpoint, False
    try:
        path = endpoint.embeddings_url.removeprefix(_origin(endpoint))
        connection.request("POST", path, request.body, request.headers)
        # A response outlives its connection where the server closes it: both are closed.
        with connection.getresponse() as response:
            if response.status != HTTPStatus.OK:
                raise failure_of_status(response.status, endpoint, response.headers.get("x-request-id"))
            answer = response.read(request.max_bytes + 1)
            is_done = response.isclosed() and not response.will_close
    except TimeoutError:
        # The socket's own limit is as long as the caller's: whichever is noticed first, the reason is the same.
        raise _late(endpoint, seconds) from None
    except ConnectionError as error:
        raise _unreachable(endpoint, error) from error
    except (OSError, HTTPException) as error:
        raise _unreachable(endpoint, error) from None
    finally:
        if kept is not None and is_done:
            kept.put_back(_origin(endpoint), connection)
        else:
            connection.close()
    if len(answer) > request.max_bytes:
        raise EmbeddingAnswerError(f"{endpoint.host} sent more than {request.max_bytes} bytes for one vector")
    return answer


def _unreachable(endpoint: Endpoint, error: Exception) -> EmbeddingUnavailable:
    return EmbeddingUnavailable(f"{endpoint.host} cannot be reached ({type(error).__name__})")


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
