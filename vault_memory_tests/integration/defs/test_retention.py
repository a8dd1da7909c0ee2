"""Dagster's database over months: it stays as small as it was, and shows what it showed."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest

from vault_memory.defs.instance import open_instance, run_in_process, show_index
from vault_memory.defs.retention import Removed, remove_old
from vault_memory.defs.storage import plain_dsn
from vault_memory.defs.upkeep import UPKEEP_JOB
from vault_memory.settings import load
from vault_memory_tests.fixtures.dagster import DagsterWorld, world_in

TABLES = ("event_logs", "runs", "run_tags", "asset_event_tags", "asset_check_executions", "job_ticks")
# What time does to each table that remembers it.
_AGE = """
UPDATE event_logs SET timestamp = timestamp - make_interval(days => 10);
UPDATE runs SET start_time = start_time - 864000, end_time = end_time - 864000;
UPDATE job_ticks SET timestamp = timestamp - make_interval(days => 10);
UPDATE bulk_actions SET timestamp = timestamp - make_interval(days => 10);
"""


@pytest.fixture
def stored(
    make_database: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DagsterWorld]:
    """A vault with a Dagster instance in PostgreSQL."""
    for name in ("DAGSTER_HOME", "VAULT_MEMORY_DAGSTER_DSN"):
        monkeypatch.setenv(name, "")
    settings = load({"HOME": str(tmp_path), "VAULT_MEMORY_HOME": str(tmp_path / "home")})
    with open_instance(settings, make_database()) as instance, world_in(tmp_path, instance) as world:
        yield world


def _dsn() -> str:
    return plain_dsn(os.environ["VAULT_MEMORY_DAGSTER_DSN"])


def _execute(statements: str) -> None:
    with psycopg.connect(_dsn(), autocommit=True) as connection:
        connection.execute(statements.encode())


def _count(where: str) -> int:
    with psycopg.connect(_dsn()) as connection:
        row = connection.execute(f"SELECT count(*) FROM {where}".encode()).fetchone()
    return row[0] if row else 0


def _sync(world: DagsterWorld) -> Any:
    plan: Any = world.open().plan()
    done = run_in_process(world.settings, world.instance, plan.note_ids, plan, opener=world.open)
    world.open().settle(world.open().plan())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vault_memory.defs.resources.VaultSession.settle_index", lambda _: "exact")
        patch.setattr("vault_memory.defs.resources.VaultSession.look_at_index", lambda _: world.index_look)
        show_index(world.settings, world.instance, plan.commit, opener=world.open)
    return done


def _shown(world: DagsterWorld) -> tuple[dict[str, str], dict[str, int], set[str]]:
    """Return what the pages of the assets show, made anew from the events: statuses, latest events, checks."""
    for asset in (world.names.notes, world.names.index):
        world.instance.wipe_asset_cached_status([asset])
    latest = world.instance.get_latest_storage_id_by_partition(
        world.names.notes, dg.DagsterEventType.ASSET_MATERIALIZATION
    )
    checks = world.instance.event_log_storage.get_latest_asset_check_execution_by_key(
        [dg.AssetCheckKey(world.names.index, name) for name in ("no_orphans", "matches_head", "index_self_check")]
    )
    statuses = world.statuses()  # of the notes that there are
    return (
        statuses,
        {key: latest[key] for key in latest.keys() & statuses.keys()},
        {key.name for key, record in checks.items() if record.event is not None},
    )


@pytest.mark.timeout(240)
def test_the_database_does_not_grow_over_months(stored: DagsterWorld) -> None:
    """A commit and an upkeep every ten days: after the first ones, no table gets larger, and pages show the same."""
    sizes: list[dict[str, int]] = []
    for cycle in range(7):
        notes = {f"{name}.md": f"{cycle}" for name in "abcdef"} | {f"only-{cycle}.md": "1"}
        stored.vault.commit(f"c{cycle}", notes)
        assert _sync(stored).succeeded
        before = _shown(stored)
        removed = remove_old(_dsn(), keep_days=30)
        assert before == _shown(stored)
        sizes.append({table: _count(table) for table in TABLES})
        _execute(_AGE)
    assert removed.rows["events"] > 20
    assert removed.rows["runs"] == 2  # what a commit makes goes when it is old
    assert sizes[4] == sizes[6]
    assert sizes[6]["runs"] == 2 * 3


def test_what_shows_how_things_stand_is_never_removed(stored: DagsterWorld) -> None:
    """However old: latest materializations, why a note failed, runs under way with their events, latest checks."""
    stored.vault.commit("c1", {"a.md": "1", "b.md": "bad"})
    failed = _sync(stored)
    stored.vault.commit("c2", {"a.md": "2", "b.md": "bad"})
    _sync(stored)
    going = stored.instance.create_run_for_job(
        stored.definitions().resolve_job_def(stored.names.index_job), status=dg.DagsterRunStatus.STARTED
    )
    stored.instance.report_engine_event("at work", going)
    before = _shown(stored)
    for _ in range(20):
        _execute(_AGE)
    removed = remove_old(_dsn(), keep_days=30)
    assert removed.rows["events"] > 0
    assert before == _shown(stored)
    assert {"a.md": "MATERIALIZED", "b.md": "FAILED"} == before[0]
    run = stored.instance.get_run_by_id(failed.run_id)
    assert run is not None
    assert "1 of 2 notes failed: b.md" in stored.problem(run)
    assert stored.instance.get_run_by_id(going.run_id) is not None
    assert 1 == len(stored.instance.all_logs(going.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT))
    assert Removed({}, 0).rows == {name: number for name, number in remove_old(_dsn(), 30).rows.items() if number}


def test_ticks_and_backfills_go_too(stored: DagsterWorld) -> None:
    """Old ones that are over; a tick or backfill that goes on stays."""
    _execute(
        """INSERT INTO job_ticks (job_origin_id, selector_id, status, type, timestamp, tick_body, create_timestamp,
               update_timestamp)
           SELECT 'o', 's', status, 'SENSOR', now() - make_interval(days => days), '{}', now(), now()
           FROM unnest(ARRAY['SKIPPED', 'SUCCESS', 'FAILURE', 'STARTED']) status, unnest(ARRAY[1, 40]) days;
           INSERT INTO bulk_actions (key, status, timestamp, body)
           SELECT status || days, status, now() - make_interval(days => days), '{}'
           FROM unnest(ARRAY['COMPLETED_SUCCESS', 'REQUESTED']) status, unnest(ARRAY[1, 40]) days;
           INSERT INTO backfill_tags (backfill_id, key, value) SELECT key, 'k', 'v' FROM bulk_actions"""
    )
    removed = remove_old(_dsn(), keep_days=30)
    assert (3, 1, 1) == (removed.rows["ticks"], removed.rows["backfills"], removed.rows["backfill_tags"])
    assert (5, 3, 3) == (_count("job_ticks"), _count("bulk_actions"), _count("backfill_tags"))


def test_the_daily_job_removes_and_says_how_much(stored: DagsterWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Dagster runs it, with the days of the settings; it is on by itself, as is the daily look at the index."""
    config = stored.vault.folder / "config.toml"
    config.write_text("[dagster]\nkeep_days = 15\n")
    monkeypatch.setenv("VAULT_MEMORY_CONFIG", str(config))
    for cycle in range(3):
        stored.vault.commit(f"c{cycle}", {"a.md": f"{cycle}"})
        _sync(stored)
        _execute(_AGE)
    job = stored.definitions().resolve_job_def(UPKEEP_JOB)
    done = job.execute_in_process(instance=stored.instance)
    (output,) = [event for event in done.all_events if event.event_type is dg.DagsterEventType.STEP_OUTPUT]
    metadata = output.step_output_data.metadata
    assert 2 <= metadata["runs"].value <= 4
    assert metadata["megabytes"].value > 0
    schedules = stored.definitions().get_repository_def().schedule_defs
    assert {dg.DefaultScheduleStatus.RUNNING} == {schedule.default_status for schedule in schedules}
    assert {UPKEEP_JOB, stored.names.index_job} == {schedule.job_name for schedule in schedules}
