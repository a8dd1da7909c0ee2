"""Noticing that the settings changed while ``vault-memory up`` runs: a vault more, a folder less, another embedder.

Belongs here: looking at the configuration file, and judging what it says now. Does not: what is started anew (``up``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vault_memory.errors import VaultMemoryError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from vault_memory.settings import Settings


class SettingsWatch:
    """Looks at one configuration file, whether it exists or not."""

    def __init__(self, read: Callable[[], Sequence[Settings]], accept: Callable[[Sequence[Settings]], object]) -> None:
        """Read the settings for the first time.

        Args:
            read: Reads the settings of all vaults.
            accept: Raises if they cannot be followed.

        Raises:
            VaultMemoryError: They cannot be read or followed.
        """
        self._read, self._accept = read, accept
        self.vaults = tuple(read())
        accept(self.vaults)
        self._file = self.vaults[0].config_file
        self._seen = _signature(self._file)

    def is_changed(self, write: Callable[[str], None]) -> bool:
        """Look again; return whether there are other settings now, which ``vaults`` then has.

        What cannot be read or followed is said once, and the old settings stay.

        Args:
            write: Takes the lines to show.
        """
        signature = _signature(self._file)
        if signature == self._seen:
            return False
        self._seen = signature
        try:
            found = tuple(self._read())
            self._accept(found)
        except VaultMemoryError as error:
            write(f"the settings changed and cannot be used, the old ones stay: {error}")
            return False
        if found[0].home != self.vaults[0].home:
            write("another home takes effect when you start vault-memory up again")
            return False
        changed = found != self.vaults
        self.vaults = found
        return changed


def _signature(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
