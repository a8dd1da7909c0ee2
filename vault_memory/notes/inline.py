"""What stands inside a block of Markdown: code, comments, links and tags, found by linear scans.

Belongs here: reading a block's text without building a tree. Does not: where blocks begin and end
(``markdown``).

An inline parser is not needed to find these few things, and markdown-it's is quadratic on crafted text
(``[[[[``, backticks, emphasis); every scan here looks at a character a bounded number of times.
"""

from __future__ import annotations

import bisect
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import regex

_LIST_MARKER: Final = r"(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*"
_INTERESTING = re.compile(
    rf"(?P<fence>^[ \t>]*{_LIST_MARKER}(?P<marks>`{{3,}}|~{{3,}}))|\\[^\n]|`+|%%|<!--", re.MULTILINE
)
_FENCE_END = re.compile(r"^[ \t>]*(?P<marks>`{3,}|~{3,})[ \t]*$", re.MULTILINE)
_TICKS = re.compile("`+")
_BLANK_LINE = re.compile(r"\n[ \t>]*(?=\n)")

_WIKILINK = re.compile(r"(!?)\[\[([^\[\]\n]{1,1000})\]\]")
_DESTINATION = re.compile(r"\]\([ \t]*(?:<([^<>\n]*)>|([^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*))")
_URL_TAIL = re.compile(r"://\S+")
_HTML_TAG = re.compile(r"<[A-Za-z/][^<>\n]*>")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,20}:")
_TAG = regex.compile(
    r"""(?<![^\s(\[{<>|*_~,;!?"'“‘（【「『《，。、；：！？…—·])"""
    r"""\#([\p{L}\p{M}\p{N}_/\-\p{Extended_Pictographic}\u200d\ufe0f]+)"""
)
_BLOCK_ID = re.compile(r"(?:^|(?<=[ \t]))\^[A-Za-z0-9-]+[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a block's text (offsets, end exclusive) that is code or a comment."""

    start: int
    end: int
    is_comment: bool


def spans(text: str) -> list[Span]:
    """Find code spans, nested fences and comments in the text of one block, in order and disjoint.

    ``%%`` and ``<!--`` without an end are text; a comment that starts first hides code, and the other way round.
    """
    return list(_spans(text))


def _spans(text: str) -> Iterator[Span]:
    runs, blanks = _Runs(text), [match.start() for match in _BLANK_LINE.finditer(text)]
    open_ended: set[str] = set()  # marks that have no end any more: asked once, or the scan is quadratic
    position = 0
    while match := _INTERESTING.search(text, position):
        position = match.end()
        found = match.group()
        if match.group("fence") is not None:
            end = _fence_end(text, match)
            if end is None:  # inline code in three backticks
                found = match.group("marks")
            else:
                yield Span(match.start("marks"), end, is_comment=False)
                position = end
                continue
        if found[0] == "`":
            start = position - len(found)
            end = runs.closing(position, len(found))
            next_blank = bisect.bisect_left(blanks, start)
            if end is not None and (next_blank == len(blanks) or end <= blanks[next_blank]):
                yield Span(start, end, is_comment=False)
                position = end
        elif found[0] != "\\" and found not in open_ended:
            closing = "%%" if found == "%%" else "-->"
            end = text.find(closing, position)
            if end < 0:
                open_ended.add(found)
            else:
                position = end + len(closing)
                yield Span(match.start(), position, is_comment=True)


def _fence_end(text: str, opening: re.Match[str]) -> int | None:
    """Return where a nested fence ends (the text's end if it is never closed), None if it is no fence."""
    marks = opening.group("marks")
    line_end = text.find("\n", opening.end())
    if marks[0] == "`" and "`" in text[opening.end() : line_end if line_end >= 0 else len(text)]:
        return None
    if line_end < 0:
        return len(text)
    for closing in _FENCE_END.finditer(text, line_end + 1):
        if closing.group("marks")[0] == marks[0] and len(closing.group("marks")) >= len(marks):
            return closing.end()
    return len(text)


class _Runs:
    """Backtick runs by length, so that a run's partner is found without looking at the text again."""

    def __init__(self, text: str) -> None:
        self._starts: dict[int, list[int]] = {}
        for match in _TICKS.finditer(text):
            self._starts.setdefault(match.end() - match.start(), []).append(match.start())

    def closing(self, position: int, length: int) -> int | None:
        starts = self._starts.get(length, [])
        index = bisect.bisect_left(starts, position)
        return starts[index] + length if index < len(starts) else None


def blanked(text: str, found: Iterable[Span]) -> str:
    """Replace code and comments by spaces, line ends kept, so that offsets and lines stay right."""
    parts: list[str] = []
    position = 0
    for span in found:
        parts.append(text[position : span.start])
        parts.append(re.sub(r"[^\n]", " ", text[span.start : span.end]))
        position = span.end
    return "".join([*parts, text[position:]])


def without_comments(text: str) -> str:
    """Remove ``%%comments%%`` and HTML comments, and nothing else."""
    parts: list[str] = []
    position = 0
    for span in spans(text):
        if span.is_comment:
            parts.append(text[position : span.start])
            position = span.end
    return "".join([*parts, text[position:]])


def comment_lines(text: str) -> tuple[list[str | None], list[str]]:
    """Take the comments out of a block, line by line.

    Returns:
        Two lists with an entry for each line: the line as it stands, or None where it is nothing but comment;
        and the line without its comments.
    """
    lines = text.split("\n")
    hidden = [span for span in spans(text) if span.is_comment]
    if not hidden:
        return list(lines), lines
    shown: list[str | None] = []
    kept: list[str] = []
    offset = index = 0
    for line in lines:
        end = offset + len(line)
        parts: list[str] = []
        position = offset
        touched = False
        while index < len(hidden) and hidden[index].start <= end:
            touched = True
            parts.append(text[position : max(position, hidden[index].start)])
            position = min(max(position, hidden[index].end), end)
            if hidden[index].end > end:
                break
            index += 1
        rest = "".join([*parts, text[position:end]])
        kept.append(rest)
        shown.append(None if touched and not rest.strip(" \t>") and line.strip() else line)
        offset = end + 1
    return shown, kept


def as_read(text: str) -> str:
    """Write text the way a reader sees it: links by their alias, no block ids; code untouched.

    Comments are not looked for: text whose comments are gone may still hold two stray ``%%``.
    """
    parts: list[str] = []
    position = 0
    for span in spans(text):
        if not span.is_comment:
            parts += [_plain(text[position : span.start]), text[span.start : span.end]]
            position = span.end
    return "".join([*parts, _plain(text[position:])])


def _plain(text: str) -> str:
    if "[[" in text:
        text = _WIKILINK.sub(_label, text)
    return _BLOCK_ID.sub("", text) if "^" in text else text


def _label(match: re.Match[str]) -> str:
    target, bar, alias = match.group(2).replace("\\|", "|").partition("|")
    if bar and alias.strip() and not match.group(1):  # the "alias" of an embed is its width
        return alias.strip()
    note, _, heading = target.partition("#")
    heading = heading.strip().removeprefix("^")
    return " > ".join(part for part in (note.strip(), *heading.split("#")) if part)


def links(text: str) -> list[str]:
    """List the targets of wikilinks, embeds and relative Markdown links, without heading and alias.

    Args:
        text: A block whose code and comments are blanked.
    """
    found: list[tuple[int, str]] = []
    for match in _WIKILINK.finditer(text):
        target = match.group(2).replace("\\|", "|").partition("|")[0].partition("#")[0].strip()
        found.append((match.start(), target))
    for match in _DESTINATION.finditer(text):
        target = (match.group(1) or match.group(2) or "").partition("#")[0].strip()
        if not (_SCHEME.match(target) or target.startswith(("//", "#"))):
            found.append((match.start(), unquote(target.partition("?")[0])))
    return [target for _, target in sorted(found, key=lambda item: item[0]) if target]


def tags(text: str) -> list[str]:
    """List the tags in a block whose code and comments are blanked, without ``#``.

    A tag is Unicode letters, digits, ``_``, ``-`` and ``/`` with at least one that is no digit.
    """
    if "#" not in text:
        return []
    for pattern in (_WIKILINK, _HTML_TAG, _DESTINATION, _URL_TAIL):
        text = pattern.sub(" ", text)
    found = (match.group(1).strip("/") for match in _TAG.finditer(text))
    return [tag for tag in found if any(not character.isdecimal() and character != "/" for character in tag)]


def distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Drop repetitions (NFC, any case), the first spelling kept."""
    first: dict[str, str] = {}
    for name in names:
        first.setdefault(unicodedata.normalize("NFC", name).casefold(), name)
    return tuple(first.values())
