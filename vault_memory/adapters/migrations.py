"""The schema of a source set: made, brought up to date, and shown to a read-only role.

Belongs here: everything that creates or changes databases, schemas, tables, roles. Does not: reading and writing
notes (``store``), the server (``server``). The SQL itself lies under ``sql/``.

A migration is a file ``sql/migrations/NNNN_name.sql`` with unqualified names; it is never changed once released.
``schema_migration`` in the schema records each with the hash of its text. A database that this program does not
know (a newer program was there, or a file was changed) is refused before anything is touched.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, LiteralString, cast

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import conninfo_to_dict

from vault_memory.adapters.connecting import when_up
from vault_memory.adapters.server import reader_role
from vault_memory.adapters.sqlfiles import query, sql_directory
from vault_memory.errors import MigrationError, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Generator

    Connection = psycopg.Connection[tuple[object, ...]]

LOCK: Final = 0x76_6D_6D_69_67  # "vmmig"; advisory locks are a database's own, so two databases do not wait
OLDEST_PGVECTOR: Final = (0, 7)  # sparsevec and binary_quantize
_MAX_SCHEMA_BYTES: Final = 63 - len("_reader")  # PostgreSQL cuts longer names off, and two could become one

# What the query reads of sync_state; not the vault's path and not the fingerprint of the key.
_READABLE_STATE: Final = (
    "singleton",
    "commit",
    "commit_time",
    "ruleset_id",
    "embedder",
    "model",
    "dimensions",
    "base_url",
    "vector_index",
    "generation",
    "updated_at",
)


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of ``sql/migrations``.

    Attributes:
        version: The number that its name begins with; they count from 1 without a gap.
        name: The file's name.
        checksum: SHA-256 of the text, line ends as LF.
        text: The SQL.
    """

    version: int
    name: str
    checksum: str
    text: LiteralString


def migrations() -> tuple[Migration, ...]:
    """Read all migrations of this program, in order.

    Raises:
        MigrationError: The files are misnamed or one is missing.
    """
    found: list[Migration] = []
    for path in sorted((sql_directory() / "migrations").glob("*.sql")):
        match = re.fullmatch(r"(\d{4})_[a-z0-9_]+\.sql", path.name)
        if match is None or int(match[1]) != len(found) + 1:
            raise MigrationError(f"{path}: want {len(found) + 1:04}_name.sql; install vault-memory again")
        # Universal newlines: a checkout with CRLF is the same migration.
        text = cast("LiteralString", path.read_text(encoding="utf-8"))
        found.append(Migration(len(found) + 1, path.name, hashlib.sha256(text.encode()).hexdigest(), text))
    return tuple(found)


def migrate(conninfo: str, schema: str) -> tuple[str, ...]:
    """Bring a schema up to date, making it and the extension pgvector if need be.

    Callers may run at once: one applies, the others wait and find nothing to do. Each migration is one transaction.

    Args:
        conninfo: A libpq URL or keyword string of a role that may create a schema.
        schema: Name of the source set's schema.

    Returns:
        The names of the migrations that were applied by this call.

    Raises:
        MigrationError: The database's schema is newer, changed or unknown, or pgvector is missing or too old.
        StoreUnavailable: There is no connection.
    """
    if len(schema.encode()) > _MAX_SCHEMA_BYTES:
        raise MigrationError(f"schema: want at most {_MAX_SCHEMA_BYTES} characters")
    known = migrations()
    with _connected(conninfo) as connection:
        if _applied(connection, schema, known) == len(known):
            return ()
        connection.execute("SELECT pg_advisory_lock(%s)", (LOCK,))  # held until the connection closes
        return _apply(connection, schema, known)


def pending(conninfo: str, schema: str) -> tuple[str, ...]:
    """Return the names of the migrations that ``migrate`` would apply; nothing is changed.

    Raises:
        MigrationError: The database's schema is newer, changed or unknown.
        StoreUnavailable: There is no connection.
    """
    known = migrations()
    with _connected(conninfo) as connection:
        return tuple(migration.name for migration in known[_applied(connection, schema, known) :])


def grant_reader(conninfo: str, schema: str) -> str | None:
    """Make the role ``<schema>_reader``, which sees the live notes, the term table and part of the sync state.

    What it may read is decided by the grants. Read-only transactions and the time limit are only its defaults,
    which a session can lift; without a grant to write that gains nothing.

    Call it after ``migrate``; it may be repeated, and repeated at once.

    Returns:
        None, or one line saying what could not be done because the role of ``conninfo`` may not.

    Raises:
        StoreError: The schema is not there.
        StoreUnavailable: There is no connection.
    """
    role = sql.Identifier(reader_role(schema))
    with _connected(conninfo) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", (LOCK,))
        try:
            _make_role(connection, reader_role(schema), schema)
        except errors.InsufficientPrivilege:
            return (
                f"no read-only role: {connection.info.user} may not create {reader_role(schema)}; queries use the DSN's"
                " own role, or the role that VAULT_MEMORY_QUERY_DSN names"
            )
        with connection.transaction():
            namespace = sql.Identifier(schema)
            columns = sql.SQL(", ").join(map(sql.Identifier, _READABLE_STATE))
            for statement in (
                sql.SQL("REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {role}"),
                sql.SQL("GRANT USAGE ON SCHEMA {schema} TO {role}"),
                sql.SQL("GRANT SELECT ON {schema}.memory_live, {schema}.memory_live_note TO {role}"),
                sql.SQL("GRANT SELECT ON {schema}.memory_live_allowed TO {role}"),
                sql.SQL("GRANT SELECT ON {schema}.memory_term TO {role}"),
                sql.SQL("GRANT SELECT ({columns}) ON {schema}.sync_state TO {role}"),
            ):
                connection.execute(statement.format(schema=namespace, role=role, columns=columns))
        return _narrow_public(connection)


def drop_schema(conninfo: str, schema: str) -> None:
    """Drop a source set's schema with all that is in it, if it is there.

    Raises:
        StoreUnavailable: The server does not answer.
        StoreError: It refuses.
    """
    with _connected(conninfo) as connection:
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))


def ensure_database(conninfo: str, name: str) -> bool:
    """Create a database if it is missing; callers may run at once.

    Args:
        conninfo: Of any database of the server (``postgres``), and a role that may create databases.
        name: The database that is wanted, for example ``dagster``.

    Returns:
        Whether this call created it.

    Raises:
        StoreError: The role may not create it.
        StoreUnavailable: There is no connection.
    """
    with _connected(conninfo) as connection:
        if connection.execute("SELECT FROM pg_database WHERE datname = %s", (name,)).fetchone() is not None:
            return False
        try:
            # template0: somebody's connection to template1 would block this.
            connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
        except (errors.DuplicateDatabase, errors.UniqueViolation):
            return False  # another process was quicker
        except errors.InsufficientPrivilege:
            raise StoreError(f"{connection.info.user} may not create databases: create {name!r} for it") from None
        return True


def _apply(connection: Connection, schema: str, known: tuple[Migration, ...]) -> tuple[str, ...]:
    _ensure_pgvector(connection)
    namespace = sql.Identifier(schema)
    if connection.execute("SELECT to_regnamespace(%s)", (namespace.as_string(),)).fetchone() == (None,):
        try:
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(namespace))
        except errors.InsufficientPrivilege:
            message = f"{connection.info.user} may not create the schema {schema!r}: create it, owned by that role"
            raise MigrationError(message) from None
    _use(connection, schema)
    connection.execute(query("migration_table"))
    done = _applied(connection, schema, known)  # again: another process may have been at it
    names: list[str] = []
    for migration in known[done:]:
        try:
            with connection.transaction():
                connection.execute(migration.text)
                connection.execute(
                    "INSERT INTO schema_migration (version, name, checksum) VALUES (%s, %s, %s)",
                    (migration.version, migration.name, migration.checksum),
                )
        except psycopg.Error as error:
            raise MigrationError(
                f"{migration.name} failed in schema {schema!r} ({_what(error)}); nothing of it was kept"
            ) from None
        names.append(migration.name)
    return tuple(names)


def _applied(connection: Connection, schema: str, known: tuple[Migration, ...]) -> int:
    """Count the migrations that a schema has.

    Raises:
        MigrationError: One of them is not ours.
    """
    table = sql.Identifier(schema, "schema_migration")
    if connection.execute("SELECT to_regclass(%s)", (table.as_string(),)).fetchone() == (None,):
        return 0
    _use(connection, schema)
    rows = connection.execute(query("migrations_applied")).fetchall()
    for position, (version, name, checksum) in enumerate(rows):
        if position >= len(known):
            raise MigrationError(
                f"schema {schema!r} has migration {name}, which this version does not know: update vault-memory"
            )
        if (version, checksum) != (known[position].version, known[position].checksum):
            raise MigrationError(
                f"schema {schema!r} was made with another {known[position].name}: install the version of vault-memory"
                " that made it, or drop the schema and run 'vault-memory sync --full'"
            )
    return len(rows)


def _use(connection: Connection, schema: str) -> None:
    path = sql.SQL("{}, public").format(sql.Identifier(schema)).as_string()
    connection.execute("SELECT set_config('search_path', %s, false)", (path,))


def _ensure_pgvector(connection: Connection) -> None:
    found = connection.execute(query("pgvector_installed")).fetchone()
    if found is None:
        try:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public")
        except errors.InsufficientPrivilege:
            message = f"{connection.info.user} may not run CREATE EXTENSION vector: let an administrator do it once"
            raise MigrationError(message) from None
        except (errors.FeatureNotSupported, errors.UndefinedFile):
            raise MigrationError("this server has no pgvector: install pgvector 0.8.4 or newer on it") from None
        found = connection.execute(query("pgvector_installed")).fetchone()
    version, schema = cast("tuple[str, str]", found)
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < OLDEST_PGVECTOR:
        raise MigrationError(
            f"pgvector {version} is too old, want 0.7: install a newer one, ALTER EXTENSION vector UPDATE"
        )
    if schema != "public":
        raise MigrationError(f"pgvector is in schema {schema!r}, want public: ALTER EXTENSION vector SET SCHEMA public")


def _make_role(connection: Connection, name: str, schema: str) -> None:
    """Create the role if it is missing, with its defaults. Roles are the whole server's, so another database may race.

    Raises:
        InsufficientPrivilege: The role is missing, and the caller may not create one.
    """
    role = sql.Identifier(name)
    if connection.execute("SELECT FROM pg_roles WHERE rolname = %s", (name,)).fetchone() is not None:
        return
    with contextlib.suppress(errors.DuplicateObject, errors.UniqueViolation), connection.transaction():
        for statement in (
            sql.SQL("CREATE ROLE {role} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS"),
            sql.SQL("ALTER ROLE {role} SET default_transaction_read_only = on"),
            sql.SQL("ALTER ROLE {role} SET statement_timeout = '2s'"),
            sql.SQL("ALTER ROLE {role} SET lock_timeout = '2s'"),
            sql.SQL("ALTER ROLE {role} SET idle_in_transaction_session_timeout = '30s'"),
            sql.SQL("ALTER ROLE {role} SET search_path = {schema}, public"),
        ):
            connection.execute(statement.format(role=role, schema=sql.Identifier(schema)))


def _narrow_public(connection: Connection) -> str | None:
    """Take from PUBLIC what lets every role write: temporary tables, and large objects where we are superuser.

    In a database that others use too, that is not ours to do.
    """
    if connection.execute(query("database_is_ours")).fetchone() != (True,):
        return "the read-only role may create temporary tables: this database is shared, so PUBLIC keeps that right"
    name = sql.Identifier(connection.info.dbname)
    connection.execute(sql.SQL("REVOKE TEMPORARY ON DATABASE {} FROM PUBLIC").format(name))
    if connection.info.parameter_status("is_superuser") == "on":
        connection.execute(
            "REVOKE EXECUTE ON FUNCTION lo_creat(int), lo_create(oid), lo_from_bytea(oid, bytea) FROM PUBLIC"
        )
    return None


@contextlib.contextmanager
def _connected(conninfo: str) -> Generator[Connection]:
    """Connect in autocommit; every error of the driver becomes one of ours, without the statement or a row."""
    place = _place(conninfo)
    try:
        connection = when_up(
            lambda: psycopg.connect(conninfo, autocommit=True, connect_timeout=10, application_name="vault-memory")
        )
    except psycopg.Error as error:
        raise StoreUnavailable(f"no connection to PostgreSQL at {place}: {_why_not(error)}") from None
    with contextlib.closing(connection):
        try:
            connection.execute("SET lock_timeout = '60s'")
            yield connection
        except psycopg.Error as error:
            raise StoreError(f"PostgreSQL at {place} refused ({_what(error)})") from None


def _why_not(error: psycopg.Error) -> str:
    """Say what to look at. The driver gives no code for a failed login, and its message may quote the DSN."""
    said = str(error)
    if "password" in said:
        return "it refused the password, or wants one: mend VAULT_MEMORY_DSN or ~/.pgpass"
    if "pg_hba.conf" in said:
        return "its pg_hba.conf lets this role or address not in"
    return "is it running, is VAULT_MEMORY_DSN right?"


def _place(conninfo: str) -> str:
    """Name host and database. The DSN itself may hold a password, and so may the driver's message about it."""
    try:
        parts = conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:
        raise StoreError("VAULT_MEMORY_DSN is malformed: want postgresql://user@host/database") from None
    return f"{parts.get('host', 'the local socket')}, database {parts.get('dbname', '(the default)')}"


def _what(error: psycopg.Error) -> str:
    constraint = error.diag.constraint_name
    return f"{type(error).__name__}, sqlstate {error.sqlstate}" + (f", constraint {constraint}" if constraint else "")
