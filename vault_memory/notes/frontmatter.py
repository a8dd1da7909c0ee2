"""The YAML block at the top of a note, read as data from a stranger.

Belongs here: where front matter ends, its values as JSON-safe data, and what to say when it cannot be read.
Does not: which keys keep a note private (``exclusion``), titles and tags (``markdown``).

YAML is read from the parser's events, never composed into objects by PyYAML: an alias, a foreign tag, a
depth of 20,000 or a number of 5,000 digits stops at the event that shows it. Errors are states without a
message, because a YAML error quotes the line, and the line may hold a key.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, cast

import yaml

MAX_FRONT_MATTER_CHARACTERS: Final = 64 * 1024
MAX_FRONT_MATTER_LINES: Final = 2_000
MAX_DEPTH: Final = 32
MAX_EVENTS: Final = 1_000
MAX_NUMBER_DIGITS: Final = 100

# libyaml where PyYAML was built with it: the same events, ten times faster.
_LOADER = cast("type[yaml.SafeLoader]", getattr(yaml, "CSafeLoader", yaml.SafeLoader))

_FENCE = re.compile(r"---[ \t]*\r?")
_CLOSING = re.compile(r"\n(?:---|\.\.\.)[ \t]*\r?(?=\n|$)")
_CORE_TAGS: Final = {
    f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "timestamp", "map", "seq", "set")
}
_NULLS: Final = {"", "~", "null"}
_TRUE: Final = {"true", "yes", "on"}
_FALSE: Final = {"false", "no", "off"}
# YAML 1.1 reads 12:30 as 750 and 0123 as 83; both stay text, as Obsidian shows them.
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*)?\.?[0-9_]*(?:[eE][-+]?[0-9]+)?")
_NOT_A_NUMBER: Final = {".nan": "nan", ".inf": "inf", "+.inf": "inf", "-.inf": "-inf"}
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d?)-(\d\d?)(?:(?:[Tt]|[ \t]+)(\d\d?):(\d\d)(?::(\d\d)(?:\.(\d{0,9}))?)?"
    r"[ \t]*(Z|[-+]\d\d?(?::?\d\d)?)?)?"
)
_TOO_DEEP = re.compile(rf"(?:[\[{{][ \t]*){{{MAX_DEPTH + 1}}}")
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))")
_UNSEEN = re.compile(r"[\u00ad\u180e\u200b-\u200f\u2060-\u2064\ufeff]")


class FrontMatterState(StrEnum):
    """What became of the front matter."""

    ABSENT = "absent"
    OK = "ok"
    INVALID = "invalid"
    UNTERMINATED = "unterminated"
    NOT_A_MAPPING = "not_a_mapping"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The front matter of a note.

    Attributes:
        state: Whether there is one, and whether it could be read.
        first_body_line: File line (1-based) on which the body starts; may lie behind the last line.
        values: JSON-safe values by key, the last of equal keys; empty unless ``state`` is ``ok``.
        pairs: Every top-level key with its value in file order, duplicates kept: any truthy occurrence of a
            privacy key counts.
        raw: The text between the fences (all that follows where the closing one is missing).
    """

    state: FrontMatterState
    first_body_line: int
    values: Mapping[str, object] = field(default_factory=dict[str, object], repr=False)
    pairs: tuple[tuple[str, object], ...] = field(default=(), repr=False)
    raw: str = field(default="", repr=False)

    @property
    def raw_lines(self) -> tuple[str, ...]:
        """The lines between the fences; file line 2 comes first."""
        return tuple(self.raw.removesuffix("\n").split("\n")) if self.raw else ()

    @property
    def readable(self) -> bool:
        """Whether nothing is hidden from whoever looks for a key: absent, or read in full."""
        return self.state in {FrontMatterState.ABSENT, FrontMatterState.OK}


def split_front_matter(text: str) -> FrontMatter:
    """Find and read the front matter of a note whose byte-order mark is already removed.

    It counts only if line 1 is ``---``; the next line ``---`` (or YAML's ``...``) ends it. Never raises.
    """
    first, newline, _ = text.partition("\n")
    if not _FENCE.fullmatch(first):
        return FrontMatter(FrontMatterState.ABSENT, 1)
    start = len(first) + len(newline)
    closing = _CLOSING.search(text, max(start - 1, 0))
    if closing is None:
        return FrontMatter(FrontMatterState.UNTERMINATED, 1, raw=text[start:])
    source = text[start : closing.start() + 1]
    state, pairs = _state(source)
    return FrontMatter(state, source.count("\n") + 3, dict(pairs), tuple(pairs), source)


def _state(source: str) -> tuple[FrontMatterState, list[tuple[str, object]]]:
    too_long = len(source) > MAX_FRONT_MATTER_CHARACTERS or source.count("\n") > MAX_FRONT_MATTER_LINES
    if too_long or _TOO_DEEP.search(source):
        return FrontMatterState.REFUSED, []
    try:
        return FrontMatterState.OK, _read(source)
    except _NotAMapping:
        return FrontMatterState.NOT_A_MAPPING, []
    except _Refused:
        return FrontMatterState.REFUSED, []
    except (yaml.YAMLError, ValueError):  # ValueError: lone surrogates in libyaml's encoder
        return FrontMatterState.INVALID, []


def might_mention(raw_lines: Sequence[str], keys: Sequence[str]) -> bool:
    """Tell whether unreadable front matter may hold one of the keys; errs on the side of yes.

    Looks at the text alone, so that quotes, flow mappings, tabs and broken syntax make no difference: case,
    compatibility forms, invisible characters and YAML's escapes are undone first. ``privateer`` is not
    ``private``.
    """
    wanted = [re.escape(_fold(key)) for key in keys if key]
    if not wanted:
        return False
    pattern = re.compile(rf"(?<![\w-])(?:{'|'.join(wanted)})(?![\w-])")
    text = "\n".join(raw_lines)
    # A quoted key may run on behind a backslash at the line's end; a binary one cannot be read at all.
    unfolded = re.sub(r"\\\r?\n[ \t]*", "", text)
    return any(pattern.search(_fold(view)) for view in (text, unfolded)) or "!!binary" in text


def _fold(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        code = int(next(group for group in match.groups() if group), 16)
        return chr(code) if code <= 0x10FFFF else ""  # noqa: PLR2004 - the last code point

    return _UNSEEN.sub("", unicodedata.normalize("NFKC", _ESCAPE.sub(character, text)).casefold())


class _Refused(Exception):
    """The front matter asks for something that a note has no need of."""


class _NotAMapping(Exception):
    """The front matter is a list or a single value."""


def _read(source: str) -> list[tuple[str, object]]:
    """Return the top-level pairs of a YAML text.

    Raises:
        _Refused: An alias, an anchor, a foreign tag, a merge key, or more than the limits allow.
        _NotAMapping: The top level is no mapping.
        yaml.YAMLError: Not YAML.
    """
    builder = _Builder()
    for count, event in enumerate(yaml.parse(source, Loader=_LOADER)):
        if count > MAX_EVENTS:
            raise _Refused
        builder.take(event)
    return builder.pairs()


class _Builder:
    """Makes plain values from events, with a stack of its own instead of recursion."""

    def __init__(self) -> None:
        self._documents = 0
        self._stack: list[_Collection] = []
        self._root: object = None
        self._top: list[tuple[str, object]] | None = None

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _Refused
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise _Refused
        elif isinstance(event, yaml.ScalarEvent):
            tag = _checked_tag(event.tag)
            plain = event.style in {None, ""}
            self._add(_scalar(event.value, tag, plain=plain), _clean(event.value))
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            tag = _checked_tag(event.tag)
            if len(self._stack) >= MAX_DEPTH:
                raise _Refused
            self._stack.append(_Collection(isinstance(event, yaml.MappingStartEvent), is_set=tag == "set"))
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            done = self._stack.pop()
            if not self._stack and done.is_mapping and not done.is_set:
                self._top = done.pairs
            value = done.value()
            self._add(value, json.dumps(value, ensure_ascii=False))

    def _add(self, value: object, as_key: str) -> None:
        if self._stack:
            self._stack[-1].add(value, as_key)
        else:
            self._root = value

    def pairs(self) -> list[tuple[str, object]]:
        if self._top is not None:
            return self._top
        if self._root is None:
            return []  # nothing but blanks and comments
        raise _NotAMapping


class _Collection:
    """A mapping, set or sequence while it is being read."""

    def __init__(self, is_mapping: bool, *, is_set: bool) -> None:  # noqa: FBT001 - private
        self.is_mapping = is_mapping
        self.is_set = is_set
        self.pairs: list[tuple[str, object]] = []
        self._items: list[object] = []
        self._key: str | None = None

    def add(self, value: object, as_key: str) -> None:
        if not self.is_mapping:
            self._items.append(value)
        elif self._key is None:
            if as_key == "<<":
                raise _Refused  # a merge would put keys where nobody looks for them
            self._key = as_key
        else:
            self.pairs.append((self._key, value))
            self._key = None

    def value(self) -> object:
        if self.is_set:
            return [key for key, _ in self.pairs]
        return dict(self.pairs) if self.is_mapping else self._items


def _checked_tag(tag: str | None) -> str | None:
    """Return the short name of a core tag, None where none is given.

    Raises:
        _Refused: A tag beyond YAML's core, for example ``!!python/object``.
    """
    if tag is None or tag == "!":
        return None if tag is None else "str"
    if tag not in _CORE_TAGS:
        raise _Refused
    return tag.rpartition(":")[2]


def _scalar(text: str, tag: str | None, *, plain: bool) -> object:
    """Give a scalar its JSON-safe value; what does not fit its type stays text."""
    if tag == "str" or (tag is None and not plain):
        return _clean(text)
    folded = text.casefold()
    if folded in _NULLS:
        return None
    if folded in _TRUE or folded in _FALSE:
        return folded in _TRUE
    if folded in _NOT_A_NUMBER:
        return _NOT_A_NUMBER[folded]
    if text[0] in "+-.0123456789":
        return _number_or_time(text)
    return _clean(text)


def _number_or_time(text: str) -> object:
    if len(text) > MAX_NUMBER_DIGITS:
        if re.fullmatch(r"[-+.0-9_eExX:a-fA-F]+", text):
            raise _Refused
        return _clean(text)
    if _INTEGER.fullmatch(text):
        return int(text.replace("_", ""))
    if _FLOAT.fullmatch(text) and any(character in text for character in ".eE"):
        try:
            number = float(text.replace("_", ""))
        except ValueError:
            return _clean(text)
        return number if math.isfinite(number) else str(number)
    stamp = _TIMESTAMP.fullmatch(text)
    return _iso(stamp) or _clean(text) if stamp else _clean(text)


def _iso(stamp: re.Match[str]) -> str | None:
    """Write a YAML timestamp in ISO 8601, None where there is no such day or hour."""
    year, month, day, hour, minute, second, fraction, zone = stamp.groups()
    try:
        date = dt.date(int(year), int(month), int(day))
        if hour is None:
            return date.isoformat()
        microsecond = int((fraction or "0")[:6].ljust(6, "0"))
        time = dt.time(int(hour), int(minute), int(second or 0), microsecond, tzinfo=_zone(zone))
        return dt.datetime.combine(date, time).isoformat()
    except ValueError:
        return None


def _zone(text: str | None) -> dt.timezone | None:
    if text is None:
        return None
    if text == "Z":
        return dt.UTC
    digits = text[1:].replace(":", "")
    hours, minutes = (digits[:-2], digits[-2:]) if len(digits) > 2 else (digits, "0")  # noqa: PLR2004 - hh or hhmm
    offset = dt.timedelta(hours=int(hours), minutes=int(minutes))
    return dt.timezone(-offset if text[0] == "-" else offset)


def _clean(text: str) -> str:
    """Replace what PostgreSQL's JSONB refuses: U+0000 and lone surrogates, which YAML's escapes can write."""
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
