"""No ghost at read time: hits are compared with the vault's HEAD, whatever the last sync knew.

Belongs here: what HEAD says of the notes behind a result. Does not: the git commands (``adapters.git``) and
dropping hits (``search``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vault_memory.errors import VaultError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from vault_memory.settings import Settings


@dataclass(frozen=True, slots=True)
class VaultView:
    """What HEAD holds of some notes.

    Attributes:
        head: The commit; None where the vault could not be read or has no commit.
        blobs: Blob id by note id; a note that is missing here is missing in HEAD. None: nothing is known.
        problem: Why nothing is known, in one line.
    """

    head: str | None
    blobs: Mapping[str, str] | None = field(repr=False)
    problem: str | None = None

    def has_vanished(self, note_id: str) -> bool:
        """Return whether HEAD is known to have no such note."""
        return self.blobs is not None and note_id not in self.blobs

    def has_changed(self, note_id: str, blob_id: str) -> bool:
        """Return whether HEAD is known to hold other bytes under this path."""
        return self.blobs is not None and self.blobs.get(note_id, blob_id) != blob_id


UNSEEN = VaultView(None, None)
"""No vault is set."""


def look(settings: Settings, note_ids: Collection[str]) -> VaultView:
    """Ask HEAD about notes; a vault that cannot be read is a problem to report, not a reason to fail."""
    if settings.vault is None:
        return UNSEEN
    from vault_memory.adapters.git import GitVault  # noqa: PLC0415 - only with a vault at hand

    try:
        repository = GitVault.open(settings.vault)
        head = repository.head()
        if head is None:
            return VaultView(None, {})
        return VaultView(head, repository.tracked_blobs(head, set(note_ids)))
    except VaultError as error:
        return VaultView(None, None, str(error))
