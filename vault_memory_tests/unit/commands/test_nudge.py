"""A burst of nudges becomes one sync that runs and one that waits."""

import threading
from pathlib import Path

from vault_memory.adapters import running
from vault_memory.commands.nudge import nudge
from vault_memory.settings import load


def test_bursts_coalesce(tmp_path: Path) -> None:
    """While one runs, one waits and the others leave at once; the waiting one starts after they came."""
    settings = load({"HOME": str(tmp_path), "VAULT_MEMORY_HOME": str(tmp_path / "home")})
    started, go_on = threading.Event(), threading.Event()
    runs: list[str] = []

    def first() -> None:
        started.set()
        go_on.wait(30)
        runs.append("first")

    one = threading.Thread(target=nudge, args=(settings, first))
    one.start()
    assert started.wait(30)
    results: list[bool] = []
    left = threading.Semaphore(0)

    def later() -> None:
        results.append(nudge(settings, lambda: runs.append("second")))
        left.release()

    others = [threading.Thread(target=later) for _ in range(8)]
    for other in others:
        other.start()
    for _ in range(7):
        assert left.acquire(timeout=30)
    assert ([False] * 7, []) == (results, runs)

    go_on.set()
    for thread in (one, *others):
        thread.join(30)

    assert ["first", "second"] == runs
    assert 1 == results.count(True)


def test_a_running_up_needs_no_nudge(tmp_path: Path) -> None:
    """Where a sensor follows HEAD, the hook has nothing to do; once it is gone, it has."""
    settings = load({"HOME": str(tmp_path), "VAULT_MEMORY_HOME": str(tmp_path / "home")})
    with running.claim(settings.home, "http://x") as other:
        assert None is other
        found = running.find(settings.home)
        assert found is not None
        assert "http://x" == found.url
        with running.claim(settings.home, "http://y") as second:
            assert found == second
        assert not nudge(settings, lambda: None)

    assert None is running.find(settings.home)
    assert nudge(settings, lambda: None)
