"""Whether Dagster's daemon follows the vault, read from its tables without importing Dagster (most of a second).

Belongs here: the heartbeat and the last run. Does not: starting anything.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import psycopg

if TYPE_CHECKING:
    from datetime import datetime

ALIVE_SECONDS: Final = 75  # it beats every 30 s, and later on a busy machine
_BEAT: Final = """
SELECT extract(epoch FROM now() - (max(timestamp) AT TIME ZONE 'UTC'))::float8 FROM daemon_heartbeats
WHERE daemon_type = 'SENSOR'
"""
_RUN: Final = """
SELECT r.status, to_timestamp(coalesce(r.end_time, r.start_time)) FROM runs r
WHERE EXISTS (SELECT FROM run_tags t WHERE t.run_id = r.run_id AND t.key = 'vault-memory/vault' AND t.value = %s)
ORDER BY r.id DESC LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class DaemonState:
    """What Dagster's tables say.

    Attributes:
        heartbeat_age_seconds: Since the sensor daemon last gave a sign; None: never.
        last_run: Status of the last run of this vault, in Dagster's words; None: there was none.
        last_run_at: When it ended, or began if it goes on.
    """

    heartbeat_age_seconds: float | None = None
    last_run: str | None = None
    last_run_at: datetime | None = None

    @property
    def alive(self) -> bool:
        """Whether the daemon follows the vault at this moment."""
        return self.heartbeat_age_seconds is not None and self.heartbeat_age_seconds < ALIVE_SECONDS


def daemon_state(dagster_dsn: str, schema: str) -> DaemonState:
    """Read the state; a storage that is not there yet, or cannot be read, has none."""
    try:
        with closing(psycopg.connect(dagster_dsn, autocommit=True, connect_timeout=5)) as connection:
            beat = connection.execute(_BEAT).fetchone()
            run = connection.execute(_RUN, [schema]).fetchone()
    except psycopg.Error:
        return DaemonState()
    age = beat[0] if beat else None
    return DaemonState(None if age is None else max(age, 0.0), *(run or (None, None)))
