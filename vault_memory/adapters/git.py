"""The vault as git sees it: the only module that starts git.

Belongs here: every git call, the environment and flags it runs with, and what its bytes mean. Does not: which
notes are wanted (``notes.exclusion``) or what changed for the store (``notes.changes``).

A vault's ``.git/config`` and ``.gitattributes`` are somebody else's data, and git runs commands that they name
(file-system monitors, filters, text converters, signature checkers, remote helpers). So the child sees an
environment built from nothing, flags that win over the repository's configuration, no index and no work tree,
and only commands that look at objects: ``rev-parse``, ``ls-tree``, ``diff-tree``, ``cat-file``, ``log``,
``merge-base``. Content comes from committed blobs alone. Git's standard error is never read: it can quote
content. Standard library only, because the query imports this module on its first use.
"""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self

from vault_memory.errors import BlobError, CommitGoneError, IgnoreFileError, VaultError
from vault_memory.notes.model import EntryKind, TreeEntry
from vault_memory.notes.paths import MARKDOWN_SUFFIXES, NotePath, spelling_order

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

IGNORE_FILE: Final = b".vaultmemoryignore"
MAX_IGNORE_FILE_BYTES: Final = 256 * 1024
MINIMUM_VERSION: Final = (2, 38)

_TIMEOUT_SECONDS: Final = 120.0
# Requests on their way to `cat-file` at once: 32 ids of 65 bytes fit the smallest pipe (one page of 4 KiB), so
# that writing them never waits for git, which may itself be waiting for us to read.
_REQUESTS_AT_ONCE: Final = 32
_READ_BYTES: Final = 64 * 1024
_MAX_HEADER_BYTES: Final = 256
_MAX_PATHS_ASKED: Final = 256
_MAX_RENAME_CANDIDATES: Final = 1000
_MAX_COUNTED_COMMITS: Final = 100_000
_LAST_SECOND: Final = 253_402_300_799  # of the year 9999, where datetime ends

_OBJECT_ID: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_VERSION: Final = re.compile(rb"git version (\d+)\.(\d+)")
_SUFFIXES: Final = tuple(suffix.encode() for suffix in MARKDOWN_SUFFIXES)
_KINDS: Final = {
    b"100644": EntryKind.FILE,
    b"100755": EntryKind.FILE,
    b"100664": EntryKind.FILE,  # written by git before 1.0, still found in old histories
    b"120000": EntryKind.SYMLINK,
    b"160000": EntryKind.SUBMODULE,
}

_ENVIRONMENT: Final = {
    "LC_ALL": "C.UTF-8",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    # A partial clone asks its remote for missing objects. `protocol.allow` alone does not stop that: the
    # repository may say `protocol.ext.allow = always`, which is more specific. An empty list beats both.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "",
    # `diff-tree` loads the index (and dies of a broken one) to reuse work tree files; with no index and no work
    # tree it reads objects only.
    "GIT_INDEX_FILE": "/nonexistent/index",
    "GIT_IMPLICIT_WORK_TREE": "0",
}
_HOOKS_OFF: Final = ("-c", f"core.hooksPath={os.devnull}")
_FLAGS: Final = (
    "--no-pager",
    "--literal-pathspecs",
    "--no-replace-objects",  # a blob id must mean its own bytes
    *("-c", "core.fsmonitor=false"),
    *_HOOKS_OFF,
    *("-c", f"core.attributesFile={os.devnull}"),
    *("-c", "core.precomposeUnicode=false"),  # macOS would rewrite the paths we ask for
    *("-c", "core.bigFileThreshold=8m"),  # larger blobs are streamed, not loaded
    *("-c", "protocol.allow=never"),
    *("-c", "log.showSignature=false"),
)


@dataclass(frozen=True, slots=True)
class GitVault:
    """A vault in a git repository, read-only.

    Attributes:
        path: The vault's folder, or the bare repository, resolved.
        repository: The top of the work tree, or the bare repository.
        git_dir: What ``--git-dir`` names: a folder, or the ``.git`` file of a worktree or submodule.
        prefix: The vault's folder inside the repository, with a slash at its end; empty at the top.
    """

    path: Path
    repository: Path
    git_dir: Path
    prefix: bytes

    @classmethod
    def open(cls, path: Path) -> GitVault:
        """Find the repository of a vault and check that git can read it.

        The search is our own: git would walk past a broken ``.git`` to a repository further up, and would take a
        folder of notes that looks like a bare repository for one.

        Raises:
            VaultError: There is no such folder or no readable repository, or git is missing or too old.
        """
        try:
            folder = path.resolve(strict=True)
            if not folder.is_dir():
                raise VaultError(f"the vault {_shown(path)} is not a folder")
            found = _find(folder)
        except (FileNotFoundError, NotADirectoryError):
            raise VaultError(f"the vault {_shown(path)} does not exist") from None
        except (OSError, RuntimeError, ValueError) as error:
            raise VaultError(f"the vault {_shown(path)} cannot be read ({type(error).__name__})") from None
        if found is None:
            raise VaultError(
                f"the vault {_shown(path)} is not in a git repository; run: git init, git add, git commit. "
                "To remember a folder without git: vault-memory index PATH"
            )
        _require_version(_search_path())
        vault = cls(folder, *found)
        if vault._call("rev-parse", "--git-dir") is None:
            if not os.access(vault.git_dir, os.R_OK | (os.X_OK if vault.git_dir.is_dir() else 0)):
                raise VaultError(f"the repository {_shown(vault.git_dir)} cannot be read (permissions)")
            raise VaultError(f"{_shown(vault.git_dir)} is not a git repository that this git can read")
        return vault

    @property
    def kind(self) -> Literal["git"]:
        """Which kind of source it is."""
        return "git"

    @property
    def head_name(self) -> str:
        """What a person calls the newest state."""
        return "HEAD"

    @property
    def empty_head(self) -> str:
        """What is so where ``head`` is None."""
        return "HEAD has no commit"

    @property
    def top(self) -> Path:
        """The folder that nothing of ours may be written to: the whole work tree."""
        return self.repository

    def head(self) -> str | None:
        """Return the commit that HEAD names; None on a branch that has no commit yet.

        Raises:
            VaultError: HEAD names something that cannot be read. It is not taken for an empty vault, since that
                would forget every note.
        """
        commit = self._resolve("HEAD^{commit}")
        if commit is not None:
            return commit
        broken = self._resolve("HEAD")
        if broken is not None:
            raise VaultError(f"HEAD of {_shown(self.repository)} names {broken}, which is missing or damaged")
        self._require_unborn()
        return None

    def exists(self, commit: str) -> bool:
        """Return whether a commit is (still) in the repository."""
        return _OBJECT_ID.fullmatch(commit) is not None and self._resolve(f"{commit}^{{commit}}") is not None

    def commit_time(self, commit: str) -> datetime:
        """Return when a commit was made, in UTC.

        Raises:
            CommitGoneError: The commit is not in the repository.
        """
        return self._time(commit, "%ct")

    def author_time(self, commit: str) -> datetime:
        """Return when a commit was first written, in UTC: an amend or a rebase leaves that as it was.

        Raises:
            CommitGoneError: The commit is not in the repository.
        """
        return self._time(commit, "%at")

    def _time(self, commit: str, field: str) -> datetime:
        output = self._about(commit, "log", "-1", "--no-show-signature", f"--format={field}", _object(commit), "--")
        # Somebody can write any number into a commit; a strange date is no reason to stop.
        seconds = min(max(int(output.strip() or b"0"), 0), _LAST_SECOND)
        return datetime.fromtimestamp(seconds, UTC)

    def count_between(self, old: str, new: str) -> int | None:
        """Count the commits that ``new`` has and ``old`` has not; None if they share no history, or one is gone."""
        if not (self.exists(old) and self.exists(new)) or self._call("merge-base", old, new) is None:
            return None
        limit = f"--max-count={_MAX_COUNTED_COMMITS}"
        output = self._call("log", "--no-show-signature", "--format=%H", limit, f"{old}..{new}", "--")
        return None if output is None else output.count(b"\n")

    def tree(self, commit: str) -> tuple[TreeEntry, ...]:
        """Return every entry of a commit's vault folder that is Markdown by its name, in git's order.

        Raises:
            CommitGoneError: The commit is not in the repository.
            VaultError: A part of its tree is missing or damaged.
        """
        entries: list[TreeEntry] = []
        for mode, blob_id, raw in self._list(commit, recursive=True):
            if raw.isascii() and not raw.lower().endswith(_SUFFIXES):
                continue
            path = NotePath.from_bytes(raw)
            if path.is_markdown and mode in _KINDS:
                entries.append(TreeEntry(path, blob_id, _KINDS[mode]))
        return tuple(entries)

    def tracked_blobs(self, commit: str, ids: Collection[str]) -> dict[str, str]:
        """Return the blob ids of a few notes in a commit; what is no regular file there is left out.

        Costs one git process where the names are as usual; a second, over the whole tree, where one is not found
        under its NFC or NFD spelling.

        Args:
            commit: Full object id.
            ids: Identities of notes (``NotePath.id``).

        Raises:
            CommitGoneError: The commit is not in the repository.
        """
        wanted = {note_id for note_id in ids if _may_be_tracked(note_id)}
        found: dict[str, tuple[NotePath, str]] = {}
        if len(wanted) <= _MAX_PATHS_ASKED:
            spellings = {_encoded(unicodedata.normalize(form, item)) for form in ("NFC", "NFD") for item in wanted}
            if spellings:
                _choose(self._list(commit, sorted(spellings)), wanted, found)
        if wanted - found.keys():
            _choose(self._list(commit, recursive=True), wanted, found)
        return {note_id: blob_id for note_id, (_, blob_id) in found.items()}

    def ignore_file(self, commit: str) -> bytes | None:
        """Return the bytes of ``.vaultmemoryignore`` at the vault's root, as committed; None if there is none.

        Raises:
            CommitGoneError: The commit is not in the repository.
            IgnoreFileError: It is a link, a folder or too large: reading less than its author wrote would let notes in.
        """
        for mode, blob_id, raw in self._list(commit, (IGNORE_FILE,)):
            if raw != IGNORE_FILE:
                continue
            if _KINDS.get(mode) is not EntryKind.FILE:
                raise IgnoreFileError("not a regular file")
            for _, data in self.read((blob_id,), MAX_IGNORE_FILE_BYTES):
                if isinstance(data, BlobError):
                    raise IgnoreFileError("missing or damaged in the repository")
                if data is None:
                    raise IgnoreFileError(f"larger than {MAX_IGNORE_FILE_BYTES // 1024} KiB")
                return data
        return None

    def renames(self, old: str, new: str) -> dict[bytes, bytes]:
        """Return git's opinion on which files moved between two commits, as vault paths: new name to old name.

        Raises:
            CommitGoneError: One of the commits is not in the repository.
        """
        options = ("-r", "-z", "-M", f"-l{_MAX_RENAME_CANDIDATES}", "--diff-filter=R", "--no-ext-diff", "--no-textconv")
        plain = ("--raw", "--no-relative", f"-O{os.devnull}", "--end-of-options")
        output = self._call("diff-tree", *options, *plain, _object(old), _object(new), "--", *self._folder())
        if output is None:
            raise self._failure(old, new)
        fields = iter(output.split(b"\0"))
        moved: dict[bytes, bytes] = {}
        for _status in fields:
            before, after = next(fields, b""), next(fields, b"")
            if before.startswith(self.prefix) and after.startswith(self.prefix) and before:
                moved[after.removeprefix(self.prefix)] = before.removeprefix(self.prefix)
        return moved

    def read(self, blob_ids: Iterable[str], max_bytes: int) -> Iterator[tuple[str, bytes | BlobError | None]]:
        """Yield the bytes of blobs in the order asked for, through one git process.

        Args:
            blob_ids: Full object ids; taken as they are needed.
            max_bytes: A larger blob is yielded as None; its bytes are passed over, never held.

        An object that is missing, damaged or no blob is yielded as its error: one bad file must not hide the others.

        Raises:
            VaultError: Git cannot be started or stopped answering.
        """
        remaining = iter(blob_ids)
        window = list(islice(remaining, _REQUESTS_AT_ONCE))
        while window:
            with _Batch(self._arguments("cat-file", "--batch")) as batch:
                while window:
                    batch.request(window)
                    for done, blob_id in enumerate(window, 1):
                        answer = batch.answer(blob_id, max_bytes)
                        yield blob_id, answer
                        if batch.has_ended:  # git gives up at a damaged object: a new process takes what is left
                            window = window[done:]
                            break
                    else:
                        window = []
                    window += islice(remaining, _REQUESTS_AT_ONCE - len(window))
                    if batch.has_ended:
                        break

    def hooks_directory(self, home: Path) -> Path:
        """Return the folder from which the user's own git runs this repository's hooks.

        The one question that the user's configuration and the repository's ``core.hooksPath`` may answer: a hook
        anywhere else would never run. Nothing is executed; what the folder is, and whether it may be written to, is
        for the caller to judge.

        Args:
            home: The user's home directory, where git looks for the user's configuration.

        Raises:
            VaultError: Git cannot say.
        """
        position = _FLAGS.index(_HOOKS_OFF[1])
        flags = (*_FLAGS[: position - 1], *_FLAGS[position + 1 :])
        safe = ("-c", f"safe.directory={self.repository}")
        own = {name: value for name, value in _ENVIRONMENT.items() if not name.startswith("GIT_CONFIG_")}
        question = ("rev-parse", "--git-path", "hooks")
        output = _run(["git", *flags, *safe, f"--git-dir={self.git_dir}", *question], {**own, "HOME": os.fspath(home)})
        name = (output or b"").removesuffix(b"\n")
        if not name:
            raise VaultError(f"git cannot say where the hooks of {_shown(self.repository)} are")
        return Path(os.path.normpath(self.repository / os.fsdecode(name)))

    def common_directory(self) -> Path:
        """Return the folder with git's own files, which the worktrees of a repository share.

        Raises:
            VaultError: Git cannot say.
        """
        output = self._call("rev-parse", "--path-format=absolute", "--git-common-dir")
        name = (output or b"").removesuffix(b"\n")
        if not name:
            raise VaultError(f"git cannot say where the repository of {_shown(self.repository)} is")
        return Path(os.fsdecode(name)).resolve()

    def _arguments(self, *command: str | bytes) -> list[str | bytes]:
        safe = ("-c", f"safe.directory={self.repository}")
        return ["git", *_FLAGS, *safe, f"--git-dir={self.git_dir}", *command]

    def _call(self, *command: str | bytes) -> bytes | None:
        """Run one command; its output, or None if git refused."""
        return _run(self._arguments(*command))

    def _about(self, commit: str, *command: str | bytes) -> bytes:
        output = self._call(*command)
        if output is None:
            raise self._failure(commit)
        return output

    def _failure(self, *commits: str) -> VaultError:
        for commit in commits:
            if not self.exists(commit):
                return CommitGoneError(f"commit {commit} is not in {_shown(self.repository)} any more")
        return VaultError(
            f"git cannot read commit {commits[-1]} of {_shown(self.repository)}: objects are missing or damaged "
            "(a partial clone needs: git fetch --refetch --no-filter); check with: git fsck"
        )

    def _resolve(self, name: str) -> str | None:
        output = self._call("rev-parse", "--verify", "--quiet", "--end-of-options", name)
        text = (output or b"").decode("ascii", "replace").strip()
        # Git before 2.43 or so echoes the option itself.
        text = text.removeprefix("--end-of-options").strip()
        return text if _OBJECT_ID.fullmatch(text) else None

    def _folder(self) -> tuple[bytes, ...]:
        return (self.prefix,) if self.prefix else ()

    def _list(
        self, commit: str, names: Iterable[bytes] = (), *, recursive: bool = False
    ) -> Iterator[tuple[bytes, str, bytes]]:
        """Yield mode, object id and vault path of the entries under some names, or under the vault's folder."""
        paths = [self.prefix + name for name in names] or self._folder()
        depth = ("-r",) if recursive else ()
        output = self._about(commit, "ls-tree", *depth, "-z", "--full-tree", _object(commit), "--", *paths)
        for record in output.split(b"\0"):
            about, _, name = record.partition(b"\t")
            if name.startswith(self.prefix) and name:
                mode, _, blob_id = about.split(b" ")
                yield mode, blob_id.decode("ascii"), name.removeprefix(self.prefix)

    def _require_unborn(self) -> None:
        """Refuse a HEAD that names an existing but unreadable branch, as a power cut leaves behind."""
        output = self._call("rev-parse", "--path-format=absolute", "--git-path", "HEAD")
        problem = VaultError(f"HEAD of {_shown(self.repository)} cannot be read")
        if output is None:
            raise problem
        try:
            text = Path(os.fsdecode(output.removesuffix(b"\n"))).read_bytes()
        except OSError:
            raise problem from None
        name = text.removeprefix(b"ref:").strip()
        if not text.startswith(b"ref:") or not name.startswith(b"refs/") or b"\0" in name:
            raise problem
        output = self._call("rev-parse", "--path-format=absolute", "--git-path", name)
        if output is None or os.path.isfile(output.removesuffix(b"\n")):  # noqa: PTH113 - the name is bytes
            raise VaultError(f"HEAD of {_shown(self.repository)} names a branch whose file is damaged; run: git fsck")


class _Batch:
    """One ``git cat-file --batch`` process: ask for a few objects, then take every answer."""

    def __init__(self, arguments: list[str | bytes]) -> None:
        self._arguments = arguments
        self._buffer = bytearray()
        self.has_ended = False

    def __enter__(self) -> Self:
        self._process = _start(self._arguments)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._output, selectors.EVENT_READ)
        return self

    def __exit__(self, *_exception: object) -> None:
        # Also the way out of a caller that stops early: git would wait for us to read, so it is not asked to end.
        self._selector.close()
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    @property
    def _output(self) -> int:
        assert self._process.stdout is not None  # noqa: S101 - it was started with a pipe
        return self._process.stdout.fileno()

    def request(self, blob_ids: Iterable[str]) -> None:
        """Ask for objects; at most ``_REQUESTS_AT_ONCE`` before their answers are taken."""
        lines = "".join(f"{_object(blob_id)}\n" for blob_id in blob_ids).encode("ascii")
        assert self._process.stdin is not None  # noqa: S101 - it was started with a pipe
        try:
            self._process.stdin.write(lines)
        except OSError:
            raise VaultError("git stopped while blobs were read") from None

    def answer(self, blob_id: str, max_bytes: int) -> bytes | BlobError | None:
        """Take the next answer: the bytes of a blob, its error, or None if there are more than ``max_bytes``."""
        try:
            return self._answer(blob_id, max_bytes)
        except BlobError as error:
            return error

    def _answer(self, blob_id: str, max_bytes: int) -> bytes | None:
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > _MAX_HEADER_BYTES:
                raise VaultError("git's answer for a blob makes no sense")
            self._fill()
        words = bytes(self._buffer[:end]).split(b" ")
        del self._buffer[: end + 1]
        if words[-1] == b"missing":
            raise BlobError("its content is not in the repository (a partial clone?); run: git fsck")
        if len(words) != 3 or words[0] != blob_id.encode():  # noqa: PLR2004 - id, type, size
            raise VaultError("git's answer for a blob makes no sense")
        size = int(words[2])
        if words[1] != b"blob":
            self._pass_over(size + 1)
            raise BlobError("its content is not a blob; run: git fsck")
        if size > max_bytes:
            self._pass_over(size + 1)
            return None
        while len(self._buffer) < size + 1:  # a line feed follows the content
            self._fill()
        data = bytes(self._buffer[:size])
        del self._buffer[: size + 1]
        return data

    def _pass_over(self, count: int) -> None:
        while count > len(self._buffer):
            count -= len(self._buffer)
            self._buffer.clear()
            self._fill()
        del self._buffer[:count]

    def _fill(self) -> None:
        if not self._selector.select(_TIMEOUT_SECONDS):
            raise VaultError(f"git did not answer for {_TIMEOUT_SECONDS:.0f} s while blobs were read")
        data = os.read(self._output, _READ_BYTES)
        if not data:
            self.has_ended = True
            raise BlobError("git cannot read its content: damaged, or left out by a partial clone; run: git fsck")
        self._buffer += data


def _find(folder: Path) -> tuple[Path, Path, bytes] | None:
    """Return the top of the work tree, its git directory and the folder's prefix in it; None if there is none."""
    bare = (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir()
    for top in (folder, *folder.parents):
        if not (top / ".git").exists():
            continue
        if bare and top != folder:
            # Notes can be named so that their folder looks like a repository with a configuration of its own.
            raise VaultError(f"the vault {_shown(folder)} is a bare repository inside {_shown(top)}: name one of them")
        inside = folder.relative_to(top)
        if any(part.lower() == ".git" for part in inside.parts):
            raise VaultError(f"the vault {_shown(folder)} is a part of git's own folder; name the work tree")
        prefix = os.fsencode(inside.as_posix()) + b"/" if inside.parts else b""
        return top, top / ".git", prefix
    return (folder, folder, b"") if bare else None


def _choose(
    entries: Iterable[tuple[bytes, str, bytes]], wanted: Collection[str], found: dict[str, tuple[NotePath, str]]
) -> None:
    """Keep, for each identity that is wanted, the entry the planner would take; drop it if that is no file."""
    best: dict[str, tuple[NotePath, str, bytes]] = {}
    for mode, blob_id, raw in entries:
        path = NotePath.from_bytes(raw)
        # A folder takes no part: it is listed where a path asked for is one, and the planner never sees it.
        if path.id not in wanted or mode not in _KINDS:
            continue
        if path.id not in best or spelling_order(path) < spelling_order(best[path.id][0]):
            best[path.id] = (path, blob_id, mode)
    for note_id, (path, blob_id, mode) in best.items():
        if _KINDS[mode] is EntryKind.FILE:
            found[note_id] = (path, blob_id)


def _may_be_tracked(note_id: str) -> bool:
    """Git tracks no path with an empty part, a dot part or a NUL; asked for one, it refuses the whole question."""
    return "\0" not in note_id and all(part not in {"", ".", ".."} for part in note_id.split("/"))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _object(object_id: str) -> str:
    """Return a full object id as it is; anything else could be an option or a revision expression."""
    if not _OBJECT_ID.fullmatch(object_id):
        raise VaultError("a commit or blob is named by its full hexadecimal id")
    return object_id


def _shown(path: Path) -> str:
    text = os.fspath(path)
    return text if text.isprintable() else ascii(text)


def _search_path() -> str:
    # A relative entry would be looked up beside the vault's files.
    return os.pathsep.join(entry for entry in os.get_exec_path() if os.path.isabs(entry))  # noqa: PTH117 - text


def git_version() -> str:
    """Return the version of the git on PATH.

    Raises:
        VaultError: There is none, or it does not say.
    """
    match = _VERSION.match(_run(["git", "--version"]) or b"")
    if match is None:
        raise VaultError("the git on PATH does not say its version")
    return f"{int(match[1])}.{int(match[2])}"


@lru_cache(maxsize=8)
def _require_version(search_path: str) -> None:
    del search_path  # the key: another PATH is another git
    match = _VERSION.match(_run(["git", "--version"]) or b"")
    if match is None or (int(match[1]), int(match[2])) < MINIMUM_VERSION:
        version = f"{int(match[1])}.{int(match[2])}" if match else "of unknown version"
        raise VaultError(f"git {'.'.join(map(str, MINIMUM_VERSION))} or newer is needed; this one is {version}")


def _run(arguments: list[str | bytes], environment: Mapping[str, str] = _ENVIRONMENT) -> bytes | None:
    """Run git to its end; its output, or None where it refused."""
    try:
        done = subprocess.run(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**environment, "PATH": _search_path()},
            cwd="/",
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise VaultError(f"git did not answer for {_TIMEOUT_SECONDS:.0f} s") from None
    except OSError as error:
        raise _not_started(error) from None
    if done.returncode < 0:
        raise VaultError(f"git was ended by signal {-done.returncode}")
    return done.stdout if done.returncode == 0 else None


def _start(arguments: list[str | bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**_ENVIRONMENT, "PATH": _search_path()},
            cwd="/",
            bufsize=0,
        )
    except OSError as error:
        raise _not_started(error) from None


def _not_started(error: OSError) -> VaultError:
    if isinstance(error, FileNotFoundError):
        return VaultError("git is not installed, or not on PATH")
    return VaultError(f"git cannot be started ({type(error).__name__})")
