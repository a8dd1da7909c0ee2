"""One request for embeddings, sent through the ``openai`` SDK and a transport that trusts neither side.

Belongs here: what a request may carry, how much of an answer is read and for how long, and the translation of
every failure into this package's errors. Does not: batches, retries or what is done with the vectors
(``embedding``). Heavy: import it on first use.

The transport stands between the SDK and the network because the SDK follows redirects with the note's text,
adds headers from ``OPENAI_*`` variables, reads answers of any size and quotes an error's body in its exceptions.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import httpx2
import openai

from vault_memory.adapters.batching import retry_after_seconds
from vault_memory.adapters.egress import failure_of_status
from vault_memory.errors import ConfigError, EmbeddingAnswerError, EmbeddingError, EmbeddingUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from vault_memory.adapters.egress import Endpoint

_SENT_HEADERS: Final = frozenset({"host", "content-type", "content-length"})
_OK: Final = 200
# At DEBUG these print requests' options; nothing of theirs is worth a line in our logs.
_SILENCED: Final = (
    "openai",
    "openai._base_client",
    "openai._response",
    "openai._legacy_response",
    "httpx2",
    "httpcore2",
    "httpcore2.connection",
    "httpcore2.http11",
    "httpcore2.http2",
    "httpcore2.proxy",
)


def silence_libraries() -> None:
    """Keep the SDK and the HTTP library out of every log, whatever level somebody sets."""
    for name in _SILENCED:
        logging.getLogger(name).disabled = True


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends to one endpoint only, with headers of our own; hands on whole, bounded answers.

    The body of an answer that is no success is never read: providers quote the input in it.

    Args:
        inner: Does the sending.
        endpoint: The only host that anything is sent to.
        api_key: Added here, so that the SDK never holds it; None: no header.
        max_bytes: Size above which an answer is not read on.
    """

    def __init__(
        self, inner: httpx2.AsyncBaseTransport, endpoint: Endpoint, api_key: str | None, max_bytes: int
    ) -> None:
        self._inner = inner
        self._endpoint = endpoint
        self._api_key = api_key
        self._max_bytes = max_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request.

        Raises:
            ConfigError: It is for another host or path than the endpoint's.
            EmbeddingAnswerError: The answer is too large, compressed or no JSON.
        """
        if str(request.url) != self._endpoint.embeddings_url:
            raise ConfigError("a request for another address than embedding.base_url was stopped")
        kept = [(name, value) for name, value in request.headers.items() if name.lower() in _SENT_HEADERS]
        own = [("Accept", "application/json"), ("Accept-Encoding", "identity"), ("User-Agent", "vault-memory")]
        if self._api_key is not None:
            own.append(("Authorization", f"Bearer {self._api_key}"))
        sent = httpx2.Request(
            request.method, request.url, headers=[*kept, *own], stream=request.stream, extensions=request.extensions
        )
        response = await self._inner.handle_async_request(sent)
        try:
            body = await self._read(response) if response.status_code == _OK else b""
        finally:
            await response.aclose()
        headers = {
            name: value
            for name, value in response.headers.items()
            if name in ("retry-after", "x-request-id", "x-generation-id")
        }
        return httpx2.Response(response.status_code, headers=headers, content=body, request=request)

    async def _read(self, response: httpx2.Response) -> bytes:
        host, headers = self._endpoint.host, response.headers
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise EmbeddingAnswerError(f"{host} answered in a compression that was not asked for")
        if "json" not in headers.get("content-type", "").lower():
            raise EmbeddingAnswerError(f"{host} did not answer with JSON")
        too_large = f"{host} answered more than {self._max_bytes} bytes"
        declared = headers.get("content-length", "0")
        if declared.isdecimal() and int(declared) > self._max_bytes:
            raise EmbeddingAnswerError(too_large)
        body = bytearray()
        async for piece in response.stream:  # pyright: ignore[reportGeneralTypeIssues] - an async transport's stream
            body += piece
            if len(body) > self._max_bytes:
                raise EmbeddingAnswerError(too_large)
        return bytes(body)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


class EmbeddingClient:
    """Sends one batch at a time; made by :func:`open_client`."""

    def __init__(self, sdk: openai.AsyncOpenAI, endpoint: Endpoint, timeout_seconds: float) -> None:
        self._sdk = sdk
        self._endpoint = endpoint
        self._timeout_seconds = timeout_seconds

    async def post(self, model: str, dimensions: int, texts: Sequence[str]) -> bytes | Failure:
        """Send one batch once and return the body of the answer, or why there is none.

        Failures are returned: raised from inside an ``except`` block they would carry the SDK's exception,
        and with it the request, as their context.
        """
        body = self._endpoint.request_body(model, dimensions, texts)
        try:
            # Over the whole exchange: the HTTP library's own time-outs start again with each byte received.
            async with asyncio.timeout(self._timeout_seconds):
                # Not `embeddings.create`: it inspects every text's type, and builds a model of every float.
                answer = await self._sdk.post("/embeddings", cast_to=httpx2.Response, body=body)
                return answer.content
        except openai.APIStatusError as error:
            headers = error.response.headers
            request_id = headers.get("x-request-id") or headers.get("x-generation-id")
            return Failure(
                failure_of_status(error.status_code, self._endpoint, request_id),
                retry_after_seconds(headers.get("retry-after")),
            )
        except (TimeoutError, openai.APITimeoutError):
            seconds = f"{self._timeout_seconds:g}"
            return Failure(EmbeddingUnavailable(f"{self._endpoint.host} did not answer within {seconds} s"))
        except openai.APIConnectionError as error:
            kind = type(error.__cause__).__name__
            return Failure(EmbeddingUnavailable(f"no connection to {self._endpoint.host} ({kind})"))
        except EmbeddingError as error:
            return Failure(error)


class Failure:
    """A request that brought nothing.

    Attributes:
        error: Ours; holds nothing of the SDK's.
        retry_after: Seconds that the server asked us to wait.
    """

    __slots__ = ("error", "retry_after")

    def __init__(self, error: EmbeddingError, retry_after: float | None = None) -> None:
        # Its traceback would keep the request's frames, and the text in them, alive.
        self.error = error.with_traceback(None)
        self.error.__context__ = None
        self.retry_after = retry_after


@asynccontextmanager
async def open_client(
    endpoint: Endpoint,
    api_key: str | None,
    *,
    tls: ssl.SSLContext,
    max_answer_bytes: int,
    concurrency: int,
    timeout_seconds: float,
) -> AsyncGenerator[EmbeddingClient]:
    """Open connections to an endpoint for the running event loop.

    No proxy, certificate or address is taken from the environment.
    """
    silence_libraries()
    limits = httpx2.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
    inner = httpx2.AsyncHTTPTransport(verify=tls, trust_env=False, limits=limits)
    async with httpx2.AsyncClient(
        transport=GuardedTransport(inner, endpoint, api_key, max_answer_bytes),
        trust_env=False,
        follow_redirects=False,
        timeout=httpx2.Timeout(timeout_seconds),
    ) as http_client:
        sdk = openai.AsyncOpenAI(
            api_key="added-by-the-transport",
            base_url=endpoint.base_url,
            max_retries=0,  # the one retry layer is ours
            http_client=http_client,
        )
        yield EmbeddingClient(sdk, endpoint, timeout_seconds)


def tls_context(endpoint: Endpoint) -> ssl.SSLContext:
    """Return the TLS context of every connection; reading the certificate store takes a while (75 ms).

    For plain HTTP it holds no certificate at all, and so trusts nobody.
    """
    if endpoint.scheme == "http":
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx2.create_ssl_context(trust_env=False)
