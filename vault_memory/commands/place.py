"""Where the data of an installation lies, and deleting it for good.

Belongs here: naming the place of the database, and what ``down --delete-data`` deletes. Does not: taking a note out
(``forget``), settings and the hash key, which stay.

As root the embedded server's data may lie outside ``VAULT_MEMORY_HOME``, so that deleting that folder leaves it.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from vault_memory.adapters import running, server
from vault_memory.errors import ConfigError, ServerError

if TYPE_CHECKING:
    from pathlib import Path

    from vault_memory.settings import Settings

# Of what is in the home, only what was made by us: it may be a folder with other things in it.
_OURS: Final = ("log", "hook", "folders", "up.lock", "config.lock")


def database_place(settings: Settings) -> str:
    """Say where the database is, without a password."""
    if settings.dsn is not None:
        return f"the one that VAULT_MEMORY_DSN names, schema {settings.schema}"
    info = server.locate(settings.home, settings.pg_user)
    return f"embedded PostgreSQL in {info.directory}, schema {settings.schema}"


def data_places(settings: Settings) -> list[Path]:
    """Return what ``delete_data`` would delete and is there.

    Raises:
        ConfigError: The database is the user's own server, or ``up`` runs.
    """
    if settings.dsn is not None:
        raise ConfigError(
            f"the database is not ours to delete, VAULT_MEMORY_DSN is set; there: DROP SCHEMA {settings.schema} CASCADE"
        )
    if (other := running.find(settings.home)) is not None:
        raise ConfigError(f"{other.name} is running and needs the database: end it first, with Ctrl-C or a SIGTERM")
    info = server.locate(settings.home, settings.pg_user)
    places = [info.directory, settings.dagster_home, *(settings.home / name for name in _OURS)]
    return [place for place in places if place.exists()]


def delete_data(settings: Settings) -> None:
    """Stop the embedded server and delete its data, Dagster's files and the logs.

    Raises:
        ConfigError: The database is the user's own server, or ``up`` runs.
        ServerError: The server does not stop, or something cannot be deleted.
    """
    places = data_places(settings)
    server.remove(settings.home, settings.pg_user)
    for place in places:
        try:
            if place.is_dir():
                shutil.rmtree(place)
            else:
                place.unlink(missing_ok=True)
        except OSError as error:
            raise ServerError(f"{place} cannot be deleted ({type(error).__name__})") from None
