"""The process that examines notes, so that an examination can be killed.

Belongs here: the worker's side of the pipe and the frames both sides speak. Does not: when a worker is started,
killed or believed (``screening``).

A frame is a length (8 bytes, big-endian) and a pickle. Pickles are safe here: both ends are this package, and
nobody else holds the pipe. The worker reads its rules first, says that it is ready, then answers note by note.
It writes nothing but answers: no log, no traceback, no core dump could carry a note's text out of it.
"""

from __future__ import annotations

import copyreg
import io
import pickle
import resource
import signal
import struct
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NoReturn

from vault_memory.notes import scanner
from vault_memory.notes.model import QuarantineReason

if TYPE_CHECKING:
    from collections.abc import Callable

    from vault_memory.notes.exclusion import Ruleset
    from vault_memory.notes.model import RawNote

LENGTH: Final = struct.Struct(">Q")
REHEARSAL: Final = "---\ntitle: rehearsal\n---\n# Rehearsal\n\nOne *line*.\n"
ORPHAN_FACTOR: Final = 2  # with the second that is added, above the parent's own patience
_MEMORY_LIMIT_BYTES: Final = 2 * 1024**3


def frame(value: object) -> bytes:
    """Write a value as a frame."""
    stream = io.BytesIO()
    stream.write(bytes(LENGTH.size))
    pickler = pickle.Pickler(stream, protocol=pickle.HIGHEST_PROTOCOL)
    # Parsed notes hold read-only mappings, which pickle does not know.
    pickler.dispatch_table = {**copyreg.dispatch_table, MappingProxyType: _reduce_read_only}
    pickler.dump(value)
    LENGTH.pack_into(stream.getbuffer(), 0, stream.tell() - LENGTH.size)
    return stream.getvalue()


def _reduce_read_only(value: MappingProxyType[object, object]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return _read_only, (dict(value),)


def _read_only(values: dict[object, object]) -> MappingProxyType[object, object]:
    return MappingProxyType(values)  # by a function's name, since pickle looks for the type in builtins


def unframe(body: bytes) -> Any:
    """Read a frame's value back."""
    return pickle.loads(body)  # noqa: S301 - from our own child or parent


def serve(requests: BinaryIO, answers: BinaryIO) -> NoReturn:
    """Answer until the parent closes the pipe or dies."""
    # A terminal's Ctrl-C reaches the whole group; the parent decides when its worker ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit_memory()
    setup = _receive(requests)
    rules: Ruleset = setup["rules"]
    budget_seconds: float = setup["time_budget_seconds"]
    _rehearse()
    answer = frame(rules.id)
    while True:
        answers.write(answer)
        answers.flush()
        raw: RawNote = _receive(requests)
        # Nothing else interrupts an expression that does not end, and the default of both signals is to end the
        # process: the first counts its own time, the second the clock's, should the parent be gone.
        signal.setitimer(signal.ITIMER_PROF, budget_seconds)
        signal.setitimer(signal.ITIMER_REAL, ORPHAN_FACTOR * budget_seconds + 1)
        answer = _answer(raw, rules)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def _rehearse() -> None:
    """Do with a harmless text what every note needs.

    What is made on first use is paid here and not from the first note's budget. And a scanner that cannot work at
    all ends its worker before the worker has said that it is ready, which stops the run: otherwise a broken
    installation would quarantine the whole vault, note by note.
    """
    scanner.secrets.scan(REHEARSAL)
    scanner.markdown.parse(REHEARSAL, fallback_title="")


def _answer(raw: RawNote, rules: Ruleset) -> bytes:
    verdict = scanner.examine(raw, rules)
    try:
        return frame(verdict)
    except Exception as error:  # noqa: BLE001 - front matter that no pickle takes is the note's fault alone
        return frame(replace(verdict, outcome=QuarantineReason.SCAN_ERROR, error=type(error).__name__))


def _limit_memory() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = _MEMORY_LIMIT_BYTES if hard == resource.RLIM_INFINITY else min(hard, _MEMORY_LIMIT_BYTES)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    except (ValueError, OSError):  # macOS knows the limit and refuses it
        return


def _receive(stream: BinaryIO) -> Any:
    header = stream.read(LENGTH.size)
    if len(header) < LENGTH.size:
        raise SystemExit(0)
    (length,) = LENGTH.unpack(header)
    body = stream.read(length)
    if len(body) < length:
        raise SystemExit(0)
    return unframe(body)
