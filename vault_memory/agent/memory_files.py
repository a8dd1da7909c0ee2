"""Layer B: the memory files that Claude Code keeps, read when they are asked for.

Belongs here: where the files lie, which of them may be read, and their imports. Does not: how they are shown
(``block``). They are never indexed: they change under the agent's hands, and are read whole each time.

Claude Code keeps ``MEMORY.md`` of a project under ``projects/<path with every other sign as a dash>/memory`` in its
configuration folder, one for all work trees of a repository, and itself reads its first 200 lines or 25 kB.
``@path`` in such a file imports another one, not inside code, at most five deep.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vault_memory.notes import secrets
from vault_memory.query.cleaning import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAX_LINES: Final = 200
MAX_BYTES: Final = 25_000
MAX_FILES: Final = 12
MAX_IMPORT_DEPTH: Final = 5
_SUFFIXES: Final = frozenset({".md", ".markdown", ".txt"})
_FENCE = re.compile(r"^[ \t]{0,3}(`{3,}|~{3,})")
_CODE_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
_IMPORT = re.compile(r"(?:^|(?<=\s))@((?:~/|\.{0,2}/)?[^\s@`<>()\[\]]+)")
_NOT_PLAIN = re.compile(r"[^a-zA-Z0-9]")


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A memory file as it was read.

    Attributes:
        name: How it is shown: relative to the project or to the user's home.
        scope: ``project`` or ``user``.
        text: Its first lines.
    """

    name: str
    scope: str
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class MemoryFiles:
    """Layer B.

    Attributes:
        files: In the order in which they matter.
        withheld: Names of files that the secret scan matched.
        refused: How many imports led out of the bounds, or to what is no readable text.
    """

    files: tuple[MemoryFile, ...]
    withheld: tuple[str, ...] = ()
    refused: int = 0


def read(
    directory: Path, environ: Mapping[str, str], *, vaults: Sequence[Path] = (), claude_md: bool = False
) -> MemoryFiles:
    """Read the memory files that belong to a session.

    Args:
        directory: Where the session works.
        environ: For ``HOME`` and ``CLAUDE_CONFIG_DIR``.
        vaults: Files in there are notes, which the search finds: they are left out here.
        claude_md: Also ``CLAUDE.md`` files.
    """
    home = Path(environ.get("HOME") or "~").expanduser()
    config = Path(environ.get("CLAUDE_CONFIG_DIR") or home / ".claude").expanduser()
    project = project_root(directory)
    reader = _Reader(project.resolve(), config.resolve(), home, tuple(vault.resolve() for vault in vaults))
    for path, scope in _roots(directory, project, config, claude_md=claude_md):
        reader.take(path, scope, depth=0)
    return MemoryFiles(tuple(reader.files), tuple(reader.withheld), reader.refused)


def project_root(directory: Path) -> Path:
    """Return the main work tree of the repository that a folder lies in, as Claude Code does; else the folder."""
    directory = directory.absolute()
    for folder in (directory, *directory.parents):
        marker = folder / ".git"
        if marker.is_dir():
            return folder
        if marker.is_file():
            return _main_tree(marker) or folder
    return directory


def _main_tree(marker: Path) -> Path | None:
    """Follow ``gitdir: <main>/.git/worktrees/<name>`` of a further work tree."""
    line = _read_text(marker) or ""
    target = Path(line.partition("gitdir:")[2].strip() or ".")
    is_further = target.parent.name == "worktrees" and target.parent.parent.name == ".git"
    return target.parent.parent.parent if is_further and target.is_absolute() else None


def encoded(project: Path) -> str:
    """Return the name of a project's folder in Claude Code's configuration."""
    return _NOT_PLAIN.sub("-", str(project))


def _roots(directory: Path, project: Path, config: Path, *, claude_md: bool) -> Iterator[tuple[Path, str]]:
    yield config / "projects" / encoded(project) / "memory" / "MEMORY.md", "project"
    yield project / "MEMORY.md", "project"
    if claude_md:
        between = [folder for folder in (directory.absolute(), *directory.absolute().parents) if _in(folder, project)]
        for folder in reversed(between or [project]):
            yield folder / "CLAUDE.md", "project"
            yield folder / ".claude" / "CLAUDE.md", "project"
            yield folder / "CLAUDE.local.md", "project"
    yield config / "MEMORY.md", "user"
    if claude_md:
        yield config / "CLAUDE.md", "user"


@dataclass(slots=True)
class _Reader:
    project: Path
    config: Path
    home: Path
    vaults: tuple[Path, ...]
    files: list[MemoryFile] = field(default_factory=list[MemoryFile])
    withheld: list[str] = field(default_factory=list[str])
    refused: int = 0
    seen: set[Path] = field(default_factory=set[Path])

    def take(self, path: Path, scope: str, *, depth: int) -> None:
        """Read a file and what it imports; a file that is not there is no event."""
        try:
            real = path.resolve()
        except (OSError, RuntimeError, ValueError):
            self.refused += 1
            return
        if real in self.seen:
            return
        if len(self.seen) >= MAX_FILES or not self._may_read(real):
            self.refused += real.exists()
            return
        text = _read_text(real)
        if text is None:
            self.refused += depth > 0
            return
        self.seen.add(real)
        if any(_in(real, vault) for vault in self.vaults):
            return
        name = self._name(real)
        # The file as a whole: what the cut would leave of a secret is no longer recognised as one.
        if secrets.scan(text) or secrets.scan(clean(text).text):
            self.withheld.append(name)
            return
        shown = "\n".join(text.splitlines()[:MAX_LINES]).strip()
        if shown:
            self.files.append(MemoryFile(name, scope, shown))
        if depth < MAX_IMPORT_DEPTH:
            for target in imports(shown):
                self.take(self._target(real, target), scope, depth=depth + 1)

    def _may_read(self, real: Path) -> bool:
        return real.suffix.lower() in _SUFFIXES and (_in(real, self.project) or _in(real, self.config))

    def _target(self, importer: Path, target: str) -> Path:
        return self.home / target[2:] if target.startswith("~/") else importer.parent / target

    def _name(self, real: Path) -> str:
        for base, prefix in ((self.config, "~/.claude/"), (self.project, "")):
            if _in(real, base):
                return prefix + real.relative_to(base).as_posix()
        return real.name


def imports(text: str) -> tuple[str, ...]:
    """Return the ``@path`` imports of a text, outside of code."""
    found: list[str] = []
    fence = ""
    for line in text.splitlines():
        match = _FENCE.match(line)
        if match and (not fence or match[1].startswith(fence)):
            fence = "" if fence else match[1]
        elif not fence:
            found += [name.rstrip(".,;:!?") for name in _IMPORT.findall(_CODE_SPAN.sub("", line))]
    return tuple(dict.fromkeys(name for name in found if name))


def _in(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents


def _read_text(path: Path) -> str | None:
    """Read the start of a regular file; a pipe or device is never waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        # Whole lines: half of a secret at the cut would pass the scan.
        data = os.read(descriptor, MAX_BYTES + 1)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if len(data) > MAX_BYTES:
        data = data[:MAX_BYTES].rpartition(b"\n")[0]
    return data.decode("utf-8", "replace").replace("\0", " ")
