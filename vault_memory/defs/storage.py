"""Dagster's storage: its database, tables, connections and pool limits.

Belongs here: what has to be so in the database before Dagster runs well. Does not: the memory tables
(``adapters.migrations``); the two may share a server, never a database.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import dagster as dg
import psycopg
from dagster_postgres.utils import DagsterPostgresException
from psycopg import conninfo
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from vault_memory.adapters import migrations
from vault_memory.adapters.connecting import when_up
from vault_memory.errors import ConfigError, StoreUnavailable

DSN_VARIABLE: Final = "VAULT_MEMORY_DAGSTER_DSN"
_STATEMENT_TIMEOUT_MILLISECONDS: Final = 60_000
_RECYCLE_SECONDS: Final = 3600
_MAX_OVERFLOW: Final = 4


def storage_url(dsn: str) -> str:
    """Return a DSN as the URL of Dagster's storage, with the driver that works with it.

    SQLAlchemy chooses a driver for a bare ``postgresql://``: from 2.1 on psycopg 3, with which dagster-postgres fails.

    Raises:
        ConfigError: The DSN cannot be read.
    """
    return _text(_url(dsn).set(drivername="postgresql+psycopg2"))


def _url(dsn: str) -> URL:
    try:
        if "://" in dsn:
            url = make_url(dsn)
        else:
            query = {key: str(value) for key, value in conninfo.conninfo_to_dict(dsn).items()}
            name, user, password = (query.pop(key, None) for key in ("dbname", "user", "password"))
            url = URL.create("postgresql", username=user, password=password, database=name, query=query)
    except (ArgumentError, ValueError, psycopg.Error) as error:  # their messages repeat the DSN, password included
        raise ConfigError(f"{DSN_VARIABLE}: not a PostgreSQL URL ({type(error).__name__})") from None
    if url.drivername.partition("+")[0] not in {"postgresql", "postgres"} or not url.database:
        raise ConfigError(f"{DSN_VARIABLE}: want postgresql://user@host/database")
    return url


def _text(url: URL) -> str:
    return url.render_as_string(hide_password=False)


@contextmanager
def translated() -> Generator[None]:
    """Turn errors of Dagster's storage into ours: theirs repeat the statement with its values, a page long.

    Raises:
        StoreUnavailable: The storage went away or cannot write; what memory holds is not touched by that.
    """
    try:
        yield
    except DBAPIError as error:
        code = getattr(error.orig, "pgcode", None)
        facts = f"{type(error.orig).__name__}{f', sqlstate {code}' if code else ''}"
        raise StoreUnavailable(f"Dagster's database went away or refused a statement ({facts}); try again") from None
    except DagsterPostgresException:
        raise StoreUnavailable("Dagster's database does not answer; try again") from None


def ensure_database(dsn: str) -> None:
    """Make the database if the server has none of that name.

    Raises:
        StoreUnavailable: The server does not answer, or does not let us in.
        StoreError: The database is not there, and we may not make it.
        ConfigError: The DSN cannot be read.
    """
    url = _url(dsn).set(drivername="postgresql")
    try:
        when_up(lambda: psycopg.connect(_text(url), connect_timeout=10)).close()
    except psycopg.OperationalError:  # it has no sqlstate for "no such database": so try
        name = url.database or ""
        if not migrations.ensure_database(_text(url.set(database="postgres")), name):
            raise StoreUnavailable(f"Dagster's database {name!r} is there, but cannot be entered") from None


def upgrade(instance: dg.DagsterInstance) -> None:
    """Do what ``dagster instance migrate`` does, if the tables are of an older release."""
    version = instance.event_log_storage.alembic_version()
    if version is not None and version[0] != version[1]:
        instance.upgrade()


def limit_pool(instance: dg.DagsterInstance, pool: str) -> None:
    """Let one run at a time into a pool, by name: first users of the default limit race, and the run of one fails."""
    storage = instance.event_log_storage
    limits = {limit.name: limit for limit in storage.get_pool_limits()}
    if pool not in limits or limits[pool].limit != 1 or limits[pool].from_default:
        storage.set_concurrency_slots(pool, 1)


def keep_connections(instance: dg.DagsterInstance) -> None:
    """Keep this process' connections to Dagster's storage open between statements.

    By default each statement connects anew: of 22 ms that Dagster spends on a note, 11 go into that (measured). The
    call is named after the one process that Dagster makes it in, but does just this.
    """
    instance.optimize_for_webserver(_STATEMENT_TIMEOUT_MILLISECONDS, _RECYCLE_SECONDS, _MAX_OVERFLOW)
