"""The embed step: the vectors that a run's notes lack, each paid for once.

Belongs here: which texts have no vector, and which notes fail because of a text.
Does not: identity and account of the embedder (``provider``), the wire (``adapters.embedding``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from vault_memory.errors import ConfigError, EgressBlocked, EmbeddingError
from vault_memory.ingest.batch import failure_of, is_retryable
from vault_memory.ingest.prepare import PreparedNote, Refused
from vault_memory.ingest.provider import texts_of
from vault_memory.notes.model import Finding, Quarantined, QuarantineReason

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vault_memory.adapters.embed_text import EmbedText
    from vault_memory.adapters.store import Store
    from vault_memory.errors import VaultMemoryError
    from vault_memory.ingest.batch import Batch, Item
    from vault_memory.ingest.planning import Planner
    from vault_memory.ingest.prepare import Preparer
    from vault_memory.ingest.provider import Provider
    from vault_memory.ingest.withdrawing import Withdrawer

_EMBED_SLICE: Final = 2000  # texts handed to the embedder at once, so that memory does not grow with the run


class EmbedStep:
    """Gets the vectors that are missing."""

    def __init__(
        self, store: Store, provider: Provider, *, planner: Planner, preparer: Preparer, withdrawer: Withdrawer
    ) -> None:
        """Take over open parts.

        Args:
            store: Knows the vectors, and keeps new ones on its stage.
            provider: To ask for vectors.
            planner: Knows the rules of a commit.
            preparer: Reads the notes.
            withdrawer: Takes out a note whose text as sent would hold a secret.
        """
        self._store = store
        self._provider = provider
        self._planner = planner
        self._preparer = preparer
        self._withdrawer = withdrawer

    def run(self, batch: Batch) -> Batch:
        """Get the vectors that are missing, and stage each as soon as it is paid for.

        A text that cannot be embedded fails its notes, not the batch.
        """
        items = {item.note_id: item for item in batch.items}
        waiting = [item for item in batch.items if item.is_open and item.hashes]
        if not waiting:
            return batch
        model, dimensions = self._provider.model()
        known = self._store.known_vectors(sorted({h for item in waiting for h in item.hashes}), model, dimensions)
        failed: dict[str, VaultMemoryError] = {}
        for part in _slices(waiting, _EMBED_SLICE):
            texts = self._missing_texts(part, batch, known, items)
            if not texts:
                continue
            if self._provider.embedder is None or self._provider.error is not None:
                error = self._provider.error or ConfigError("no embedder is configured")
                failed.update(dict.fromkeys((text.text_hash for text in texts), error))
                continue
            try:
                failed.update(self._provider.buy(texts, stage=model, run_id=batch.run_id))
            except EmbeddingError as error:
                failed.update(dict.fromkeys((text.text_hash for text in texts), error))
        for item in waiting:
            errors = [failed[text_hash] for text_hash in item.hashes if text_hash in failed]
            if errors and items[item.note_id].is_open:
                # A note with one text that will never pass is not tried again for the sake of its others.
                worst = next((error for error in errors if not is_retryable(error)), errors[0])
                current = items[item.note_id]
                items[item.note_id] = replace(
                    current,
                    embedded=max(0, current.embedded - len(failed.keys() & item.hashes)),
                    failure=failure_of("embed", worst),
                )
        self._provider.account_reused(sum(items[item.note_id].reused for item in waiting))
        return batch.with_items(tuple(items.values()))

    def _missing_texts(
        self, part: Sequence[Item], batch: Batch, known: set[str], items: dict[str, Item]
    ) -> list[EmbedText]:
        """Gather the texts of some notes that no vector is known for, each once; mark them as known."""
        texts: list[EmbedText] = []
        wanted = [(item.path, item.blob_id) for item in part if item.blob_id]
        for note in self._preparer.prepare(wanted, self._planner.rules(batch.commit)):
            if not isinstance(note, PreparedNote):
                continue  # the scanner changed its mind; persist says so
            item = items[note.note.path.id]
            try:
                # All texts, since one with a vector may have been sent under older rules.
                texts_of_note = texts_of(note)
            except EgressBlocked as error:
                # Harmless line by line, a secret once title, heading and body stand together.
                findings = tuple(Finding(rule, error.line, "egress") for rule in error.rules)
                verdict = Quarantined(note.note.path, note.note.blob_id, QuarantineReason.SECRET, findings)
                self._withdrawer.refuse(batch, Refused(verdict, note.content_hmac), items)
                continue
            sent = [text for text in texts_of_note if text.text_hash not in known]
            known.update(text.text_hash for text in sent)
            texts += sent
            items[item.note_id] = replace(item, embedded=len(sent), reused=len(set(item.hashes)) - len(sent))
        return texts


def _slices(items: Sequence[Item], most_texts: int) -> Iterator[list[Item]]:
    part: list[Item] = []
    texts = 0
    for item in items:
        part.append(item)
        texts += len(item.hashes)
        if texts >= most_texts:
            yield part
            part, texts = [], 0
    if part:
        yield part
