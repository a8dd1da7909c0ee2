"""Clocks that jump: nothing waits longer than it would have by a right clock, and nothing is done twice."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from types import SimpleNamespace

import dagster as dg
import pytest

from vault_memory.defs import liveness, sensors
from vault_memory.ingest import persisting, planning
from vault_memory_tests.fixtures.embedding_server import EmbeddingServer
from vault_memory_tests.fixtures.installation import Installation
from vault_memory_tests.fixtures.online import QUICK, fill, paid, rows, states
from vault_memory_tests.integration.defs.test_retries import MakeWorld, open_world  # noqa: F401 - a fixture

YEAR = timedelta(days=365)


def jump(monkeypatch: pytest.MonkeyPatch, by: timedelta) -> None:
    """Let our clock be wrong by so much from now on; the database's stays right."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None) -> datetime:
            return datetime.now(tz) + by

    for module in (planning, persisting):
        monkeypatch.setattr(module, "datetime", Clock)
    wrong = SimpleNamespace(monotonic=time.monotonic, sleep=time.sleep, time=lambda: time.time() + by.total_seconds())
    for module in (sensors, liveness):
        monkeypatch.setattr(module, "time", wrong)


@pytest.mark.parametrize("wrong", [YEAR, -YEAR])
def test_a_retry_that_a_wrong_clock_wrote(
    make_online: Callable[..., Installation],
    embedding_server: EmbeddingServer,
    open_world: MakeWorld,  # noqa: F811 - the fixture above
    monkeypatch: pytest.MonkeyPatch,
    wrong: timedelta,
) -> None:
    """A note fails while the clock is wrong; once it is right, the note is tried again at once, not in a year."""
    installation = make_online(embedding_server.url, QUICK, VAULT_MEMORY_EMBEDDING_CONCURRENCY="1")
    commit = fill(installation, 2)
    embedding_server.control(faults={"503": 1.0})
    with open_world(installation) as world:
        with monkeypatch.context() as patched:
            jump(patched, wrong)
            (request,) = world.asked()
            world.run(dict(request.tags))
            assert {("failed", "embed", "EmbeddingUnavailable")} == states(installation)
        embedding_server.control(faults={})
        world.asked()  # the index is shown
        (request,) = world.asked()
        assert dg.DagsterRunStatus.SUCCESS == world.run(dict(request.tags)).status
        assert [] == world.asked()

    assert [(commit,)] == rows(installation, "SELECT commit FROM sync_state")
    assert 4 == len(paid(embedding_server))


def test_a_clock_that_goes_back_between_ticks(
    installation: Installation,
    open_world: MakeWorld,  # noqa: F811 - the fixture above
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What follows HEAD goes by commits, not by times: each is done once, and the same one is never done again."""
    with open_world(installation) as world:
        for number, wrong in enumerate((timedelta(), -YEAR, YEAR)):
            installation.vault.write("01_Projects/a.md", f"# A\n\nWords of {number}.\n")
            head = installation.vault.commit()
            with monkeypatch.context() as patched:
                jump(patched, wrong)
                assert 1 == len(world.sync())
                assert [] == world.sync()
            assert [(head,)] == rows(installation, "SELECT commit FROM sync_state")


def test_a_pause_is_never_longer_than_itself(
    installation: Installation,
    open_world: MakeWorld,  # noqa: F811 - the fixture above
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Runs that fail as a whole are paused by the database's times; ours an hour behind makes it no hour longer."""
    fill(installation, 1)
    waits: list[float] = []
    with open_world(installation) as world:
        monkeypatch.setattr(sensors, "_PAUSE_SECONDS", 15.0)
        plain = sensors.HeadTick._seconds_to_wait
        monkeypatch.setattr(
            sensors.HeadTick, "_seconds_to_wait", lambda self, tags: waits.append(plain(self, tags)) or waits[-1]
        )
        monkeypatch.setattr("vault_memory.ingest.sync.Synchronizer.scan", _broken)
        for _ in range(2):
            (request,) = world.asked()
            world.run(dict(request.tags))
        with monkeypatch.context() as patched:
            jump(patched, timedelta(hours=-1))
            assert [] == world.asked()

    assert 0 < waits[-1] <= 15.0


def _broken(*_: object, **__: object) -> None:
    raise RuntimeError
