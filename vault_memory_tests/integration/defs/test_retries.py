"""The sensor and notes that failed: tried again when they are due, without a commit, and in nobody's way."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import dagster as dg
import pytest

from vault_memory.commands.status import status
from vault_memory.defs import sensors
from vault_memory.defs.instance import open_instance
from vault_memory.defs.partitions import Names
from vault_memory.defs.resources import VaultSession
from vault_memory.ingest.sync import Synchronizer
from vault_memory.settings import Settings
from vault_memory_tests.fixtures.dagster import DagsterWorld
from vault_memory_tests.fixtures.embedding_server import EmbeddingServer
from vault_memory_tests.fixtures.installation import Installation
from vault_memory_tests.fixtures.online import SLOW, fill, good, hours_pass, paid, reply, rows, served, states

SUCCESS, FAILURE = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE


class RealWorld(DagsterWorld):
    """The world of ``DagsterWorld`` with the real planner, database and embedder."""

    def open(self, _: Settings | None = None) -> Any:
        """Open the vault."""
        return Synchronizer.open(self.settings)

    def session(self) -> VaultSession:
        """Make a session."""
        return VaultSession(lambda: self.settings, self.open, lambda _: None)

    def asked(self) -> list[dg.RunRequest]:
        """Evaluate the sensor and return the runs over notes that it asks for."""
        requests = self.tick().run_requests or []
        return [request for request in requests if request.job_name == self.names.sync_job]


MakeWorld = Callable[[Installation], AbstractContextManager[RealWorld]]


@pytest.fixture
def open_world(monkeypatch: pytest.MonkeyPatch) -> MakeWorld:
    """Return what opens a Dagster instance in PostgreSQL around an installation."""
    monkeypatch.setenv("DAGSTER_HOME", "")
    monkeypatch.setenv("VAULT_MEMORY_DAGSTER_DSN", "")
    # Runs over the same notes that fail one after the other are paused besides, by Dagster's clock, which no test
    # moves: shorter at every step than a note's own back-off.
    assert sensors._PAUSE_SECONDS < 60
    monkeypatch.setattr(sensors, "_PAUSE_SECONDS", 0.0)

    @contextmanager
    def opened(installation: Installation) -> Iterator[RealWorld]:
        settings = installation.settings
        assert settings.dagster_dsn is not None
        with open_instance(settings, settings.dagster_dsn) as instance:
            yield RealWorld(None, settings, instance, names=Names.of(settings))  # type: ignore[arg-type] - no fake vault

    return opened


def test_an_outage_is_retried_without_a_commit(
    make_online: Callable[..., Installation], embedding_server: EmbeddingServer, open_world: MakeWorld
) -> None:
    """Failed partitions are asked for when due, ever later, and not before; then the queue drains, paid for once."""
    installation = make_online(embedding_server.url, SLOW, VAULT_MEMORY_EMBEDDING_CONCURRENCY="1")
    commit = fill(installation, 5)
    embedding_server.control(script=["ok"], faults={"503": 1.0})
    waits = []
    with open_world(installation) as world:
        for attempt in range(1, 5):
            (request,) = world.asked()
            assert FAILURE == world.run(dict(request.tags)).status
            due = rows(
                installation,
                "SELECT id, attempts, error_class, extract(epoch FROM next_retry_at - updated_at)::float8"
                " FROM note_state WHERE status = 'failed' ORDER BY id",
            )
            # the first request brought the vectors of two notes
            assert [f"01_Projects/n{number}.md" for number in (2, 3, 4)] == [row[0] for row in due]
            assert {(attempt, "EmbeddingUnavailable")} == {row[1:3] for row in due}
            waits.append(max(row[3] for row in due))
            statuses = world.statuses()
            assert {"FAILED": 3, "MATERIALIZED": 2} == {
                status: list(statuses.values()).count(status) for status in statuses.values()
            }
            assert [] == world.asked()  # the index is shown
            assert [] == world.asked()  # nothing is due
            hours_pass(installation)

        embedding_server.control(faults={})
        (request,) = world.asked()
        assert SUCCESS == world.run(dict(request.tags)).status
        assert {"MATERIALIZED"} == set(world.statuses().values())
        assert [] == world.asked()

    assert [60, 120, 200, 200] == [round(wait) for wait in waits]
    assert {("indexed", None, None)} == states(installation)
    assert [(commit,)] == rows(installation, "SELECT commit FROM sync_state")
    bought = paid(embedding_server)
    assert (10, 10) == (len(bought), len(set(bought)))
    assert [(0,)] == rows(installation, "SELECT count(*) FROM embedding_stage")


@pytest.mark.parametrize("status", [400, 500])
def test_a_note_that_always_fails_is_in_nobodys_way(
    make_online: Callable[..., Installation], open_world: MakeWorld, status: int
) -> None:
    """Whether it is refused for good or tried again and again, notes beside it and after it become memory."""

    def digest(handler: Any, body: bytes) -> None:
        reply(handler, status if "poison" in body.decode() else 200, good(body))

    with served(digest) as (url, received):
        installation = make_online(url, SLOW)
        installation.vault.write("01_Projects/n1-poison.md", "# Note\n\nThis poison is never digested.\n")
        fill(installation, 3)
        with open_world(installation) as world:
            (request,) = world.asked()
            assert FAILURE == world.run(dict(request.tags)).status
            assert {"01_Projects/n1-poison.md"} == failed(installation)
            assert [] == world.asked()
            assert [] == world.asked()

            # later commits come through, and so do the retries of the note, one request each
            for number in range(2):
                installation.vault.write(f"01_Projects/later{number}.md", f"# Later {number}\n\nwords\n")
                commit = installation.vault.commit()
                if status == 500:
                    hours_pass(installation)
                (request,) = world.asked()
                world.run(dict(request.tags))
                assert {"01_Projects/n1-poison.md"} == failed(installation)
                assert [(commit,)] == rows(installation, "SELECT commit FROM sync_state")
                assert [] == world.asked()

    assert [(5,)] == rows(installation, "SELECT count(*) FROM memory_primary")
    attempts = rows(installation, "SELECT attempts, next_retry_at IS NULL FROM note_state WHERE status = 'failed'")
    assert [(1, True) if status == 400 else (3, False)] == attempts
    assert len(received) < 40


def test_a_run_tells_what_it_paid_for(
    make_online: Callable[..., Installation], embedding_server: EmbeddingServer, open_world: MakeWorld
) -> None:
    """Each run shows texts, tokens, requests and price at its embed step, and each note its own at its partition."""
    installation = make_online(embedding_server.url, SLOW)
    fill(installation, 2)
    told = []
    with open_world(installation) as world:
        for words in ("caches", "queues"):
            if words == "queues":
                installation.vault.write(
                    "01_Projects/n0.md", "# Note 0\n\nChanged.\n\n## Deploy\n\n部署 0 with caches.\n"
                )
                installation.vault.commit()
            before = embedding_server.stats()["tokens"]
            (request,) = world.asked()
            run = world.run(dict(request.tags))
            (shown,) = [
                entry.dagster_event.step_output_data.metadata
                for entry in world.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_OUTPUT)
                if entry.dagster_event and "texts_embedded" in entry.dagster_event.step_output_data.metadata
            ]
            told.append({name: value.value for name, value in shown.items()})
            assert embedding_server.stats()["tokens"] - before == told[-1]["tokens"]
            assert [] == world.asked()
        (record,) = world.instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=world.names.notes, asset_partitions=["01_Projects/n0.md"]), limit=1
        ).records
    note = {name: value.value for name, value in record.asset_materialization.metadata.items()}

    assert [(4, 0, 1), (1, 1, 1)] == [(one["texts_embedded"], one["texts_reused"], one["requests"]) for one in told]
    assert [round(one["tokens"] * 0.02 / 1_000_000, 6) for one in told] == [one["price_usd"] for one in told]
    assert (1, 1) == (note["texts_embedded"], note["texts_reused"])
    month = status(installation.settings).to_json()["embedding_this_month"]
    tokens = sum(one["tokens"] for one in told)
    assert (5, 1, tokens, 2) == tuple(month[name] for name in ("texts_embedded", "texts_reused", "tokens", "requests"))
    assert round(tokens * 0.02 / 1_000_000, 6) == month["price_usd"]


def failed(installation: Installation) -> set[object]:
    """Return the notes that failed."""
    return {note for (note,) in rows(installation, "SELECT id FROM note_state WHERE status = 'failed'")}
