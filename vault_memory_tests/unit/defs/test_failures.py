"""Telling of failed runs: to whom, what, and how often."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from vault_memory.defs import failures
from vault_memory.defs.failures import NotificationFailed, build_failure_sensor, notify
from vault_memory.settings import DagsterSettings
from vault_memory_tests.fixtures.dagster import DagsterWorld


@pytest.fixture
def mailbox(world: DagsterWorld) -> Path:
    """Where the command line of the settings puts what it is told."""
    box = world.vault.folder / "told.jsonl"
    command = f"cat >> '{box}'; echo >> '{box}'; env > '{box}.environment'"
    world.settings = replace(world.settings, dagster=DagsterSettings(on_failure_command=command))
    return box


def _told(box: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in box.read_text(encoding="utf-8").splitlines()] if box.exists() else []


def _tell(world: DagsterWorld, run: dg.DagsterRun) -> Any:
    (failure,) = world.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)
    context = dg.build_run_status_sensor_context(
        failures.SENSOR, dagster_instance=world.instance, dagster_run=run, dagster_event=failure.get_dagster_event()
    ).for_run_failure()
    return build_failure_sensor(lambda: world.settings)(context)


def test_a_failed_note_is_told_by_path_and_reason(world: DagsterWorld, mailbox: Path) -> None:
    """The message names vault, run, commit, what failed, why and what to do; no other note and no text."""
    world.vault.commit("c1", {"a.md": "1", "笔记.md": "bad"})
    (run,) = world.sync()
    assert _tell(world, run) is None
    (told,) = _told(mailbox)
    assert ("run_failed", "vault_memory", "vault_sync", run.run_id, "c1") == tuple(
        told[name] for name in ("event", "vault", "job", "run_id", "commit")
    )
    assert ["笔记.md"] == told["failed_notes"]
    assert "1 of 2 notes failed: 笔记.md (EmbeddingRejected: too long)" in told["reasons"][0]
    assert "vault-memory status" in told["what_to_do"]


def test_an_error_that_may_quote_a_note_is_told_by_its_class(world: DagsterWorld, mailbox: Path) -> None:
    """The message of an unexpected error goes nowhere."""
    world.vault.commit("c1", {"a.md": "1"})
    (world.vault.folder / "leaky").touch()
    _tell(world, world.run(dict(world.tick().run_requests[0].tags)))
    (told,) = _told(mailbox)
    assert "ValueError at embed" in told["reasons"][0]
    assert "CANARY" not in mailbox.read_text(encoding="utf-8")


def test_the_same_failure_is_told_once_a_day(
    world: DagsterWorld, mailbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note that fails at every try is no reason for a message a minute; another failure is told at once."""
    world.vault.commit("c1", {"a.md": "bad"})
    (run,) = world.sync()
    _tell(world, run)
    assert isinstance(_tell(world, run), dg.SkipReason)
    world.vault.commit("c2", {"a.md": "bad", "b.md": "bad too"})
    _tell(world, world.sync()[-1])
    assert 2 == len(_told(mailbox))
    monkeypatch.setattr(failures, "REPEAT_AFTER_SECONDS", 0.0)
    _tell(world, run)
    assert 3 == len(_told(mailbox))


def test_nobody_is_told_without_a_command(world: DagsterWorld) -> None:
    """The sensor says that there is nobody to tell."""
    world.vault.commit("c1", {"a.md": "bad"})
    (run,) = world.sync()
    assert "names nobody" in _tell(world, run).skip_message


def test_the_command_sees_no_secret_of_ours(
    mailbox: Path, world: DagsterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the provider's key nor a DSN is in its environment."""
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-canary")
    monkeypatch.setenv("VAULT_MEMORY_DSN", "postgresql://u:canary@h/d")
    assert world.settings.dagster.on_failure_command is not None
    notify(world.settings.dagster.on_failure_command, {})
    environment = mailbox.with_name(mailbox.name + ".environment").read_text(encoding="utf-8")
    assert "PATH=" in environment
    assert "canary" not in environment


@pytest.mark.parametrize(("command", "problem"), [("exit 3", "exit status 3"), ("sleep 30", "TimeoutExpired")])
def test_a_command_that_fails_is_named(command: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sensor's tick fails with it, so that the page of the sensor shows it."""
    monkeypatch.setattr(failures, "_TIMEOUT_SECONDS", 0.5)
    with pytest.raises(NotificationFailed, match=f"on_failure_command: .*{problem}"):
        notify(command, {})
