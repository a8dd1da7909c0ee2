"""Where the time of a first index goes: scan, embed and persist, in milliseconds a note.

Usage::

    python -m benchmarks.first_index [--notes 1000] [--embedder hashing,server] [--latency-ms 0,100] [--profile FILE]

Needs ``VAULT_MEMORY_TEST_DATA`` (a vault maker and an embeddings server). The steps run without Dagster, on an
embedded database of their own that is removed at the end. Runs of 300 notes, as the sensor asks for.
"""

from __future__ import annotations

import argparse
import cProfile
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from benchmarks.embedding import DATA, served
from vault_memory import settings as settings_module
from vault_memory.adapters import server
from vault_memory.ingest.sync import Synchronizer
from vault_memory.settings import Settings


def walk(settings: Settings) -> tuple[Counter[str], float, Synchronizer]:
    """Bring the store to HEAD and return seconds by step, and all of them."""
    spent: Counter[str] = Counter()
    begun = time.perf_counter()
    with Synchronizer.open(settings) as synchronizer, synchronizer.writer(5, holder="benchmark"):
        spent["open"] = time.perf_counter() - begun
        plan = synchronizer.plan()
        for note_ids in plan.batches(settings.sync.max_notes_per_run):
            marks = [time.perf_counter()]
            batch = synchronizer.begin(note_ids, follow_plan=True, run_id="benchmark")
            marks.append(time.perf_counter())
            batch = synchronizer.scan(batch)
            marks.append(time.perf_counter())
            batch = synchronizer.embed(batch)
            marks.append(time.perf_counter())
            outcomes = list(synchronizer.persist(batch))
            marks.append(time.perf_counter())
            synchronizer.finish()
            marks.append(time.perf_counter())
            assert not [one for one in outcomes if one.action == "failed"]
            for name, start, end in zip(
                ("begin", "scan", "embed", "persist", "finish"), marks[:-1], marks[1:], strict=True
            ):
                spent[name] += end - start
    return spent, time.perf_counter() - begun, synchronizer


def measure(name: str, vault: Path, latency_ms: float, options: argparse.Namespace) -> None:
    """Print one row."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        environment = {
            "HOME": folder,
            "VAULT_MEMORY_HOME": f"{folder}/home",
            "VAULT_MEMORY_VAULT": str(vault),
            "VAULT_MEMORY_EMBEDDER": "hashing",
        }
        if name == "server":
            script = str(DATA / "tools" / "embedding_server.py")
            url = stack.enter_context(
                served(script, "--backend", "hash", "--port", "0", "--latency-ms", str(latency_ms))
            )
            environment |= {
                "VAULT_MEMORY_EMBEDDER": "openai",
                "VAULT_MEMORY_EMBEDDING_BASE_URL": url,
                "VAULT_MEMORY_EMBEDDING_ALLOW_HTTP_LOOPBACK": "1",
            }
        settings = settings_module.load(environment)
        stack.callback(server.remove, settings.home)
        server.ensure_running(settings.home, settings.pg_user)
        profiler = cProfile.Profile() if options.profile else None
        if profiler:
            profiler.enable()
        spent, seconds, synchronizer = walk(settings)
        if profiler:
            profiler.disable()
            profiler.dump_stats(f"{options.profile}.{name}{latency_ms:g}")
        steps = " | ".join(
            f"{1000 * spent[step] / options.notes:.2f}" for step in ("begin", "scan", "embed", "persist", "finish")
        )
        print(
            f"| {name} | {latency_ms:g} | {synchronizer.provider.spent.texts} | {synchronizer.provider.spent.requests} | {seconds:.1f} "
            f"| {1000 * seconds / options.notes:.2f} | {steps} |",
            flush=True,
        )


def main() -> None:
    """Run every combination and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--notes", type=int, default=1000)
    parser.add_argument("--embedder", default="hashing,server")
    parser.add_argument("--latency-ms", default="0,100")
    parser.add_argument("--profile", help="Write cProfile's statistics to FILE.<row>.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        vault = Path(folder, "vault")
        subprocess.run(
            [sys.executable, DATA / "tools" / "make_vault.py", vault, str(options.notes)],
            check=True,
            capture_output=True,
        )
        print(
            "| embedder | latency ms | texts | requests | seconds | ms a note | begin | scan | embed | persist | finish |"
        )
        print("|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
        for name in options.embedder.split(","):
            for latency_ms in map(float, options.latency_ms.split(",") if name == "server" else ("0",)):
                measure(name, vault, latency_ms, options)


if __name__ == "__main__":
    main()
