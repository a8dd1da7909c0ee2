"""``vault-memory forget``: take one note out of memory, now.

Belongs here: the note's rows and its line in the manifest. Does not: a rule that keeps a note out for good; that is
``.vaultmemoryignore``, a folder that is excluded, or ``vault-memory: false`` in its front matter.

What is forgotten stays forgotten in the version it had. Once its text changes, it is a new note to be judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vault_memory.adapters.store import FORGOTTEN
from vault_memory.adapters.store_records import NoteState
from vault_memory.errors import QueryError
from vault_memory.ingest.database import open_store
from vault_memory.ingest.keys import load_key
from vault_memory.ingest.source import open_source
from vault_memory.notes.model import NoteStatus
from vault_memory.notes.paths import NotePath

if TYPE_CHECKING:
    from vault_memory.settings import Settings


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What ``forget`` did.

    Attributes:
        source: The note's identity.
        had_rows: Whether it was searchable.
        tracked: Whether HEAD has it; if so, a line keeps the next sync from bringing it back.
    """

    source: str
    had_rows: bool
    tracked: bool


def forget(settings: Settings, source: str) -> Forgotten:
    """Delete a note's rows and vectors, and remember not to bring this version of it back.

    Raises:
        QueryError: Neither memory nor HEAD has such a note.
        WriterBusyError: Another writer is at it.
        VaultMemoryError: Vault or database cannot be used.
    """
    note_id = NotePath.from_text(source).id
    vault = open_source(settings)
    head = vault.head()
    blob_id = vault.tracked_blobs(head, [note_id]).get(note_id) if head else None
    store = open_store(settings)
    try:
        known = note_id in store.statuses()
        if blob_id is None and not known:
            raise QueryError(f"{source}: neither memory nor HEAD has such a note; give its path inside the vault")
        state = store.sync_state()
        key = load_key(settings.hmac_key_file, create=state.key_fingerprint is None)
        with store.writer(settings.sync.wait_seconds, holder="forget"), store.transaction():
            had_rows = store.delete_rows([note_id])
            store.close_audit(note_id, "deleted")
            if blob_id is None:
                store.drop_states([note_id])
            else:
                store.write_state(
                    NoteState(
                        id=note_id,
                        status=NoteStatus.EXCLUDED,
                        blob_tag=key.tag(blob_id),
                        ruleset_id=state.ruleset_id or "",
                        commit=head,
                        reason=FORGOTTEN,
                        step="scan",
                    )
                )
    finally:
        store.close()
    return Forgotten(note_id, had_rows, blob_id is not None)


def undo(settings: Settings, source: str) -> bool:
    """Let the next sync bring a forgotten note back; return whether it had been forgotten.

    Raises:
        WriterBusyError: Another writer is at it.
        VaultMemoryError: The database cannot be used.
    """
    note_id = NotePath.from_text(source).id
    store = open_store(settings)
    try:
        with store.writer(settings.sync.wait_seconds, holder="forget"):
            entry = store.manifest().get(note_id)
            if entry is None or not entry.forgotten:
                return False
            with store.transaction():
                store.drop_states([note_id])
                store.record_start()  # or the daemon would see nothing to do
    finally:
        store.close()
    return True
