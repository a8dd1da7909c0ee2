"""The operator's allow-list: findings that were looked at and are no secrets.

Belongs here: the file, and the question whether it releases a finding. Does not: what releasing a note means for the
store (``sync``), the command (``commands.quarantine``).

The file lies beside the configuration, outside the vault and with mode 0600: a note must not be able to vouch for
itself. An entry holds for one path, one rule and the exact bytes (by keyed hash), and it ends on a date. So an edit,
a move or a newer rule that finds something else quarantines the note again.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

from vault_memory.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Sequence
    from pathlib import Path

    from vault_memory.ingest.keys import KeyedHash
    from vault_memory.notes.model import Finding, RawNote

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Allowance:
    """One released finding.

    Attributes:
        source: Path of the note.
        rule: The rule that is overruled.
        content_hmac: Keyed hash of the note's exact bytes.
        added_at: When it was released.
        expires_at: When the release ends.
    """

    source: str
    rule: str
    content_hmac: str
    added_at: datetime
    expires_at: datetime

    def is_active(self, now: datetime | None = None) -> bool:
        """Whether the release still holds."""
        return self.expires_at > (now or datetime.now(UTC))


class AllowList:
    """The releases of one source set, read from the file when it has changed."""

    def __init__(self, path: Path, key: KeyedHash, *, vault: Path | None = None) -> None:
        """Take the file's place; ``refresh`` reads it.

        Args:
            path: The file; it need not exist.
            key: Makes the hashes that entries are compared by.
            vault: A file inside it is refused.
        """
        self._path = path
        self._key = key
        self._vault = vault
        self._stamp: tuple[int, ...] | None = None
        self._entries: dict[str, tuple[Allowance, ...]] = {}

    def refresh(self) -> bool:
        """Read the file if it is another one than before; return whether it was.

        Raises:
            ConfigError: It cannot be read, is malformed, lies in the vault or others may write it.
        """
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return False
        entries: dict[str, tuple[Allowance, ...]] = {}
        for entry in read_allowances(self._path, vault=self._vault):
            entries[entry.source] = (*entries.get(entry.source, ()), entry)
        self._entries, self._stamp = entries, stamp
        return True

    def tag(self, data: bytes) -> str:
        """Return the keyed hash of a note's bytes."""
        return self._key.tag(data)

    def allows(self, raw: RawNote, finding: Finding) -> bool:
        """Whether a finding in exactly these bytes at this path is released."""
        return any(entry.rule == finding.rule for entry in self.of(raw.path.id, raw.data))

    def of(self, note_id: str, data: bytes) -> tuple[Allowance, ...]:
        """Return the releases in force for exactly these bytes at this path."""
        if note_id not in self._entries:  # almost every note: no hash is made
            return ()
        tag = self.tag(data)
        return tuple(entry for entry in self._entries[note_id] if entry.content_hmac == tag and entry.is_active())

    def covers(self, note_id: str, content_hmac: str, rules: Collection[str]) -> bool:
        """Whether releases in force answer all that a quarantined note was quarantined for."""
        released = {
            entry.rule
            for entry in self._entries.get(note_id, ())
            if entry.content_hmac == content_hmac and entry.is_active()
        }
        return bool(rules) and released.issuperset(rules)

    def holds(self, note_id: str, rule: str, content_hmac: str, expires_at: datetime) -> bool:
        """Whether a release that a note is in memory by is still on the list, with the same end."""
        return any(
            (entry.rule, entry.content_hmac, entry.expires_at) == (rule, content_hmac, expires_at) and entry.is_active()
            for entry in self._entries.get(note_id, ())
        )

    @property
    def sources(self) -> tuple[str, ...]:
        """The paths that entries name."""
        return tuple(self._entries)


def read_allowances(path: Path, *, vault: Path | None = None) -> tuple[Allowance, ...]:
    """Read the allow-list, entries that have ended included; a missing file is an empty one.

    Raises:
        ConfigError: It cannot be read, is malformed, lies in the vault or others may write it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ConfigError(f"{path}: the allow-list cannot be read ({type(error).__name__})") from None
    if vault is not None and path.resolve().is_relative_to(vault.resolve()):
        os.close(descriptor)
        raise ConfigError(f"{path}: the allow-list lies inside the vault, which must not vouch for itself; move it")
    with os.fdopen(descriptor, "rb") as file:
        if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigError(f"{path}: others may read or write the allow-list; run: chmod 600 {path}")
        try:
            found = cast("dict[str, Any]", json.load(file))
            if found["version"] != _VERSION:
                raise ValueError
            return tuple(_entry(values) for values in found["entries"])
        except (ValueError, KeyError, TypeError, RecursionError):
            # Fail closed and say so: a list that is half read would quarantine, or release, at random.
            raise ConfigError(f"{path}: not an allow-list of this version; mend it or delete it") from None


def _entry(values: dict[str, Any]) -> Allowance:
    texts: dict[str, Any] = {name: values[name] for name in ("source", "rule", "content_hmac")}
    if not all(isinstance(text, str) and text for text in texts.values()):
        raise ValueError
    added, expires = (datetime.fromisoformat(values[name]) for name in ("added_at", "expires_at"))
    if added.tzinfo is None or expires.tzinfo is None:
        raise ValueError
    return Allowance(**texts, added_at=added, expires_at=expires)


def add_allowances(path: Path, added: Sequence[Allowance]) -> None:
    """Put entries on the list, in place of older ones for the same path and rule; drop those that have ended.

    Raises:
        ConfigError: The file cannot be read or written.
    """
    replaced = {(entry.source, entry.rule) for entry in added}
    with _only_writer(path):
        kept = [
            entry for entry in read_allowances(path) if (entry.source, entry.rule) not in replaced and entry.is_active()
        ]
        _write(path, [*kept, *added])


def remove_allowances(path: Path, source: str, rules: Collection[str] | None = None) -> tuple[Allowance, ...]:
    """Take a note's entries (or those for some rules) off the list and return them.

    Raises:
        ConfigError: The file cannot be read or written.
    """
    with _only_writer(path):
        entries = read_allowances(path)
        gone = tuple(entry for entry in entries if entry.source == source and (rules is None or entry.rule in rules))
        if gone:
            _write(path, [entry for entry in entries if entry not in gone])
        return gone


@contextmanager
def _only_writer(path: Path) -> Generator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ConfigError(f"{path}: the allow-list cannot be written ({type(error).__name__})") from None
    with os.fdopen(lock, "rb"):
        fcntl.flock(lock, fcntl.LOCK_EX)  # goes when the file is closed, and with the process
        yield


def _write(path: Path, entries: Iterable[Allowance]) -> None:
    value = {
        "version": _VERSION,
        "entries": [
            {name: part.isoformat() if isinstance(part, datetime) else part for name, part in asdict(entry).items()}
            for entry in sorted(entries, key=lambda entry: (entry.source, entry.rule))
        ],
    }
    temporary = path.with_name(f"{path.name}.new")  # under the lock: no other writer has it
    try:
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1)
            file.write("\n")
        temporary.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: the allow-list cannot be written ({type(error).__name__})") from None


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = path.lstat()
    except OSError:
        return ()
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
