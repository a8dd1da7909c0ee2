from dataclasses import replace

import dagster as dg
import pytest

from vault_memory.defs.partitions import (
    AUTHORED_TAG,
    COMMIT_TAG,
    NOTES_TAG,
    OUTCOME_TAG,
    OWNER_TAG,
    RANGE_END_TAG,
    RANGE_START_TAG,
    postponed_drops,
)
from vault_memory.ingest.vector_index import SelfCheck
from vault_memory_tests.fixtures.dagster import DagsterWorld

SUCCESS, FAILURE = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE


def _materializations(world: DagsterWorld, run: dg.DagsterRun) -> dict[str, dg.AssetMaterialization]:
    found = {}
    for entry in world.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION):
        assert entry.asset_materialization is not None
        found[entry.asset_materialization.partition] = entry.asset_materialization
    return found


def test_good_notes_are_materialized_and_bad_ones_failed(world: DagsterWorld) -> None:
    """One bad note fails the run and its own partition, names itself and says what to do; the others are done."""
    world.vault.commit("c1", {"a.md": "1", "b.md": "bad", "c.md": "2"})
    (run,) = world.sync()
    assert FAILURE == run.status
    assert {"a.md": "MATERIALIZED", "b.md": "FAILED", "c.md": "MATERIALIZED"} == world.statuses()
    assert {"a.md": "1", "c.md": "2"} == world.vault.store
    problem = world.problem(run)
    assert "1 of 3 notes failed: b.md (EmbeddingRejected: too long)" in problem
    assert "Materialize" in problem
    assert "a.md" not in problem


def test_metadata_holds_counts_and_never_the_blob_of_a_quarantined_note(world: DagsterWorld) -> None:
    """Counts, action and commit are shown; a quarantined note has no blob id, which would let anyone test guesses."""
    world.vault.commit("c1", {"a.md": "blob1", "s.md": "secret-blob"})
    (run,) = world.sync()
    found = _materializations(world, run)
    metadata = {key: value.value for key, value in found["a.md"].metadata.items()}
    assert {
        "action": "added",
        "chunks": 2,
        "texts_embedded": 2,
        "texts_reused": 0,
        "tokens": 40,
        "milliseconds": 0.5,
        "commit": "c1",
    } == metadata
    assert "blob1" == found["a.md"].tags["dagster/data_version"]
    assert "quarantined" == found["s.md"].tags["dagster/data_version"]
    assert "secret-blob" not in str(found["s.md"])


def test_deleted_notes_tell_so_and_lose_their_partition(world: DagsterWorld) -> None:
    """A deletion rides in the run: row, event, then key; a note that comes back is materialized anew."""
    world.vault.commit("c1", {"a.md": "1", "b.md": "1"})
    world.sync()
    world.vault.commit("c2", {"a.md": "1"})
    (run,) = world.sync()
    assert _materializations(world, run)["b.md"].metadata["deleted"].value is True
    assert {"a.md": "MATERIALIZED"} == world.statuses()
    world.vault.commit("c1")
    (again,) = world.sync()
    assert "added" == _materializations(world, again)["b.md"].metadata["action"].value


def test_head_is_followed_back_to_an_earlier_commit(world: DagsterWorld) -> None:
    """A, B and A again: each is a run."""
    a, b = {"x.md": "1"}, {"x.md": "2"}
    for name, notes in (("A", a), ("B", b), ("A", None)):
        world.vault.commit(name, notes)
        (run,) = world.sync()
        assert SUCCESS == run.status
    assert a == world.vault.store


def test_a_moved_range_is_refused(world: DagsterWorld) -> None:
    """A run whose range means other notes by now fails before it touches anything, and says how to go on."""
    world.vault.commit("c1", {"a.md": "1", "b.md": "1", "c.md": "1"})
    tags = dict(world.tick().run_requests[0].tags)
    world.instance.delete_dynamic_partition(world.names.partitions, "a.md")
    world.instance.add_dynamic_partitions(world.names.partitions, ["a.md"])
    run = world.run({**tags, RANGE_START_TAG: "b.md", RANGE_END_TAG: "a.md"})
    assert SUCCESS == run.status  # the same notes in another order are the same selection
    run = world.run({**tags, RANGE_START_TAG: "b.md", RANGE_END_TAG: "c.md"})
    assert FAILURE == run.status
    assert "selection is stale" in world.problem(run)
    assert "asset page" in world.problem(run)
    assert 1 == len(world.vault.read()["runs"])


def test_a_range_that_became_empty_is_refused(world: DagsterWorld) -> None:
    """A start behind its end means no partition: Dagster would call that a success."""
    world.vault.commit("c1", {"a.md": "1", "b.md": "1"})
    world.tick()
    run = world.run({RANGE_START_TAG: "b.md", RANGE_END_TAG: "a.md"})
    assert FAILURE == run.status
    assert [] == world.vault.read()["runs"]


def test_without_the_plan_each_selected_note_is_written_again(world: DagsterWorld) -> None:
    """A rerun from the UI carries no plan: unchanged notes are read again, and a key absent from HEAD is forgotten."""
    world.vault.commit("c1", {"a.md": "1", "b.md": "1"})
    world.sync()
    world.instance.add_dynamic_partitions(world.names.partitions, ["gone.md"])
    run = world.run({RANGE_START_TAG: "a.md", RANGE_END_TAG: "gone.md"})
    assert SUCCESS == run.status
    assert [run.run_id, False, ["a.md", "b.md", "gone.md"]] == world.vault.read()["runs"][-1]
    assert {"a.md": "MATERIALIZED", "b.md": "MATERIALIZED"} == world.statuses()


def test_partitions_stay_while_a_backfill_counts_on_them(world: DagsterWorld) -> None:
    """Dagster fails a backfill whose partition disappears; the sensor drops the key when the backfill is over."""
    world.vault.commit("c1", {"a.md": "1", "b.md": "1"})
    world.sync()
    world.vault.commit("c2", {"a.md": "1"})
    run = world.run({RANGE_START_TAG: "a.md", RANGE_END_TAG: "b.md", "dagster/backfill": "b1"})
    assert SUCCESS == run.status
    assert {"a.md": "1"} == world.vault.store
    assert ["a.md", "b.md"] == list(world.instance.get_dynamic_partitions(world.names.partitions))
    assert {"b.md"} == postponed_drops(world.instance, world.names)
    world.sync()
    assert ["a.md"] == list(world.instance.get_dynamic_partitions(world.names.partitions))
    assert set() == postponed_drops(world.instance, world.names)


def test_a_note_that_comes_back_keeps_its_partition(world: DagsterWorld) -> None:
    """A postponed drop is forgotten when the note is written again."""
    world.vault.commit("c1", {"a.md": "1", "b.md": "1"})
    world.sync()
    world.vault.commit("c2", {"a.md": "1"})
    world.run({RANGE_START_TAG: "a.md", RANGE_END_TAG: "b.md", "dagster/backfill": "b1"})
    world.vault.commit("c1")
    world.sync()
    assert {"a.md": "MATERIALIZED", "b.md": "MATERIALIZED"} == world.statuses()


@pytest.mark.parametrize("steps", [["memory_notes.persist"], ["memory_notes.embed", "memory_notes.persist"]])
def test_a_rerun_from_failure_reads_head_anew(world: DagsterWorld, steps: list[str]) -> None:
    """Only the failed op is replayed, but on what HEAD says now, and on all notes of the run."""
    world.vault.commit("c1", {"a.md": "1", "b.md": "bad"})
    (failed,) = world.sync()
    world.vault.commit("c2", {"a.md": "2", "b.md": "mended"})
    run = world.run(dict(failed.tags), parent=failed, steps=steps)
    assert not world.problem(run)
    assert SUCCESS == run.status
    assert {"a.md": "2", "b.md": "mended"} == world.vault.store
    assert {"a.md": "MATERIALIZED", "b.md": "MATERIALIZED"} == world.statuses()
    assert [run.run_id, False, ["a.md", "b.md"]] == world.vault.read()["runs"][-1]


def test_an_old_run_is_not_repeated_on_other_notes(world: DagsterWorld) -> None:
    """After later commits moved the keys, re-executing a run does its own notes or none."""
    world.vault.commit("c1", {"a.md": "1", "b.md": "1", "c.md": "1"})
    (old,) = world.sync()
    world.vault.commit("c2", {"a.md": "2", "b.md": "1", "c.md": "2"})
    world.sync()  # the order is b, a, c now: from a to c there are only two
    run = world.run(dict(old.tags), parent=old)
    assert FAILURE == run.status
    assert "selection is stale" in world.problem(run)


def test_a_rerun_does_not_inherit_the_process_of_its_parent(world: DagsterWorld) -> None:
    """The owner's mark is of the process that runs the run, not of the one that ran its parent."""
    world.vault.commit("c1", {"a.md": "1"})
    (old,) = world.sync()
    run = world.run({**old.tags, OWNER_TAG: "elsewhere 1 1 x"}, parent=old)
    assert run.tags[OWNER_TAG].endswith(run.run_id)


def test_an_unexpected_error_shows_its_class_and_not_its_message(world: DagsterWorld) -> None:
    """A message may quote the note: no event of the run holds it."""
    world.vault.commit("c1", {"a.md": "1"})
    (world.vault.folder / "leaky").touch()
    run = world.run(dict(world.tick().run_requests[0].tags))
    assert FAILURE == run.status
    assert "ValueError at embed, fake_sync.py:" in world.problem(run)
    assert "CANARY" not in "".join(str(entry) for entry in world.instance.all_logs(run.run_id))


def test_a_run_that_was_declared_dead_writes_nothing(world: DagsterWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow starter that was taken for dead must not write beside the run that took its place."""
    world.vault.commit("c1", {"a.md": "1"})
    tags = dict(world.tick().run_requests[0].tags)
    original = world.open

    def open_late() -> object:
        (active,) = world.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED]))
        world.instance.report_run_failed(active, "taken for dead")
        return original()

    monkeypatch.setattr(DagsterWorld, "open", lambda *_: open_late())
    world.run(tags)
    assert {} == world.vault.store


def test_the_lock_is_let_go_of_and_the_vault_closed_whatever_happens(world: DagsterWorld) -> None:
    """After a failed run the next writer need not wait, and no connection is left open."""
    world.vault.commit("c1", {"a.md": "1"})
    (world.vault.folder / "leaky").touch()
    world.run(dict(world.tick().run_requests[0].tags))
    with world.open().writer(0, holder="test"):
        pass
    assert all(opened.closed for opened in world.opened[:-1])


def test_a_busy_vault_fails_the_run_with_the_holders_name(world: DagsterWorld) -> None:
    """A run does not wait for ever, and says whom it waited for."""
    world.vault.commit("c1", {"a.md": "1"})
    tags = dict(world.tick().run_requests[0].tags)
    world.settings = replace(world.settings, sync=replace(world.settings.sync, wait_seconds=0.05))
    with world.open().writer(0, holder="someone else"):
        run = world.run(tags)
    assert FAILURE == run.status
    assert "someone else" in world.problem(run)


def test_a_partition_of_foreign_make_is_refused(world: DagsterWorld) -> None:
    """A key that a user typed in the UI and that is no note's name is named, with what to do."""
    world.instance.add_dynamic_partitions(world.names.partitions, ["[1]"])
    run = world.run({RANGE_START_TAG: "[1]", RANGE_END_TAG: "[1]"})
    assert "'[1]' was not made by vault-memory" in world.problem(run)


def test_the_index_is_counted_and_checked(world: DagsterWorld) -> None:
    """The store as a whole is an asset with counts and four checks that can fail."""
    world.vault.commit("c1", {"a.md": "1"})
    world.sync()
    job = world.definitions().resolve_job_def(world.names.index_job)
    good = job.execute_in_process(instance=world.instance)
    assert [True] * 4 == [check.passed for check in good.get_asset_check_evaluations()]
    counts = good.asset_materializations_for_node("memory_index")[0].metadata
    assert (1, "c1") == (counts["notes"].value, counts["commit"].value)
    plotted = {"notes", "chunks", "tokens", "cost_this_month_usd", "vector_index_recall_at_10", "search_milliseconds"}
    assert plotted <= {name for name, value in counts.items() if isinstance(value.value, int | float)}
    world.vault.change(store={"ghost.md": "1"})
    world.index_look = SelfCheck("bits", 0.5, 3.0)
    bad = job.execute_in_process(instance=world.instance)
    passed = {check.check_name: check.passed for check in bad.get_asset_check_evaluations()}
    assert {
        "no_orphans": False,
        "matches_head": False,
        "no_quarantine_leak": True,
        "index_self_check": False,
    } == passed
    assert all(check.description for check in bad.get_asset_check_evaluations() if not check.passed)


def test_a_run_says_what_it_reads_and_what_became_of_it(world: DagsterWorld) -> None:
    """Commit, author's date and counts are tags of the run, of a re-execution its own and not its parent's."""
    world.vault.commit("c1", {"a.md": "1", "b.md": "bad", "c.md": "1"})
    (run,) = world.sync()
    tags = world.tags(run)
    assert ("c1", "2026-03-15T00:00:00+00:00", "3") == (tags[COMMIT_TAG], tags[AUTHORED_TAG], tags[NOTES_TAG])
    assert "2 added, 1 failed" == tags[OUTCOME_TAG]
    world.vault.commit("c2", {"a.md": "1", "b.md": "mended", "c.md": "1"})
    again = world.tags(world.run(dict(run.tags), parent=run))
    assert ("c2", "1 added, 2 changed") == (again[COMMIT_TAG], again[OUTCOME_TAG])


def test_every_asset_has_an_owner_kinds_a_group_and_a_description(world: DagsterWorld) -> None:
    """And the index says how old it may become."""
    graph = world.definitions().resolve_asset_graph()
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert ["team:vault-memory"] == list(node.owners)
        assert node.kinds
        assert "vault_memory" == node.group_name
        assert node.description
    policy = graph.get(world.names.index).freshness_policy
    assert isinstance(policy, dg.FreshnessPolicy)
