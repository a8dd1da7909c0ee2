"""Dagster's instance: its home, its storage, and runs made in this process.

Belongs here: what the operator's command needs of Dagster. Does not: finding a database server (``adapters.server``),
nor what a run does (``assets``).
"""

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

import dagster as dg
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from dagster._core.remote_origin import (
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.utils import make_new_run_id

from vault_memory.defs.build import build_definitions
from vault_memory.defs.liveness import busy_with, owner_mark, reclaim
from vault_memory.defs.partitions import COMMIT_TAG, DATA_VERSION_TAG, OWNER_TAG, Names, make_range, range_tags
from vault_memory.defs.resources import Opener, VaultSession, open_synchronizer
from vault_memory.defs.storage import (
    DSN_VARIABLE,
    ensure_database,
    keep_connections,
    limit_pool,
    storage_url,
    translated,
    upgrade,
)
from vault_memory.defs.untold import tell_of_written
from vault_memory.errors import WriterBusyError
from vault_memory.notes.paths import partition_key
from vault_memory.settings import Settings

if TYPE_CHECKING:
    from vault_memory.ingest.batch import NoteOutcome
    from vault_memory.ingest.planning import VaultPlan

CODE_LOCATION: Final = "vault_memory"  # as workspace.yaml names it
_MODULE: Final = "vault_memory.definitions"
_FILES: Final = ("dagster.yaml", "workspace.yaml")
_WRITTEN: Final = ".written.json"
_POLL_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class InProcessRun:
    """A run that was made in this process.

    Attributes:
        run_id: Dagster's name of it.
        succeeded: Whether every selected note is as HEAD says.
        outcomes: What became of the notes, failed ones included.
        problem: Why it failed, one line; None if it did not.
    """

    run_id: str
    succeeded: bool
    outcomes: "tuple[NoteOutcome, ...]"
    problem: str | None


@contextmanager
def open_instance(settings: Settings, dsn: str) -> Generator[dg.DagsterInstance]:
    """Make Dagster ready (``bootstrap``) and open its instance.

    Raises:
        StoreUnavailable: The database server does not answer.
        StoreError: The database cannot be made.
        ConfigError: The DSN cannot be read.
    """
    bootstrap(settings, dsn)
    with translated(), dg.DagsterInstance.from_config(str(settings.dagster_home)) as instance:
        keep_connections(instance)
        yield instance


def bootstrap(settings: Settings, dsn: str) -> None:
    """Make Dagster's home, database, tables and pool, as far as they are not there.

    Call it before anything else of Dagster starts: two first users of a pool's default limit race on PostgreSQL, and
    the run of one fails. Any number of processes may call it at once. It names the home and the storage in this
    process' environment, where Dagster and its child processes look for them.

    Raises:
        StoreUnavailable: The database server does not answer.
        StoreError: The database cannot be made.
        ConfigError: The DSN cannot be read.
    """
    home = settings.dagster_home
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ["DAGSTER_HOME"] = str(home)
    os.environ[DSN_VARIABLE] = storage_url(dsn)
    with _one_at_a_time(home / ".bootstrap.lock"), translated():
        write_configuration(home)
        ensure_database(dsn)
        with dg.DagsterInstance.from_config(str(home)) as instance:  # makes the tables of a new database
            upgrade(instance)
            limit_pool(instance, Names.of(settings).pool)


@contextmanager
def _one_at_a_time(path: Path) -> Generator[None]:
    with path.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # goes when the file is closed, and with the process
        yield


def write_configuration(home: Path) -> None:
    """Write Dagster's configuration files from the packaged copies, but never over a user's own changes."""
    record = home / _WRITTEN
    written: dict[str, str] = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    for name in _FILES:
        packaged = (resources.files("vault_memory") / "deploy" / name).read_bytes()
        target = home / name
        if target.exists() and _digest(target.read_bytes()) != written.get(name):
            continue
        _replace(target, packaged)
        written[name] = _digest(packaged)
    _replace(record, json.dumps(written).encode())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _replace(path: Path, content: bytes) -> None:
    if path.exists() and path.read_bytes() == content:
        return
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)


def run_in_process(
    settings: Settings,
    instance: dg.DagsterInstance,
    note_ids: Sequence[str],
    plan: "VaultPlan",
    *,
    full: bool = False,
    wait_seconds: float | None = None,
    opener: Opener = open_synchronizer,
) -> InProcessRun:
    """Bring notes into memory with a Dagster run in this process; a daemon may be there or not.

    The run looks like the sensor's, so that the UI shows it and can repeat it.

    Args:
        settings: Of the vault.
        instance: Dagster's.
        note_ids: Some notes of the plan, at least one.
        plan: What the notes were taken from.
        full: Scan and write every note again, instead of following the plan.
        wait_seconds: How long to wait for another writer; None: as the settings say.
        opener: Opens the vault.

    Raises:
        WriterBusyError: Another run, backfill or sync did not end in time; the message names it.
        ValueError: There are no notes.
    """
    names = Names.of(settings)
    keys = [partition_key(note_id) for note_id in note_ids]
    run_id = make_new_run_id()
    with VaultSession(lambda: settings, opener) as session:
        wait = settings.sync.wait_seconds if wait_seconds is None else wait_seconds
        _become_writer(instance, names, session, wait, holder=f"sync (process {os.getpid()})")
        bounds = make_range(instance, names.partitions, keys)
        tags = {**range_tags(names, bounds, keys, plan.commit, full=full), OWNER_TAG: owner_mark(run_id)}
        _execute(instance, names, session, names.sync_job, run_id=run_id, tags=tags)
        finished = instance.get_run_by_id(run_id)
        succeeded = finished is not None and finished.status is dg.DagsterRunStatus.SUCCESS
        problem = None if succeeded else session.problem or "the run failed; Dagster's UI shows why"
        return InProcessRun(run_id, succeeded, tuple(session.outcomes), problem)


def show_index(
    settings: Settings, instance: dg.DagsterInstance, commit: str | None, *, opener: Opener = open_synchronizer
) -> None:
    """Show in the UI what the sensor would: the vault at its commit, and the store counted and checked.

    Args:
        settings: Of the vault.
        instance: Dagster's.
        commit: What the store was brought to.
        opener: Opens the vault.
    """
    names = Names.of(settings)
    if commit is not None:
        event = dg.AssetMaterialization(names.vault, metadata={"commit": commit}, tags={DATA_VERSION_TAG: commit})
        instance.report_runless_asset_event(event)
    with VaultSession(lambda: settings, opener) as session:
        if busy_with(instance, names) is None:
            tell_of_written(instance, names, session.synchronizer)
        _execute(instance, names, session, names.index_job, run_id=make_new_run_id(), tags={COMMIT_TAG: commit or ""})


def _execute(
    instance: dg.DagsterInstance,
    names: Names,
    session: VaultSession,
    job_name: str,
    *,
    run_id: str,
    tags: Mapping[str, str],
) -> None:
    """Run a job in this process, as one that the UI can show and repeat."""
    job = build_definitions(
        names, resources={names.resource: dg.ResourceDefinition.hardcoded_resource(session)}
    ).resolve_job_def(job_name)
    run = instance.create_run_for_job(
        job,
        run_id=run_id,
        # Our own lines say what happens; Dagster's would bury them on a terminal.
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        tags={**job.run_tags, **tags},
        remote_job_origin=_origin(job_name),
    )
    execute_run(InMemoryJob(job), run, instance)


def _become_writer(
    instance: dg.DagsterInstance, names: Names, session: VaultSession, wait_seconds: float, *, holder: str
) -> None:
    """Take the writer lock at a moment when no other run of the vault is going on.

    A run that is queued, or waits for the lock itself, has its range fixed: it is let through first.
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            session.hold_writer(max(0.0, deadline - time.monotonic()), holder=holder)
        except WriterBusyError as error:  # it tells of the last wait alone
            raise WriterBusyError(f"{str(error).partition('; waited')[0]}; waited {wait_seconds:g} s") from None
        reclaim(instance, names, writer_is_free=lambda: session.is_writer)
        busy = busy_with(instance, names)
        if busy is None:
            return
        session.release_writer()
        if time.monotonic() >= deadline:
            raise WriterBusyError(f"{busy} on this vault; waited {wait_seconds:g} s, try again later")
        time.sleep(_POLL_SECONDS)


def _origin(job_name: str) -> RemoteJobOrigin:
    """Return where the UI finds the job of a run that was made here; without it "Re-execute" breaks."""
    target = LoadableTargetOrigin(executable_path=None, module_name=_MODULE)
    location = ManagedGrpcPythonEnvCodeLocationOrigin(target, CODE_LOCATION)
    return RemoteJobOrigin(RemoteRepositoryOrigin(location, "__repository__"), job_name)
