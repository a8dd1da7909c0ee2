"""Measures by hand, their bounds, and files of questions that are not quite right."""

import json
import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vault_memory.errors import QueryError
from vault_memory.query import evaluation
from vault_memory.query.evaluation import (
    MEASURES,
    Judgement,
    Question,
    Setting,
    bootstrap,
    differences,
    discounted_gain,
    found_within,
    judge,
    parse_setting,
    read_questions,
    reciprocal_rank,
    scores,
    wilson,
)
from vault_memory_tests.unit.query.results import hit, result

RANKING = ["a", "b", "c", "d"]
SOURCES = st.lists(st.sampled_from("abcdefghijklmno"), unique=True, max_size=15)


@pytest.mark.parametrize(
    ("sources", "at_1", "at_3", "reciprocal", "gain"),
    [
        ({"a"}, 1.0, 1.0, 1.0, 1.0),
        ({"b"}, 0.0, 1.0, 0.5, 0.6309),  # 1 / log2(3)
        ({"c"}, 0.0, 1.0, 0.3333, 0.5),  # 1 / log2(4)
        ({"a", "c"}, 1.0, 1.0, 1.0, 0.9197),  # (1 + 1/2) / (1 + 1/log2(3))
        ({"a", "x"}, 1.0, 1.0, 1.0, 0.6131),  # 1 / (1 + 1/log2(3))
        ({"x"}, 0.0, 0.0, 0.0, 0.0),
    ],
)
def test_measures_by_hand(sources, at_1, at_3, reciprocal, gain):
    """Values worked out on paper for a ranking of four."""
    assert (at_1, at_3) == (found_within(RANKING, sources, 1), found_within(RANKING, sources, 3))
    assert reciprocal == round(reciprocal_rank(RANKING, sources), 4)
    assert gain == round(discounted_gain(RANKING, sources), 4)


def test_the_eleventh_note_is_too_late():
    """Ranks beyond ten count nothing."""
    ranking = [str(number) for number in range(1, 12)]
    assert (0.1, 0.0) == (reciprocal_rank(ranking, {"10"}), reciprocal_rank(ranking, {"11"}))
    assert 0.0 == discounted_gain(ranking, {"11"})


@given(SOURCES, st.sets(st.sampled_from("abcdefghijklmno"), min_size=1))
def test_measures_have_bounds_and_an_order(ranking, sources):
    """All lie in 0 to 1, recall grows with k, and a first place is worth everything to the reciprocal rank."""
    recalls = [found_within(ranking, sources, k) for k in (1, 5, 10)]
    assert all(low <= high for low, high in pairwise(recalls))
    rank, gain = reciprocal_rank(ranking, sources), discounted_gain(ranking, sources)
    assert 0.0 <= gain <= 1.0
    assert recalls[0] <= rank <= recalls[2]
    assert (gain > 0) == (rank > 0) == bool(recalls[2])
    assert math.isclose(1.0, discounted_gain(sorted(sources) + ranking, sources))


@pytest.mark.parametrize(
    ("successes", "trials", "expected"),
    [(8, 10, (0.4902, 0.9433)), (0, 10, (0.0, 0.2775)), (10, 10, (0.7225, 1.0)), (50, 100, (0.4038, 0.5962))],
)
def test_wilsons_interval_by_hand(successes, trials, expected):
    """Values of the formula: (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n) with z = 1.96."""
    assert expected == tuple(round(bound, 4) for bound in wilson(successes, trials))


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilsons_interval_holds_the_share(given_counts):
    """Within 0 to 1, around the share, and the same seen from the other side."""
    successes, trials = given_counts
    low, high = wilson(successes, trials)
    assert 0.0 <= low <= successes / trials <= high <= 1.0
    other = wilson(trials - successes, trials)
    assert math.isclose(low, 1 - other[1], abs_tol=1e-12)


@settings(deadline=None)  # 8,000 resamples a value: on a busy machine more than Hypothesis allows
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30))
def test_the_bootstrap_stays_within_the_values(values):
    """Ordered, no wider than the values, and the same every time."""
    low, high = bootstrap(values)
    assert min(values) - 1e-12 <= low <= high <= max(values) + 1e-12
    assert (low, high) == bootstrap(values)


def test_the_bootstrap_narrows_with_more_values():
    """A hundred values say more than ten of the same kind; around their mean."""
    few, many = bootstrap([0.0, 1.0] * 5), bootstrap([0.0, 1.0] * 50)
    assert many[1] - many[0] < few[1] - few[0]
    assert many[0] < 0.5 < many[1]
    # The normal approximation of the mean of 100 coin tosses: 0.5 ± 1.96 · 0.05.
    assert (0.4, 0.6) == pytest.approx(many, abs=0.02)


def judgement(ranking, sources, shown=(), **given):
    """One judged question."""
    return Judgement(Question("q", "?", frozenset(sources), **given), tuple(ranking), frozenset(shown))


def test_scores_average_over_questions():
    """Two questions, one answered at rank 2 and inside the block, one not at all."""
    found = scores([judgement("ab", "b", "ab"), judgement("ab", "x", "ab")]).measures
    assert [0.0, 0.5, 0.5, 0.25, 0.3155, 0.5] == [round(found[name].value, 4) for name in MEASURES]
    assert wilson(1, 2) == (found["recall@5"].low, found["recall@5"].high)
    assert (0.0, 0.5) == (found["mrr@10"].low, found["mrr@10"].high)


def test_questions_are_asked_once_and_counted_by_source():
    """Two chunks of a note are one place; slices are those of the file; the block holds the first k hits that fit."""
    hits = [hit(source=name, text=f"{name} " * 200) for name in ("x", "x", "b", "c", "d")]
    asked = []

    def ask(query, k):
        asked.append((query, k))
        return result(*hits, query=query)

    questions = [
        Question("1", "one?", frozenset({"b"}), lang="en", kind="fact"),
        Question("2", "two?", frozenset({"d"}), lang="zh"),
    ]
    measured = judge(questions, Setting(k=3), ask)
    assert [("one?", 20), ("two?", 20)] == asked
    assert ("x", "b", "c", "d") == measured.judgements[0].ranking
    assert {"x", "b"} == measured.judgements[0].shown == measured.judgements[1].shown
    assert {"lang=en": 1, "lang=zh": 1, "kind=fact": 1} == {
        name: slice_.questions for name, slice_ in measured.slices.items()
    }
    assert (0.5, 1.0) == (
        measured.overall.measures["recall@block"].value,
        measured.slices["lang=en"].measures["recall@block"].value,
    )
    assert (0, ()) == (measured.degraded, measured.missed)


def test_what_does_not_fit_the_block_is_not_in_it():
    """Of twenty long hits the block shows some: Recall@block counts those alone."""
    hits = [hit(source=f"{number:03}-" + "long name " * 20, text="word " * 400) for number in range(20)]
    measured = judge([Question("1", "?", frozenset({hits[19].source}))], Setting(k=20), lambda *_: result(*hits))
    assert 0 < len(measured.judgements[0].shown) < 20
    assert 0.0 == measured.overall.measures["recall@block"].value


def test_answers_of_fewer_legs_are_counted():
    """An evaluation of hybrid search that keywords answered alone says so."""
    measured = judge([Question("1", "?", frozenset({"a"}))], Setting("vector"), lambda *_: result(hit()))
    assert (1, ("1",)) == (measured.degraded, measured.missed)


def test_differences_are_paired():
    """Every question one place better is a clear change, however much the questions differ among themselves."""
    questions = [Question(str(n), "?", frozenset({"b"})) for n in range(40)]
    worse = judge(questions, Setting(), lambda *_: result(hit(source="x"), hit(source="b")))
    better = judge(questions, Setting("keyword"), lambda *_: result(hit(source="b")))
    change = differences(worse, better)
    assert (0.5, 0.5, 0.5) == (change["mrr@10"].value, change["mrr@10"].low, change["mrr@10"].high)
    assert 0.0 == change["recall@5"].value


@pytest.mark.parametrize(("text", "expected"), [("hybrid", ("hybrid", 5)), (" keyword:8 ", ("keyword", 8))])
def test_a_setting_is_a_mode_and_a_number(text, expected):
    """As ``--compare`` takes them."""
    setting = parse_setting(text)
    assert expected == (setting.mode, setting.k)
    assert text.strip() == setting.name


@pytest.mark.parametrize(
    "text", ["", "magic", "hybrid:", "hybrid:0", "hybrid:101", "hybrid:x", "hybrid:-1", "hybrid:5:5"]
)
def test_other_settings_are_refused(text):
    """One clear line."""
    with pytest.raises(QueryError, match=r"a setting is a mode|k: want"):
        parse_setting(text)


def test_questions_are_read(tmp_path):
    """Blank lines are skipped, ids default to line numbers, a BOM and U+2028 do no harm."""
    file = tmp_path / "q.jsonl"
    file.write_text(
        '\ufeff{"query": "a\u2028b", "sources": ["cafe\u0301.md"], "lang": "en", "more": 1}\r\n\n'
        '{"id": 7, "query": "c", "sources": ["x.md", "y.md"]}\n',
        encoding="utf-8",
    )
    first, second = read_questions(file)
    assert ("1", "a\u2028b", {"café.md"}, "en", "") == (first.id, first.query, first.sources, first.lang, first.kind)
    assert ("7", {"x.md", "y.md"}) == (second.id, second.sources)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("zebrafish", "not a JSON object"),
        ('["zebrafish"]', "not a JSON object"),
        ("[" * 100_000, "not a JSON object"),
        ('{"sources": ["a"]}', "query: want a text"),
        ('{"query": " ", "sources": ["a"]}', "query: want a text"),
        ('{"query": "zebrafish"}', "sources: want a list"),
        ('{"query": "zebrafish", "sources": []}', "sources: want a list"),
        ('{"query": "zebrafish", "sources": "a.md"}', "sources: want a list"),
        ('{"query": "zebrafish", "sources": [1]}', "sources: want paths"),
        ('{"query": "zebrafish", "sources": ["a"], "lang": 1}', "lang and kind: want texts"),
        ('{"query": "zebrafish", "sources": ["a"], "id": []}', "id: want"),
        ('{"query": "zebrafish", "sources": ["a"], "id": "1"}', "another line has the same id"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, line, message):
    """File, line and fault in one line, without a word of the question."""
    file = tmp_path / "q.jsonl"
    file.write_text('{"query": "fine", "sources": ["a"]}\n\n' + line + "\n", encoding="utf-8")
    with pytest.raises(QueryError) as caught:
        read_questions(file)
    assert str(caught.value).startswith(f"{file}:3: {message}")
    assert "zebrafish" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe", None])
def test_a_file_without_questions_is_refused(tmp_path, content):
    """Empty, not text, or not there."""
    file = tmp_path / "q.jsonl"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(
        QueryError, match=r"holds no question|cannot be read \((UnicodeDecodeError|FileNotFoundError)\)"
    ):
        read_questions(file)


def test_the_contract_is_json():
    """Every figure of an evaluation goes through JSON unharmed."""
    measured = judge([Question("1", "?", frozenset({"a"}), lang="en")], Setting(), lambda *_: result(hit(source="a")))
    told = json.loads(json.dumps(measured.to_dict()))
    assert {"value": 1.0, "low": 0.2065, "high": 1.0} == told["overall"]["recall@5"]
    assert {*MEASURES, "questions"} == set(told["slices"]["lang=en"])
    assert evaluation.GATE in told["overall"]
