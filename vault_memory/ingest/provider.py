"""The embedder of a vault's memory: which one it is by record, and what it was asked for.

Belongs here: holding the embedder of the settings against the recorded one, writing it down, paying for texts and
keeping the account. Does not: which texts are needed (``embedding``), how they travel (``adapters.embedding``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from pgvector import Vector

from vault_memory.adapters import embed_text
from vault_memory.adapters import embedding as embedding_adapter
from vault_memory.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vault_memory.adapters.embed_text import EmbedText
    from vault_memory.adapters.embedding import Embedder
    from vault_memory.adapters.store import Store
    from vault_memory.adapters.store_records import SyncState
    from vault_memory.errors import VaultMemoryError
    from vault_memory.ingest.keys import KeyedHash
    from vault_memory.ingest.prepare import PreparedNote
    from vault_memory.ingest.source import Source
    from vault_memory.settings import EmbedderName, Settings


@dataclass(slots=True)
class Spent:
    """What this process has asked of the embedding API so far."""

    texts: int = 0
    tokens: int = 0
    requests: int = 0
    price_usd: float | None = 0.0

    def __add__(self, other: Spent) -> Spent:
        """Add up; a price that is not known stays unknown."""
        known = self.price_usd is not None and other.price_usd is not None
        return Spent(
            self.texts + other.texts,
            self.tokens + other.tokens,
            self.requests + other.requests,
            (self.price_usd or 0.0) + (other.price_usd or 0.0) if known else None,
        )


class Provider:
    """The embedder at hand, and the identity that the database records.

    Attributes:
        embedder: None where it could not be opened.
        error: Why not, or why it is not to be asked again.
        spent: What this process has asked for so far.
    """

    def __init__(self, settings: Settings, store: Store, vault: Source, key: KeyedHash) -> None:
        """Take over open parts; ``open`` looks for the embedder."""
        self.embedder: Embedder | None = None
        self.error: ConfigError | None = None
        self.spent = Spent()
        self._settings = settings
        self._store = store
        self._vault = vault
        self._key = key
        self._chooses = False  # whether nothing was recorded when the embedder was opened

    def open(self, state: SyncState, *, accept_model: bool) -> None:
        """Open the embedder of the settings and hold it against the recorded one.

        Raises:
            ConfigError: It cannot be opened, and nothing is recorded yet.
        """
        self._chooses = state.model is None
        try:
            self.embedder = embedding_adapter.open_embedder(self._settings, recorded(state), accept_change=accept_model)
        except ConfigError as error:
            # Deletions and quarantines must still be carried out; whatever has to be embedded fails by name.
            if state.model is None:
                raise
            self.error = error

    def record_identity(self, *, embedder: bool) -> None:
        """Record whose memory this is, and how its vectors are made, where the database does not say so yet.

        Not when it is opened: a look (``--dry-run``, a sensor's tick) before the key is set must not bind the
        memory to the offline embedder for good. Call it as the writer.
        """
        state = self._store.sync_state()
        if state.key_fingerprint is None:
            self._store.record_owner(vault=str(self._vault.path), key_fingerprint=self._key.fingerprint)
        if not embedder or self.embedder is None:
            return
        identity = embedding_adapter.identity_of(self.embedder)
        if state.model is None:
            self.write_identity(self.embedder)
        elif self._chooses and recorded(state) != identity:
            self.open(state, accept_model=False)  # somebody else was first

    def write_identity(self, embedder: Embedder) -> None:
        """Record an embedder as the one that made the vectors."""
        self._store.record_identity(
            vault=str(self._vault.path),
            embedder=embedder.name,
            model=embedder.model,
            dimensions=embedder.dimensions,
            base_url=embedder.base_url,
            key_fingerprint=self._key.fingerprint,
        )

    @property
    def model_changed(self) -> bool:
        """Whether the vectors in the store are another embedder's than the one at hand."""
        on_record = recorded(self._store.sync_state())
        return (
            self.embedder is not None
            and on_record is not None
            and embedding_adapter.identity_of(self.embedder) != on_record
        )

    @property
    def notice(self) -> str | None:
        """What a user should know of the embedder on every use: that it is the offline one, unless asked for."""
        embedder = self.embedder
        if embedder is None or embedder.name != "hashing" or self._settings.embedding.embedder == "hashing":
            return None
        return embedding_adapter.HASHING_NOTICE

    def model(self) -> tuple[str, int]:
        """Return the name and the width of the model whose vectors are in force.

        Raises:
            ConfigError: None is recorded, and none can be opened.
        """
        if self.embedder is not None:
            return self.embedder.model, self.embedder.dimensions
        state = self._store.sync_state()
        if state.model is None or state.dimensions is None:
            raise self.error or ConfigError("no embedder is configured")
        return state.model, state.dimensions

    def required(self) -> Embedder:
        """Return the embedder.

        Raises:
            ConfigError: There is none; the message says why.
        """
        if self.embedder is None:
            raise self.error or ConfigError("no embedder is configured")
        return self.embedder

    def buy(self, texts: Sequence[EmbedText], *, stage: str, run_id: str) -> Mapping[str, VaultMemoryError]:
        """Embed texts, stage their vectors as they arrive, keep the account.

        Args:
            texts: Each once.
            stage: Name that the vectors wait under until they are in force; the model's own in an ordinary run.
            run_id: Whose run.

        Returns:
            Errors by text hash.
        """
        embedder = self.required()

        def keep(vectors: Mapping[str, tuple[float, ...]]) -> None:
            self._store.stage_vectors(
                {text_hash: Vector(list(vector)) for text_hash, vector in vectors.items()},
                stage,
                embedder.dimensions,
                run_id,
            )

        result = embedder.embed(texts, on_vectors=keep, keep_vectors=False)
        spent = Spent(result.embedded, result.tokens, result.requests, result.price_usd)
        self.spent += spent
        if spent.texts or spent.requests:
            self._store.record_usage(
                model=embedder.model,
                texts=spent.texts,
                tokens=spent.tokens,
                requests=spent.requests,
                price_usd=spent.price_usd or 0.0,
            )
        # Refused for the key, the account or an address: the rest of this process would only knock again. Whatever
        # needs no embedding is still carried out.
        self.error = result.denied or self.error
        return result.failed

    def account_reused(self, texts: int) -> None:
        """Add texts that needed no new vector to the account."""
        if texts and self.embedder is not None:
            self._store.record_usage(
                model=self.embedder.model, texts=0, tokens=0, requests=0, price_usd=0.0, texts_reused=texts
            )


def recorded(state: SyncState) -> embedding_adapter.RecordedIdentity | None:
    """Return the recorded embedder; None where no vector was made yet."""
    if state.embedder is None or state.model is None or state.dimensions is None:
        return None
    return embedding_adapter.RecordedIdentity(
        cast("EmbedderName", state.embedder), state.model, state.dimensions, state.base_url
    )


def texts_of(note: PreparedNote) -> tuple[EmbedText, ...]:
    """Return the texts of a note that have a vector, scanned once more as they would be sent.

    Raises:
        EgressBlocked: Title, heading and body together hold a secret.
    """
    return embed_text.texts_of(note.note, note.chunks, allowed={one.rule for one in note.allowed})
