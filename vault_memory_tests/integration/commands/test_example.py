"""The example vault through the real steps: its questions find their notes, and what should stay out does."""

import pytest

from vault_memory.commands.demo import LEAKED, example_files, example_questions
from vault_memory.commands.status import status
from vault_memory.notes.model import NoteStatus
from vault_memory.query.search import search
from vault_memory_tests.fixtures.installation import Installation

OUT = {
    "00_Inbox/call the plumber.md",
    "02_Areas/健康/体检 2026.md",
    "02_Areas/家庭/礼物清单.md",
    "03_Resources/regex cheatsheet.md",
    "04_Archive/2024 阳台番茄.md",
    "04_Archive/old job/exit interview.md",
    "Infrastructure/home network.md",
}


@pytest.fixture
def example(installation: Installation) -> Installation:
    """The example vault, in memory."""
    for name, content in example_files().items():
        installation.vault.write(name, content)
    installation.vault.commit()
    installation.steps()
    return installation


def test_the_questions_find_their_notes(example: Installation) -> None:
    """With the offline embedder, nine questions of ten have an answering note among the first five hits."""
    questions = example_questions()
    missed = [
        question.id
        for question in questions
        if not {hit.source for hit in search(question.query, k=5, settings=example.settings).items}
        & set(question.sources)
    ]

    assert 0.9 <= 1 - len(missed) / len(questions), missed


def test_every_note_is_where_its_author_wants_it(example: Installation) -> None:
    """Notes outside the roots, in excluded folders, private ones and those of a pattern stay out; no other does."""
    found = status(example.settings)
    notes = {name for name in example_files() if name.endswith(".md")}

    assert (len(notes), len(OUT), len(notes) - len(OUT)) == (
        found.tracked,
        found.number(NoteStatus.EXCLUDED),
        found.number(NoteStatus.INDEXED),
    )
    found_by_its_own_words = {
        source: source in {hit.source for hit in search(text, k=100, settings=example.settings).items}
        for source, text in ((source, example_files()[source].decode()) for source in (*OUT, LEAKED))
    }
    assert {**dict.fromkeys(OUT, False), LEAKED: True} == found_by_its_own_words
