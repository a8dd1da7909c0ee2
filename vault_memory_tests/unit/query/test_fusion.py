"""From two legs to one order."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from vault_memory.query.fusion import Candidate, favour_recent, fuse, ranked_anew, script_of


def order(candidates, *, script="latin", semantic=True):
    """Return the ids, best first."""
    return [candidate.id for _, candidate in fuse(candidates, script=script, semantic=semantic)]


def test_one_leg_alone_keeps_its_order():
    """Without the other leg nothing is there to fuse."""
    vector = [Candidate(str(i), "latin", vector_rank=i, similarity=1 - i / 10) for i in (3, 1, 2)]
    keyword = [Candidate(str(i), "latin", keyword_rank=i, keyword_score=9.0 - i, coverage=0.1) for i in (3, 1, 2)]
    assert ["1", "2", "3"] == order(vector) == order(keyword)


def test_both_legs_beat_one():
    """A candidate that both legs know comes before the best of either."""
    assert (
        "both"
        == order(
            [
                Candidate("dense", "latin", vector_rank=1, similarity=0.80),
                Candidate("words", "latin", similarity=0.1, keyword_rank=1, keyword_score=10, coverage=0.6),
                Candidate(
                    "both", "latin", vector_rank=2, similarity=0.79, keyword_rank=2, keyword_score=9, coverage=0.6
                ),
                Candidate("last", "latin", vector_rank=3, similarity=0.2),
            ]
        )[0]
    )


def test_the_other_language_is_not_outvoted():
    """A Chinese note that answers an English question best is not pushed back by notes that share its words."""
    english = [
        Candidate(
            f"en{i}",
            "latin",
            vector_rank=i + 2,
            similarity=0.3 - i / 100,
            keyword_rank=i,
            keyword_score=9 - i,
            coverage=0.5,
        )
        for i in (1, 2, 3)
    ]
    answer = Candidate("zh", "cjk", vector_rank=1, similarity=0.8)
    assert "zh" == order([*english, answer])[0]


def test_weak_keywords_are_heard_little():
    """A leg that matches a tenth of the question does not overrule the meaning."""
    assert (
        "dense"
        == order(
            [
                Candidate("dense", "latin", vector_rank=1, similarity=0.8),
                Candidate(
                    "noise", "latin", vector_rank=9, similarity=0.2, keyword_rank=1, keyword_score=3, coverage=0.1
                ),
            ]
        )[0]
    )


def test_words_that_single_out_a_note_are_not_outvoted_by_vectors_without_a_favourite():
    """A Chinese passage with four tenths of the question's pairs, thrice what any other has, is among the first five."""
    flat = [
        Candidate(f"near{i:03}", "cjk", vector_rank=i, similarity=0.08 + 0.18 / i**0.3, keyword_rank=i + 1, keyword_score=8.0 - i / 20,
                  coverage=0.12 - i / 900)
        for i in range(1, 101)
    ]  # fmt: skip
    answer = Candidate("passage", "cjk", similarity=0.08, keyword_rank=1, keyword_score=23.0, coverage=0.4)
    assert "passage" in order([*flat, answer], script="cjk")[:5]


def test_vectors_of_spelling_do_not_overrule_words():
    """Hashing knows nothing that keywords do not: the keyword leg decides."""
    assert (
        "words"
        == order(
            [
                Candidate("letters", "latin", vector_rank=1, similarity=0.5),
                Candidate(
                    "words", "latin", vector_rank=9, similarity=0.1, keyword_rank=1, keyword_score=9, coverage=0.6
                ),
            ],
            semantic=False,
        )[0]
    )


CANDIDATES = st.lists(
    st.builds(
        Candidate,
        id=st.uuids().map(str),
        script=st.sampled_from(["cjk", "latin"]),
        vector_rank=st.none() | st.integers(1, 100),
        similarity=st.none() | st.floats(-1, 1),
        keyword_rank=st.none() | st.integers(1, 100),
        keyword_score=st.none() | st.floats(0, 100),
        coverage=st.floats(0, 1),
    ),
    unique_by=lambda candidate: candidate.id,
)


@given(CANDIDATES, st.booleans(), st.sampled_from(["cjk", "latin"]))
def test_scores_are_shares_and_nobody_is_lost(candidates, semantic, script):
    """Any candidates: all come back, scores lie between 0 and 1, the order does not depend on the input's."""
    fused = fuse(candidates, script=script, semantic=semantic)
    assert sorted(item.id for item in candidates) == sorted(item.id for _, item in fused)
    assert all(0 <= score <= 1 for score, _ in fused)
    assert fused == fuse(candidates[::-1], script=script, semantic=semantic)


def test_script_is_by_share():
    """A few Chinese words in an English text do not make it Chinese, and the reverse."""
    assert ("cjk", "latin", "latin") == (script_of("用 Redis 做缓存"), script_of("plain English"), script_of(""))
    assert "latin" == script_of("a long English sentence that mentions 缓存 once and goes on")


def test_newer_notes_come_first_among_equals():
    """A year decides between two that answer alike; it does not lift what answers a third as well."""
    old, new, weak = (Candidate(name, "latin") for name in ("old", "new", "weak"))
    ordered = favour_recent([(0.8, old), (0.75, new), (0.25, weak)], {"old": 400.0, "new": 2.0, "weak": 0.0})
    assert ["new", "old", "weak"] == [candidate.id for _, candidate in ordered]


@given(st.floats(0, 1), st.floats(-4_000, 40_000))
def test_an_age_takes_half_a_score_at_most(score, age):
    """However old, and also where a date lies in the future."""
    ((weighed, _),) = favour_recent([(score, Candidate("x", "latin"))], {"x": age})
    assert score / 2 <= weighed <= score


@given(CANDIDATES, st.floats(0, 10_000))
def test_one_age_for_all_changes_no_order(candidates, age):
    """Recency is about differences of age alone."""
    # Scores that differ by less than a rounding may meet.
    fused = [(round(score, 6), item) for score, item in fuse(candidates, script="latin", semantic=True)]
    fused.sort(key=lambda pair: (-pair[0], pair[1].id))
    again = favour_recent(fused, {item.id: age for item in candidates})
    assert [item.id for _, item in fused] == [item.id for _, item in again]


LEGS = st.lists(
    st.tuples(st.none() | st.floats(-1, 1), st.none() | st.floats(0.01, 50), st.booleans()).filter(
        lambda legs: legs[0] is not None or legs[1] is not None
    ),
    max_size=12,
)


@given(LEGS)
def test_two_stores_rank_as_one_that_holds_both(legs):
    """However candidates are parted between stores, ranked anew they have the ranks that one store would give them."""
    whole = ranked_anew(
        [
            Candidate(
                f"{i:02}", "latin", 1 if cosine is not None else None, cosine, 1 if words else None, words, coverage=0.5
            )
            for i, (cosine, words, _) in enumerate(legs)
        ]
    )
    for name, score in (("vector_rank", "similarity"), ("keyword_rank", "keyword_score")):
        found = sorted((c for c in whole if getattr(c, name) is not None), key=lambda c: getattr(c, name))
        assert list(range(1, len(found) + 1)) == [getattr(c, name) for c in found]
        scores = [getattr(c, score) for c in found]
        assert scores == sorted(scores, reverse=True)
    parted = [
        replace(candidate, vector_rank=candidate.vector_rank and 1, keyword_rank=candidate.keyword_rank and 1)
        for store in (True, False)
        for candidate, (_, _, first) in zip(whole, legs, strict=True)
        if first is store
    ]
    assert {c.id: c for c in whole} == {c.id: c for c in ranked_anew(parted)}
