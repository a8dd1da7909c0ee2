"""No command prints the password of a DSN, whichever DSN is wrong and however it is spelled."""

import logging
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from vault_memory.cli import cli
from vault_memory.query.cli import main as query_main
from vault_memory_tests.fixtures.vault import MakeVault

PASSWORD = "Xk9mQ2" + "vLp7wPASSWORD"
DSNS = {
    "nobody listens": f"postgresql://ops:{PASSWORD}@127.0.0.1:1/memory",
    "keywords": f"host=/nowhere user=ops password={PASSWORD} dbname=memory",
    "malformed": f"postgresql://ops:{PASSWORD}@[127.0.0.1/memory",
    "unknown option": f"postgresql://ops@127.0.0.1:1/memory?password={PASSWORD}&nonsense=1",
    "no port": f"postgresql://ops:{PASSWORD}@127.0.0.1:port/memory",
}
COMMANDS = (
    ["sync"], ["sync", "--dry-run"], ["sync", "--json"], ["-v", "status"], ["status", "--json"], ["doctor"], ["doctor", "--json"],
    ["quarantine", "list"], ["quarantine", "show", "a.md"], ["quarantine", "allow", "01_Projects/a.md"], ["forget", "01_Projects/a.md"],
    ["index-check"], ["dump", "memory.dump"], ["agent", "--print", "why is it slow"], ["query", "why is it slow"],
)  # fmt: skip


@pytest.fixture
def environment(make_vault: MakeVault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Set what a command needs but for a DSN, and nothing else of ours."""
    vault = make_vault(files={"01_Projects/a.md": "# A\n\nText.\n"})
    for name in list(os.environ):
        if name.startswith(("VAULT_MEMORY_", "OPENROUTER_", "DAGSTER_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("VAULT_MEMORY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("VAULT_MEMORY_VAULT", str(vault.path))
    monkeypatch.setenv("VAULT_MEMORY_EMBEDDER", "hashing")
    monkeypatch.chdir(tmp_path)
    return monkeypatch


@pytest.mark.parametrize("dsn", DSNS)
def test_no_command_prints_a_password(
    environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path, dsn: str
) -> None:
    """Neither its output, nor a log, nor the exception that ended it, nor a file that it left."""
    for name in ("VAULT_MEMORY_DSN", "VAULT_MEMORY_QUERY_DSN", "VAULT_MEMORY_DAGSTER_DSN"):
        environment.setenv(name, DSNS[dsn])
    for arguments in COMMANDS:
        with caplog.at_level(logging.DEBUG):
            done = CliRunner().invoke(cli, arguments)
        shown = done.output + done.stderr + str(done.exception) + caplog.text
        assert done.exit_code not in {0, 2} or arguments[0] in {"agent", "query"}, (arguments, done.output)
        assert PASSWORD not in shown, arguments
    left = [file for file in tmp_path.rglob("*") if file.is_file() and PASSWORD.encode() in file.read_bytes()]
    assert [] == left


@pytest.mark.parametrize("dsn", DSNS)
def test_the_query_prints_no_password(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], dsn: str
) -> None:
    """The agent's command says one line about the database, without the DSN."""
    environment.setenv("VAULT_MEMORY_QUERY_DSN", DSNS[dsn])
    with pytest.raises(SystemExit) as ended:
        query_main(["why is it slow"])
    shown = capsys.readouterr()
    assert 3 == ended.value.code
    assert 1 == len(shown.err.splitlines())
    assert PASSWORD not in shown.out + shown.err


def test_a_password_is_taken_out_of_a_connection_that_breaks(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A host name that holds one, as where an ``@`` of a password was not escaped."""
    environment.setenv("VAULT_MEMORY_QUERY_DSN", f"postgresql://ops:first@{PASSWORD}@nowhere.invalid/memory")
    with pytest.raises(SystemExit):
        query_main(["why is it slow"])
    shown = capsys.readouterr()
    assert PASSWORD not in shown.out + shown.err
