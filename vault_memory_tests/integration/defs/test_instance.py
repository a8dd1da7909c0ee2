import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from vault_memory.defs.instance import bootstrap, open_instance, run_in_process, write_configuration
from vault_memory.defs.storage import storage_url
from vault_memory.errors import ConfigError, StoreUnavailable, WriterBusyError
from vault_memory.settings import load
from vault_memory_tests.fixtures.dagster import DagsterWorld, world_in
from vault_memory_tests.fixtures.deployment import CHECKOUT, wait_for
from vault_memory_tests.fixtures.postgres import PostgresServer

SUCCESS, FAILURE = dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE

# What a sync on the command line does, in a process that can be killed.
_SYNC = """
import sys
from pathlib import Path
from vault_memory.defs.instance import open_instance, run_in_process
from vault_memory.settings import load
from vault_memory_tests.fixtures.fake_sync import FakeSynchronizer, FakeVault
folder, dsn = Path(sys.argv[1]), sys.argv[2]
settings = load({"HOME": str(folder), "VAULT_MEMORY_HOME": str(folder / "home")})
opener = lambda _: FakeSynchronizer(FakeVault(folder))
plan = opener(None).plan()
(folder / sys.argv[3]).touch()
with open_instance(settings, dsn) as instance:
    run = run_in_process(settings, instance, plan.note_ids, plan, opener=opener)
print(run.run_id, run.succeeded, len(run.outcomes))
"""


@pytest.fixture(autouse=True)
def _environment_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", "")
    monkeypatch.setenv("VAULT_MEMORY_DAGSTER_DSN", "")


@pytest.fixture
def dsn(make_database: Callable[..., str]) -> str:
    """Dagster's database, empty."""
    return make_database()


@pytest.fixture
def stored(dsn: str, tmp_path: Path) -> Iterator[DagsterWorld]:
    """A vault with a Dagster instance in PostgreSQL."""
    settings = load({"HOME": str(tmp_path), "VAULT_MEMORY_HOME": str(tmp_path / "home")})
    with open_instance(settings, dsn) as instance, world_in(tmp_path, instance) as world:
        yield world


def _sync(world: DagsterWorld, **options: Any) -> Any:
    plan: Any = world.open().plan()
    return run_in_process(world.settings, world.instance, plan.note_ids, plan, opener=world.open, **options)


def _sync_process(world: DagsterWorld, dsn: str, planned: str = "planned") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _SYNC, str(world.vault.folder), dsn, planned],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_run_in_this_process_is_as_the_ui_expects_it(stored: DagsterWorld, capfd: pytest.CaptureFixture[str]) -> None:
    """Notes are written, partitions shown, the job can be found again, outcomes returned, the terminal left alone."""
    stored.vault.commit("c1", {"a.md": "1", "b.md": "bad", "c.md": "secret"})
    result = _sync(stored)
    run = stored.instance.get_run_by_id(result.run_id)
    assert run is not None
    assert (False, FAILURE) == (result.succeeded, run.status)
    assert ["added", "failed", "quarantined"] == [outcome.action for outcome in result.outcomes]
    assert "1 of 3 notes failed: b.md" in result.problem
    assert {"a.md": "MATERIALIZED", "b.md": "FAILED", "c.md": "MATERIALIZED"} == stored.statuses()
    assert run.remote_job_origin is not None
    assert "vault_memory" == run.remote_job_origin.location_name
    assert ("", "") == capfd.readouterr()


def test_bootstrap_can_be_repeated_and_sets_the_pool(stored: DagsterWorld, dsn: str) -> None:
    """The pool has a limit of its own, and a second bootstrap changes nothing."""
    bootstrap(stored.settings, dsn)
    (limit,) = stored.instance.event_log_storage.get_pool_limits()
    assert ("vault_writer", 1, False) == (limit.name, limit.limit, limit.from_default)
    assert storage_url(dsn) == os.environ["VAULT_MEMORY_DAGSTER_DSN"]
    assert str(stored.settings.dagster_home) == os.environ["DAGSTER_HOME"]


def test_a_missing_database_is_made(postgres_server: PostgresServer, dsn: str, tmp_path: Path) -> None:
    """A server without Dagster's database gets one."""
    name = f"vm_test_{os.getpid()}_dagster"
    settings = load({"HOME": str(tmp_path), "VAULT_MEMORY_HOME": str(tmp_path / "home")})
    try:
        with open_instance(settings, postgres_server.dsn(name)) as instance:
            assert 0 == instance.get_runs_count()
    finally:
        with postgres_server.connect() as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())


def test_a_server_that_is_down_is_one_line(tmp_path: Path) -> None:
    """No traceback of SQLAlchemy and no password in it."""
    settings = load({"HOME": str(tmp_path), "VAULT_MEMORY_HOME": str(tmp_path / "home")})
    with pytest.raises(StoreUnavailable) as caught:
        bootstrap(settings, "postgresql://me:hunter2@127.0.0.1:1/dagster")
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dsn", ["mysql://me:hunter2@host/x", "postgresql://host", "nonsense hunter2", "a://[b"])
def test_a_dsn_that_is_none_is_refused_without_repeating_it(dsn: str) -> None:
    """It may hold a password."""
    with pytest.raises(ConfigError) as caught:
        storage_url(dsn)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("dsn", "url"),
    [
        ("postgresql://u@/d?host=/run/x", "postgresql+psycopg2://u@/d?host=%2Frun%2Fx"),
        ("postgres://u:p%40@h:1/d", "postgresql+psycopg2://u:p%40@h:1/d"),
        ("postgresql+psycopg://u@h/d", "postgresql+psycopg2://u@h/d"),
        ("user=u dbname=d host='/run/x y' port=5432", "postgresql+psycopg2://u@/d?host=%2Frun%2Fx+y&port=5432"),
    ],
)
def test_dsns_become_urls_of_the_driver_that_works(dsn: str, url: str) -> None:
    """Whatever libpq takes, Dagster's storage gets with psycopg2."""
    assert url == storage_url(dsn)


def test_a_users_changes_to_the_configuration_stay(tmp_path: Path) -> None:
    """Our own copy follows the package; a file that the user changed or wrote is theirs."""
    write_configuration(tmp_path)
    packaged = (tmp_path / "dagster.yaml").read_bytes()
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    (tmp_path / "workspace.yaml").unlink()
    write_configuration(tmp_path)
    assert "telemetry: {enabled: false}\n" == (tmp_path / "dagster.yaml").read_text()
    assert (tmp_path / "workspace.yaml").exists()
    (tmp_path / "dagster.yaml").write_bytes(packaged)
    write_configuration(tmp_path)
    assert packaged == (tmp_path / "dagster.yaml").read_bytes()


def test_another_writer_is_waited_for_and_named(stored: DagsterWorld) -> None:
    """A sync waits for its turn, and gives up with the holder's name when its time is over."""
    stored.vault.commit("c1", {"a.md": "1"})
    with stored.open().writer(0, holder="run 7"), pytest.raises(WriterBusyError, match="run 7"):
        _sync(stored, wait_seconds=0.1)
    assert [] == list(stored.instance.get_dynamic_partitions(stored.names.partitions))
    with stored.open().writer(0, holder="run 7") as held:
        assert held is None
        thread_result: list[Any] = []
        thread = threading.Thread(target=lambda: thread_result.append(_sync(stored, wait_seconds=30)))
        thread.start()
        time.sleep(0.5)
        assert [] == thread_result
    thread.join(60)
    assert thread_result[0].succeeded


def test_two_syncs_at_once_are_one_after_the_other(stored: DagsterWorld, dsn: str) -> None:
    """The second one runs when the first is over, and the store is right."""
    stored.vault.commit("c1", {f"{name}.md": "1" for name in "abc"})
    gate = stored.vault.hold("persist")
    first = _sync_process(stored, dsn)
    wait_for((stored.vault.folder / "at.persist").exists)
    second = _sync_process(stored, dsn, "second")
    wait_for((stored.vault.folder / "second").exists)
    time.sleep(1)
    assert 1 == len(stored.vault.read()["runs"])
    gate.unlink()
    outputs = [process.communicate(timeout=60)[0].split() for process in (first, second)]
    assert ["True", "True"] == [output[1] for output in outputs]
    assert {f"{name}.md": "1" for name in "abc"} == stored.vault.store
    assert [SUCCESS, SUCCESS] == [run.status for run in stored.instance.get_runs()]


def test_a_killed_sync_is_made_up_for_at_once(stored: DagsterWorld, dsn: str) -> None:
    """SIGKILL in mid-run: without any daemon, the next sync ends the dead run and does its notes within 10 s."""
    stored.vault.commit("c1", {f"{name}.md": "1" for name in "abc"})
    gate = stored.vault.hold("persist")
    victim = _sync_process(stored, dsn)
    wait_for((stored.vault.folder / "at.persist").exists)
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate()
    gate.unlink()
    started = time.monotonic()
    result = _sync(stored)
    assert time.monotonic() - started < 10
    assert result.succeeded
    assert {f"{name}.md": "1" for name in "abc"} == stored.vault.store
    assert [SUCCESS, FAILURE] == [run.status for run in stored.instance.get_runs()]


def test_a_queued_run_is_let_through_first(stored: DagsterWorld) -> None:
    """Its range is fixed: a sync that moved the partitions under it would make it stale."""
    stored.vault.commit("c1", {"a.md": "1"})
    from vault_memory.defs.instance import _origin  # noqa: PLC0415 - queued runs have an origin

    job = stored.definitions().resolve_job_def(stored.names.sync_job)
    queued = stored.instance.create_run_for_job(
        job, status=dg.DagsterRunStatus.QUEUED, remote_job_origin=_origin(stored.names.sync_job)
    )
    stored.settings = replace(stored.settings, sync=replace(stored.settings.sync, wait_seconds=0.3))
    with pytest.raises(WriterBusyError, match=f"run {queued.run_id} is queued"):
        _sync(stored)
    stored.instance.report_run_canceled(queued)
    assert _sync(stored).succeeded
