"""Which hits of a prompt are handed over unasked: those that it is plain about, and no others.

Belongs here: the measure of how much of a prompt a hit holds, and its bounds. Does not: the search (``query.search``),
the hook (``hooks``).

A wrong note costs more than none. A hit is handed over if it holds half of what was asked, word by word, weighed by
rarity; words such as "why" and "the" ask nothing. How rare a word is, a vault of two notes cannot tell. So every vault
is read as if two hundred chunks of everyday prose lay beside it, one of which holds a given word. Beside those of
a large vault they weigh nothing.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from vault_memory.notes.tokens import CJK, positions, query_terms

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vault_memory.query.result import Hit, SearchResult

MIN_WORDS: Final = 2
"""Words of the prompt that a hit must hold: one is a coincidence, however rare it is."""
MIN_COVERAGE: Final = 0.5
"""Share of a prompt's words, weighed by rarity, that a note must hold to be handed over for its words."""
RARE_WORDS: Final = 4
"""As many of the prompt's rarest words are enough of a long prompt."""
MIN_SIMILARITY: Final = 0.5
"""Cosine by which a note is handed over for its meaning alone."""

_PROSE_CHUNKS: Final = 200.0
_SHARE_OF_FUNCTION_WORDS: Final = 0.5
_SHARE_OF_HALF_FUNCTION: Final = 0.05
_SHARE_OF_WORDS: Final = 0.005

_FUNCTION_WORDS: Final = frozenset(
    """
    a about after again all also am an and any anything are as at be because been before being between both but by can
    could did do does doing done don't each else ever every for from get give had has have having he her here him his
    how i if in into is it its just know let like make many may me might more most much must my need no not now of off
    on once only or other our out over own please remind said same say see she should show so some something such
    tell than that the their them then there these they thing think this those through to too under until up us use
    used very want was way we well were what when where which while who whom whose why will with would yes yet you
    your help explain again i'm it's what's that's let's can't didn't doesn't isn't
    """.split()  # noqa: SIM905 - a paragraph is read more easily than a list of 170 quoted words
)
_FUNCTION_CHARACTERS: Final = frozenset(
    "的了是我你他她它们在有和就不也都很吗呢吧啊呀嘛么什怎哪谁为把被给让跟与及或而但如果因所以可能会要想请问这那个些一几多少"
    "到从对于上下里中还又再已经过着得地没去来说做用时候样儿当前之後后其此该并且则"
)
_CJK_TOKEN = re.compile(f"[{CJK}]+")


def sure_of(result: SearchResult) -> SearchResult:
    """Keep the hits that hold half of what was asked, or mean it.

    Args:
        result: Of a search for the whole prompt.
    """
    weights = {token: _weight(token, result) for token in _telling(result.query)}
    rarest = max(weights.values(), default=0.0)
    enough = min(MIN_COVERAGE * sum(weights.values()), RARE_WORDS * rarest)

    def is_sure(hit: Hit) -> bool:
        vector = hit.legs.vector
        if result.semantic and vector is not None and vector.score >= MIN_SIMILARITY:
            return True
        held = _held(weights, (hit.title, hit.heading_path, hit.text))
        return len(held) >= MIN_WORDS and sum(weights[token] for token in held) >= enough

    return replace(result, items=tuple(hit for hit in result.items if is_sure(hit)))


def is_question(prompt: str) -> bool:
    """Return whether a prompt holds enough words that say something."""
    return len(_telling(prompt)) >= MIN_WORDS


def _telling(prompt: str) -> list[str]:
    return [token for token in query_terms(prompt).tokens if expected_share(token) < _SHARE_OF_FUNCTION_WORDS]


def expected_share(token: str) -> float:
    """Return in what share of chunks of everyday prose a token would stand, before any note was read."""
    if _CJK_TOKEN.fullmatch(token):
        # Pairs: 什么 is one of function characters alone, 么选 is the seam between such a one and a word.
        functional = sum(character in _FUNCTION_CHARACTERS for character in token)
        return (_SHARE_OF_WORDS, _SHARE_OF_HALF_FUNCTION)[functional > 0] if functional < len(token) else 0.5
    return _SHARE_OF_FUNCTION_WORDS if token in _FUNCTION_WORDS else _SHARE_OF_WORDS


def _weight(token: str, result: SearchResult) -> float:
    """Return a token's inverse document frequency over the vault and the prose beside it."""
    known = result.term_weights.get(token)
    # The statement's idf is ln((chunks + 1) / (holding + 0.5)).
    holding = 0.0 if known is None else max((result.chunks + 1) / math.exp(known) - 0.5, 0.0)
    holding += _PROSE_CHUNKS * expected_share(token)
    return math.log((result.chunks + _PROSE_CHUNKS + 1) / (min(holding, result.chunks + _PROSE_CHUNKS) + 0.5))


def _held(wanted: Iterable[str], texts: Iterable[str]) -> set[str]:
    tokens = set(wanted)
    return {token for text in texts for token, _, _ in positions(text) if token in tokens}
