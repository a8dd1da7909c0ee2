"""The demo's stage: its folder and its database server."""

import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from vault_memory.adapters import server
from vault_memory.commands import demo
from vault_memory.errors import ConfigError
from vault_memory.settings import Settings


def places(settings: Settings) -> list[Path]:
    """Return where the demo may have left something."""
    info = server.locate(settings.home, settings.pg_user)
    return [settings.home.parent, info.directory, info.socket_directory]


def lives(pid: int) -> bool:
    """Say whether a process works on; one that has ended may wait for its parent for ever (a container's init)."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return state.strip() != "" and not state.startswith("Z")


def break_off(*, keep: bool) -> tuple[int | None, list[Path], list[bool]]:
    """Raise an error on the stage; return the server's process, where it was, and whether that was there."""
    found: list[Path] = []
    pid, there = None, []
    with suppress(ZeroDivisionError), demo._stage(keep=keep) as settings:
        found = places(settings)
        pid, there = server.status(settings.home, settings.pg_user).pid, [place.is_dir() for place in found]
        raise ZeroDivisionError
    return pid, found, there


@pytest.mark.parametrize("how", ["kept", "thrown away"])
def test_nothing_is_left_where_the_demo_breaks_off(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder, no database, no socket and no server, wherever they had to be put, even if they were to be kept."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    pid, found, there = break_off(keep=how == "kept")

    assert [True] * 3 == there
    assert [False] * 3 == [place.exists() for place in found]
    assert pid is not None
    assert not lives(pid)


def test_a_folder_that_cannot_be_made_is_said_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A temporary folder that is not there ends with the setting to change."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="TMPDIR"), demo._stage(keep=False):
        pass
