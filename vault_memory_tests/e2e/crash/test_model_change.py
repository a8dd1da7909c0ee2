"""SIGKILL in the middle of a change of model and width: the old index answers, and nothing is paid for twice."""

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from vault_memory import settings as settings_module
from vault_memory.adapters import server
from vault_memory.query.search import search
from vault_memory_tests.e2e.crash import matrix
from vault_memory_tests.e2e.crash.matrix import CHANGE, Ground
from vault_memory_tests.e2e.crash.test_matrix import check
from vault_memory_tests.fixtures.rebuild import differences

NEW = {"VAULT_MEMORY_EMBEDDING_MODEL": "another-model", "VAULT_MEMORY_EMBEDDING_DIMENSIONS": "1024"}


@pytest.fixture(scope="module")
def changing() -> Iterator[Ground]:
    """A memory at HEAD with the vectors of one model, and the settings of another."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="vm-crash-"))
    folder.chmod(0o711)
    try:
        with matrix.ground(folder, folder / "home") as made:
            made.set_back()
            assert 0 == made.sync(), made.said()
            made.before = made.contents()
            made.keep()
            made.environment.update(NEW)
            made.after = matrix.rebuilt(made)
            made.arguments, made.renamed = CHANGE, {}
            yield made
    finally:
        server.remove(folder / "home")
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def steps(changing: Ground) -> list[str]:
    """The names of the steps of a change that nobody disturbs."""
    return changing.names_of_steps()


def test_the_old_index_answers_until_the_flip(changing: Ground, steps: list[str]) -> None:
    """Killed half-way: meaning and words still find all notes by the old vectors; then the rest is bought, once."""
    changing.set_back()
    half = [number for number, name in enumerate(steps, 1) if name == "after insert into embedding_stage"][1]
    assert -9 == changing.sync(half)
    at_rest = changing.at_rest()
    settings = settings_module.load(changing.environment)

    assert [] == differences(changing.before, changing.contents())
    for mode in ("vector", "hybrid", "keyword"):
        answer = search("caches", k=100, mode=mode, settings=settings)
        assert {row[0] for row in changing.before["notes"]} == {hit.source for hit in answer.items}, mode
        assert mode == answer.mode
    changing.received.clear()
    assert 0 == changing.sync(), changing.said()
    rest = changing.asked()

    assert [] == differences(changing.after, changing.contents())
    assert at_rest
    assert rest
    needed = {row[8] for row in changing.after["chunks"]}
    assert dict.fromkeys(needed, 1) == Counter([*at_rest, *rest])


@pytest.mark.slow  # a case takes 3 s
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("victim", ["sync", "postmaster"])
def test_every_kind_of_step(changing: Ground, steps: list[str], victim: matrix.Victim) -> None:
    """First and last of each kind of our own steps: one model at any time, and in the end the store of a rebuild."""
    own = [(name, number) for number, name in enumerate(steps, 1) if "dagster" not in name]
    chosen = sorted({*dict(own).values(), *dict(reversed(own)).values()})
    taken = [check(changing, steps, number, victim) for number in chosen]
    sys.stdout.write(f"\nmodel change, {victim}: {len(taken)} of {len(own)} steps, slowest {max(taken):.1f} s\n")
