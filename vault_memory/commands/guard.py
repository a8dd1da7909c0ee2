"""Ends what ``vault-memory up`` started where ``up`` itself cannot: after a SIGKILL.

Belongs here: waiting for the end of one's parent, and ending process groups. Does not: anything about Dagster.
Standard library only: it runs as a small process of its own, for as long as ``up`` does.

The parent holds the writing end of a pipe. Whatever ends the parent closes it; only an orderly end says so first.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_DONE: Final = "done"
_GRACE_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.1


class Guard:
    """The parent's side."""

    def __init__(self) -> None:
        """Start the guard."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # what is sent to the terminal's group must not end it before its time
        )

    def watch(self, group: int) -> None:
        """Have a process group ended should this process die."""
        self._say(str(group))

    def dismiss(self) -> None:
        """Say that everything was ended in order, and wait for the guard's own end."""
        self._say(_DONE)
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._process.wait()

    def _say(self, line: str) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):  # somebody ended the guard: the parent can still end in order
                self._process.stdin.write(f"{line}\n".encode())
                self._process.stdin.flush()


def guard(lines: Iterable[str]) -> None:
    """Read groups until the parent's end, and end them unless it said that it had."""
    groups: list[int] = []
    for line in lines:
        if line.strip() == _DONE:
            return
        groups.append(int(line))
    for number in (signal.SIGTERM, signal.SIGKILL):
        for group in groups:
            _signal(group, number)
        deadline = time.monotonic() + _GRACE_SECONDS
        while time.monotonic() < deadline and any(_signal(group, 0) for group in groups):
            time.sleep(_POLL_SECONDS)


def _signal(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # macOS says the latter of a group of zombies
        return False
    return True


if __name__ == "__main__":
    guard(sys.stdin)
