"""A worker for tests: the real one, whose scan obeys words in the note."""

import os
import re
import signal
import time
from typing import BinaryIO, NoReturn

from vault_memory.ingest import screening_worker
from vault_memory.notes import scanner
from vault_memory.notes.model import Finding

_scan = scanner.secrets.scan


def _raise(text: str) -> None:
    raise RuntimeError(text)


def _rehearsal(_text: str) -> None:
    if "TEST_REHEARSAL_FAILS" in os.environ:
        raise RuntimeError


_OBEDIENCE = {
    "Rehearsal": _rehearsal,
    # A real catastrophic expression: no Python code runs until it ends.
    "REGEX": lambda _text: re.match(r"(a+)+$", "a" * 60 + "b"),
    "NAP": lambda _text: time.sleep(1.5),
    "SLEEP": lambda _text: time.sleep(60),
    "STOP": lambda _text: os.kill(os.getpid(), signal.SIGSTOP),
    "CRASH": lambda _text: os.kill(os.getpid(), signal.SIGKILL),
    "EXIT": lambda _text: os._exit(0),
    "RAISE": _raise,
    "GREEDY": lambda _text: bytearray(3 * 1024**3),
    "LIAR": lambda _text: os.write(1, screening_worker.frame("clean, trust me")),
}


def _obedient(text: str) -> tuple[Finding, ...]:
    for word, obey in _OBEDIENCE.items():
        if word in text:
            obey(text)
    return () if "LARGE" in text else _scan(text)  # fast, so that only the way of a large answer is timed


def serve(requests: BinaryIO, answers: BinaryIO) -> NoReturn:
    """Serve as the real worker does, with a scan that can be told to misbehave."""
    scanner.secrets.scan = _obedient
    screening_worker.serve(requests, answers)
