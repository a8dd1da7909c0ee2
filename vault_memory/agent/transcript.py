"""Claude Code's record of a session, read for what was said.

Belongs here: which records count, and their text. Does not: what becomes of it (``summary``, ``journal``).

The file is JSON lines, written by another program whose format is its own affair: a record that is unknown, broken or
oversized is passed over. Read are the user's own words and the agent's answers; not tool output, thinking, sub-agents,
compaction summaries, or what hooks put in, our own blocks among them.
"""

from __future__ import annotations

import json
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from vault_memory.agent.block import without_our_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_RECORD_BYTES: Final = 4_000_000
"""Of one line: beyond it lie pictures and tool output, never words that somebody typed."""
MAX_READ_BYTES: Final = 256_000_000
MAX_TURNS: Final = 2_000
MAX_TEXT_CHARACTERS: Final = 50_000
_READ_BYTES: Final = 1 << 20
_EDITING_TOOLS: Final = frozenset({"Edit", "MultiEdit", "Write", "NotebookEdit"})
_INJECTED = re.compile(
    r"<(system-reminder|local-command-stdout|local-command-stderr|local-command-caveat|command-name|command-message"
    r"|command-args|command-contents|task-notification|user-prompt-submit-hook|bash-stdout|bash-stderr)\b.*?(?:</\1\s*>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_INTERRUPTED = "[Request interrupted by user"


@dataclass(slots=True)
class Turn:
    """What was asked, and what came of it.

    Attributes:
        asked: The user's words; empty where a reading begins in the middle of an answer.
        answers: The agent's texts, in order.
        files: Paths that it changed.
        at: Time of the first record, as it is written there.
    """

    asked: str = field(repr=False)
    answers: list[str] = field(default_factory=list[str], repr=False)
    files: list[str] = field(default_factory=list[str])
    at: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """A part of a transcript.

    Attributes:
        turns: In order.
        end: The position to go on from: behind the last complete line.
    """

    turns: tuple[Turn, ...]
    end: int


def read(path: Path, start: int = 0) -> Reading:
    """Read a transcript from a position on; an unfinished last line is left for the next time.

    Raises:
        OSError: It is not there, or no regular file.
    """
    turns: list[Turn] = []
    end = start
    for line, position in _lines(path, start):
        end = position
        if line is not None and (record := _record(line)) is not None:
            _add(record, turns)
    return Reading(tuple(turn for turn in turns if turn.asked or turn.answers or turn.files)[-MAX_TURNS:], end)


def _lines(path: Path, start: int) -> Iterator[tuple[bytes | None, int]]:
    """Yield each complete line, None for an oversized one, and the position behind it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=_READ_BYTES) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("the transcript is no regular file")
        file.seek(start)
        position = start
        while position - start < MAX_READ_BYTES:
            line = file.readline(MAX_RECORD_BYTES)
            size, oversized = len(line), False
            while line and not line.endswith(b"\n"):
                oversized = True
                line = file.readline(MAX_RECORD_BYTES)
                size += len(line)
            if not line:
                return
            position += size
            yield None if oversized else line, position


def _record(line: bytes) -> dict[str, Any] | None:
    if b'"user"' not in line and b'"assistant"' not in line:
        return None  # spares the parsing of progress records, of which there are thousands
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    known = cast("dict[str, Any]", record)
    left_out = ("isSidechain", "isMeta", "isCompactSummary", "isApiErrorMessage", "isVisibleInTranscriptOnly")
    return None if any(known.get(name) for name in left_out) else known


def _add(record: dict[str, Any], turns: list[Turn]) -> None:
    message = record.get("message")
    content: Any = cast("dict[str, Any]", message).get("content") if isinstance(message, dict) else None
    stamp = record.get("timestamp")
    at = stamp if isinstance(stamp, str) else ""
    match record.get("type"):
        case "user":
            asked = _own_words(_text(content))
            if asked and not asked.startswith(_INTERRUPTED):
                turns.append(Turn(asked, at=at))
        case "assistant":
            answer = _own_words(_text(content))
            files = _edited(content)
            if (answer or files) and not turns:
                turns.append(Turn("", at=at))
            if answer:
                turns[-1].answers.append(answer)
            for name in files:
                if name not in turns[-1].files:
                    turns[-1].files.append(name)
        case _:
            return


def _blocks(content: Any) -> Iterator[dict[str, Any]]:
    if isinstance(content, list):
        for block in cast("list[Any]", content):
            if isinstance(block, dict):
                yield cast("dict[str, Any]", block)


def _text(content: Any) -> str:
    """Join the texts of a message; what tools returned is none of them."""
    if isinstance(content, str):
        return content
    texts = (block.get("text") for block in _blocks(content) if block.get("type") == "text")
    return "\n\n".join(text for text in texts if isinstance(text, str))


def _own_words(text: str) -> str:
    # Blocks first, cut after: a block without its end would pass for words.
    return _INJECTED.sub(" ", without_our_blocks(text)).strip()[:MAX_TEXT_CHARACTERS]


def _edited(content: Any) -> list[str]:
    found: list[str] = []
    for block in _blocks(content):
        given = block.get("input")
        if block.get("type") == "tool_use" and block.get("name") in _EDITING_TOOLS and isinstance(given, dict):
            known = cast("dict[str, Any]", given)
            name = known.get("file_path") or known.get("notebook_path")
            if isinstance(name, str) and name:
                found.append(name)
    return found
