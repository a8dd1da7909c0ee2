"""``vault-memory service``: ``up`` at every login, by systemd's user manager or by launchd.

Belongs here: the unit's text, where it lies, telling the manager. Does not: what runs (``up``).
"""

from __future__ import annotations

import plistlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vault_memory.commands.launching import launch, refuse_without_database
from vault_memory.errors import ConfigError

if TYPE_CHECKING:
    from vault_memory.commands.launching import Launch
    from vault_memory.settings import Settings

_MARK: Final = "Made by vault-memory service install"
_TIMEOUT_SECONDS: Final = 60
_UNIT: Final = "vault-memory.service"
_LABEL: Final = "org.vault-memory.up"


@dataclass(frozen=True, slots=True)
class Unit:
    """A service as its manager wants it.

    Attributes:
        path: Where the manager looks for it.
        text: What stands in the file.
        start: Commands that make the manager run it, in order.
        stop: Commands that end it.
        missing: Secret settings that it will not see, because only this shell has them.
    """

    path: Path
    text: str
    start: tuple[tuple[str, ...], ...]
    stop: tuple[tuple[str, ...], ...]
    missing: tuple[str, ...]


def unit(settings: Settings, *, port: int, platform: str = sys.platform) -> Unit:
    """Describe the service of this platform.

    Raises:
        ConfigError: The platform has neither systemd nor launchd.
    """
    settings.require_vault()
    started = launch(settings, "vault_memory.cli", "up", "--port", str(port))
    if platform == "darwin":
        path = Path.home() / "Library/LaunchAgents" / f"{_LABEL}.plist"
        start = (("launchctl", "load", "-w", str(path)),)
        return Unit(
            path, _plist(settings, started), start, (("launchctl", "unload", "-w", str(path)),), started.missing
        )
    if platform.startswith("linux"):
        path = Path.home() / ".config/systemd/user" / _UNIT
        manager = ("systemctl", "--user")
        start = ((*manager, "daemon-reload"), (*manager, "enable", "--now", _UNIT))
        return Unit(path, _systemd(started), start, ((*manager, "disable", "--now", _UNIT),), started.missing)
    raise ConfigError(f"service: neither systemd nor launchd on {platform}; start 'vault-memory up' in your own way")


def install(found: Unit) -> str | None:
    """Write the unit and start it; return what to do by hand where the manager does not answer, None if it did.

    Raises:
        ConfigError: Somebody else's file is there, it cannot be written, or it would not find the database.
    """
    refuse_without_database(found.missing)
    _refuse_foreign(found.path)
    try:
        found.path.parent.mkdir(parents=True, exist_ok=True)
        found.path.write_text(found.text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{found.path}: cannot be written ({type(error).__name__})") from None
    return _tell(found.start)


def remove(found: Unit) -> bool:
    """End the service and delete its unit; return whether there was one.

    Raises:
        ConfigError: The file is somebody else's, or cannot be deleted.
    """
    if not found.path.exists():
        return False
    _refuse_foreign(found.path)
    _tell(found.stop)
    try:
        found.path.unlink()
    except OSError as error:
        raise ConfigError(f"{found.path}: cannot be deleted ({type(error).__name__})") from None
    return True


def _refuse_foreign(path: Path) -> None:
    if path.exists() and _MARK not in path.read_text(encoding="utf-8", errors="replace"):
        raise ConfigError(f"{path}: there already, and not made by vault-memory; move it away first")


def _tell(commands: tuple[tuple[str, ...], ...]) -> str | None:
    for command in commands:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
                timeout=_TIMEOUT_SECONDS,
            )
        except (OSError, subprocess.TimeoutExpired):
            return " ".join(command)
        if done.returncode != 0:
            return " ".join(command)
    return None


def _systemd(started: Launch) -> str:
    environment = "".join(
        f"Environment={_systemd_word(f'{name}={value}')}\n" for name, value in sorted(started.environment.items())
    )
    # Only in a command does a dollar sign begin a variable.
    command = " ".join(_systemd_word(word).replace("$", "$$") for word in started.command)
    return (
        f"# {_MARK}; to end it: vault-memory service remove\n"
        "[Unit]\nDescription=vault-memory: memory that follows the vault's commits\n\n"
        f"[Service]\n{environment}ExecStart={command}\n"
        # up ends its children itself; what hangs is killed after the time-out
        "KillMode=mixed\nTimeoutStopSec=60\nRestart=on-failure\nRestartSec=10\n\n"
        "[Install]\nWantedBy=default.target\n"
    )


def _systemd_word(word: str) -> str:
    """Quote a word as systemd.syntax(7) reads it; ``%`` stands for itself."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("%", "%%")
    return f'"{text}"'


def _plist(settings: Settings, started: Launch) -> str:
    log = str(settings.home / "log" / "service.log")
    content = {
        "Label": _LABEL,
        "ProgramArguments": list(started.command),
        "EnvironmentVariables": dict(started.environment),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    text = plistlib.dumps(content).decode("utf-8")
    return text.replace("<plist ", f"<!-- {_MARK} -->\n<plist ", 1)
