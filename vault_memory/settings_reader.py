"""Reading one setting at a time, from the environment and a TOML file, and keys from where they are kept.

Belongs here: types and the errors of values that do not fit, without the value. Does not: which settings there are and
what they default to (``settings``).
"""

from __future__ import annotations

import stat
import subprocess
import tomllib
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar, cast

from vault_memory.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEY_COMMAND_TIMEOUT_SECONDS: Final = 20


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


Table = TypeVar("Table", bound=_Dataclass)
"""A frozen dataclass of settings."""


@dataclass(slots=True)
class Reader:
    """Hands out settings by name, and remembers which keys of the file it was asked for."""

    environ: Mapping[str, str]
    config: Mapping[str, Any]
    config_file: Path
    known: set[str] = field(default_factory=set)
    prefix: str = ""

    def environment(self, name: str) -> str | None:
        """Return a variable of ours; None if it is not set or empty."""
        return self.environ.get(f"VAULT_MEMORY_{name}") or None

    def text(self, name: str) -> str | None:
        """Return a text: from its variable, else from the file; None if it is in neither."""
        self.known.add(name)
        value = self.environment(name.upper()) or self.config.get(name)
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"{self.config_file}: {self.prefix}{name}: want text in quotes")
        return value or None

    def path(self, name: str) -> Path | None:
        """Return a path, absolute."""
        value = self.text(name)
        return None if value is None else Path(value).expanduser().absolute()

    def table(self, name: str, kind: type[Table], base: Table | None = None) -> Table:
        """Return a table's settings; what it leaves out is as in ``base``, or the default."""
        self.known.add(name)
        given = self.config.get(name, {})
        name = f"{self.prefix}{name}"
        if not isinstance(given, dict):
            raise ConfigError(f"{self.config_file}: {name}: want a table, [{name}]")
        allowed = {item.name: str(item.type) for item in fields(kind) if item.name != "api_key"}
        values: dict[str, Any] = {}
        for key, value in cast("dict[str, object]", given).items():
            if key not in allowed:
                raise ConfigError(
                    f"{self.config_file}: unknown setting {name}.{key}; known: {', '.join(sorted(allowed))}"
                )
            values[key] = coerce(f"{name}.{key}", allowed[key], value)
        return kind(**values) if base is None else replace(base, **values)

    def refuse_unknown(self) -> None:
        """Raise if the file has a key that nothing asked for.

        Raises:
            ConfigError: It has; the message names it and the known ones.
        """
        unknown = sorted(set(self.config) - self.known)
        if unknown:
            known = ", ".join(sorted(self.known))
            raise ConfigError(f"{self.config_file}: unknown setting {self.prefix + unknown[0]!r}; known: {known}")


def coerce(name: str, kind: str, value: object) -> object:
    """Bring a TOML value or an environment string to the type that a field declares."""
    try:
        if kind.startswith("tuple"):
            items = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
            if not isinstance(items, list) or not all(isinstance(item, str) for item in cast("list[object]", items)):
                raise ValueError
            return tuple(cast("list[str]", items))
        if kind.startswith("bool"):
            if isinstance(value, bool):
                return value
            return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[str(value).lower()]
        if isinstance(value, bool):
            raise TypeError  # TOML's true would pass for the number 1
        if kind.startswith("int"):
            return _positive(int(cast("str", value)))
        if kind.startswith("float"):
            return _positive(float(cast("str", value)))
        if not isinstance(value, str):
            raise TypeError
        return Path(value).expanduser() if kind.startswith("Path") else value
    except (ValueError, TypeError, KeyError):
        raise ConfigError(f"{name}: want {_WANTED.get(kind.partition('[')[0].partition(' ')[0], 'text')}") from None


_WANTED: Final = {
    "tuple": "a list of texts",
    "bool": "true or false",
    "int": "a whole number, 0 or more",
    "float": "a number, 0 or more",
}


def _positive(number: float) -> float:
    if not 0 <= number < float("inf"):
        raise ValueError
    return number


def read_config(path: Path, *, required: bool) -> Mapping[str, Any]:
    """Return what a configuration file holds; nothing where it need not be there and is not.

    Raises:
        ConfigError: It cannot be read, or is no TOML; the message quotes nothing of it.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if required:
            raise ConfigError(f"VAULT_MEMORY_CONFIG names {path}, which does not exist") from None
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({type(error).__name__})") from None
    except tomllib.TOMLDecodeError as error:
        # The message can quote the line, which may hold a key; its position cannot.
        position = str(error).rpartition("(")[2].rstrip(")")
        raise ConfigError(f"{path}: not valid TOML ({position})") from None


def read_key_file(path: Path) -> str | None:
    """Return the key that a file holds; None if it is empty.

    Raises:
        ConfigError: It cannot be read, or others may read it too.
    """
    try:
        mode = path.stat().st_mode
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(f"{path}: others may read this key; run: chmod 600 {path}")
        return path.read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: the API key file cannot be read ({type(error).__name__})") from None


def run_key_command(command: str) -> str | None:
    """Return the key that a command line of the user prints; None if it prints nothing.

    Raises:
        ConfigError: It failed or took longer than 20 s.
    """
    try:
        done = subprocess.run(  # noqa: S602 - the user's own line, from the user's own file
            command,
            shell=True,
            check=False,
            capture_output=True,
            text=True,
            timeout=_KEY_COMMAND_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as error:
        raise ConfigError(f"api_key_command: failed ({type(error).__name__})") from None
    if done.returncode != 0:
        raise ConfigError(f"api_key_command: exit status {done.returncode}")
    return done.stdout.strip() or None
