"""Known bugs of tools like this one, by their number: through the real steps, from a commit to an answer.

Parsing (B01 to B22) and search (B70 to B79). The parts' own tests look at each closer; here the outcome counts.
"""

import json
import subprocess
import sys

import psycopg
import pytest

from vault_memory.query import search
from vault_memory.query.database import connect
from vault_memory_tests.fixtures.installation import Installation

COMMAND = [sys.executable, "-m", "vault_memory.query.cli"]


@pytest.fixture
def remember(installation: Installation):
    """Commit notes, bring them into memory, and return their chunks in order."""

    def do(**notes: str | bytes) -> list[dict]:
        for name, content in notes.items():
            installation.vault.write(f"01_Projects/{name}.md", content)
        installation.vault.commit()
        outcomes = installation.steps()
        assert all(outcome.blob_id and not outcome.error for outcome in outcomes.values())
        with connect(installation.settings) as connection:
            return connection.execute("SELECT * FROM memory_live ORDER BY note_id, ordinal").fetchall()

    return do


@pytest.fixture
def first(installation: Installation):
    """Ask, and return the best hit."""

    def do(question: str, **given):
        return search(question, settings=installation.settings, **given).items[0]

    return do


def test_b01_a_comment_in_a_fence_is_no_heading(remember, first):
    """The script stays in one chunk, and the section after it keeps its path."""
    remember(x="# Setup\n\n```bash\n# install deps\npip install wheelbarrow\n# done\n```\n\n## After\n\nrest here\n")
    hit = first("wheelbarrow")
    assert ("Setup", 1, 7) == (hit.heading_path, hit.start_line, hit.end_line)
    assert "# install deps\npip install wheelbarrow\n# done" in hit.text
    assert "Setup > After" == first("rest").heading_path


def test_b04_underlined_headings_count_and_front_matter_does_not(remember):
    """A setext title and subtitle; the closing rule of the front matter underlines nothing."""
    rows = remember(x="---\ntags: a\n---\nTitle\n=====\n\nabout\n\nSub\n---\n\nmore\n")
    assert [("Title", 1), ("Title > Sub", 2)] == [(row["heading_path"], row["level"]) for row in rows]


@pytest.mark.parametrize("ends", ["\r\n", "\r"])
def test_b05_a_mark_and_foreign_line_ends_change_nothing(remember, ends):
    """Front matter is read, the first heading kept, and the lines are the same."""
    text = "---\ntitle: Kites\n---\n# A\n\nabout kites\n\n## B\nmore\n"
    rows = remember(plain=text, windows=("\ufeff" + text.replace("\n", ends)).encode())
    shape = [
        (r["title"], r["heading_path"], r["start_line"], r["end_line"], r["content"], r["text_hash"]) for r in rows
    ]
    assert {"Kites"} == {row[0] for row in shape}
    assert shape[: len(shape) // 2] == shape[len(shape) // 2 :]


def test_b06_a_bare_date_is_no_reason_to_lose_a_note(remember, first, installation):
    """YAML makes a date of it, JSON knows none, and the note is found all the same; also times and what is no number."""
    remember(x="---\ncreated: 2026-07-30\nat: 2026-07-30 10:00:00\nn: .nan\ns: !!set {a, b}\n---\nabout otters\n")
    assert "01_Projects/x.md" == first("otters").source
    with connect(installation.settings) as connection:
        stored = connection.execute("SELECT front_matter FROM memory_live_note").fetchone()["front_matter"]
    assert "2026-07-30" == stored["created"]


@pytest.mark.parametrize("head", ["key: [unclosed", "\ta: b", "a: 1\na: 2", "title: a: b"])
def test_b07_broken_front_matter_keeps_the_body(remember, first, installation, head):
    """The body is found, and the vault is not written to."""
    text = f"---\n{head}\n---\n# Heron\n\na heron stood there\n"
    remember(x=text)
    assert "a heron stood there" in first("heron").text
    assert text == (installation.vault.path / "01_Projects/x.md").read_text()
    assert "" == installation.vault.git("status", "--porcelain")


def test_b09_lines_are_those_of_the_file(remember, first, installation):
    """Front matter counts, also for the later pieces of a long section."""
    lines = [
        "---",
        "a: 1",
        "b: 2",
        "---",
        "# A",
        "",
        *[f"Paragraph {n} about stones.\n" for n in range(80)],
        "a badger",
    ]
    remember(x="\n".join(lines) + "\n")
    hit = first("badger")
    file_lines = (installation.vault.path / "01_Projects/x.md").read_text().split("\n")
    assert "a badger" == file_lines[hit.end_line - 1]
    assert hit.text == "\n".join(file_lines[hit.start_line - 1 : hit.end_line])
    assert hit.start_line > 100


def test_b10_a_line_without_end_is_cut(remember):
    """10,000 characters without a blank line: no chunk is over the cap, and nothing is lost."""
    line = "".join(f"word{n} " for n in range(1_500)).strip()
    rows = remember(x=line)
    assert max(len(row["content"]) for row in rows) <= 1_200
    assert line.split() == [word for row in rows for word in row["content"].split()]


def test_b13_every_piece_of_a_table_has_its_header(remember, first):
    """Row 190 of 200 is shown under its columns."""
    table = [f"| item{n} | price{n} |" for n in range(200)]
    remember(x="\n".join(["# List", "", "| thing | cost |", "|---|---|", *table]))
    assert ["| thing | cost |", "|---|---|"] == [row for row in first("item190").text.split("\n") if "item" not in row][
        :2
    ]


def test_b15_nothing_is_embedded_for_nothing_and_the_note_is_found(remember, first):
    """Empty, blank and front-matter-only notes, and headings in a row, stay findable by their titles."""
    rows = remember(walrus="", pelican="\n \n", x="---\ntitle: Marmoset\n---\n", y="# Ocelot\n## Tapir\n")
    assert [None, None] == [row["embedding"] for row in rows if not row["content"] and row["title"] != "Marmoset"]
    found = {word: first(word).source for word in ("walrus", "pelican", "marmoset", "ocelot", "tapir")}
    assert {
        "walrus": "01_Projects/walrus.md",
        "pelican": "01_Projects/pelican.md",
        "marmoset": "01_Projects/x.md",
        "ocelot": "01_Projects/y.md",
        "tapir": "01_Projects/y.md",
    } == found


def test_b16_a_heading_alone_is_no_chunk(remember):
    """It goes with the section below it."""
    (row,) = remember(x="# A\n## B\n\ntext\n")
    assert ("A > B", 1, 4) == (row["heading_path"], row["start_line"], row["end_line"])


def test_b18_a_word_at_the_end_of_a_long_note_is_found(remember, first):
    """Behind character 6,000, by either leg."""
    remember(x="filler words of no interest\n\n" * 400 + "quetzalcoatl\n")
    for mode in ("keyword", "hybrid"):
        assert "quetzalcoatl" in first("quetzalcoatl", mode=mode).text


def test_b20_tags_are_unicode(remember, first):
    """Nested, accented and with digits; a number alone is none."""
    rows = remember(x="#项目/子项 #café #1990s #123\n\nabout newts\n")
    assert {"项目/子项", "café", "1990s"} == set(rows[0]["tags"])
    for tag in ("项目", "项目/子项", "CAFÉ", "#1990s"):
        assert "01_Projects/x.md" == first("newts", tag=tag).source


def test_b22_the_same_paragraph_twice_is_kept_twice(remember):
    """Two chunks with ids of their own."""
    rows = remember(x="## Same\ntext of it\n\n## Same\ntext of it\n")
    assert (2, 2, 1) == (len(rows), len({row["chunk_id"] for row in rows}), len({row["text_hash"] for row in rows}))


@pytest.mark.parametrize("text", ["pre-edit", "don't", "GB/s", "C++", '"open', "a & | !", "!!", "a:*", "' OR 1=1 --"])
def test_b70_no_question_is_a_syntax_error(remember, installation, text):
    """Whatever is typed, in every mode, is a question about words."""
    remember(x="Some pre-edit notes: don't exceed 10 GB/s in C++, and keep the door open.\n")
    for mode in ("hybrid", "vector", "keyword"):
        found = search(text, mode=mode, settings=installation.settings).items
        if text in ("pre-edit", "don't", "GB/s", "C++", '"open'):
            assert ["01_Projects/x.md"] == [hit.source for hit in found]


def test_b72_a_part_of_a_chinese_sentence_is_found(remember, first):
    """Without a dictionary, by keywords alone."""
    remember(x="昨天我们讨论了独角兽公司的估值方法。\n", y="今天天气很好，适合散步。\n")
    assert "01_Projects/x.md" == first("独角兽", mode="keyword").source


def ask(installation: Installation, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run the agent's command."""
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, check=False, timeout=60, env=dict(installation.environment)
    )


@pytest.mark.parametrize("text", ["", "   ", "\u3000", "\u200b"])
def test_b75_a_blank_question_is_wrong_usage(remember, installation, text):
    """Exit status 2 and one line."""
    remember(x="about otters\n")
    done = ask(installation, text)
    assert (2, b"", 1) == (done.returncode, done.stdout, done.stderr.count(b"\n"))


def test_b75_a_huge_question_is_cut(remember, installation):
    """100,000 characters are a question as well: the first 2,000 of them."""
    remember(x="about otters\n")
    done = ask(installation, "otters " * 14_000, "--format", "json")
    answer = json.loads(done.stdout)
    assert (0, ["01_Projects/x.md"]) == (done.returncode, [item["source"] for item in answer["items"]])
    assert ["the question was cut to 2,000 characters"] == [line for line in answer["notices"] if "cut" in line]


def test_b76_an_empty_memory_answers_with_nothing(installation, database):
    """No note yet: empty output, exit 0."""
    installation.vault.write("readme.txt", "no note")
    installation.vault.commit()
    installation.steps()
    done = ask(installation, "anything")
    assert (0, b"") == (done.returncode, done.stdout)
    with psycopg.connect(database) as connection:
        assert (0,) == connection.execute("SELECT count(*) FROM vault_memory.memory_chunk").fetchone()


def test_b79_nothing_but_the_answer_comes_out_of_a_pipe(remember, installation):
    """No progress bar, no colour, no carriage return."""
    remember(x="about otters\n")
    done = ask(installation, "otters")
    assert (0, b"") == (done.returncode, done.stderr)
    assert not {"\r", "\x1b", "\b"} & set(done.stdout.decode())
    assert done.stdout.startswith(b"<retrieved_context ")
    assert done.stdout.endswith(b"</retrieved_context>\n")
