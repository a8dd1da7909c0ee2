"""What goes into the store and comes out of it: plain values, one class a kind of row.

Belongs here: the shapes. Does not: SQL (``store``), or what a row means to a sync (``ingest``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from pgvector import Vector

    from vault_memory.notes.model import Chunk, NoteStatus
    from vault_memory.notes.tokens import DocumentTerms


@dataclass(frozen=True, slots=True)
class SyncState:
    """What the store was last brought to, and with what."""

    vault: str | None
    commit: str | None
    ruleset_id: str | None
    embedder: str | None
    model: str | None
    dimensions: int | None
    base_url: str | None
    key_fingerprint: str | None
    vector_index: str
    under_way: bool


@dataclass(frozen=True, slots=True)
class NoteState:
    """The manifest's line about one tracked Markdown file."""

    id: str
    status: NoteStatus
    blob_tag: str
    ruleset_id: str
    commit: str | None
    reason: str | None = None
    step: str | None = None
    error_class: str | None = None
    attempts: int = 0
    next_retry_at: datetime | None = None

    def values(self) -> list[object]:
        """Return its columns in the order in which they are written."""
        return [
            self.id,
            self.status.value,
            self.blob_tag,
            self.ruleset_id,
            self.reason,
            self.step,
            self.error_class,
            self.attempts,
            self.next_retry_at,
            self.commit,
        ]


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """One chunk as it is written: ``embedding`` is None where nothing was worth embedding."""

    id: str
    chunk: Chunk
    embedding: Vector | None
    terms: DocumentTerms


@dataclass(frozen=True, slots=True)
class NoteRow:
    """One note as it is written, with its chunks."""

    id: str
    content: str
    content_hash: str
    blob_id: str
    title: str
    tags: Sequence[str]
    links: Sequence[str]
    front_matter: Mapping[str, object]
    note_date: datetime | None
    commit: str
    ruleset_id: str
    model: str
    dimensions: int
    token_count: int
    chunks: Sequence[ChunkRow]


@dataclass(frozen=True, slots=True)
class Sent:
    """A version of a note that had left this machine before the note was quarantined.

    Attributes:
        provider: Host that it was sent to.
        at: When that version was written to memory.
        held_secret: Whether it matches the rules too, so that the secret itself was sent.
    """

    provider: str
    at: datetime
    held_secret: bool


class AuditLine(NamedTuple):
    """A line of the audit: where and by which rules, never what."""

    source: str
    reason: str
    rules: list[str]
    lines: list[int]
    action: str
    was_embedded: bool
    secret_embedded: bool
    embedded_by: str | None
    embedded_at: datetime | None
    content_hmac: str
    detected_at: datetime
    resolved_at: datetime | None

    @property
    def notice(self) -> str | None:
        """What its owner has to do because it had left this machine; None if it had not."""
        if not self.was_embedded:
            return None
        when = f" at {self.embedded_at:%Y-%m-%d %H:%M} UTC" if self.embedded_at else ""
        by = self.embedded_by or "an embedding provider"
        if self.secret_embedded:
            return f"was embedded: rotate it (sent to {by}{when})"
        return f"an earlier version without it was embedded by {by}{when}; the secret is in git: rotate it"


class Release(NamedTuple):
    """A release that a note is in memory by; ``is_settled``: the rows are what the manifest says."""

    note_id: str
    rule: str
    content_hmac: str
    expires_at: datetime
    is_settled: bool


class Failure(NamedTuple):
    """A failed note as ``status`` lists it."""

    source: str
    step: str | None
    error_class: str | None
    reason: str | None
    attempts: int
    next_retry: datetime | None


@dataclass(frozen=True, slots=True)
class Usage:
    """A month's account of the embedder.

    Attributes:
        texts: Embedded.
        texts_reused: That a note needed and had a vector already.
        price_usd: By the prices that were configured.
    """

    texts: int
    texts_reused: int
    tokens: int
    requests: int
    price_usd: float


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows and what should not be there (``orphans``, ``unlisted`` and ``leaks`` are 0 in a sound store)."""

    indexed: int
    excluded: int
    quarantined: int
    skipped: int
    failed: int
    notes: int
    chunks: int
    tokens: int
    orphans: int
    unlisted: int
    leaks: int
    size_bytes: int
