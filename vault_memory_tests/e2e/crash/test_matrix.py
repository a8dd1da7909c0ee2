"""SIGKILL at every step of a sync: the next one ends like a rebuild, and no reader saw anything half."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from vault_memory.adapters import server
from vault_memory_tests.e2e.crash import matrix
from vault_memory_tests.e2e.crash.matrix import RECOVERY_SECONDS, Ground, Victim, case

SLICES = 16
IN_FLIGHT = (
    2 * 4
)  # texts: the request that waits for its answer, and the one whose vectors are on their way to the stage
# One of each kind, by the name of the step and which of those it is.
SAMPLE: list[tuple[Victim, str, int]] = [
    ("sync", "after delete from memory_primary", -1),
    ("sync", "after request to the provider", 0),
    ("sync", "after commit", -2),
    ("postmaster", "before insert into memory_chunk", 0),
    ("backend", "before update sync_state", -1),
    ("restart", "before request to the provider", -1),
]


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    """A memory on a server of its own."""
    memory = Path("/dev/shm")  # for each case two databases are copied
    folder = Path(tempfile.mkdtemp(dir=memory if os.access(memory, os.W_OK) else "/var/tmp", prefix="vm-crash-"))
    folder.chmod(0o711)
    try:
        with matrix.ground(folder, folder / "home") as made:
            yield made
    finally:
        server.remove(folder / "home")
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def steps(ground: Ground) -> list[str]:
    """The names of the steps of a sync that nobody disturbs."""
    return ground.names_of_steps()


def check(ground: Ground, steps: list[str], number: int, victim: Victim) -> float:
    """Play one case, hold it against what is promised, and return how long the recovery took."""
    outcome = case(ground, number, victim)
    at = f"{victim} killed {steps[number - 1]} (step {number})"
    assert [] == outcome.wrong, at
    assert 0 == outcome.healed, at
    assert outcome.seconds < RECOVERY_SECONDS, at
    assert outcome.seen.looks > 0, at
    assert outcome.seen.answers > 0, at
    assert 0 == outcome.bought_again, at
    assert outcome.bought_twice <= IN_FLIGHT, at
    if victim == "sync":
        assert -9 == outcome.killed, at
        assert 0 == outcome.seen.outages, at
    return outcome.seconds


@pytest.mark.xdist_group("crash")  # one server for all of them
def test_every_kind_of_step_is_counted(steps: list[str]) -> None:
    """Our tables, the writer's lock, commits, the provider, and Dagster's own tables: before and after each."""
    kinds = {name.partition(" ")[2] for name in steps}
    assert {
        "pg_try_advisory_lock", "pg_advisory_unlock", "commit", "request to the provider",
        "insert into memory_primary", "delete from memory_primary", "insert into memory_chunk",
        "insert into note_state", "delete from note_state", "insert into embedding_stage",
        "delete from embedding_stage", "insert into memory_term", "insert into embedding_usage",
        "insert into memory_secure_audit", "update memory_secure_audit", "update sync_state",
        "dagster: insert into runs", "dagster: update runs", "dagster: insert into event_logs",
        "dagster: insert into dynamic_partitions", "dagster: delete from dynamic_partitions",
    } <= kinds  # fmt: skip
    assert steps.count("before commit") == steps.count("after commit") >= 8


@pytest.mark.xdist_group("crash")
@pytest.mark.parametrize(("victim", "name", "which"), SAMPLE)
def test_a_sample_of_the_matrix(ground: Ground, steps: list[str], victim: Victim, name: str, which: int) -> None:
    """One case of each kind."""
    numbers = [number for number, step in enumerate(steps, 1) if step == name]
    check(ground, steps, numbers[which], victim)


@pytest.mark.slow  # hundreds of cases of 2 to 4 s
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(SLICES))
@pytest.mark.parametrize("victim", ["sync", "postmaster", "backend"])
def test_every_step_of_ours(ground: Ground, steps: list[str], victim: Victim, part: int) -> None:
    """Every write, commit and request, before and after, whoever is killed there."""
    every = [number for number, name in enumerate(steps, 1) if "dagster" not in name]
    play(ground, steps, every, victim, part)


@pytest.mark.slow  # as above
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(SLICES))
def test_every_step_of_dagsters_bookkeeping(ground: Ground, steps: list[str], part: int) -> None:
    """Every write to Dagster's own tables, before and after: what it believes never decides what memory holds."""
    every = [number for number, name in enumerate(steps, 1) if "dagster" in name]
    play(ground, steps, every, "sync", part)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("victim", ["restart", "memory"])
def test_no_server_for_a_moment_and_no_memory_any_more(ground: Ground, steps: list[str], victim: Victim) -> None:
    """The server is restarted in order, or the process may have no more memory, at one step of each kind of ours."""
    kinds = {name: number for number, name in enumerate(steps, 1) if "dagster" not in name and "before" in name}
    play(ground, steps, list(kinds.values()), victim, None)


def play(ground: Ground, steps: list[str], every: list[int], victim: Victim, part: int | None) -> None:
    """Play a slice of the cases and tell how many they were (shown by ``pytest -s``)."""
    taken = [check(ground, steps, number, victim) for number in (every if part is None else every[part::SLICES])]
    sys.stdout.write(f"\n{victim}, slice {part}: {len(taken)} of {len(every)} steps, slowest {max(taken):.1f} s\n")
