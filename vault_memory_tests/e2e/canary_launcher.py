"""``vault-memory`` with a scanner and a store that can be told to fail, for the canary tests.

The scanner's worker obeys words in a note (``broken_worker``); the store is handed rows that PostgreSQL refuses, each
refusal of a kind whose message or detail would show the row.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from vault_memory import cli
from vault_memory.adapters.store import Store
from vault_memory.adapters.store_records import NoteRow
from vault_memory.ingest.sync import Synchronizer

_replace_note = Store.replace_note


def _spoil(note: NoteRow) -> Any:
    match note.id.rpartition("/")[2]:
        case "refused-nul.md":
            return replace(note, content=note.content + "\0")
        case "refused-cast.md":
            return replace(note, note_date=note.content)  # pyright: ignore[reportArgumentType] - on purpose
        case "refused-null.md":
            return replace(note, title=None)  # pyright: ignore[reportArgumentType] - on purpose
        case "refused-check.md":
            return replace(note, chunks=[replace(row, chunk=replace(row.chunk, start_line=0)) for row in note.chunks])
        case _:
            return note


def _replace_spoilt(self: Store, note: NoteRow, **given: Any) -> None:
    _replace_note(self, _spoil(note), **given)


if __name__ == "__main__":
    worker = "vault_memory_tests.integration.ingest.broken_worker"
    given = Synchronizer.__init__.__kwdefaults__
    given["make_judge"] = partial(given["make_judge"], worker_module=worker)
    Store.replace_note = _replace_spoilt
    cli.main()
