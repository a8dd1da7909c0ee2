import threading
import time
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from vault_memory.defs import sensors
from vault_memory.defs.instance import _origin
from vault_memory.defs.partitions import COMMIT_TAG, PLAN_TAG, SELECTION_TAG, VAULT_TAG
from vault_memory.defs.sensors import Cursor
from vault_memory.defs.untold import tell_of_written
from vault_memory.errors import StoreUnavailable
from vault_memory_tests.fixtures.dagster import DagsterWorld
from vault_memory_tests.fixtures.fake_sync import FakeSynchronizer


def _run_of(world: DagsterWorld, status: dg.DagsterRunStatus, **tags: str) -> dg.DagsterRun:
    job = world.definitions().resolve_job_def(world.names.sync_job)
    origin = _origin(world.names.sync_job)  # queued runs have one
    return world.instance.create_run_for_job(
        job, status=status, remote_job_origin=origin, tags={VAULT_TAG: world.names.schema, **tags}
    )


def test_a_commit_becomes_one_ranged_run_with_a_plan(world: DagsterWorld) -> None:
    """The request holds the range, the digest and the commit, but no run key, which would hide a revert."""
    world.vault.commit("c1", {"a.md": "1", "b.md": "1"})
    result = world.tick()
    (request,) = result.run_requests
    assert (world.names.sync_job, None) == (request.job_name, request.run_key)
    assert ("a.md", "b.md") == (
        request.tags["dagster/asset_partition_range_start"],
        request.tags["dagster/asset_partition_range_end"],
    )
    assert {PLAN_TAG, SELECTION_TAG, VAULT_TAG} <= request.tags.keys()
    assert "c1" == request.tags[COMMIT_TAG]


def test_the_vaults_commit_is_told_once(world: DagsterWorld) -> None:
    """The vault is materialized at a new commit, and not again while its notes are still coming in."""
    world.vault.commit("c1", {"a.md": "1"})
    (event,) = world.tick().asset_events
    assert (world.names.vault, "c1") == (event.asset_key, event.metadata["commit"].value)
    assert [] == list(world.tick().asset_events)


def test_many_notes_become_several_runs_of_bounded_size(world: DagsterWorld) -> None:
    """One run a tick, of at most the notes that the settings allow; the commit counts as indexed after the last."""
    world.settings = replace(world.settings, sync=replace(world.settings.sync, max_notes_per_run=2))
    world.vault.commit("c1", {f"{name}.md": "1" for name in "abcde"})
    runs = world.sync()
    assert [2, 2, 1] == [len(notes) for _, _, notes in world.vault.read()["runs"]]
    assert [dg.DagsterRunStatus.SUCCESS] * 3 == [run.status for run in runs]
    assert "c1" == world.vault.read()["indexed"]


@pytest.mark.parametrize(
    "status", [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]
)
def test_nothing_is_asked_for_while_a_run_goes_on(world: DagsterWorld, status: dg.DagsterRunStatus) -> None:
    """A second request would move the partitions under the first; the skip names the run."""
    run = _run_of(world, status)
    world.vault.commit("c1", {"a.md": "1"})
    result = world.tick()
    assert [] == list(result.run_requests)
    assert f"run {run.run_id} is {status.value.lower()}" == result.skip_message
    assert [] == list(world.instance.get_dynamic_partitions(world.names.partitions))


def test_runs_of_other_vaults_do_not_count(world: DagsterWorld) -> None:
    """Another source set in the same Dagster may be busy."""
    world.vault.commit("c1", {"a.md": "1"})
    other = DagsterWorld(world.vault, world.settings, world.instance, names=type(world.names)("vault_memory_work"))
    _run_of(other, dg.DagsterRunStatus.STARTED)
    assert 1 == len(world.tick().run_requests)


def test_nothing_is_asked_for_while_a_backfill_is_requested(world: DagsterWorld) -> None:
    """A backfill's ranges are fixed when it is asked for."""
    backfill = make_backfill(world, "a.md")
    world.vault.commit("c1", {"a.md": "1"})
    assert "a backfill is going on" == world.tick().skip_message
    world.instance.update_backfill(backfill.with_status(backfill.status.COMPLETED_SUCCESS))
    assert 1 == len(world.tick().run_requests)


def make_backfill(world: DagsterWorld, *keys: str) -> Any:
    """Record a backfill of some notes as requested, as the UI's button does."""
    from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill  # noqa: PLC0415 - private

    world.instance.add_dynamic_partitions(world.names.partitions, list(keys))
    backfill = PartitionBackfill(
        backfill_id="b1",
        status=BulkActionStatus.REQUESTED,
        from_failure=False,
        tags={},
        backfill_timestamp=time.time(),
        partition_names=list(keys),
        asset_selection=[world.names.notes],
    )
    world.instance.add_backfill(backfill)
    return backfill


def test_the_index_is_checked_once_a_commit(world: DagsterWorld) -> None:
    """When nothing is left to do, the index job is asked for, and not again at the next tick."""
    world.vault.commit("c1", {"a.md": "1"})
    world.sync()
    assert Cursor("c1", "c1") == Cursor.read(world.cursor)
    result = world.tick()
    assert [] == list(result.run_requests)
    assert "memory is at HEAD, c1" == result.skip_message


def test_states_without_notes_are_settled_in_the_tick(world: DagsterWorld) -> None:
    """A commit that only touches what is never read costs no run."""
    world.vault.commit("c1", {"x.md": "unread"})
    result = world.tick()
    assert [] == list(result.run_requests)
    assert "c1" == world.vault.read()["indexed"]


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        ("no-vault", "VaultError: the vault is not a git repository"),
        ("no-database", "StoreUnavailable: no connection to the database"),
        ("too-much", "VaultError: HEAD lacks most notes"),
    ],
)
def test_trouble_is_a_skip_with_its_reason(world: DagsterWorld, trouble: str, told: str) -> None:
    """The tick says what is wrong in a line and keeps its cursor; when it is mended, the next one goes on."""
    world.vault.commit("c1", {"a.md": "1"})
    world.cursor = before = Cursor("c0", "c0").write()
    (world.vault.folder / trouble).touch()
    result = world.tick()
    assert told == result.skip_message
    assert before == (result.cursor or before)
    (world.vault.folder / trouble).unlink()
    world.cursor = before
    assert 1 == len(world.tick().run_requests)


def test_runs_that_keep_failing_are_asked_for_ever_less_often(
    world: DagsterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that fails as a whole comes again at once, then after a pause; another selection need not wait."""
    world.vault.commit("c1", {"a.md": "1"})
    (world.vault.folder / "leaky").touch()
    for _ in range(2):
        assert dg.DagsterRunStatus.FAILURE == world.run(dict(world.tick().run_requests[0].tags)).status
    result = world.tick()
    assert [] == list(result.run_requests)
    assert "failed without getting anywhere" in result.skip_message
    world.vault.commit("c2", {"a.md": "1", "b.md": "1"})
    assert 1 == len(world.tick().run_requests)
    world.vault.commit("c1")
    monkeypatch.setattr(sensors, "_PAUSE_SECONDS", 0.0)
    assert 1 == len(world.tick().run_requests)


def test_a_dropped_connection_is_made_anew_within_the_tick(
    world: DagsterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that was restarted costs no tick; the broken connection is closed."""
    world.vault.commit("c1", {"a.md": "1"})
    answer = FakeSynchronizer.is_current

    def is_current(self: FakeSynchronizer) -> bool:
        if self is world.opened[0]:
            raise StoreUnavailable("the connection was dropped")
        return answer(self)

    monkeypatch.setattr(FakeSynchronizer, "is_current", is_current)
    assert 1 == len(world.tick().run_requests)
    assert [True, True] == [opened.closed for opened in world.opened]


def test_a_writer_of_another_kind_is_waited_for_in_the_next_tick(world: DagsterWorld) -> None:
    """While a sync on the command line writes, no partition is moved."""
    world.vault.commit("c1", {"a.md": "1"})
    with world.open().writer(0, holder="sync (process 7)"):
        result = world.tick()
    assert [] == list(result.run_requests)
    assert "sync (process 7)" in result.skip_message
    assert [] == list(world.instance.get_dynamic_partitions(world.names.partitions))


def test_a_commit_inside_the_tick_is_seen_at_once(world: DagsterWorld) -> None:
    """The tick waits for a commit, so that it need not wait for the tick."""
    world.vault.commit("c1", {"a.md": "1"})
    world.sync()
    timer = threading.Timer(0.3, world.vault.commit, ["c2", {"a.md": "2"}])
    timer.start()
    started = time.monotonic()
    result = world.tick(tick_seconds=20)
    assert 1 == len(result.run_requests)
    assert time.monotonic() - started < 5
    timer.join()


def test_a_vault_without_a_commit_is_at_rest(world: DagsterWorld) -> None:
    """An unborn HEAD is nothing to do, not an error."""
    assert "memory is at HEAD, which has no commit yet" == world.tick().skip_message


@pytest.mark.parametrize("text", [None, "", "c1", "[]", "null", '{"other": 1}'])
def test_a_foreign_cursor_counts_as_none(text: str | None) -> None:
    """The cursor holds nothing that is needed, so one of another release is no reason to stop."""
    assert Cursor() == Cursor.read(text)


def test_a_cursor_is_read_as_it_was_written() -> None:
    """Both commits survive."""
    assert Cursor("a", "b") == Cursor.read(Cursor("a", "b").write())


def test_notes_of_a_run_that_was_killed_before_it_told_of_them_turn_green(
    world: DagsterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in memory and no run has a reason to write them again; a note that failed stays red."""
    world.vault.commit("c1", {"a.md": "1", "b.md": "bad", "c.md": "1"})
    with monkeypatch.context() as patch:
        patch.setattr("vault_memory.defs.assets.Telling.flush", lambda _: None)  # killed in time
        world.sync()
    assert {"a.md": "MATERIALIZED", "b.md": "FAILED", "c.md": "MATERIALIZED"} == world.statuses()
    (told,) = world.instance.fetch_materializations(
        dg.AssetRecordsFilter(asset_key=world.names.notes, asset_partitions=["a.md"]), limit=5
    ).records
    assert told.asset_materialization is not None
    assert "told later: its run was killed" == told.asset_materialization.metadata["action"].value
    assert [] == tell_of_written(world.instance, world.names, world.open())
