"""Tells somebody outside Dagster that a run failed.

Belongs here: what is told, to whom, and how often. Does not: why runs fail (``assets``).

Whoever wants to know names a command line in the settings, ``[dagster] on_failure_command``: a mail, a chat's webhook
by curl, a desktop notification. It is given one JSON object on its standard input, with paths of notes and reasons,
never note text, and nothing of it on its command line, where other users could read it. Of our variables it sees none.
"""

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import dagster as dg
from dagster._core.execution.plan.objects import StepFailureData, UserFailureData

from vault_memory import settings as settings_module
from vault_memory.defs.partitions import COMMIT_TAG, VAULT_TAG
from vault_memory.errors import ConfigError, VaultMemoryError

SENSOR: Final = "run_failures"
# Failed notes are tried again at growing intervals, and each try that fails is a failed run.
REPEAT_AFTER_SECONDS: Final = 24 * 3600.0
_TIMEOUT_SECONDS: Final = 30
_INHERITED: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "DISPLAY")
_STATE: Final = "vault-memory/told-failures"


class NotificationFailed(VaultMemoryError):
    """The command line that is to be told of failed runs failed itself."""


def message(run: dg.DagsterRun, failures: Sequence[dg.DagsterEvent]) -> dict[str, Any]:
    """Return what is told of a failed run: paths and reasons, no note text.

    Of an error that is not one of ours only the class is told: its message may quote anything.
    """
    reasons: list[str] = []
    paths: list[str] = []
    for event in failures:
        data = event.event_specific_data
        if not isinstance(data, StepFailureData):
            continue
        ours = data.user_failure_data
        if isinstance(ours, UserFailureData):
            reasons.append(ours.description or ours.label)
            listed = ours.metadata.get("paths")
            paths += listed.value if isinstance(listed, dg.JsonMetadataValue) and isinstance(listed.value, list) else []
        elif data.error is not None:
            reasons.append(f"{event.step_key}: {data.error.cls_name or 'an error'}")
    return {
        "event": "run_failed",
        "vault": run.tags.get(VAULT_TAG),
        "job": run.job_name,
        "run_id": run.run_id,
        "commit": run.tags.get(COMMIT_TAG),
        "reasons": reasons or ["the run ended before or outside its steps; its page in Dagster shows why"],
        "failed_notes": paths,
        "what_to_do": "vault-memory status names what failed and when it is tried again; vault-memory sync tries now",
    }


def notify(command: str, told: dict[str, Any]) -> None:
    """Hand a message to a command line.

    Raises:
        NotificationFailed: It cannot be started, takes too long, or ends with another status than 0.
    """
    try:
        done = subprocess.run(  # noqa: S602 - the user's own line, from the user's own file
            command,
            shell=True,
            check=False,
            input=json.dumps(told, ensure_ascii=False),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            env={name: os.environ[name] for name in _INHERITED if name in os.environ},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotificationFailed(f"on_failure_command: failed ({type(error).__name__})") from None
    if done.returncode != 0:
        raise NotificationFailed(f"on_failure_command: exit status {done.returncode}")


def _is_news(instance: dg.DagsterInstance, told: dict[str, Any], now: float) -> bool:
    """Tell whether this was not told within a day, and remember it."""
    subject = json.dumps([told[name] for name in ("vault", "job", "reasons", "failed_notes")])
    digest = hashlib.sha256(subject.encode()).hexdigest()[:16]
    storage = instance.daemon_cursor_storage
    known: dict[str, float] = json.loads(storage.get_cursor_values({_STATE}).get(_STATE, "{}"))
    known = {name: when for name, when in known.items() if now - when < REPEAT_AFTER_SECONDS}
    if digest in known:
        return False
    storage.set_cursor_values({_STATE: json.dumps({**known, digest: now})})
    return True


def build_failure_sensor(
    load_settings: Callable[[], settings_module.Settings] = settings_module.load,
) -> dg.SensorDefinition:
    """Return the sensor that tells of failed runs; it is on from the start, and silent without a command to tell."""

    @dg.run_failure_sensor(
        name=SENSOR,
        minimum_interval_seconds=5,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells [dagster] on_failure_command of failed runs, of the same failure once a day.",
    )
    def run_failures(context: dg.RunFailureSensorContext) -> dg.SkipReason | None:
        try:
            command = load_settings().dagster.on_failure_command
        except ConfigError as error:
            return dg.SkipReason(str(error))
        if command is None:
            return dg.SkipReason("[dagster] on_failure_command names nobody to tell")
        told = message(context.dagster_run, context.get_step_failure_events())
        if not _is_news(context.instance, told, time.time()):
            return dg.SkipReason("this was told already")
        notify(command, told)
        return None

    return run_failures
