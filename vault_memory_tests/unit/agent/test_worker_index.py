"""What the journal's worker has put into memory, and what it leaves alone."""

from pathlib import Path

import pytest

from vault_memory import settings as settings_module
from vault_memory.agent import worker


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("", None),
        ('vault = "{vault}"', ["index", "{journal}", "--name", "journal"]),
        ('vault = "{home}"', None),
        ('vault = "{vault}"\n[vaults.journal]\npath = "{journal}"\nkind = "directory"', ["sync", "--vault", "journal"]),
        ('[vaults.all]\npath = "{home}"\nkind = "directory"', ["sync", "--vault", "all"]),
        ('vault = "{vault}"\n[vaults.journal]\npath = "{vault}/x"', ["index", "{journal}"]),
    ],
    ids=["nothing is set up", "outside", "in a repository", "again", "in a folder", "name taken"],
)
def test_where_the_journal_lies_says_how_it_comes_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str, expected: list[str] | None
) -> None:
    """Outside of every vault it becomes one; in a folder that is one its sync takes it; a commit brings it else."""
    names = {name: str(tmp_path / name) for name in ("vault", "home")} | {"journal": str(tmp_path / "home/journal")}
    (tmp_path / "config.toml").write_text(config.format(**names))
    for name, value in {"CONFIG": tmp_path / "config.toml", "HOME": names["home"], "DSN": "postgresql:///none"}.items():
        monkeypatch.setenv(f"VAULT_MEMORY_{name}", str(value))
    found = worker._index_command(settings_module.load())
    assert (None if expected is None else [word.format(**names) for word in expected]) == found


def test_a_server_that_does_not_run_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook starts no daemon: the entry waits for the next one."""
    monkeypatch.setenv("VAULT_MEMORY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("VAULT_MEMORY_VAULT", str(tmp_path / "vault"))
    assert worker._index_command(settings_module.load()) is None
