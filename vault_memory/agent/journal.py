"""The journal: one Markdown file a day, one entry for each part of a session.

Belongs here: entries, the day's file and how far each session has been written down. Does not: words (``summary``),
reading transcripts (``transcript``), and when it happens (``worker``). This is the only module that writes a note.

An entry is appended by one ``write`` under a lock of the file: whoever reads meanwhile sees it whole or not at all, and
what a person wrote into the file stays as it is. Its mark, a comment that Markdown does not show, names the session and
the position in the transcript up to which it goes. The position is kept in ``home`` too; where that was lost, or the
machine died between the two writes, the marks tell, so that nothing is written down twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vault_memory.agent import transcript
from vault_memory.agent.sessions import session_name
from vault_memory.agent.summary import plain, summarise
from vault_memory.errors import ConfigError
from vault_memory.notes import secrets

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from vault_memory.settings import Settings

_MARK = re.compile(rb"<!-- vault-memory session=([A-Za-z0-9_-]{1,64}) end=(\d{1,18}) -->")
_MAX_DAY_BYTES: Final = 900_000
_MAX_PROJECT_CHARACTERS: Final = 80


def write_down(
    settings: Settings, session_id: str, transcript_path: Path, *, directory: str = "", now: datetime | None = None
) -> Path | None:
    """Write down what a session has said since it was last written down.

    Args:
        settings: Of this installation.
        session_id: As the host named it.
        transcript_path: The session's record.
        directory: Where the session works; its last part is shown.
        now: In place of the clock, for tests.

    Returns:
        The day's file; None if there was nothing new, or nothing to say.

    Raises:
        OSError: The transcript cannot be read, or the journal not be written.
        ConfigError: The journal's folder is no place for it.
    """
    name = session_name(session_id)
    moment = now or datetime.now().astimezone()
    folder = settings.journal_folder
    with _position(settings.home / "agent" / "sessions" / f"{name}.json") as position:
        start = max(position.value, _marked(folder, name, moment))
        if transcript_path.stat().st_size <= start:
            position.value = start
            return None
        reading = transcript.read(transcript_path, start)
        lines = summarise(reading.turns, settings) if reading.turns else ()
        if not lines:
            position.value = reading.end
            return None
        entry = _entry(lines, name, reading.end, moment, directory)
        path = _append(folder, entry, moment)
        position.value = reading.end
        return path


def _entry(lines: Sequence[str], name: str, end: int, moment: datetime, directory: str) -> str:
    project = plain(Path(directory).name, _MAX_PROJECT_CHARACTERS) if directory else ""
    if project and (secrets.scan(project) or secrets.scan(Path(directory).name)):
        project = ""
    title = f"## {moment:%H:%M} session {name[:8]}" + (f" in {project}" if project else "")
    items = "\n".join(f"- {line}" for line in lines)
    return f"\n{title}\n\n<!-- vault-memory session={name} end={end} -->\n{items}\n"


def _append(folder: Path, entry: str, moment: datetime) -> Path:
    """Append to the day's file, or to the next part of it where it has grown beyond what a note may be."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for part in range(1, 100):
        path = folder / (f"{moment:%Y-%m-%d}.md" if part == 1 else f"{moment:%Y-%m-%d} part {part}.md")
        # No link is followed: a shared folder must not choose which file is written to.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            size = os.fstat(descriptor).st_size
            if size > _MAX_DAY_BYTES:
                continue
            data = (entry if size else f"# Journal {moment:%Y-%m-%d}\n{entry}").encode("utf-8", "replace")
            if os.write(descriptor, data) != len(data):
                os.ftruncate(descriptor, size)
                raise OSError("the journal could not be written: is the disk full?")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return path
    raise ConfigError(f"{folder}: the journal of {moment:%Y-%m-%d} is full")


def _marked(folder: Path, name: str, moment: datetime) -> int:
    """Return how far the files of today and yesterday say that a session is written down."""
    wanted, end = name.encode(), 0
    for day in (moment, moment - timedelta(days=1)):
        for path in sorted(folder.glob(f"{day:%Y-%m-%d}*.md")):
            with contextlib.suppress(OSError):
                for session, position in _MARK.findall(path.read_bytes()):
                    if session == wanted:
                        end = max(end, int(position))
    return end


class _Position:
    """How far a session is written down; kept in a file."""

    def __init__(self, value: int) -> None:
        self.value = value


@contextlib.contextmanager
def _position(path: Path) -> Generator[_Position]:
    """Hold the position of a session for a block, alone; write it at the end."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            value = int(json.loads(os.pread(descriptor, 4096, 0))["end"])
        except (ValueError, TypeError, LookupError):
            value = 0
        found = _Position(value)
        yield found
        if found.value != value:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({"end": found.value}).encode(), 0)
    finally:
        os.close(descriptor)
