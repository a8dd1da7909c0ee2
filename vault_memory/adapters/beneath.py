"""Looking into a folder that somebody else may be changing, without ever leaving it.

Belongs here: opening folders and files beneath a root, what is a regular file there and what is not, and the listing of
the Markdown files. Does not: what their content is called (``directory``) or which of them are wanted.

Every name is opened relative to the descriptor of the folder that it was found in, and no link is followed, whatever is
swapped meanwhile: the check of a file is made on what was opened, not on what was listed. A path that is checked first
and opened then leaked 33 times in three seconds of swapping; this way it cannot.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from vault_memory.errors import VaultError
from vault_memory.notes.model import EntryKind
from vault_memory.notes.paths import MARKDOWN_SUFFIXES, NotePath, one_line

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

MAX_DEPTH: Final = 100
_SUFFIXES: Final = tuple(suffix.encode() for suffix in MARKDOWN_SUFFIXES)
# What file systems keep at their top for themselves; nobody may read the first.
_NO_FOLDERS_OF_NOTES: Final = frozenset({b"lost+found", b"$RECYCLE.BIN", b"System Volume Information"})
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without blocking, or a FIFO put in a file's place would hold us until somebody writes to it.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_READ_BYTES: Final = 256 * 1024
_SWAPPED: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE, errno.ENXIO})


class Changed(Exception):
    """What was listed is not there any more, or is something else now."""


@dataclass(frozen=True, slots=True)
class Found:
    """A Markdown file, by its name, in a folder.

    Attributes:
        raw: Its path beneath the root, as bytes.
        kind: What it is; only files are ever opened.
        stat: Inode, size, time of change of its content and of the file itself, in nanoseconds; zeros if it is no file.
    """

    raw: bytes
    kind: EntryKind
    stat: tuple[int, int, int, int]


class Unreadable(Exception):
    """The system refuses the content of one file."""


@contextmanager
def opened_root(path: Path) -> Generator[int]:
    """Hold the root open.

    Raises:
        VaultError: It is missing, no folder, or cannot be read.
    """
    try:
        descriptor = os.open(path, _FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        raise VaultError(f"the folder {_shown(path)} does not exist; nothing was changed") from None
    except OSError as error:
        raise VaultError(
            f"the folder {_shown(path)} cannot be read ({type(error).__name__}); nothing was changed"
        ) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def markdown_files(root: int, extra: bytes) -> tuple[Found, ...]:
    """List what is Markdown by its name beneath a root, and one more file at its top.

    Hidden names are left out. A link to a folder is not followed, and not listed: it has no Markdown name.

    Args:
        root: Descriptor of the root.
        extra: Name of the other file.

    Raises:
        Changed: A folder went away meanwhile.
        VaultError: A folder cannot be read, or lies on another file system: a listing without it would look as if its
            notes had been deleted.
    """
    found = list(_listed(root, b"", os.fstat(root).st_dev, extra, 0))
    found.sort(key=lambda one: one.raw)
    return tuple(found)


def _listed(folder: int, prefix: bytes, device: int, extra: bytes, depth: int) -> Iterator[Found]:
    if depth > MAX_DEPTH:
        raise VaultError(f"{_named(prefix)}: folders nested deeper than {MAX_DEPTH} are not read; nothing was changed")
    folders: list[bytes] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = os.fsencode(entry.name)
                if not prefix and name == extra:
                    yield _found(entry, name)
                elif name.startswith(b".") or name in _NO_FOLDERS_OF_NOTES:
                    continue
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                elif _is_markdown(name):
                    yield _found(entry, prefix + name)
    except OSError as error:
        raise _about(error, prefix) from None
    for name in sorted(folders):
        below = prefix + name + b"/"
        with _opened_folder(folder, name, below) as descriptor:
            if os.fstat(descriptor).st_dev != device:
                # Were it passed over, or gone in a moment when it is not mounted, its notes would seem to be deleted.
                raise VaultError(
                    f"{_named(below)} is another file system, mounted inside the folder; nothing was changed: "
                    "index it as a folder of its own, and mount it elsewhere"
                )
            yield from _listed(descriptor, below, device, extra, depth + 1)


@contextmanager
def _opened_folder(parent: int, name: bytes, path: bytes) -> Generator[int]:
    try:
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
    except OSError as error:
        raise _about(error, path) from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_markdown(name: bytes) -> bool:
    return name.lower().endswith(_SUFFIXES) or (not name.isascii() and NotePath.from_bytes(name).is_markdown)


def _found(entry: os.DirEntry[str], raw: bytes) -> Found:
    about = entry.stat(follow_symlinks=False)
    if stat.S_ISLNK(about.st_mode):
        return Found(raw, EntryKind.SYMLINK, (0, 0, 0, 0))
    if not stat.S_ISREG(about.st_mode):
        return Found(raw, EntryKind.SPECIAL, (0, 0, 0, 0))
    if about.st_nlink > 1:
        return Found(raw, EntryKind.HARD_LINK, (0, 0, 0, 0))
    return Found(raw, EntryKind.FILE, stat_of(about))


def stat_of(about: os.stat_result) -> tuple[int, int, int, int]:
    """Return what tells two states of a file apart."""
    return about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def read_file(root: int, raw: bytes, max_bytes: int) -> tuple[bytes | None, tuple[int, int, int, int]]:
    """Read a regular file beneath a root.

    Args:
        root: Descriptor of the root.
        raw: Path beneath it.
        max_bytes: A larger file is not read.

    Returns:
        Its bytes, None if they are more than ``max_bytes``; and its state, as of before the first byte was read.

    Raises:
        Changed: It is not there any more, or is no regular file with one name, or was written to meanwhile.
        Unreadable: The system refuses.
    """
    *folders, name = raw.split(b"/")
    opened: list[int] = []
    try:
        at = root
        device = os.fstat(root).st_dev
        for folder in folders:
            at = os.open(folder, _FOLDER, dir_fd=at)
            opened.append(at)
        descriptor = os.open(name, _FILE, dir_fd=at)
        opened.append(descriptor)
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode) or before.st_nlink != 1 or before.st_dev != device:
            raise Changed
        if before.st_size > max_bytes:
            return None, stat_of(before)
        data = _read(descriptor, max_bytes)
        if stat_of(os.fstat(descriptor)) != stat_of(before):
            raise Changed
    except OSError as error:
        if error.errno in _SWAPPED:
            raise Changed from None
        raise Unreadable(type(error).__name__) from None
    finally:
        for descriptor in reversed(opened):
            os.close(descriptor)
    return data, stat_of(before)


def _read(descriptor: int, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while size <= max_bytes and (part := os.read(descriptor, min(_READ_BYTES, max_bytes + 1 - size))):
        parts.append(part)
        size += len(part)
    if size > max_bytes:
        raise Changed  # it grew while it was read
    return b"".join(parts)


def _about(error: OSError, raw: bytes) -> Exception:
    if error.errno in _SWAPPED:
        return Changed()
    return VaultError(f"{_named(raw)} cannot be read ({type(error).__name__}); nothing was changed")


def _named(raw: bytes) -> str:
    name = one_line(NotePath.from_bytes(raw.rstrip(b"/")).id)
    return f"the folder {name!a}" if name else "the folder"


def _shown(path: Path) -> str:
    text = os.fspath(path)
    return text if text.isprintable() else ascii(text)
