"""``vault-memory eval``: how well the memory answers questions whose notes are known.

Belongs here: the tables, the JSON and the plot. Does not: the measures (``query.evaluation``).
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Final

from vault_memory.commands import picture
from vault_memory.errors import QueryError, VaultMemoryError
from vault_memory.query.evaluation import (
    GATE,
    MEASURES,
    Estimate,
    Evaluation,
    Setting,
    differences,
    evaluate,
    read_questions,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from vault_memory.settings import Settings

_PLOTS: Final = (".png", ".html", ".svg")
_COLOURS: Final = ("#2b6cb0", "#c05621")
_LEFT, _WIDTH, _ROW, _TOP = 190, 420, 26, 48


@dataclass(frozen=True, slots=True)
class Report:
    """One setting measured, or two beside each other.

    Attributes:
        questions_file: Where the questions came from.
        evaluations: One, or the two that are compared.
        change: Second minus first of every measure, question by question; None for one setting.
        min_recall: What the first setting's Recall@5 must reach.
    """

    questions_file: Path
    evaluations: tuple[Evaluation, ...]
    change: dict[str, Estimate] | None
    min_recall: float | None

    @property
    def recall(self) -> float:
        """The figure that ``min_recall`` is about."""
        return self.evaluations[0].overall.measures[GATE].value

    @property
    def passed(self) -> bool:
        """Whether the minimum is reached, or none is set."""
        return self.min_recall is None or self.recall >= self.min_recall

    def to_json(self) -> dict[str, Any]:
        """Return the contract of ``eval --json``."""
        return {
            "questions_file": str(self.questions_file),
            "questions": self.evaluations[0].overall.questions,
            "settings": [one.to_dict() for one in self.evaluations],
            "change": None
            if self.change is None
            else {
                name: {"value": round(one.value, 4), "low": round(one.low, 4), "high": round(one.high, 4)}
                for name, one in self.change.items()
            },
            "min_recall": self.min_recall,
            "passed": self.passed,
        }


def run(
    settings: Settings,
    questions_file: Path,
    *,
    asked: Sequence[Setting],
    min_recall: float | None = None,
    plot: Path | None = None,
) -> Report:
    """Measure one setting, or compare two, and draw the plot if one is wanted.

    Raises:
        QueryError: The questions are malformed, or the plot has no form that we can write.
        VaultMemoryError: The memory cannot answer, or the plot cannot be written.
    """
    if not 1 <= len(asked) <= len(_COLOURS):
        raise QueryError("want one setting, or two to compare")
    form = "" if plot is None else plot.suffix.lower()
    if plot is not None and form not in _PLOTS:
        raise QueryError("the plot is written as .png, .html or .svg")
    if form == ".png":
        picture.require()
    questions = read_questions(questions_file)
    evaluations = tuple(evaluate(questions, setting, settings) for setting in asked)
    change = differences(*evaluations) if len(evaluations) > 1 else None
    report = Report(questions_file, evaluations, change, min_recall)
    if plot is not None:
        try:
            draw(report, plot)
        except OSError as error:
            raise VaultMemoryError(f"{plot}: the plot cannot be written ({type(error).__name__})") from None
    return report


def draw(report: Report, plot: Path) -> None:
    """Write the plot, in the form that the file's name asks for.

    Raises:
        OSError: It cannot be written.
        MissingExtraError: A picture was asked for, and the library for it is not installed.
    """
    form = plot.suffix.lower()
    if form == ".png":
        picture.require()
        names = [one.setting.name for one in report.evaluations]
        picture.draw(plot, _rows(report), names=names, colours=_COLOURS, minimum=report.min_recall)
    else:
        plot.write_text(svg(report) if form == ".svg" else html(report), encoding="utf-8")


def table(report: Report) -> Iterator[str]:
    """Yield the lines that a terminal is shown."""
    for evaluation in report.evaluations:
        yield f"{evaluation.setting.name}, {evaluation.overall.questions} questions (95 % intervals)"
        for name, one in evaluation.overall.measures.items():
            yield f"  {name:<13}{one.value:6.3f}   {one.low:.3f} to {one.high:.3f}"
        if evaluation.slices:
            yield f"  {'slice':<20}{'n':>4}" + "".join(f"{name:>14}" for name in MEASURES)
        for label, scores in evaluation.slices.items():
            figures = "".join(f"{scores.measures[name].value:14.3f}" for name in MEASURES)
            yield f"  {label:<20}{scores.questions:>4}{figures}"
        if evaluation.missed:
            yield f"  not answered by the first five notes: question {', '.join(evaluation.missed)}"
        if evaluation.degraded:
            yield f"  {evaluation.degraded} questions could not be embedded: keywords alone answered them"
    if report.change is not None:
        first, second = (evaluation.setting.name for evaluation in report.evaluations)
        yield f"{second} minus {first}, question by question (95 % intervals; 'no clear change' where they hold 0)"
        for name, one in report.change.items():
            clear = "" if one.low > 0 or one.high < 0 else "   no clear change"
            yield f"  {name:<13}{one.value:+6.3f}   {one.low:+.3f} to {one.high:+.3f}{clear}"


def html(report: Report) -> str:
    """Return a page that needs nothing but itself: the plot, and the figures as text."""
    lines = "\n".join(escape(line) for line in table(report))
    title = f"Evaluation with {escape(report.questions_file.name)}"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{title}</title>\n"
        "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
        "pre{overflow-x:auto}svg{max-width:100%;height:auto}</style>\n</head>\n<body>\n"
        f"<h1>{title}</h1>\n{svg(report)}<pre>\n{lines}\n</pre>\n</body>\n</html>\n"
    )


def svg(report: Report) -> str:
    """Return a drawing: a dot for every measure of every slice, and a line for its interval."""
    marks: list[str] = []
    y = _TOP
    for text, estimates in _rows(report):
        marks.append(f'<text x="{_LEFT - 10}" y="{y + 4}" text-anchor="end">{escape(text)}</text>')
        for number, one in enumerate(estimates):
            marks += _dot(one, y + 7 * number - 3.5 * (len(estimates) - 1), _COLOURS[number])
        y += _ROW if estimates else _ROW // 2
    height = y + 30
    grid = [
        f'<line x1="{_x(share)}" y1="{_TOP - 14}" x2="{_x(share)}" y2="{height - 34}" stroke="#ddd"/>'
        f'<text x="{_x(share)}" y="{height - 16}" text-anchor="middle" fill="#666">{share:.1f}</text>'
        for share in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    ]
    if report.min_recall is not None:
        x = _x(report.min_recall)
        grid.append(
            f'<line x1="{x}" y1="{_TOP - 14}" x2="{x}" y2="{height - 34}" stroke="#c00" stroke-dasharray="4 3"/>'
        )
    legend = [
        f'<circle cx="{_LEFT + 150 * number}" cy="18" r="5" fill="{_COLOURS[number]}"/>'
        f'<text x="{_LEFT + 150 * number + 12}" y="22">{escape(one.setting.name)}</text>'
        for number, one in enumerate(report.evaluations)
    ]
    width = _LEFT + _WIDTH + 40
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" font-family="system-ui,sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join([*grid, *legend, *marks]) + "\n</svg>\n"
    )


def _rows(report: Report) -> list[tuple[str, list[Estimate]]]:
    """Return what is drawn, from top to bottom; a row without estimates parts two groups."""
    overall = [one.overall for one in report.evaluations]
    rows = [(name, [scores.measures[name] for scores in overall]) for name in MEASURES]
    for label in report.evaluations[0].slices:
        sets = [one.slices[label] for one in report.evaluations]
        rows += [("", []), (f"{label} ({sets[0].questions}): {GATE}", [scores.measures[GATE] for scores in sets])]
    return rows


def _dot(one: Estimate, y: float, colour: str) -> list[str]:
    tip = f"<title>{one.value:.3f}, {one.low:.3f} to {one.high:.3f}</title>"
    return [
        f'<line x1="{_x(one.low)}" y1="{y}" x2="{_x(one.high)}" y2="{y}" stroke="{colour}" stroke-width="2"/>',
        f'<circle cx="{_x(one.value)}" cy="{y}" r="4.5" fill="{colour}">{tip}</circle>',
    ]


def _x(share: float) -> float:
    return round(_LEFT + _WIDTH * share, 1)
