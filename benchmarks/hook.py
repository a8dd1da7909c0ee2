"""How much longer a commit takes with our hooks: ``python benchmarks/hook.py [COMMITS] [NOTES]``.

Compares the medians of commits without a hook, with a hook that does nothing, and with ours, in turn so that a busy
machine bothers all alike: with nothing else going on, while a sync runs, and with a database that is down. Prints the
ratio of ours to none; exits 1 if one is above 1.25.
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
    notes = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    folder = Path(tempfile.mkdtemp(prefix="vault-memory-hook-"))
    home = folder / "home"
    try:
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": str(ROOT)}
        command(environment, "init", str(make_vault(folder / "vault", notes)), home=home)
        command(environment, "sync")
        print(f"{'case':<24}{'no hook ms':>12}{'empty hook':>12}{'ours':>8}{'ratio':>8}")
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


def make_vault(path: Path, notes: int) -> Path:
    """Make a repository with some notes."""
    folder = path / "01_Projects"
    folder.mkdir(parents=True)
    for number in range(notes):
        (folder / f"note {number}.md").write_text(f"# Note {number}\n\n" + f"Words about subject {number}.\n\n" * 40)
    git(path, "init", "-q")
    git(path, "add", ".")
    git(path, "commit", "-qm", "first")
    return path


def case(
    name: str, environment: dict[str, str], vault: Path, commits: int, *, busy: bool = False, down: Path | None = None
) -> float:
    """Measure one case; the ratio of the medians."""
    times: dict[str, list[float]] = {"none": [], "empty": [], "ours": []}
    background = None
    command(environment, "install-hook")
    hooks = vault / ".git" / "hooks"
    asides = {kind: hooks.with_name(f"hooks-{kind}") for kind in times}
    hooks.rename(asides["ours"])
    asides["none"].mkdir()
    asides["empty"].mkdir()
    for name_of_hook in asides["ours"].glob("post-*"):
        empty = asides["empty"] / name_of_hook.name
        empty.write_text("#!/bin/sh\nexit 0\n")
        empty.chmod(0o755)
    for number in range(commits):
        if busy and (background is None or background.poll() is not None):
            background = start(environment, "sync", "--full")
        if down is not None and number % 10 == 0:
            command(environment, "down")
        for kind, folder in asides.items():
            (vault / "01_Projects" / "note 0.md").write_text(f"# Note 0\n\nVersion {name} {number} {kind}\n")
            git(vault, "add", ".")
            folder.rename(hooks)
            began = time.perf_counter()
            git(vault, "commit", "-qm", f"{number}")
            times[kind].append((time.perf_counter() - began) * 1000)
            hooks.rename(folder)
    if background is not None:
        background.wait()
    asides["ours"].rename(hooks)
    for kind in ("none", "empty"):
        shutil.rmtree(asides[kind])
    medians = {kind: statistics.median(values) for kind, values in times.items()}
    ratio = medians["ours"] / medians["none"]
    print(f"{name:<24}{medians['none']:>12.1f}{medians['empty']:>12.1f}{medians['ours']:>8.1f}{ratio:>8.2f}")
    return ratio


def settle(home: Path) -> None:
    """Wait until no nudge runs or waits any more."""
    time.sleep(3)  # a hook's process starts a second after the commit
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
