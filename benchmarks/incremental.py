"""What a commit costs: texts embedded and milliseconds a note, by kind of change and size of the vault.

Belongs here: measuring the steps of a sync alone and through Dagster, on vaults of its own making and the offline
embedder. Does not: the wire to a provider (``embedding.py``).

    python benchmarks/incremental.py                     100 and 1,000 notes
    python benchmarks/incremental.py --notes 10000       as many as you like, several times if you like
    python benchmarks/incremental.py --sections 1        shorter notes
    python benchmarks/incremental.py --no-dagster        the steps alone

"ms a note" is wall time of the whole sync, from opening the vault to the recorded commit, divided by the notes that
changed. "P95" is of the time spent on single notes, reading, scanning, chunking and writing, without the embedder.
"""

import argparse
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

from vault_memory import settings as settings_module
from vault_memory.adapters import server
from vault_memory.commands import sync as sync_command
from vault_memory.ingest.batch import NoteOutcome
from vault_memory.ingest.sync import Synchronizer
from vault_memory.settings import Settings

CHANGED = 20
WORDS = [
    "cache",
    "queue",
    "deploy",
    "rollback",
    "index",
    "vector",
    "commit",
    "branch",
    "review",
    "budget",
    "meeting",
    "plan",
    "缓存",
    "部署",
    "回滚",
    "索引",
    "会议",
    "计划",
    "预算",
    "提交",
]


@dataclass
class Line:
    """One row of the table."""

    notes: int
    way: str
    change: str
    changed: int
    texts: int
    seconds: float
    p95: float

    def show(self) -> str:
        """Return the row."""
        a_note = f"{self.seconds * 1000 / self.changed:9.1f}" if self.changed else "        -"
        p95 = f"{self.p95:7.1f}" if self.p95 else "      -"
        return (
            f"{self.notes:6d}  {self.way:8s}  {self.change:18s} {self.changed:7d} {self.texts:6d}"
            f" {self.seconds:8.2f} {a_note} {p95}"
        )


class Vault:
    """A git repository of made-up notes, about 600 bytes a section."""

    def __init__(self, folder: Path, notes: int, sections: int) -> None:
        self.folder = folder
        self.sections = sections
        self.random = random.Random(7)
        self.names = [f"01_Projects/p{number % 40:02d}/note {number:05d}.md" for number in range(notes)]
        folder.mkdir()
        self.git("init", "-q", "-b", "main")
        for name in self.names:
            self.write(name, self.text())
        self.commit()

    def git(self, *arguments: str) -> None:
        """Run git."""
        subprocess.run(
            ["git", "-c", "user.name=b", "-c", "user.email=b@example.invalid", "-c", "gc.auto=0", *arguments],
            cwd=self.folder, check=True, capture_output=True,
        )  # fmt: skip

    def commit(self) -> None:
        """Commit everything."""
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "c")

    def write(self, name: str, text: str) -> None:
        """Write a file."""
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text, encoding="utf-8")

    def sentence(self) -> str:
        """Return a line of body."""
        return " ".join(self.random.choices(WORDS, k=14)) + f" {self.random.randrange(10**9)}."

    def text(self) -> str:
        """Return a note."""
        sections = ["# " + self.sentence()]
        sections += [
            f"## {self.sentence()}\n\n" + "\n".join(self.sentence() for _ in range(5)) for _ in range(self.sections)
        ]
        return "\n\n".join(sections) + "\n"

    def some(self) -> list[str]:
        """Choose the notes to change."""
        return self.random.sample(self.names, min(CHANGED, len(self.names) // 4))

    def edit(self) -> None:
        """Replace one line of some notes."""
        for name in self.some():
            lines = (self.folder / name).read_text(encoding="utf-8").split("\n")
            at = self.random.choice([at for at, line in enumerate(lines) if line and not line.startswith("#")])
            lines[at] = self.sentence()
            self.write(name, "\n".join(lines))

    def rename(self) -> None:
        """Move some notes."""
        for name in self.some():
            new = f"02_Areas/moved/{self.random.randrange(10**9)}.md"
            (self.folder / new).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).rename(self.folder / new)
            self.names[self.names.index(name)] = new

    def delete(self) -> None:
        """Delete some notes."""
        for name in self.some():
            (self.folder / name).unlink()
            self.names.remove(name)

    def ignore(self) -> None:
        """Exclude one folder of forty."""
        self.write(".vaultmemoryignore", f"p{self.random.randrange(40):02d}/\n")


def steps(settings: Settings) -> list[NoteOutcome]:
    """Sync without Dagster."""
    outcomes: list[NoteOutcome] = []
    with Synchronizer.open(settings) as synchronizer:
        plan = synchronizer.plan(retry_all=True)
        if plan.is_empty and synchronizer.is_current():
            return outcomes
        with synchronizer.writer(30, holder="benchmark"):
            for note_ids in plan.batches(settings.sync.max_notes_per_run):
                batch = synchronizer.begin(note_ids, follow_plan=True, run_id="benchmark")
                outcomes += synchronizer.persist(synchronizer.embed(synchronizer.scan(batch)))
            synchronizer.finish()
    return outcomes


def through_dagster(settings: Settings) -> list[NoteOutcome]:
    """Sync as ``vault-memory sync`` does."""
    result = sync_command.sync(settings, confirmed=True)
    assert result.exit_status == 0, result.problem
    return list(result.outcomes.values())


def measure(
    vault: Vault, settings: Settings, way: str, change: str, sync: Callable[[Settings], list[NoteOutcome]]
) -> Line:
    """Time one sync."""
    notes = len(vault.names)
    started = time.perf_counter()
    outcomes = sync(settings)
    seconds = time.perf_counter() - started
    renamed = sum(outcome.action == "renamed" for outcome in outcomes)
    spent = [outcome.milliseconds for outcome in outcomes if outcome.milliseconds]
    p95 = quantiles(spent, n=20)[-1] if len(spent) > 1 else 0.0
    texts = sum(outcome.texts_embedded for outcome in outcomes)
    line = Line(notes, way, change, len(outcomes) - renamed, texts, seconds, p95)
    print(line.show(), flush=True)
    return line


def run(notes: int, sections: int, *, dagster: bool) -> None:
    """Measure one size."""
    folder = Path(tempfile.mkdtemp(prefix="vm-incremental-"))
    home = folder / "home"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "VAULT_MEMORY_VAULT": str(folder / "vault"),
        "VAULT_MEMORY_HOME": str(home),
        "VAULT_MEMORY_EMBEDDER": "hashing",
    }
    settings = settings_module.load(environment)
    try:
        vault = Vault(folder / "vault", notes, sections)
        measure(vault, settings, "steps", "first index", steps)
        ways = [("steps", steps)]
        if dagster:
            through_dagster(settings)  # makes Dagster's tables
            ways.append(("dagster", through_dagster))
        for way, sync in ways:
            measure(vault, settings, way, "unchanged", sync)
            for change in (vault.edit, vault.rename, vault.delete, vault.ignore):
                change()
                vault.commit()
                measure(vault, settings, way, change.__name__, sync)
    finally:
        server.remove(home)
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--notes", type=int, action="append", help="size of the vault; may be given several times")
    parser.add_argument("--sections", type=int, default=4, help="sections, and so texts, of a note (4)")
    parser.add_argument("--no-dagster", action="store_true", help="the steps alone")
    arguments = parser.parse_args()
    print(" notes  way       change             changed  texts        s  ms a note  P95 ms")
    for notes in arguments.notes or [100, 1000]:
        run(notes, arguments.sections, dagster=not arguments.no_dagster)


if __name__ == "__main__":
    main()
