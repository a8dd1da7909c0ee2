"""Which runs of a vault are going on, and which only look as if they were.

Belongs here: finding runs and backfills of a source set, telling a dead run from a live one, ending the dead.
Does not: starting runs (``sensors``, ``instance``).

When everything dies at once (power loss, SIGKILL of ``vault-memory sync``), nothing is left to tell Dagster: its
stock launcher has no health check, and the run stays STARTED and keeps its place for good (600 s were seen).
"""

import hashlib
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Final

import dagster as dg
from dagster._core.execution.backfill import BulkActionsFilter, BulkActionStatus, PartitionBackfill

from vault_memory.defs.partitions import OWNER_TAG, VAULT_TAG, Names

# A run that was launched but has no owner's mark yet is still importing its code; that takes some seconds.
GRACE_SECONDS: Final = 20.0

_STARTED: Final = (dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)
_ACTIVE: Final = (dg.DagsterRunStatus.QUEUED, *_STARTED)


def active_runs(
    instance: dg.DagsterInstance, names: Names, statuses: Iterable[dg.DagsterRunStatus] = _ACTIVE
) -> list[dg.RunRecord]:
    """Return the runs of this vault that write notes and are queued or started.

    Runs from the asset page belong to Dagster's own job and carry no tag of ours, so the selected assets are looked at.
    """
    records = instance.get_run_records(dg.RunsFilter(statuses=list(statuses)))
    return [record for record in records if _writes_notes(record.dagster_run, names)]


def _writes_notes(run: dg.DagsterRun, names: Names) -> bool:
    if run.asset_selection is not None:
        return names.notes in run.asset_selection
    return run.tags.get(VAULT_TAG) == names.schema or run.job_name == names.sync_job


def has_active_backfill(instance: dg.DagsterInstance, names: Names) -> bool:
    """Tell whether a backfill of this vault's notes is requested or going on."""
    unfinished = [BulkActionStatus.REQUESTED, BulkActionStatus.CANCELING, BulkActionStatus.FAILING]
    backfills = instance.get_backfills(filters=BulkActionsFilter(statuses=unfinished))
    return any(_targets_notes(backfill, names) for backfill in backfills)


def _targets_notes(backfill: PartitionBackfill, names: Names) -> bool:
    return backfill.asset_selection is None or names.notes in backfill.asset_selection


def busy_with(instance: dg.DagsterInstance, names: Names) -> str | None:
    """Name the run or backfill of this vault that is going on; None if there is none.

    While there is one, partitions must not be moved: its range would mean other notes.
    """
    for record in active_runs(instance, names):
        return f"run {record.dagster_run.run_id} is {record.dagster_run.status.value.lower()}"
    return "a backfill is going on" if has_active_backfill(instance, names) else None


def reclaim(instance: dg.DagsterInstance, names: Names, *, writer_is_free: Callable[[], bool]) -> list[str]:
    """End the runs of this vault whose process is gone, so that the next one need not wait; return their ids.

    A run marked by a process of this machine is dead if that process is. Any other run is dead if it started some
    time ago and yet nobody holds the writer lock, which goes when its owner's connection does.

    Args:
        instance: Where the runs are recorded.
        names: Whose runs.
        writer_is_free: Tells whether the writer lock can be taken, or is held by the caller; asked only if it matters.
    """
    dead: list[dg.DagsterRun] = []
    unclear: list[dg.DagsterRun] = []
    statuses = (dg.DagsterRunStatus.NOT_STARTED, *_STARTED)
    for record in active_runs(instance, names, statuses):
        run = record.dagster_run
        alive = _owner_is_alive(run)
        if alive is False:
            dead.append(run)
        elif alive is None and run.status in _STARTED and abs(_age_seconds(record)) > GRACE_SECONDS:
            # Started far in the future: the clock was set back since.
            unclear.append(run)
    if unclear and writer_is_free():
        dead += unclear
    for run in dead:
        instance.report_run_failed(run, "the process of this run is gone; the next run takes its notes")
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
    return [run.run_id for run in dead]


def _age_seconds(record: dg.RunRecord) -> float:
    return time.time() - (record.start_time or record.update_timestamp.timestamp())


def owner_mark(run_id: str) -> str:
    """Return the mark by which a run's process can be found again.

    It names the run too: a re-execution inherits the tags of the run it repeats, and that run's process is gone.
    """
    pid = os.getpid()
    return f"{_machine()} {pid} {_process_start(pid)} {run_id}"


def _owner_is_alive(run: dg.DagsterRun) -> bool | None:
    """Tell whether the process that marked the run is there; None if that cannot be told from here."""
    parts = run.tags.get(OWNER_TAG, "").split(" ")
    match parts:
        case [machine, pid, start, run_id] if machine == _machine() and run_id == run.run_id and pid.isdecimal():
            return _process_start(int(pid)) == start
        case _:
            return None


@cache
def _machine() -> str:
    """Return a short name of this machine since it was started, and of this container."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    since = boot.read_text(encoding="ascii") if boot.exists() else ""
    return hashlib.sha256(f"{socket.gethostname()}\0{since}".encode()).hexdigest()[:12]


def _process_start(pid: int) -> str:
    """Return when a process started, in the system's own terms without spaces; empty if there is no such process.

    A pid alone is not enough: the system gives it to another process some day.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return ""
        listed = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
        return "_".join(listed.stdout.split())
    state, *fields = stat.rpartition(") ")[2].split(" ")
    return "" if state in "ZX" else fields[18]
