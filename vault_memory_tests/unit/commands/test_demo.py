"""The example vault as it is written, and how the demo shows text."""

import re
import unicodedata

import pytest

from vault_memory.commands import demo
from vault_memory.commands.demo import Question, example_files, example_questions
from vault_memory.notes import secrets

FILES = example_files()
NOTES = {name: content.decode() for name, content in FILES.items() if name.endswith(".md")}
KINDS = {
    "unquoted date": r"\A---\n(?:.*\n)*?created: \d{4}-\d{2}-\d{2}\n",
    "updated": r"(?m)^updated: \d{4}-\d{2}-\d{2}$",
    "no front matter": r"\A(?!---)\S",
    "Unicode tag": r"(?m)^tags: \[.*[\u4e00-\u9fff].*\]$",
    "inline tag": r"(?m) #\w+/\w+$",
    "wikilink": r"\[\[[^\]|]+\]\]",
    "wikilink with an alias": r"\[\[[^\]|]+\|[^\]]+\]\]",
    "embed": r"!\[\[[^\]]+\]\]",
    "table": r"(?m)^\|[-|:]+\|$",
    "code that looks like a heading": r"(?m)^```\w+\n(?:.*\n)*?# ",
    "callout": r"(?m)^> \[!\w+\]",
    "tasks": r"(?m)^- \[x\](?:.*\n)+?- \[ \]",
    "setext heading": r"(?m)^\w.*\n=+$",
    "comment": r"%%.+%%",
    "HTML comment": r"<!--.+-->",
    "footnote": r"(?m)^\[\^1\]: ",
    "block id": r"(?m) \^\w+$",
    "formula": r"\$[^$\n]+\$",
    "Chinese": r"[\u4e00-\u9fff]{20}",
    "Windows line ends": r"\r\n",
    "private": r"(?m)^private: true$",
}
NAMES = {"spaces": " ", "Chinese": r"[\u4e00-\u9fff]", "emoji": "🏃", "quotes": '"', "dots": r"/\.\.\.", "comma": ","}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_markdown_is_there(kind: str) -> None:
    """The example shows what real vaults hold, so that whoever breaks a kind sees it in the demo's numbers."""
    assert [name for name, text in NOTES.items() if re.search(KINDS[kind], text)]


@pytest.mark.parametrize("kind", NAMES)
def test_every_kind_of_name_is_there(kind: str) -> None:
    """Names as people give them, those that tools trip over included."""
    assert [name for name in NOTES if re.search(NAMES[kind], name)]


def test_there_are_about_thirty_notes_and_one_is_empty() -> None:
    """Enough for a search to have something to choose from."""
    assert 30 <= len(NOTES) <= 40
    assert ["02_Areas/scratch.md"] == [name for name, text in NOTES.items() if not text]


def test_the_diary_and_the_excluded_folders_are_there() -> None:
    """The PARA folders with content, and those that stay out."""
    assert 3 <= sum(name.startswith("02_Areas/日记/2026-03-") for name in NOTES)
    assert {"00_Inbox", "01_Projects", "02_Areas", "03_Resources", "04_Archive", "Infrastructure"} == {
        name.partition("/")[0] for name in NOTES
    }


def test_names_are_the_same_on_every_system() -> None:
    """No name changes when a file system normalises it, and none differs from another by case alone."""
    assert sorted(FILES) == sorted(unicodedata.normalize("NFC", name) for name in FILES)
    assert len(FILES) == len({name.casefold() for name in FILES})


@pytest.mark.parametrize("name", sorted(NOTES))
def test_no_note_is_taken_for_a_secret(name: str) -> None:
    """The example must not teach that ordinary notes are quarantined."""
    assert () == secrets.scan(NOTES[name])


def test_the_pasted_token_is_taken_for_one() -> None:
    """Control: the demo's fake token is found, and stands in no file of the example."""
    assert () != secrets.scan(f"Token for the release job: {demo.FAKE_TOKEN}\n")
    assert not [name for name, content in FILES.items() if demo.FAKE_TOKEN.encode() in content]


def test_the_story_is_about_notes_that_exist() -> None:
    """What the demo edits, renames, deletes and asks for is in the vault; what it renames to is not."""
    assert {demo.EDITED, demo.RENAMED[0], demo.DELETED, demo.LEAKED, *demo.KEPT_OUT} <= set(FILES)
    assert demo.RENAMED[1] not in FILES
    assert 1 == NOTES[demo.EDITED].count(demo.EDIT[0])


def test_there_are_25_questions_in_both_languages() -> None:
    """Each with an id of its own, a language, a kind, and sources that are in the vault and in memory."""
    questions = example_questions()

    assert 25 == len(questions) == len({question.id for question in questions})
    assert {"en", "zh", "mixed"} == {question.lang for question in questions}
    assert {"fact", "decision", "procedure", "cause", "table", "diary"} == {question.kind for question in questions}
    assert not [
        question
        for question in questions
        if not question.sources
        or not set(question.sources) <= set(NOTES) - set(demo.KEPT_OUT) - {demo.DELETED} | {demo.LEAKED}
    ]


@pytest.mark.parametrize("question", example_questions(), ids=lambda question: question.id)
def test_a_question_is_no_quotation(question: Question) -> None:
    """Questions are put as people put them: none stands in a note, and neither does most of one in a row."""
    words = re.findall(r"[a-z0-9]+|[\u4e00-\u9fff]", question.query.lower())
    longest = (3 * len(words)) // 4
    runs = {tuple(words[start : start + longest]) for start in range(len(words) - longest + 1)}
    for text in NOTES.values():
        own = re.findall(r"[a-z0-9]+|[\u4e00-\u9fff]", text.lower())
        assert not runs & {tuple(own[start : start + longest]) for start in range(len(own) - longest + 1)}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("x" * 10, "x" * 10),
        ("x" * 11, "x" * 9 + "…"),
        ("数据库备份", "数据库备份"),
        ("数据库备份a", "数据库备…"),
        ("a数据库备份", "a数据库备…"),
    ],
)
def test_a_line_fits_the_terminal(text: str, shown: str) -> None:
    """A cut text takes no more than ten columns, where a Chinese character takes two."""
    assert shown == demo._fitted(text, 10)
