"""Where the operator's database is, and making it ready.

Belongs here: the choice between the embedded server and a DSN, migrations before the first statement.
Does not: how the server is supervised (``adapters.server``), SQL.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg.conninfo import make_conninfo

from vault_memory.adapters import migrations, server
from vault_memory.adapters.store import Store
from vault_memory.errors import ConfigError

if TYPE_CHECKING:
    from vault_memory.settings import Settings

log = logging.getLogger(__name__)

DATABASE: Final = "vault_memory"
DAGSTER_DATABASE: Final = "dagster"


@dataclass(frozen=True, slots=True)
class Database:
    """Connection strings of one installation; the server answers.

    Attributes:
        dsn: The operator's, for psycopg.
        dagster_dsn: Of Dagster's own storage.
        embedded: Whether the server is ours.
    """

    dsn: str = field(repr=False)
    dagster_dsn: str = field(repr=False)
    embedded: bool


def open_database(settings: Settings) -> Database:
    """Start the embedded server if it is ours to start, and say where the databases are.

    Raises:
        ServerError: The embedded server cannot be started.
    """
    if settings.dsn is not None:
        # A DSN without a database for Dagster: the same server, the database named ``dagster``.
        return Database(
            settings.dsn,
            settings.dagster_dsn or _with_database(settings.dsn, DAGSTER_DATABASE),
            embedded=False,
        )
    info = server.ensure_running(settings.home, settings.pg_user)
    return Database(info.dsn(DATABASE), settings.dagster_dsn or info.dsn(DAGSTER_DATABASE), embedded=True)


def has_memory(settings: Settings) -> bool:
    """Whether there may be something to open: the operator's database, or our own server's data. Starts nothing."""
    return settings.dsn is not None or (server.locate(settings.home, settings.pg_user).data / "PG_VERSION").exists()


def open_store(settings: Settings, *, application_name: str = "vault-memory") -> Store:
    """Return a connection to the migrated schema of the settings.

    Raises:
        ServerError: The embedded server cannot be started.
        StoreUnavailable: The database does not answer.
        MigrationError: The schema is newer than this program, or was changed.
    """
    database = open_database(settings)
    if database.embedded:
        migrations.ensure_database(_with_database(database.dsn, "postgres"), DATABASE)
    applied = migrations.migrate(database.dsn, settings.schema)
    # A crash between the two, or a restored database, would leave the agent without its role.
    if applied or database.embedded:
        problem = migrations.grant_reader(database.dsn, settings.schema)
        if problem is not None:
            log.warning("%s", problem)
    return Store.connect(database.dsn, settings.schema, application_name=application_name)


def _with_database(dsn: str, name: str) -> str:
    try:
        return make_conninfo(dsn, dbname=name)
    except psycopg.ProgrammingError:
        # The message repeats the DSN, password and all.
        raise ConfigError("VAULT_MEMORY_DSN: not a PostgreSQL URL; want postgresql://user@host/database") from None
