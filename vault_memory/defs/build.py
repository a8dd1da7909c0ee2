"""Puts a source set's definitions together.

Belongs here: which assets, checks, jobs, sensors and resources make a code location, and what a test may put in their
place. Does not: any of these themselves.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from vault_memory import settings
from vault_memory.defs.assets import build_index, build_notes, build_vault
from vault_memory.defs.checks import build_evaluation_check, build_index_checks
from vault_memory.defs.jobs import build_index_job, build_sync_job
from vault_memory.defs.partitions import Names
from vault_memory.defs.resources import VaultMemoryResource, hand_over
from vault_memory.defs.sensors import POLL_SECONDS, TICK_SECONDS, build_head_sensor


def build_definitions(
    names: Names | None = None,
    *,
    resources: Mapping[str, Any] | None = None,
    poll_seconds: float = POLL_SECONDS,
    tick_seconds: float = TICK_SECONDS,
    with_evaluation: bool | None = None,
) -> dg.Definitions:
    """Build the definitions of one source set.

    Args:
        names: What its things are called; None: as the settings say.
        resources: In place of the resources of the same keys.
        poll_seconds: Between two looks at HEAD inside a tick of the sensor.
        tick_seconds: How long a tick of the sensor waits for a commit.
        with_evaluation: Whether there is a check that asks questions; None: if the settings are read and name some.

    Raises:
        ConfigError: The settings are needed and malformed.
    """
    if names is None:
        given = settings.load()
        names = Names.of(given)
        with_evaluation = given.eval.questions is not None if with_evaluation is None else with_evaluation
    jobs = [build_sync_job(names), build_index_job(names)]
    return dg.Definitions(
        assets=[build_vault(names), build_notes(names), build_index(names)],
        asset_checks=[build_index_checks(names), *([build_evaluation_check(names)] if with_evaluation else [])],
        jobs=jobs,
        sensors=[build_head_sensor(names, jobs, poll_seconds=poll_seconds, tick_seconds=tick_seconds)],
        resources={
            names.resource: VaultMemoryResource(),
            "hand_over": hand_over,
            "io_manager": dg.mem_io_manager,  # the default one writes what ops return to files
            **(resources or {}),
        },
        # For every job, not just ours: a backfill from the asset page runs in Dagster's own.
        executor=dg.in_process_executor,
    )
