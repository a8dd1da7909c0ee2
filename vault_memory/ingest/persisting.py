"""The persist step: each note in a transaction of its own.

Belongs here: the rows of a note, and what a failed note leaves in the manifest. Does not: SQL (``adapters.store``).
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from vault_memory.adapters.store_records import ChunkRow, NoteRow, NoteState
from vault_memory.errors import EmbeddingError, Retryable, StoreError, StoreUnavailable
from vault_memory.ingest.batch import failure_of, outcome
from vault_memory.ingest.prepare import PreparedNote, note_date
from vault_memory.notes.chunking import chunk_ids
from vault_memory.notes.model import NoteStatus
from vault_memory.notes.paths import one_line
from vault_memory.notes.tokens import document_terms

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vault_memory.adapters.store import Store
    from vault_memory.ingest.batch import Action, Batch, Item, NoteFailure, NoteOutcome
    from vault_memory.ingest.planning import Planner
    from vault_memory.ingest.prepare import Preparer
    from vault_memory.ingest.provider import Provider
    from vault_memory.ingest.source import Source
    from vault_memory.settings import SyncSettings

log = logging.getLogger(__name__)

_RECHECK_SECONDS: Final = 0.5


class VerdictChanged(StoreError, Retryable):
    """A note that passed the scan does not pass it any more when it is to be written: a slow machine, perhaps."""


class EmbeddingVectorsGone(EmbeddingError, Retryable):
    """Vectors that the embed step had staged are not there any more when they are to be written."""


class PersistStep:
    """Writes notes."""

    def __init__(
        self,
        settings: SyncSettings,
        store: Store,
        vault: Source,
        *,
        planner: Planner,
        preparer: Preparer,
        provider: Provider,
    ) -> None:
        """Take over open parts.

        Args:
            settings: How long a failed note waits.
            store: To write to.
            vault: Says what HEAD holds now.
            planner: Knows the rules of a commit.
            preparer: Reads the notes.
            provider: Knows the model whose vectors are in force.
        """
        self._settings = settings
        self._store = store
        self._vault = vault
        self._planner = planner
        self._preparer = preparer
        self._provider = provider

    def run(self, batch: Batch) -> Iterator[NoteOutcome]:
        """Write each note in a transaction of its own, and yield what became of it."""
        wanted = self._still_wanted(batch)
        checked = time.monotonic()
        for item in batch.items:
            if time.monotonic() - checked > _RECHECK_SECONDS and item.is_open:
                wanted = self._still_wanted(batch)
                checked = time.monotonic()
            done = item
            if item.failure:
                self._record_failure(item, item.failure, batch)
            elif item.action is None and wanted.get(item.note_id) != item.blob_id:
                done = replace(item, action="superseded")  # the next plan has its newer version
            elif item.action is None:
                done = self._write(item, batch)
            yield outcome(done)

    def _still_wanted(self, batch: Batch) -> dict[str, str | None]:
        """Return the blob that HEAD has now for each open note: a commit may have come in while we embedded."""
        head = self._vault.head()
        opened = [item for item in batch.items if item.is_open]
        if head == batch.commit:
            return {item.note_id: item.blob_id for item in opened}
        if head is None:
            return {}
        now = self._vault.tracked_blobs(head, [item.note_id for item in opened])
        return {item.note_id: now.get(item.note_id) for item in opened}

    def _write(self, item: Item, batch: Batch) -> Item:
        started = time.perf_counter()
        try:
            written = self._write_rows(item, batch)
        except StoreUnavailable:
            raise
        except (StoreError, EmbeddingError) as error:
            failure = failure_of("persist", error)
            self._record_failure(item, failure, batch)
            return replace(item, failure=failure)
        taken = (time.perf_counter() - started) * 1000
        log.info("%s: %s, %d chunks", one_line(item.note_id), written.action, item.chunks)
        return replace(written, milliseconds=item.milliseconds + taken)

    def _write_rows(self, item: Item, batch: Batch) -> Item:
        model, dimensions = self._provider.model()
        prepared = next(
            iter(self._preparer.prepare([(item.path, item.blob_id or "")], self._planner.rules(batch.commit)))
        )
        if not isinstance(prepared, PreparedNote):
            raise VerdictChanged("the scanner changed its mind about this note; the next try looks again")
        note, document = prepared.note, prepared.note.document

        def write() -> bool:
            vectors = self._store.vectors(item.hashes, model, dimensions)
            missing = sum(text_hash not in vectors for text_hash in item.hashes)
            if missing:
                raise EmbeddingVectorsGone(f"{missing} vectors are gone; run vault-memory sync again")
            rows = [
                ChunkRow(
                    id=row_id,
                    chunk=part,
                    embedding=vectors[part.text_hash] if part.embed_text else None,
                    terms=document_terms(part.content, title=document.title, heading=part.heading),
                )
                for row_id, part in zip(chunk_ids(item.note_id, prepared.chunks), prepared.chunks, strict=True)
            ]
            self._store.replace_note(
                NoteRow(
                    id=item.note_id,
                    content=note.text,
                    content_hash=note.content_hash,
                    blob_id=note.blob_id,
                    title=document.title,
                    tags=document.tags,
                    links=document.links,
                    front_matter=document.front_matter,
                    note_date=note_date(document.front_matter),
                    commit=batch.commit or "",
                    ruleset_id=batch.ruleset_id,
                    model=model,
                    dimensions=dimensions,
                    token_count=item.tokens,
                    chunks=rows,
                ),
                also_forget=item.old_ids,
            )
            self._store.allow(item.note_id, [(one.rule, one.content_hmac, one.expires_at) for one in prepared.allowed])
            self._store.drop_states(item.old_ids)
            self._store.write_state(
                NoteState(
                    id=item.note_id,
                    status=NoteStatus.INDEXED,
                    blob_tag=note.blob_id,
                    ruleset_id=batch.ruleset_id,
                    commit=batch.commit,
                    reason=", ".join(document.warnings) or None,
                )
            )
            return self._store.close_audit(item.note_id, "released")

        released = self._store.transact(write)
        return replace(item, action=_written_action(item, released=released))

    def _record_failure(self, item: Item, failure: NoteFailure, batch: Batch) -> None:
        """Note a failure in the manifest; the old rows, if any, go on answering."""
        attempts = self._store.attempts(item.note_id) + 1
        wait = self._settings.retry_after(attempts)
        self._store.write_state(
            NoteState(
                id=item.note_id,
                status=NoteStatus.FAILED,
                blob_tag=item.blob_id or "",
                ruleset_id=batch.ruleset_id,
                commit=batch.commit,
                reason=failure.reason,
                step=failure.step,
                error_class=failure.error_class,
                attempts=attempts,
                next_retry_at=datetime.now(UTC) + wait if failure.retryable else None,
            )
        )
        log.warning("%s: failed in %s (%s)", one_line(item.note_id), failure.step, failure.error_class)


def _written_action(item: Item, *, released: bool) -> Action:
    if item.old_ids:
        return "renamed"
    if released:
        return "released"
    return "changed" if item.previous in (NoteStatus.INDEXED.value, NoteStatus.FAILED.value) else "added"
