"""No ghost at read time: hits are compared with the vault as it is now, whatever the last sync knew.

Belongs here: what HEAD, or a plain folder, says of the notes behind a result. Does not: the git commands
(``adapters.git``), opening files (``adapters.directory``) and dropping hits (``search``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vault_memory.errors import VaultError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from vault_memory.settings import Settings


@dataclass(frozen=True, slots=True)
class VaultView:
    """What the vault holds of some notes now.

    Attributes:
        head: The commit; None where the vault could not be read or has no commit, and for a plain folder: to name its
            state, every file would have to be looked at.
        blobs: Blob id by note id; a note that is missing here is missing in HEAD. None: nothing is known.
        problem: Why nothing is known, in one line.
        is_folder: Whether the vault is a plain folder, so that no commit says how old the index is.
    """

    head: str | None
    blobs: Mapping[str, str] | None = field(repr=False)
    problem: str | None = None
    is_folder: bool = False

    def has_vanished(self, note_id: str) -> bool:
        """Return whether HEAD is known to have no such note."""
        return self.blobs is not None and note_id not in self.blobs

    def has_changed(self, note_id: str, blob_id: str) -> bool:
        """Return whether HEAD is known to hold other bytes under this path."""
        return self.blobs is not None and self.blobs.get(note_id, blob_id) != blob_id


UNSEEN = VaultView(None, None)
"""No vault is set."""


def look(settings: Settings, note_ids: Collection[str]) -> VaultView:
    """Ask the vault about notes; one that cannot be read is a problem to report, not a reason to fail."""
    vault = settings.vault
    if vault is None:
        return UNSEEN
    if settings.kind == "directory":
        return _look_into(vault, note_ids, settings.scan.max_note_bytes)
    from vault_memory.adapters.git import GitVault  # noqa: PLC0415 - only with a vault at hand

    try:
        repository = GitVault.open(vault)
        head = repository.head()
        if head is None:
            return VaultView(None, {})
        return VaultView(head, repository.tracked_blobs(head, set(note_ids)))
    except VaultError as error:
        return VaultView(None, None, str(error))


def _look_into(folder: Path, note_ids: Collection[str], max_bytes: int) -> VaultView:
    """Read just these notes: what the folder holds besides does not matter to them."""
    from vault_memory.adapters.directory import DirectorySource  # noqa: PLC0415 - only with a folder at hand

    try:
        source = DirectorySource.open(folder, max_bytes=max_bytes)
        return VaultView(None, source.blobs_now(note_ids), is_folder=True)
    except VaultError as error:
        return VaultView(None, None, str(error), is_folder=True)
