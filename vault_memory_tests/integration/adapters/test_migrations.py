"""Migrations, the read-only role and databases, on a real server."""

import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo

from vault_memory.adapters import migrations
from vault_memory.adapters.server import reader_role
from vault_memory.adapters.server_binaries import find_install
from vault_memory.errors import MigrationError, StoreError, StoreUnavailable
from vault_memory_tests import schema_dump
from vault_memory_tests.fixtures.postgres import SCHEMA, PostgresServer

NAMES = tuple(migration.name for migration in migrations.migrations())


@pytest.fixture
def limited_role(postgres_server: PostgresServer) -> Iterator[str]:
    """A role that may log in and nothing else; made before the test's database, and so dropped after it."""
    name = f"vm_limited_{os.getpid()}"
    with postgres_server.connect() as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
    yield name
    with postgres_server.connect() as connection:
        connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


@pytest.fixture
def unowned_database(limited_role: str, empty_database: str) -> str:
    """The limited role's DSN of a database that belongs to somebody else."""
    return make_conninfo(empty_database, user=limited_role)


def tables(dsn: str, schema: str = SCHEMA) -> list[str]:
    """List a schema's tables."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY 1", (schema,))
        return [name for (name,) in rows.fetchall()]


def execute(dsn: str, statement: str) -> None:
    """Run one statement."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


def test_first_run_applies_all_and_the_second_none(empty_database: str) -> None:
    """The names of what was applied are the answer."""
    assert NAMES == migrations.migrate(empty_database, SCHEMA)
    assert "memory_primary" in tables(empty_database)
    assert () == migrations.migrate(empty_database, SCHEMA)


def test_two_source_sets_in_one_database(empty_database: str) -> None:
    """Each schema has its own tables and its own record."""
    assert NAMES == migrations.migrate(empty_database, "vault_memory_one")
    assert NAMES == migrations.migrate(empty_database, "vault_memory_two")
    assert tables(empty_database, "vault_memory_one") == tables(empty_database, "vault_memory_two")
    assert [] == tables(empty_database, "public")


def test_concurrent_callers_apply_once(empty_database: str) -> None:
    """Eight at once, over two schemas: each schema is made once, nobody fails."""
    schemas = [SCHEMA, "vault_memory_two"] * 4
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda schema: (schema, migrations.migrate(empty_database, schema)), schemas))
    assert [(schema, NAMES) for schema in schemas[:2]] == sorted(answer for answer in answers if answer[1])
    assert 8 == len(answers)


def test_concurrent_grants(make_database: Callable[..., str], template_database: str) -> None:
    """The role is the whole server's: two databases that make it at once do not trip over each other."""
    dsns = [make_database(template_database), make_database(template_database)]
    schema = f"vault_memory_race{os.getpid()}"
    for dsn in dsns:
        migrations.migrate(dsn, schema)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert [None] * 4 == list(pool.map(lambda dsn: migrations.grant_reader(dsn, schema), dsns * 2))
    finally:
        for dsn in dsns:
            execute(dsn, f"DROP OWNED BY {reader_role(schema)}")
        execute(dsns[0], f"DROP ROLE {reader_role(schema)}")


def test_changed_migration_is_refused(database: str) -> None:
    """A file that was edited after its release is named, with what to do."""
    execute(database, f"UPDATE {SCHEMA}.schema_migration SET checksum = 'other' WHERE version = 1")
    with pytest.raises(MigrationError, match=r"made with another 0001_memory\.sql: install .* or drop the schema"):
        migrations.migrate(database, SCHEMA)


def test_unknown_migration_is_refused(database: str) -> None:
    """A database that a newer program has changed is left alone."""
    execute(database, f"INSERT INTO {SCHEMA}.schema_migration VALUES (9999, '9999_future.sql', 'x')")
    with pytest.raises(MigrationError, match=r"9999_future\.sql, which this version does not know: update"):
        migrations.migrate(database, SCHEMA)


def test_failed_migration_leaves_nothing(empty_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One migration is one transaction; the message has no statement and no row."""
    (first, *_) = migrations.migrations()
    broken = migrations.Migration(2, "0002_broken.sql", "x", "CREATE TABLE half (n INT); SELECT 'canary'::int")
    monkeypatch.setattr(migrations, "migrations", lambda: (first, broken))
    with pytest.raises(MigrationError, match=r"^0002_broken\.sql failed .*sqlstate 22P02\); nothing") as caught:
        migrations.migrate(empty_database, SCHEMA)
    assert "canary" not in str(caught.value)
    assert "half" not in tables(empty_database)
    monkeypatch.setattr(migrations, "migrations", lambda: (first,))
    assert () == migrations.migrate(empty_database, SCHEMA)


def test_old_pgvector_is_refused(empty_database: str) -> None:
    """Before 0.7 there is no sparsevec and no binary_quantize."""
    execute(empty_database, "CREATE EXTENSION vector")
    execute(empty_database, "UPDATE pg_extension SET extversion = '0.6.2' WHERE extname = 'vector'")
    with pytest.raises(MigrationError, match=r"pgvector 0\.6\.2 is too old, want 0\.7"):
        migrations.migrate(empty_database, SCHEMA)
    assert [] == tables(empty_database)


def test_pgvector_elsewhere_is_refused(empty_database: str) -> None:
    """Everything else looks for its types in public."""
    execute(empty_database, "CREATE SCHEMA extensions")
    execute(empty_database, "CREATE EXTENSION vector WITH SCHEMA extensions")
    with pytest.raises(MigrationError, match="in schema 'extensions', want public: ALTER EXTENSION"):
        migrations.migrate(empty_database, SCHEMA)


def test_missing_pgvector_is_said(empty_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without the extension's files is told from a role that may not create it."""
    real = psycopg.Connection.execute

    def without_files(connection: psycopg.Connection, statement: object, *args: object) -> object:
        if str(statement).startswith("CREATE EXTENSION"):
            statement = "CREATE EXTENSION no_such_extension"
        return real(connection, statement, *args)

    monkeypatch.setattr(psycopg.Connection, "execute", without_files)
    with pytest.raises(MigrationError, match="this server has no pgvector: install"):
        migrations.migrate(empty_database, SCHEMA)


def test_role_that_may_create_nothing_is_told_what_to_ask_for(unowned_database: str, empty_database: str) -> None:
    """First the extension, then the schema; neither is a traceback."""
    with pytest.raises(MigrationError, match="may not run CREATE EXTENSION vector: let an administrator"):
        migrations.migrate(unowned_database, SCHEMA)
    execute(empty_database, "CREATE EXTENSION vector")
    with pytest.raises(MigrationError, match="may not create the schema 'vault_memory': create it"):
        migrations.migrate(unowned_database, SCHEMA)


def test_role_without_createrole_gets_a_note(unowned_database: str, empty_database: str, limited_role: str) -> None:
    """On a server of others the tables are made, and the missing reader is one line instead of a failure."""
    execute(empty_database, "CREATE EXTENSION vector")
    execute(empty_database, f"CREATE SCHEMA {limited_role} AUTHORIZATION {limited_role}")
    assert NAMES == migrations.migrate(unowned_database, limited_role)
    note = migrations.grant_reader(unowned_database, limited_role)
    assert note is not None
    assert f"no read-only role: {limited_role} may not create {limited_role}_reader" in note


def test_shared_database_keeps_the_rights_of_public(empty_database: str) -> None:
    """Where others have tables, what PUBLIC may do is not ours to change; the note says what that means."""
    migrations.migrate(empty_database, SCHEMA)
    execute(empty_database, "CREATE SCHEMA billing")
    note = migrations.grant_reader(empty_database, SCHEMA)
    assert note is not None
    assert "this database is shared" in note
    with psycopg.connect(empty_database) as connection:
        assert (True,) == connection.execute(
            "SELECT has_database_privilege('vault_memory_reader', current_database(), 'TEMPORARY')"
        ).fetchone()


def test_reader_sees_live_notes_terms_and_state(reader_dsn: str) -> None:
    """What a query needs is there, unqualified."""
    with psycopg.connect(reader_dsn) as connection:
        for statement in (
            "SELECT chunk_id, content, embedding <=> embedding FROM memory_live",
            "SELECT dimension, chunks FROM memory_term",
            "SELECT commit, ruleset_id, embedder, model, dimensions, base_url, vector_index FROM sync_state",
        ):
            connection.execute(statement.encode())
        assert ("2s",) == connection.execute("SHOW statement_timeout").fetchone()
        assert ("on",) == connection.execute("SHOW transaction_read_only").fetchone()


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO memory_term VALUES (1, 1)",
        "UPDATE sync_state SET commit = 'x'",
        "DELETE FROM memory_primary",
        "TRUNCATE memory_chunk",
        "SELECT content FROM memory_primary",
        "SELECT id FROM memory_secure_audit",
        "SELECT id FROM note_state",
        "SELECT embedding FROM embedding_stage",
        "SELECT vault FROM sync_state",
        "SELECT key_fingerprint FROM sync_state",
        "CREATE TABLE mine (n INT)",
        "CREATE TABLE public.mine (n INT)",
        "CREATE TEMPORARY TABLE mine (n INT)",
        "CREATE SCHEMA mine",
        "CREATE ROLE mine",
        "CREATE DATABASE mine",
        "ALTER TABLE memory_term ADD COLUMN n INT",
        "DROP VIEW memory_live",
        "ALTER ROLE vault_memory_reader SUPERUSER",
        "SET ROLE postgres",
        "COPY memory_term TO PROGRAM 'true'",
        "COPY memory_term FROM PROGRAM 'true'",
        "COPY memory_term TO '/tmp/x'",
        "SELECT pg_read_file('PG_VERSION')",
        "SELECT pg_ls_dir('.')",
        "SELECT lo_create(0)",
        "SELECT lo_import('/etc/hostname')",
        "ALTER SYSTEM SET jit = on",
        "SELECT pg_reload_conf()",
    ],
)
def test_reader_is_denied(statement: str, reader_dsn: str) -> None:
    """The grants are the barrier: the session lifted its read-only default first."""
    with psycopg.connect(reader_dsn, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        with pytest.raises(errors.InsufficientPrivilege):
            connection.execute(statement.encode())


def test_reader_cannot_see_what_the_rules_hide(database: str, reader_dsn: str) -> None:
    """A note of an older ruleset is in the table and not in the view."""
    execute(database, f"UPDATE {SCHEMA}.sync_state SET ruleset_id = 'new'")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"SET search_path = {SCHEMA}, public".encode())
        for note, ruleset in (("old.md", "old"), ("new.md", "new")):
            connection.execute(
                "INSERT INTO memory_primary (id, source, content, content_hash, blob_id, title, tags, front_matter,"
                " links, commit, ruleset_id, model, token_count) VALUES (%s, '', '', '', '', '', '{}', '{}', '{}', '',"
                " %s, '', 0)",
                (note, ruleset),
            )
            connection.execute(
                "INSERT INTO memory_chunk (id, note_id, ordinal, heading_path, level, start_line, end_line, content,"
                " text_hash, model, dimensions, script, keywords, term_weights)"
                " VALUES (%s, %s, 0, '', 1, 1, 1, '', '', '', 1536, 'latin', '', '{}/536870912')",
                (note, note),
            )
    with psycopg.connect(reader_dsn) as connection:
        assert [("new.md",)] == connection.execute("SELECT chunk_id FROM memory_live").fetchall()


def test_ensure_database_creates_once(postgres_server: PostgresServer) -> None:
    """Eight at once: one creates it, none fails; an odd name is only a name."""
    name = f'vm_test_{os.getpid()}_"; odd'
    try:
        with ThreadPoolExecutor(8) as pool:
            calls = [pool.submit(migrations.ensure_database, postgres_server.administrator, name) for _ in range(8)]
        assert [True] + [False] * 7 == sorted((call.result() for call in calls), reverse=True)
    finally:
        with postgres_server.connect() as connection:
            connection.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))


def test_ensure_database_without_the_right(unowned_database: str) -> None:
    """The message says who may not, and what to create."""
    with pytest.raises(StoreError, match=r"^vm_limited_\d+ may not create databases: create 'dagster' for it$"):
        migrations.ensure_database(unowned_database, "dagster")


@pytest.mark.parametrize(
    ("dsn", "error", "message"),
    [
        (
            "postgresql://u:hunter2@127.0.0.1:1/d",
            StoreUnavailable,
            "no connection to PostgreSQL at 127.0.0.1, database d",
        ),
        ("host=/nowhere user=u password=hunter2", StoreUnavailable, "no connection to PostgreSQL at /nowhere"),
        ("postgresql://u:hunter2@[h/d", StoreError, "VAULT_MEMORY_DSN is malformed"),
        ("password=hunter2 =", StoreError, "VAULT_MEMORY_DSN is malformed"),
    ],
)
def test_bad_dsn_is_one_line_without_the_password(dsn: str, error: type[Exception], message: str) -> None:
    """The driver's own message can quote the DSN; ours names host and database."""
    with pytest.raises(error, match=message) as caught:
        migrations.migrate(dsn, SCHEMA)
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_too_long_schema_is_refused(empty_database: str) -> None:
    """PostgreSQL would cut the role's name, and two schemas could share one."""
    with pytest.raises(MigrationError, match="at most 56 characters"):
        migrations.migrate(empty_database, "v" * 57)
    assert NAMES == migrations.migrate(empty_database, "v" * 56)


def test_schema_file_is_what_the_migrations_make(database: str) -> None:
    """``sql/schema.sql`` is what reviewers read; python -m vault_memory_tests.schema_dump writes it anew."""
    major = find_install().major
    with psycopg.connect(database) as connection:
        if connection.info.server_version // 10000 != major:
            pytest.skip("pg_dump of another version writes the same schema differently")
    assert schema_dump.SCHEMA_FILE.read_text(encoding="utf-8") == schema_dump.dump(database)


def test_schema_file_can_be_run(make_database: Callable[..., str]) -> None:
    """The generated file is valid SQL that makes the same schema again."""
    dsn = make_database()
    execute(dsn, "CREATE EXTENSION vector")
    execute(dsn, f"CREATE SCHEMA {SCHEMA}")
    text = schema_dump.SCHEMA_FILE.read_text(encoding="utf-8")
    execute(dsn, f"SET search_path = {SCHEMA}, public; {text}")
    assert schema_dump.dump(dsn) == text


def test_dump_tools_are_there(database: str) -> None:
    """The wheel's pg_dump and pg_restore carry a database over."""
    install = find_install()
    copy = subprocess.run(
        [install.program("pg_dump"), "--format=custom", f"--schema={SCHEMA}", database], check=True, capture_output=True
    ).stdout
    listed = subprocess.run([install.program("pg_restore"), "--list"], input=copy, check=True, capture_output=True)
    assert b"memory_primary" in listed.stdout
