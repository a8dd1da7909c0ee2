"""Readers while memory is rebuilt: eight processes ask all the while, idle and during ``sync --full --re-embed``.

    python benchmarks/readers.py                         300 notes, 8 readers, each a question every 0.25 s
    python benchmarks/readers.py --notes 1000 --every 0.1

Each reader is a process of its own that opens a connection for every question, as the command does, and asks for a word
that one note alone has: an answer without that note is an error. Printed side by side, from one run: questions, errors,
P50 and P95 while nothing else happens, during the rebuild, and after it. The rebuild makes every vector anew with the
offline embedder and writes every note again, on the same cores. Exit status 1 if there was any error.
"""

import argparse
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import quantiles

from vault_memory import settings as settings_module
from vault_memory.adapters import server
from vault_memory.errors import VaultMemoryError
from vault_memory.query.search import search

READERS = 8
IDLE_SECONDS = 20.0
ROOT = Path(__file__).resolve().parents[1]
Answer = tuple[float, float, bool]  # when it was asked (monotonic, the same for all processes), seconds, right


def read(environment: dict[str, str], notes: int, every_seconds: float, seed: int, over: Connection) -> None:
    """Ask until told to end; then send what came."""
    settings = settings_module.load(environment)
    chance = random.Random(seed)
    answers: list[Answer] = []
    search("warm", settings=settings)
    over.send("ready")
    while not over.poll(every_seconds):
        number = chance.randrange(notes)
        asked = time.monotonic()
        try:
            found = search(f"subject{number}x pipeline cache", settings=settings).items
            right = any(hit.source == name_of(number) for hit in found)
        except VaultMemoryError:
            right = False
        answers.append((asked, time.monotonic() - asked, right))
    over.send(answers)


def name_of(number: int) -> str:
    """Return a note's path."""
    return f"01_Projects/p{number % 20:02d}/n{number:05d}.md"


def make_vault(folder: Path, notes: int) -> None:
    """Write and commit notes of three sections."""
    chance = random.Random(7)
    words = [
        "cache",
        "queue",
        "deploy",
        "rollback",
        "index",
        "vector",
        "commit",
        "review",
        "budget",
        "meeting",
        "plan",
        "缓存",
        "部署",
        "回滚",
        "索引",
        "会议",
    ]
    for number in range(notes):
        file = folder / name_of(number)
        file.parent.mkdir(parents=True, exist_ok=True)
        sections = [
            f"## Part {part}\n\nsubject{number}x " + " ".join(chance.choices(words, k=60)) + "\n" for part in range(3)
        ]
        file.write_text(f"# Note {number}\n\n" + "\n".join(sections), encoding="utf-8")
    git = ["git", "-c", "user.name=b", "-c", "user.email=b@example.invalid"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "c"]):
        subprocess.run([*git, *arguments], cwd=folder, check=True)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Run something and return when it began and ended."""
    began = time.monotonic()
    work()
    return began, time.monotonic()


def show(name: str, span: tuple[float, float], answers: list[Answer]) -> float:
    """Print a line and return the P95 in seconds."""
    mine = [answer for answer in answers if span[0] <= answer[0] < span[1]]
    cuts = quantiles([seconds for _, seconds, _ in mine], n=20)
    wrong = sum(not right for _, _, right in mine)
    print(
        f"{name:14s} {span[1] - span[0]:8.1f} {len(mine):10d} {wrong:7d} {cuts[9] * 1000:8.1f} {cuts[18] * 1000:8.1f}",
        flush=True,
    )
    return cuts[18]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--notes", type=int, default=300)
    parser.add_argument("--readers", type=int, default=READERS)
    parser.add_argument("--every", type=float, default=0.25, help="seconds between two questions of a reader (0.25)")
    parser.add_argument("--idle", type=float, default=IDLE_SECONDS, help="seconds of idle before and after (20)")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="vm-readers-"))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "VAULT_MEMORY_VAULT": str(folder / "vault"),
        "VAULT_MEMORY_HOME": str(folder / "home"),
        "VAULT_MEMORY_EMBEDDER": "hashing",
    }

    def sync(*flags: str) -> None:
        command = [sys.executable, "-m", "vault_memory.cli", "sync", *flags]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)

    try:
        (folder / "vault").mkdir()
        make_vault(folder / "vault", arguments.notes)
        sync()
        context = multiprocessing.get_context("spawn")
        pipes, processes = [], []
        for seed in range(arguments.readers):
            ours, theirs = context.Pipe()
            given = (environment, arguments.notes, arguments.every, seed, theirs)
            processes.append(context.Process(target=read, args=given, daemon=True))
            processes[-1].start()
            pipes.append(ours)
        for pipe in pipes:
            pipe.recv()
        before = timed(lambda: time.sleep(arguments.idle))
        rebuild = timed(lambda: sync("--full", "--re-embed", "--yes"))
        after = timed(lambda: time.sleep(arguments.idle))
        for pipe in pipes:
            pipe.send("end")
        answers = [answer for pipe in pipes for answer in pipe.recv()]
        for process in processes:
            process.join(10)
        print(f"{arguments.readers} readers, {arguments.notes} notes, load {os.getloadavg()[0]:.1f}")
        print("while                 s  questions  errors   P50 ms   P95 ms")
        idle = show("idle", before, answers)
        busy = show("full rebuild", rebuild, answers)
        show("idle again", after, answers)
        print(f"P95 of the rebuild to idle: {busy / idle:.2f}")
        if not all(right for _, _, right in answers):
            sys.exit(1)
    finally:
        server.remove(folder / "home")
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
