"""First index and unchanged run of the same vault by vault-memory and its peers, side by side.

Usage::

    python -m benchmarks.peers [--notes 1000] [--latency-ms 0] [--cocoindex PYTHON] [--git-rag COMMAND]

Needs ``VAULT_MEMORY_TEST_DATA`` (a vault maker and an embeddings server). A peer that is not there is skipped:

* ``--cocoindex``: a Python in which ``pip install cocoindex asyncpg openai`` was run.
* ``--git-rag``: the command of ``pip install git-rag`` (Python 3.12 or later; it brings torch). It needs pg_trgm, which
  the embedded server lacks: name one that has it by ``--server``.

Each has an empty database of its own on one server, embedded unless ``--server`` names another, and asks the same embeddings server. vault-memory runs
as its users run it: ``vault-memory sync``, Dagster and all. The load of the machine is printed, as it decides about
the seconds; the ratios of one run are what to look at.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from benchmarks.embedding import DATA, call, served
from vault_memory.adapters import server

PROGRAM = Path(__file__).with_name("peers_cocoindex.py")


def timed(command: Sequence[str], environment: Mapping[str, str], seconds: float) -> float | str:
    """Run a command and return how long it took, or why it did not end well."""
    start = time.perf_counter()
    try:
        done = subprocess.run(
            command,
            env={"PATH": os.environ["PATH"], **environment},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"more than {seconds:g} s"
    if done.returncode != 0:
        said = [line.strip() for line in done.stderr.splitlines() if "Error" in line or "not " in line]
        return f"exit {done.returncode}: {(said or ['?'])[-1][:100]}"
    return time.perf_counter() - start


def count(dsn: str, statement: str) -> int:
    """Count what is there afterwards."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(statement).fetchone()[0]


def plans(options: argparse.Namespace, folder: Path, vault: Path, url: str) -> dict[str, tuple]:
    """Return each contender's environment, commands to prepare, command to time, and how to count notes."""
    home = {"HOME": str(folder)}
    found = {
        "vault-memory": (
            {
                **home,
                "PYTHONPATH": str(Path(__file__).parents[1]),
                "VAULT_MEMORY_HOME": str(folder / "home"),
                "VAULT_MEMORY_VAULT": str(vault),
                "VAULT_MEMORY_DSN": "{dsn}",
                "VAULT_MEMORY_EMBEDDER": "openai",
                "VAULT_MEMORY_EMBEDDING_BASE_URL": url,
                "VAULT_MEMORY_EMBEDDING_ALLOW_HTTP_LOOPBACK": "1",
            },
            [],
            [sys.executable, "-m", "vault_memory.cli", "sync", "--json"],
            "SELECT count(DISTINCT note_id) FROM vault_memory.memory_chunk WHERE embedding IS NOT NULL",
        )
    }
    if options.cocoindex:
        found["cocoindex"] = (
            {**home, "PEER_URL": url, "PEER_DSN": "{dsn}", "PEER_VAULT": str(vault), "COCOINDEX_DB": str(folder / "c")},
            [],
            [options.cocoindex, str(PROGRAM)],
            "SELECT count(DISTINCT source) FROM docs",
        )
    if options.git_rag:
        found["git-rag"] = (
            {
                **home,
                "VAULT_PATH": str(vault),
                "DATABASE_URL": "{dsn}",
                "EMBED_PROVIDER": "openai",
                "EMBED_MODEL": "text-embedding-3-small",
                "EMBED_DIM": "1536",
                "EMBED_BASE_URL": url,
                "OPENAI_API_KEY": "k",
            },
            [[options.git_rag, "init"]],
            [options.git_rag, "index"],
            "SELECT count(*) FROM documents",
        )
    return found


def main() -> None:
    """Run every contender and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--notes", type=int, default=1000)
    parser.add_argument("--latency-ms", default="0")
    parser.add_argument("--timeout-seconds", type=float, default=3600)
    parser.add_argument("--server", metavar="DSN", help="A superuser's URL, in place of the embedded server.")
    parser.add_argument("--cocoindex", metavar="PYTHON")
    parser.add_argument("--git-rag", metavar="COMMAND", default=shutil.which("git-rag"))
    options = parser.parse_args()
    for name in ("cocoindex", "git_rag"):
        if not getattr(options, name):
            print(f"skipped: {name} (see --help)")
    with tempfile.TemporaryDirectory() as name:
        folder, vault = Path(name), Path(name, "vault")
        make = [sys.executable, DATA / "tools" / "make_vault.py", vault, str(options.notes)]
        subprocess.run(make, check=True, capture_output=True)
        administrator = options.server or server.ensure_running(folder / "database", "nobody").dsn("postgres")
        script = str(DATA / "tools" / "embedding_server.py")
        try:
            with served(script, "--backend", "hash", "--port", "0", "--latency-ms", options.latency_ms) as url:
                compare(options, folder, vault, url, administrator)
        finally:
            if not options.server:
                server.remove(folder / "database")


def compare(options: argparse.Namespace, folder: Path, vault: Path, url: str, administrator: str) -> None:
    """Print a row a contender."""
    print(f"{options.notes} notes, latency {options.latency_ms} ms, load {os.getloadavg()[0]:.1f}")
    print("| tool | first index s | times ours | notes found | texts sent | requests | unchanged s |")
    print("|---|---|---|---|---|---|---|", flush=True)
    ours: float | None = None
    for tool, (environment, prepare, command, counted) in plans(options, folder, vault, url).items():
        database = f"peers_{tool.replace('-', '_')}"
        with psycopg.connect(administrator, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{database}"')
            connection.execute(f'CREATE DATABASE "{database}"')
        dsn = urlsplit(administrator)._replace(path=f"/{database}").geturl()  # asyncpg wants a URL
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        values = {key: value.replace("{dsn}", dsn) for key, value in environment.items()}
        call(url, "/__reset", b"{}")
        for step in prepare:
            outcome = timed(step, values, options.timeout_seconds)
            if isinstance(outcome, str):
                print(f"{tool}: {step[-1]}: {outcome}")
        first = timed(command, values, options.timeout_seconds)
        stats = json.loads(call(url, "/__stats"))
        again = timed(command, values, options.timeout_seconds)
        ours = first if ours is None and not isinstance(first, str) else ours
        ratio = "" if isinstance(first, str) or ours is None else f"{first / ours:.1f}"
        shown = [f"{one:.1f}" if not isinstance(one, str) else one for one in (first, again)]
        notes = count(dsn, counted) if not isinstance(first, str) else 0
        print(
            f"| {tool} | {shown[0]} | {ratio} | {notes} | {stats['inputs']} | {stats['requests']} | {shown[1]} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
