"""A plain folder of Markdown files as a source: what ``adapters.git`` is for a repository.

Belongs here: a folder's state at one moment, under a name of its own, and the content of its files by their hashes.
Does not: how files are opened (``beneath``), which notes are wanted, when to look.

Content is called by the id that git would give it, so that the same note has the same name in either kind of source,
and a file that moved is known by it. The state of the folder is called by a keyed hash of all paths and contents, in
the form of a commit: equal states have equal names, and nothing can be guessed from one.

A folder has no history. The states that this object has seen are remembered, so that the steps of a run, which ask for
the commit that it began with, agree; the content is what is there now, and is given only if it still has its hash.

Standard library only, because the query imports this module on its first use.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import time
import unicodedata
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self

from vault_memory.adapters.beneath import Changed, Found, Unreadable, markdown_files, opened_root, read_file
from vault_memory.adapters.git import IGNORE_FILE, MAX_IGNORE_FILE_BYTES
from vault_memory.adapters.stat_cache import StatCache
from vault_memory.errors import BlobError, CommitGoneError, IgnoreFileError, VaultError
from vault_memory.notes.changes import identified
from vault_memory.notes.model import EntryKind, TreeEntry
from vault_memory.notes.paths import NotePath

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from datetime import datetime

_MAX_LOOKS: Final = 6
_PAUSE_SECONDS: Final = 0.02
_REMEMBERED_STATES: Final = 8
_DEFAULT_MAX_BYTES: Final = 1024 * 1024


def blob_id(data: bytes) -> str:
    """Return the id that git gives to a file's content (SHA-1 repositories)."""
    # A name, no proof of anything: whoever writes two notes with one hash harms these two notes.
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


@dataclass(frozen=True, slots=True)
class _State:
    """What was in the folder at one moment.

    Attributes:
        entries: The Markdown files, by path.
        places: Paths by content.
        too_large: Ids that stand for content beyond the limit.
        ignore: Content of the ignore file; why it cannot be read; None if there is none.
    """

    entries: tuple[TreeEntry, ...]
    places: dict[str, tuple[bytes, ...]]
    too_large: frozenset[str]
    ignore: bytes | IgnoreFileError | None


@dataclass(slots=True)
class DirectorySource:
    """A folder of Markdown files, read-only; not for use by two threads.

    Attributes:
        path: The folder, resolved.
        max_bytes: Larger files are listed, and never read.
    """

    path: Path
    max_bytes: int = _DEFAULT_MAX_BYTES
    _secret: Callable[[], bytes | None] = field(default=lambda: None, repr=False)
    _cache_file: Path | None = field(default=None, repr=False)
    _key: bytes | None = field(default=None, init=False, repr=False)
    _cache: StatCache | None = field(default=None, init=False, repr=False)
    _paths: dict[bytes, NotePath] = field(default_factory=dict, init=False, repr=False)
    _states: OrderedDict[str, _State] = field(default_factory=OrderedDict, init=False, repr=False)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        max_bytes: int = _DEFAULT_MAX_BYTES,
        secret: Callable[[], bytes | None] = lambda: None,
        cache_file: Path | None = None,
    ) -> Self:
        """Find a folder and check that it can be listed.

        Args:
            path: The folder. What it is called may be a link; nothing in it is followed.
            max_bytes: Larger files are listed, and never read.
            secret: Gives the key of the state's name and of the cache; asked until there is one.
            cache_file: Where it is kept what files held; nothing is kept without a key.

        Raises:
            VaultError: There is no such folder, or it cannot be read.
        """
        try:
            folder = path.expanduser().resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            raise VaultError(f"the folder {_shown(path)} does not exist; nothing was changed") from None
        with opened_root(folder) as root:
            try:
                os.scandir(root).close()
            except OSError as error:
                raise VaultError(
                    f"the folder {_shown(path)} cannot be read ({type(error).__name__}); nothing was changed"
                ) from None
        return cls(folder, max_bytes, secret, cache_file)

    @property
    def kind(self) -> Literal["directory"]:
        """Which kind of source it is."""
        return "directory"

    @property
    def head_name(self) -> str:
        """What a person calls the newest state."""
        return "the folder"

    @property
    def empty_head(self) -> str:
        """What is so where ``head`` is None."""
        return "the folder holds no Markdown file (is its drive there?)"

    @property
    def top(self) -> Path:
        """The folder that nothing of ours may be written to."""
        return self.path

    def head(self) -> str | None:
        """Look at the folder and return the name of its state; None if it holds no Markdown file.

        An empty folder is what a drive that is not mounted leaves behind, so it is taken for "nothing is known", as a
        branch without a commit is: nothing is deleted for it unasked.

        Raises:
            VaultError: The folder, or one in it, cannot be read, or does not come to rest. It is not taken for an
                empty one, since that would forget notes.
        """
        state = self._look()
        if not state.entries:
            return None
        name = self._name(state)
        self._states[name] = state
        self._states.move_to_end(name)
        while len(self._states) > _REMEMBERED_STATES:
            self._states.popitem(last=False)
        return name

    def exists(self, commit: str) -> bool:
        """Return whether the folder is in a state now, or was when this object last looked."""
        return commit in self._states or self.head() == commit

    def author_time(self, commit: str) -> datetime | None:
        """Return None: nobody commits a folder, and its files' times are each its own."""
        del commit

    def count_between(self, old: str, new: str) -> int | None:
        """Return None: a folder has no history to count in."""
        del old, new

    def tree(self, commit: str) -> tuple[TreeEntry, ...]:
        """Return every entry that is Markdown by its name.

        Raises:
            CommitGoneError: The folder was not seen in this state.
        """
        return self._state(commit).entries

    def tracked_blobs(self, commit: str, ids: Collection[str]) -> dict[str, str]:
        """Return the content ids of a few notes in a state; what is no regular file there is left out.

        Raises:
            CommitGoneError: The folder was not seen in this state.
        """
        wanted = set(ids)
        return {
            path.id: entry.blob_id
            for entry, path, lost in identified(self._state(commit).entries)
            if path.id in wanted and not lost and entry.kind is EntryKind.FILE
        }

    def blobs_now(self, ids: Collection[str]) -> dict[str, str]:
        """Return the content ids of a few notes as they are now, reading these alone.

        Of a name that is not there in its usual spellings the whole folder is asked.

        Raises:
            VaultError: The folder cannot be read.
        """
        found: dict[str, str] = {}
        missing: set[str] = set()
        with opened_root(self.path) as root:
            for note_id in ids:
                for form in ("NFC", "NFD"):
                    raw = unicodedata.normalize(form, note_id).encode("utf-8", "surrogateescape")
                    if (known := self._blob_at(root, raw)) is not None:
                        found[note_id] = known
                        break
                else:
                    missing.add(note_id)
            if any(not note_id.isascii() for note_id in missing):
                paths = {
                    path.id: one.raw
                    for one in self._listed(root)
                    if (path := NotePath.from_bytes(one.raw)).id in missing and one.kind is EntryKind.FILE
                }
                for note_id, raw in paths.items():
                    if (known := self._blob_at(root, raw)) is not None:
                        found[note_id] = known
        return found

    def _blob_at(self, root: int, raw: bytes) -> str | None:
        """Return the id of what is there; None if nothing is; an id of nothing if it cannot be told."""
        if not raw or raw.startswith(b"/") or any(part in (b"", b".", b"..") for part in raw.split(b"/")):
            return None
        for _ in range(_MAX_LOOKS):
            try:
                data, _stat = read_file(root, raw, self.max_bytes)
            except Changed:
                continue  # gone, or being replaced
            except Unreadable:
                return _stand_in(b"unreadable", raw)
            return blob_id(data) if data is not None else _stand_in(b"large", raw)
        return None

    def ignore_file(self, commit: str) -> bytes | None:
        """Return the bytes of ``.vaultmemoryignore`` at the folder's top; None if there is none.

        Raises:
            CommitGoneError: The folder was not seen in this state.
            IgnoreFileError: It is a link or too large: reading less than its author wrote would let notes in.
        """
        found = self._state(commit).ignore
        if isinstance(found, IgnoreFileError):
            raise found
        return found

    def renames(self, old: str, new: str) -> dict[bytes, bytes]:
        """Return nothing: the planner pairs equal contents by itself, and others cannot be told without a history."""
        del old, new
        return {}

    def read(self, blob_ids: Iterable[str], max_bytes: int) -> Iterator[tuple[str, bytes | BlobError | None]]:
        """Yield the content of files, by the ids of a state that was seen, in the order asked for.

        Args:
            blob_ids: Ids of contents.
            max_bytes: Larger content is yielded as None.

        What is not there any more, or cannot be read, is yielded as its error; the next look takes what is there then.

        Raises:
            VaultError: The folder itself cannot be read.
        """
        with opened_root(self.path) as root:
            for wanted in blob_ids:
                yield wanted, self._content(root, wanted, max_bytes)

    def _content(self, root: int, wanted: str, max_bytes: int) -> bytes | BlobError | None:
        for state in reversed(self._states.values()):
            if wanted in state.too_large:
                return None
            for raw in state.places.get(wanted, ()):
                try:
                    data, _stat = read_file(root, raw, self.max_bytes)
                except (Changed, Unreadable):
                    continue
                if data is not None and blob_id(data) == wanted:
                    return data if len(data) <= max_bytes else None
        return BlobError("a file was changed or cannot be read; the next look takes what is there then")

    # -- looking ----------------------------------------------------------------------------------------------------

    def _state(self, commit: str) -> _State:
        try:
            return self._states[commit]
        except KeyError:
            raise CommitGoneError(f"the folder {_shown(self.path)} is not in the state {commit} any more") from None

    def _look(self) -> _State:
        cache = self._opened_cache()
        for _ in range(_MAX_LOOKS):
            with opened_root(self.path) as root:
                try:
                    state = self._read_all(root, self._listed(root), cache)
                except Changed:
                    time.sleep(_PAUSE_SECONDS)
                    continue
            cache.finish()
            return state
        raise self._restless()

    def _listed(self, root: int) -> tuple[Found, ...]:
        """List the folder until two listings agree.

        A folder that is moved while another is read can be missed in both places; its notes would seem to be deleted.
        """
        before: list[tuple[bytes, EntryKind]] | None = None
        for _ in range(_MAX_LOOKS):
            try:
                found = markdown_files(root, IGNORE_FILE)
            except Changed:
                before = None
                time.sleep(_PAUSE_SECONDS)
                continue
            names = [(one.raw, one.kind) for one in found]
            if names == before:
                return found
            before = names
        raise self._restless()

    def _read_all(self, root: int, listed: Iterable[Found], cache: StatCache) -> _State:
        entries: list[TreeEntry] = []
        places: dict[str, list[bytes]] = {}
        too_large: set[str] = set()
        ignore: bytes | IgnoreFileError | None = None
        paths: dict[bytes, NotePath] = {}  # names are looked through for secrets, which takes longer than their files
        for one in listed:
            if one.raw == IGNORE_FILE:
                ignore = _ignore_file(root, one)
                continue
            if one.kind is EntryKind.FILE:
                content = self._id_of(root, one, cache, too_large)
                places.setdefault(content, []).append(one.raw)
            else:
                content = blob_id(one.kind.encode())  # what a link names, or a pipe would say, is not looked at
            path = paths[one.raw] = self._paths.get(one.raw) or NotePath.from_bytes(one.raw)
            entries.append(TreeEntry(path, content, one.kind))
        self._paths = paths
        return _State(
            tuple(entries), {name: tuple(raws) for name, raws in places.items()}, frozenset(too_large), ignore
        )

    def _id_of(self, root: int, one: Found, cache: StatCache, too_large: set[str]) -> str:
        if one.stat[1] > self.max_bytes:
            large = _stand_in(b"large %d %d %d %d" % one.stat, one.raw)
            too_large.add(large)
            return large
        known = cache.get(one.raw, one.stat)
        if known is not None:
            return known
        read_at = time.time_ns()
        try:
            data, stat = read_file(root, one.raw, self.max_bytes)
        except Unreadable:
            return _stand_in(b"unreadable", one.raw)  # no content has it, so the note fails and its rows stay
        if data is None:
            raise Changed
        found = blob_id(data)
        cache.put(one.raw, stat, found, read_at=read_at)
        return found

    def _opened_cache(self) -> StatCache:
        if self._key is None:
            self._key = self._secret()
            if self._key is not None or self._cache is None:
                file = self._cache_file if self._key is not None else None
                self._cache = StatCache(file, self._key or os.urandom(32))
        assert self._cache is not None  # noqa: S101 - made above
        return self._cache

    def _name(self, state: _State) -> str:
        ignore = state.ignore if isinstance(state.ignore, bytes) else repr(state.ignore).encode()
        made = hmac.new(self._key or b"no key", b"folder 1\0" + ignore + b"\0%d\0" % len(ignore), hashlib.sha256)
        for entry in state.entries:
            made.update(b"%s %s %d " % (entry.kind.encode(), entry.blob_id.encode(), len(entry.path.raw)))
            made.update(entry.path.raw)
        return made.hexdigest()[:40]

    def _restless(self) -> VaultError:
        return VaultError(
            f"the folder {_shown(self.path)} keeps changing while it is read; nothing was changed, "
            "the next look tries again"
        )


def _ignore_file(root: int, one: Found) -> bytes | IgnoreFileError:
    if one.kind is not EntryKind.FILE:
        return IgnoreFileError("not a regular file")
    try:
        data, _ = read_file(root, one.raw, MAX_IGNORE_FILE_BYTES)
    except Unreadable:
        return IgnoreFileError("it cannot be read")
    return data if data is not None else IgnoreFileError(f"larger than {MAX_IGNORE_FILE_BYTES // 1024} KiB")


def _stand_in(why: bytes, raw: bytes) -> str:
    """Return an id that no content has, for one that is not known."""
    return hashlib.sha1(b"vault-memory %s\0" % why + raw, usedforsecurity=False).hexdigest()


def _shown(path: Path) -> str:
    text = os.fspath(path)
    return text if text.isprintable() else ascii(text)
