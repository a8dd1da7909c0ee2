"""The units of systemd and launchd."""

import plistlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from vault_memory.commands import service
from vault_memory.errors import ConfigError
from vault_memory.settings import Settings, load


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings with a secret that only the environment holds."""
    return load({
        "HOME": str(tmp_path),
        "VAULT_MEMORY_VAULT": "/my $vault/100%",
        "VAULT_MEMORY_HOME": str(tmp_path / "home"),
        "VAULT_MEMORY_DSN": "postgresql://me:hunter2secret@db/x",
    })  # fmt: skip


def test_systemd_starts_up_with_the_settings_and_no_secret(settings: Settings) -> None:
    """Special characters are escaped, the password is left out and named as missing."""
    unit = service.unit(settings, port=3001, platform="linux")

    assert 'Environment="VAULT_MEMORY_VAULT=/my $vault/100%%"' in unit.text.splitlines()
    assert f'ExecStart="{sys.executable}" "-P" "-m" "vault_memory.cli" "up" "--port" "3001"' in unit.text.splitlines()
    assert "hunter2secret" not in unit.text
    assert ("dsn",) == unit.missing


def test_launchd_gets_a_property_list(settings: Settings) -> None:
    """The file parses, and says the same."""
    unit = service.unit(settings, port=3001, platform="darwin")
    found = plistlib.loads(unit.text.encode())

    assert [sys.executable, "-P", "-m", "vault_memory.cli", "up", "--port", "3001"] == found["ProgramArguments"]
    assert "/my $vault/100%" == found["EnvironmentVariables"]["VAULT_MEMORY_VAULT"]
    assert "hunter2secret" not in unit.text


def test_install_and_remove_touch_our_file_alone(settings: Settings, tmp_path: Path) -> None:
    """A unit is written and deleted again; another's file of that name stays."""
    unit = replace(
        service.unit(replace(settings, dsn=None), port=1, platform="linux"),
        path=tmp_path / "u" / "x",
        start=(),
        stop=(),
    )
    assert None is service.install(unit)
    assert unit.text == unit.path.read_text()
    assert service.remove(unit)
    assert not service.remove(unit)
    unit.path.write_text("somebody's")

    for act in (service.install, service.remove):
        with pytest.raises(ConfigError, match="not made by vault-memory"):
            act(unit)
    assert "somebody's" == unit.path.read_text()


def test_a_manager_that_does_not_answer_leaves_a_command_to_run(settings: Settings, tmp_path: Path) -> None:
    """The unit is there, and the user is told what is left to do."""
    unit = replace(
        service.unit(replace(settings, dsn=None), port=1, platform="linux"),
        path=tmp_path / "x",
        start=(("/nonexistent/ctl", "go"),),
    )

    assert "/nonexistent/ctl go" == service.install(unit)
    assert unit.path.exists()


def test_other_platforms_are_told(settings: Settings) -> None:
    """Where there is no manager that we know, one line says so."""
    with pytest.raises(ConfigError, match="neither systemd nor launchd"):
        service.unit(settings, port=1, platform="win32")
