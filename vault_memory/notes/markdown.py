r"""Markdown as Obsidian writes it -> a ``Document`` with exact file lines.

Belongs here: headings, sections, blocks and their lines; title, tags and links. Does not: how long a chunk may
be (``chunking``), what is inside a block (``inline``), YAML (``frontmatter``).

markdown-it-py decides about blocks alone; its inline parser is off, since it is quadratic on crafted text.
Lines are counted by ``\n`` and nothing else: form feeds, U+2028 and NEL are text, as in git and in editors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.ruler import RuleOptionsType
from markdown_it.rules_block import StateBlock
from markdown_it.token import Token

from vault_memory.notes import inline
from vault_memory.notes.frontmatter import FrontMatterState, split_front_matter
from vault_memory.notes.model import Block, BlockKind, Document, Section

MAX_HEADING_CHARACTERS: Final = 200
MAX_TITLE_CHARACTERS: Final = 200
# A formula longer than this is taken for two stray ``$$``: headings between them must not vanish.
_MAX_MATH_LINES: Final = 200
_MAX_NESTING: Final = 20

_KINDS: Final = {
    "fence": BlockKind.FENCE,
    "table_open": BlockKind.TABLE,
    "bullet_list_open": BlockKind.LIST,
    "ordered_list_open": BlockKind.LIST,
}
_COMMENT: Final = "vault_comment"
_HIDDEN: Final = "vault_hidden"
_MATH: Final = "vault_math"
_CODE: Final = {"fence", "code_block"}
_SPACES = re.compile(r"\s+")


@dataclass(slots=True)
class _Open:
    """A section while its blocks are being collected."""

    heading_path: tuple[str, ...]
    level: int
    start_line: int
    body_line: int
    blocks: list[Block] = field(default_factory=list)


def parse(text: str, *, fallback_title: str) -> Document:
    r"""Read a note. Never raises, whatever the text.

    Args:
        text: Decoded, without byte-order mark, line ends as ``\\n``.
        fallback_title: The title of a note that has none of its own: the file name without its suffix.
    """
    front_matter = split_front_matter(text)
    lines = text.split("\n")
    first = front_matter.first_body_line
    body = lines[first - 1 :]
    if front_matter.state is FrontMatterState.NOT_A_MAPPING:
        # Prose between two rules, most likely: it is body. Its last line is no heading, so the rules are blanked.
        first, body = 1, ["", *front_matter.raw_lines, "", *body]
    warnings: list[str] = []
    if not front_matter.readable:
        warnings.append(f"front_matter_{front_matter.state.value}")

    reader = _Reader(body, first)
    sections = reader.sections()
    if reader.unclosed_comment:
        warnings.append("comment_unclosed")

    own_title = _front_matter_title(front_matter.values) or next(
        (section.heading_path[-1] for section in sections if section.level == 1 and section.heading_path[-1]), None
    )
    tags = _front_matter_tags(front_matter.pairs)
    return Document(
        title=own_title or _one_line(fallback_title, MAX_TITLE_CHARACTERS),
        title_is_sent=own_title is not None,
        front_matter=front_matter.values,
        tags=inline.distinct([*tags, *reader.tags]),
        links=tuple(dict.fromkeys(reader.links)),
        sections=sections,
        warnings=tuple(warnings),
    )


class _Reader:
    """Walks the top-level tokens of a body and gathers sections, tags and links."""

    def __init__(self, lines: Sequence[str], first_line: int) -> None:
        self._lines = lines
        self._first_line = first_line
        self.tags: list[str] = []
        self.links: list[str] = []
        self.unclosed_comment = False

    def sections(self) -> tuple[Section, ...]:
        current = _Open((), 0, self._first_line, self._first_line)
        done: list[_Open] = []
        path: list[tuple[int, str]] = []
        covered = 0
        for token in _top_level(self._lines):
            start, end = self._extent(token, covered)
            if end <= start:
                continue
            # What no token claims is text all the same; nothing of a note may get lost.
            self._add(current, BlockKind.TEXT, covered, start, is_code=False)
            covered = end
            if token.type == "heading_open":
                level = int(token.tag[1])
                heading = self._heading(token, start, end)
                path = [(above, title) for above, title in path if above < level] + [(level, heading)]
                done.append(current)
                current = _Open(tuple(title for _, title in path), level, start + self._first_line, 0)
            elif not self._is_hidden(token, start, end):
                is_code = token.type in _CODE
                self._add(current, _KINDS.get(token.type, BlockKind.TEXT), start, end, is_code=is_code)
        self._add(current, BlockKind.TEXT, covered, len(self._lines), is_code=False)
        done.append(current)
        return self._closed(done)

    def _closed(self, opened: list[_Open]) -> tuple[Section, ...]:
        last_line = self._first_line + len(self._lines) - 1
        ends = [following.start_line - 1 for following in opened[1:]] + [last_line]
        return tuple(
            Section(section.heading_path, section.level, section.start_line, end, tuple(section.blocks))
            for section, end in zip(opened, ends, strict=True)
            if section.level or section.blocks
        )

    def _extent(self, token: Token, covered: int) -> tuple[int, int]:
        start, end = token.map or (covered, covered)
        start, end = max(start, covered), min(end, len(self._lines))
        while end > start and not self._lines[end - 1].strip():
            end -= 1  # a list's map takes the blank lines behind it along
        return start, end

    def _heading(self, token: Token, start: int, end: int) -> str:
        if token.markup in {"=", "-"}:  # setext: the last line is the underline
            text = "\n".join(self._lines[start : end - 1])
        else:
            text = re.sub(r"(?:^|[ \t])#+[ \t]*$", "", self._lines[start].strip(" \t").lstrip("#"))
        self._look_inside(text)
        return _one_line(inline.as_read(inline.without_comments(text)), MAX_HEADING_CHARACTERS)

    def _is_hidden(self, token: Token, start: int, end: int) -> bool:
        """Whether a block is comment from its first to its last character."""
        if token.type == _HIDDEN:
            self.unclosed_comment = True
            return True
        if token.type in {"html_block", _COMMENT, "paragraph_open"}:
            text = "\n".join(self._lines[start:end])
            if token.type == "html_block" and text.lstrip().startswith("<!--") and "-->" not in text:
                self.unclosed_comment = True
                return True
            return ("%%" in text or "<!--" in text) and not inline.without_comments(text).strip()
        return False

    def _add(self, section: _Open, kind: BlockKind, start: int, end: int, *, is_code: bool) -> None:
        while start < end and not self._lines[start].strip():
            start += 1
        while end > start and not self._lines[end - 1].strip():
            end -= 1
        if start == end:
            return
        lines = tuple(self._lines[start:end])
        section.blocks.append(Block(kind, start + self._first_line, end - 1 + self._first_line, lines))
        if not is_code:
            self._look_inside("\n".join(lines))

    def _look_inside(self, text: str) -> None:
        if "#" in text or "[" in text:
            text = inline.blanked(text, inline.spans(text))
            self.tags.extend(inline.tags(text))
            self.links.extend(inline.links(text))


def _top_level(lines: Sequence[str]) -> Iterator[Token]:
    # Same length, so that nothing else than "\n" ends a line for markdown-it.
    text = "\n".join(lines).replace("\r", " ").replace("\0", "\ufffd")
    for token in _parser().parse(text):
        if token.level == 0 and token.nesting >= 0 and token.map is not None:
            yield token


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"maxNesting": _MAX_NESTING}).enable("table")
    parser.core.ruler.enableOnly(["block"])
    # A reference definition is a line like any other: it has to be found.
    parser.block.ruler.disable(["reference"])
    interrupts: RuleOptionsType = {"alt": ["paragraph", "blockquote", "list"]}
    parser.block.ruler.before("fence", _COMMENT, _comment_rule, interrupts)
    parser.block.ruler.before("fence", _MATH, _math_rule, interrupts)
    return parser


def _comment_rule(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:  # noqa: FBT001 - theirs
    """``%%`` at a line's start, up to the line with the next ``%%``: headings in it are none.

    Without an end, ``%%`` alone on a line hides the rest of the note, as in Obsidian.
    """
    line = _line(state, start_line)
    if not line.startswith("%%") or "%%" in line[2:] or _is_indented(state, start_line):
        return False
    end = _find(state, start_line + 1, end_line, "%%", _COMMENT)
    if end is not None:
        return silent or _emit(state, _COMMENT, start_line, end + 1)
    if line.strip() == "%%" and state.level == 0:
        return silent or _emit(state, _HIDDEN, start_line, end_line)
    return False


def _math_rule(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:  # noqa: FBT001 - theirs
    """``$$`` at a line's start, up to a line that ends in ``$$``."""
    line = _line(state, start_line)
    if not line.startswith("$$") or "$$" in line[2:] or _is_indented(state, start_line):
        return False
    end = _next_math_end(state, start_line + 1)
    if end >= min(end_line, start_line + _MAX_MATH_LINES):
        return False
    if any(_left(state, number) for number in range(start_line + 1, end + 1)):
        return False
    return silent or _emit(state, _MATH, start_line, end + 1)


def _next_math_end(state: StateBlock, start_line: int) -> int:
    """Find the next line that ends in ``$$``; the answer holds for all lines up to there, so it is kept."""
    asked, found = state.env.get(_MATH, (0, -1))
    if not asked <= start_line <= found:
        found = start_line
        while found < len(state.bMarks) - 1 and not _line(state, found).rstrip().endswith("$$"):
            found += 1
        state.env[_MATH] = (start_line, found)
    return found


def _find(state: StateBlock, start_line: int, end_line: int, mark: str, name: str) -> int | None:
    """Find the next line that holds the mark; a search that failed is not repeated (it would be quadratic)."""
    barren = state.env.setdefault(name, {})
    if barren.get(end_line, end_line) <= start_line:
        return None
    for number in range(start_line, end_line):
        if _left(state, number):
            return None
        if mark in _line(state, number):
            return number
    barren[end_line] = start_line
    return None


def _left(state: StateBlock, line: int) -> bool:
    """Whether a line lies outside of the list item that the block began in."""
    return state.sCount[line] < state.blkIndent and not state.isEmpty(line)


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]


def _is_indented(state: StateBlock, line: int) -> bool:
    return state.sCount[line] - state.blkIndent >= 4  # noqa: PLR2004 - CommonMark: four spaces are code


def _emit(state: StateBlock, name: str, start_line: int, end_line: int) -> bool:
    state.line = end_line
    token = state.push(name, "", 0)
    token.map = [start_line, end_line]
    return True


def _one_line(text: str, max_characters: int) -> str:
    text = _SPACES.sub(" ", text).strip()
    return text if len(text) <= max_characters else text[: max_characters - 1].rstrip() + "…"


def _front_matter_title(values: Mapping[str, object]) -> str | None:
    for key, value in values.items():
        if key.casefold() == "title" and isinstance(value, (str, int, float)) and not isinstance(value, bool):
            return _one_line(str(value), MAX_TITLE_CHARACTERS) or None
    return None


def _front_matter_tags(pairs: Sequence[tuple[str, object]]) -> list[str]:
    """Read every ``tags`` and ``tag`` entry: a list, or text with commas or spaces, with or without ``#``."""
    found: list[str] = []
    for key, value in pairs:
        if key.casefold() in {"tags", "tag"}:
            items = value if isinstance(value, list) else [value]
            for item in items:
                if isinstance(item, (str, int, float)) and not isinstance(item, bool):
                    found.extend(part.strip("#/") for part in re.split(r"[,，、\s]+", str(item)))
    return [tag for tag in found if tag]
