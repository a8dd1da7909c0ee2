"""Blocks -> pieces: the smallest parts of a section that are never cut again.

Belongs here: where a block that is too long for a chunk may be cut, and what is repeated there (a table's
header, a fence's marks). Does not: which pieces make a chunk (``chunking``).

Cuts come at the best place there is: between blocks, list items, lines and rows, sentences in both languages,
words, and at last between grapheme clusters.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

import regex

from vault_memory.notes import inline
from vault_memory.notes.model import Block, BlockKind

MAX_CHARACTERS: Final = 1_000
"""The longest content of a chunk, a repeated table header or fence included."""

SLACK_CHARACTERS: Final = 150
"""A chunk aims at this much less, so that a line may grow without moving two borders."""

_MAX_REPEATED_HEADER: Final = 300
_MAX_REPEATED_FENCE: Final = 80
# Long lines are cut to less than a chunk, so that an edit in one of them moves few borders.
_MAX_LINE_PART: Final = 400

_LIST_ITEM = re.compile(r"[ \t]{0,3}(?:[-*+]|\d{1,9}[.)])(?:[ \t]|$)")
_FENCE_OPENING = re.compile(r"[ ]{0,3}(`{3,}|~{3,})")
_FENCE_CLOSING = re.compile(r"[ ]{0,3}(`{3,}|~{3,})[ \t]*\r?")
# A sentence ends behind Chinese punctuation, or behind Latin punctuation and white space.
_SENTENCE_END = re.compile(r"[。！？；…]+[”’」』）》\"')\]]*\s*|[.!?;][\"'”’)\]]*\s+")
_LAST_WORD = re.compile(r"[\s，、：,]")
_CLUSTER = regex.compile(r"\X")


class Border(IntEnum):
    """How good a place for a cut is, worst first."""

    CLUSTER = 0
    WORD = 1
    SENTENCE = 2
    LINE = 3
    ITEM = 4
    BLOCK = 5


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a section that is never cut again.

    Attributes:
        text: As it stands in the file.
        sent: What of it is embedded: no comments; empty for a heading, which the chunk's heading path holds.
        start_line: First file line.
        end_line: Last file line, inclusive.
        border: How good a cut before it is.
        rank: Which of equally good borders is cut first; higher first.
        joiner: What stands between the piece before and this one.
        repeated: Text to put before it where it starts a chunk: the header of its table, the mark of its fence.
        closing: Text to put behind the piece before where this one starts a chunk: the end mark of the fence.
        is_code: Whether links and comments in it are just code.
    """

    text: str
    sent: str
    start_line: int
    end_line: int
    border: Border = Border.BLOCK
    rank: tuple[int, int] = (0, 0)
    joiner: str = "\n\n"
    repeated: str = ""
    closing: str = ""
    is_code: bool = False


def pieces(blocks: Sequence[Block], heading: Sequence[str], heading_line: int) -> list[Piece]:
    """Cut a section into pieces, none longer than ``MAX_CHARACTERS``.

    Args:
        blocks: The section's blocks.
        heading: The lines of its heading; none before the first heading.
        heading_line: File line of the first of them.
    """
    first: list[Piece] = []
    if heading:
        text = "\n".join(heading)
        whole = Piece(text, "", heading_line, heading_line + len(heading) - 1)
        first = [whole] if len(text) <= MAX_CHARACTERS else [replace(p, sent="") for p in _cut_lines(whole)]
    room = MAX_CHARACTERS - (len(first[-1].text) + 3 if first else 0)
    body: list[Piece] = []
    for number, block in enumerate(blocks):
        made = _block_pieces(block, room if not body else MAX_CHARACTERS)
        body.extend([replace(made[0], border=Border.BLOCK, rank=(0, _evenness(number))), *made[1:]] if made else [])
    placed = _with_joiners([*first, *body])
    if first and body:
        # A heading alone says nothing: it stays with what follows.
        at = len(first)
        closing = placed[at + 1].closing if at + 1 < len(placed) else ""
        placed[at - 1 : at + 1] = _glued(placed[at - 1], placed[at], MAX_CHARACTERS - len(closing))
    return placed


def _with_joiners(made: list[Piece]) -> list[Piece]:
    for index in range(1, len(made)):
        gap = made[index].start_line - made[index - 1].end_line
        joiner = "\n" * min(gap, 3)
        if joiner != made[index].joiner:
            made[index] = replace(made[index], joiner=joiner)
    return made


def _glued(left: Piece, right: Piece, limit: int = MAX_CHARACTERS) -> list[Piece]:
    """Make one piece of two where it fits, so that no cut can come between them."""
    text = left.text + right.joiner + right.text
    if len(text) > limit:
        return [left, right]
    sent = left.sent + right.joiner + right.sent if left.sent else right.sent
    return [replace(left, text=text, sent=sent, end_line=right.end_line, is_code=right.is_code)]


def _block_pieces(block: Block, room: int) -> list[Piece]:
    is_code = block.kind is BlockKind.FENCE or all(
        line.startswith(("\t", "    ")) or not line.strip() for line in block.lines
    )
    if is_code:
        shown, sent = list[str | None](block.lines), list(block.lines)
    else:
        shown, sent = inline.comment_lines("\n".join(block.lines))
    lines = [
        Piece(
            line,
            rest,
            block.start_line + offset,
            block.start_line + offset,
            Border.LINE,
            (0, _evenness(offset)),
            "\n",
            is_code=is_code,
        )
        for offset, (line, rest) in enumerate(zip(shown, sent, strict=True))
        if line is not None
    ]
    while lines and not lines[-1].text.strip():
        lines.pop()
    while lines and not lines[0].text.strip():
        lines.pop(0)
    if not lines:
        return []
    lines = _with_joiners(lines)
    whole = _joined(lines)
    # Code and tables stay whole where they fit at all; prose has better borders inside.
    keeps_whole = block.kind in {BlockKind.FENCE, BlockKind.TABLE}
    if len(whole.text) <= (room if keeps_whole else min(room, MAX_CHARACTERS - SLACK_CHARACTERS)):
        return [whole]
    if block.kind is BlockKind.FENCE:
        return _cut_fence(lines)
    if block.kind is BlockKind.TABLE and len(lines) > 2:  # noqa: PLR2004 - header and separator
        return _cut_table(lines)
    if block.kind is BlockKind.LIST:
        lines = [replace(p, border=Border.ITEM) if _LIST_ITEM.match(p.text) else p for p in lines]
    return [part for line in lines if line.text.strip() for part in _cut_lines(line, MAX_CHARACTERS - SLACK_CHARACTERS)]


def _joined(lines: Sequence[Piece]) -> Piece:
    text = "".join([lines[0].text, *(part for line in lines[1:] for part in (line.joiner, line.text))])
    sent = "".join([lines[0].sent, *(part for line in lines[1:] for part in (line.joiner, line.sent))])
    return replace(lines[0], text=text, sent=sent, end_line=lines[-1].end_line)


def _cut_fence(lines: list[Piece]) -> list[Piece]:
    """Cut a fence between its lines; every part can open and close it, so that it reads as code."""
    opening = _FENCE_OPENING.match(lines[0].text)
    marks = opening.group(1)[:_MAX_REPEATED_FENCE] if opening else "```"
    repeated = lines[0].text.strip()[:_MAX_REPEATED_FENCE] + "\n"
    closing = "\n" + marks
    limit = MAX_CHARACTERS - len(repeated) - len(closing)
    parts = [part for line in lines for part in _cut_lines(line, limit)]
    inner = [replace(part, repeated=repeated, closing=closing) for part in parts[1:]]
    if not inner:
        return parts
    end = _FENCE_CLOSING.fullmatch(lines[-1].text)
    if len(inner) > 1 and end and end.group(1)[0] == marks[0]:
        # No cut before the end mark: it would make a chunk of marks alone.
        inner[-2:] = _glued(inner[-2], inner[-1], MAX_CHARACTERS - len(repeated))
    return [*_glued(parts[0], inner[0], MAX_CHARACTERS - len(closing)), *inner[1:]]


def _cut_table(lines: list[Piece]) -> list[Piece]:
    """Cut a table between its rows; every part repeats header and separator."""
    header = _joined(lines[:2])
    repeated = header.text if len(header.text) <= _MAX_REPEATED_HEADER else _short_header(lines[:2])
    limit = MAX_CHARACTERS - len(repeated) - 1
    rows = [
        replace(part, repeated=repeated + "\n")
        for row in lines[2:]
        if row.text.strip()
        for part in _cut_lines(row, limit)
    ]
    if len(header.text) > MAX_CHARACTERS:
        return [*(part for line in lines[:2] for part in _cut_lines(line)), *rows]
    return [*_glued(header, rows[0]), *rows[1:]] if rows else [header]


def _short_header(lines: Sequence[Piece]) -> str:
    half = _MAX_REPEATED_HEADER // 2
    return "\n".join(line.text[: cluster_border(line.text, 0, half)] for line in lines)


def _cut_lines(piece: Piece, limit: int = MAX_CHARACTERS) -> list[Piece]:
    """Cut a line that does not fit into a chunk, at sentence ends, else words, else clusters."""
    if len(piece.text) <= limit:
        return [piece]
    has_comments = piece.sent != piece.text
    comments = [span for span in inline.spans(piece.text) if span.is_comment] if has_comments else []
    made: list[Piece] = []
    starts = _line_parts(piece.text)
    for number, (start, border) in enumerate(starts):
        end = starts[number + 1][0] if number + 1 < len(starts) else len(piece.text)
        text = piece.text[start:end]
        part = replace(piece, text=text, sent=_outside(piece.text, start, end, comments) if comments else text)
        rank = (_mark(text), _evenness(number))
        made.append(replace(part, border=border, rank=rank, joiner="") if made else part)
    return made


def _evenness(number: int) -> int:
    """How often a number can be halved: the marks of a ruler, which cut any stretch near its middle.

    Lines and blocks are counted, not hashed, since editing a line must not change what comes first.
    """
    return (number & -number).bit_length() if number else 64


def _mark(text: str) -> int:
    """Give a sentence a number by how it begins.

    Sentences are hashed, not counted: one more or less in a long line must not move the borders behind it.
    Eight bits, so that text made to have ever falling numbers cannot make the cuts degenerate.
    """
    return zlib.crc32(text[:12].encode("utf-8", "surrogatepass")) & 0xFF


def _outside(text: str, start: int, end: int, comments: Sequence[inline.Span]) -> str:
    parts: list[str] = []
    position = start
    for span in comments:
        if span.end > position and span.start < end:
            parts.append(text[position : max(position, span.start)])
            position = min(span.end, end)
    return "".join([*parts, text[position:end]])


def _line_parts(text: str) -> list[tuple[int, Border]]:
    """Return where the parts of a long line start, each with the kind of border before it."""
    found: list[tuple[int, Border]] = []
    start = 0
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    for end in ends if ends and ends[-1] == len(text) else [*ends, len(text)]:
        border = Border.SENTENCE
        while start < end:
            found.append((start, border))
            if end - start <= _MAX_LINE_PART:
                start = end
            else:
                start, border = _word_border(text, start)
    return found


def _word_border(text: str, start: int) -> tuple[int, Border]:
    window = text[start : start + _MAX_LINE_PART]
    for match in _LAST_WORD.finditer(window[::-1]):
        return start + len(window) - match.start(), Border.WORD
    return start + cluster_border(text, start, _MAX_LINE_PART), Border.CLUSTER


def cluster_border(text: str, start: int, max_characters: int) -> int:
    """Return the length of the longest run of whole grapheme clusters from ``start``, at least one character.

    A cluster that is longer than allowed is cut: the cap holds even for a letter with 5,000 accents.
    """
    end = start
    stop = start + max_characters + 1
    for match in _CLUSTER.finditer(text, start, min(stop, len(text))):
        if match.end() >= stop:
            break
        end = match.end()
    return end - start or min(max_characters, len(text) - start)
