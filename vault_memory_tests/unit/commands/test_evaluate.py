"""How an evaluation is shown."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from vault_memory.commands.evaluate import Report, html, svg, table
from vault_memory.query.evaluation import Question, Setting, differences, judge
from vault_memory_tests.unit.query.results import hit, result

QUESTIONS = [
    Question("q1", "?", frozenset({"a"}), lang="en", kind="<b>&"),
    Question("q2", "?", frozenset({"x"}), lang="zh"),
]


@pytest.fixture
def report():
    """Hybrid beside keyword; the first finds one of two."""
    first = judge(QUESTIONS, Setting(), lambda *_: result(hit(source="a")))
    second = judge(QUESTIONS, Setting("keyword"), lambda *_: result())
    return Report(Path("q.jsonl"), (first, second), differences(first, second), 0.75)


def test_the_minimum_is_for_recall_at_five_of_the_first(report):
    """Half is less than three quarters."""
    assert (0.5, False) == (report.recall, report.passed)
    assert Report(report.questions_file, report.evaluations, None, 0.5).passed
    assert Report(report.questions_file, report.evaluations, None, None).passed


def test_the_table_names_what_matters(report):
    """Figures with intervals, slices, missed questions and the comparison."""
    text = "\n".join(table(report))
    assert "hybrid, 2 questions" in text
    assert "recall@5      0.500   0.095 to 0.905" in text
    assert "lang=zh" in text
    assert "not answered by the first five notes: question q2\n" in text
    assert "keyword minus hybrid" in text
    assert "2 questions could not be embedded" in text


def test_the_drawing_is_whole_and_escaped(report):
    """Well-formed, nothing from elsewhere, and a dot for every measure of every setting inside the frame."""
    page = html(report)
    drawing = ET.fromstring(svg(report))
    name = "{http://www.w3.org/2000/svg}"
    width, height = float(drawing.get("width")), float(drawing.get("height"))
    dots = [dot for dot in drawing.iter(f"{name}circle") if dot.find(f"{name}title") is not None]
    assert 2 * (6 + 3) == len(dots)
    assert all(0 < float(dot.get("cx")) < width and 0 < float(dot.get("cy")) < height for dot in dots)
    assert "<b>" not in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "<script" not in page
