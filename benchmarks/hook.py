"""How much longer a commit takes with our hooks: ``python benchmarks/hook.py [COMMITS]``.

Compares the median of commits without and with the hooks, in turn so that a busy machine bothers both alike: with
nothing else going on, while a sync runs, and with a database that is down. Prints ratios; exits 1 if one is above 1.25.
"""

import fcntl
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from vault_memory.adapters import server

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 1.25


def main() -> int:
    """Measure, and print a line a case."""
    commits = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    folder = Path(tempfile.mkdtemp(prefix="vault-memory-hook-"))
    home = folder / "home"
    try:
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT)}
        command(environment, "init", str(make_vault(folder / "vault")), home=home)
        command(environment, "sync")
        print(f"{'case':<24}{'without ms':>12}{'with ms':>10}{'ratio':>8}")
        worst = max(
            case("quiet", environment, folder / "vault", commits),
            case("while a sync runs", environment, folder / "vault", commits, busy=True),
            case("database down", environment, folder / "vault", commits, down=home),
        )
    finally:
        settle(home)
        server.remove(home)
        shutil.rmtree(folder, ignore_errors=True)
    return int(worst > LIMIT)


def make_vault(path: Path) -> Path:
    """Make a repository with some notes."""
    notes = path / "01_Projects"
    notes.mkdir(parents=True)
    for number in range(200):
        (notes / f"note {number}.md").write_text(f"# Note {number}\n\n" + f"Words about subject {number}.\n\n" * 40)
    git(path, "init", "-q")
    git(path, "add", ".")
    git(path, "commit", "-qm", "first")
    return path


def case(
    name: str, environment: dict[str, str], vault: Path, commits: int, *, busy: bool = False, down: Path | None = None
) -> float:
    """Measure one case; the ratio of the medians."""
    times: dict[bool, list[float]] = {False: [], True: []}
    background = None
    command(environment, "install-hook")
    hooks = vault / ".git" / "hooks"
    aside = vault / ".git" / "hooks-aside"
    for number in range(2 * commits):
        if busy and (background is None or background.poll() is not None):
            background = start(environment, "sync", "--full")
        if down is not None and number % 10 == 0:
            command(environment, "down")
        hooked = number % 2 == 1
        if not hooked:
            hooks.rename(aside)
        (vault / "01_Projects" / "note 0.md").write_text(f"# Note 0\n\nVersion {name} {number}\n")
        git(vault, "add", ".")
        began = time.perf_counter()
        git(vault, "commit", "-qm", f"{number}")
        times[hooked].append((time.perf_counter() - began) * 1000)
        if not hooked:
            aside.rename(hooks)
    if background is not None:
        background.wait()
    without, with_hook = (statistics.median(times[hooked]) for hooked in (False, True))
    print(f"{name:<24}{without:>12.1f}{with_hook:>10.1f}{with_hook / without:>8.2f}")
    return with_hook / without


def settle(home: Path) -> None:
    """Wait until no nudge runs or waits any more."""
    for name in ("waiting.lock", "running.lock"):
        path = home / "hook" / name
        if path.exists():
            with path.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)


def command(environment: dict[str, str], *arguments: str, home: Path | None = None) -> None:
    """Run ``vault-memory`` to its end."""
    extra = {"VAULT_MEMORY_HOME": str(home)} if home else {}
    subprocess.run(
        [sys.executable, "-m", "vault_memory.cli", *arguments],
        env={**environment, **extra},
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def start(environment: dict[str, str], *arguments: str) -> subprocess.Popen[bytes]:
    """Start ``vault-memory`` in the background."""
    return subprocess.Popen(
        [sys.executable, "-m", "vault_memory.cli", *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def git(vault: Path, *arguments: str) -> None:
    """Run git as the vault's owner would."""
    person = {
        f"GIT_{role}_{what}": "x@example.invalid" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **person}
    subprocess.run(["git", *arguments], cwd=vault, env=environment, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
