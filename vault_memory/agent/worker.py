"""Writes the journal behind the session's back: at most one process, however many events come.

Belongs here: the requests that hooks leave, the one worker that carries them out, and having the journal put into
memory. Does not: the entries (``journal``), or what ``vault-memory index`` does: it is a process of its own.

A hook leaves a request, one file a session, and takes the worker's lock. Who gets it starts the worker and hands it the
lock's descriptor, so that there is no moment in which nobody holds it; who does not get it is done, because the worker
looks for requests once more **after** it has let go. Nobody waits, nothing stays when there is nothing to do.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from vault_memory import settings as settings_module
from vault_memory.agent.sessions import session_name
from vault_memory.errors import VaultMemoryError

if TYPE_CHECKING:
    from vault_memory.settings import Settings

LOG: Final = "journal.log"
MAX_SECONDS: Final = 1_800
"""After it a worker takes nothing on any more; the next event starts another one."""
INDEX_TIMEOUT_SECONDS: Final = 900
VAULT_NAME: Final = "journal"
_NICENESS: Final = 10
_MAX_LOG_BYTES: Final = 200_000


def request(settings: Settings, session_id: str, transcript_path: Path, directory: str) -> bool:
    """Leave a request, and start the worker if none runs; takes some milliseconds.

    Returns:
        Whether a worker was started.

    Raises:
        OSError: ``home`` cannot be written to.
    """
    folder = _folder(settings)
    target = folder / "requests" / f"{session_name(session_id)}.json"
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    body = json.dumps({"session": session_id, "transcript": str(transcript_path), "directory": directory})
    draft = target.with_suffix(f".{os.getpid()}.draft")
    draft.write_text(body, encoding="utf-8")
    draft.replace(target)
    return _start(settings)


def _start(settings: Settings) -> bool:
    descriptor = _lock(settings)
    if descriptor is None:
        return False
    log = settings.home / "log" / LOG
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(output).st_size > _MAX_LOG_BYTES:
                os.ftruncate(output, 0)
            subprocess.Popen(
                [sys.executable, "-P", "-m", "vault_memory.agent.worker", str(descriptor)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=settings.home,
                start_new_session=True,  # the host ends its hooks with all they started; a closed terminal likewise
                pass_fds=(descriptor,),
            )
        finally:
            os.close(output)
    finally:
        os.close(descriptor)
    return True


def main() -> None:
    """Carry out what was requested; the lock was handed over, or is taken."""
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    given = int(sys.argv[1]) if sys.argv[1:] and sys.argv[1].isdecimal() else None
    try:
        carry_out(settings_module.load(), given)
    except (VaultMemoryError, OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"vault-memory journal: {_said(error)}\n")


def carry_out(settings: Settings, descriptor: int | None = None) -> int:
    """Write down every session that was requested, then index; return how many entries were written."""
    until = time.monotonic() + MAX_SECONDS
    written = 0
    held = descriptor if descriptor is not None else _lock(settings)
    while held is not None:
        try:
            new = _write_all(settings, until)
            written += new
            if new and settings.journal.index:
                index(settings)
        finally:
            os.close(held)
        # Whoever came while we held the lock has left a request and gone.
        held = _lock(settings) if _requests(settings) and time.monotonic() < until else None
    return written


def index(settings: Settings) -> None:
    """Put the journal into memory; what that says holds paths and counts, and goes to our own output."""
    wanted = _index_command(settings)
    if wanted is None:
        return
    subprocess.run(
        # "-P": the folder that a hook runs in is no place to import from.
        [sys.executable, "-P", "-m", "vault_memory.cli", *wanted],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        stderr=sys.stderr.fileno(),
        cwd=settings.home,
        check=False,
        timeout=INDEX_TIMEOUT_SECONDS,
    )


def _index_command(settings: Settings) -> list[str] | None:
    """Return what brings the journal into memory; None where nothing should."""
    from vault_memory.adapters import server  # noqa: PLC0415 - only with a new entry

    vaults = settings_module.load_all()
    if all(one.vault is None for one in vaults):
        return None  # nobody has set a memory up: the journal is files alone
    if settings.dsn is None and server.status(settings.home, settings.pg_user).state != "running":
        return None  # a hook starts no server; the next entry is indexed with this one
    folder = settings.journal_folder.resolve()
    for one in vaults:
        place = None if one.vault is None else one.vault.resolve()
        if place is not None and folder.is_relative_to(place):
            # In a repository it comes into memory with its commit, as all notes do.
            return ["sync", "--vault", one.name] if one.kind == "directory" else None
    return ["index", str(folder), *([] if any(one.name == VAULT_NAME for one in vaults) else ["--name", VAULT_NAME])]


def _write_all(settings: Settings, until: float) -> int:
    from vault_memory.agent import journal  # noqa: PLC0415 - a hook that only leaves a request needs none of it

    written = 0
    while (waiting := _requests(settings)) and time.monotonic() < until:
        for path in waiting:
            asked = _taken(path)
            if asked is None:
                continue
            try:
                day = journal.write_down(
                    settings, asked["session"], Path(asked["transcript"]), directory=asked["directory"]
                )
            except (VaultMemoryError, OSError, ValueError) as error:
                sys.stderr.write(f"vault-memory journal: a session was not written down: {_said(error)}\n")
                continue
            written += day is not None
    return written


def _taken(path: Path) -> dict[str, str] | None:
    """Take a request: first away with it, so that an event that comes meanwhile leaves a new one."""
    try:
        found: Any = json.loads(path.read_bytes())
        path.unlink()
        return {name: str(found[name]) for name in ("session", "transcript", "directory")}
    except (OSError, ValueError, LookupError, TypeError):
        path.unlink(missing_ok=True)
        return None


def _requests(settings: Settings) -> list[Path]:
    return sorted((_folder(settings) / "requests").glob("*.json"))


def _folder(settings: Settings) -> Path:
    return settings.home / "agent"


def _lock(settings: Settings) -> int | None:
    """Take the worker's lock without waiting; the descriptor holds it, wherever it is inherited."""
    folder = _folder(settings)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / "worker.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _said(error: Exception) -> str:
    """Return an error without words that it may quote: ours are safe, the system's name no more than a kind."""
    return str(error) if isinstance(error, VaultMemoryError) else type(error).__name__


if __name__ == "__main__":
    main()
