import os
import subprocess
import sys
import time
from types import SimpleNamespace

import dagster as dg
import pytest

from vault_memory.defs import liveness
from vault_memory.defs.liveness import owner_mark, reclaim
from vault_memory.defs.partitions import OWNER_TAG, VAULT_TAG
from vault_memory_tests.fixtures.dagster import DagsterWorld

STARTED, FAILURE = dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.FAILURE


def _started(world: DagsterWorld, mark: str | None = None) -> dg.DagsterRun:
    job = world.definitions().resolve_job_def(world.names.sync_job)
    run = world.instance.create_run_for_job(job, status=STARTED, tags={VAULT_TAG: world.names.schema})
    if mark is not None:
        world.instance.add_run_tags(run.run_id, {OWNER_TAG: mark.replace("RUN", run.run_id)})
    return run


def _status(world: DagsterWorld, run: dg.DagsterRun) -> dg.DagsterRunStatus:
    found = world.instance.get_run_by_id(run.run_id)
    assert found is not None
    return found.status


def _dead_mark() -> str:
    """Return the mark of a process that is gone."""
    ended = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    machine, _, _, run_id = owner_mark("RUN").split(" ")
    mark = f"{machine} {ended.pid} {liveness._process_start(ended.pid)} {run_id}"
    ended.communicate(b"\n")
    return mark


def test_a_run_of_a_dead_process_is_ended_at_once(world: DagsterWorld) -> None:
    """After SIGKILL nothing tells Dagster; the mark of the process does."""
    run = _started(world, _dead_mark())
    assert [run.run_id] == reclaim(world.instance, world.names, writer_is_free=lambda: False)
    assert FAILURE == _status(world, run)


def test_a_run_of_a_living_process_is_left_alone(world: DagsterWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes, and even while it does not hold the lock yet."""
    monkeypatch.setattr(liveness, "GRACE_SECONDS", 0)
    run = _started(world, owner_mark("RUN"))
    assert [] == reclaim(world.instance, world.names, writer_is_free=lambda: True)
    assert STARTED == _status(world, run)


def test_a_pid_that_was_given_away_again_is_no_life_sign(world: DagsterWorld) -> None:
    """The same pid with another start time is another process."""
    machine, pid, start, _ = owner_mark("RUN").split(" ")
    run = _started(world, f"{machine} {pid} {start}0 RUN")
    assert [run.run_id] == reclaim(world.instance, world.names, writer_is_free=lambda: False)


@pytest.mark.parametrize("mark", [None, "othermachine 1 1 RUN", "nonsense", f"{liveness._machine()} 1 1 another-run"])
def test_an_unmarked_run_is_dead_if_old_and_the_lock_is_free(
    world: DagsterWorld, mark: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a mark that means something here, a free lock and some time are the evidence; each alone is not."""
    run = _started(world, mark)
    assert [] == reclaim(world.instance, world.names, writer_is_free=lambda: True)
    monkeypatch.setattr(liveness, "GRACE_SECONDS", -1)
    assert [] == reclaim(world.instance, world.names, writer_is_free=lambda: False)
    assert [run.run_id] == reclaim(world.instance, world.names, writer_is_free=lambda: True)


def test_other_vaults_runs_are_none_of_ours(world: DagsterWorld) -> None:
    """Only this source set's runs are ended."""
    run = _started(world, _dead_mark())
    other = type(world.names)("vault_memory_work")
    assert [] == reclaim(world.instance, other, writer_is_free=lambda: True)
    assert STARTED == _status(world, run)


def test_a_zombie_is_dead() -> None:
    """A process that ended and was not waited for has a pid, but runs nothing."""
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    deadline = time.monotonic() + 10
    while liveness._process_start(zombie.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert "" == liveness._process_start(zombie.pid)
    zombie.wait()


def test_a_process_without_proc_is_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no /proc, ps is asked."""
    monkeypatch.setattr(liveness, "Path", lambda _: liveness.os.devnull and _Nowhere())
    assert liveness._process_start(os.getpid())
    assert " " not in liveness._process_start(os.getpid())
    assert "" == liveness._process_start(2**22 + 1)


class _Nowhere:
    def read_text(self, **_: str) -> str:
        raise FileNotFoundError

    def exists(self) -> bool:
        return False


@pytest.mark.parametrize(("seconds", "ended"), [(3600, 1), (5, 0), (-5, 0), (-3600, 1)])
def test_a_run_of_another_time(
    world: DagsterWorld, monkeypatch: pytest.MonkeyPatch, seconds: float, ended: int
) -> None:
    """A run without a mark is dead if it began long ago, or in a future that a wrong clock made; not if just now."""
    run = _started(world)
    monkeypatch.setattr(liveness, "time", SimpleNamespace(time=lambda: time.time() + seconds))

    assert [run.run_id][:ended] == reclaim(world.instance, world.names, writer_is_free=lambda: True)
