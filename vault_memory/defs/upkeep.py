"""What is done once a day, whether anybody commits or not.

Belongs here: the job and the schedule that keep Dagster's database small, and the schedule that counts and checks each
index. Does not: what may go (``retention``), what is counted (``assets``).

The index is counted and checked after every commit by its sensor. Once a day as well, so that its freshness tells of a
daemon that does not run any more, and not of an owner who is on holiday.
"""

from typing import Final

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from dagster_postgres import PostgresEventLogStorage

from vault_memory import settings
from vault_memory.defs import retention
from vault_memory.defs.partitions import Names
from vault_memory.defs.storage import plain_dsn

UPKEEP_JOB: Final = "dagster_upkeep"
_INDEX_CRON: Final = "20 3 * * *"
_UPKEEP_CRON: Final = "40 3 * * *"


@dg.op(name="remove_old_runs", out=dg.Out(dg.Nothing))
def _remove_old(context: dg.OpExecutionContext) -> None:
    storage = context.instance.event_log_storage
    if not isinstance(storage, PostgresEventLogStorage):
        context.log.info("Dagster's storage is not PostgreSQL: nothing is removed from it")
        return
    removed = retention.remove_old(plain_dsn(storage.postgres_url), settings.load().dagster.keep_days)
    context.add_output_metadata({**removed.rows, "megabytes": removed.megabytes})


def build_upkeep_job() -> dg.JobDefinition:
    """Return the job that removes old runs, events and ticks from Dagster's database; one for all vaults."""

    @dg.job(
        name=UPKEEP_JOB,
        description="Remove runs, events and ticks that are older than [dagster] keep_days, but never what shows how "
        "things stand: latest materializations, what is under way, why notes failed.",
    )
    def upkeep() -> None:
        _remove_old()

    return upkeep


def build_upkeep_schedule(job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Return the schedule of ``build_upkeep_job``; it is on from the start."""
    return dg.ScheduleDefinition(
        name=f"{UPKEEP_JOB}_daily",
        job=job,
        cron_schedule=_UPKEEP_CRON,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Once a day: keep Dagster's database small.",
    )


def build_index_schedule(names: Names, job: UnresolvedAssetJobDefinition) -> dg.ScheduleDefinition:
    """Return the schedule that counts and checks an index; it is on from the start."""
    return dg.ScheduleDefinition(
        name=f"{names.index_job}_daily",
        job=job,
        cron_schedule=_INDEX_CRON,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Once a day, without any commit: count what is in memory and check it against HEAD.",
    )
