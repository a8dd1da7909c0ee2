"""Tokens in pieces: what a program puts together, and what spaces part.

Belongs here: reading the pieces as one. Does not: what a token looks like (``secret_rules``), nor pieces that stand in
one expression or over a line's end (``secret_views`` joins those).

::

    key = "sk-"; key += "..."      a = "ghp_"; b = "..."; f(a + b)      "".join(["hf_", "..."])      curl -H "$P1$P2"

Only literals are followed, never a function; a name's last value counts, as where a program runs from top to bottom.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from vault_memory.notes.secret_values import compiled, wordiness

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_ASSIGNMENTS: Final = 4_000
MAX_ASSEMBLED_CHARACTERS: Final = 1_000
_MAX_EXPRESSIONS: Final = 4_000

_LITERAL: Final = r"[fFrRbBuU]{0,2}(?P<quote>[\"'`])(?P<value>[^\"'`\n]{0,300})(?P=quote)"
# The sign first: a note of prose has none, and a name is then read backwards from it.
_ASSIGNMENT: Final = (
    r"(?P<sign>[+.&|]?)=[ \t]{0,4}(?:(?P<before>\$?[A-Za-z_][\w$]{0,40})[ \t]{0,4}(?:\+|\.\.?|<>|&)[ \t]{0,4})?"
    rf"(?:{_LITERAL}|(?<==)(?P<bare>[\w./+@:${{}}-]{{2,200}}))"
)
_NAME_BEFORE: Final = r"(?P<name>\$?[A-Za-z_][\w.$]{0,40})[ \t]{0,4}(?::[ \t]?[\w\[\]]{1,20}[ \t]{0,2})?\Z"
_ITEM: Final = r"(?:\$?[A-Za-z_][\w$]{0,40}|[\"'`][^\"'`\n]{0,200}[\"'`])"
_SUM: Final = rf"{_ITEM}(?:[ \t]{{0,4}}(?:\+|\|\||<>|&|\.\.|(?<=[ \t])\.(?=[ \t]))[ \t]{{0,4}}{_ITEM}){{1,8}}"
_TEMPLATE: Final = r"\$\{[A-Za-z_]\w{0,40}\}|\{[A-Za-z_]\w{0,40}\}|\$[A-Za-z_]\w{0,40}"
_FILLED: Final = rf"[\w.-]{{0,60}}(?:(?:{_TEMPLATE})[\w.-]{{0,60}}){{1,8}}"
_LIST: Final = rf"[\[(][ \t\n]{{0,20}}{_ITEM}(?:[ \t\n]{{0,20}},[ \t\n]{{0,20}}{_ITEM}){{1,11}}[ \t\n]{{0,20}},?[ \t\n]{{0,20}}[\])]"
_JOINERS: Final = ("join", "concat", "implode")


@dataclass(slots=True)
class _Known:
    """Values of names so far; how many pieces each was put together from, and where its first one stands."""

    values: dict[str, str] = field(default_factory=dict[str, str])
    pieces: dict[str, int] = field(default_factory=dict[str, int])
    starts: dict[str, int] = field(default_factory=dict[str, int])

    def take(self, name: str, value: str, start: int, *, added_to: str | None) -> None:
        """Set a name, or add to what a name held."""
        held = self.values.get(added_to, "") if added_to else ""
        if added_to and added_to in self.values:
            pieces, start = self.pieces[added_to] + 1, self.starts[added_to]
        else:
            pieces = 1
        self.values[name] = (held + value)[:MAX_ASSEMBLED_CHARACTERS]
        self.pieces[name] = pieces
        self.starts[name] = start


def assembled(text: str) -> Iterator[tuple[str, int]]:
    """Give what statements of a text put together from literals, with the offset of its first piece."""
    joins = any(word in text for word in _JOINERS)
    if "=" not in text and not joins:
        return
    known = _Known()
    for number, match in enumerate(compiled(_ASSIGNMENT).finditer(text)):
        if number >= MAX_ASSIGNMENTS:
            break
        name = compiled(_NAME_BEFORE).search(text, max(0, match.start() - 70), match.start())
        if name:
            yield from _assign(name["name"].lstrip("$"), match, known)
    for name, count in known.pieces.items():
        if count > 1:
            yield _statement(name, known), known.starts[name]
    if known.values or joins:
        yield from _expressions(text, known)


def _assign(name: str, match: re.Match[str], known: _Known) -> Iterator[tuple[str, int]]:
    value = match["value"] if match["bare"] is None else match["bare"]
    before = (match["before"] or "").lstrip("$")
    if not before and (own := compiled(r"\$\{?([A-Za-z_]\w{0,40})\}?").match(value)) and own[1] in known.values:
        before, value = own[1], value[own.end() :]  # TOKEN="${TOKEN}rest"
    added_to = name if match["sign"] else before or None
    if known.pieces.get(name, 1) > 1 and added_to != name:
        yield _statement(name, known), known.starts[name]  # it is about to be forgotten
    known.take(name, value, match.start(), added_to=added_to)


def _statement(name: str, known: _Known) -> str:
    return f'{name} = "{known.values[name]}"'


def _expressions(text: str, known: _Known) -> Iterator[tuple[str, int]]:
    """Give sums, filled templates and joined lists of names whose values are known."""
    patterns = [_FILLED] if "{" in text or "$" in text else []
    patterns += [_SUM] if any(sign in text for sign in ("+", "||", "<>", "&", "..", " . ")) else []
    patterns += [_LIST] if any(word in text for word in _JOINERS) else []
    for pattern in patterns:
        for number, match in enumerate(compiled(pattern).finditer(text)):
            if number >= _MAX_EXPRESSIONS:
                break
            value = _filled(match.group(), known) if pattern is _FILLED else _summed(match.group(), known)
            if value:
                target = compiled(rf"{_NAME_BEFORE[:-2]}[ \t]{{0,4}}:?=[ \t]{{0,4}}\Z").search(
                    text, max(0, match.start() - 70), match.start()
                )
                yield (f'{target["name"]} = "{value}"' if target else value), match.start()


def _filled(expression: str, known: _Known) -> str:
    missing = False

    def put(match: re.Match[str]) -> str:
        nonlocal missing
        value = known.values.get(match.group().strip("${}"))
        missing = missing or value is None
        return value or ""

    value = compiled(_TEMPLATE).sub(put, expression)
    return "" if missing or value in known.values.values() else value[:MAX_ASSEMBLED_CHARACTERS]


def _summed(expression: str, known: _Known) -> str:
    parts: list[str] = []
    for item in compiled(_ITEM).findall(expression):
        if item[0] in "\"'`":
            parts.append(item[1:-1])
        elif (value := known.values.get(item.lstrip("$"))) is not None:
            parts.append(value)
        else:
            return ""
    return "".join(parts)[:MAX_ASSEMBLED_CHARACTERS]


_LEFT: Final = r"[A-Za-z0-9]"
_PARTED: Final = r"(?P<head>[A-Za-z0-9_.-]{0,80})(?P<rest>(?:[ \t]{1,3}[A-Za-z0-9_-]{2,80}){1,8})"
_MAX_PARTED: Final = 200
_UNWORDLY: Final = 0.35
_RANDOM_GROUP: Final = 6


def parted(text: str, prefix: str) -> Iterator[tuple[str, int]]:
    """Give the tokens that begin with a prefix and are parted by spaces, closed up, with their offsets; longest first."""
    start = text.find(prefix)
    for _ in range(_MAX_PARTED):
        if start < 0:
            return
        match = compiled(_PARTED).match(text, start + len(prefix), start + len(prefix) + 500)
        if match and not compiled(_LEFT).match(text[start - 1 : start]):
            groups: list[str] = []
            for group in match["rest"].split():
                if not is_piece(group):
                    break
                groups.append(group)
            for count in range(len(groups), 0, -1):
                yield f"{prefix}{match['head']}{''.join(groups[:count])}", start
        start = text.find(prefix, start + len(prefix))


def is_piece(group: str) -> bool:
    """Tell a piece of a token from a word: letters beside digits, or letters that no word has in this order."""
    digits = sum(map(str.isdigit, group))
    if digits:
        return len(group) > digits or digits > 1
    turns = sum(a.islower() != b.islower() for a, b in pairwise(group))
    return turns > 2 or (len(group) >= _RANDOM_GROUP and wordiness(group) < _UNWORDLY)
