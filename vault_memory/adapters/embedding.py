"""Texts of clean notes become vectors, paid for once.

Belongs here: the embedders, and which one a vault uses. Does not: what may leave the machine (``embed_text``), where it
may go (``egress``), retries (``embedding_run``), one request (``embedding_http``), what is stored.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from vault_memory.adapters.batching import Limits, pack
from vault_memory.adapters.egress import (
    STORED_DIMENSIONS,
    Endpoint,
    check_base_url,
    check_key,
    max_answer_bytes,
)
from vault_memory.adapters.embedding_run import EmbedResult, EmbedRun, OnVectors, Pace, distinct
from vault_memory.errors import (
    ConfigError,
    MissingExtraError,
)

if TYPE_CHECKING:
    import ssl

    from vault_memory.adapters.embed_text import EmbedText
    from vault_memory.settings import EmbedderName, EmbeddingSettings, Settings

logger = logging.getLogger(__name__)

HASHING_NOTICE: Final = (
    "vectors come from the offline embedder, since no API key was set when this memory was made: "
    "shared words are found, meanings are not"
)
_HASHING_BATCH: Final = 64


class Embedder(Protocol):
    """Turns texts of clean notes into vectors."""

    @property
    def name(self) -> EmbedderName:
        """``openai`` or ``hashing``."""
        ...

    @property
    def model(self) -> str:
        """The recorded name of the model."""
        ...

    @property
    def dimensions(self) -> int:
        """Width before padding."""
        ...

    @property
    def host(self) -> str | None:
        """Whom texts are sent to; None: nobody."""
        ...

    @property
    def base_url(self) -> str | None:
        """In its recorded spelling; None: nobody is asked."""
        ...

    @property
    def max_texts_per_request(self) -> int:
        """Texts in one request at most."""
        ...

    def price_usd(self, tokens: int) -> float | None:
        """Return what so many tokens cost; None where no price is known."""
        ...

    def embed(
        self, texts: Sequence[EmbedText], *, on_vectors: OnVectors | None = None, keep_vectors: bool = True
    ) -> EmbedResult:
        """Embed texts; those that fail are in ``failed``, and cost the others nothing.

        Args:
            texts: Repeated ones are sent once.
            on_vectors: Is given each batch as it arrives.
            keep_vectors: False: leave ``vectors`` of the result empty (49 kB each).
        """
        ...


class HashingEmbedder:
    """The offline embedder: finds shared spellings, not meanings."""

    name: EmbedderName = "hashing"
    host: str | None = None
    base_url: str | None = None
    dimensions: int = STORED_DIMENSIONS
    max_texts_per_request: int = _HASHING_BATCH

    @property
    def model(self) -> str:
        """The version of the hashing."""
        from vault_memory.notes import hashing  # noqa: PLC0415 - most vaults never need it

        return hashing.MODEL

    def price_usd(self, tokens: int) -> float | None:  # noqa: ARG002 - part of the protocol
        """Return zero."""
        return 0.0

    def embed(
        self, texts: Sequence[EmbedText], *, on_vectors: OnVectors | None = None, keep_vectors: bool = True
    ) -> EmbedResult:
        """Embed texts on this machine; see :class:`Embedder`."""
        from vault_memory.notes import hashing  # noqa: PLC0415 - most vaults never need it

        result = EmbedResult()
        unique = {text.text_hash: text.text for text in texts}
        for batch in pack(distinct(texts), Limits(_HASHING_BATCH, 10**9, 10**9)):
            vectors = {text.text_hash: hashing.embed(unique[text.text_hash]) for text in batch}
            result.embedded += len(vectors)
            if on_vectors is not None:
                on_vectors(vectors)
            if keep_vectors:
                result.vectors.update(vectors)
        return result


class OpenAIEmbedder:
    """Embeds through an OpenAI-compatible API.

    Args:
        endpoint: Checked by ``egress.check_base_url``.
        settings: Model, width, limits.
        api_key: None where the provider wants none.
        pace: Clock, sleep and chance; another one for tests.

    Raises:
        MissingExtraError: The SDK is not installed.
        ConfigError: The key cannot stand in a header.
    """

    name: EmbedderName = "openai"

    def __init__(
        self,
        endpoint: Endpoint,
        settings: EmbeddingSettings,
        api_key: str | None,
        *,
        pace: Pace | None = None,
    ) -> None:
        if importlib.util.find_spec("openai") is None:
            raise MissingExtraError("embedding through an API", "pipeline")
        self.endpoint = endpoint
        self.settings = settings
        self.pace = pace or Pace()
        self.proven = False
        """Whether a request has succeeded since the last outage; until then one is sent at a time."""
        self.waited = False
        """Whether an outage outlasted all tries of a request; until one succeeds, the next calls only knock."""
        self._api_key = None if api_key is None else check_key(api_key)
        self._tls: ssl.SSLContext | None = None
        self.max_texts_per_request = settings.max_batch_texts or endpoint.provider.max_texts

    @property
    def model(self) -> str:
        """As the provider calls it."""
        return self.settings.model

    @property
    def dimensions(self) -> int:
        """Width that is asked for."""
        return self.settings.dimensions

    @property
    def host(self) -> str | None:
        """Whom texts are sent to."""
        return self.endpoint.host

    @property
    def base_url(self) -> str | None:
        """Of the API, in its canonical spelling."""
        return self.endpoint.base_url

    def price_usd(self, tokens: int) -> float | None:
        """Return what so many tokens cost by the setting, else by the provider's list; None: unknown."""
        price = self.settings.price_usd_per_million_tokens
        if price is None:
            price = self.endpoint.provider.prices.get(self.model)
        if price is None and not self.endpoint.provider.needs_key:
            return 0.0
        return None if price is None else price * tokens / 1_000_000

    def embed(
        self, texts: Sequence[EmbedText], *, on_vectors: OnVectors | None = None, keep_vectors: bool = True
    ) -> EmbedResult:
        """Embed texts; see :class:`Embedder`. Must not be called from a running event loop.

        An interrupt (Ctrl-C, a terminated run) ends waiting and requests at once.
        """
        unique = distinct(texts)
        if not unique:
            return EmbedResult()
        run = EmbedRun(self, on_vectors, keep_vectors=keep_vectors)
        with asyncio.Runner() as runner:
            runner.run(self._run(run, unique))
        self._log(run.result)
        return run.result

    async def _run(self, run: EmbedRun, texts: Sequence[EmbedText]) -> None:
        from vault_memory.adapters import embedding_http  # noqa: PLC0415 - the SDK takes half a second

        if self._tls is None:
            self._tls = embedding_http.tls_context(self.endpoint)
        async with embedding_http.open_client(
            self.endpoint,
            self._api_key,
            tls=self._tls,
            max_answer_bytes=max_answer_bytes(self.max_texts_per_request, self.dimensions),
            concurrency=max(1, self.settings.concurrency),
            timeout_seconds=self.settings.timeout_seconds,
        ) as client:
            await run.all(client, texts)

    def _log(self, result: EmbedResult) -> None:
        level = logging.WARNING if result.failed else logging.INFO
        logger.log(
            level,
            "embedded %d texts in %d requests, %d failed%s",
            result.embedded,
            result.requests,
            len(result.failed),
            "".join(f"; {reason}" for reason in sorted({str(error) for error in result.failed.values()})[:3]),
        )


@dataclass(frozen=True, slots=True)
class RecordedIdentity:
    """Which embedder made the vectors in the database.

    Attributes:
        base_url: None for ``hashing``.
    """

    embedder: EmbedderName
    model: str
    dimensions: int
    base_url: str | None = None


def identity_of(embedder: Embedder) -> RecordedIdentity:
    """Return what is recorded when this embedder makes the first vectors."""
    return RecordedIdentity(embedder.name, embedder.model, embedder.dimensions, embedder.base_url)


def open_embedder(
    settings: Settings, recorded: RecordedIdentity | None, *, accept_change: bool = False
) -> HashingEmbedder | OpenAIEmbedder:
    """Return the embedder of a vault; never another one than its vectors were made by.

    Hashing is used only if it is recorded or asked for, or at a first sync with no key at all.

    Args:
        settings: The user's.
        recorded: What the database holds; None before the first sync.
        accept_change: The user asked for ``--full --accept-model``: the settings decide.

    Raises:
        ConfigError: There is no key, or the settings contradict what is recorded.
        MissingExtraError: The SDK is not installed.
    """
    asked = settings.embedding.embedder
    name = asked or (recorded.embedder if recorded is not None else None)
    if name == "hashing":
        embedder = HashingEmbedder()
    else:
        endpoint = check_base_url(
            settings.embedding.base_url,
            allow_hosts=settings.embedding.allow_hosts,
            allow_http_loopback=settings.embedding.allow_http_loopback,
        )
        key = settings.api_key()
        if key is None and endpoint.provider.needs_key:
            if name is None:
                return HashingEmbedder()
            raise ConfigError(
                "no API key: set OPENROUTER_API_KEY, embedding.api_key_file or embedding.api_key_command;"
                " nothing was embedded"
            )
        embedder = OpenAIEmbedder(endpoint, settings.embedding, key)
    wanted = identity_of(embedder)
    if recorded is not None and wanted != recorded and not accept_change:
        raise ConfigError(
            f"the index was made by {_described(recorded)}, the settings want {_described(wanted)}:"
            " set them back, or rebuild with 'vault-memory sync --full --accept-model'"
        )
    return embedder


def _described(identity: RecordedIdentity) -> str:
    where = f" at {identity.base_url}" if identity.base_url else ""
    return f"{identity.embedder} {identity.model} ({identity.dimensions} dimensions{where})"
