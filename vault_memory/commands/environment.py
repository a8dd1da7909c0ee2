"""``vault-memory env``: what Dagster's own commands need to find this installation."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from vault_memory.ingest.database import open_database, open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vault_memory.settings import Settings


def environment(settings: Settings) -> Iterator[str]:
    """Yield ``export`` lines for a shell; the database answers and Dagster's home is made.

    Raises:
        VaultMemoryError: The database or the home cannot be used.
    """
    from vault_memory.defs import instance  # noqa: PLC0415 - most of a second

    database = open_database(settings)
    open_store(settings).close()
    instance.bootstrap(settings, database.dagster_dsn)
    values = {
        "DAGSTER_HOME": str(settings.dagster_home),
        "VAULT_MEMORY_DAGSTER_DSN": os.environ[instance.DSN_VARIABLE],
        "VAULT_MEMORY_HOME": str(settings.home),
    }
    if settings.vault is not None:
        values["VAULT_MEMORY_VAULT"] = str(settings.vault)
    for name, value in values.items():
        yield f"export {name}={shlex.quote(value)}"
