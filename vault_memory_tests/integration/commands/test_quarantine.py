"""The quarantine commands as a person runs them, and physical erasure."""

import json
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from vault_memory.adapters import server
from vault_memory.cli import cli
from vault_memory.commands.erase import TABLES
from vault_memory.errors import QueryError
from vault_memory_tests.fixtures.installation import Installation
from vault_memory_tests.fixtures.postgres import PostgresServer, test_home
from vault_memory_tests.integration.ingest.test_sync import NOTE, TOKEN, rows

HELD = "01_Projects/held.md"


def test_the_life_of_a_false_alarm(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """List, show, allow, revoke, erase: each says what it did, none shows the text."""
    for name, value in installation.environment.items():
        monkeypatch.setenv(name, value)
    installation.vault.write(HELD, f"# Manual\n\nWritten as {TOKEN} in the manual, opens nothing.\n")
    installation.vault.commit()
    installation.steps()
    said: list[str] = []

    def run(*arguments: str, refused: bool = False) -> str:
        done = CliRunner().invoke(cli, ["quarantine", *arguments])
        assert refused == (done.exit_code != 0), done.output
        assert isinstance(done.exception, (QueryError, SystemExit, type(None)))
        said.append(done.output + str(done.exception))
        return done.output

    assert f"{HELD}: github_token line 3 (quarantined)\n" == run("list")
    (listed,) = json.loads(run("list", "--json"))
    assert ("secret", ["github_token"], [3], False, None) == tuple(
        listed[name] for name in ("reason", "rules", "lines", "was_embedded", "notice")
    )
    assert "allowed until" in run("allow", HELD, "--rule", "github_token", "--days", "3")
    assert "github_token until" in run("show", HELD)
    assert "released" == installation.steps()[HELD].action
    assert "" == run("list")
    assert "(released)" in run("list", "--all")
    assert "revoked: github_token" in run("revoke", HELD)
    assert [] == rows(installation, "SELECT id FROM memory_primary")
    assert "quarantined" == installation.steps()[HELD].action
    run("allow", HELD, "--rule", "jwt", refused=True)
    run("allow", "01_Projects/none.md", refused=True)
    run("show", "01_Projects/none.md", refused=True)
    run("allow", HELD, "--days", "0", refused=True)
    assert "tables written anew" in run("erase")
    assert TOKEN not in "".join(said)


def test_erasure_rewrites_the_files_of_deleted_rows(
    installation: Installation, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deleted text lies in the table's file until ``doctor --erase``; afterwards it is in no file of the database."""
    for name, value in installation.environment.items():
        monkeypatch.setenv(name, value)
    word = "zanzibar-heliotrope-quartermaster"
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.write(HELD, f"# Gone\n\nThe word is {word}.\n")
    installation.vault.commit()
    installation.steps()
    installation.vault.delete(HELD)
    installation.vault.commit()
    installation.steps()
    rows(installation, """INSERT INTO embedding_stage SELECT 'h', 'm', 8, embedding, 'r' FROM memory_chunk
                           LIMIT 1 RETURNING 1""")  # fmt: skip
    assert word.encode() in _files(postgres_server, installation)

    said = CliRunner().invoke(cli, ["doctor", "--erase", "--json"])

    done = json.loads(said.output)["erased"]
    assert (list(TABLES), 1, True) == (done["tables"], done["staged"], done["wal_recycled"])
    assert 0 < done["bytes_after"] <= done["bytes_before"]
    assert word.encode() not in _files(postgres_server, installation)
    assert [("01_Projects/a.md",)] == rows(installation, "SELECT id FROM memory_primary")
    assert [] == rows(installation, "SELECT 1 FROM embedding_stage")


def _files(postgres_server: PostgresServer, installation: Installation) -> bytes:
    with psycopg.connect(installation.environment["VAULT_MEMORY_DSN"]) as connection:
        (oid,) = connection.execute("SELECT oid FROM pg_database WHERE datname = current_database()").fetchone()
    with postgres_server.connect() as connection:
        connection.execute("CHECKPOINT")
    folder = server.status(test_home()).info.data / "base" / str(oid)
    return b"".join(Path(path).read_bytes() for path in folder.iterdir())
