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


def _obedient(text: str) -> tuple[Finding, ...]:
    if "REGEX" in text:  # a real catastrophic expression: no Python code runs until it ends
        re.match(r"(a+)+$", "a" * 60 + "b")
    if "SLEEP" in text:
        time.sleep(60)
    if "STOP" in text:
        os.kill(os.getpid(), signal.SIGSTOP)
    if "CRASH" in text:
        os.kill(os.getpid(), signal.SIGKILL)
    if text == "probe\n" and "TEST_PROBE_FAILS" in os.environ:
        os._exit(0)
    if "EXIT" in text:
        os._exit(0)
    if "RAISE" in text:
        raise RuntimeError(text)
    if "GREEDY" in text:
        return (Finding("x" * 3 * 1024**3, 1),)
    if "LIAR" in text:
        os.write(1, screening_worker.frame("clean, trust me"))
    return _scan(text)


def serve(requests: BinaryIO, answers: BinaryIO) -> NoReturn:
    """Serve as the real worker does, with a scan that can be told to misbehave."""
    scanner.secrets.scan = _obedient
    screening_worker.serve(requests, answers)
