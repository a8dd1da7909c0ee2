"""Noticing changed settings: once each, and never taking up what cannot be used."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from vault_memory import settings as settings_module
from vault_memory.commands.settings_watch import SettingsWatch
from vault_memory.errors import VaultError
from vault_memory.settings import Settings

FIRST = 'vault = "/v"\n'
SECOND = 'vault = "/v"\n[vaults.more]\npath = "/more"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the configuration file."""
    made = tmp_path / "config.toml"
    made.write_text(FIRST)
    return made


@pytest.fixture
def read(file: Path, tmp_path: Path) -> Callable[[], tuple[Settings, ...]]:
    """Return what reads it."""
    environment = {"HOME": str(tmp_path), "VAULT_MEMORY_CONFIG": str(file)}
    return lambda: tuple(settings_module.load_all(environment, config_must_exist=False))


def replaced(file: Path, text: str) -> None:
    """Replace a file, as ``index`` and editors do."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def test_a_change_is_told_once(file: Path, read: Callable[[], tuple[Settings, ...]]) -> None:
    """The new vault is there; a file that only looks different is no change."""
    lines: list[str] = []
    watch = SettingsWatch(read, lambda _vaults: None)
    assert not watch.is_changed(lines.append)
    replaced(file, SECOND)
    assert watch.is_changed(lines.append)
    assert ["default", "more"] == [one.name for one in watch.vaults]
    assert not watch.is_changed(lines.append)
    replaced(file, f"# the same\n{SECOND}")
    assert not watch.is_changed(lines.append)
    assert [] == lines


def test_settings_that_cannot_be_used_are_said_once(file: Path, read: Callable[[], tuple[Settings, ...]]) -> None:
    """Malformed, or of a vault that is not there: the old ones stay until it is mended."""

    def accept(vaults: Sequence[Settings]) -> None:
        if len(vaults) > 1:
            raise VaultError("/more is not there")

    lines: list[str] = []
    watch = SettingsWatch(read, accept)
    for text, reason in (("vault = \n", "config.toml"), (SECOND, "/more is not there")):
        replaced(file, text)
        assert not watch.is_changed(lines.append)
        assert not watch.is_changed(lines.append)
        assert reason in lines.pop()
        assert [] == lines
    assert ["default"] == [one.name for one in watch.vaults]


def test_a_file_that_comes_into_being(file: Path, read: Callable[[], tuple[Settings, ...]]) -> None:
    """``index`` makes the first one of a user who had set variables only."""
    file.unlink()
    watch = SettingsWatch(read, lambda _vaults: None)
    file.write_text(SECOND)
    assert watch.is_changed(lambda _line: None)
    assert 2 == len(watch.vaults)


def test_another_home_is_no_small_change(file: Path, read: Callable[[], tuple[Settings, ...]], tmp_path: Path) -> None:
    """Locks and logs lie there: it is said, and the old one stays."""
    lines: list[str] = []
    watch = SettingsWatch(read, lambda _vaults: None)
    before = watch.vaults
    replaced(file, f'home = "{tmp_path}/other"\n{FIRST}')
    assert not watch.is_changed(lines.append)
    assert before == watch.vaults
    assert ["another home takes effect when you start vault-memory up again"] == lines
