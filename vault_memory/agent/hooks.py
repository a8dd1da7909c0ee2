"""What Claude Code runs at its events: ``python -m vault_memory.agent.hooks``, the event as JSON on standard input.

Belongs here: the events and their answers. Does not: the journal (``worker``), the blocks (``block``).

A hook fails open: whatever happens it ends with 0, says at most one line on standard error, and leaves the session as
it was. It starts no daemon, blocks no stop (so it cannot loop), and keeps a time limit of its own, shorter than the
host's: after it the process ends, whatever a thread of it still waits for. ``VAULT_MEMORY_HOOKS=off`` ends it at once.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vault_memory.settings import Settings

MAX_INPUT_BYTES: Final = 4_000_000
SESSION_START_SECONDS: Final = 4.0


def main() -> None:
    """Answer the event on standard input; never fails, never outlives its time limit."""
    answer: list[str] = []
    warning: list[str] = []

    def work() -> None:
        try:
            answer.append(handle(event, os.environ))
        except Exception as error:  # noqa: BLE001 - fail open: the session matters more than its memory
            warning.append(_said(error))

    event = _event()
    seconds = SESSION_START_SECONDS
    if event.get("hook_event_name") == "UserPromptSubmit":
        seconds = _recall_seconds()
    thread = threading.Thread(target=work, name="hook", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        warning.append(f"no answer within {seconds:g} s, so none was given")
    elif answer and answer[0]:
        sys.stdout.write(answer[0] + "\n")
        sys.stdout.flush()
    if warning:
        sys.stderr.write(f"vault-memory: {warning[0]}\n")
        sys.stderr.flush()
    os._exit(0)  # a thread that waits for a server must not hold the session


def handle(event: dict[str, Any], environ: Mapping[str, str]) -> str:
    """Return the answer to an event: a JSON object, or nothing."""
    from vault_memory import settings as settings_module  # noqa: PLC0415 - within the time limit

    if environ.get("VAULT_MEMORY_HOOKS", "").lower() in ("off", "0", "false"):
        return ""
    name = event.get("hook_event_name")
    vaults = settings_module.load_all(environ)
    if name == "SessionStart":
        return _context(name, session_start(event, vaults, environ))
    if name == "UserPromptSubmit":
        return _context(name, user_prompt(event, vaults))
    if name in ("Stop", "SessionEnd"):
        _write_down(event, vaults[0])
    return ""


def session_start(event: dict[str, Any], vaults: Sequence[Settings], environ: Mapping[str, str]) -> str:
    """Return one line about the memory, and layer B."""
    from vault_memory.agent import memory_files  # noqa: PLC0415 - within the time limit
    from vault_memory.agent.block import memory_block  # noqa: PLC0415 - as above

    directory = Path(_text(event, "cwd") or ".")
    agent = vaults[0].agent
    roots = [one.vault for one in vaults if one.vault is not None]
    found = memory_files.read(directory, environ, vaults=roots, claude_md=agent.claude_md)
    return f"{_status(vaults)}\n{memory_block(found, agent.memory_max_chars)}".strip()


def user_prompt(event: dict[str, Any], vaults: Sequence[Settings]) -> str:
    """Return the notes that answer a prompt; nothing when it is not clear that they do."""
    from vault_memory.agent.block import holds_our_block  # noqa: PLC0415 - within the time limit
    from vault_memory.agent.recall import is_question, sure_of  # noqa: PLC0415 - as above
    from vault_memory.query.context import render  # noqa: PLC0415 - as above
    from vault_memory.query.search import search  # noqa: PLC0415 - as above

    settings = vaults[0]
    prompt = _text(event, "prompt").strip()
    # A command of the host or a shell line is no question; a block of ours in it was an answer already.
    if not settings.agent.recall or not prompt or prompt[0] in "/!#" or holds_our_block(prompt):
        return ""
    if not is_question(prompt):
        return ""
    _need_running(settings)
    result = search(prompt, k=settings.agent.recall_hits, vaults=vaults)
    return render(sure_of(result), settings.agent.max_chars)


def _write_down(event: dict[str, Any], settings: Settings) -> None:
    from vault_memory.agent import worker  # noqa: PLC0415 - within the time limit

    transcript, session = _text(event, "transcript_path"), _text(event, "session_id")
    # A stop that a hook has caused is part of the same turn: the next real one writes it down.
    if not settings.journal.enabled or event.get("stop_hook_active") is True or not transcript or not session:
        return
    worker.request(settings, session, Path(transcript).expanduser(), _text(event, "cwd"))


def _status(vaults: Sequence[Settings]) -> str:
    from vault_memory.errors import VaultMemoryError  # noqa: PLC0415 - within the time limit
    from vault_memory.query.asking import ask_each  # noqa: PLC0415 - as above
    from vault_memory.query.database import Sessions, fetch  # noqa: PLC0415 - as above

    try:
        _need_running(vaults[0])
        with Sessions() as sessions:
            counts, _ = ask_each(vaults, sessions, lambda _, session: fetch(session, "counts")[0]["indexed"])
            notes = sum(counts)
    except (VaultMemoryError, LookupError):
        return "vault-memory: the user's notes cannot be asked right now; 'vault-memory-query' starts the database."
    return f"vault-memory: {notes} notes of the user are in memory; ask with its tools or 'vault-memory-query'."


def _need_running(settings: Settings) -> None:
    """Refuse to ask an embedded server that does not run: a question would start it, and a hook starts no daemon."""
    from vault_memory.errors import StoreUnavailable  # noqa: PLC0415 - within the time limit

    if settings.query_dsn is None and settings.dsn is None:
        from vault_memory.adapters import server  # noqa: PLC0415 - only where no DSN is set

        if server.status(settings.home, settings.pg_user).state != "running":
            raise StoreUnavailable("the database is not running: 'vault-memory up', or any question, starts it")


def _context(name: str, text: str) -> str:
    if not text:
        return ""
    return json.dumps({"hookSpecificOutput": {"hookEventName": name, "additionalContext": text}}, ensure_ascii=True)


def _event() -> dict[str, Any]:
    try:
        found: Any = json.loads(sys.stdin.buffer.read(MAX_INPUT_BYTES))
    except (ValueError, RecursionError, OSError):
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _text(event: dict[str, Any], name: str) -> str:
    value = event.get(name)
    return value if isinstance(value, str) else ""


def _recall_seconds() -> float:
    from vault_memory import settings as settings_module  # noqa: PLC0415 - only prompts have a limit to be set
    from vault_memory.errors import VaultMemoryError  # noqa: PLC0415 - as above

    try:
        return settings_module.load().agent.recall_seconds
    except VaultMemoryError:
        return SESSION_START_SECONDS


def _said(error: Exception) -> str:
    from vault_memory.errors import VaultMemoryError  # noqa: PLC0415 - only where something failed

    return str(error) if isinstance(error, VaultMemoryError) else f"a hook failed ({type(error).__name__})"


if __name__ == "__main__":
    main()
