"""How much longer a commit takes where memory follows it: ``python benchmarks/hook.py [COMMITS]``.

Two ways of following are measured, each in three states: nothing else going on, while a sync runs, and with a database
that is down.

* ``up``: the daemon looks at HEAD, and git starts nothing. A commit to the vault that it follows is compared with one
  to a twin that nobody follows. Before each goes a commit to the vault that is not timed: so the daemon is at work on
  it during both alike.
* ``install-hook``: commits without a hook, with one that does nothing, and with ours are compared in one repository.

Every round makes each kind of commit once, in an order drawn anew, so that a busy machine bothers all alike. Printed
are medians in ms, the median of the rounds' ratios, and the interval that holds it with 95% (bootstrap). Exits 1 if an
interval lies wholly above ``LIMIT``: of a followed commit to one that is not, or of our hook to an empty one; or if the
median with our hook is above ``HOOK_LIMIT`` times that without any. Most of the latter is git's own start of a process,
which an empty hook costs as well.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vault_memory.adapters import server

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 1.05
HOOK_LIMIT = 1.25
DRAWS = 2000
CASES = ("quiet", "while a sync runs", "database down")
LAG_SECONDS = 0.3  # the daemon has seen a commit by then
PAUSE_SECONDS = 0.05  # so that the end of one commit is not in the next


@dataclass
class Bench:
    """Where it all happens.

    Attributes:
        folder: Of everything.
        random: Draws the orders and the samples.
        above: Limits that were passed, and by which comparison.
    """

    folder: Path
    random: random.Random = field(default_factory=lambda: random.Random(7))
    above: list[str] = field(default_factory=list)

    @property
    def home(self) -> Path:
        """The installation's."""
        return self.folder / "home"

    @property
    def vault(self) -> Path:
        """The vault that is followed."""
        return self.folder / "vault"

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start ``vault-memory`` in the background."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PYTHONPATH": str(ROOT),
            "VAULT_MEMORY_HOME": str(self.home),
        }
        return subprocess.Popen(
            [sys.executable, "-m", "vault_memory.cli", *arguments],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def command(self, *arguments: str) -> None:
        """Run ``vault-memory`` to its end."""
        if (status := self.start(*arguments).wait()) != 0:
            raise SystemExit(f"vault-memory {' '.join(arguments)}: exit status {status}")

    def measure(self, case: str, kinds: dict[str, Callable[[str], float]], rounds: int) -> dict[str, list[float]]:
        """Make each kind of commit once a round, while what the case names goes on."""
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        background: subprocess.Popen[bytes] | None = None
        for number in range(rounds):
            if case == "while a sync runs" and (background is None or background.poll() is not None):
                background = self.start("sync", "--full")
                time.sleep(1.0)  # until it works
            if case == "database down":
                server.stop(self.home)
            for kind in self.random.sample(list(kinds), len(kinds)):
                times[kind].append(kinds[kind](f"{case} {number} {kind}") * 1000)
                time.sleep(PAUSE_SECONDS)
        if background is not None:
            background.wait()
        return times

    def compare(self, what: str, over: list[float], under: list[float], *, judged: bool = True) -> str:
        """Return the median ratio of pairs with its interval; note it if it lies above the limit."""
        ratios = [one / other for one, other in zip(over, under, strict=True)]
        medians = sorted(statistics.median(self.random.choices(ratios, k=len(ratios))) for _ in range(DRAWS))
        low, high = medians[DRAWS // 40], medians[-DRAWS // 40]
        if judged and low > LIMIT:
            self.above.append(f"{LIMIT}: {what}")
        return f"{statistics.median(ratios):.2f} [{low:.2f}, {high:.2f}]"


def main() -> int:
    """Measure, and print a line a case."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    bench = Bench(Path(tempfile.mkdtemp(prefix="vault-memory-hook-")))
    try:
        make_vault(bench.vault)
        bench.command("init", str(bench.vault))
        bench.command("sync")
        followed_by_up(bench, rounds)
        with_hooks(bench, rounds)
    finally:
        settle(bench.home)
        server.remove(bench.home)
        shutil.rmtree(bench.folder, ignore_errors=True)
    for what in bench.above:
        print(f"above {what}")
    return int(bool(bench.above))


def followed_by_up(bench: Bench, rounds: int) -> None:
    """Compare commits that the daemon follows with commits that nobody does."""
    twin = bench.folder / "twin"
    make_vault(twin)  # no copy: git would look at the files of a copied index anew

    def kind_of(repository: Path) -> Callable[[str], float]:
        def measured(text: str) -> float:
            commit(bench.vault, f"{text}, not timed")
            time.sleep(LAG_SECONDS)
            return commit(repository, text)

        return measured

    kinds = {"twin": kind_of(twin), "vault": kind_of(bench.vault)}
    print(f"{'up, no hook':<20}{'not followed':>14}{'followed':>10}   followed to not")
    with running_up(bench):
        for case in CASES:
            times = bench.measure(case, kinds, rounds)
            print(
                f"{case:<20}{statistics.median(times['twin']):>14.1f}{statistics.median(times['vault']):>10.1f}   "
                f"{bench.compare(f'up, {case}', times['vault'], times['twin'])}",
                flush=True,
            )


def with_hooks(bench: Bench, rounds: int) -> None:
    """Compare commits with our hooks to some with an empty one and to some without."""
    bench.command("install-hook")
    hooks = bench.vault / ".git" / "hooks"
    asides = {kind: hooks.with_name(f"hooks-{kind}") for kind in ("none", "empty", "ours")}
    hooks.rename(asides["ours"])
    asides["none"].mkdir()
    asides["empty"].mkdir()
    for ours in asides["ours"].glob("post-*"):
        empty = asides["empty"] / ours.name
        empty.write_text("#!/bin/sh\nexit 0\n")
        empty.chmod(0o755)

    def kind_of(aside: Path) -> Callable[[str], float]:
        def measured(text: str) -> float:
            aside.rename(hooks)
            try:
                return commit(bench.vault, text)
            finally:
                hooks.rename(aside)

        return measured

    kinds = {kind: kind_of(aside) for kind, aside in asides.items()}
    print(f"{'install-hook':<20}{'no hook':>14}{'empty':>10}{'ours':>8}   {'ours to empty':<20}ours to none")
    for case in CASES:
        times = bench.measure(case, kinds, rounds)
        none, empty, ours = (statistics.median(times[kind]) for kind in ("none", "empty", "ours"))
        if ours > HOOK_LIMIT * none:
            bench.above.append(f"{HOOK_LIMIT}: hook to none, {case}")
        print(
            f"{case:<20}{none:>14.1f}{empty:>10.1f}{ours:>8.1f}   "
            f"{bench.compare(f'hook, {case}', times['ours'], times['empty']):<20}"
            f"{bench.compare('', times['ours'], times['none'], judged=False)}",
            flush=True,
        )


@contextmanager
def running_up(bench: Bench) -> Generator[None]:
    """Have ``vault-memory up`` run for a block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = bench.start("up", "--port", str(port))
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
        else:
            raise SystemExit("vault-memory up did not start")
        time.sleep(5)  # until the daemon's first look
        yield
    finally:
        process.terminate()
        process.wait()


def make_vault(path: Path) -> None:
    """Make a repository with some notes."""
    notes = path / "01_Projects"
    notes.mkdir(parents=True)
    for number in range(200):
        (notes / f"note {number}.md").write_text(f"# Note {number}\n\n" + f"Words about subject {number}.\n\n" * 40)
    git(path, "init", "-q")
    git(path, "config", "gc.auto", "0")  # a collection in the middle would be somebody's bad luck
    git(path, "add", ".")
    git(path, "commit", "-qm", "first")


def commit(vault: Path, text: str) -> float:
    """Change a note and commit it; the seconds that the commit took."""
    (vault / "01_Projects" / "note 0.md").write_text(f"# Note 0\n\nVersion {text}\n")
    git(vault, "add", ".")
    began = time.perf_counter()
    git(vault, "commit", "-qm", text)
    return time.perf_counter() - began


def settle(home: Path) -> None:
    """Wait until no nudge runs or waits any more."""
    time.sleep(3)  # a hook's process starts a second after the commit
    for name in ("waiting.lock", "running.lock"):
        path = home / "hook" / name
        if path.exists():
            with path.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)


def git(vault: Path, *arguments: str) -> None:
    """Run git as the vault's owner would."""
    person = {
        f"GIT_{role}_{what}": "x@example.invalid" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **person}
    subprocess.run(["git", *arguments], cwd=vault, env=environment, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
