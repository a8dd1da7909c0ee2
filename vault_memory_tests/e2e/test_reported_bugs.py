"""Bugs that tools like this one had with embedding APIs (49 to 59) and databases (60 to 69), each by its number.

A number has a test of its own here, or names the tests that hold it. Numbers that are missing were never given.
"""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from vault_memory import settings as settings_module
from vault_memory.adapters.egress import check_base_url
from vault_memory.adapters.embed_text import EmbedText
from vault_memory.adapters.embedding import OpenAIEmbedder
from vault_memory.commands.status import status
from vault_memory.commands.sync import sync
from vault_memory.errors import ConfigError
from vault_memory.ingest.sync import Synchronizer
from vault_memory.query.search import search
from vault_memory.settings import EmbeddingSettings
from vault_memory_tests.bad_inputs.test_rows import names_in
from vault_memory_tests.fixtures.embedding_server import EmbeddingServer
from vault_memory_tests.fixtures.installation import Installation
from vault_memory_tests.fixtures.online import fill, rows
from vault_memory_tests.integration.defs.test_retries import MakeWorld, open_world  # noqa: F401 - a fixture

ROOT = Path(__file__).resolve().parents[1]
HELD_ELSEWHERE = {
    49: [
        "e2e/test_every_fault.py::test_a_fault_loses_nothing",
        "e2e/test_embedding_faults.py::test_an_answer_in_part_is_kept",
        "integration/adapters/test_embedding.py::test_backoff_schedule",
        "integration/defs/test_retries.py::test_an_outage_is_retried_without_a_commit",
    ],
    50: ["unit/notes/test_chunking.py::test_b50_chinese_counts_in_full"],
    52: [
        "integration/adapters/test_providers.py::test_a_preset_stays_within_its_caps_under_faults",
        "integration/adapters/test_providers.py::test_a_provider_that_takes_less_than_its_preset_is_learnt",
        "integration/adapters/test_embedding.py::test_provider_with_a_small_cap",
        "unit/adapters/test_batching.py::test_pack_keeps_order_and_limits",
    ],
    53: [
        "unit/adapters/test_egress.py::test_base64_is_accepted",
        "unit/adapters/test_egress.py::test_wrong_answers",
        "unit/adapters/test_egress.py::test_zero_retention_for_openrouter_only",
    ],
    59: [
        "e2e/test_every_fault.py::test_a_fault_loses_nothing",
        "integration/ingest/test_model_change.py::test_readers_see_one_model_at_any_time",
    ],
    61: [
        "e2e/test_sync_command.py::test_two_syncs_at_once_both_end_right",
        "integration/adapters/test_migrations.py::test_concurrent_callers_apply_once",
    ],
    62: [
        "e2e/test_crash.py::test_a_killed_sync_is_made_good_by_the_next",
        "integration/defs/test_instance.py::test_a_killed_sync_is_made_up_for_at_once",
    ],
    64: [
        "integration/query/test_search.py::test_filters_come_before_the_cut",
        "integration/query/test_search.py::test_a_filter_reaches_beyond_the_pool",
    ],
    69: [
        "e2e/test_every_fault.py::test_a_fault_loses_nothing",
        "integration/adapters/test_migrations.py::test_first_run_applies_all_and_the_second_none",
        "integration/adapters/test_migrations.py::test_failed_migration_leaves_nothing",
    ],
}
NUMBERS = {49, 50, 52, 53, 55, 58, 59, 60, 61, 62, 64, 65, 68, 69}


@pytest.mark.parametrize("number", [pytest.param(number, id=f"b{number}") for number in HELD_ELSEWHERE])
def test_a_bug_is_held_by_tests_elsewhere(number: int) -> None:
    """The named tests exist: renaming one away would leave its bug without a guard."""
    for name in HELD_ELSEWHERE[number]:
        file, _, test = name.partition("::")
        assert test in names_in(ROOT / file), name


def test_every_bug_has_a_number_here() -> None:
    """All of both groups, none twice."""
    own = {int(name[6:8]) for name in names_in(Path(__file__)) if name.startswith("test_b")}
    assert NUMBERS == own | HELD_ELSEWHERE.keys()
    assert not own & HELD_ELSEWHERE.keys()


def test_b55_another_width_is_refused_before_anything_is_sent(
    make_online: Callable[..., Installation], embedding_server: EmbeddingServer
) -> None:
    """1,536 to 1,024: the sync names the command for it and sends nothing; the old index answers."""
    installation = make_online(embedding_server.url)
    fill(installation)
    installation.steps()
    sent = len(embedding_server.requests())
    fill(installation, words="queues")
    narrow = settings_module.load({**installation.environment, "VAULT_MEMORY_EMBEDDING_DIMENSIONS": "1024"})

    with Synchronizer.open(narrow) as synchronizer:
        problem = synchronizer.provider.error

    assert isinstance(problem, ConfigError)
    assert "1536 dimensions" in str(problem)
    assert "1024 dimensions" in str(problem)
    assert "vault-memory sync --full --accept-model" in str(problem)
    result = sync(narrow)
    assert (3, str(problem)) == (result.exit_status, result.blocked)
    assert sent == len(embedding_server.requests())
    assert 4 == len({hit.source for hit in search("caches", settings=installation.settings).items})


def test_b58_memory_does_not_grow_with_the_number_of_texts(
    embedding_server: EmbeddingServer, make_texts: Callable[..., tuple[EmbedText, ...]]
) -> None:
    """Vectors are handed over as they come: four times the texts need about the same memory."""

    def peak(count: int) -> int:
        texts = make_texts(*(f"text {number} of {count}" for number in range(count)))
        settings = EmbeddingSettings(model="m", base_url=embedding_server.url, max_batch_texts=32)
        embedder = OpenAIEmbedder(check_base_url(embedding_server.url, allow_http_loopback=True), settings, "k")
        tracemalloc.start()
        try:
            result = embedder.embed(texts, on_vectors=lambda _: None, keep_vectors=False)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            assert count == result.embedded

    peak(100)  # imports
    few, many = peak(400), peak(1600)
    assert many < few + 10 * 2**20, (few, many)  # the vectors of 1,200 texts more are 59 MB


def test_b60_nul_costs_no_other_note(installation: Installation) -> None:
    """A NUL that YAML spells as an escape is replaced; a note with a raw one is named, and no row is left half."""
    installation.vault.write("01_Projects/a.md", "# A\n\nWords.\n")
    installation.vault.write("01_Projects/escaped.md", '---\ntitle: "one\\0two"\n---\n\nWords.\n')
    installation.vault.write("01_Projects/raw.md", b"# Raw\n\nbefore\x00after\n")
    installation.vault.commit()
    installation.steps()

    assert [("01_Projects/a.md",), ("01_Projects/escaped.md",)] == rows(
        installation, "SELECT id FROM memory_primary ORDER BY id"
    )
    assert [("01_Projects/raw.md", "quarantined")] == rows(
        installation, "SELECT id, status FROM note_state WHERE status <> 'indexed'"
    )
    assert [] == rows(
        installation,
        "SELECT p.id FROM memory_primary p LEFT JOIN memory_chunk c ON c.note_id = p.id WHERE c.id IS NULL",
    )
    assert 1 == status(installation.settings).to_json()["quarantined"]


@pytest.mark.slow  # most of a minute on a busy machine
def test_b65_a_note_of_more_values_than_one_statement_takes(installation: Installation) -> None:
    """Six thousand chunks are more than 65,535 bound values: all are written, replaced and removed."""
    sections = [f"## Section {number}\n\nText of {number}.\n" for number in range(6000)]
    installation.vault.write("01_Projects/long.md", "# Long\n\n" + "\n".join(sections))
    installation.vault.commit()
    installation.steps()
    count = "SELECT count(*), count(embedding), count(DISTINCT ordinal) FROM memory_chunk"
    assert [(6000, 6000, 6000)] == rows(installation, count)

    installation.vault.write("01_Projects/long.md", "# Long\n\n" + "\n".join(sections[1:]))
    installation.vault.commit()
    (outcome,) = installation.steps().values()
    assert 0 == outcome.texts_embedded
    assert [(5999, 5999, 5999)] == rows(installation, count)

    installation.vault.delete("01_Projects/long.md")
    installation.vault.commit()
    installation.steps()
    assert [(0, 0, 0)] == rows(installation, count)


def test_b68_a_connection_that_drops_during_a_tick_is_made_anew(
    installation: Installation,
    open_world: MakeWorld,  # noqa: F811 - the fixture above
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PostgreSQL ends the sensor's connection in mid-tick: the tick asks for its run all the same, once."""
    installation.vault.write("01_Projects/a.md", "# A\n\nWords.\n")
    commit = installation.vault.commit()
    plain, calls = Synchronizer.is_current, []

    def is_current(self: Synchronizer) -> bool:
        if not calls:
            with psycopg.connect(installation.environment["VAULT_MEMORY_DSN"], autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
        calls.append(self)
        return plain(self)

    monkeypatch.setattr(Synchronizer, "is_current", is_current)
    with open_world(installation) as world:
        (request,) = world.asked()
        assert 2 == len(set(map(id, calls)))
        world.run(dict(request.tags))

    assert [(commit,)] == rows(installation, "SELECT commit FROM sync_state")
