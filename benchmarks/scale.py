"""What a note costs as the vault grows: scan, embed, persist and Dagster, memory, disk, and the page of partitions.

Usage::

    python -m benchmarks.scale [--notes 100,1000,10000] [--backfill 1000] [--profile FILE]

Needs ``VAULT_MEMORY_TEST_DATA`` (a vault maker and an embeddings server, which answers without delay). Each size is a
vault, an embedded database and a Dagster of its own, removed at the end:

* first sync: ``vault-memory sync`` in a process of its own. Its time is told apart by wrapping the steps; "Dagster" is
  all of a run that is no step of ours: making the run, its partitions, its events. "Index" is choosing and building the
  vector index, which a larger store needs and a smaller one does not.
* steady state: a sync with nothing to do, and one after a commit of one note.
* the page: Dagster's own webserver is asked for the status of all partitions, as its asset page asks.
* backfill (only for the sizes that ``--backfill`` names): "Materialize all" through webserver and daemon.

Memory is the high-water mark of each process (``VmHWM``; of a PostgreSQL process without shared memory: the greatest
``RssAnon`` seen). CPU seconds are user and system, of the process and its children, without PostgreSQL and the
embeddings server.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import psycopg

from benchmarks.embedding import DATA, served
from vault_memory import settings as settings_module
from vault_memory.adapters import server
from vault_memory.ingest.database import open_database
from vault_memory.settings import Settings

BARS = {"ms_growth": 1.3, "wall_seconds": 900, "megabytes": 500, "status_seconds": 2.0}
COLUMNS = ("scan", "embed", "persist", "dagster", "index")
ROOT = Path(__file__).resolve().parents[1]
_STATUS = """query($asset: AssetKeyInput!) { assetNodeOrError(assetKey: $asset) { ... on AssetNode {
  id partitionKeysByDimension { name partitionKeys }
  partitionStats { numMaterialized numPartitions numFailed numMaterializing }
  assetPartitionStatuses { __typename ... on DefaultPartitionStatuses {
    materializedPartitions failedPartitions unmaterializedPartitions materializingPartitions } } } } }"""
_MATERIALIZE_ALL = """mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
  __typename ... on LaunchBackfillSuccess { backfillId } } }"""
_BACKFILL = """query($id: String!) { partitionBackfillOrError(backfillId: $id) {
  ... on PartitionBackfill { status } } }"""
_ASSET = {"path": ["memory_notes"]}


# -- the process that is measured --------------------------------------------------------------------------------


def timed_steps(spent: Counter[str]) -> Any:
    """Return a ``Synchronizer`` that notes how long each of its steps takes."""
    from vault_memory.ingest.sync import Synchronizer  # noqa: PLC0415 - only in the child

    class Timed(Synchronizer):
        """Notes how long each step takes."""

        @classmethod
        def open(cls, *arguments: Any, **named: Any) -> Self:
            return _timed(spent, "open", super().open, *arguments, **named)

        def plan(self, **named: Any) -> Any:
            return _timed(spent, "plan", super().plan, **named)

        def begin(self, *arguments: Any, **named: Any) -> Any:
            before = spent["plan"]
            made = _timed(spent, "begin", super().begin, *arguments, **named)
            spent["begin"] -= spent["plan"] - before
            return made

        def scan(self, *arguments: Any, **named: Any) -> Any:
            return _timed(spent, "scan", super().scan, *arguments, **named)

        def embed(self, *arguments: Any, **named: Any) -> Any:
            return _timed(spent, "embed", super().embed, *arguments, **named)

        def persist(self, *arguments: Any, **named: Any) -> Any:
            outcomes = iter(super().persist(*arguments, **named))
            while (one := _timed(spent, "persist", next, outcomes, None)) is not None:
                yield one

        def finish(self) -> None:
            before = spent["plan"]
            _timed(spent, "finish", super().finish)
            spent["finish"] -= spent["plan"] - before

    return Timed


def sync_and_tell(profile: str | None) -> None:
    """Sync as the command does and print, as JSON, where the time went."""
    from vault_memory.commands import sync as command  # noqa: PLC0415 - only in the child
    from vault_memory.defs import instance as dagster_side  # noqa: PLC0415
    from vault_memory.ingest import vector_index  # noqa: PLC0415

    spent: Counter[str] = Counter()
    command.Synchronizer = timed_steps(spent)
    run = dagster_side.run_in_process
    dagster_side.run_in_process = lambda *arguments, **named: _timed(spent, "runs", run, *arguments, **named)
    settle = vector_index.settle
    vector_index.settle = lambda *arguments, **named: _timed(spent, "index", settle, *arguments, **named)
    profiler = cProfile.Profile() if profile else None
    started = time.perf_counter()
    if profiler:
        profiler.enable()
    result = command.sync(settings_module.load(), confirmed=True)
    if profiler:
        profiler.disable()
        profiler.dump_stats(profile)
    seconds = time.perf_counter() - started
    assert result.exit_status == 0, (result.problem, list(result.failures.items())[:3])
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    steps = ("begin", "scan", "embed", "persist", "finish")
    inside = sum(spent[step] for step in steps)
    print(
        json.dumps(
            {
                "notes": len(result.outcomes),
                "texts": result.texts_embedded,
                "seconds": seconds,
                "cpu": sum(one.ru_utime + one.ru_stime for one in usage),
                "dagster": max(0.0, spent["runs"] - inside),
                **{step: spent[step] for step in (*steps, "open", "plan", "index")},
            }
        )
    )


def _timed(spent: Counter[str], name: str, call: Any, *arguments: Any, **named: Any) -> Any:
    started = time.perf_counter()
    try:
        return call(*arguments, **named)
    finally:
        spent[name] += time.perf_counter() - started


# -- watching it -------------------------------------------------------------------------------------------------


class Memory:
    """The most memory that each process of this benchmark had, by what it is."""

    def __init__(self, postmaster: int) -> None:
        self.peaks: dict[str, int] = {}
        self._postmaster = postmaster
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        """Begin to watch."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._over.set()
        self._thread.join()

    @property
    def worst(self) -> tuple[str, float]:
        """The process with the most, and its megabytes."""
        name = max(self.peaks, key=self.peaks.__getitem__, default="none")
        return name, self.peaks.get(name, 0) / 1000

    def _watch(self) -> None:
        while not self._over.wait(0.25):
            parents: dict[int, int] = {}
            for entry in Path("/proc").iterdir():
                if entry.name.isdecimal() and (stat := _read(f"{entry}/stat")):
                    parents[int(entry.name)] = int(stat.rpartition(") ")[2].split(" ")[1])
            for pid in parents:
                line, at = [pid], pid
                while at in parents and parents[at] > 1:
                    at = parents[at]
                    line.append(at)
                if pid != os.getpid() and (os.getpid() in line or self._postmaster in line):
                    self._note(pid, is_postgres=self._postmaster in line)

    def _note(self, pid: int, *, is_postgres: bool) -> None:
        command = (_read(f"/proc/{pid}/cmdline") or "").replace("\0", " ")
        fields = dict(
            line.partition(":")[::2] for line in (_read(f"/proc/{pid}/status") or "").splitlines() if ":" in line
        )
        value = fields.get("RssAnon" if is_postgres else "VmHWM")
        if value is None or "embedding_server" in command:
            return
        name = "postgres" if is_postgres else _named(command)
        self.peaks[name] = max(self.peaks.get(name, 0), int(value.split()[0]))


def _named(command: str) -> str:
    for part, name in (
        ("screening_worker", "scanner"),
        ("--sync", "sync"),
        ("dagster_webserver", "webserver"),
        ("_daemon", "daemon"),
        ("api grpc", "code server"),
        ("execute_run", "run"),
        ("multiprocessing", "run"),
        ("git ", "git"),
    ):
        if part in command:
            return name
    return "other"


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended
        return None


# -- one size ----------------------------------------------------------------------------------------------------


class Place:
    """A vault with a database and a Dagster of its own."""

    def __init__(self, folder: Path, notes: int, url: str | None) -> None:
        self.vault = folder / "vault"
        subprocess.run(
            [sys.executable, DATA / "tools" / "make_vault.py", self.vault, str(notes)], check=True, capture_output=True
        )
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("VAULT_MEMORY", "DAGSTER"))},
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder),
            "VAULT_MEMORY_HOME": str(folder / "home"),
            "VAULT_MEMORY_VAULT": str(self.vault),
            "VAULT_MEMORY_EMBEDDER": "hashing" if url is None else "openai",
        }
        if url is not None:
            self.environment |= {
                "VAULT_MEMORY_EMBEDDING_BASE_URL": url,
                "VAULT_MEMORY_EMBEDDING_ALLOW_HTTP_LOOPBACK": "1",
            }
        self.settings: Settings = settings_module.load(self.environment)

    def sync(self, profile: str | None = None) -> dict[str, float]:
        """Sync in a process of its own and return what it told."""
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.scale", "--sync", *([profile] if profile else [])],
            check=True,
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        return json.loads(done.stdout.splitlines()[-1])

    def commit(self, name: str) -> None:
        """Commit one new note."""
        path = self.vault / "01_Projects" / f"{name}.md"
        path.write_text(f"# {name}\n\nA note about {name} and the harbour at night.\n", encoding="utf-8")
        for arguments in (["add", "-A"], ["commit", "-qm", name]):
            subprocess.run(["git", "-C", self.vault, *arguments], check=True, capture_output=True)

    def sizes(self) -> dict[str, float]:
        """Return the size of each database in MB."""
        opened = open_database(self.settings)
        found: dict[str, float] = {}
        for name, dsn in (("memory", opened.dsn), ("dagster", opened.dagster_dsn)):
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute("CHECKPOINT")
                row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
                found[name] = row[0] / 1e6 if row else 0.0
        return found

    @contextmanager
    def webserver(self, *, daemon: bool) -> Iterator[Any]:
        """Run Dagster's webserver, and its daemon if asked for; yields a function that asks in GraphQL."""
        home = self.settings.dagster_home
        environment = {
            **self.environment,
            "DAGSTER_HOME": str(home),
            "VAULT_MEMORY_DAGSTER_DSN": os.environ["VAULT_MEMORY_DAGSTER_DSN"],
        }
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        commands = [["dagster_webserver", "-h", "127.0.0.1", "-p", str(port), "-w", str(home / "workspace.yaml")]]
        if daemon:
            commands.append(["dagster._daemon", "run", "-w", str(home / "workspace.yaml")])
        children = [
            subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=home,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            for command in commands
        ]

        def ask(query: str, **variables: Any) -> Any:
            body = json.dumps({"query": query, "variables": variables}).encode()
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/graphql", body, {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=300) as answer:
                parsed = json.loads(answer.read())
            assert "errors" not in parsed, parsed["errors"]
            return parsed["data"]

        try:
            end = time.monotonic() + 120
            while True:
                try:
                    if ask("{ version }"):
                        break
                except OSError:
                    assert time.monotonic() < end, "the webserver does not come"
                    time.sleep(0.2)
            yield ask
        finally:
            for child in children:
                child.terminate()
            for child in children:
                try:
                    child.wait(45)
                finally:
                    with suppress(ProcessLookupError):
                        os.killpg(child.pid, 9)


def asked(ask: Any, notes: int) -> list[float]:
    """Ask for the status of all partitions three times and return the seconds of each."""
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        node = ask(_STATUS, asset=_ASSET)["assetNodeOrError"]
        seconds.append(time.perf_counter() - started)
        assert notes == len(node["assetPartitionStatuses"]["materializedPartitions"])
    return seconds


def backfill(place: Place, notes: int) -> tuple[float, int]:
    """Materialize all through webserver and daemon; return seconds and runs."""
    with place.webserver(daemon=True) as ask:
        started = time.perf_counter()
        params = {"assetSelection": [_ASSET], "allPartitions": True, "fromFailure": False}
        name = ask(_MATERIALIZE_ALL, params=params)["launchPartitionBackfill"]["backfillId"]
        while (status := ask(_BACKFILL, id=name)["partitionBackfillOrError"]["status"]) in ("REQUESTED", "FAILING"):
            time.sleep(1)
        seconds = time.perf_counter() - started
        assert status == "COMPLETED_SUCCESS", status
        asked(ask, notes)
    return seconds, -(-notes // 300)


def measure(notes: int, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one size and print its row."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder, ExitStack() as stack:
        script = str(DATA / "tools" / "embedding_server.py")
        url = stack.enter_context(served(script, "--backend", "hash", "--port", "0", "--latency-ms", "0"))
        place = Place(Path(folder), notes, url)
        stack.callback(server.remove, place.settings.home)
        server.ensure_running(place.settings.home, place.settings.pg_user)
        with Memory(server.status(place.settings.home, place.settings.pg_user).pid or 0) as memory:
            first = place.sync(f"{options.profile}.{notes}" if options.profile else None)
            assert notes == first["notes"], first
            unchanged = place.sync()
            place.commit("one more")
            edited = place.sync()
            sizes = place.sizes()
            bootstrap(place)
            with place.webserver(daemon=False) as ask:
                status = asked(ask, notes + 1)
            row: dict[str, Any] = {
                "notes": notes,
                "wall": first["seconds"],
                "cpu": first["cpu"],
                "ms": 1000 * first["seconds"] / notes,
                **{f"{name} ms": 1000 * first[name] / notes for name in COLUMNS},
                "other ms": 1000 * (first["seconds"] - sum(first[name] for name in COLUMNS)) / notes,
                "unchanged s": unchanged["seconds"],
                "one note s": edited["seconds"],
                "status s": status,
                "memory MB": sizes["memory"],
                "dagster MB": sizes["dagster"],
            }
            if str(notes) in options.backfill.split(","):
                row["backfill s"], row["backfill runs"] = backfill(place, notes + 1)
        row["peaks MB"] = {name: round(value / 1000) for name, value in sorted(memory.peaks.items())}
        row["worst MB"] = memory.worst[1]
    show(row)
    return row


def bootstrap(place: Place) -> None:
    """Name Dagster's home and storage in this process' environment."""
    from vault_memory.defs.instance import bootstrap  # noqa: PLC0415 - most of a second

    bootstrap(place.settings, open_database(place.settings).dagster_dsn)


def show(row: dict[str, Any]) -> None:
    """Print what was measured at one size."""
    steps = " | ".join(f"{row[f'{name} ms']:.1f}" for name in (*COLUMNS, "other"))
    print(
        f"| {row['notes']} | {row['wall']:.1f} | {row['cpu']:.1f} | {row['ms']:.1f} | {steps} | {row['unchanged s']:.2f} "
        f"| {row['one note s']:.2f} | {max(row['status s']):.2f} | {row['worst MB']:.0f} | {row['memory MB']:.0f} "
        f"| {row['dagster MB']:.0f} |"
    )
    print(
        f"  peak MB by process: {row['peaks MB']}; status asked: {', '.join(f'{one:.2f}' for one in row['status s'])} s"
    )
    if "backfill s" in row:
        print(
            f"  backfill of all {row['notes'] + 1}: {row['backfill s']:.0f} s in {row['backfill runs']} runs, "
            f"{1000 * row['backfill s'] / row['notes']:.1f} ms a note"
        )
    sys.stdout.flush()


def judge(rows: list[dict[str, Any]]) -> None:
    """Print growth from size to size, and whether the largest size keeps what is promised."""
    for before, after in pairwise(rows):
        print(
            f"{before['notes']} -> {after['notes']} notes: a note takes {after['ms'] / before['ms']:.2f} times as long, in "
            f"CPU time {after['cpu'] / after['notes'] / (before['cpu'] / before['notes']):.2f} times; "
            f"memory {1000 * (after['memory MB'] - before['memory MB']) / (after['notes'] - before['notes']):.1f} kB and "
            f"Dagster {1000 * (after['dagster MB'] - before['dagster MB']) / (after['notes'] - before['notes']):.1f} kB a "
            "note on disk"
        )
    last = rows[-1]
    growth = last["ms"] / rows[-2]["ms"] if len(rows) > 1 else 1.0
    for what, found, bar in (
        ("wall seconds", last["wall"], BARS["wall_seconds"]),
        ("peak MB of a process", max(row["worst MB"] for row in rows), BARS["megabytes"]),
        ("seconds for the status of all partitions", max(last["status s"]), BARS["status_seconds"]),
        ("times the time a note of the size before", growth, BARS["ms_growth"]),
    ):
        print(f"{'kept' if found <= bar else 'MISSED'}: {found:.2f} {what} (at most {bar:g})")


def main() -> None:
    """Measure every size and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--notes", default="100,1000,10000")
    parser.add_argument("--backfill", default="", help="Sizes for which a backfill of all is measured too.")
    parser.add_argument("--profile", help="Write cProfile's statistics of the first sync to FILE.<notes>.")
    parser.add_argument("--folder", help="Where vaults and databases are made.")
    parser.add_argument("--sync", nargs="?", const="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.sync is not None:
        sync_and_tell(options.sync or None)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that databases and folders are removed
    print(
        "| notes | wall s | CPU s | ms a note | scan | embed | persist | Dagster | index | other | unchanged s | one note s "
        "| status s | peak MB | memory MB | Dagster MB |"
    )
    print("|" + "---|" * 16, flush=True)
    judge([measure(int(notes), options) for notes in options.notes.split(",")])


if __name__ == "__main__":
    main()
