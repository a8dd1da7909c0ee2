"""A full disk, and a file system that went read-only: the old answers stay, the message is a line, and then all is made good.

Each test mounts a small file system of its own in memory, which needs root; without it they are skipped.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vault_memory.adapters import server
from vault_memory.query.search import search
from vault_memory_tests.e2e.test_commands import command
from vault_memory_tests.fixtures.installation import Installation
from vault_memory_tests.fixtures.vault import VaultRepo

NOTE = "# {name}\n\nWords about {words} in {name}.\n"


@pytest.fixture
def disk() -> Iterator[Path]:
    """A file system of 200 MB, which the database's user may enter."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="vm-disk-"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200m,mode=0711", "none", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        folder.rmdir()
        pytest.skip("wants the right to mount a file system")
    try:
        yield folder
    finally:
        remount(folder, "rw")
        server.remove(folder / "home")
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


def remount(folder: Path, how: str) -> None:
    """Make a file system read-only (``ro``) or not (``rw``)."""
    subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)


@pytest.fixture
def small(disk: Path, make_installation: Callable[..., Installation]) -> Installation:
    """An installation whose embedded database is on the small disk, with one commit in memory."""
    installation = make_installation(VAULT_MEMORY_HOME=str(disk / "home"))
    for name in ("VAULT_MEMORY_DSN", "VAULT_MEMORY_DAGSTER_DSN"):
        del installation.environment[name]
    write(installation.vault, "caches")
    done = command(installation.environment, "sync")
    assert 0 == done.returncode, done.stderr
    return installation


def write(vault: VaultRepo, words: str, *, filling: int = 0) -> str:
    """Commit two notes about something, the first with so many lines besides."""
    for name in ("a", "b"):
        lines = "".join(f"\n\nline {number} {os.urandom(300).hex()}" for number in range(filling if name == "a" else 0))
        vault.write(f"01_Projects/{name}.md", NOTE.format(name=name, words=words) + lines)
    return vault.commit()


def found(installation: Installation, words: str) -> set[str]:
    """Ask by the command; returns the notes."""
    from vault_memory import settings as settings_module  # noqa: PLC0415 - with the environment as it is now

    settings = settings_module.load(installation.environment)
    return {hit.source for hit in search(words, settings=settings, mode="keyword").items}


def one_line(done: subprocess.CompletedProcess[str]) -> None:
    """Assert that a command could not run and said why in its own words."""
    assert 3 == done.returncode, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("vault-memory: ")


def test_a_full_disk(small: Installation, disk: Path) -> None:
    """The sync ends with a line, the old version goes on answering, and with room again the next one does it all."""
    write(small.vault, "queues", filling=800)  # more than the pages that are free inside the tables
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass
    assert 0 == shutil.disk_usage(disk).free // 4096

    done = command(small.environment, "sync")

    one_line(done)
    assert {"01_Projects/a.md", "01_Projects/b.md"} == found(small, "caches")
    assert 0 == command(small.environment, "status").returncode
    filler.unlink()
    healed = command(small.environment, "sync")
    assert 0 == healed.returncode, healed.stderr
    assert {"01_Projects/a.md", "01_Projects/b.md"} == found(small, "queues")
    assert set() == found(small, "caches")


@pytest.mark.slow
def test_a_read_only_file_system(small: Installation, disk: Path) -> None:
    """With the data read-only nothing can run, which is a line; mounted for writing again, nothing is left to mend."""
    server.stop(disk / "home")  # PostgreSQL's open files would keep the file system from becoming read-only
    write(small.vault, "queues")
    remount(disk, "ro")

    done = command(small.environment, "sync")
    asked = command(small.environment, "query", "caches")

    one_line(done)
    assert 3 == asked.returncode
    assert "Traceback" not in asked.stderr
    remount(disk, "rw")
    healed = command(small.environment, "sync")
    assert 0 == healed.returncode, healed.stderr
    assert {"01_Projects/a.md", "01_Projects/b.md"} == found(small, "queues")


def test_a_vault_on_a_read_only_file_system(disk: Path, make_installation: Callable[..., Installation]) -> None:
    """The vault is never written, so that it may be read-only for good."""
    vault = VaultRepo.create(disk / "vault")
    installation = make_installation(vault)
    write(vault, "caches")
    remount(disk, "ro")

    done = command(installation.environment, "sync")

    assert 0 == done.returncode, done.stderr
    assert {"01_Projects/a.md", "01_Projects/b.md"} == found(installation, "caches")
