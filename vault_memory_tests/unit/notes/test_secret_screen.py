"""Which literals a text may hold: never one too few."""

from hypothesis import example, given
from hypothesis import strategies as st

from vault_memory.notes.secret_screen import SCREENED_CHARACTERS, Screen, grams

LETTERS = st.text("ab密 -", max_size=40)
LITERALS = st.lists(st.lists(st.text("ab密-", min_size=1, max_size=5), min_size=1, max_size=3), max_size=12)


@given(LETTERS, LITERALS)
@example("a密b", [["a密b"], ["密"], ["ab", "密ba"]])
def test_whatever_stands_in_a_text_is_possible(text: str, literals: list[list[str]]) -> None:
    """A thing that is ruled out has no literal in the text; the rest keeps its order."""
    screen = Screen([(number, tuple(given)) for number, given in enumerate(literals)])
    possible = screen.possible(text)
    there = [number for number, given in enumerate(literals) if any(literal in text for literal in given)]
    assert set(there) <= set(possible)
    assert sorted(possible) == possible


def test_most_of_what_is_not_there_is_ruled_out() -> None:
    """A screen that let everything pass would be none."""
    screen = Screen([("ghp", ("ghp_",)), ("sk", ("sk-live", "sk-test")), ("word", ("pass", "pw"))])
    assert ["word"] == screen.possible("nothing of the kind")
    assert ["sk", "word"] == screen.possible("begins as sk-t does")


def test_a_long_text_is_not_screened() -> None:
    """Everything is possible there."""
    screen = Screen([("ghp", ("ghp_",))])
    assert [] == screen.possible("x" * SCREENED_CHARACTERS)
    assert ["ghp"] == screen.possible("x" * (SCREENED_CHARACTERS + 1))


def test_short_texts_have_no_grams() -> None:
    """Two characters are no run of three."""
    assert frozenset() == grams("ab")
    assert {"abc", "bcd"} == grams("abcd")
