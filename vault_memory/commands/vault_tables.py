"""The tables ``[vaults.NAME]`` of the configuration file, as commands write and remove them.

Belongs here: putting one in and taking one out by editing the text. Does not: what a table means (``settings``), other
settings (``setup``).

Nothing else in the file changes, not a byte: comments, order and blank lines are its owner's. What came out is parsed
and compared before it replaces the file, in one step and with the file's mode. Where it is not as meant, because the
file is written in a way that was not foreseen, nothing is done and its owner is told what to change.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import tomllib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from vault_memory.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

_FIRST_LINES: Final = b"# Settings of vault-memory; the environment wins over this file. See docs/configuration.md.\n"
_HEADER: Final = re.compile(rb"^[ \t]*\[", re.MULTILINE)


def add(path: Path, lock: Path, name: str, values: Mapping[str, str]) -> bool:
    """Put a table at the end of the file, which is made with mode 0600 if it is missing.

    Args:
        path: The configuration file.
        lock: A file to take turns by.
        name: Of the vault.
        values: Its settings.

    Returns:
        Whether it was added: the same table may be there already.

    Raises:
        ConfigError: There is another table of this name, or the file cannot be read, edited or written.
    """
    lines = [f"[vaults.{name}]", *(f"{key} = {_text(value)}" for key, value in values.items())]
    with _edited(path, lock, "add these lines by hand: " + "; ".join(lines)) as edit:
        now = _table(edit.before, name)
        if now == dict(values):
            return False
        if now is not None:
            raise ConfigError(f"{path}: there is another vault {name}; choose another name with --name")
        old = edit.data or _FIRST_LINES
        gap = b"" if old.endswith(b"\n") else b"\n"
        edit.data = old + gap + b"\n" + "".join(f"{line}\n" for line in lines).encode()
        vaults = edit.before.get("vaults", {})
        edit.wanted = {**edit.before, "vaults": {**vaults, name: dict(values)}}
    return True


def remove(path: Path, lock: Path, name: str) -> bool:
    """Take a table out, with the tables below it; comments around it stay.

    Returns:
        Whether it was there.

    Raises:
        ConfigError: The file cannot be read, edited or written.
    """
    with _edited(path, lock, f"remove [vaults.{name}] by hand") as edit:
        if _table(edit.before, name) is None:
            return False
        header = re.compile(
            rb"^[ \t]*\[[ \t]*vaults[ \t]*\.[ \t]*[\"']?%s[\"']?[ \t]*[\].]" % re.escape(name.encode()), re.MULTILINE
        )
        while (found := header.search(edit.data)) is not None:
            following = _HEADER.search(edit.data, found.end())
            end = following.start() if following else len(edit.data)
            body = edit.data[found.start() : end]
            # What stands between the last setting and the next table belongs to that one, or to nobody.
            kept = re.search(rb"(?:^[ \t]*(?:#[^\n]*)?(?:\n|\Z))*\Z", body, re.MULTILINE)
            tail = body[kept.start() :] if kept else b""
            before = edit.data[: found.start()]
            if before.endswith(b"\n\n") and (not tail or tail.startswith(b"\n")):
                before = before[:-1]  # the blank line that `add` put there
            edit.data = before + tail + edit.data[end:]
        vaults = {key: value for key, value in edit.before["vaults"].items() if key != name}
        edit.wanted = {key: value for key, value in edit.before.items() if key != "vaults"}
        if vaults:
            edit.wanted["vaults"] = vaults
    return True


class _Edit:
    """A file's bytes, as they are and as they shall be, and what they are to mean then."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.before: dict[str, Any] = tomllib.loads(data.decode())
        self.wanted: dict[str, Any] | None = None


@contextmanager
def _edited(path: Path, lock: Path, by_hand: str) -> Generator[_Edit]:
    try:
        with _one_at_a_time(lock):
            target = path.resolve()  # a link into a folder of dotfiles stays a link
            data = target.read_bytes() if target.exists() else b""
            edit = _Edit(data)
            yield edit
            if edit.wanted is None or edit.data == data:
                return
            if tomllib.loads(edit.data.decode()) != edit.wanted:
                raise ConfigError(f"{path}: cannot be edited safely; {by_hand}")
            _replace(target, edit.data)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise ConfigError(f"{path}: cannot be edited safely; {by_hand}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({type(error).__name__}); {by_hand}") from None


@contextmanager
def _one_at_a_time(lock: Path) -> Generator[None]:
    lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(target: Path, data: bytes) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o600
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _table(config: Mapping[str, Any], name: str) -> object:
    vaults = config.get("vaults", {})
    return vaults.get(name) if isinstance(vaults, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


def _text(value: str) -> str:
    # JSON's escapes are TOML's, but for DEL, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
