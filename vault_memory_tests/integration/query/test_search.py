"""Search against a real database, as the read-only role."""

import re
import unicodedata
from dataclasses import replace

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from vault_memory.errors import QueryError, StoreError, StoreUnavailable
from vault_memory.query import search
from vault_memory.query.database import Sessions, connect, planned_anew
from vault_memory_tests.integration.query.seeding import COMMIT, Note, Section, note, seed

POOL = "The connection pool was exhausted because a transaction stayed open."
SOUP = "Red lentil soup needs cumin, lemon and an hour of patience."
CHINESE = "数据库连接池耗尽的原因是事务没有关闭，我们后来改了超时设置。"


@pytest.fixture
def library(database):
    """Three notes in two languages, and one that the ruleset in force has not let through."""
    seed(
        database,
        Note(
            "01_Projects/alpha/pool.md",
            [Section(POOL, "Incidents > March", 3), Section("Error ERR_X-1 in version 2026.4.10 of C++.", "Codes", 9)],
            tags=["Ops/Database"],
            note_date="2026-03-15",
        ),
        note("02_Areas/cooking/soup.md", SOUP, tags=["food"], note_date="2025-01-01"),
        note("02_Areas/工作/连接池.md", CHINESE, note_date="2026-05-01"),
        note("02_Areas/hidden.md", POOL + " Hidden.", ruleset_id="older rules"),
    )
    return database


def sources(result):
    """Return where the hits come from, best first."""
    return [hit.source for hit in result.items]


@pytest.mark.parametrize("mode", ["hybrid", "vector", "keyword"])
@pytest.mark.parametrize(
    ("question", "source"),
    [
        ("why was the connection pool exhausted", "01_Projects/alpha/pool.md"),
        ("连接池为什么耗尽", "02_Areas/工作/连接池.md"),
        ("lentil soup", "02_Areas/cooking/soup.md"),
    ],
)
def test_each_leg_finds_the_note(library, query_settings, mode, question, source):
    """In both languages, by either leg and by both."""
    result = search(question, mode=mode, settings=query_settings)
    assert source == result.items[0].source
    assert (mode, COMMIT, None) == (result.mode, result.commit, result.head)


@pytest.mark.parametrize("identifier", ["ERR_X-1", "2026.4.10", "C++"])
def test_identifiers_are_found_exactly(library, query_settings, identifier):
    """An error code, a version and a language with signs in its name are tokens."""
    hit = search(identifier, mode="keyword", settings=query_settings).items[0]
    assert "Codes" == hit.heading_path
    assert "01_Projects/alpha/pool.md:9-9" == hit.citation


@pytest.mark.parametrize("character", ["池", "因", "置"])
def test_one_chinese_character_finds_its_notes(library, query_settings, character):
    """At the beginning, in the middle and at the end of a run."""
    assert ["02_Areas/工作/连接池.md"] == sources(search(character, mode="keyword", settings=query_settings))


def test_a_hit_carries_the_contract(library, query_settings):
    """The keys of the JSON contract, with values that can be cited and compared."""
    given = search("connection pool", settings=query_settings).to_dict()
    assert {"query", "mode", "commit", "stale", "items"} <= set(given)
    item = given["items"][0]
    assert {
        "source",
        "title",
        "heading_path",
        "level",
        "start_line",
        "end_line",
        "score",
        "legs",
        "flags",
        "stale",
    } <= set(item)
    assert {"text", "chunk_id", "source_hash", "content_hash"} <= set(item)
    assert ("Incidents > March", 2, 3, 3, "pool") == tuple(
        item[key] for key in ("heading_path", "level", "start_line", "end_line", "title")
    )
    assert {"vector", "keyword"} == set(item["legs"])
    assert 1 == item["legs"]["keyword"]["rank"]


def test_rows_of_another_ruleset_are_not_seen(library, query_settings):
    """What the rules in force have not let through is in no answer."""
    assert "02_Areas/hidden.md" not in sources(search(POOL, k=50, settings=query_settings))


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({"path": "01_Projects/**"}, {"01_Projects/alpha/pool.md"}),
        ({"path": "01_Projects"}, {"01_Projects/alpha/pool.md"}),
        ({"path": "01_Proj"}, set()),
        ({"path": "*.md"}, set()),
        ({"path": "**/*.md"}, {"01_Projects/alpha/pool.md", "02_Areas/cooking/soup.md", "02_Areas/工作/连接池.md"}),
        ({"path": "02_Areas/*/s?up.md"}, {"02_Areas/cooking/soup.md"}),
        ({"path": "02_Areas/工作"}, {"02_Areas/工作/连接池.md"}),
        ({"path": "(a|b)[.md"}, set()),
        ({"tag": "ops"}, {"01_Projects/alpha/pool.md"}),
        ({"tag": "#OPS/database"}, {"01_Projects/alpha/pool.md"}),
        ({"tag": "op"}, set()),
        ({"since": "2026-03-15"}, {"01_Projects/alpha/pool.md", "02_Areas/工作/连接池.md"}),
        ({"since": "2026-04-01T12:00"}, {"02_Areas/工作/连接池.md"}),
        ({"heading": "MARCH"}, {"01_Projects/alpha/pool.md"}),
        ({"heading": "100%_"}, set()),
        ({"tag": "no\0pe\ud800", "path": "\0", "heading": "\ud800"}, set()),
    ],
)
def test_filters_come_before_the_cut(library, query_settings, filters, expected):
    """With k = 3 and three other chunks that match better, a filtered note is still found."""
    result = search("connection pool soup 连接池", k=5, settings=query_settings, **filters)
    assert expected == set(sources(result))


def test_recency_prefers_the_newer_of_two_that_answer_alike(database, query_settings):
    """By the front matter's date, else by the last change in the index; without being asked it counts for nothing."""
    words = {"2019-05-01": "once", "2026-05-01": "later", None: "today"}
    seed(
        database,
        *[
            note(f"{index}.md", f"The connection pool was made larger {word}", note_date=date)
            for index, (date, word) in enumerate(words.items())
        ],
        note("garden.md", "Tomatoes need a warm and sunny place", note_date=None),
    )
    given = {"settings": query_settings, "mode": "keyword"}
    assert ["0.md", "1.md", "2.md"] == sources(search("larger connection pool", **given))
    assert ["2.md", "1.md", "0.md"] == sources(search("larger connection pool", recent=True, **given))


def test_a_filter_reaches_beyond_the_pool(database, query_settings):
    """200 better notes do not hide the one that the filter asks for."""
    seed(
        database,
        *[note(f"02_Areas/{i}.md", f"connection pool connection pool number {i}") for i in range(200)],
        note("01_Projects/x.md", "a pool, mentioned once in a long text about gardens and fish"),
    )
    assert ["01_Projects/x.md"] == sources(search("connection pool", path="01_Projects/**", settings=query_settings))


def test_a_search_is_planned_once_and_a_filtered_one_for_its_filter(library, query_settings):
    """The plan that a connection keeps knows no filter; one with a filter is made for it, and the next is kept again."""
    modes = []
    with connect(query_settings) as session, Sessions({query_settings.schema: session}) as sessions:
        for filters in ({}, {"path": "01_Projects/**"}, {}):
            assert search("pool exhausted", settings=query_settings, sessions=sessions, **filters).items
            modes.append(session.execute("SHOW plan_cache_mode").fetchone()["plan_cache_mode"])
        with planned_anew(session):
            modes.append(session.execute("SHOW plan_cache_mode").fetchone()["plan_cache_mode"])
    assert [*["force_generic_plan"] * 3, "force_custom_plan"] == modes


def test_at_most_two_chunks_of_a_note(database, query_settings):
    """A long note does not fill the answer alone."""
    seed(
        database,
        note(
            "02_Areas/long.md", *[f"The pool, part {i}: {word}." for i, word in enumerate(["a b", "c d", "e f", "g h"])]
        ),
        note("02_Areas/other.md", "A note that names the pool as well, among many other things in the garden."),
    )
    found = sources(search("pool", settings=query_settings))
    assert 2 == found.count("02_Areas/long.md")
    assert "02_Areas/other.md" in found


def test_nearly_equal_chunks_are_shown_once(database, query_settings):
    """A copy is named by its source and takes no place."""
    seed(database, note("a.md", POOL), note("b.md", POOL + " "), note("c.md", SOUP + " Not a pool."))
    result = search("connection pool", settings=query_settings)
    assert ["a.md", "c.md"] == sources(result)
    assert ("b.md",) == result.items[0].duplicates


@pytest.mark.parametrize("text", ["", "  \n", "\0", "\u3000"])
def test_a_blank_question_asks_nobody(query_settings, text):
    """Exit status 2, and no connection is opened."""
    nowhere = replace(query_settings, query_dsn="host=/nonexistent dbname=x")
    with pytest.raises(QueryError) as caught:
        search(text, settings=nowhere)
    assert 2 == caught.value.exit_status


@pytest.mark.parametrize(
    "wrong", [{"k": 0}, {"k": 101}, {"mode": "best"}, {"since": "yesterday"}, {"since": "9" * 5 + "y"}]
)
def test_malformed_arguments_are_usage_errors(query_settings, wrong):
    """They are named before anything is asked."""
    with pytest.raises(QueryError):
        search("x", settings=replace(query_settings, query_dsn="host=/nonexistent dbname=x"), **wrong)


@pytest.mark.parametrize(
    "text",
    [
        "a & | ! <-> :* ()",
        '"open',
        "it's; DROP TABLE memory_chunk; --",
        "\\",
        "the of and",
        "😀🎉",
        "x\0y",
        "\ud800",
        "%s %(path)s {}",
        "字" * 100_000,
        "word " * 20_000,
    ],
)
def test_no_question_can_raise(library, query_settings, text):
    """Operators, quotes, stop words, emoji, NUL, halves of pairs, 100,000 characters."""
    result = search(text, settings=query_settings)
    assert len(result.items) <= 5
    assert (len(text) > 2000) == any("cut" in notice for notice in result.notices)


INVISIBLE_LETTERS = frozenset("\u115f\u1160\u3164\uffa0")  # fillers, which Unicode calls letters
NOTHING = "\u200b\u2060\ufeff\u3000 \n\0\xad\u3164"
QUESTIONS = st.one_of(
    st.text(),
    st.text(alphabet="<>]|&!()\"'\\:*%"),
    # Nothing that can be seen: controls, joiners, tags, marks, blanks of all kinds.
    st.text(st.characters(categories=["Cc", "Cf", "Zs", "Zl", "Zp", "Cs", "Co"])),
    st.text(alphabet=NOTHING),
    st.builds("{}{}".format, st.sampled_from(["\x1b[31m", "\u202e", "\U000e0041"]), st.text(max_size=5)),
)


def can_be_seen(text):
    """Whether a text holds a letter, number, sign or mark of punctuation that shows."""
    return any(unicodedata.category(sign)[0] in "LNPS" and sign not in INVISIBLE_LETTERS for sign in text)


def test_every_generated_question_is_answered_or_empty(library, query_settings):
    """Any text at all: it is answered, or nothing of it can be seen and it is refused as empty, with exit status 2."""
    outcomes = set()
    with Sessions() as sessions:

        @settings(
            max_examples=150,
            derandomize=True,
            deadline=None,
            suppress_health_check=[HealthCheck.function_scoped_fixture],
        )
        @example("\u200b", "")
        @example("otters", "otters")
        @given(QUESTIONS, st.text(max_size=9))
        def ask(text, filter_text):
            given_ = {"settings": query_settings, "sessions": sessions}
            refusal = None
            try:
                search(text, tag=filter_text, heading=filter_text, **given_)
                search(text, path=filter_text, **given_)
            except QueryError as error:
                refusal = error
            if refusal is None:
                assert not set(text) <= set(NOTHING)
                outcomes.add("answered")
                return
            assert ("the question is empty", 2) == (str(refusal), refusal.exit_status)
            # A terminal's control sequence takes the letters with it that belong to it.
            assert not can_be_seen(text) or re.search("[\x1b\x80-\x9f]", text)
            outcomes.add("empty")

        ask()
    assert {"answered", "empty"} == outcomes


def test_an_empty_store_answers_with_nothing(database, query_settings):
    """Before the first sync there is nothing to find, and nothing is wrong."""
    result = search("anything", settings=query_settings)
    assert ((), None, ()) == (result.items, result.commit, result.notices)


def test_a_question_about_nothing_here_finds_nothing(library, query_settings):
    """Hashing vectors of unrelated spelling are noise, not hits."""
    assert () == search("zzqx", settings=query_settings).items


def test_the_read_only_role_suffices_and_cannot_write(library, query_settings):
    """All of this ran as the reader; the session also refuses to write by itself."""
    with connect(query_settings) as connection:
        assert ("vault_memory_reader", "on") == tuple(
            connection.execute("SELECT current_user AS u, current_setting('transaction_read_only') AS r")
            .fetchone()
            .values()
        )
        with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction)):
            connection.execute("DELETE FROM memory_chunk")


def test_vectors_of_another_embedder_are_not_compared(library, query_settings, database):
    """A recorded model without a key: the keyword leg answers, and the result says why."""
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE vault_memory.sync_state SET embedder = 'openai', model = 'm'")
    result = search("connection pool", settings=query_settings)
    assert "keyword" == result.mode
    assert "01_Projects/alpha/pool.md" == result.items[0].source
    assert any("by keywords alone" in notice and "no API key" in notice for notice in result.notices)


def test_a_token_that_only_cleaning_would_join_is_withheld(query_settings, database):
    """What is shown is scanned, not only what is stored: here a comment over several lines stood in between."""
    token = "ghp" + "_" + "k3Jd82HsLq0ZxVbN7mTy5RwE1cUaGf9PoIeW"
    seed(database, note("01_Projects/split.md", f"Soup and {token[:16]}<!--\n\nlong\n\n-->{token[16:]} lentils."))
    result = search("soup lentils", settings=query_settings)
    assert () == result.items
    assert any("withheld" in notice for notice in result.notices)


@pytest.mark.parametrize("question", ["\u200b", "\u2060 \u00ad", "\U000e0041"])
def test_a_question_that_cannot_be_seen_is_empty(question):
    """Invisible characters alone ask nothing: no connection, no request."""
    with pytest.raises(QueryError, match="empty"):
        search(question)


def test_a_chunk_that_matches_a_secret_rule_is_withheld(library, query_settings, database):
    """Today's rules are asked again: what they match is dropped, and the next hit takes its place."""
    token = "Tr0ub4dor" + "&3xyzQ"
    with psycopg.connect(database) as connection:
        connection.execute(
            "UPDATE vault_memory.memory_chunk SET content = content || %s WHERE heading_path = 'Incidents > March'",
            (f"\npassword: {token}",),
        )
    result = search("connection pool 连接池", settings=query_settings)
    assert token not in str(result.to_dict())
    assert "02_Areas/工作/连接池.md" in sources(result)
    assert any("withheld" in notice for notice in result.notices)


def test_no_database_is_one_clear_error(query_settings):
    """The message names the settings and not the DSN, which may hold a password."""
    with pytest.raises(StoreUnavailable, match="VAULT_MEMORY_QUERY_DSN") as caught:
        search("x", settings=replace(query_settings, query_dsn="host=/nonexistent dbname=x password=hunter2"))
    assert "hunter2" not in str(caught.value)


def test_a_database_without_our_schema_is_one_clear_error(empty_database, query_settings):
    """Whoever has not synced yet is told to."""
    with pytest.raises(StoreError, match="vault-memory sync"):
        search("x", settings=replace(query_settings, query_dsn=empty_database))


def test_vanished_and_changed_notes(database, make_vault, with_vault):
    """With the vault at hand: a note that HEAD lost is replaced by the next, a changed one is marked."""
    vault = make_vault()
    for name in ("gone", "changed", "same"):
        vault.write(f"01_Projects/{name}.md", f"pool {name}")
    first = vault.commit()
    blobs = {name: vault.git("rev-parse", f"HEAD:01_Projects/{name}.md") for name in ("gone", "changed", "same")}
    words = {"gone": "north", "changed": "south", "same": "west"}
    seed(
        database,
        *[note(f"01_Projects/{name}.md", f"The pool is {words[name]}", blob_id=blob) for name, blob in blobs.items()],
        commit=first,
    )
    fresh = search("pool", k=2, settings=with_vault(vault.path))
    assert (False, first, ()) == (fresh.stale, fresh.head, fresh.notices)
    vault.delete("01_Projects/gone.md")
    vault.write("01_Projects/changed.md", "other")
    head = vault.commit()
    result = search("pool", k=2, settings=with_vault(vault.path))
    assert {("01_Projects/changed.md", True), ("01_Projects/same.md", False)} == {
        (hit.source, hit.stale) for hit in result.items
    }
    assert (True, head, first) == (result.stale, result.head, result.commit)
    assert any("behind HEAD" in notice for notice in result.notices)


def test_a_vault_that_is_away_is_said(library, with_vault, tmp_path):
    """The answer is given all the same, with the commit it belongs to."""
    result = search("connection pool", settings=with_vault(tmp_path / "away"))
    assert result.items
    assert any("could not be looked at" in notice for notice in result.notices)
    assert f"as of commit {COMMIT[:12]}" in result.notices
