"""Keeps Dagster's database from growing for ever.

Belongs here: which runs, events and ticks are no longer needed. Does not: when that is done (``upkeep``).

Dagster keeps everything. What its pages need to show how things stand is little: the latest event of each kind of every
asset and note, whatever is under way, and of notes that failed the run that says why. All else goes after some days.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, LiteralString

import psycopg

_BATCH: Final = 5000
_FINISHED: Final = ["SUCCESS", "FAILURE", "CANCELED"]
_FINISHED_BACKFILLS: Final = ["COMPLETED", "COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED"]

# A partition that was dropped with its note needs no latest event; one without a name is the asset itself.
_KEPT: Final[LiteralString] = """
CREATE TEMPORARY TABLE kept_event ON COMMIT PRESERVE ROWS AS
WITH latest AS (
    SELECT asset_key, partition, dagster_event_type, max(id) AS id FROM event_logs e
    WHERE asset_key IS NOT NULL
      AND (partition IS NULL OR EXISTS (SELECT FROM dynamic_partitions d WHERE d.partition = e.partition))
    GROUP BY asset_key, partition, dagster_event_type
), wanted AS (
    SELECT * FROM latest l WHERE dagster_event_type NOT IN
        ('ASSET_MATERIALIZATION_PLANNED', 'ASSET_FAILED_TO_MATERIALIZE', 'ASSET_CHECK_EVALUATION_PLANNED')
       -- what was planned and then done is history; planned and not done is a failure to show
       OR NOT EXISTS (SELECT FROM latest done WHERE done.asset_key = l.asset_key
                      AND done.partition IS NOT DISTINCT FROM l.partition AND done.id > l.id
                      AND done.dagster_event_type = CASE l.dagster_event_type WHEN 'ASSET_CHECK_EVALUATION_PLANNED'
                          THEN 'ASSET_CHECK_EVALUATION' ELSE 'ASSET_MATERIALIZATION' END)
), telling AS (
    SELECT DISTINCT e.run_id FROM wanted w JOIN event_logs e ON e.id = w.id
    WHERE w.dagster_event_type LIKE '%\\_PLANNED' OR w.dagster_event_type = 'ASSET_FAILED_TO_MATERIALIZE'
)
SELECT id FROM wanted
UNION
SELECT e.id FROM event_logs e JOIN telling USING (run_id)
WHERE e.dagster_event_type IS NULL OR e.dagster_event_type NOT LIKE 'ASSET\\_%'
UNION
SELECT evaluation_event_storage_id FROM (
    SELECT evaluation_event_storage_id, row_number() OVER (PARTITION BY asset_key, check_name ORDER BY id DESC) AS place
    FROM asset_check_executions WHERE evaluation_event_storage_id IS NOT NULL) AS checks
WHERE place = 1
"""

_EVENTS: Final[LiteralString] = """
DELETE FROM event_logs WHERE id IN (
    SELECT e.id FROM event_logs e LEFT JOIN runs r USING (run_id)
    WHERE e.timestamp < (now() AT TIME ZONE 'UTC') - make_interval(days => %(days)s)
      AND (r.run_id IS NULL OR r.status = ANY(%(finished)s))
      AND NOT EXISTS (SELECT FROM kept_event k WHERE k.id = e.id) LIMIT %(batch)s)
"""
# Dagster declares that these go with their event, but not to the database.
_EVENT_TAGS: Final[LiteralString] = """
DELETE FROM asset_event_tags WHERE id IN (
    SELECT t.id FROM asset_event_tags t WHERE NOT EXISTS (SELECT FROM event_logs e WHERE e.id = t.event_id)
    LIMIT %(batch)s)
"""
_RUNS: Final[LiteralString] = """
DELETE FROM runs WHERE run_id IN (
    SELECT r.run_id FROM runs r WHERE r.status = ANY(%(finished)s)
      AND coalesce(r.end_time, r.start_time, extract(epoch FROM r.update_timestamp))
          < extract(epoch FROM now()) - 86400.0 * %(days)s
      AND NOT EXISTS (SELECT FROM event_logs e WHERE e.run_id = r.run_id) LIMIT %(batch)s)
"""
_CHECKS: Final[LiteralString] = """
DELETE FROM asset_check_executions WHERE id IN (
    SELECT c.id FROM asset_check_executions c WHERE NOT EXISTS (SELECT FROM runs r WHERE r.run_id = c.run_id)
      AND EXISTS (SELECT FROM asset_check_executions newer WHERE newer.asset_key = c.asset_key
                  AND newer.check_name = c.check_name AND newer.id > c.id) LIMIT %(batch)s)
"""
_TICKS: Final[LiteralString] = """
DELETE FROM job_ticks WHERE id IN (
    SELECT id FROM job_ticks WHERE status <> 'STARTED'
      AND timestamp < (now() AT TIME ZONE 'UTC') - make_interval(days => %(days)s) LIMIT %(batch)s)
"""
_BACKFILLS: Final[LiteralString] = """
DELETE FROM bulk_actions WHERE id IN (
    SELECT id FROM bulk_actions WHERE status = ANY(%(finished_backfills)s)
      AND timestamp < (now() AT TIME ZONE 'UTC') - make_interval(days => %(days)s) LIMIT %(batch)s)
"""
_BACKFILL_TAGS: Final[LiteralString] = """
DELETE FROM backfill_tags WHERE id IN (
    SELECT t.id FROM backfill_tags t
    WHERE NOT EXISTS (SELECT FROM bulk_actions b WHERE b.key = t.backfill_id) LIMIT %(batch)s)
"""
# Their order matters: a run goes when none of its events is left, a check's history with its run.
_STATEMENTS: Final[Mapping[str, LiteralString]] = {
    "events": _EVENTS,
    "event_tags": _EVENT_TAGS,
    "runs": _RUNS,
    "checks": _CHECKS,
    "ticks": _TICKS,
    "backfills": _BACKFILLS,
    "backfill_tags": _BACKFILL_TAGS,
}
# Their room is used again only after this, and a job that runs once a day can afford it.
_TABLES: Final[LiteralString] = "event_logs, asset_event_tags, runs, run_tags, job_ticks, asset_check_executions"


@dataclass(frozen=True, slots=True)
class Removed:
    """What went, and how much is there now.

    Attributes:
        rows: By what they were.
        megabytes: Of Dagster's whole database.
    """

    rows: Mapping[str, int]
    megabytes: float


def remove_old(dsn: str, keep_days: int) -> Removed:
    """Remove what is older than some days and not needed to show how things stand.

    Never goes: the latest materialization of a note that has a partition, and of any asset; the latest result of a
    check; a run that is under way, with its events; the last failure of a note that was not written since.

    Args:
        dsn: Of Dagster's database, as libpq takes it.
        keep_days: Days.
    """
    given = {"days": keep_days, "batch": _BATCH, "finished": _FINISHED, "finished_backfills": _FINISHED_BACKFILLS}
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_KEPT)
        connection.execute("CREATE INDEX ON kept_event (id)")
        rows = {name: _all(connection, statement, given) for name, statement in _STATEMENTS.items()}
        if any(rows.values()):
            connection.execute("VACUUM (ANALYZE) " + _TABLES)
        size = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    return Removed(rows, round((size[0] if size else 0) / 1e6, 1))


def _all(connection: psycopg.Connection, statement: LiteralString, given: Mapping[str, object]) -> int:
    """Repeat a statement until it finds less than a batch: no transaction is long, and nobody waits for its locks."""
    total = 0
    while True:
        gone = connection.execute(statement, given).rowcount
        total += gone
        if gone < _BATCH:
            return total
