"""Screening with a time limit: examinations run in a worker process that can be killed.

Belongs here: the life of the workers, and what a dead or late one means for its note. Does not: what is examined
(``vault_memory.notes.scanner``), the worker's own side (``screening_worker``).

A regular expression cannot be interrupted from within its process, and a signal handler or a thread would have
to wait for it. So every note crosses a pipe and its parsed form comes back, which costs 0.6 ms (3 kB, a busy
machine); in exchange the limit holds for anything a note can trigger, the Markdown parser included. The limit is one of
processor time, which the kernel counts for the worker, so that a busy machine makes no note late; a clock that runs
``WALL_FACTOR`` times as long stands behind it for a worker that does not run at all.

The worker is a plain subprocess: a run process of Dagster has
threads, which a fork would copy half alive, and ``multiprocessing`` would import its main module again.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

from vault_memory.errors import ScanError
from vault_memory.ingest.screening_worker import LENGTH, frame, unframe
from vault_memory.notes.model import CleanNote, Excluded, Finding, Quarantined, QuarantineReason, RawNote
from vault_memory.notes.scanner import Verdict, conclude, nobody

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from vault_memory.notes.exclusion import Ruleset

_log = logging.getLogger(__name__)

START_SECONDS: Final = 60.0
"""How long a worker may take to import its modules; far above what was seen (0.3 s) for loaded machines."""
WALL_FACTOR: Final = 2.0
"""How many times its budget a note may take by the clock, for a machine that has other things to do."""
ANSWER_SECONDS: Final = 10.0
"""How long a finished answer may take through the pipe."""
_WORKER: Final = "vault_memory.ingest.screening_worker"
_PROGRAM: Final = (
    "import sys, importlib; module, *sys.path[:0] = sys.argv[1:]; "
    "importlib.import_module(module).serve(sys.stdin.buffer, sys.stdout.buffer)"
)


class Screener:
    """Judges notes in workers that start with the first note and end with the screener or this process.

    Use it as a context manager, from one thread at a time or several: calls take turns.

    Args:
        rules: The compiled rules; every worker compiles its own and must come to the same id.
        allowed: The operator's allow-list; it is asked in this process.
        time_budget_seconds: A note that takes more processor time is quarantined as ``scan_timeout``; None: as the
            rules say.
        max_workers: Notes that :meth:`screen_all` has under examination at once.
        worker_module: Module whose ``serve`` runs in the worker; tests put a slow or broken one here.
    """

    def __init__(
        self,
        rules: Ruleset,
        *,
        allowed: Callable[[RawNote, Finding], bool] = nobody,
        time_budget_seconds: float | None = None,
        max_workers: int = 1,
        worker_module: str = _WORKER,
    ) -> None:
        self._rules = rules
        self._allowed = allowed
        self._budget = rules.scan.time_budget_seconds if time_budget_seconds is None else time_budget_seconds
        self._max_workers = max(1, max_workers)
        self._module = worker_module
        self._lock = threading.Lock()
        self._free: deque[_Worker] = deque()
        self._all: list[_Worker] = []
        weakref.finalize(self, _kill, self._all)

    def __enter__(self) -> Self:
        """Return the screener; no worker is started yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the workers."""
        self.close()

    def start(self) -> None:
        """Have the workers ready before the first note, so that it does not wait for their imports.

        Raises:
            ScanError: No worker can be started: nothing may be indexed.
        """
        workers = [self._take() for _ in range(self._max_workers)]
        try:
            for worker in workers:
                worker.start()
        finally:
            for worker in workers:
                self._give(worker)

    def screen(self, raw: RawNote) -> CleanNote | Quarantined | Excluded:
        """Judge one note.

        Raises:
            ScanError: No worker can be started: nothing may be indexed.
        """
        worker = self._take()
        try:
            worker.submit(raw)
            return self._conclude(raw, worker.collect())
        finally:
            self._give(worker)

    def screen_all(self, raws: Iterable[RawNote]) -> Iterator[CleanNote | Quarantined | Excluded]:
        """Judge notes, in order; the workers go on with the next ones while the caller uses a result.

        Raises:
            ScanError: No worker can be started: nothing may be indexed.
        """
        pending: deque[tuple[RawNote, _Worker]] = deque()
        try:
            for raw in raws:
                if len(pending) < self._max_workers:
                    pending.append((raw, self._take()))
                    pending[-1][1].submit(raw)
                    continue
                oldest, worker = pending[0]
                answer = worker.collect()
                pending.popleft()
                pending.append((raw, worker))
                worker.submit(raw)
                yield self._conclude(oldest, answer)
            while pending:
                oldest, worker = pending[0]
                answer = worker.collect()
                pending.popleft()
                self._give(worker)
                yield self._conclude(oldest, answer)
        finally:
            for _, worker in pending:  # the caller stopped early: these answers belong to nobody
                worker.kill()
                self._give(worker)

    def close(self) -> None:
        """End the workers; a later call starts new ones."""
        with self._lock:
            _kill(self._all)

    def _take(self) -> _Worker:
        with self._lock:
            if self._free:
                return self._free.popleft()
            worker = _Worker(self._rules, self._budget, self._module)
            self._all.append(worker)
            return worker

    def _give(self, worker: _Worker) -> None:
        with self._lock:
            self._free.append(worker)

    def _conclude(self, raw: RawNote, answer: Verdict | QuarantineReason) -> CleanNote | Quarantined | Excluded:
        if isinstance(answer, QuarantineReason):
            _log.error("scan ended as %s at %s", answer.value, ascii(raw.path.id))
            return Quarantined(raw.path, raw.blob_id, answer)
        return conclude(raw, answer, allowed=self._allowed)


def _kill(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.kill()


class _Late(Exception):
    """The worker has not answered in time; a signal inside this module."""


class _Gone(Exception):
    """The worker has ended, or answers what nobody asked; as above."""


class _Worker:
    """One worker process and the note it holds."""

    def __init__(self, rules: Ruleset, time_budget_seconds: float, module: str) -> None:
        self._rules = rules
        self._budget = time_budget_seconds
        self._module = module
        self._process: subprocess.Popen[bytes] | None = None
        self._deadline = 0.0
        self._is_owing = False

    def start(self) -> None:
        """Run the process if it does not run yet."""
        self._running()

    def submit(self, raw: RawNote) -> None:
        """Hand a note over."""
        if self._is_owing:  # an interrupt came between a note and its verdict, which must not pass for the next
            self.kill()
        request = frame(raw)
        for _ in range(2):  # a worker that died while idle says nothing of this note: a new one gets it
            process = self._running()
            self._is_owing = True
            try:
                self._write(process, request)
                break
            except _Gone:
                self.kill()
        self._deadline = time.monotonic() + WALL_FACTOR * self._budget

    def collect(self) -> Verdict | QuarantineReason:
        """Wait for the verdict on the note that was handed over, or say why there is none."""
        answer: object = None
        if self._process is not None:
            with suppress(_Gone):
                try:
                    answer = self._read(self._process, self._deadline)
                except _Late:
                    answer = QuarantineReason.SCAN_TIMEOUT
        if isinstance(answer, Verdict):
            self._is_owing = False
            return answer
        late = answer is QuarantineReason.SCAN_TIMEOUT or self._ran_out_of_time()
        self.kill()
        return QuarantineReason.SCAN_TIMEOUT if late else QuarantineReason.SCAN_ERROR

    def _ran_out_of_time(self) -> bool:
        """Whether the kernel ended the process because its time was up."""
        if self._process is None:
            return False
        try:
            return self._process.wait(timeout=1.0) == -signal.SIGPROF
        except subprocess.TimeoutExpired:  # it lives: it has answered something else
            return False

    def kill(self) -> None:
        """End the process if there is one."""
        process, self._process = self._process, None
        self._is_owing = False
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.kill()
        path = [os.path.abspath(entry) for entry in sys.path]  # noqa: PTH100 - '' is the current folder
        try:
            # No error stream: a traceback could quote the note, and Dagster captures what is written there.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _PROGRAM, self._module, *path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
            )
            self._write(self._process, frame({"rules": self._rules, "time_budget_seconds": self._budget}))
            ready = self._read(self._process, time.monotonic() + START_SECONDS)
        except (OSError, _Late, _Gone) as error:
            self.kill()
            raise ScanError(
                f"the scanner's worker does not start ({type(error).__name__}): nothing is indexed"
            ) from None
        if ready != self._rules.id:
            self.kill()
            raise ScanError("the scanner's worker runs another version of the rules: restart this process")
        return self._process

    def _write(self, process: subprocess.Popen[bytes], data: bytes) -> None:
        assert process.stdin is not None  # noqa: S101 - Popen was asked for a pipe
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(process.stdin.fileno(), view) :]
        except OSError:
            raise _Gone from None

    def _read(self, process: subprocess.Popen[bytes], deadline: float) -> Any:
        assert process.stdout is not None  # noqa: S101 - Popen was asked for a pipe
        descriptor = process.stdout.fileno()
        (length,) = LENGTH.unpack(_read_exactly(descriptor, LENGTH.size, deadline))
        # The examination is over, in time. The caller may have let a large answer wait in the pipe.
        return unframe(_read_exactly(descriptor, length, time.monotonic() + ANSWER_SECONDS))


def _read_exactly(descriptor: int, count: int, deadline: float) -> bytes:
    poll = select.poll()  # select.select fails on descriptors above 1,023
    poll.register(descriptor, select.POLLIN)
    pieces: list[bytes] = []
    while count:
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise _Late
        piece = os.read(descriptor, min(count, 1 << 20))
        if not piece:
            raise _Gone
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)
