"""Events in batches: how few statements a run's notes cost, and that none is lost on the way."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from sqlalchemy import event

from vault_memory.defs import telling
from vault_memory.defs.instance import open_instance, run_in_process
from vault_memory.defs.storage import BATCH_SIZE_VARIABLE, BatchedEventLog, VaultStorage
from vault_memory.settings import load
from vault_memory_tests.fixtures.dagster import DagsterWorld, world_in
from vault_memory_tests.fixtures.fake_sync import FakeSynchronizer

NOTES = 120
PLANNED, WRITTEN = dg.DagsterEventType.ASSET_MATERIALIZATION_PLANNED, dg.DagsterEventType.ASSET_MATERIALIZATION


@pytest.fixture
def stored(
    make_database: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DagsterWorld]:
    """A vault with a Dagster instance in PostgreSQL, as ``dagster.yaml`` makes it."""
    for name in ("DAGSTER_HOME", "VAULT_MEMORY_DAGSTER_DSN"):
        monkeypatch.setenv(name, "")
    monkeypatch.delenv(BATCH_SIZE_VARIABLE, raising=False)
    settings = load({"HOME": str(tmp_path), "VAULT_MEMORY_HOME": str(tmp_path / "home")})
    with open_instance(settings, make_database()) as instance, world_in(tmp_path, instance) as world:
        yield world


def _sync(world: DagsterWorld) -> Any:
    plan: Any = world.open().plan()
    return run_in_process(world.settings, world.instance, plan.note_ids, plan, opener=world.open)


def _insertions(world: DagsterWorld) -> Counter[str]:
    """Count from now on the INSERT statements by table."""
    counts: Counter[str] = Counter()

    def count(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("INSERT INTO "):
            counts[statement.split(" ")[2]] += 1

    event.listen(world.instance.event_log_storage._engine, "before_cursor_execute", count)
    return counts


def test_a_run_over_many_notes_is_few_statements(stored: DagsterWorld) -> None:
    """Each note is told of and green, and yet there are ten times fewer insertions than notes."""
    stored.vault.commit("c1", {f"{number:03d}.md": "1" for number in range(NOTES)})
    counts = _insertions(stored)
    result = _sync(stored)
    assert result.succeeded
    assert {"MATERIALIZED": NOTES} == Counter(stored.statuses().values())
    for kind in (PLANNED, WRITTEN):
        told = [
            entry.get_dagster_event().partition
            for entry in stored.instance.all_logs(result.run_id, of_type=kind)
            if entry.get_dagster_event().asset_key == stored.names.notes
        ]
        assert {f"{number:03d}.md" for number in range(NOTES)} == set(told)
        assert NOTES == len(told)
    assert counts["event_logs"] < NOTES / 2  # about 15 a run are of the run itself
    assert counts["asset_event_tags"] < NOTES / 10


def test_dagsters_process_has_the_storage_that_batches(stored: DagsterWorld) -> None:
    """The packaged dagster.yaml names it, and Dagster's own switch is on, at any value that was set before."""
    assert isinstance(stored.instance.event_log_storage, BatchedEventLog)
    assert "100" == os.environ[BATCH_SIZE_VARIABLE]
    VaultStorage(os.environ["VAULT_MEMORY_DAGSTER_DSN"])
    os.environ[BATCH_SIZE_VARIABLE] = "7"
    VaultStorage(os.environ["VAULT_MEMORY_DAGSTER_DSN"])
    assert "7" == os.environ[BATCH_SIZE_VARIABLE]


def test_what_was_written_before_an_error_is_told(stored: DagsterWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half-way through the notes the database goes: those that are written are green, the others are not."""
    stored.vault.commit("c1", {f"{name}.md": "1" for name in "abcd"})
    persist = FakeSynchronizer.persist

    def broken(self: FakeSynchronizer, batch: Any) -> Iterator[Any]:
        for number, outcome in enumerate(persist(self, batch)):
            if number == 2:
                raise ConnectionError("gone")
            yield outcome

    monkeypatch.setattr(FakeSynchronizer, "persist", broken)
    assert not _sync(stored).succeeded
    assert {"a.md": "MATERIALIZED", "b.md": "MATERIALIZED", "c.md": "FAILED", "d.md": "FAILED"} == stored.statuses()


def test_nothing_is_held_back_for_long(stored: DagsterWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A note that takes long does not keep the ones before it from being seen."""
    monkeypatch.setattr(telling, "MOST_SECONDS", 0.0)
    stored.vault.commit("c1", {"a.md": "1", "b.md": "1"})
    seen: list[int] = []
    persist = FakeSynchronizer.persist

    def watched(self: FakeSynchronizer, batch: Any) -> Iterator[Any]:
        for outcome in persist(self, batch):
            (run,) = stored.instance.get_runs()
            seen.append(len(stored.instance.all_logs(run.run_id, of_type=WRITTEN)))
            yield outcome

    monkeypatch.setattr(FakeSynchronizer, "persist", watched)
    assert _sync(stored).succeeded
    assert [0, 1] == seen


def test_a_restarted_server_is_not_noticed(stored: DagsterWorld) -> None:
    """Connections that are kept are looked at before they are used: the server may have been restarted since."""
    storage: Any = stored.instance.event_log_storage
    with storage._connect() as connection:
        connection.exec_driver_sql("SELECT 1")
    with storage._connect() as other:
        (pid,) = other.exec_driver_sql("SELECT pg_backend_pid()").fetchone()
    import psycopg  # noqa: PLC0415 - to end what SQLAlchemy keeps

    dsn = os.environ["VAULT_MEMORY_DAGSTER_DSN"].replace("+psycopg2", "")
    with psycopg.connect(dsn, autocommit=True) as killer:
        killer.execute("SELECT pg_terminate_backend(%s)", [pid])
    assert [] == list(stored.instance.get_dynamic_partitions("none"))
