"""Puts the source sets' definitions together.

Belongs here: which assets, checks, jobs, sensors and resources make a code location, and what a test may put in their
place. Does not: any of these themselves.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from vault_memory import settings
from vault_memory.defs.assets import build_index, build_notes, build_vault
from vault_memory.defs.checks import build_evaluation_check, build_index_checks
from vault_memory.defs.failures import build_failure_sensor
from vault_memory.defs.jobs import build_index_job, build_sync_job
from vault_memory.defs.partitions import Names
from vault_memory.defs.resources import VaultMemoryResource, hand_over
from vault_memory.defs.sensors import POLL_SECONDS, TICK_SECONDS, build_head_sensor
from vault_memory.defs.upkeep import build_index_schedule, build_upkeep_job, build_upkeep_schedule


def build_definitions(
    names: Names | None = None,
    *,
    resources: Mapping[str, Any] | None = None,
    poll_seconds: float = POLL_SECONDS,
    tick_seconds: float = TICK_SECONDS,
    with_evaluation: bool = False,
) -> dg.Definitions:
    """Build the definitions of one source set, or of every vault that the settings name.

    Vaults share nothing in Dagster: each has assets, partitions, jobs, a sensor, a pool and a resource of its own.

    Args:
        names: What the one source set's things are called; None: all vaults, as the settings say.
        resources: In place of the resources of the same keys.
        poll_seconds: Between two looks at HEAD inside a tick of a sensor.
        tick_seconds: How long a tick of a sensor waits for a commit.
        with_evaluation: Whether the one source set has a check that asks questions; a vault of the settings has it if
            they name some for it.

    Raises:
        ConfigError: The settings are needed and malformed.
    """
    given = {**(resources or {})}
    if names is not None:
        resource = given.pop(names.resource, VaultMemoryResource())
        parts = [_source_set(names, resource, poll_seconds, tick_seconds, with_evaluation=with_evaluation)]
    else:
        parts = [
            _source_set(
                Names.of(one),
                VaultMemoryResource(vault_name=one.name),
                one.sync.folder_poll_seconds if one.kind == "directory" else poll_seconds,
                tick_seconds,
                kind=one.kind,
                with_evaluation=one.eval.questions is not None,
            )
            for one in settings.load_all()
        ]
    upkeep = build_upkeep_job()
    shared = dg.Definitions(
        jobs=[upkeep],
        schedules=[build_upkeep_schedule(upkeep)],
        sensors=[build_failure_sensor()],
        resources={
            "hand_over": hand_over,
            "io_manager": dg.mem_io_manager,  # the default one writes what ops return to files
            **given,
        },
        # For every job, not just ours: a backfill from the asset page runs in Dagster's own.
        executor=dg.in_process_executor,
    )
    return dg.Definitions.merge(*parts, shared)


def _source_set(
    names: Names,
    resource: Any,
    poll_seconds: float,
    tick_seconds: float,
    *,
    with_evaluation: bool,
    kind: settings.VaultKind = "git",
) -> dg.Definitions:
    index_job = build_index_job(names)
    jobs = [build_sync_job(names), index_job]
    return dg.Definitions(
        assets=[build_vault(names, kind), build_notes(names), build_index(names)],
        asset_checks=[build_index_checks(names), *([build_evaluation_check(names)] if with_evaluation else [])],
        jobs=jobs,
        schedules=[build_index_schedule(names, index_job)],
        sensors=[build_head_sensor(names, jobs, poll_seconds=poll_seconds, tick_seconds=tick_seconds, kind=kind)],
        resources={names.resource: resource},
    )
