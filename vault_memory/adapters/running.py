"""Whether ``vault-memory up`` runs for a home.

Belongs here: the lock that it holds and the note about it. Does not: starting or ending it (``commands.up``).
Standard library only: git's hooks ask on every commit.

The lock is the truth, and goes with its process however that ends; the note beside it only says who holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

_LOCK: Final = "up.lock"


@dataclass(frozen=True, slots=True)
class Running:
    """The ``up`` that runs.

    Attributes:
        pid: Its process; 0 if it has not said so yet.
        url: Of its web page.
    """

    pid: int = 0
    url: str = ""

    @property
    def name(self) -> str:
        """Who it is, for a message."""
        return f"vault-memory up (process {self.pid}, {self.url})" if self.pid else "vault-memory up"


def find(home: Path) -> Running | None:
    """Return the ``up`` that runs for a home; None if there is none."""
    try:
        descriptor = os.open(home / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(descriptor)
    finally:
        os.close(descriptor)
    return None


@contextlib.contextmanager
def claim(home: Path, url: str) -> Generator[Running | None]:
    """Be the one ``up`` of a home for a block; yields the other one if there is one, None if it is us."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(home / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield _read(descriptor)
            return
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(Running(os.getpid(), url))).encode(), 0)
        yield None
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> Running:
    try:
        return Running(**json.loads(os.pread(descriptor, 4096, 0)))
    except (ValueError, TypeError):
        return Running()  # it is just starting
