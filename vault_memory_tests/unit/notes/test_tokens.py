"""Keyword tokens."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vault_memory.notes import tokens
from vault_memory.notes.tokens import dimension, document_terms, positions, query_terms, quote_lexeme, tokenize


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ERR_X-1", ["err_x-1", "err", "x", "1"]),
        ("2026.4.10", ["2026.4.10", "2026", "4", "10"]),
        ("C++ and C#", ["c++", "c", "and", "c#", "c"]),
        ("10 GB/s", ["10", "gb/s", "gb", "s"]),
        ("don't don’t", ["don't", "don", "don't", "don"]),
        ("pre-edit", ["pre-edit", "pre", "edit"]),
        ("getUserName", ["getusername", "get", "user", "name"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("a.pkg_b.mod", ["a.pkg_b.mod", "a", "pkg_b", "mod", "pkg", "b"]),
        ("独角兽公司", ["独角", "角兽", "兽公", "公司"]),
        ("在 A股", ["在", "a", "股"]),
        ("ＡＢＣ Straße", ["abc", "strasse"]),
        ("हिन्दी", ["हिन्दी"]),
        ("cafe\u0301", ["café"]),
        ("😀 & | ! ' \\ \0 :*", []),
        ("", []),
    ],
)
def test_words_identifiers_and_pairs(text, expected):
    """Words stay whole, identifiers are kept whole and in pieces, CJK runs become pairs, signs vanish."""
    assert expected == tokenize(text)


@pytest.mark.parametrize("text", ["a" * 10**6, "_" * 10**6, "a-" * 10**6, "独" * 10**6, "aB" * 10**6, "\u0301" * 10**6])
def test_huge_input_is_bounded(text):
    """A megabyte of anything costs a moment and gives a bounded number of bounded tokens."""
    started = time.process_time()
    found = tokenize(text)
    assert time.process_time() - started < 3
    assert len(found) <= tokens.MAX_TOKENS
    assert max(map(len, found), default=0) <= tokens.MAX_TOKEN_CHARACTERS


@given(st.text())
def test_tokens_are_normal_and_storable(text):
    """Tokens hold no space, NUL or half of a pair, and are the same in upper case and full width."""
    found = tokenize(text)
    for token in found:
        assert token
        assert not re.search(r"[\s\0\ud800-\udfff]", token)
        assert token == token.casefold()


def test_document_terms_weigh_titles_and_saturate():
    """The weight grows with the frequency, less each time, and a title counts more than the body."""
    body_once = _weights("redis cache", title="x", heading="")
    body_twice = _weights("redis redis cache", title="x", heading="")
    many = _weights("redis " * 50 + "cache", title="x", heading="")
    title = _weights("cache", title="redis", heading="")
    redis = dimension("redis") + 1
    assert body_once[redis] < body_twice[redis] < many[redis] < 2.2
    assert body_once[redis] < title[redis]


def test_document_terms_do_not_depend_on_other_documents():
    """Equal chunks have equal columns: a store kept by increments equals one built from scratch."""
    assert document_terms("a b 独角兽", title="t", heading="h") == document_terms("a b 独角兽", title="t", heading="h")


def test_keywords_are_quoted_and_hold_the_last_character_of_a_run():
    """Quotes are doubled, and a prefix search for one character can find it at the end of a run."""
    assert "'don' 'don''t' '兽' '独角' '角兽'" == document_terms("don't 独角兽", title="", heading="").keywords


def test_dimensions_are_those_of_the_weights():
    """The term table counts exactly what the vector holds, from 0 where the literal counts from 1."""
    terms = document_terms("alpha beta 独角兽", title="Alpha", heading="")
    assert tuple(sorted(terms.dimensions)) == terms.dimensions
    assert {place + 1 for place in terms.dimensions} == set(_parse(terms.weights))
    assert {dimension(token) for token in ("alpha", "beta", "独角", "角兽")} == set(terms.dimensions)


def test_an_empty_document_has_empty_columns():
    """Nothing to index is no error: the literals stay valid."""
    terms = document_terms("", title="", heading="")
    assert ("", "{}/536870912", ()) == (terms.keywords, terms.weights, terms.dimensions)


def test_document_terms_are_capped():
    """A chunk of 100,000 different words stays below what PostgreSQL's types hold."""
    terms = document_terms(" ".join(f"w{i}" for i in range(100_000)), title="", heading="")
    assert len(terms.dimensions) <= tokens.MAX_DISTINCT_TERMS
    assert len(terms.keywords) < 2**20


def test_query_terms_are_distinct_and_quoted():
    """A question asks for each token once, and nothing in it is an operator."""
    terms = query_terms("open & open | !don't 角兽:*")
    assert ("open", "don't", "don", "角兽") == terms.tokens
    assert "'open' | 'don''t' | 'don' | '角兽'" == terms.query
    assert terms.prefix is None


def test_one_chinese_character_asks_for_a_prefix():
    """One character is no token of most chunks that hold it: it is looked for as the start of pairs."""
    assert ("'猫':*", "猫") == (query_terms("猫？").query, query_terms("猫？").prefix)


def test_query_terms_are_bounded():
    """A question of 100,000 characters asks for a bounded number of tokens."""
    assert tokens.MAX_QUERY_TERMS == len(query_terms(" ".join(map(str, range(50_000)))).tokens)


def test_quote_lexeme_escapes_quote_and_backslash():
    """What ends a lexeme is doubled."""
    assert r"'a''b\\c'" == quote_lexeme(r"a'b\c")


def _weights(body, *, title, heading):
    return _parse(document_terms(body, title=title, heading=heading).weights)


def _parse(literal):
    inner, width = literal.rsplit("/", 1)
    assert "536870912" == width
    pairs = [pair.split(":") for pair in inner.strip("{}").split(",") if pair]
    return {int(place): float(value) for place, value in pairs}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the Pool", [("the", 0, 3), ("pool", 4, 8)]),
        ("at ERR_X-1", [("at", 0, 2), ("err_x-1", 3, 10), ("err", 3, 10), ("x", 3, 10), ("1", 3, 10)]),
        ("用连接池", [("用连", 0, 2), ("连接", 1, 3), ("接池", 2, 4)]),
        ("在 A", [("在", 0, 1), ("a", 2, 3)]),
        ("Straße ＡＢＣ", [("strasse", 0, 6), ("abc", 7, 10)]),
    ],
)
def test_tokens_know_their_places(text, expected):
    """Positions are those of the text as it was given, also where a token is longer than what it was read from."""
    assert expected == list(positions(text))


@given(st.text(alphabet="ab AB_-.'+C#1连接池。\n", max_size=80))
def test_places_and_tokens_agree(text):
    """Where normalising changes nothing, the same tokens come in the same order, each from inside the text."""
    found = list(positions(text))
    assert tokenize(text) == [token for token, _, _ in found]
    assert all(0 <= start < end <= len(text) for _, start, end in found)
