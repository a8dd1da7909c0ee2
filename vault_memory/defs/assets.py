"""The assets: the vault, the notes in memory, and the store as a whole.

Belongs here: how a run's notes are chosen and checked, and how outcomes become Dagster's events. Does not: scanning,
embedding and writing themselves (``ingest``).

One graph of three ops, not three assets: if one note fails in ``embed``, three assets would show every partition of
the run as failed. ``persist`` tells of one materialization a good note and then fails, naming the bad ones, so that
good partitions are shown as good. It yields no ``Output``: that would mark every partition of the run.
"""

import traceback
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from vault_memory.defs.liveness import has_active_backfill, owner_mark
from vault_memory.defs.partitions import (
    AUTHORED_TAG,
    BACKFILL_TAG,
    COMMIT_TAG,
    DATA_VERSION_TAG,
    NOTES_TAG,
    OUTCOME_TAG,
    OWNER_TAG,
    OWNERS,
    PLAN_TAG,
    SELECTION_TAG,
    Names,
    postponed_drops,
    selection_digest,
    set_postponed_drops,
)
from vault_memory.defs.resources import MAX_RUN_WAIT_SECONDS, VaultSession
from vault_memory.defs.storage import keep_connections
from vault_memory.defs.telling import Telling
from vault_memory.errors import VaultMemoryError
from vault_memory.notes.paths import note_id, partition_key
from vault_memory.settings import VaultKind

if TYPE_CHECKING:
    from vault_memory.ingest.batch import Batch, NoteOutcome

MAX_PARTITIONS_PER_BACKFILL_RUN: Final = 300
_MAX_NAMED_FAILURES: Final = 20
# A daily run counts and checks the index, commits or not: older than this, nothing runs any more.
INDEX_WARN_AFTER: Final = timedelta(hours=26)
INDEX_FAIL_AFTER: Final = timedelta(hours=50)
_STALE: Final = (
    "the selection is stale: partitions were added or removed since this run was asked for, and its range now means "
    "other notes. Rerun from the asset page: Partitions, select, Materialize"
)


@contextmanager
def translated(session: VaultSession) -> Generator[None]:
    """Turn errors into ``dagster.Failure``, without retries: a retry would wait for the pool that its run occupies.

    Our own errors carry no note text, so their message is shown. Of any other error only the class and the place are:
    its message may quote what was being read, and Dagster stores and shows messages.
    """
    try:
        yield
    except VaultMemoryError as error:
        session.problem = f"{type(error).__name__}: {error}"
    except dg.Failure as failure:
        session.problem = failure.description
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, its message must not reach Dagster's storage
        place = traceback.extract_tb(error.__traceback__)[-1]
        session.problem = f"{type(error).__name__} at {place.name}, {place.filename.rpartition('/')[2]}:{place.lineno}"
    else:
        return
    # "from None": Dagster stores the error in whose handling another one is raised, message and all.
    raise dg.Failure(session.problem, allow_retries=False) from None


@dataclass(frozen=True, slots=True)
class NoteRun:
    """The steps of one run over a range of notes."""

    names: Names
    context: dg.OpExecutionContext
    session: VaultSession

    def scan(self) -> "Batch":
        """Check the run's selection, take the writer lock, and read the selected notes of HEAD."""
        with translated(self.session):
            self._refuse_if_over()
            keep_connections(self.context.instance)
            keys = self._selected_keys()
            self.context.instance.add_run_tags(self.context.run_id, {OWNER_TAG: owner_mark(self.context.run_id)})
            self.session.hold_writer(
                min(self.session.settings.sync.wait_seconds, MAX_RUN_WAIT_SECONDS), holder=f"run {self.context.run_id}"
            )
            self._refuse_if_over()  # waiting takes time, and whoever had the lock may have thought this run dead
            batch = self.session.synchronizer.begin(
                [_note_of(key) for key in keys], follow_plan=self._follows_plan, run_id=self.context.run_id
            )
            self._tag_start(batch.commit, len(keys))
            # What was asked for by hand is done whole; what follows from a commit can wait for the next run.
            bound = self.session.settings.sync.max_chunks_per_run if self._follows_plan else None
            return self.session.synchronizer.scan(batch, most_chunks=bound)

    def embed(self, batch: "Batch | None") -> "Batch":
        """Get the vectors of the scanned notes' texts."""
        scanned = self.scan() if batch is None else batch
        with translated(self.session):
            return self.session.synchronizer.embed(scanned)

    def embed_and_tell(self, batch: "Batch | None") -> "Batch":
        """Get the vectors, and show at the step what they took, also where notes failed."""
        with translated(self.session):
            before = self.session.synchronizer.provider.spent
        embedded = self.embed(batch)
        spent = self.session.synchronizer.provider.spent
        told: dict[str, float] = {
            "texts_embedded": spent.texts - before.texts,
            "texts_reused": sum(item.reused for item in embedded.items),
            "tokens": spent.tokens - before.tokens,
            "requests": spent.requests - before.requests,
        }
        if spent.price_usd is not None and before.price_usd is not None:
            told["price_usd"] = round(spent.price_usd - before.price_usd, 6)
        self.context.add_output_metadata(told)
        return embedded

    def persist(self, batch: "Batch | None") -> None:
        """Write the notes, tell Dagster of each, and fail in the end if some could not be written."""
        embedded = self.embed(None) if batch is None else batch
        failed: list[NoteOutcome] = []
        gone: set[str] = set()
        kept: set[str] = set()
        with translated(self.session), Telling(self.context) as telling:
            for outcome in self.session.synchronizer.persist(embedded):
                self.session.outcomes.append(outcome)
                if outcome.action == "failed":
                    failed.append(outcome)
                    continue
                (gone if outcome.drop_partition else kept).add(partition_key(outcome.note_id))
                if outcome.action == "postponed":
                    continue
                telling.add(self._materialization(outcome, embedded.commit))
            telling.flush()  # before their partitions go
            self.session.synchronizer.finish()
            self._drop_partitions(gone, kept)
            self.session.release_writer()
            self._tag_end()
            if failed:
                raise _failure(failed, len(failed) + len(gone) + len(kept))

    @property
    def _follows_plan(self) -> bool:
        # A re-execution inherits the tags of the run it repeats, but someone asked for just these notes again.
        run = self.context.run
        return PLAN_TAG in run.tags and run.parent_run_id is None

    def _tag_start(self, commit: str | None, notes: int) -> None:
        """Say at the run what it reads. A re-execution inherits its parent's tags, so each is set again."""
        run = self.context.run
        authored = self.session.synchronizer.author_time(commit)
        requested = run.tags.get(COMMIT_TAG) if run.parent_run_id is None else None
        self.context.instance.add_run_tags(
            run.run_id,
            {
                COMMIT_TAG: requested or commit or "",
                AUTHORED_TAG: authored.isoformat() if authored else "",
                NOTES_TAG: str(notes),
                OUTCOME_TAG: "",
            },
        )

    def _tag_end(self) -> None:
        """Say at the run what became of its notes."""
        counts = Counter(outcome.action for outcome in self.session.outcomes)
        told = ", ".join(f"{number} {action}" for action, number in sorted(counts.items()))
        self.context.instance.add_run_tags(self.context.run_id, {OUTCOME_TAG: told})

    def _refuse_if_over(self) -> None:
        run = self.context.instance.get_run_by_id(self.context.run_id)
        if run is None or run.is_finished:
            raise dg.Failure(
                "this run was declared dead while it was still starting; nothing was written, and the next run takes "
                "its notes",
                allow_retries=False,
            )

    def _selected_keys(self) -> list[str]:
        wanted = self.context.run.tags.get(SELECTION_TAG)
        try:
            keys = list(self.context.partition_keys)
        except dg.DagsterError:  # the range's first or last partition is gone
            raise dg.Failure(_STALE, allow_retries=False) from None
        if wanted is not None and selection_digest(keys) != wanted:
            raise dg.Failure(_STALE, allow_retries=False)
        if not keys:
            raise dg.Failure(
                "the selection holds no partition. Rerun from the asset page: Partitions, select, Materialize",
                allow_retries=False,
            )
        return keys

    def _materialization(self, outcome: "NoteOutcome", commit: str | None) -> dg.AssetMaterialization:
        return dg.AssetMaterialization(
            asset_key=self.names.notes,
            partition=partition_key(outcome.note_id),
            metadata={
                "action": outcome.action,
                "chunks": outcome.chunks,
                "texts_embedded": outcome.texts_embedded,
                "texts_reused": outcome.texts_reused,
                "tokens": outcome.tokens,
                "milliseconds": round(outcome.milliseconds, 1),
                "commit": commit or "",
                **({"deleted": True} if outcome.action == "deleted" else {}),
                **({"rules": ", ".join(outcome.rules)} if outcome.rules else {}),
            },
            # The blob id of a quarantined note would let anyone test guesses of its content.
            tags={DATA_VERSION_TAG: outcome.blob_id or outcome.action},
        )

    def _drop_partitions(self, gone: set[str], kept: set[str]) -> None:
        """Drop the partitions of notes that are no more, or leave that to the sensor while a backfill counts on them.

        Dagster fails a whole backfill if one of its partitions disappears.
        """
        instance = self.context.instance
        postponed = postponed_drops(instance, self.names)
        left = postponed - kept
        if BACKFILL_TAG in self.context.run.tags or has_active_backfill(instance, self.names):
            left |= gone
        else:
            for key in gone:
                instance.delete_dynamic_partition(self.names.partitions, key)
            left -= gone
        if left != postponed:
            set_postponed_drops(instance, self.names, left)


def _note_of(key: str) -> str:
    try:
        return note_id(key)
    except ValueError:
        raise dg.Failure(
            f"partition {key!r} was not made by vault-memory. Delete it: asset page, Partitions, Delete",
            allow_retries=False,
        ) from None


def _failure(failed: list["NoteOutcome"], total: int) -> dg.Failure:
    named = "; ".join(
        f"{outcome.note_id} ({outcome.error or 'unknown reason'})" for outcome in failed[:_MAX_NAMED_FAILURES]
    )
    more = f"; and {len(failed) - _MAX_NAMED_FAILURES} more" if len(failed) > _MAX_NAMED_FAILURES else ""
    return dg.Failure(
        f"{len(failed)} of {total} notes failed: {named}{more}. What was in memory of them stays there. They are tried "
        "again by themselves; to try now: asset page, Partitions, failed, Materialize, or run 'vault-memory sync'",
        metadata={"failed": len(failed), "paths": dg.MetadataValue.json([outcome.note_id for outcome in failed])},
        allow_retries=False,
    )


def build_vault(names: Names, kind: VaultKind = "git") -> dg.AssetSpec:
    """Return the repository or folder: outside Dagster, and the sensor tells of its commits or states."""
    is_folder = kind == "directory"
    return dg.AssetSpec(
        names.vault,
        description="A plain folder of notes; its files are read as they are."
        if is_folder
        else "The note vault, a git repository. Only committed notes are read.",
        kinds={"directory" if is_folder else "git", "markdown"},
        owners=list(OWNERS),
        group_name=names.group,
    )


def build_notes(names: Names) -> dg.AssetsDefinition:
    """Return the notes in memory, one partition a note that is ever read."""

    def run_of(context: dg.OpExecutionContext) -> NoteRun:
        return NoteRun(names, context, getattr(context.resources, names.resource))

    # Any: what ops hand each other is a Batch, which Dagster would have to import to know.
    @dg.op(
        name=names.named("scan"),
        pool=names.pool,
        required_resource_keys={names.resource},
        ins={"vault": dg.In(dg.Nothing)},
        out=dg.Out(io_manager_key="hand_over"),
        description="Read the selected notes of HEAD; hold back what is excluded or holds a secret.",
    )
    def scan(context: dg.OpExecutionContext) -> Any:
        return run_of(context).scan()

    @dg.op(
        name=names.named("embed"),
        pool=names.pool,
        required_resource_keys={names.resource},
        out=dg.Out(io_manager_key="hand_over"),
        description="Get vectors for texts that have none yet.",
    )
    def embed(context: dg.OpExecutionContext, scanned: Any) -> Any:
        return run_of(context).embed_and_tell(scanned)

    @dg.op(
        name=names.named("persist"),
        pool=names.pool,
        required_resource_keys={names.resource},
        out=dg.Out(dg.Nothing, is_required=False),
        description="Write each note in one transaction; remove what is gone.",
    )
    def persist(context: dg.OpExecutionContext, embedded: Any) -> Iterator[dg.AssetMaterialization]:
        run_of(context).persist(embedded)
        yield from ()  # an op that returns has an output, even if it is Nothing

    @dg.graph_asset(
        name=names.notes.path[-1],
        ins={"vault": dg.AssetIn(names.vault, dagster_type=dg.Nothing)},
        partitions_def=names.partitions_definition(),
        backfill_policy=dg.BackfillPolicy.multi_run(max_partitions_per_run=MAX_PARTITIONS_PER_BACKFILL_RUN),
        description="Each note of the vault's HEAD in memory: its chunks, vectors and keywords, or why it is left out.",
        kinds={"postgres", "python"},
        owners=list(OWNERS),
        group_name=names.group,
    )
    def memory_notes(vault: Any) -> Any:
        return persist(embed(scan(vault)))

    return memory_notes


def build_index(names: Names) -> dg.AssetsDefinition:
    """Return the store as a whole: counts, and checks against HEAD."""

    @dg.asset(
        key=names.index,
        deps=[names.notes],
        description="What is in memory as a whole, counted when HEAD is indexed.",
        kinds={"postgres"},
        owners=list(OWNERS),
        group_name=names.group,
        freshness_policy=dg.FreshnessPolicy.time_window(fail_window=INDEX_FAIL_AFTER, warn_window=INDEX_WARN_AFTER),
        required_resource_keys={names.resource},
    )
    def memory_index(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        session: VaultSession = getattr(context.resources, names.resource)
        with translated(session):
            report = session.synchronizer.report()
            index = session.settle_index()
            look = session.look_at_index()
        return dg.MaterializeResult(
            # Numbers are drawn as plots over time on the asset's page.
            metadata={
                "notes": report.notes,
                "chunks": report.chunks,
                "tokens": report.tokens,
                "megabytes": round(report.size_bytes / 1e6, 1),
                "excluded": report.excluded,
                "quarantined": report.quarantined,
                "skipped": report.skipped,
                "failed": report.failed,
                "texts_embedded_this_month": report.month.texts,
                "tokens_sent_this_month": report.month.tokens,
                "cost_this_month_usd": round(report.month.price_usd, 6),
                **({} if look.recall is None else {"vector_index_recall_at_10": look.recall}),
                **({} if look.milliseconds is None else {"search_milliseconds": round(look.milliseconds, 2)}),
                "commit": report.commit or "",
                "vector_index": index,
            },
            data_version=dg.DataVersion(report.commit or "none"),
        )

    return memory_index
