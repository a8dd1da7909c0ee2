"""The code location of ``vault_memory.definitions``, whose runs may kill somebody at a chosen step.

Belongs here: reading what a test has chosen, in the process of a run. Does not: anything of the product; a deployment
has this module only if a test's workspace names it, and it does nothing without the test's folder.
"""

import json
import os
import signal
from pathlib import Path

from vault_memory.definitions import defs as defs  # noqa: PLC0414 - what Dagster looks for
from vault_memory.defs.assets import NoteRun
from vault_memory_tests.e2e.crash import points

FOLDER = "VAULT_MEMORY_TEST_CRASH"
_scan = NoteRun.scan


def choose(folder: Path, name: str, number: int, victim: str, pids: list[int]) -> None:
    """Let the next run kill processes at its n-th step of a name; no process: the run itself. 0: only count."""
    (folder / "steps").unlink(missing_ok=True)
    (folder / "killed").unlink(missing_ok=True)
    temporary = folder / "chosen.tmp"
    temporary.write_text(json.dumps({"name": name, "number": number, "victim": victim, "pids": pids}))
    temporary.rename(folder / "chosen")


def _armed_scan(run: NoteRun) -> object:
    folder = Path(os.environ[FOLDER])
    try:
        (folder / "chosen").rename(folder / "taken")
    except FileNotFoundError:
        return _scan(run)
    chosen = json.loads((folder / "taken").read_text())

    def act() -> None:
        (folder / "killed").write_text(chosen["victim"])
        for pid in chosen["pids"] or [os.getpid()]:
            os.kill(pid, signal.SIGKILL)

    points.arm(points.Points(chosen["number"], act, folder / "steps", among=chosen["name"]), dagster=False)
    return _scan(run)


if FOLDER in os.environ:
    NoteRun.scan = _armed_scan  # type: ignore[method-assign]
