"""A memory that can be set back to one state again and again, and what is killed in it at a chosen step.

Belongs here: the vault and its two commits, the databases before the second, one case of the matrix. Does not: which
cases there are (``test_matrix``).

The database is an embedded one of its own, since the server itself is among what is killed. Each case starts from
copies of the two databases as they were after the first commit; HEAD is at the second all the while.
"""

import hashlib
import json
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Literal

import psycopg
from psycopg import sql

from vault_memory import settings as settings_module
from vault_memory.adapters import server
from vault_memory.adapters.connecting import when_up
from vault_memory.cli import main
from vault_memory.ingest.sync import Synchronizer
from vault_memory_tests.e2e.crash import points
from vault_memory_tests.e2e.crash.reader import Expected, Seen, log_of, reading
from vault_memory_tests.fixtures.installation import walk
from vault_memory_tests.fixtures.online import good, reply, served
from vault_memory_tests.fixtures.rebuild import Contents, contents, differences, unsound
from vault_memory_tests.fixtures.vault import VaultRepo

SCHEMA: Final = "vault_memory"
RECOVERY_SECONDS: Final = 30.0
TOKEN: Final = "ghp" + "_" + "Ab3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3bC6"
CONFIG: Final = "[embedding]\ntimeout_seconds = 30.0\nmax_batch_texts = 4\n"
_DATABASES: Final = ("vault_memory", "dagster")
CONTEXT: Final = multiprocessing.get_context("forkserver")  # of a clean process, with what takes long imported
CONTEXT.set_forkserver_preload(
    [
        "vault_memory.cli",
        "vault_memory.commands.sync",
        "vault_memory.defs.instance",
        "dagster_postgres",
        "openai",
        __name__,
    ]
)

Victim = Literal["sync", "postmaster", "backend", "restart", "memory"]
"""Who is killed; or the database is restarted in order, or the process is given no more memory."""
SYNC: Final = ("sync", "--json", "--wait", "20")
CHANGE: Final = ("sync", "--full", "--accept-model", "--yes", "--json", "--wait", "20")


def note(name: str, words: str, parts: int = 2) -> str:
    """Return a note of some chunks, unlike any other note."""
    texts = [
        f"## {name} {part}\n\n" + " ".join(f"{words}{name}{part}{word}" for word in range(12)) + " caches.\n"
        for part in range(1, parts)
    ]
    return (
        f"# {name}\n\nThe {words} of {name}: {' '.join(f'{name}{word}' for word in range(12))} caches.\n\n"
        + "\n".join(texts)
    )


def first_commit(vault: VaultRepo) -> None:
    """Write what memory holds before."""
    for name in ("keep", "moved", "deleted", "out", "leak", "ignored"):
        vault.write(f"01_Projects/{name}.md", note(name, "old"))
    vault.write("01_Projects/edit.md", note("edit", "old", 6))
    vault.write("01_Projects/released.md", note("released", "old") + f"\ntoken {TOKEN}\n")
    vault.write("04_Archive/never.md", note("never", "old"))
    vault.commit()


def second_commit(vault: VaultRepo) -> None:
    """Change in every way that there is: edit, rename, delete, add, quarantine, release, exclude, new rules."""
    vault.write("01_Projects/edit.md", note("edit", "old", 6).replace("oldedit30", "newedit30"))
    vault.rename("01_Projects/moved.md", "02_Areas/moved.md")
    vault.delete("01_Projects/deleted.md")
    vault.write("01_Projects/out.md", f"---\nvault-memory: false\n---\n\n{note('out', 'old')}")
    vault.write("01_Projects/leak.md", note("leak", "old") + f"\ntoken {TOKEN}\n")
    vault.write("01_Projects/released.md", note("released", "new"))
    vault.write("01_Projects/added.md", note("added", "new"))
    vault.write(".vaultmemoryignore", "01_Projects/ignored.md\n")
    vault.commit()


@dataclass
class Ground:
    """An installation, and how it is set back.

    Attributes:
        vault: At the second commit.
        environment: Of the commands.
        info: The database server.
        received: What the provider was asked for.
        before: The store at the first commit.
        after: A rebuild of the second.
        arguments: Of the command that is disturbed and that makes it good.
        renamed: New names by old ones.
    """

    vault: VaultRepo
    environment: dict[str, str]
    info: server.ServerInfo
    received: list[bytes]
    folder: Path
    before: Contents = field(default_factory=dict)
    after: Contents = field(default_factory=dict)
    arguments: tuple[str, ...] = SYNC
    renamed: dict[str, str] = field(default_factory=lambda: {"01_Projects/moved.md": "02_Areas/moved.md"})

    @property
    def dsn(self) -> str:
        """Of the memory, as a superuser."""
        return self.info.dsn("vault_memory")

    @property
    def expected(self) -> Expected:
        """What a reader may see."""
        return Expected.of(self.before, self.after, self.renamed)

    def contents(self) -> Contents:
        """Read the store, which must be sound."""
        server.ensure_running(self.info.home)
        with when_up(lambda: psycopg.connect(self.dsn, autocommit=True)) as connection:
            assert [] == unsound(connection, SCHEMA)
            return contents(connection, SCHEMA)

    def set_back(self) -> None:
        """Make both databases as they were after the first commit."""
        server.ensure_running(self.info.home)
        self._copy({f"{name}_before": name for name in _DATABASES})
        self.received.clear()

    def keep(self) -> None:
        """Let ``set_back`` bring back what is there now."""
        self._copy({name: f"{name}_before" for name in _DATABASES})

    def _copy(self, names: dict[str, str]) -> None:
        with when_up(lambda: psycopg.connect(self.info.dsn("postgres"), autocommit=True)) as connection:
            for source, target in names.items():
                connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(target)))
                connection.execute(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [source]
                )
                connection.execute(
                    sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY").format(
                        sql.Identifier(target), sql.Identifier(source)
                    )
                )

    def sync(self, chosen: int = 0, victim: Victim = "sync", log: Path | None = None) -> int:
        """Run ``vault-memory sync`` in a fresh process; returns its exit status, negative if it was killed."""
        log_file = self.folder / "sync.log"
        return sync_process(
            self.environment, log_file, self.arguments, chosen=chosen, victim=victim, log=log, info=self.info
        )[0]

    def said(self) -> str:
        """Return what the last sync printed."""
        return (self.folder / "sync.log").read_text(encoding="utf-8", errors="replace")

    def at_rest(self) -> set[str]:
        """Return the hashes of the texts whose vectors the database holds, staged or in a chunk."""
        server.ensure_running(self.info.home)
        with when_up(lambda: psycopg.connect(self.dsn, autocommit=True)) as connection:
            width = int(self.environment.get("VAULT_MEMORY_EMBEDDING_DIMENSIONS", "1536"))
            statement = f"""SELECT text_hash FROM {SCHEMA}.embedding_stage WHERE dimensions = %s UNION
                            SELECT text_hash FROM {SCHEMA}.memory_chunk WHERE dimensions = %s AND embedding IS NOT NULL"""
            return {row[0] for row in connection.execute(statement.encode(), [width, width])}

    def asked(self) -> list[str]:
        """Return the hashes of all texts that the provider was sent; a body that was cut off on its way asks nothing."""
        whole = [body for body in self.received if body.endswith(b"}")]
        texts = [text for body in whole for text in json.loads(body)["input"]]
        return [hashlib.sha256(text.encode()).hexdigest() for text in texts]

    def names_of_steps(self) -> list[str]:
        """Run an undisturbed sync from the state before, and return its steps."""
        self.set_back()
        log = self.folder / "points.log"
        log.unlink(missing_ok=True)
        assert 0 == self.sync(log=log), self.said()
        assert [] == differences(self.after, self.contents())
        return log_of(log)


@dataclass(frozen=True)
class Outcome:
    """What came of one case.

    Attributes:
        killed: Exit status of the sync in which somebody was killed.
        healed: Exit status of the next one.
        seconds: From the kill until memory was right.
        wrong: Differences from a rebuild, and what the reader must not have seen.
        bought_again: Texts that the second sync sent although the database held their vectors.
        bought_twice: Texts that were sent by both: their answers were on the way when somebody was killed.
        seen: What the reader tells.
    """

    killed: int
    healed: int
    seconds: float
    wrong: list[str]
    bought_again: int
    bought_twice: int
    seen: Seen


def case(ground: Ground, number: int, victim: Victim) -> Outcome:
    """Kill somebody at a step of a sync, run the next sync, and compare with a rebuild."""
    ground.set_back()
    with reading(CONTEXT, ground.environment, ground.dsn, ground.expected) as seen:
        killed = ground.sync(number, victim)
        died = time.monotonic()
        first = ground.said()
        at_rest, asked = ground.at_rest(), ground.asked()
        ground.received.clear()
        healed = ground.sync()
        seconds = time.monotonic() - died
    wrong = differences(ground.after, ground.contents())
    if healed != 0:
        wrong.insert(0, ground.said())
    if "Traceback" in first:
        wrong.append(first)
    second = ground.asked()
    again, twice = len(at_rest.intersection(second)), len(set(asked).intersection(second))
    return Outcome(killed, healed, seconds, [*wrong, *seen.wrong], again, twice, seen)


def sync_process(
    environment: dict[str, str],
    output: Path,
    arguments: tuple[str, ...] = SYNC,
    *,
    chosen: int = 0,
    victim: Victim = "sync",
    log: Path | None = None,
    info: server.ServerInfo | None = None,
) -> tuple[int, str]:
    """Run ``vault-memory sync`` in a fresh process; returns its exit status, negative if killed, and what it said."""
    process = CONTEXT.Process(target=_sync, args=(environment, str(output), arguments, chosen, victim, log, info))
    process.start()
    process.join(120)
    assert process.exitcode is not None, "the sync does not end"
    return process.exitcode, output.read_text(encoding="utf-8", errors="replace")


def _sync(
    environment: dict[str, str],
    output: str,
    arguments: tuple[str, ...],
    chosen: int,
    victim: Victim,
    log: Path | None,
    info: server.ServerInfo | None,
) -> None:
    """Be the process of a sync."""
    os.environ.clear()
    os.environ.update(environment)
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    act = points.kill_self if info is None or victim == "sync" else partial(kill_database, info, victim)
    if chosen or log is not None:
        points.arm(points.Points(chosen, act, log))
    sys.argv = ["vault-memory", *arguments]
    main()


def kill_database(info: server.ServerInfo, victim: str) -> None:
    """SIGKILL the server's first process, or the one that serves our writer; or another way to lose what one has."""
    if victim == "restart":
        server.stop(info.home)
        server.ensure_running(info.home)
        return
    if victim == "memory":
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + 2**20
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        return
    pid = server.status(info.home).pid
    if victim == "backend":
        with psycopg.connect(info.dsn("vault_memory"), autocommit=True) as connection:
            (pid,) = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
                " AND datname = 'vault_memory' AND application_name <> 'vault-memory-query' ORDER BY backend_start DESC"
            ).fetchone() or (pid,)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def sized(body: bytes) -> bytes:
    """Answer with vectors of the width that is asked for."""
    answer = json.loads(good(body))
    width = json.loads(body).get("dimensions", 1536)
    for item in answer["data"]:
        item["embedding"] = item["embedding"][:width]
    return json.dumps(answer).encode()


@contextmanager
def ground(folder: Path, home: Path) -> Iterator[Ground]:
    """Make the vault, the server, and the states before and after."""
    vault = VaultRepo.create(folder / "vault")
    config = folder / "config.toml"
    config.write_text(CONFIG)
    with served(lambda handler, body: reply(handler, 200, sized(body))) as (url, received):
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path.cwd()),
            "HOME": str(folder / "user"),
            "VAULT_MEMORY_CONFIG": str(config),
            "VAULT_MEMORY_VAULT": str(vault.path),
            "VAULT_MEMORY_HOME": str(home),
            "VAULT_MEMORY_HMAC_KEY_FILE": str(folder / "hmac.key"),
            "VAULT_MEMORY_EMBEDDER": "openai",
            "VAULT_MEMORY_EMBEDDING_BASE_URL": url,
            "VAULT_MEMORY_EMBEDDING_MODEL": "text-embedding-3-small",
            "VAULT_MEMORY_EMBEDDING_ALLOW_HTTP_LOOPBACK": "1",
            "VAULT_MEMORY_EMBEDDING_CONCURRENCY": "1",  # the steps come in one order
            "OPENROUTER_API_KEY": "sk-none",
        }
        info = server.ensure_running(home, settings={"fsync": "off"})
        with psycopg.connect(info.dsn("postgres"), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET fsync = off")  # for the starts to come: a dead process loses no page
        made = Ground(vault, environment, info, received, folder)
        first_commit(vault)
        assert 0 == made.sync(), made.said()
        made.before = made.contents()
        made.keep()
        second_commit(vault)
        made.after = rebuilt(made)
        assert 7 == len(made.before["notes"])
        yield made


def rebuilt(made: Ground) -> Contents:
    """Build the second commit from nothing, by the steps alone."""
    with psycopg.connect(made.info.dsn("postgres"), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS rebuilt WITH (FORCE)")
        connection.execute("CREATE DATABASE rebuilt")
    values = {**made.environment, "VAULT_MEMORY_DSN": made.info.dsn("rebuilt")}
    with Synchronizer.open(settings_module.load(values)) as synchronizer:
        walk(synchronizer)
    with psycopg.connect(made.info.dsn("rebuilt"), autocommit=True) as connection:
        return contents(connection, SCHEMA)
