"""How well the memory answers: questions with known sources, and figures with their uncertainty.

Belongs here: reading a file of questions, asking them, the measures and their intervals. Does not: tables and plots
(``commands.evaluate``), and what a figure means for a run (``defs.checks``).

Everything is counted by source: the ranking of a question is that of the distinct notes in its hits. Several sources
of one question are alternatives, any of which answers it, so that ``Recall@k`` is the share of questions answered
within the first ``k`` notes; only nDCG rewards finding more of them.
"""

from __future__ import annotations

import json
import math
import random
import re
import unicodedata
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from vault_memory.errors import QueryError
from vault_memory.query.context import DEFAULT_MAX_CHARS, render
from vault_memory.query.database import Sessions
from vault_memory.query.search import CHUNKS_PER_NOTE, MAX_K, Mode, search

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from vault_memory.query.search import SearchResult
    from vault_memory.settings import Settings

DEFAULT_K: Final = 5
"""Hits that a search shows unless it is told otherwise."""

DEPTH: Final = 10
"""Notes of a ranking that count."""

MEASURES: Final = ("recall@1", "recall@5", "recall@10", "mrr@10", "ndcg@10", "recall@block")
"""Names of the figures, in the order in which they are shown."""

GATE: Final = "recall@5"
"""The figure that a minimum is set for."""

_RECALLS: Final = {"recall@1": 1, "recall@5": 5, "recall@10": 10}
_SLICES: Final = ("lang", "kind")
_Z95: Final = 1.959963984540054  # the normal distribution's 97.5 % point
_RESAMPLES: Final = 1_000
_SEED: Final = 20_260_101
_SHOWN_ITEMS: Final = re.compile(r'\A<retrieved_context [^\n]*? items="(\d+)"')


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the notes that answer it.

    Attributes:
        id: Of the file, or its line's number.
        sources: Paths in the vault; any of them answers it.
        lang: A slice, such as ``en`` or ``zh``; empty if the file does not say.
        kind: Another one, such as ``decision``.
    """

    id: str
    query: str = field(repr=False)
    sources: frozenset[str]
    lang: str = ""
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """How questions are asked: ``mode``, and how many hits go into the block."""

    mode: Mode = "hybrid"
    k: int = DEFAULT_K

    @property
    def name(self) -> str:
        """``hybrid``, or ``hybrid:8`` where the number of hits is not the usual one."""
        return self.mode if self.k == DEFAULT_K else f"{self.mode}:{self.k}"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What became of one question.

    Attributes:
        ranking: Distinct sources, best first.
        shown: Sources inside the rendered block.
        degraded: The question could not be embedded and keywords answered alone.
    """

    question: Question
    ranking: tuple[str, ...]
    shown: frozenset[str]
    degraded: bool = False

    def value(self, measure: str) -> float:
        """Return a measure of this question, from 0 to 1."""
        if measure in _RECALLS:
            return found_within(self.ranking, self.question.sources, _RECALLS[measure])
        if measure == "mrr@10":
            return reciprocal_rank(self.ranking, self.question.sources)
        if measure == "ndcg@10":
            return discounted_gain(self.ranking, self.question.sources)
        return float(bool(self.shown & self.question.sources))


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over questions and its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Scores:
    """The measures of a set of questions, by name, in the order of ``MEASURES``."""

    questions: int
    measures: dict[str, Estimate]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON contract of a set's figures."""
        return {
            "questions": self.questions,
            **{
                name: {"value": _rounded(one.value), "low": _rounded(one.low), "high": _rounded(one.high)}
                for name, one in self.measures.items()
            },
        }


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All figures of one setting.

    Attributes:
        overall: Of all questions.
        slices: By ``lang=en`` and the like; only names that the file gives.
        judgements: In the order of the questions.
    """

    setting: Setting
    overall: Scores
    slices: dict[str, Scores]
    judgements: tuple[Judgement, ...]

    @property
    def degraded(self) -> int:
        """How many questions were answered by keywords alone although more was asked for."""
        return sum(judgement.degraded for judgement in self.judgements)

    @property
    def missed(self) -> tuple[str, ...]:
        """Ids of the questions without an answering note among the first five."""
        return tuple(one.question.id for one in self.judgements if not one.value(GATE))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON contract of one setting."""
        return {
            "mode": self.setting.mode,
            "k": self.setting.k,
            "degraded": self.degraded,
            "overall": self.overall.to_dict(),
            "slices": {name: scores.to_dict() for name, scores in self.slices.items()},
            "missed": list(self.missed),
        }


def read_questions(path: Path) -> tuple[Question, ...]:
    """Read a file with one JSON object a line: ``query`` and ``sources``, optionally ``id``, ``lang`` and ``kind``.

    Raises:
        QueryError: The file cannot be read, or a line is malformed; the message names the line, not its text.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise QueryError(f"{path}: cannot be read ({type(error).__name__})") from None
    questions: list[Question] = []
    seen: set[str] = set()
    # Not splitlines(): U+2028 may stand inside a JSON string.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            question = _question(line, number)
        except ValueError as error:
            raise QueryError(f"{path}:{number}: {error}") from None
        if question.id in seen:
            raise QueryError(f"{path}:{number}: another line has the same id")
        seen.add(question.id)
        questions.append(question)
    if not questions:
        raise QueryError(f"{path}: holds no question")
    return tuple(questions)


def _question(line: str, number: int) -> Question:
    try:
        parsed: object = json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        raise ValueError("not a JSON object") from None
    if not isinstance(parsed, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - a ValueError like every other fault of a line
    record = cast("dict[str, object]", parsed)
    query, sources = record.get("query"), record.get("sources")
    if not isinstance(query, str) or not query.strip():
        raise ValueError("query: want a text that is not blank")
    if not isinstance(sources, list) or not sources:
        raise ValueError("sources: want a list of at least one path")
    paths = cast("list[object]", sources)
    if not all(isinstance(source, str) and source for source in paths):
        raise ValueError("sources: want paths in quotes")
    if not all(isinstance(record.get(name, ""), str) for name in _SLICES):
        raise ValueError(f"{' and '.join(_SLICES)}: want texts")
    given_id = record.get("id", number)
    if isinstance(given_id, bool) or not isinstance(given_id, str | int):
        raise ValueError("id: want a text or a number")  # noqa: TRY004 - as above
    return Question(
        id=str(given_id),
        query=query,
        sources=frozenset(unicodedata.normalize("NFC", cast("str", source)) for source in paths),
        lang=cast("str", record.get("lang", "")),
        kind=cast("str", record.get("kind", "")),
    )


def parse_setting(text: str) -> Setting:
    """Read ``hybrid`` or ``hybrid:8``.

    Raises:
        QueryError: It is neither.
    """
    mode, colon, k = text.strip().partition(":")
    if mode not in get_args(Mode) or (colon and not re.fullmatch("[0-9]{1,3}", k)):
        raise QueryError("a setting is a mode (hybrid, vector or keyword), or a mode and a number of hits, hybrid:8")
    number = int(k) if colon else DEFAULT_K
    if not 1 <= number <= MAX_K:
        raise QueryError(f"k: want a number from 1 to {MAX_K}")
    return Setting(cast("Mode", mode), number)


def evaluate(questions: Sequence[Question], setting: Setting, settings: Settings) -> Evaluation:
    """Ask every question of the memory that the settings name, over one connection.

    Raises:
        VaultMemoryError: The memory cannot answer.
    """
    with Sessions() as sessions:
        return judge(
            questions,
            setting,
            lambda question, k: search(question, k=k, mode=setting.mode, settings=settings, sessions=sessions),
        )


def judge(questions: Sequence[Question], setting: Setting, ask: Callable[[str, int], SearchResult]) -> Evaluation:
    """Ask every question and measure the answers.

    Args:
        questions: At least one.
        setting: What ``ask`` was made for.
        ask: From a question and a number of hits to a result; fewer hits must be the first of more.
    """
    # Enough hits for ten notes, and for the block.
    wanted = min(MAX_K, max(CHUNKS_PER_NOTE * DEPTH, setting.k))
    judgements = tuple(_judged(question, setting, ask(question.query, wanted)) for question in questions)
    slices: dict[str, list[Judgement]] = {}
    for name in _SLICES:
        for judgement in judgements:
            if value := getattr(judgement.question, name):
                slices.setdefault(f"{name}={value}", []).append(judgement)
    return Evaluation(setting, scores(judgements), {name: scores(slices[name]) for name in slices}, judgements)


def _judged(question: Question, setting: Setting, result: SearchResult) -> Judgement:
    shown = result.items[: setting.k]
    block = _SHOWN_ITEMS.match(render(replace(result, items=shown), DEFAULT_MAX_CHARS))
    return Judgement(
        question,
        tuple(dict.fromkeys(hit.source for hit in result.items)),
        frozenset(hit.source for hit in shown[: int(block[1]) if block else 0]),
        degraded=result.mode != setting.mode,
    )


def scores(judgements: Sequence[Judgement]) -> Scores:
    """Average the measures: Wilson's interval where a question is answered or not, a bootstrap for the others."""
    measures: dict[str, Estimate] = {}
    for name in MEASURES:
        values = [judgement.value(name) for judgement in judgements]
        mean = math.fsum(values) / len(values)
        low, high = wilson(round(sum(values)), len(values)) if name.startswith("recall") else bootstrap(values)
        measures[name] = Estimate(mean, low, high)
    return Scores(len(judgements), measures)


def found_within(ranking: Sequence[str], sources: Iterable[str], k: int) -> float:
    """Return 1 if one of the sources is among the first ``k``, else 0.

    Averaged, this is Recall@k where one source answers, and the success rate S@k where several do (Craswell, in
    *Encyclopedia of Database Systems*, 2009).
    """
    wanted = set(sources)
    return float(any(source in wanted for source in ranking[:k]))


def reciprocal_rank(ranking: Sequence[str], sources: Iterable[str], depth: int = DEPTH) -> float:
    """Return ``1 / rank`` of the first source that answers, 0 if none is within ``depth``.

    Averaged: the mean reciprocal rank (Voorhees, *The TREC-8 Question Answering Track Report*, 1999).
    """
    wanted = set(sources)
    return next((1 / rank for rank, source in enumerate(ranking[:depth], start=1) if source in wanted), 0.0)


def discounted_gain(ranking: Sequence[str], sources: Iterable[str], depth: int = DEPTH) -> float:
    """Return the normalised discounted cumulated gain: ``sum 1 / log2(rank + 1)`` over that of the best ranking.

    Järvelin and Kekäläinen, *Cumulated gain-based evaluation of IR techniques*, ACM TOIS 20(4), 2002; a source is
    worth 1, and discounts begin at rank 2 as usual today (Burges et al., ICML 2005).
    """
    wanted = set(sources)
    gained = math.fsum(
        1 / math.log2(rank + 1) for rank, source in enumerate(ranking[:depth], start=1) if source in wanted
    )
    best = math.fsum(1 / math.log2(rank + 1) for rank in range(1, min(len(wanted), depth) + 1))
    return min(1.0, gained / best)


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Return the 95 % score interval of a proportion.

    ``(p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n)``: Wilson, *Probable inference, the law of succession, and
    statistical inference*, JASA 22, 1927. Unlike the textbook's it holds for few questions and for shares near 1
    (Brown, Cai and DasGupta, Statistical Science 16, 2001).
    """
    share, square = successes / trials, _Z95 * _Z95
    middle = share + square / (2 * trials)
    half = _Z95 * math.sqrt(share * (1 - share) / trials + square / (4 * trials * trials))
    low, high = ((middle + sign * half) / (1 + square / trials) for sign in (-1, 1))
    return max(0.0, min(low, share)), min(1.0, max(high, share))


def bootstrap(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of a mean by the percentile bootstrap, with a fixed seed: the same values give the same.

    Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993, chapter 13. For differences of paired values it is
    the paired bootstrap test's interval.
    """
    count = len(values)
    draw = random.Random(_SEED)  # noqa: S311 - resampling is no secret
    means = sorted(math.fsum(draw.choices(values, k=count)) / count for _ in range(_RESAMPLES))
    margin = round(0.025 * _RESAMPLES)
    return means[margin], means[_RESAMPLES - 1 - margin]


def differences(first: Evaluation, second: Evaluation) -> dict[str, Estimate]:
    """Return ``second - first`` of every measure over the same questions, with the interval of paired differences."""
    found: dict[str, Estimate] = {}
    for name in MEASURES:
        pairs = zip(first.judgements, second.judgements, strict=True)
        values = [theirs.value(name) - ours.value(name) for ours, theirs in pairs]
        found[name] = Estimate(math.fsum(values) / len(values), *bootstrap(values))
    return found


def _rounded(value: float) -> float:
    return round(value, 4)
