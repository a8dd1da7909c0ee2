"""First index and unchanged run of the same vault by vault-memory and its peers, side by side.

Usage::

    python -m benchmarks.peers --server URL [--notes 100,1000] [--latency-ms 0,100] [--vault made,plain]
        [--cocoindex PYTHON] [--git-rag COMMAND]

Needs ``VAULT_MEMORY_TEST_DATA`` (a vault maker and an embeddings server). A peer that is not named is skipped:

* ``--cocoindex``: a Python in which ``pip install cocoindex asyncpg openai`` was run.
* ``--git-rag``: the command of ``pip install git-rag`` (Python 3.12 or later; it brings torch). It needs pg_trgm, which
  the embedded server lacks: name a server that has it, and pgvector, by ``--server`` (a superuser's URL).

What is in the figures:

* All use one PostgreSQL server, which runs already, a new database each, and one embeddings server, which is new for
  each row. Each is its own command as its users run it, so the start of its interpreter and its imports are in.
* ``set up``: what its documentation asks for before the first index: ``vault-memory init``, ``git-rag init``.
  cocoindex makes its table in the first run.
* ``vault-memory`` is ``vault-memory sync``: scan of every note for secrets in a sandboxed process, keyword index,
  provenance, and a Dagster run with an event a note. ``vault-memory (steps)`` is the same without Dagster.
* git-rag makes a vector and a keyword index; cocoindex, as its example has it, makes neither.
* ``CPU s`` is of the first index, with child processes, without the two servers: what a busy machine changes less.
* ``notes held`` is read from each one's own tables: notes with at least one vector. Of a tool that lost
  notes the seconds stand in brackets, since leaving them out is fast. vault-memory names what it holds back
  as a possible secret (random words can read as a recovery phrase).

Vaults: ``made`` as the maker writes it: every second file has a Chinese name, every note an unquoted date. ``plain``
the same notes with ASCII names and the date in quotes, since git-rag reads no other.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from benchmarks.embedding import DATA, call, served
from vault_memory.adapters import server

HERE = Path(__file__).parent
STEPS = (
    "from benchmarks.first_index import walk\n"
    "from vault_memory.settings import load\n"
    "import os\n"
    "walk(load(dict(os.environ)))\n"
)
QUARANTINED = "SELECT count(*), 0 FROM vault_memory.note_state WHERE status = 'quarantined'"


@dataclass(frozen=True, slots=True)
class Contender:
    """One tool.

    Attributes:
        environment: Of its commands; ``{dsn}`` stands for the URL of its database.
        prepare: Commands of the set-up.
        command: Indexes the vault.
        held: SQL that counts the notes with a vector, and the vectors.
        told: SQL that counts the notes that it left out and says so.
    """

    environment: Mapping[str, str]
    prepare: Sequence[Sequence[str]]
    command: Sequence[str]
    held: str
    told: str = "SELECT 0, 0"


def timed(command: Sequence[str], environment: Mapping[str, str], folder: Path, seconds: float) -> float | str:
    """Run a command in an empty folder and return how long it took, or why it did not end well."""
    start = time.perf_counter()
    try:
        done = subprocess.run(
            command,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), **environment},
            cwd=folder,
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


def cpu_seconds() -> float:
    """Return the CPU time of all commands so far, with their child processes, but without the servers."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def held(dsn: str, statement: str) -> tuple[int, int]:
    """Count notes and vectors; a table that was never made holds none."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        try:
            notes, vectors = connection.execute(statement).fetchone()
        except psycopg.errors.UndefinedTable:
            return 0, 0
    return notes, vectors


def make_vault(kind: str, notes: int, folder: Path) -> None:
    """Make a vault of notes, as the maker does or so that every contender can read it."""
    subprocess.run(
        [sys.executable, DATA / "tools" / "make_vault.py", folder, str(notes)], check=True, capture_output=True
    )
    if kind != "plain":
        return
    for number, path in enumerate(sorted(folder.rglob("*.md"))):
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("created: 2026-03-15", 'created: "2026-03-15"', 1), encoding="utf-8")
        path.rename(path.with_name(f"plain-{number:05d}.md"))
    git = ("git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.invalid")
    subprocess.run([*git, "add", "-A"], check=True, capture_output=True)
    subprocess.run([*git, "commit", "-qm", "plain"], check=True, capture_output=True)


def contenders(options: argparse.Namespace, folder: Path, vault: Path, url: str) -> dict[str, Contender]:
    """Return who takes part."""
    ours = {
        "PYTHONPATH": str(HERE.parent),
        "VAULT_MEMORY_TEST_DATA": str(DATA),
        "VAULT_MEMORY_VAULT": str(vault),
        "VAULT_MEMORY_HOME": str(folder / "home"),
        "VAULT_MEMORY_DSN": "{dsn}",
        "VAULT_MEMORY_EMBEDDER": "openai",
        "VAULT_MEMORY_EMBEDDING_BASE_URL": url,
        "VAULT_MEMORY_EMBEDDING_ALLOW_HTTP_LOOPBACK": "1",
    }
    cli = [sys.executable, "-m", "vault_memory.cli"]
    initialise = [*cli, "init", str(vault)]
    our_held = "SELECT count(DISTINCT note_id), count(*) FROM vault_memory.memory_chunk WHERE embedding IS NOT NULL"
    found = {
        "vault-memory": Contender(ours, [initialise], [*cli, "sync"], our_held, QUARANTINED),
        "vault-memory (steps)": Contender(ours, [initialise], [sys.executable, "-c", STEPS], our_held, QUARANTINED),
    }
    if options.cocoindex:
        found["cocoindex"] = Contender(
            {"PEER_URL": url, "PEER_DSN": "{dsn}", "PEER_VAULT": str(vault), "COCOINDEX_DB": str(folder / "c")},
            [],
            [options.cocoindex, str(HERE / "peers_cocoindex.py")],
            "SELECT count(DISTINCT source), count(*) FROM docs WHERE embedding IS NOT NULL",
        )
    if options.git_rag:
        found["git-rag"] = Contender(
            {
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
            "SELECT count(DISTINCT document_id), count(*) FROM chunks WHERE embedding IS NOT NULL",
        )
    return found


def new_database(administrator: str) -> str:
    """Make an empty database with pgvector and return its URL."""
    with psycopg.connect(administrator, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS peers_benchmark WITH (FORCE)")
        connection.execute("CREATE DATABASE peers_benchmark")
        connection.execute("CHECKPOINT")  # what the row before left to write is not this one's
    dsn = urlsplit(administrator)._replace(path="/peers_benchmark").geturl()  # asyncpg wants a URL
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
    return dsn


def measure(tool: str, contender: Contender, url: str, administrator: str, notes: int, seconds: float) -> str:
    """Index the vault twice and return the row, but for the ratio."""
    dsn = new_database(administrator)
    environment = {key: value.replace("{dsn}", dsn) for key, value in contender.environment.items()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepared: float | str = 0.0
        for step in contender.prepare:
            prepared = timed(step, environment, folder, seconds)
        call(url, "/__reset", b"{}")
        before = cpu_seconds()
        first = timed(contender.command, environment, folder, seconds)
        cpu = cpu_seconds() - before
        stats = json.loads(call(url, "/__stats"))
        found, vectors = held(dsn, contender.held)
        told, _ = held(dsn, contender.told)
        again = timed(contender.command, environment, folder, seconds)
    shown = [one if isinstance(one, str) else f"{one:.1f}" for one in (prepared, first, again)]
    complete = found + told == notes and not isinstance(first, str)
    kept = f"{found} + {told} quarantined" if told else str(found)
    kept = kept if complete else f"**{kept} of {notes}**"
    return (
        f"| {tool} | {shown[0]} | {shown[1] if complete else f'({shown[1]})'} | {cpu:.1f} | {kept} | {vectors} "
        f"| {stats['inputs']} | {stats['requests']} | {stats['max_concurrency']} | {shown[2]} |"
    )


def compare(options: argparse.Namespace, kind: str, notes: int, latency_ms: float, administrator: str) -> None:
    """Print a row a contender."""
    print(f"\n{notes} notes, vault {kind}, latency {latency_ms:g} ms, load {os.getloadavg()[0]:.1f}\n")
    print(
        "| tool | set up s | first index s | notes held | vectors | texts sent | requests | in flight | unchanged s |"
    )
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    script = str(DATA / "tools" / "embedding_server.py")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        vault = folder / "vault"
        make_vault(kind, notes, vault)
        for tool in contenders(options, folder, vault, ""):
            with served(script, "--backend", "hash", "--port", "0", "--latency-ms", str(latency_ms)) as url:
                contender = contenders(options, folder / tool, vault, url)[tool]
                (folder / tool).mkdir()
                print(measure(tool, contender, url, administrator, notes, options.timeout_seconds), flush=True)


def main() -> None:
    """Run every contender and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--notes", default="1000")
    parser.add_argument("--latency-ms", default="0")
    parser.add_argument("--vault", default="plain", help="made, plain or both")
    parser.add_argument("--timeout-seconds", type=float, default=3600)
    parser.add_argument("--server", metavar="URL", help="A superuser's URL, in place of the embedded server.")
    parser.add_argument("--cocoindex", metavar="PYTHON")
    parser.add_argument("--git-rag", metavar="COMMAND")
    options = parser.parse_args()
    for name in ("cocoindex", "git_rag"):
        if not getattr(options, name):
            print(f"skipped: {name} (see --help)")
    with tempfile.TemporaryDirectory() as name:
        home = Path(name, "database")
        administrator = options.server or server.ensure_running(home, "nobody").dsn("postgres")
        try:
            for kind, notes, latency_ms in product(
                options.vault.split(","), map(int, options.notes.split(",")), map(float, options.latency_ms.split(","))
            ):
                compare(options, kind, notes, latency_ms, administrator)
        finally:
            if not options.server:
                server.remove(home)


if __name__ == "__main__":
    main()
