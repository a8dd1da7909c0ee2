"""Who the query is to the database: never more than a reader where there is a choice."""

import os
from dataclasses import replace

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from vault_memory.query import database as query_database
from vault_memory.query.database import connect
from vault_memory_tests.fixtures.postgres import test_home


@pytest.mark.skipif("VAULT_MEMORY_TEST_SERVER" in os.environ, reason="asks our own embedded server")
def test_the_embedded_server_is_asked_as_the_reader(postgres_server, query_settings):
    """Without any DSN the query logs in as the read-only role of its schema."""
    settings = replace(query_settings, dsn=None, query_dsn=None, home=test_home())
    given = conninfo_to_dict(query_database._embedded_dsn(settings))
    assert ("vault_memory_reader", "vault_memory") == (given["user"], given["dbname"])


def test_the_query_dsn_wins_over_the_operators(query_settings, database):
    """With both set, the reader's is used."""
    with connect(replace(query_settings, dsn=database)) as connection:
        assert {"u": "vault_memory_reader"} == connection.execute("SELECT current_user AS u").fetchone()


def test_the_operators_dsn_alone_is_used_read_only(query_settings, database):
    """The owner's role asked to read: the session refuses to write, and its time is limited."""
    with connect(replace(query_settings, dsn=database, query_dsn=None)) as connection:
        assert {"t": "5s"} == connection.execute("SELECT current_setting('statement_timeout') AS t").fetchone()
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute("DELETE FROM memory_chunk")


def test_the_reader_sees_releases_but_neither_audit_nor_list(reader_dsn):
    """Which rules were released is needed at read time; where secrets were found is the operator's alone."""
    with psycopg.connect(reader_dsn, autocommit=True) as connection:
        assert [] == connection.execute("SELECT note_id, rule FROM memory_live_allowed").fetchall()
        for table in ("memory_allowed", "memory_secure_audit", "note_state", "memory_primary", "embedding_stage"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"SELECT 1 FROM {table}")


def test_settings_show_no_password(query_settings):
    """A settings object in a log or a traceback holds neither DSNs nor the key."""
    settings = replace(
        query_settings,
        dsn="postgresql://u:hunter2@h/d",
        query_dsn="postgresql://u:hunter2@h/d",
        dagster_dsn="postgresql://u:hunter2@h/d",
        embedding=replace(query_settings.embedding, api_key="hunter2"),
    )
    assert "hunter2" not in repr(settings)
