"""The vector leg's index modes, in a real database."""

from dataclasses import replace

import psycopg
import pytest

from vault_memory import settings as settings_module
from vault_memory.adapters.sqlfiles import query
from vault_memory.adapters.vector_index import VectorIndex
from vault_memory.commands import index_check
from vault_memory.errors import ConfigError, WriterBusyError
from vault_memory.ingest import vector_index
from vault_memory.query import search
from vault_memory.query.database import connect, fetch
from vault_memory_tests.integration.query.seeding import note, seed

MODES = ("exact", "bits", "hnsw", "ivfflat")
# Rows whose vectors come from a fixed seed; the first of every ten is tagged, and one in fifty lies in a folder.
FILL = """
    INSERT INTO memory_primary (id, source, content, content_hash, blob_id, title, tags, front_matter, links, commit,
                                ruleset_id, model, token_count)
    SELECT p, p, '', '', 'b', 'n', CASE WHEN i %% 10 = 0 THEN '{rare}'::text[] ELSE '{}' END, '{}', '{}', 'c',
           CASE WHEN i %% 7 = 1 THEN 'older rules' ELSE 'rules' END, 'm', 0
    FROM generate_series(1, %(rows)s) i, LATERAL (SELECT CASE WHEN i %% 50 = 0 THEN '01_Projects/few/' ELSE '02_Areas/' END
                                              || i || '.md' AS p) q;
    INSERT INTO memory_chunk
    SELECT p.id, p.id, 0, '', 0, 1, 1, p.id, p.id, 'm', 1536, 'latin', v.vector::vector, '', '{}/536870912'
    FROM memory_primary p, LATERAL (SELECT array_agg(random_normal()::real) AS vector FROM generate_series(1, 1536)
                                    WHERE p.id <> '') v
    WHERE p.content = ''
"""
QUESTION = [(-1.0) ** i * (i % 7 + 1) for i in range(1536)]


def fill(dsn, rows):
    """Write notes of one chunk each; the order of their vectors is the same every time."""
    with psycopg.connect(dsn, options="-c search_path=vault_memory,public") as connection:
        connection.execute("SELECT setseed(0.25)")
        for statement in FILL.split(";"):
            connection.execute(statement.encode(), {"rows": rows})
        connection.execute(
            "UPDATE sync_state SET ruleset_id = 'rules', embedder = 'openai', model = 'm', dimensions = 1536"
        )
        connection.execute("ANALYZE memory_chunk")


def use(dsn, mode):
    """Build a mode and make searches use it, whatever the size."""
    with VectorIndex.connect(dsn, "vault_memory") as index:
        index.build(mode)
        index.record(mode, recall=None)


def recorded(dsn):
    """Return the mode and choice in the database, and the indexes that only some modes have."""
    with psycopg.connect(dsn, options="-c search_path=vault_memory,public") as connection:
        indexes = connection.execute(
            "SELECT indexname FROM pg_indexes WHERE indexname IN ('memory_chunk_hnsw', 'memory_chunk_ivfflat')"
        ).fetchall()
        row = connection.execute("SELECT vector_index, vector_index_choice FROM sync_state").fetchone()
    return *row, [name for (name,) in indexes]


def operator(dsn, tmp_path, **environment):
    """Settings of the operator on a test's database."""
    return settings_module.load({"HOME": str(tmp_path), "VAULT_MEMORY_DSN": dsn, **environment})


def ask(settings, **given):
    """Search by the vector leg alone and return the sources."""
    found = search("anything", mode="vector", settings=settings, embedder=lambda _: QUESTION, k=10, **given)
    return [hit.source for hit in found.items]


@pytest.fixture
def query_settings(reader_dsn, tmp_path):
    """The read-only role's settings."""
    return settings_module.load({"HOME": str(tmp_path), "VAULT_MEMORY_QUERY_DSN": reader_dsn})


def test_every_mode_answers_as_exact_search_does(database, query_settings):
    """With filters, which stand before the cut, and without what the rules in force do not let through."""
    fill(database, 600)
    questions = ({}, {"tag": "rare"}, {"path": "01_Projects/few"}, {"path": "no/such/folder"})
    answers = {}
    for mode in MODES:
        use(database, mode)
        answers[mode] = [ask(query_settings, **filters) for filters in questions]
    exact = answers["exact"]
    assert [10, 10, 10, 0] == [len(sources) for sources in exact]
    for mode in MODES:
        common = [len(set(mine) & set(best)) for mine, best in zip(answers[mode], exact, strict=True)]
        # Where the rows of a filter are fewer than a pool, every mode is exact.
        assert [10, 10, 0] == common[1:], mode
        assert common[0] >= (6 if mode == "ivfflat" else 9), mode


def test_a_small_store_is_left_alone(database, tmp_path):
    """Below the border the step after a sync finds nothing to do."""
    seed(database, note("02_Areas/a.md", "one"))
    found = vector_index.settle(operator(database, tmp_path))
    assert ("auto", "exact", False) == (found.choice, found.mode, found.changed)


def test_signs_are_used_only_where_they_tell_vectors_apart(database, tmp_path, monkeypatch):
    """Vectors of a trained model pass the check; those of the hashing embedder do not, and stay exact."""
    monkeypatch.setattr(vector_index, "MAX_EXACT_CHUNKS", 2_400)
    monkeypatch.setattr("vault_memory.adapters.vector_index.SAMPLE", 6)
    fill(database, 2_500)
    settings = operator(database, tmp_path)
    found = vector_index.settle(settings)
    assert ("bits", True) == (found.mode, found.changed)
    assert found.recall >= 0.95
    assert vector_index.settle(settings).changed is False
    with psycopg.connect(database, options="-c search_path=vault_memory,public") as connection:
        # Values of one sign each: the signs are all the same.
        connection.execute("UPDATE sync_state SET model = 'spelling'")
        connection.execute(
            "UPDATE memory_chunk SET embedding = (SELECT array_agg(abs(x)) FROM unnest(embedding::real[]) x)::vector"
        )
    found = vector_index.settle(settings)
    assert ("exact", True) == (found.mode, found.changed)


def test_an_operator_sets_and_measures(database, tmp_path):
    """``index-check --set`` is remembered against ``auto``, and drops what the last mode had."""
    fill(database, 300)
    settings = operator(database, tmp_path)
    found = index_check.check(settings, change_to="hnsw")
    assert ("hnsw", 0) == (found.mode, index_check.exit_status(found))
    assert found.recall >= 0.95
    assert ("hnsw", "hnsw", ["memory_chunk_hnsw"]) == recorded(database)
    assert vector_index.settle(settings).changed is False
    assert "hnsw" == index_check.check(settings).mode
    assert "exact" == index_check.check(settings, change_to="auto").mode
    assert ("exact", "auto", []) == recorded(database)


def test_a_quick_look_sees_an_index_that_misses(database, tmp_path, monkeypatch):
    """An index that finds what exact search finds is good, one that does not is not; exact search is not compared."""
    settings = operator(database, tmp_path)
    assert (None, True) == ((found := vector_index.self_check(settings)).recall, found.is_good)  # nothing is stored
    fill(database, 600)
    found = vector_index.self_check(settings)
    assert ("exact", 1.0, True) == (found.mode, found.recall, found.is_good)
    assert found.milliseconds > 0
    use(database, "bits")
    assert vector_index.self_check(settings).is_good
    monkeypatch.setattr(VectorIndex, "recall", lambda *_: 0.5)
    assert not vector_index.self_check(settings).is_good


def test_the_setting_wins_over_the_record(database, tmp_path):
    """A mode named in the settings is built by the next sync; ``--set`` of another one is refused."""
    fill(database, 50)
    settings = operator(database, tmp_path, VAULT_MEMORY_VECTOR_INDEX="bits")
    assert "bits" == vector_index.settle(settings).mode
    assert ("bits", "auto", []) == recorded(database)
    with pytest.raises(ConfigError, match="vector_index = bits: change it there"):
        index_check.check(settings, change_to="hnsw")
    assert "exact" == vector_index.settle(operator(database, tmp_path)).mode


def test_one_works_on_the_index_at_a_time(database, tmp_path):
    """A second one is told, and a sync goes on without it."""
    fill(database, 50)
    settings = operator(database, tmp_path)
    with VectorIndex.connect(database, "vault_memory") as other:
        assert other.try_lock()
        with pytest.raises(WriterBusyError, match="another process is building"):
            index_check.check(settings, change_to="bits")
        by_name = replace(settings, search=settings_module.SearchSettings("bits"))
        assert vector_index.settle(by_name) is None
    assert "exact" == recorded(database)[0]


def test_an_old_pgvector_gets_no_hnsw(database, monkeypatch):
    """The message says what to do."""
    monkeypatch.setattr("vault_memory.adapters.vector_index.OLDEST_PGVECTOR_FOR_HNSW", (99, 0))
    with VectorIndex.connect(database, "vault_memory") as index, pytest.raises(ConfigError, match="ALTER EXTENSION"):
        index.build("hnsw")


def test_the_reader_may_ask_in_every_mode(database, query_settings):
    """The role sees the mode in the state, and the signs through the view."""
    seed(database, note("02_Areas/a.md", "one"))
    for mode in MODES:
        use(database, mode)
        with connect(query_settings) as session:
            assert mode == fetch(session, "state")[0]["vector_index"]
        assert ["02_Areas/a.md"] == ask(query_settings)


def test_the_scan_of_signs_reads_the_narrow_index_alone(database, query_settings):
    """At 10,000 chunks, where signs are used: a statement that quietly reads all vectors would be right, and slow."""
    with psycopg.connect(database, options="-c search_path=vault_memory,public") as connection:
        # The test's server commits lazily, and VACUUM calls a page visible to all only once its commit is flushed.
        connection.execute("SET LOCAL synchronous_commit = on")
        connection.execute(
            """INSERT INTO memory_primary (id, source, content, content_hash, blob_id, title, tags, front_matter, links,
                                           commit, ruleset_id, model, token_count)
               SELECT i, i, '', '', 'b', 'n', '{}', '{}', '{}', 'c', 'rules', 'm', 0 FROM generate_series(0, 999) i"""
        )
        connection.execute(
            """INSERT INTO memory_chunk
               SELECT i, i / 10, i % 10, '', 0, 1, 1, repeat('word ', 150), i, 'm', 1536, 'latin', v.vector::vector, '',
                      '{}/536870912'
               FROM generate_series(0, 9999) i,
                    LATERAL (SELECT array_agg(sin(i * j % 7919)::real) AS vector FROM generate_series(1, 1536) j) v"""
        )
        connection.execute(
            "UPDATE sync_state SET ruleset_id = 'rules', embedder = 'openai', model = 'm', dimensions = 9"
        )
    use(database, "bits")
    make_visible(database)
    given = dict.fromkeys(("query", "prefix", "path", "tag", "since", "heading"))
    given |= {"dimensions": [], "lexemes": [], "vector": str(QUESTION), "index": "bits"}
    with connect(query_settings) as session:
        asked = query("search", frozenset({"bits"}))
        rows = session.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + asked, given).fetchone()
    scans = [node for node in nodes(rows["QUERY PLAN"][0]["Plan"]) if node.get("Relation Name") == "memory_chunk"]
    ran = {(node["Node Type"], node.get("Index Name")) for node in scans if node["Actual Loops"]}
    assert ("Index Only Scan", "memory_chunk_bits") in ran
    assert {0} == {node["Heap Fetches"] for node in scans if node.get("Index Name") == "memory_chunk_bits"}
    # The exact look at the best of them goes by id; nothing reads the wide table from end to end.
    assert "Seq Scan" not in {name for name, _ in ran}


def make_visible(dsn):
    """Vacuum until every page is known as visible to all: a page that somebody holds at the moment is passed over."""
    pages = "SELECT relallvisible >= relpages FROM pg_class WHERE oid = 'vault_memory.memory_chunk'::regclass"
    with psycopg.connect(dsn, autocommit=True) as connection:
        for _ in range(20):
            if connection.execute(pages).fetchone()[0]:
                return
            connection.execute("VACUUM vault_memory.memory_chunk")
    message = "pages stay invisible"
    raise AssertionError(message)


def nodes(plan):
    """Yield a plan and all plans below it."""
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)
