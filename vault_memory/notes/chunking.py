"""``CleanNote`` -> chunks: what is embedded, shown and cited on its own.

Belongs here: which pieces make a chunk, the exact text that is embedded, and chunk ids. Does not: where a
block may be cut at all (``pieces``), what a heading is (``markdown``).

A chunk that was paid for is found again by the hash of its text, so borders must stay where they are when
something else changes. Filling chunks one after the other would move every border behind an edit. Here a
section that is too long is cut in two at its best border, and each part again: an edit only matters to the
parts that hold it.
"""

from __future__ import annotations

import bisect
import hashlib
import re
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from vault_memory.notes import inline
from vault_memory.notes.model import Chunk, CleanNote, Document, Script, Section
from vault_memory.notes.pieces import MAX_CHARACTERS, SLACK_CHARACTERS, Piece, pieces

CHUNKER_VERSION: Final = "1"
"""Changes whenever the same note would give other chunks."""

MAX_TOKENS: Final = 8_000
"""Never reached: the longest text to embed is ``MAX_CHARACTERS`` and a heading prefix of 600, in bytes 6,400."""

_MAX_PREFIX_CHARACTERS: Final = 600
_MIN_CJK_SHARE: Final = 0.08
_CJK = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9d\U00020000-\U000323af]"
)
_BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+\n")
_ATX = re.compile(r"[ ]{0,3}#{1,6}(?:[ \t]|\r?$)")
_UNDERLINE = re.compile(r"[ ]{0,3}(?:=+|-+)[ \t]*\r?")


def chunk(note: CleanNote) -> tuple[Chunk, ...]:
    """Cut a note into chunks, in order; at least one, so that every note is found by its title.

    Every line that is neither blank nor comment lies in a chunk, and a chunk's content stands on its lines.
    """
    lines = note.text.split("\n")
    made = list(_chunks(note.document, lines))
    if not made:
        embed_text = _prefix(note.document, ())
        made = [_chunk(0, (), 0, (1, len(lines)), "", embed_text)]
    return tuple(made)


def chunk_ids(note_id: str, chunks: Sequence[Chunk]) -> tuple[str, ...]:
    """Name each chunk by its note, its text and its number among equal texts (32 hexadecimal digits).

    The parts are length-prefixed, so that no path can pose as another path and text.
    """
    seen: dict[str, int] = {}
    ids: list[str] = []
    for item in chunks:
        text_hash = item.text_hash
        ordinal = seen[text_hash] = seen.get(text_hash, -1) + 1
        digest = hashlib.sha256()
        for part in (note_id, text_hash, str(ordinal)):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(f"{len(data)}:".encode() + data)
        ids.append(digest.hexdigest()[:32])
    return tuple(ids)


def token_bound(text: str) -> int:
    """Return an upper bound of a text's tokens: its UTF-8 bytes.

    Byte-level tokenizers (cl100k and its kin) spend at least a byte on a token. A Chinese character counts
    three, which rare ones really cost; characters divided by four, the usual guess, is four times too low there.
    """
    return len(text.encode("utf-8", "surrogatepass"))


def _chunks(document: Document, lines: Sequence[str]) -> Iterator[Chunk]:
    waiting: list[tuple[Section, list[Piece]]] = []  # headings that nothing has followed yet
    ordinal = 0
    for section in document.sections:
        heading = _heading_lines(section, lines)
        made = pieces(section.blocks, heading, section.start_line)
        if heading and all(not piece.sent.strip() for piece in made):
            waiting.append((section, made))
            continue
        groups = _groups(made)
        for number, (start, end) in enumerate(groups):
            content = _content(made, start, end)
            first_line = made[start].start_line
            if number == 0 and waiting:
                folded = _folded(waiting, first_line)
                if len(folded) + len(content) <= MAX_CHARACTERS:
                    content, first_line = folded + content, waiting[0][0].start_line
                else:
                    alone = list(_headings_alone(document, waiting, ordinal))
                    ordinal += len(alone)
                    yield from alone
                waiting = []
            embed_text = _embed_text(document, section.heading_path, made[start:end])
            span = (first_line, made[end - 1].end_line)
            yield _chunk(ordinal, section.heading_path, section.level, span, content, embed_text)
            ordinal += 1
    yield from _headings_alone(document, waiting, ordinal)


def _heading_lines(section: Section, lines: Sequence[str]) -> list[str]:
    if section.level == 0:
        return []
    start = section.start_line - 1
    if _ATX.match(lines[start]):
        return [lines[start]]
    end = start + 1
    while end < section.end_line and not _UNDERLINE.fullmatch(lines[end]):
        end += 1
    return list(lines[start : end + 1])


def _folded(waiting: Sequence[tuple[Section, list[Piece]]], first_line: int) -> str:
    """Write headings that stand alone as they are shown before the section that follows them."""
    texts: list[str] = []
    for number, (_, made) in enumerate(waiting):
        following = waiting[number + 1][0].start_line if number + 1 < len(waiting) else first_line
        texts.append(_content(made, 0, len(made)) + "\n" * min(following - made[-1].end_line, 3))
    return "".join(texts)


def _headings_alone(
    document: Document, waiting: Sequence[tuple[Section, list[Piece]]], ordinal: int
) -> Iterator[Chunk]:
    """Make chunks of headings that no text follows: at the end of a note, or a long outline."""
    run: list[Piece] = []
    owners: list[Section] = []
    for section, made in waiting:
        for piece in made:
            run.append(piece)
            owners.append(section)
    start = 0
    while start < len(run):
        end, size = start + 1, len(run[start].text)
        while end < len(run) and size + 3 + len(run[end].text) <= MAX_CHARACTERS:
            size += 3 + len(run[end].text)
            end += 1
        # The last one names the chunk: in a chain of headings it holds all the others.
        last = owners[end - 1]
        parts = [run[start].text]
        for before, piece in zip(run[start : end - 1], run[start + 1 : end], strict=True):
            parts.append("\n" * min(piece.start_line - before.end_line, 3) + piece.text)
        beside = [
            owner.heading_path[-1]
            for owner in dict.fromkeys(owners[start:end])
            if owner.heading_path != last.heading_path[: len(owner.heading_path)]
        ]
        embed_text = "\n".join([_prefix(document, last.heading_path), *beside])
        span = (run[start].start_line, run[end - 1].end_line)
        yield _chunk(ordinal, last.heading_path, last.level, span, "".join(parts), embed_text)
        ordinal += 1
        start = end


def _groups(made: Sequence[Piece]) -> list[tuple[int, int]]:
    """Say which pieces (from, to) make a chunk."""
    ends = [0, *accumulate(len(piece.joiner) + len(piece.text) for piece in made)]

    def size(start: int, end: int) -> int:
        first = made[start]
        closing = made[end].closing if end < len(made) else ""
        return ends[end] - ends[start] - len(first.joiner) + len(first.repeated) + len(closing)

    keys = [(piece.border, piece.rank) for piece in made]
    groups: list[tuple[int, int]] = []
    stack = [(0, len(made))] if made else []
    while stack:
        start, end = stack.pop()
        total = size(start, end)
        if end - start == 1 or total <= MAX_CHARACTERS - SLACK_CHARACTERS:
            groups.append((start, end))
            continue
        # Borders that leave enough on both sides; without one, any border, but only where there must be a cut.
        first = bisect.bisect_left(ends, ends[start] + SLACK_CHARACTERS, start + 1, end)
        last = bisect.bisect_right(ends, ends[end] - SLACK_CHARACTERS, start + 1, end)
        if first >= last:
            if total <= MAX_CHARACTERS:
                groups.append((start, end))
                continue
            first, last = start + 1, end
        at = max(range(first, last), key=keys.__getitem__)
        stack += [(at, end), (start, at)]
    return groups


def _content(made: Sequence[Piece], start: int, end: int) -> str:
    first = made[start]
    parts = [first.repeated, first.text]
    for piece in made[start + 1 : end]:
        parts += [piece.joiner, piece.text]
    text = "".join(parts).rstrip("\n")
    return text + made[end].closing if end < len(made) else text


def _embed_text(document: Document, heading_path: Sequence[str], made: Sequence[Piece]) -> str:
    body = _BLANK_LINES.sub("\n\n", _sent(made)).strip("\n")
    prefix = _prefix(document, heading_path)
    if not body.strip():
        return prefix
    return f"{prefix}\n{body}" if prefix else body


def _sent(made: Sequence[Piece]) -> str:
    """Write the pieces as they are embedded: prose as it reads, code as it stands."""
    parts: list[str] = []
    prose: list[str] = []
    for number, piece in enumerate(made):
        joiner = piece.joiner if number else ""
        if piece.is_code:
            parts += [inline.as_read("".join(prose)), joiner, piece.repeated if not number else "", piece.sent]
            prose = []
        else:
            prose += [joiner, piece.repeated if not number else "", piece.sent]
    return "".join([*parts, inline.as_read("".join(prose))])


def _prefix(document: Document, heading_path: Sequence[str]) -> str:
    """Write ``title > heading path``; a title that is only the file name is never sent."""
    path = list(heading_path)
    if document.title_is_sent and path[:1] != [document.title]:
        path.insert(0, document.title)
    text = " > ".join(part for part in path if part)
    # The innermost headings say most.
    return text if len(text) <= _MAX_PREFIX_CHARACTERS else "…" + text[-_MAX_PREFIX_CHARACTERS + 1 :]


def _chunk(
    ordinal: int, heading_path: tuple[str, ...], level: int, span: tuple[int, int], content: str, embed_text: str
) -> Chunk:
    return Chunk(
        ordinal=ordinal,
        heading_path=heading_path,
        level=level,
        start_line=span[0],
        end_line=span[1],
        content=content,
        embed_text=embed_text,
        token_bound=token_bound(embed_text),
        script=script(content or embed_text),
    )


def script(text: str) -> Script:
    """Name the writing system that dominates: Chinese, Japanese and Korean above 8 % of the letters."""
    cjk = len(_CJK.findall(text))
    letters = cjk and sum(map(str.isalpha, text))
    return Script.CJK if cjk and cjk > _MIN_CJK_SHARE * letters else Script.LATIN
