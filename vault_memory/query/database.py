"""The query's own door to the database: one read-only connection, and errors without content.

Belongs here: choosing the DSN, connecting, running one of the files under ``sql/queries``. Does not: writing,
and what rows mean.
"""

from __future__ import annotations

import struct
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from vault_memory.adapters import sqlfiles
from vault_memory.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from psycopg import Connection
    from psycopg.adapt import Dumper
    from psycopg.rows import DictRow

    from vault_memory.query.embed import Kept
    from vault_memory.settings import Settings

EMBEDDED_DATABASE: Final = "vault_memory"
CONNECT_TIMEOUT_SECONDS: Final = 5
STATEMENT_TIMEOUT_MS: Final = 5_000
# Planning a search takes 3 of the database's 17 ms at 10,000 chunks; a connection that asks often does it once.
_PLANNED_ONCE: Final = {"plan_cache_mode": "force_generic_plan"}


class QueryVector(bytes):
    """A vector as pgvector receives it in binary: a millisecond less than to write 1,536 floats as text."""

    __slots__ = ()

    @classmethod
    def of(cls, vector: Sequence[float]) -> QueryVector:
        """Pack floats: their number, two bytes of nothing, then each in four bytes, all big-endian."""
        return cls(struct.pack(f">HH{len(vector)}f", len(vector), 0, *vector))


_T = TypeVar("_T")


@contextmanager
def connect(settings: Settings) -> Generator[Connection[DictRow]]:
    """Open a connection that can only read, in the schema of the settings; close it at the end.

    Prefers the read-only role (``query_dsn``), then ``dsn``; with neither, the embedded server is started if it
    is not running.

    Raises:
        StoreUnavailable: There is no connection.
        ServerError: The embedded server cannot be started.
    """
    # Imported here: --help and a wrong option need no database driver (138 ms).
    import psycopg  # noqa: PLC0415 - see above
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415 - see above
    from psycopg.rows import dict_row  # noqa: PLC0415 - see above

    from vault_memory.adapters.connecting import when_up  # noqa: PLC0415 - see above

    dsn = settings.query_dsn or settings.dsn or _embedded_dsn(settings)
    try:
        given = conninfo_to_dict(dsn)
        options = (
            f"{given.get('options') or ''} -c search_path={settings.schema},public "
            f"-c default_transaction_read_only=on -c statement_timeout={STATEMENT_TIMEOUT_MS} "
            + " ".join(f"-c {name}={value}" for name, value in {**sqlfiles.SEARCH_SETTINGS, **_PLANNED_ONCE}.items())
        )
        connection = when_up(
            lambda: psycopg.Connection[dict[str, Any]].connect(
                dsn,
                autocommit=True,
                row_factory=dict_row,
                connect_timeout=int(given.get("connect_timeout") or CONNECT_TIMEOUT_SECONDS),
                options=options.strip(),
                application_name="vault-memory-query",
            ),
            wait_seconds=CONNECT_TIMEOUT_SECONDS,
        )
    except psycopg.Error as error:
        # libpq's own words can quote the DSN, and with it a password.
        raise StoreUnavailable(
            f"no connection to the database ({type(error).__name__}"
            f"{', sqlstate ' + error.sqlstate if error.sqlstate else ''}): check VAULT_MEMORY_QUERY_DSN or "
            "VAULT_MEMORY_DSN, and that the server runs"
        ) from None
    connection.adapters.register_dumper(QueryVector, _vector_dumper())
    with connection:
        yield connection


class Sessions:
    """One connection a vault, each opened when its vault is first asked and kept until ``close``.

    Not for several threads at once.
    """

    def __init__(self, borrowed: Mapping[str, Connection[DictRow]] | None = None, *, kept: Kept | None = None) -> None:
        """Begin with connections of the caller's, by schema, which stay the caller's to close.

        Args:
            borrowed: Those connections.
            kept: What is kept of the embedder, too, by a process that asks often.
        """
        self.kept = kept
        self._open: dict[str, tuple[Connection[DictRow], ExitStack]] = {
            schema: (connection, ExitStack()) for schema, connection in (borrowed or {}).items()
        }

    def __enter__(self) -> Self:
        """Return the sessions; none is opened yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close what was opened."""
        self.close()

    @property
    def schemas(self) -> frozenset[str]:
        """Whose connections are kept."""
        return frozenset(self._open)

    def ask(self, settings: Settings, question: Callable[[Connection[DictRow]], _T]) -> _T:
        """Ask a vault over its kept connection; where that has broken since it was last used, once more over a new one.

        Raises:
            StoreUnavailable: There is no connection, or the new one broke as well.
            StoreError: The database cannot answer.
        """
        kept = self._open.get(settings.schema)
        connection = self._connection(settings) if kept is None else kept[0]
        try:
            return question(connection)
        except StoreUnavailable:
            if not connection.closed:
                raise  # it took too long, and would again
            self._forget(settings.schema)
            if kept is None:
                raise
        return question(self._connection(settings))

    def close(self) -> None:
        """Let go of all connections."""
        if self.kept is not None:
            self.kept.close()
        for schema in list(self._open):
            self._forget(schema)

    def _connection(self, settings: Settings) -> Connection[DictRow]:
        with ExitStack() as stack:
            connection = stack.enter_context(connect(settings))
            self._open[settings.schema] = connection, stack.pop_all()
        return connection

    def _forget(self, schema: str) -> None:
        _, opened = self._open.pop(schema)
        opened.close()


@cache
def _vector_dumper() -> type[Dumper]:
    from psycopg.adapt import Dumper  # noqa: PLC0415 - as above
    from psycopg.pq import Format  # noqa: PLC0415 - as above

    class VectorDumper(Dumper):
        """Hand over what is packed already; its type, whose number differs between databases, is read off the cast."""

        format = Format.BINARY

        def dump(self, obj: QueryVector) -> bytes:
            return bytes(obj)

    return VectorDumper


@contextmanager
def planned_anew(connection: Connection[DictRow]) -> Generator[None]:
    """Let the statement inside be planned for the values that it is given."""
    import psycopg  # noqa: PLC0415 - as above; whoever has a connection has imported it already

    try:
        with connection.transaction():
            connection.execute("SET LOCAL plan_cache_mode = force_custom_plan")
            yield
    except psycopg.OperationalError as error:
        raise StoreUnavailable(f"the connection to the database broke (sqlstate {error.sqlstate or 'none'})") from None


def fetch(
    connection: Connection[DictRow],
    name: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    parts: frozenset[str] | None = None,
) -> list[DictRow]:
    """Run ``sql/queries/<name>.sql``, or some parts of it, and return its rows.

    Raises:
        StoreUnavailable: The connection broke or the statement took too long.
        StoreError: The statement was refused; the message holds the sqlstate only.
    """
    import psycopg  # noqa: PLC0415 - as above; whoever has a connection has imported it already

    try:
        return connection.execute(sqlfiles.query(name, parts), parameters).fetchall()
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
        raise StoreError("the database holds no memory of this version yet: run 'vault-memory sync'") from None
    except psycopg.errors.InsufficientPrivilege:
        raise StoreError(
            "the role of VAULT_MEMORY_QUERY_DSN may not read the memory: run 'vault-memory init'"
        ) from None
    except psycopg.errors.QueryCanceled:
        raise StoreUnavailable(f"the search took more than {STATEMENT_TIMEOUT_MS // 1000} s") from None
    except psycopg.OperationalError as error:
        raise StoreUnavailable(f"the connection to the database broke (sqlstate {error.sqlstate or 'none'})") from None
    except psycopg.Error as error:
        raise StoreError(f"the database refused a query (sqlstate {error.sqlstate or 'none'})") from None


def storable(text: str) -> str:
    """Return a text that PostgreSQL takes: without NUL and without halves of surrogate pairs."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()


def _embedded_dsn(settings: Settings) -> str:
    from vault_memory.adapters import server  # noqa: PLC0415 - only where no DSN is set

    if not (server.locate(settings.home, settings.pg_user).data / "PG_VERSION").exists():
        # A question makes no server: an empty one would answer nothing, and look like a memory.
        raise StoreUnavailable(f"there is no memory under {settings.home} yet: run 'vault-memory init', then 'sync'")
    info = server.ensure_running(settings.home, settings.pg_user)
    return info.dsn(EMBEDDED_DATABASE, server.reader_role(settings.schema))
