"""The measure of how much of a prompt a hit holds."""

import math

import pytest

from vault_memory.agent.recall import MIN_SIMILARITY, expected_share, is_question, sure_of
from vault_memory.notes.tokens import query_terms
from vault_memory.query.result import Leg, Legs, SearchResult
from vault_memory_tests.unit.query.results import hit


def asked(prompt, chunks, holding, *items, semantic=False):
    """Return a search's result in a vault of so many chunks; ``holding`` says in how many a token stands."""
    weights = {token: math.log((chunks + 1) / (holding.get(token, 0) + 0.5)) for token in query_terms(prompt).tokens}
    return SearchResult(prompt, "hybrid", None, None, False, (), items, weights, chunks=chunks, semantic=semantic)  # noqa: FBT003 - as the class has it


@pytest.mark.parametrize("chunks", [1, 2, 5, 30, 1_000, 100_000])
def test_half_of_the_telling_words_are_enough(chunks):
    """In a vault of one chunk as in one of a hundred thousand, whether the function words stand in it or not."""
    prompt = "why did we choose NATS over Kafka for the billing events"
    answer, other = (
        hit(text="NATS instead of Kafka: billing wants replay."),
        hit(text="Why did we do it for the others?"),
    )
    common = dict.fromkeys(("why", "did", "we", "over", "for", "the"), chunks // 2)
    for holding in ({"nats": 1, "kafka": 1, "billing": 1}, {"nats": 1, "kafka": 1, "billing": 1, **common}):
        assert (answer,) == sure_of(asked(prompt, chunks, holding, answer, other)).items


def test_one_word_is_a_coincidence():
    """However rare it is."""
    found = sure_of(asked("kafka billing", 2, {"kafka": 1}, hit(text="Kafka wrote novels.", title="x")))
    assert () == found.items


@pytest.mark.parametrize("similarity", [MIN_SIMILARITY, MIN_SIMILARITY - 0.01])
@pytest.mark.parametrize("semantic", [True, False])
def test_meaning_counts_where_vectors_know_it(similarity, semantic):
    """A near vector of a trained model is enough without a shared word; one of spelling is not."""
    near = hit(text="完全不同的文字", legs=Legs(Leg(1, similarity), None))
    kept = sure_of(asked("something in another language", 9, {}, near, semantic=semantic)).items
    assert (semantic and similarity >= MIN_SIMILARITY) == bool(kept)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("thanks", False),
        ("what should we do about that?", False),
        ("why is it so", False),
        ("billing", False),
        ("billing events", True),
        ("为什么", False),
        ("那我们怎么做呢", False),
        ("备份策略", True),
        ("", False),
    ],
)
def test_a_question_says_something(prompt, expected):
    """Courtesies and function words ask nothing of a memory; one word is too little."""
    assert expected == is_question(prompt)


def test_pairs_are_judged_by_their_characters():
    """A pair of function characters is a function word, one with a single such character is in between."""
    assert expected_share("什么") > expected_share("么选") > expected_share("备份")
    assert expected_share("what") > expected_share("billing")
