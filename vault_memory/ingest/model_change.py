"""Another model: every vector made anew beside the old ones, which answer until one transaction changes over.

Belongs here: the slices of a rebuild and its stage. Does not: what an ordinary run embeds (``embedding``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from vault_memory.errors import EgressBlocked, EmbeddingRejected
from vault_memory.ingest.batch import failure_of
from vault_memory.ingest.prepare import PreparedNote, Unreadable
from vault_memory.ingest.provider import texts_of
from vault_memory.notes import changes
from vault_memory.notes.model import EntryKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from vault_memory.adapters.embed_text import EmbedText
    from vault_memory.adapters.embedding import Embedder
    from vault_memory.adapters.store import Store
    from vault_memory.errors import VaultMemoryError
    from vault_memory.ingest.batch import NoteFailure
    from vault_memory.ingest.planning import Planner, VaultPlan
    from vault_memory.ingest.prepare import Preparer
    from vault_memory.ingest.provider import Provider

_REBUILD_NOTES: Final = 300


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What came of making every vector anew.

    Attributes:
        changed_over: Whether the new vectors are in force.
        failures: Notes with a text that could not be embedded.
    """

    changed_over: bool
    failures: Mapping[str, NoteFailure]


@dataclass(frozen=True, slots=True)
class Slice:
    """Some notes of a rebuild.

    Attributes:
        hashes: Text hashes of each note.
        texts: Those of them that are not on the stage yet.
    """

    hashes: Mapping[str, set[str]]
    texts: list[EmbedText]


class Rebuild:
    """Makes every vector anew with the embedder at hand."""

    def __init__(self, store: Store, provider: Provider, *, planner: Planner, preparer: Preparer) -> None:
        """Take over open parts.

        Args:
            store: Keeps the new vectors on a stage of their own.
            provider: To ask for vectors.
            planner: Knows the rules of a commit.
            preparer: Reads the notes.
        """
        self._store = store
        self._provider = provider
        self._planner = planner
        self._preparer = preparer

    def fill_stage(self, plan: VaultPlan, *, run_id: str, report: Callable[[str], None]) -> Rebuilt:
        """Embed what is not on the stage; ``changed_over`` of the result says whether the change may be made."""
        stage = stage_of(self._provider.required())
        failed: dict[str, VaultMemoryError] = {}
        failures: dict[str, NoteFailure] = {}
        for part in self.slices(plan):
            if part.texts:
                failed.update(self._provider.buy(part.texts, stage=stage, run_id=run_id))
            for note_id, hashes in part.hashes.items():
                errors = [failed[text_hash] for text_hash in hashes if text_hash in failed]
                if errors:
                    failures[note_id] = failure_of("embed", errors[0])
            report(f"{self._provider.spent.texts} texts embedded anew")
        for_good = all(isinstance(error, EmbeddingRejected) for error in failed.values())
        return Rebuilt(changed_over=for_good, failures=failures)

    def change_over(self) -> None:
        """Put the vectors of the stage in force and record their embedder. Call it in a transaction."""
        embedder = self._provider.required()
        self._store.flip_vectors(stage_of(embedder), embedder.model, embedder.dimensions)
        self._provider.write_identity(embedder)

    def slices(self, plan: VaultPlan) -> Iterator[Slice]:
        """Yield the notes of HEAD with the texts that are not on the stage yet."""
        embedder = self._provider.required()
        rules = self._planner.rules(plan.commit)
        wanted = [
            (path, entry.blob_id)
            for entry, path, lost in changes.identified(plan.tree)
            if not lost and entry.kind is EntryKind.FILE and rules.path_exclusion(entry.path) is None
        ]
        asked: set[str] = set()
        for start in range(0, len(wanted), _REBUILD_NOTES):
            hashes: dict[str, set[str]] = {}
            texts: dict[str, EmbedText] = {}
            for note in self._preparer.prepare(wanted[start : start + _REBUILD_NOTES], rules):
                if isinstance(note, Unreadable):
                    raise note.error  # changing over would take the note out of memory
                if isinstance(note, PreparedNote):
                    try:
                        of_note = texts_of(note)
                    except EgressBlocked:
                        continue  # the run that follows quarantines it
                    hashes[note.note.path.id] = {text.text_hash for text in of_note}
                    texts.update({text.text_hash: text for text in of_note})
            known = self._store.staged(sorted(texts), stage_of(embedder), embedder.dimensions) | asked
            asked.update(texts)
            yield Slice(hashes, [text for text_hash, text in texts.items() if text_hash not in known])


def stage_of(embedder: Embedder) -> str:
    """Name the stage of a rebuild: by the embedder, so that no other one's vectors pass for its own."""
    return f"rebuild: {embedder.name} {embedder.model} {embedder.base_url or ''}"
