"""What one run carries from step to step: light values, never note text.

Belongs here: the batch of selected notes, what is known of each so far, and the outcome of each.
Does not: the steps themselves (``sync``).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal

from vault_memory.errors import ConfigError, Retryable
from vault_memory.notes.paths import NotePath

if TYPE_CHECKING:
    from vault_memory.errors import VaultMemoryError

Action = Literal[
    "added",
    "changed",
    "renamed",
    "deleted",
    "quarantined",
    "excluded",
    "released",
    "unchanged",
    "superseded",
    "postponed",
    "failed",
]


@dataclass(frozen=True, slots=True)
class NoteFailure:
    """Why a note failed: names of a step and an error class, and a reason without note text."""

    step: str
    error_class: str
    reason: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class Item:
    """One selected note on its way through a run.

    Attributes:
        note_id: Identity of the note.
        kind: Write it or forget it.
        raw_path: Hexadecimal bytes of its name in git; empty when it is forgotten.
        blob_id: The content to write.
        old_ids: Names it had before, forgotten in the same transaction.
        previous: Status in the manifest before the run; None for a note never seen.
        reason: Why it is forgotten or excluded.
        action: Set as soon as the outcome is known; None while there is something left to do.
        hashes: Text hashes of its chunks that have a text to embed.
        chunks: Number of its chunks.
        tokens: Upper bound of the tokens of its texts.
        embedded: Texts that were embedded for it in this run.
        reused: Texts whose vectors were there already.
        rules: Rule ids of its findings.
        failure: Set when a step failed for this note.
        milliseconds: Time spent on it so far.
    """

    note_id: str
    kind: Literal["upsert", "forget"]
    raw_path: str = ""
    blob_id: str | None = None
    old_ids: tuple[str, ...] = ()
    previous: str | None = None
    reason: str | None = None
    action: Action | None = None
    hashes: tuple[str, ...] = ()
    chunks: int = 0
    tokens: int = 0
    embedded: int = 0
    reused: int = 0
    rules: tuple[str, ...] = ()
    failure: NoteFailure | None = None
    milliseconds: float = 0.0

    @property
    def path(self) -> NotePath:
        """The note's path with its original bytes."""
        return NotePath(self.note_id, bytes.fromhex(self.raw_path))

    @property
    def is_open(self) -> bool:
        """Whether there is still something to write for it."""
        return self.action is None and self.failure is None


@dataclass(frozen=True, slots=True)
class Batch:
    """The notes of one run.

    Attributes:
        run_id: Whose run.
        commit: HEAD when the run began; the content comes from there.
        ruleset_id: The rules in force.
        items: In the order of their partitions.
    """

    run_id: str
    commit: str | None
    ruleset_id: str
    items: tuple[Item, ...]

    def with_items(self, items: tuple[Item, ...]) -> Batch:
        """Return a copy with other items."""
        return replace(self, items=items)

    def to_json(self) -> str:
        """Write the batch as JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Batch:
        """Read a batch back."""
        values = json.loads(text)
        items = tuple(_item(item) for item in values.pop("items"))
        return cls(items=items, **values)


@dataclass(frozen=True, slots=True)
class NoteOutcome:
    """What became of one note in a run.

    Attributes:
        note_id: Identity of the note.
        action: What happened.
        blob_id: Its content now; None where it is gone, excluded or quarantined.
        chunks: Chunks it has now.
        texts_embedded: Texts sent to the embedder for it.
        texts_reused: Texts whose vectors were there already.
        tokens: Upper bound of the tokens of its texts.
        milliseconds: Scanning and writing, without the wait for the embedding API.
        rules: Rule ids of its findings.
        error: Step, class and reason of a failure, without note text.
        drop_partition: Whether its partition goes with it.
    """

    note_id: str
    action: Action
    blob_id: str | None = None
    chunks: int = 0
    texts_embedded: int = 0
    texts_reused: int = 0
    tokens: int = 0
    milliseconds: float = 0.0
    rules: tuple[str, ...] = ()
    error: str | None = None
    drop_partition: bool = False


def outcome(item: Item) -> NoteOutcome:
    """Say what became of an item.

    Raises:
        ValueError: Its outcome is not known yet.
    """
    failure = item.failure
    action = "failed" if failure else item.action
    if action is None:
        message = "the note has no outcome yet"
        raise ValueError(message)
    written = action in ("added", "changed", "renamed", "released")
    return NoteOutcome(
        note_id=item.note_id,
        action=action,
        blob_id=item.blob_id if written else None,
        chunks=item.chunks if written else 0,
        texts_embedded=item.embedded,
        texts_reused=item.reused,
        tokens=item.tokens if written else 0,
        milliseconds=round(item.milliseconds, 2),
        rules=item.rules,
        error=f"{failure.step}: {failure.error_class}: {failure.reason}" if failure else None,
        drop_partition=item.kind == "forget",
    )


def _item(values: dict[str, object]) -> Item:
    failure = values.pop("failure")
    for name in ("old_ids", "hashes", "rules"):
        values[name] = tuple(values[name])  # pyright: ignore[reportArgumentType] - lists in JSON
    return Item(**values, failure=NoteFailure(**failure) if isinstance(failure, dict) else None)  # pyright: ignore[reportArgumentType]


def is_retryable(error: VaultMemoryError) -> bool:
    """Whether the same note may pass another time: the fault lies elsewhere, or is mended by a setting."""
    return isinstance(error, (Retryable, ConfigError))


def failure_of(step: str, error: VaultMemoryError) -> NoteFailure:
    """Say why a note failed."""
    return NoteFailure(step, type(error).__name__, str(error), retryable=is_retryable(error))
