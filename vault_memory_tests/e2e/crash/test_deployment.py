"""SIGKILL of each of Dagster's processes while a run writes: memory ends like a rebuild, and no reader saw anything half."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import psycopg
import pytest

from vault_memory import settings as settings_module
from vault_memory.defs.instance import open_instance
from vault_memory.ingest.sync import Synchronizer
from vault_memory_tests.e2e.crash import location
from vault_memory_tests.e2e.crash.matrix import CONTEXT, RECOVERY_SECONDS, note, sync_process
from vault_memory_tests.e2e.crash.reader import Expected, log_of, reading
from vault_memory_tests.fixtures.deployment import CHECKOUT, Deployment, deployed, wait_for
from vault_memory_tests.fixtures.installation import Installation, walk
from vault_memory_tests.fixtures.online import good, reply, served
from vault_memory_tests.fixtures.postgres import SCHEMA
from vault_memory_tests.fixtures.rebuild import Contents, contents, differences, unsound, wipe
from vault_memory_tests.fixtures.vault import VaultRepo

VICTIMS = ["run", "daemon", "webserver", "code server"]
RUNNING = [dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]
SLICES = 9
PATIENCE_SECONDS = 300  # for what is no promise: a daemon that starts on a busy machine
PATIENT = ("sync", "--json", "--wait", "60")  # a run that the daemon has begun meanwhile goes first


def state(vault: VaultRepo, *, second: bool) -> None:
    """Commit one of two states; each way has an edit, a rename, a deletion and a new note."""
    here, there = ("new", "old") if second else ("old", "new")
    vault.write("01_Projects/keep.md", note("keep", "old"))
    vault.write("01_Projects/edit.md", note("edit", here))
    for name in (f"moved-{there}", f"only-{there}"):
        if (vault.path / f"01_Projects/{name}.md").exists():
            vault.delete(f"01_Projects/{name}.md")
    vault.write(f"01_Projects/moved-{here}.md", note("moved", "old"))
    vault.write(f"01_Projects/only-{here}.md", note(f"only{here}", "old"))
    vault.commit()


@dataclass
class Field:
    """A deployment that follows a vault.

    Attributes:
        installation: The vault and its memory.
        ui: Dagster's processes.
        folder: Where a test says what is to be killed.
        rebuilt: DSN of a database to rebuild memory in.
        environment: Of Dagster's processes.
        second: Which state HEAD is in.
        ended: Leaders of process groups that were killed; what they had started may live on.
    """

    installation: Installation
    ui: Deployment
    folder: Path
    rebuilt: str
    environment: dict[str, str]
    second: bool = False
    ended: list[int] = field(default_factory=list[int])

    @property
    def dsn(self) -> str:
        """Of the memory."""
        return self.installation.environment["VAULT_MEMORY_DSN"]

    def contents(self) -> Contents:
        """Read the memory, which must be sound."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            assert [] == unsound(connection, SCHEMA)
            return contents(connection, SCHEMA)

    def rebuild(self) -> Contents:
        """Build HEAD from nothing."""
        values = {**self.installation.environment, "VAULT_MEMORY_DSN": self.rebuilt}
        with psycopg.connect(self.rebuilt, autocommit=True) as connection:
            wipe(connection, SCHEMA)
            with Synchronizer.open(settings_module.load(values)) as synchronizer:
                walk(synchronizer)
            return contents(connection, SCHEMA)

    def commit(self) -> None:
        """Go to the other state."""
        self.second = not self.second
        state(self.installation.vault, second=self.second)

    def is_idle_at_head(self) -> bool:
        """Whether HEAD is indexed and no run is going on."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            row = connection.execute(f"SELECT commit, under_way FROM {SCHEMA}.sync_state").fetchone()
        active = self.ui.instance.get_runs(dg.RunsFilter(statuses=RUNNING))
        return row == (self.installation.vault.head, False) and not active

    def pids_of(self, victim: str) -> list[int]:
        """Return the processes to kill; none: the run itself."""
        daemon, webserver = (process.pid for process in self.ui.processes)
        match victim:
            case "daemon":
                return [daemon]
            case "webserver":
                return [webserver]
            case "code server":
                return [pid for pid in code_servers() if group_of(pid) == daemon]
            case _:
                return []

    def restart(self, victim: str) -> None:
        """Start the daemon or the webserver again, as a service manager does; all others come back by themselves."""
        for number, process in enumerate(self.ui.processes):
            if victim == ("daemon", "webserver")[number]:
                assert -9 == process.wait(30)
                self.ended.append(process.pid)
                self.ui.processes[number] = subprocess.Popen(
                    process.args, cwd=CHECKOUT, env={**os.environ, **self.environment}, start_new_session=True,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )  # fmt: skip


def code_servers() -> list[int]:
    """Return the pids of all of Dagster's code servers."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"grpc" in words and b"api" in words:
                found.append(int(entry.name))
    return found


def group_of(pid: int) -> int:
    """Return a process' session: ours are started as leaders of their own."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


@pytest.fixture(name="field")
def make_field(
    make_installation: Callable[..., Installation],
    make_database: Callable[..., str],
    template_database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Field]:
    """A daemon and a webserver over a vault in its first state."""
    monkeypatch.setenv("DAGSTER_HOME", "")
    monkeypatch.setenv("VAULT_MEMORY_DAGSTER_DSN", "")
    folder = tmp_path / "crash"
    folder.mkdir()
    with served(lambda handler, body: reply(handler, 200, good(body))) as (url, _):
        installation = make_installation(
            VAULT_MEMORY_EMBEDDER="openai",
            VAULT_MEMORY_EMBEDDING_BASE_URL=url,
            VAULT_MEMORY_EMBEDDING_MODEL="text-embedding-3-small",
            VAULT_MEMORY_EMBEDDING_ALLOW_HTTP_LOOPBACK="1",
            VAULT_MEMORY_EMBEDDING_CONCURRENCY="1",
            VAULT_MEMORY_HMAC_KEY_FILE=str(tmp_path / "hmac.key"),
            OPENROUTER_API_KEY="sk-none",
        )
        settings = installation.settings
        assert settings.dagster_dsn is not None
        state(installation.vault, second=False)
        own = {key: value for key, value in installation.environment.items() if not key.endswith("DAGSTER_DSN")}
        environment = {**own, location.FOLDER: str(folder)}
        with (
            open_instance(settings, settings.dagster_dsn) as instance,
            deployed(instance, settings.dagster_home, location.__name__, environment) as ui,
        ):
            made = Field(installation, ui, folder, make_database(template_database), environment)
            try:
                wait_for(made.is_idle_at_head, PATIENCE_SECONDS)
                yield made
            finally:
                # The code server of a killed daemon waits for its runs, whose database is gone after the test.
                for group in made.ended:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(group, signal.SIGKILL)


@pytest.mark.slow  # a case takes 10 s, mostly Dagster's start of a run
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(SLICES))
@pytest.mark.parametrize("victim", VICTIMS)
def test_killed_while_a_run_writes(field: Field, victim: str, part: int) -> None:
    """Before and after each kind of write, commit and request: restart, sync, and all is as in a rebuild."""
    counts: list[Counter[str]] = []
    for _ in range(2):  # there and back: the two are not quite the same
        location.choose(field.folder, "", 0, "nobody", [])
        field.commit()
        wait_for(field.is_idle_at_head, PATIENCE_SECONDS)
        counts.append(Counter(log_of(field.folder / "steps")))
    kinds = counts[0] & counts[1]  # how often at least
    assert {"before commit", "after insert into memory_chunk", "before request to the provider"} <= kinds.keys()
    taken = []
    for name in sorted(kinds)[part::SLICES]:
        number = (kinds[name] + 1) // 2
        at = f"{victim} killed {name} (number {number} of {kinds[name]})"
        before = field.contents()
        location.choose(field.folder, name, number, victim, field.pids_of(victim))
        field.commit()
        after = field.rebuild()
        here, there = ("new", "old") if field.second else ("old", "new")
        renamed = {f"01_Projects/moved-{there}.md": f"01_Projects/moved-{here}.md"}
        with reading(CONTEXT, field.installation.environment, field.dsn, Expected.of(before, after, renamed)) as seen:
            wait_for((field.folder / "killed").exists, PATIENCE_SECONDS)
            died = time.monotonic()
            field.restart(victim)
            status, said = sync_process(field.installation.environment, field.folder / "sync.log", PATIENT)
            taken.append(time.monotonic() - died)
        assert 0 == status, (at, said)
        assert [] == differences(after, field.contents()), at
        assert [] == seen.wrong, at
        assert 0 == seen.outages, at
        assert seen.answers > 0, at
        assert taken[-1] < RECOVERY_SECONDS, at
        wait_for(field.is_idle_at_head, PATIENCE_SECONDS)
    sys.stdout.write(
        f"\n{victim}, slice {part}: {len(taken)} of {len(kinds)} kinds of {kinds.total()} steps, slowest {max(taken):.1f} s\n"
    )
