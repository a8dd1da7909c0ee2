"""``vault-memory index-check``: is the vector index as good as exact search?

Belongs here: the checks before, and the exit status. Does not: choosing and measuring (``ingest.vector_index``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vault_memory.errors import ConfigError, WriterBusyError
from vault_memory.ingest import vector_index
from vault_memory.ingest.database import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from vault_memory.ingest.vector_index import VectorIndexReport
    from vault_memory.settings import IndexChoice, Settings


def check(
    settings: Settings, *, change_to: IndexChoice | None = None, report: Callable[[str], None] = lambda _line: None
) -> VectorIndexReport:
    """Measure the index that is in use, or change it.

    Raises:
        ConfigError: The settings ask for another index by name, which would win at the next sync.
        WriterBusyError: Another process works on the index.
        VaultMemoryError: The database cannot be used.
    """
    by_settings = settings.search.vector_index
    if change_to is not None and by_settings not in (None, change_to):
        raise ConfigError(f"the settings ask for vector_index = {by_settings}: change it there")
    open_store(settings).close()
    found = vector_index.check(settings, change_to=change_to, report=report)
    if found is None:
        raise WriterBusyError("another process is building the vector index: try again when it is done")
    return found


def exit_status(found: VectorIndexReport) -> int:
    """Return 1 for an index that misses too much, else 0."""
    return int(found.recall is not None and found.recall < vector_index.MIN_RECALL)
