"""The sensor that follows the vault's HEAD, or watches a plain folder.

Belongs here: when a run is asked for, and the cursor. Does not: what there is to do (``ingest.sync`` plans).

The cursor only remembers what Dagster was told of. What is done is read from the store each time, so HEAD may go from
A to B and back to A. No run key for the same reason: Dagster would drop the second request for A.
"""

import json
import time
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Final

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from vault_memory.defs.liveness import busy_with, reclaim
from vault_memory.defs.partitions import (
    COMMIT_TAG,
    DATA_VERSION_TAG,
    SELECTION_TAG,
    Names,
    make_range,
    postponed_drops,
    range_tags,
    selection_digest,
    set_postponed_drops,
)
from vault_memory.defs.resources import VaultSession
from vault_memory.defs.untold import tell_of_written
from vault_memory.errors import StoreUnavailable, VaultError, VaultMemoryError, WriterBusyError
from vault_memory.notes.paths import partition_key
from vault_memory.settings import VaultKind

if TYPE_CHECKING:
    from vault_memory.ingest.planning import VaultPlan
    from vault_memory.ingest.sync import Synchronizer

# Dagster looks at a sensor every 5 s at best, and ends a tick after 60 s: so wait for a commit inside the tick.
POLL_SECONDS: Final = 0.15
TICK_SECONDS: Final = 40.0
# A program that saves a file, or a copy that puts a hundred there, takes a moment; half of it is not worth a run.
SETTLE_SECONDS: Final = 1.0
_MAX_SETTLING_SECONDS: Final = 10.0
_RECHECK_SECONDS: Final = 5.0
_LOCK_WAIT_SECONDS: Final = 1.0
# One failure may be a run that was killed, or whose range was moved: it is made up for at once.
_FREE_FAILURES: Final = 2
_PAUSE_SECONDS: Final = 15.0
_MAX_DOUBLINGS: Final = 8  # about a quarter of an hour


class RunsKeepFailingError(VaultMemoryError):
    """Runs over the same notes fail as a whole, one after the other."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """What Dagster was told of.

    Attributes:
        vault_commit: The last commit that was told as a materialization of the vault.
        index_commit: The last commit for which the index was asked to be checked.
    """

    vault_commit: str | None = None
    index_commit: str | None = None

    @classmethod
    def read(cls, text: str | None) -> "Cursor":
        """Read a cursor; one that cannot be read counts as none, since it holds nothing that is needed."""
        try:
            values = json.loads(text or "{}")
            return cls(values.get("vault_commit"), values.get("index_commit"))
        except (ValueError, AttributeError):
            return cls()

    def write(self) -> str:
        """Return the cursor as text."""
        return json.dumps({"vault_commit": self.vault_commit, "index_commit": self.index_commit})


@dataclass(frozen=True, slots=True)
class HeadTick:
    """One evaluation of the sensor.

    Attributes:
        settle_seconds: How long a folder has to be at rest before it is taken; 0: it is a repository.
    """

    names: Names
    instance: dg.DagsterInstance
    session: VaultSession
    cursor: Cursor
    poll_seconds: float
    tick_seconds: float
    settle_seconds: float = 0.0

    def evaluate(self) -> dg.SensorResult | dg.SkipReason:
        """Return what to run; a problem skips the tick and says why, and the next tick starts afresh.

        Raises:
            Failure: A plain folder cannot be read, to the end of the tick's time. Its owner does not see it as git's
                would at the next commit, so the tick is shown as failed.
        """
        end = time.monotonic() + self.tick_seconds
        while True:
            try:
                return self._evaluate_again()
            except VaultError as error:
                if not self.settle_seconds:
                    return dg.SkipReason(f"{type(error).__name__}: {error}")
                if time.monotonic() >= end:
                    raise dg.Failure(f"{type(error).__name__}: {error}", allow_retries=False) from None
                # A drive that is away for a week must not fill the log with a tick a second.
                time.sleep(min(self.poll_seconds, max(0.0, end - time.monotonic())))
            except VaultMemoryError as error:
                return dg.SkipReason(f"{type(error).__name__}: {error}")

    def _evaluate_again(self) -> dg.SensorResult | dg.SkipReason:
        try:
            return self._evaluate()
        except StoreUnavailable:
            self.session.close()  # the server may have been restarted since the connection was made
            return self._evaluate()

    def _evaluate(self) -> dg.SensorResult | dg.SkipReason:
        synchronizer = self.session.synchronizer
        reclaim(self.instance, self.names, writer_is_free=self._writer_is_free)
        if busy := busy_with(self.instance, self.names):
            return dg.SkipReason(busy)
        if synchronizer.is_current():
            if (head := synchronizer.head()) != self.cursor.index_commit:
                return self._request_index(head)
            self._drop_postponed()
            if not self._wait_for_change(synchronizer):
                return dg.SkipReason(f"memory is at HEAD, {head or 'which has no commit yet'}")
            if busy := busy_with(self.instance, self.names):
                return dg.SkipReason(busy)
        self._let_settle(synchronizer)
        plan = synchronizer.plan()
        synchronizer.refuse_mass_deletion(plan)
        if plan.note_ids:
            return self._request_notes(plan)
        with synchronizer.writer(_LOCK_WAIT_SECONDS, holder="sensor"):
            synchronizer.settle(plan)
        return self._told(dg.SensorResult(skip_reason=f"nothing to read in {plan.commit}"), plan.commit)

    def _wait_for_change(self, synchronizer: "Synchronizer") -> bool:
        """Wait until HEAD moves or a failed note is due; False if the tick's time is over before."""
        end = time.monotonic() + self.tick_seconds
        while time.monotonic() < end:
            seen = synchronizer.head()
            recheck = min(end, time.monotonic() + max(_RECHECK_SECONDS, self.poll_seconds))
            while time.monotonic() < recheck:
                time.sleep(min(self.poll_seconds, max(0.0, end - time.monotonic())))
                if synchronizer.head() != seen:
                    break
            if not synchronizer.is_current():
                return True
        return False

    def _let_settle(self, synchronizer: "Synchronizer") -> None:
        """Wait until a folder is at rest; one that never is is taken as it is."""
        end = time.monotonic() + _MAX_SETTLING_SECONDS
        seen = synchronizer.head() if self.settle_seconds else None
        while self.settle_seconds and time.monotonic() < end:
            time.sleep(self.settle_seconds)
            before, seen = seen, synchronizer.head()
            if seen == before:
                return

    def _request_notes(self, plan: "VaultPlan") -> dg.SensorResult:
        note_ids = next(iter(plan.batches(self.session.settings.sync.max_notes_per_run)))
        keys = [partition_key(note_id) for note_id in note_ids]
        tags = {SELECTION_TAG: selection_digest(keys), COMMIT_TAG: plan.commit or ""}
        if (seconds := self._seconds_to_wait(tags)) > 0:
            raise RunsKeepFailingError(
                f"the last runs over the {len(keys)} notes of {plan.commit} failed without getting anywhere; "
                f"trying again in {seconds:.0f} s. The newest run shows why"
            )
        # A sync from the command line moves partitions too, under the same lock.
        with self.session.synchronizer.writer(_LOCK_WAIT_SECONDS, holder="sensor"):
            if busy := busy_with(self.instance, self.names):
                raise WriterBusyError(busy)
            bounds = make_range(self.instance, self.names.partitions, keys)
        request = dg.RunRequest(job_name=self.names.sync_job, tags=range_tags(self.names, bounds, keys, plan.commit))
        return self._told(dg.SensorResult(run_requests=[request]), plan.commit)

    def _seconds_to_wait(self, tags: dict[str, str]) -> float:
        """Return how long to let a selection rest whose runs end in failure and leave the same to do.

        A note that fails is not planned again before its retry is due. So the same notes of the same commit come
        again only if a run failed as a whole, and without a pause it would fail every few seconds for days.
        """
        records = self.instance.get_run_records(
            dg.RunsFilter(tags=tags, job_name=self.names.sync_job), limit=_MAX_DOUBLINGS
        )
        failures = list(takewhile(lambda record: record.dagster_run.status is dg.DagsterRunStatus.FAILURE, records))
        if len(failures) < _FREE_FAILURES:
            return 0.0
        pause = _PAUSE_SECONDS * 2 ** (len(failures) - _FREE_FAILURES)
        # The database's clock wrote it, and ours may have been set back since: never longer than the pause itself.
        return min(pause, failures[0].update_timestamp.timestamp() + pause - time.time())

    def _request_index(self, commit: str | None) -> dg.SensorResult:
        tell_of_written(self.instance, self.names, self.session.synchronizer)
        request = dg.RunRequest(job_name=self.names.index_job, tags={COMMIT_TAG: commit or ""})
        result = self._told(dg.SensorResult(run_requests=[request]), commit)
        return result._replace(cursor=replace(Cursor.read(result.cursor), index_commit=commit).write())

    def _told(self, result: dg.SensorResult, commit: str | None) -> dg.SensorResult:
        """Add the vault's materialization, if the commit is news, and the cursor."""
        if commit is None or commit == self.cursor.vault_commit:
            return result._replace(cursor=self.cursor.write())
        event = dg.AssetMaterialization(self.names.vault, metadata={"commit": commit}, tags={DATA_VERSION_TAG: commit})
        cursor = replace(self.cursor, vault_commit=commit)
        return result._replace(asset_events=[event], cursor=cursor.write())

    def _drop_postponed(self) -> None:
        """Drop the partitions that were left because a backfill counted on them; there is none now."""
        if not postponed_drops(self.instance, self.names):
            return
        with self.session.synchronizer.writer(_LOCK_WAIT_SECONDS, holder="sensor"):
            if busy_with(self.instance, self.names) is None:
                for key in postponed_drops(self.instance, self.names):
                    self.instance.delete_dynamic_partition(self.names.partitions, key)
                set_postponed_drops(self.instance, self.names, ())

    def _writer_is_free(self) -> bool:
        try:
            with self.session.synchronizer.writer(0, holder="sensor"):
                return True
        except WriterBusyError:
            return False


def build_head_sensor(
    names: Names,
    jobs: list[UnresolvedAssetJobDefinition],
    *,
    poll_seconds: float = POLL_SECONDS,
    tick_seconds: float = TICK_SECONDS,
    kind: VaultKind = "git",
    settle_seconds: float = SETTLE_SECONDS,
    interval_seconds: int = 1,
) -> dg.SensorDefinition:
    """Return the sensor; it is on from the start.

    Args:
        names: Whose HEAD.
        jobs: What it may ask for.
        poll_seconds: Between two looks at HEAD, or at the folder, inside a tick.
        tick_seconds: How long a tick waits for a change; 0 looks once.
        kind: What is followed.
        settle_seconds: How long a plain folder has to be at rest before it is taken.
        interval_seconds: Between the starts of two ticks at least; Dagster looks every 5 s itself.
    """
    is_folder = kind == "directory"
    what = "Watches the folder" if is_folder else "Follows the vault's HEAD"

    @dg.sensor(
        name=names.sensor,
        jobs=jobs,
        # 0 silently means 30. A folder that is looked at less often than a tick lasts is looked at once a tick.
        minimum_interval_seconds=max(1, int(poll_seconds)) if poll_seconds > tick_seconds > 0 else interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        required_resource_keys={names.resource},
        description=f"{what}: one run at a time over the notes that differ from what is in memory.",
    )
    def head_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        session: VaultSession = getattr(context.resources, names.resource)
        cursor = Cursor.read(context.cursor)
        settle = settle_seconds if is_folder else 0.0
        tick = HeadTick(names, context.instance, session, cursor, poll_seconds, tick_seconds, settle)
        return tick.evaluate()

    return head_sensor
