"""Which of many literals a text may hold: told for all of them at once.

Belongs here: sparing a text the rules that cannot match it. Does not: what follows from a literal that is there
(``secrets``, ``secret_labels``).

A literal of three characters or more stands in a text only if its first three do. A text's trigrams are cut once, a
literal's are known beforehand, so that most of some eight hundred literals are ruled out by one intersection of sets.
The rest is looked for as ever: a screen never hides a literal that is there.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

GRAM: Final = 3
SCREENED_CHARACTERS: Final = 3_000
"""Longer texts are not screened: to cut one takes longer than to look for all literals in it."""

_T = TypeVar("_T")


class Screen(Generic[_T]):
    """Things, each with literals one of which must stand in a text."""

    def __init__(self, things: Iterable[tuple[_T, tuple[str, ...]]]) -> None:
        """Cut the literals.

        Args:
            things: Each with its literals, at least one.
        """
        self._things = tuple(thing for thing, _ in things)
        self._by_gram: dict[str, list[int]] = {}
        self._always: list[int] = []
        for number, (_, literals) in enumerate(things):
            if any(len(literal) < GRAM for literal in literals):
                self._always.append(number)
            else:
                for gram in {literal[:GRAM] for literal in literals}:
                    self._by_gram.setdefault(gram, []).append(number)
        self._grams = frozenset(self._by_gram)

    def possible(self, text: str) -> list[_T]:
        """Return the things that may stand in a text, in their order; all that do are among them."""
        if len(text) > SCREENED_CHARACTERS:
            return list(self._things)
        numbers = set(self._always)
        for gram in self._grams & grams(text):
            numbers.update(self._by_gram[gram])
        return [self._things[number] for number in sorted(numbers)]


@lru_cache(maxsize=2)
def grams(text: str) -> frozenset[str]:
    """Return all runs of three characters of a text."""
    return frozenset(map("".join, zip(text, text[1:], text[2:], strict=False)))
