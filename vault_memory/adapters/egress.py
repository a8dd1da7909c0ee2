"""Where note text may go, and what may come back.

Belongs here: the check of a base URL, the table of known providers, the meaning of a status code and the
validation of an answer; ingest and query share them. Does not: sending (``embedding_http``, ``query.embed``).
Standard library only, because the query's cold start pays for every import.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import math
import re
import sys
from array import array
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from vault_memory.errors import (
    ConfigError,
    EmbeddingAnswerError,
    EmbeddingDenied,
    EmbeddingError,
    EmbeddingRejected,
    EmbeddingUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

STORED_DIMENSIONS: Final = 1536
"""Width of every stored vector; narrower ones are padded with zeros, which keeps the cosine."""

_HTTPS_PORT: Final = 443
_UNIT_TOLERANCE: Final = 1e-6  # stored as 4-byte floats; most models answer unit vectors already


def _nothing() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Provider:
    """What is known of a service that speaks OpenAI's embeddings API.

    Attributes:
        hosts: Exact host names that count as this provider.
        max_texts: Inputs in one request.
        max_request_tokens: Tokens over all inputs of one request.
        max_request_bytes: Bytes of the JSON of all inputs of one request.
        sends_dimensions: Whether ``dimensions`` is part of the request; a server that serves one width refuses it.
        needs_key: Whether it answers nobody without a key.
        extra_body: Fields added to every request.
        prices: US dollars for a million tokens, by model.
    """

    name: str
    hosts: tuple[str, ...] = ()
    max_texts: int = 32
    max_request_tokens: int = 100_000
    max_request_bytes: int = 1_000_000
    sends_dimensions: bool = True
    needs_key: bool = True
    extra_body: Mapping[str, Any] = field(default_factory=_nothing)
    prices: Mapping[str, float] = field(default_factory=_nothing)


PROVIDERS: Final[Mapping[str, Provider]] = MappingProxyType(
    {
        provider.name: provider
        for provider in (
            Provider(
                "openrouter",
                hosts=("openrouter.ai",),
                # It passes a request on to services with limits of their own; small batches also keep all
                # connections busy to the end of a run.
                max_texts=64,
                # Its own routing fields: only endpoints that neither keep nor train on what they are sent.
                extra_body=MappingProxyType({"provider": {"data_collection": "deny", "zdr": True}}),
                prices=MappingProxyType(
                    {
                        "openai/text-embedding-3-small": 0.02,
                        "openai/text-embedding-3-large": 0.13,
                        "qwen/qwen3-embedding-8b": 0.01,
                    }
                ),
            ),
            Provider(
                "openai",
                hosts=("api.openai.com", "eu.api.openai.com", "us.api.openai.com"),
                max_texts=64,  # it takes 2,048 inputs and 300,000 tokens
                max_request_tokens=200_000,
                prices=MappingProxyType({"text-embedding-3-small": 0.02, "text-embedding-3-large": 0.13}),
            ),
            Provider(
                "dashscope",
                hosts=("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com"),
                max_texts=10,
                # Its pages disagree whether 8,192 tokens is the limit of an input or of a request.
                max_request_tokens=8_192,
                prices=MappingProxyType({"text-embedding-v4": 0.07, "text-embedding-v3": 0.07}),
            ),
            Provider("ollama", sends_dimensions=False, needs_key=False),
            Provider("vllm", max_texts=64, sends_dimensions=False, needs_key=False),
            Provider("local", needs_key=False),
            Provider("custom"),
        )
    }
)
"""By name. Prices as of November 2026, from the providers' and OpenRouter's pages; a setting overrides them."""

_PROVIDER_OF_HOST: Final = {host: provider for provider in PROVIDERS.values() for host in provider.hosts}
_PROVIDER_OF_LOOPBACK_PORT: Final = {11434: "ollama", 8000: "vllm"}

# Services by which a cloud machine reads its own credentials.
_METADATA_HOSTS: Final = frozenset({"metadata", "metadata.google.internal", "instance-data", "metadata.azure.internal"})
_METADATA_ADDRESSES: Final = frozenset({"169.254.169.254", "100.100.100.200", "192.0.0.192", "fd00:ec2::254"})
_HOST_NAME: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*"
)
_LOOKS_NUMERIC: Final = re.compile(r"(.*\.)?(0x[0-9a-f]*|[0-9]+)")
_PATH: Final = re.compile(r"(/[A-Za-z0-9._~-]+)*/?")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A checked root of an embeddings API: made by :func:`check_base_url` alone.

    Attributes:
        base_url: In one canonical spelling, without a slash at its end.
        port: Always set.
        provider: Its limits and what it wants in a request.
    """

    base_url: str
    scheme: str
    host: str
    port: int
    provider: Provider

    @property
    def embeddings_url(self) -> str:
        """Where a request goes."""
        return f"{self.base_url}/embeddings"

    def request_body(self, model: str, dimensions: int, texts: Sequence[str]) -> dict[str, Any]:
        """Return the JSON of one request.

        ``float`` is asked for by name: the SDK would ask for base64, and some proxies then answer a vector of
        a quarter of the width.
        """
        body: dict[str, Any] = {"model": model, "input": list(texts), "encoding_format": "float"}
        if self.provider.sends_dimensions:
            body["dimensions"] = dimensions
        return {**body, **self.provider.extra_body}


def check_base_url(url: str, *, allow_hosts: Iterable[str] = (), allow_http_loopback: bool = False) -> Endpoint:
    """Decide whether note text may be sent to this URL.

    Args:
        url: Root of the API, for example ``https://openrouter.ai/api/v1``.
        allow_hosts: Hosts (``host`` or ``host:port``) that are allowed besides the known providers.
        allow_http_loopback: Whether a server on this machine is allowed, also over ``http``.

    Raises:
        ConfigError: It may not. The message never repeats the URL, which can hold a password.
    """
    name = "embedding.base_url"
    if not url.isascii() or not url.isprintable() or any(sign in url for sign in ' \\"<>^`{|}'):
        raise ConfigError(f"{name}: want plain ASCII without spaces; write an international host in its xn-- form")
    try:
        split = urlsplit(url)
        port = split.port
    except ValueError:
        raise ConfigError(f"{name}: not a URL") from None
    if "@" in split.netloc:
        raise ConfigError(f"{name}: must not hold a user name or password; the key has a setting of its own")
    if split.query or split.fragment or "?" in url or "#" in url:
        raise ConfigError(f"{name}: must not hold a query or a fragment")
    scheme, host = split.scheme, split.hostname or ""
    if scheme not in ("http", "https"):
        raise ConfigError(f"{name}: want https://")
    if port == 0 or not _PATH.fullmatch(split.path) or {".", ".."} & set(split.path.split("/")):
        raise ConfigError(f"{name}: its port or path is malformed")
    loopback = _check_host(name, host)
    port = port or (_HTTPS_PORT if scheme == "https" else 80)
    listed = {entry.strip().lower() for entry in allow_hosts} & {host, f"{host}:{port}", f"[{host}]:{port}"}
    if scheme == "http" and not (loopback and allow_http_loopback):
        raise ConfigError(
            f"{name}: http is accepted for a server on this machine only, with embedding.allow_http_loopback = true"
        )
    known = _PROVIDER_OF_HOST.get(host) if port == _HTTPS_PORT else None
    if known is None and not listed and not (loopback and allow_http_loopback):
        raise ConfigError(f"{name}: {host} is no known provider; add it to embedding.allow_hosts to send it note text")
    if known is None:
        known = PROVIDERS[_PROVIDER_OF_LOOPBACK_PORT.get(port, "local") if loopback else "custom"]
    shown_host = f"[{host}]" if ":" in host else host
    shown_port = "" if port == (_HTTPS_PORT if scheme == "https" else 80) else f":{port}"
    return Endpoint(f"{scheme}://{shown_host}{shown_port}{split.path.rstrip('/')}", scheme, host, port, known)


def _check_host(name: str, host: str) -> bool:
    """Refuse a host that no setting can allow; return whether it is this machine."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        # 127.1, 0x7f000001 and 2130706433 are addresses to the resolver, and would pass for names here.
        if not _HOST_NAME.fullmatch(host) or _LOOKS_NUMERIC.fullmatch(host):
            raise ConfigError(f"{name}: its host is malformed") from None
        if host in _METADATA_HOSTS:
            raise ConfigError(f"{name}: a cloud's metadata service is never sent anything") from None
        return host == "localhost"
    inner = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None) or address
    if getattr(address, "scope_id", None) or inner != address:
        raise ConfigError(f"{name}: write the address in its plain form")
    if (
        address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or str(address) in _METADATA_ADDRESSES
        or (address.is_reserved and not address.is_loopback)
    ):
        raise ConfigError(f"{name}: link-local, multicast, reserved and metadata addresses are never sent anything")
    return address.is_loopback


def check_key(key: str) -> str:
    """Return the API key if it can stand in a header.

    Raises:
        ConfigError: It cannot; the HTTP library would raise an error that quotes it.
    """
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError("the API key holds a space, a line break or a sign outside ASCII: store the bare key")
    return key


_REJECTED: Final = frozenset({400, 413, 422})
_UNAVAILABLE: Final = frozenset({408, 409, 423, 425, 429})
_DENIED: Final = MappingProxyType(
    {
        401: "check the API key",
        402: "the account has no credit left",
        403: "the key may not use this model, or the provider refuses the account",
        404: "check embedding.model and embedding.base_url",
        405: "check embedding.base_url",
    }
)
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_.:-]{1,80}")


def failure_of_status(status: int, endpoint: Endpoint, request_id: str | None = None) -> EmbeddingError:
    """Return the error that a status code other than 200 means; the provider's own words are never used.

    Args:
        status: Of the response.
        endpoint: Whom we asked.
        request_id: From the response's headers, shown where it looks like one.
    """
    shown = f", request {request_id}" if request_id and _REQUEST_ID.fullmatch(request_id) else ""
    answered = f"{endpoint.host} answered {status}{shown}"
    if status in _REJECTED:
        return EmbeddingRejected(answered)
    if status in _UNAVAILABLE or status >= 500:  # noqa: PLR2004 - server errors
        error = EmbeddingUnavailable(answered)
        error.may_be_the_texts = status == 500  # noqa: PLR2004 - Ollama's answer to a text whose vector holds a NaN
        return error
    if 300 <= status < 400:  # noqa: PLR2004 - redirects
        return EmbeddingDenied(f"{answered}: redirects are not followed, check embedding.base_url")
    hint = _DENIED.get(status, "it will not answer before a setting changes")
    if status == 404 and endpoint.provider.name == "openrouter":  # noqa: PLR2004 - as in the table above
        hint = "it does not have this model, or no endpoint of it that keeps no data"
    return EmbeddingDenied(f"{answered}: {hint}")


def error_class(error: Exception) -> str:
    """Return the short, stable name by which a failure is stored and shown."""
    names = {
        EmbeddingRejected: "embedding_rejected",
        EmbeddingDenied: "embedding_denied",
        EmbeddingAnswerError: "embedding_answer",
        EmbeddingUnavailable: "embedding_unavailable",
        EmbeddingError: "embedding",
        ConfigError: "config",
    }
    return next((name for kind, name in names.items() if isinstance(error, kind)), type(error).__name__)


def max_answer_bytes(count: int, dimensions: int) -> int:
    """Return the size above which an answer to ``count`` texts is not read on.

    A float of full precision takes 22 bytes and its comma; 48 leave room for a pretty-printed answer.
    """
    return 65_536 + count * (1_024 + 48 * dimensions)


@dataclass(frozen=True, slots=True)
class Answer:
    """A valid answer.

    Attributes:
        vectors: In the order of the texts; unit length, padded to 1,536 floats.
        tokens: As the provider counted them; None where it does not say.
        price_usd: As the provider charged; None where it does not say.
    """

    vectors: tuple[tuple[float, ...], ...] = field(repr=False)
    tokens: int | None = None
    price_usd: float | None = None


def read_answer(
    body: bytes,
    expected_count: int,
    dimensions: int,
    endpoint: Endpoint,
    *,
    loads: Callable[[bytes], Any] = json.loads,
) -> Answer:
    """Parse and check the body of a response with status 200.

    Args:
        body: As it was received.
        expected_count: Texts in the request.
        dimensions: Width that was asked for.
        endpoint: Who answered.
        loads: A faster parser of JSON, where one is loaded already; fails with ValueError.

    Raises:
        EmbeddingAnswerError: It is not JSON, or its vectors are not what was asked for.
        EmbeddingError: It is an error in the clothes of a success, as OpenRouter sends them.
    """
    try:
        payload = loads(body)
    except (ValueError, RecursionError):
        payload = None
    if not isinstance(payload, dict):
        raise EmbeddingAnswerError(f"{endpoint.host} did not answer with JSON")
    payload = cast("dict[str, Any]", payload)
    status = _status_inside(payload)
    if status is not None:
        raise failure_of_status(status, endpoint)
    vectors = check_answer(payload, expected_count, dimensions)
    usage = payload.get("usage")
    usage = cast("dict[str, Any]", usage) if isinstance(usage, dict) else {}
    tokens = next((usage[name] for name in ("total_tokens", "prompt_tokens") if _is_count(usage.get(name))), None)
    price = usage.get("cost")
    if isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price < math.inf:
        price = None
    return Answer(tuple(unit_vector(vector) for vector in vectors), tokens, price)


def _status_inside(payload: Mapping[str, Any]) -> int | None:
    error = payload.get("error")
    if not isinstance(error, dict) or payload.get("data"):
        return None
    code = cast("dict[str, Any]", error).get("code")
    return code if isinstance(code, int) and 400 <= code < 600 else 500  # noqa: PLR2004 - error statuses


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def check_answer(payload: Any, expected_count: int, dimensions: int) -> list[Sequence[float]]:
    """Return the vectors of an answer in the order of the texts, each ``dimensions`` finite floats.

    The SDK accepts short, mis-sized, doubled and NaN answers without a word. ``index`` decides about the order;
    where no item has one, the order of the list does.

    Raises:
        EmbeddingAnswerError: Anything about it is off; then nothing of it is used.
    """
    data = cast("dict[str, Any]", payload).get("data") if isinstance(payload, dict) else None
    if not isinstance(data, list):
        raise EmbeddingAnswerError("the answer holds no list of vectors")
    items = cast("list[Any]", data)
    if len(items) != expected_count:
        raise EmbeddingAnswerError(f"the answer holds {len(items)} vectors for {expected_count} texts")
    if not all(isinstance(item, dict) for item in items):
        raise EmbeddingAnswerError("the answer's items are no vectors")
    indexes = [item.get("index") for item in items]
    if all(index is None for index in indexes):
        indexes = list(range(expected_count))
    if not all(_is_count(index) for index in indexes) or sorted(indexes) != list(range(expected_count)):
        raise EmbeddingAnswerError("the answer's indexes are missing, doubled or out of range")
    vectors: list[Sequence[float]] = [()] * expected_count
    for index, item in zip(indexes, items, strict=True):
        vectors[index] = _check_vector(item.get("embedding"), dimensions)
    return vectors


def _check_vector(value: Any, dimensions: int) -> Sequence[float]:
    if isinstance(value, str):
        value = _floats_of_base64(value)
    if not isinstance(value, list):
        raise EmbeddingAnswerError("the answer's items are no vectors")
    numbers = cast("list[float]", value)
    if len(numbers) != dimensions:
        raise EmbeddingAnswerError(
            f"the answer's vectors have {len(numbers)} numbers, not {dimensions}: check embedding.dimensions"
        )
    if not set(map(type, numbers)) <= {float, int}:
        raise EmbeddingAnswerError("the answer's vectors hold something that is no number")
    length = _length(numbers)
    if not math.isfinite(length):
        raise EmbeddingAnswerError("the answer's vectors are not finite")
    if length == 0:
        raise EmbeddingAnswerError("the answer holds a vector of zeros")
    return numbers


def _floats_of_base64(text: str) -> list[float] | None:
    floats = array("f")
    try:
        floats.frombytes(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return None
    if sys.byteorder == "big":
        floats.byteswap()
    return floats.tolist()


def _length(numbers: Sequence[float]) -> float:
    try:
        return math.hypot(*numbers)
    except OverflowError:  # an integer beyond the range of floats
        return math.inf


def unit_vector(numbers: Sequence[float]) -> tuple[float, ...]:
    """Return the vector at unit length, padded with zeros to 1,536 floats."""
    length = _length(numbers)
    padding = (0.0,) * (STORED_DIMENSIONS - len(numbers))
    if abs(length - 1) < _UNIT_TOLERANCE:
        return (*numbers, *padding)
    return (*(number / length for number in numbers), *padding)
