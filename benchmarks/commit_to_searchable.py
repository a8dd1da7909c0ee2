"""How long after a commit a query finds it: Dagster's stock settings against ours, in one run.

Usage::

    python -m benchmarks.commit_to_searchable [--commits 6] [--notes 50]

Needs ``VAULT_MEMORY_TEST_DATA`` (a vault maker). Both run the same assets, each on a vault, a database, a webserver and
a daemon of its own, one after the other:

* stock: the sensor looks every 30 s, the run queue and the storage are Dagster's defaults, each step of a run starts a
  process of its own (``stock_location.py``).
* ours: the packaged ``dagster.yaml`` and definitions, which ``vault-memory up`` runs.

A commit adds one note. From the end of ``git commit`` on, the note's own words are searched for until they are found.
Commits come at moments drawn anew, so that none of them is timed to a sensor's tick; the same moments for both.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import dagster as dg

from benchmarks.scale import Place, bootstrap
from vault_memory.adapters import server
from vault_memory.query import search

BAR = 4.0
_TIMEOUT_SECONDS = 300
_STOCK = """\
telemetry:
  enabled: false
storage:
  postgres:
    postgres_url:
      env: VAULT_MEMORY_DAGSTER_DSN
"""
_STOCK_WORKSPACE = """\
load_from:
  - python_module:
      module_name: benchmarks.stock_location
      location_name: vault_memory
"""


def measure(name: str, notes: int, moments: list[float]) -> list[float]:
    """Print a row a commit, and return the seconds from each to its first hit."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        place = Place(Path(folder), notes, None)
        stack.callback(server.remove, place.settings.home)
        server.ensure_running(place.settings.home, place.settings.pg_user)
        place.sync()
        bootstrap(place)
        home = place.settings.dagster_home
        if name == "stock":
            (home / "dagster.yaml").write_text(_STOCK, encoding="utf-8")
            (home / "workspace.yaml").write_text(_STOCK_WORKSPACE, encoding="utf-8")
        stack.enter_context(place.webserver(daemon=True))
        found = []
        with dg.DagsterInstance.from_config(str(home)) as instance:
            _until_idle(instance, place)
            for number, moment in enumerate(moments):
                time.sleep(moment)
                found.append(_one(name, place, instance, f"zephyrine{number}quillon"))
        return found


def _until_idle(instance: dg.DagsterInstance, place: Place) -> None:
    """Wait until the daemon has followed a first commit: what starts up late is not measured."""
    place.commit("warm up")
    end = time.monotonic() + _TIMEOUT_SECONDS
    while not any(run.is_finished for run in instance.get_runs(dg.RunsFilter(job_name="memory_index_job"))[:-1]):
        assert time.monotonic() < end, "the daemon does nothing"
        time.sleep(0.5)


def _one(name: str, place: Place, instance: dg.DagsterInstance, word: str) -> float:
    place.commit(word)
    committed = time.time()
    while not _is(word, place):
        assert time.time() < committed + _TIMEOUT_SECONDS, "never found"
        time.sleep(0.05)
    seconds = time.time() - committed
    # The run that wrote it was asked for after the commit, and may be told of as started only after the hit.
    record = instance.get_run_records(dg.RunsFilter(job_name="vault_sync"), limit=1)[0]
    asked = record.create_timestamp.timestamp() - committed
    started = min(record.start_time or time.time(), committed + seconds) - committed
    print(f"| {name} | {asked:.1f} | {started - asked:.1f} | {seconds - started:.1f} | {seconds:.1f} |", flush=True)
    return seconds


def _is(word: str, place: Place) -> bool:
    return any(word in hit.source for hit in search(word, k=1, settings=place.settings).items)


def main() -> int:
    """Measure both and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--commits", type=int, default=6)
    parser.add_argument("--notes", type=int, default=50)
    options = parser.parse_args()
    draw = random.Random(7)
    moments = [draw.uniform(0, 30) for _ in range(options.commits)]
    print("| settings | commit to request s | to run s | to hit s | all s |\n|---|---|---|---|---|", flush=True)
    seconds = {name: measure(name, options.notes, moments) for name in ("stock", "ours")}
    for name, values in seconds.items():
        print(f"{name}: median {statistics.median(values):.1f} s, {min(values):.1f} to {max(values):.1f} s")
    ratio = statistics.median(seconds["stock"]) / statistics.median(seconds["ours"])
    print(f"{'kept' if ratio >= BAR else 'MISSED'}: {ratio:.1f} times faster (at least {BAR:g})")
    return int(ratio < BAR)


if __name__ == "__main__":
    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")
    sys.exit(main())
