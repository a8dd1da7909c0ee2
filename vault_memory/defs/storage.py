"""Dagster's storage: its database, tables, connections and pool limits.

Belongs here: what has to be so in the database before Dagster runs well. Does not: the memory tables
(``adapters.migrations``); the two may share a server, never a database.
"""

import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

import dagster as dg
import psycopg
from dagster._serdes import ConfigurableClassData
from dagster_postgres import DagsterPostgresStorage, PostgresEventLogStorage
from dagster_postgres.utils import (
    DagsterPostgresException,
    create_pg_engine,
    get_token_provider_from_config,
    pg_url_from_config,
)
from psycopg import conninfo
from sqlalchemy import URL, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from vault_memory.adapters import migrations
from vault_memory.adapters.connecting import when_up
from vault_memory.errors import ConfigError, StoreUnavailable

if TYPE_CHECKING:
    from dagster_postgres.auth import PgTokenProvider

DSN_VARIABLE: Final = "VAULT_MEMORY_DAGSTER_DSN"
_STATEMENT_TIMEOUT_MILLISECONDS: Final = 60_000
_RECYCLE_SECONDS: Final = 3600
_MAX_OVERFLOW: Final = 4
# Dagster's own switch; events of one batch are written together up to this number. Unset, each is written alone.
BATCH_SIZE_VARIABLE: Final = "DAGSTER_EVENT_BATCH_SIZE"
BATCH_SIZE: Final = 100


class BatchedEventLog(PostgresEventLogStorage):
    """Dagster's event log in PostgreSQL, which also writes the events that announce a run's partitions together.

    The stock one writes each of those alone, in several statements: 9 ms a partition, for 300 of them in each run.
    """

    _has_tags_table = False

    def store_event_batch(self, events: Sequence[dg.EventLogEntry]) -> None:
        """Store events of one batch: one INSERT where they are of one kind that needs no more."""
        kinds = {event.get_dagster_event().event_type for event in events}
        assets = {event.get_dagster_event().asset_key for event in events}
        if kinds != {dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED} or len(assets) != 1:
            super().store_event_batch(events)
            return
        with self._connect() as connection:
            rows = connection.execute(self.prepare_insert_event_batch(events).returning(self._id_column))
            last = max(row[0] for row in rows.fetchall())
        self.store_asset_event(events[-1], last)

    def has_table(self, table_name: str) -> bool:
        """Tell whether a table is there; the stock one asks the catalogue again for every event."""
        if table_name != "asset_event_tags":
            return super().has_table(table_name)
        self._has_tags_table = self._has_tags_table or super().has_table(table_name)
        return self._has_tags_table

    @property
    def _id_column(self) -> Any:
        from dagster._core.storage.event_log import SqlEventLogStorageTable  # noqa: PLC0415 - private: in one place

        return SqlEventLogStorageTable.c.id


class Patience:
    """How often a process knocks at a server that is away.

    Dagster tries each connection six times over some 6 s and then goes on to its next statement: a run whose server was
    killed spent 45 s on saying so, event by event. Once that many tries in a row have failed, each further one is the
    only one of its statement, until one succeeds.
    """

    def __init__(self, tries: int = 6, forget_seconds: float = 60.0) -> None:
        """Begin with a server that is there.

        Args:
            tries: As many as Dagster makes for one statement.
            forget_seconds: Since the last failure; after that a statement is tried in full again.
        """
        self._tries, self._forget_seconds = tries, forget_seconds
        self._failed = 0
        self._last = 0.0

    def connect(self, dialect: Any, _record: Any, arguments: Any, options: Any) -> Any:
        """Connect as SQLAlchemy's event ``do_connect`` asks.

        Raises:
            StoreUnavailable: It failed, and it is no use to try once more; Dagster does not try again after this one.
        """
        try:
            connection = dialect.connect(*arguments, **options)
        except dialect.loaded_dbapi.OperationalError:
            now = time.monotonic()
            self._failed = self._failed + 1 if now - self._last < self._forget_seconds else 1
            self._last = now
            if self._failed > self._tries:
                raise StoreUnavailable("Dagster's database does not answer; try again") from None
            raise
        self._failed = 0
        return connection


class VaultStorage(DagsterPostgresStorage):
    """Dagster's storage in PostgreSQL with connections that are kept, and events that are written in batches.

    ``dagster.yaml`` names it, so that every process of Dagster has it: runs, daemon, webserver, code server. The tables
    are Dagster's own, and ``storage: postgres:`` in a ``dagster.yaml`` of one's own works on them just as well, slower.
    """

    def __init__(
        self,
        postgres_url: str,
        should_autocreate_tables: bool = True,  # noqa: FBT001, FBT002 - Dagster's signature
        inst_data: ConfigurableClassData | None = None,
        token_provider: "PgTokenProvider | None" = None,
    ) -> None:
        """Open the storage; makes the tables of a new database."""
        super().__init__(postgres_url, should_autocreate_tables, inst_data, token_provider)
        # Whoever set it knows why; unset would mean that nothing is batched.
        os.environ.setdefault(BATCH_SIZE_VARIABLE, str(BATCH_SIZE))
        self._event_log_storage: PostgresEventLogStorage = BatchedEventLog(
            postgres_url,
            should_autocreate_tables=False,
            token_provider=token_provider,
        )
        patience = Patience()
        for part in (self._run_storage, self._event_log_storage, self._schedule_storage):
            part._engine = create_pg_engine(  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - no setting reaches it
                postgres_url,
                token_provider,
                isolation_level="AUTOCOMMIT",
                pool_size=1,
                max_overflow=2 * _MAX_OVERFLOW,
                pool_recycle=_RECYCLE_SECONDS,
                pool_pre_ping=True,  # the server may have been restarted since
            )
            event.listen(part._engine, "do_connect", patience.connect)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - as above

    @classmethod
    def from_config_value(  # pyright: ignore[reportIncompatibleMethodOverride] - as in the class above
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> Self:
        """Make it from ``dagster.yaml``, whose keys are those of ``storage: postgres:``."""
        return cls(
            inst_data=inst_data,
            postgres_url=storage_url(pg_url_from_config(config_value)),
            should_autocreate_tables=config_value.get("should_autocreate_tables", True),
            token_provider=get_token_provider_from_config(config_value),
        )


def storage_url(dsn: str) -> str:
    """Return a DSN as the URL of Dagster's storage, with the driver that works with it.

    SQLAlchemy chooses a driver for a bare ``postgresql://``: from 2.1 on psycopg 3, with which dagster-postgres fails.

    Raises:
        ConfigError: The DSN cannot be read.
    """
    return _text(_url(dsn).set(drivername="postgresql+psycopg2"))


def plain_dsn(url: str) -> str:
    """Return the URL of Dagster's storage as libpq takes it."""
    return _text(_url(url).set(drivername="postgresql"))


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
    call is named after the one process that Dagster makes it in, but does just this. ``VaultStorage`` does by itself;
    this is for a ``dagster.yaml`` that names the stock one.
    """
    if isinstance(instance.event_log_storage, BatchedEventLog):
        return
    instance.optimize_for_webserver(_STATEMENT_TIMEOUT_MILLISECONDS, _RECYCLE_SECONDS, _MAX_OVERFLOW)
