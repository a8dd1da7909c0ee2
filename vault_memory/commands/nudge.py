"""What git's hooks start in the background: one ``sync``, however many commits come at once.

Belongs here: leaving the caller's session, coalescing, one log of the last run. Does not: the sync itself, the hooks'
text (``hooks``). Standard library only until it is known that a sync is wanted.

At most one sync runs and one waits. Whoever finds one waiting ends at once: the waiting one will read HEAD after
this moment, and so sees this commit too. While ``vault-memory up`` runs, its sensor follows HEAD by itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from vault_memory import settings as settings_module
from vault_memory.adapters import running, server
from vault_memory.errors import VaultMemoryError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from vault_memory.settings import Settings

LOG: Final = "hook.log"
_NICENESS: Final = 10
_TIMEOUT_SECONDS: Final = 3600


def main() -> None:
    """Sync in the background, unless somebody else will; says nothing and never fails the caller."""
    with contextlib.suppress(OSError):
        os.setsid()  # a closed terminal must not end the sync
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        # Git exports the repository that is being committed to; a child would take it for the vault's.
        del os.environ[name]
    with contextlib.suppress(VaultMemoryError, OSError):
        settings = settings_module.load()
        nudge(settings, lambda: sync(settings))


def nudge(settings: Settings, run: Callable[[], None]) -> bool:
    """Call ``run`` when nobody else does, or return at once if somebody waits already.

    Returns:
        Whether ``run`` was called.
    """
    if running.find(settings.home) is not None:
        return False
    folder = settings.home / "hook"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(folder / "waiting.lock", wait=False) as first:
        if not first:
            return False
        turn = contextlib.ExitStack()
        turn.enter_context(_locked(folder / "running.lock", wait=True))
    with turn:  # from here on the next commit may wait: this one has not read HEAD yet
        run()
    return True


def sync(settings: Settings) -> None:
    """Run ``vault-memory sync`` and keep what it said, which holds paths and counts but no text of a note."""
    if settings.dsn is None:
        server.ensure_running(settings.home, settings.pg_user)  # before: the server would keep the low priority
    os.nice(_NICENESS)  # the next commit goes first
    log = settings.home / "log" / LOG
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        subprocess.run(
            [sys.executable, "-P", "-m", "vault_memory.cli", "sync"],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=subprocess.STDOUT,
            check=False,
            cwd=settings.home,
            timeout=_TIMEOUT_SECONDS,
        )
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _locked(path: Path, *, wait: bool) -> Generator[bool]:
    """Hold a lock, which goes with the process; yields whether it was got."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    main()
