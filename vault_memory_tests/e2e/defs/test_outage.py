"""An hour's outage of the provider in small, with the real daemon: it goes on by itself, and pays for nothing twice."""

from collections.abc import Callable

import dagster as dg
import pytest

from vault_memory.commands.status import status
from vault_memory.defs.instance import open_instance
from vault_memory.defs.partitions import Names
from vault_memory.query.search import search
from vault_memory_tests.fixtures.deployment import deployed, wait_for
from vault_memory_tests.fixtures.embedding_server import EmbeddingServer
from vault_memory_tests.fixtures.installation import Installation
from vault_memory_tests.fixtures.online import QUICK, fill, paid, rows, states

QUEUE = "SELECT count(*) FROM note_state WHERE status = 'failed'"
# A minute of the outage is a fifth of a second: the first retry after 0.2 s, the last ones every 3 s.
MINUTES = QUICK.replace("retry_max_seconds = 0.4", "retry_max_seconds = 3.0")


@pytest.mark.slow  # the sensor wakes every 5 s, and Dagster pauses runs that fail one after the other
@pytest.mark.timeout(300)
def test_an_outage_ends_by_itself(
    make_online: Callable[..., Installation], embedding_server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits before and during it are in memory after it, nobody did anything, each text was paid for once."""
    installation = make_online(embedding_server.url, MINUTES, VAULT_MEMORY_EMBEDDING_CONCURRENCY="1")
    settings = installation.settings
    monkeypatch.setenv("DAGSTER_HOME", "")
    monkeypatch.setenv("VAULT_MEMORY_DAGSTER_DSN", "")
    assert settings.dagster_dsn is not None
    names = Names.of(settings)
    environment = {key: value for key, value in installation.environment.items() if not key.endswith("DAGSTER_DSN")}
    fill(installation, 8)
    embedding_server.control(script=["ok"], faults={"503": 1.0}, retry_after=0)
    with (
        open_instance(settings, settings.dagster_dsn) as instance,
        deployed(instance, settings.dagster_home, "vault_memory.definitions", environment) as ui,
    ):
        wait_for(lambda: rows(installation, QUEUE) == [(6,)], 90)
        installation.vault.write("01_Projects/later.md", "# Later\n\nWritten in the outage.\n")
        commit = installation.vault.commit()
        wait_for(lambda: rows(installation, QUEUE) == [(7,)], 90)
        # tried again without a commit, named all the while, and the two that were paid for answer
        wait_for(lambda: min(one.attempts for one in status(settings).failures) >= 2, 90)
        assert {"EmbeddingUnavailable"} == {one.error_class for one in status(settings).failures}
        assert 2 == len({hit.source for hit in search("caches", settings=settings, mode="keyword").items})
        partitions = instance.get_status_by_partition(
            names.notes,
            instance.get_dynamic_partitions(names.partitions),
            dg.DynamicPartitionsDefinition(name=names.partitions),
        )
        assert {"FAILED", "MATERIALIZED"} >= {one.value for one in (partitions or {}).values() if one is not None}

        embedding_server.control(faults={})
        wait_for(lambda: states(installation) == {("indexed", None, None)}, 120)
        wait_for(lambda: [run for run in ui.runs(names.index_job) if run.status is dg.DagsterRunStatus.SUCCESS], 60)

    assert [(commit,)] == rows(installation, "SELECT commit FROM sync_state")
    assert [] == status(settings).failures
    bought = paid(embedding_server)
    assert (17, 17) == (len(bought), len(set(bought)))
    assert [(0,)] == rows(installation, "SELECT count(*) FROM embedding_stage")
