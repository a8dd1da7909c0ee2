"""From two legs to one order.

Belongs here: how the scores of the vector leg and the keyword leg become one, as pure functions. Does not: the
database, and the limits a result keeps (``search``).

Reciprocal rank fusion is not used: for a question in one language about notes in another it gives every note in
the question's language two votes; on a held-out set of bilingual help pages it cut cross-language Recall@5 from 84 to
23 %. Instead, per candidate,

* *dense*: the cosine, stretched so that the best candidate has 1 and the last one of the vector leg has 0;
* *keyword*: half the share of the question's inverse document frequency that the candidate matches, half its
  BM25 score, both relative to the best, scaled by what the best one explains of the question. That scale is bent: the
  pairs of Chinese characters at the seams of words stand in no note, so that even the passage a question was made from
  matches four tenths of it, and a scale in proportion let vectors without a favourite overrule it. Who matches a tenth
  is heard half as loud as who matches all;
* for candidates in the other writing system, which keywords cannot reach, the keyword value of the candidate
  that has the same rank in the question's own writing system (the *imputed* vote), by dense rank.

The weight was chosen on labelled vaults, but little hangs on it: chosen on two of three vaults and measured on the
third, Recall@5 is above that of the better leg or within a third of a point of it, whichever vault is left out
(``benchmarks/recall.py``, the table is in ``docs/retrieval.md``). ``vault-memory eval`` tells how it does on one's own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from vault_memory.notes.tokens import CJK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

KEYWORD_WEIGHT: Final = 1.25
"""Of the keyword value, where the dense value has 1."""
_HALF_HEARD: Final = 0.1
"""Share of the question at which the keyword leg is heard about half as loud as one that explains all of it."""
# Vectors of letters know nothing that keywords do not: a tie-breaker, and a help with misspellings. At 0.25 it cost two
# of 79 questions about long notes, and at 0.1 none on any labelled vault.
_SPELLING_DENSE_WEIGHT: Final = 0.1
_CJK_SHARE: Final = 0.08
RECENT_HALF_LIFE_DAYS: Final = 90.0
_AGELESS_SHARE: Final = 0.5

_CJK_CHARACTER = re.compile(f"[{CJK}]")


@dataclass(frozen=True, slots=True)
class Candidate:
    """What the legs say of one chunk.

    Attributes:
        id: Breaks ties, so that the order is the same every time.
        script: ``cjk`` or ``latin``.
        vector_rank: From 1; None outside the vector leg.
        similarity: Cosine with the question; None where either has no vector.
        keyword_rank: From 1; None outside the keyword leg.
        keyword_score: BM25; None outside the keyword leg.
        coverage: Share (0 to 1) of the question's inverse document frequency that the chunk matches.
    """

    id: str
    script: str
    vector_rank: int | None = None
    similarity: float | None = None
    keyword_rank: int | None = None
    keyword_score: float | None = None
    coverage: float = 0.0


def script_of(text: str) -> str:
    """Return ``cjk`` where more than 8 % of a text's characters are, else ``latin``."""
    characters = sum(not character.isspace() for character in text)
    return "cjk" if len(_CJK_CHARACTER.findall(text)) > _CJK_SHARE * characters else "latin"


def ranked_anew(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates of several stores with the ranks that they have among all; scores stay.

    Args:
        candidates: Whose cosines come from one model.
    """
    by_similarity = _places([c for c in candidates if c.vector_rank is not None], lambda c: c.similarity)
    by_keyword = _places([c for c in candidates if c.keyword_rank is not None], lambda c: c.keyword_score)
    return [replace(c, vector_rank=by_similarity.get(c.id), keyword_rank=by_keyword.get(c.id)) for c in candidates]


def _places(candidates: Sequence[Candidate], score: Callable[[Candidate], float | None]) -> dict[str, int]:
    best_first = sorted(candidates, key=lambda c: (-(score(c) or 0.0), c.id))
    return {c.id: place for place, c in enumerate(best_first, start=1)}


def fuse(
    candidates: Sequence[Candidate], *, script: str, semantic: bool, keyword_weight: float = KEYWORD_WEIGHT
) -> list[tuple[float, Candidate]]:
    """Order candidates, best first, with a score from 0 to 1.

    Args:
        candidates: Of both legs; with one leg alone its own order is kept.
        script: The writing system of the question.
        semantic: Whether the vectors know meaning (a trained model) or only spelling (hashing).
        keyword_weight: In place of the usual one, for measurements; it counts where ``semantic`` holds.
    """
    dense = _stretched(candidates)
    keyword = _relative_scores(candidates)
    if not any(candidate.keyword_rank for candidate in candidates):
        scores = dense
    elif not any(candidate.vector_rank for candidate in candidates):
        scores = keyword
    elif semantic:
        votes = _impute(candidates, _keyword_votes(candidates, keyword), script)
        scores = [(d + keyword_weight * v) / (1 + keyword_weight) for d, v in zip(dense, votes, strict=True)]
    else:
        weight = _SPELLING_DENSE_WEIGHT
        scores = [(weight * d + k) / (1 + weight) for d, k in zip(dense, keyword, strict=True)]
    return sorted(zip(scores, candidates, strict=True), key=lambda pair: (-pair[0], pair[1].id))


def favour_recent(
    fused: Sequence[tuple[float, Candidate]], ages_days: Mapping[str, float]
) -> list[tuple[float, Candidate]]:
    """Order again, newer notes first among candidates that answer about as well.

    Half of a score is kept whatever the age, and the other half halves every 90 days: a note of today that answers half
    as well as one from years ago comes level with it, and no more.

    Args:
        fused: As ``fuse`` returns it.
        ages_days: By candidate id; a note from the future counts as new.
    """
    weighed = [
        (
            score
            * (_AGELESS_SHARE + (1 - _AGELESS_SHARE) * 0.5 ** (max(ages_days[c.id], 0.0) / RECENT_HALF_LIFE_DAYS)),
            c,
        )
        for score, c in fused
    ]
    return sorted(weighed, key=lambda pair: (-pair[0], pair[1].id))


def _stretched(candidates: Sequence[Candidate]) -> list[float]:
    inside = [c.similarity for c in candidates if c.vector_rank is not None and c.similarity is not None]
    if not inside:
        return [0.0] * len(candidates)
    low, high = min(inside), max(inside)
    width = high - low
    return [
        0.0
        if candidate.similarity is None
        else min(1.0, max(0.0, candidate.similarity - low) / width)
        if width > 0
        else float(candidate.similarity >= high)
        for candidate in candidates
    ]


def _relative_scores(candidates: Sequence[Candidate]) -> list[float]:
    best = max((candidate.keyword_score or 0.0 for candidate in candidates), default=0.0)
    return [(candidate.keyword_score or 0.0) / best if best > 0 else 0.0 for candidate in candidates]


def _keyword_votes(candidates: Sequence[Candidate], relative_scores: Sequence[float]) -> list[float]:
    best = max(candidate.coverage for candidate in candidates)
    if best <= 0:
        return [0.0] * len(candidates)
    heard = best * (1 + _HALF_HEARD) / (best + _HALF_HEARD)
    return [
        heard * (candidate.coverage / best + relative) / 2
        for candidate, relative in zip(candidates, relative_scores, strict=True)
    ]


def _impute(candidates: Sequence[Candidate], votes: Sequence[float], script: str) -> list[float]:
    given = list(votes)
    own = sorted((v for c, v in zip(candidates, votes, strict=True) if c.script == script), reverse=True)
    foreign = sorted(
        (i for i, c in enumerate(candidates) if c.script != script and c.vector_rank is not None),
        key=lambda i: (candidates[i].vector_rank or 0, candidates[i].id),
    )
    for i, vote in zip(foreign, own, strict=False):
        given[i] = max(given[i], vote)
    return given
