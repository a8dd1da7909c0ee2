"""A real webserver and daemon: what a user's commits and clicks lead to."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest

from vault_memory.defs.instance import open_instance, run_in_process
from vault_memory.defs.partitions import OWNER_TAG, Names
from vault_memory.settings import load
from vault_memory_tests.fixtures.dagster import DagsterWorld, world_in
from vault_memory_tests.fixtures.deployment import Deployment, deployed, wait_for
from vault_memory_tests.fixtures.installation import Installation

SUCCESS, FAILURE = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE
FAKE_LOCATION = "vault_memory_tests.fixtures.fake_location"


@pytest.fixture
def running(
    make_database: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[DagsterWorld, Deployment]]:
    """A vault with a daemon that follows it and a webserver that shows it."""
    monkeypatch.setenv("DAGSTER_HOME", "")  # so that what bootstrap sets is taken back
    monkeypatch.setenv("VAULT_MEMORY_DAGSTER_DSN", "")
    environment = {"HOME": str(tmp_path), "VAULT_MEMORY_HOME": str(tmp_path / "home"), "FAKE_VAULT": str(tmp_path)}
    settings = load(environment)
    with (
        open_instance(settings, make_database()) as instance,
        world_in(tmp_path, instance) as world,
        deployed(instance, settings.dagster_home, FAKE_LOCATION, environment) as deployment,
    ):
        yield world, deployment


def _at_head(world: DagsterWorld, commit: str) -> Callable[[], bool]:
    return lambda: world.vault.read()["indexed"] == commit


def _idle(world: DagsterWorld) -> None:
    active = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]
    wait_for(lambda: not world.instance.get_runs(dg.RunsFilter(statuses=active)))


@pytest.mark.timeout(180)
def test_a_commit_becomes_memory_by_itself(
    make_installation: Callable[..., Installation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With daemon and webserver up, notes that are committed, edited and deleted are in memory soon, and checked."""
    installation = make_installation()
    vault, settings = installation.vault, installation.settings
    monkeypatch.setenv("DAGSTER_HOME", "")
    monkeypatch.setenv("VAULT_MEMORY_DAGSTER_DSN", "")
    assert settings.dsn is not None
    assert settings.dagster_dsn is not None
    names = Names.of(settings)
    # as bootstrap spells the storage, it is in this process' environment
    environment = {key: value for key, value in installation.environment.items() if not key.endswith("DAGSTER_DSN")}
    vault.write("01_Projects/笔记 计划.md", "# 计划\n\n独角兽\n")
    vault.write("01_Projects/b.md", "# B\n\nthe unicorn\n")
    vault.write("04_Archive/never.md", "# Never\n")
    vault.commit()
    with (
        psycopg.connect(settings.dsn, autocommit=True) as store,
        open_instance(settings, settings.dagster_dsn) as instance,
        deployed(instance, settings.dagster_home, "vault_memory.definitions", environment) as ui,
    ):

        def notes() -> set[str]:
            return {row[0] for row in store.execute("SELECT id FROM vault_memory.memory_primary").fetchall()}

        wait_for(lambda: notes() == {"01_Projects/笔记 计划.md", "01_Projects/b.md"})
        vault.write("01_Projects/c.md", "# C\n")
        vault.delete("01_Projects/b.md")
        vault.commit()
        wait_for(lambda: notes() == {"01_Projects/笔记 计划.md", "01_Projects/c.md"})
        wait_for(lambda: [run for run in ui.runs(names.index_job) if run.status is SUCCESS])
        assert [] == [run.run_id for run in ui.runs(names.sync_job) if run.status is FAILURE]
        checks = instance.get_records_for_run(
            wait_for(lambda: [run for run in ui.runs(names.index_job) if run.status is SUCCESS])[0].run_id,
            of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION,
        ).records
        passed = [record.event_log_entry.dagster_event.asset_check_evaluation_data.passed for record in checks]
        assert [True] * 4 == passed


def _amend(world: DagsterWorld, commit: str, notes: dict[str, str]) -> None:
    """Change what a commit holds, so that the sensor sees nothing to do, but a run finds other notes."""
    world.vault.change(commits=world.vault.read()["commits"] | {commit: notes})


@pytest.mark.timeout(240)
def test_commits_and_reruns_end_in_the_right_store(running: tuple[DagsterWorld, Deployment]) -> None:
    """Commits are followed there and back; re-executions from the UI do the right notes or none."""
    world, ui = running
    for commit, notes in (
        ("A", {"a.md": "1", "b.md": "1", "c.md": "1"}),
        ("B", {"a.md": "2", "b.md": "1", "c.md": "2"}),
        ("A", None),
    ):
        world.vault.commit(commit, notes)
        wait_for(_at_head(world, commit))
        assert world.vault.read()["commits"][commit] == world.vault.store
    assert wait_for(lambda: [run for run in ui.runs(world.names.index_job) if run.status is SUCCESS])
    _idle(world)

    # an old run again, after its keys moved
    first = ui.runs(world.names.sync_job)[-1]
    again = ui.run(ui.reexecute(first.run_id, "ALL_STEPS"))
    assert (FAILURE, True) == (again.status, "selection is stale" in world.problem(again))

    # a run that failed for one note, from its failure on, after the note was mended
    world.vault.commit("C", {"a.md": "bad", "b.md": "1", "c.md": "3"})
    wait_for(_at_head(world, "C"))
    _idle(world)
    failed = next(run for run in ui.runs(world.names.sync_job) if run.status is FAILURE and run.run_id != again.run_id)
    _amend(world, "C", {"a.md": "4", "b.md": "1", "c.md": "3"})
    mended = ui.run(ui.reexecute(failed.run_id, "FROM_FAILURE"))
    assert (SUCCESS, "") == (mended.status, world.problem(mended))
    assert {"a.md": "4", "b.md": "1", "c.md": "3"} == world.vault.store
    assert "MATERIALIZED" == world.statuses()["a.md"]

    # a sync from the command line beside the daemon, then from the UI again
    _idle(world)
    _amend(world, "C", {"a.md": "5", "b.md": "1", "c.md": "3"})
    plan: Any = world.open().plan()
    own = run_in_process(world.settings, world.instance, plan.note_ids, plan, opener=world.open)
    assert (True, None) == (own.succeeded, own.problem)
    assert SUCCESS == ui.run(ui.reexecute(own.run_id, "ALL_STEPS")).status


@pytest.mark.slow  # Dagster looks for backfills every 30 s
@pytest.mark.timeout(300)
def test_backfills_and_killed_runs_end_in_the_right_store(running: tuple[DagsterWorld, Deployment]) -> None:
    """A backfill of a selection does just that; a run whose process is killed is ended and made up for."""
    world, ui = running
    world.vault.commit("A", {"a.md": "1", "b.md": "1", "c.md": "1"})
    wait_for(_at_head(world, "A"))
    _idle(world)

    # a selection that is not contiguous, from the asset page
    before = len(world.vault.read()["runs"])
    keys = list(world.instance.get_dynamic_partitions(world.names.partitions))
    backfill = ui.backfill("memory_notes", [keys[0], keys[2]])
    wait_for(lambda: ui.backfill_status(backfill) == "COMPLETED_SUCCESS", 120)
    written = world.vault.read()["runs"][before:]
    assert [[keys[0]], [keys[2]]] == sorted(notes for _, _, notes in written)
    assert [False] * len(written) == [follow for _, follow, _ in written]

    # SIGKILL in the middle of writing
    _idle(world)
    gate = world.vault.hold("persist")
    world.vault.commit("D", {"a.md": "6"})
    wait_for((world.vault.folder / "at.persist").exists)
    (victim,) = world.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
    os.kill(int(victim.tags[OWNER_TAG].split(" ")[1]), signal.SIGKILL)
    gate.unlink()
    assert FAILURE == ui.run(victim.run_id).status
    wait_for(_at_head(world, "D"))
    assert {"a.md": "6"} == world.vault.store
