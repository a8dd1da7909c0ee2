"""How an evaluation is shown."""

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from matplotlib import image

from vault_memory.commands.evaluate import Report, draw, html, run, svg, table
from vault_memory.errors import MissingExtraError
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


@pytest.mark.parametrize("settings", [1, 2])
def test_the_picture_shows_every_estimate(report, tmp_path, settings):
    """A PNG whose pixels have the colour of each setting and of the minimum, also where a label is Chinese."""
    file = tmp_path / "plot.PNG"
    sliced = [Question("q1", "?", frozenset({"a"}), kind="决定"), Question("q2", "?", frozenset({"x"}))]
    one = judge(sliced, Setting(), lambda *_: result(hit(source="a")))
    draw(report if settings == 2 else Report(Path("q.jsonl"), (one,), None, None), file)
    assert file.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    pixels = image.imread(file)
    colours = {tuple(round(255 * part) for part in pixel[:3]) for row in pixels[::2] for pixel in row[::2]}
    expected = {(0x2B, 0x6C, 0xB0): True, (0xC0, 0x56, 0x21): settings == 2, (0xCC, 0, 0): settings == 2}
    assert expected == {colour: colour in colours for colour in expected}


def test_a_picture_without_its_library_says_what_to_install(monkeypatch, tmp_path):
    """Before a question is read or asked."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'vault-memory\[plot\]'"):
        run(None, tmp_path / "no questions", asked=[Setting()], plot=tmp_path / "plot.png")
