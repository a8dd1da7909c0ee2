"""Plan and write: the one way in which a vault's notes come into the store and leave it.

Belongs here: the order of the steps of a run and what a failure in one of them means.
Does not: the steps themselves (``planning``, ``withdrawing``, ``embedding``, ``persisting``, ``model_change``),
Dagster (it calls these steps), SQL, rules.

A run walks scan -> embed -> persist. What must go (deleted, excluded, quarantined) goes already in ``scan``,
before anything waits for the embedding API; what comes is written in ``persist``, one transaction a note.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from vault_memory.adapters.git import GitVault
from vault_memory.adapters.store import Store
from vault_memory.adapters.store_records import NoteState
from vault_memory.errors import ConfigError, VaultError
from vault_memory.ingest import estimates
from vault_memory.ingest.allowances import AllowList
from vault_memory.ingest.batch import Batch, failure_of
from vault_memory.ingest.database import open_store
from vault_memory.ingest.embedding import EmbedStep
from vault_memory.ingest.keys import KeyedHash, load_key
from vault_memory.ingest.model_change import Rebuild
from vault_memory.ingest.persisting import PersistStep
from vault_memory.ingest.planning import Planner, items_of, notes_of
from vault_memory.ingest.prepare import PreparedNote, Preparer, Refused, Unreadable
from vault_memory.ingest.provider import Provider
from vault_memory.ingest.rules import HeldByRules, problem_lines
from vault_memory.ingest.screening import Screener
from vault_memory.ingest.source import open_source
from vault_memory.ingest.withdrawing import Withdrawer
from vault_memory.notes.model import NoteStatus
from vault_memory.notes.paths import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from datetime import datetime
    from types import TracebackType

    from vault_memory.adapters.store_records import SyncState, Usage
    from vault_memory.ingest.batch import Item, NoteOutcome
    from vault_memory.ingest.estimates import Estimate
    from vault_memory.ingest.model_change import Rebuilt
    from vault_memory.ingest.planning import VaultPlan
    from vault_memory.ingest.prepare import MakeJudge
    from vault_memory.ingest.source import Source
    from vault_memory.notes.exclusion import Ruleset
    from vault_memory.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The state of the whole index, for the downstream asset and its checks.

    Attributes:
        commit: The commit that the store was brought to.
        orphans: Chunks without a note.
        missing: Indexed notes of the manifest without rows, and rows that the manifest does not list.
        quarantine_leaks: Quarantined notes that have rows.
        tokens: Upper bound of the tokens of all texts in memory.
        size_bytes: Of the tables of notes and chunks, with their indexes.
        month: What the embedder was asked for this month.
    """

    commit: str | None
    head: str | None
    notes: int
    chunks: int
    indexed: int
    excluded: int
    quarantined: int
    skipped: int
    failed: int
    orphans: int
    missing: int
    quarantine_leaks: int
    tokens: int
    size_bytes: int
    month: Usage


class Synchronizer:
    """One vault's planner and writer; owns one store connection and one scanner process.

    Not for use by two threads. Close it, or use it as a context manager.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        vault: Source,
        key: KeyedHash,
        *,
        make_judge: MakeJudge = Screener,
    ) -> None:
        """Take over open parts; ``open`` makes them from settings.

        Args:
            settings: Of the vault.
            store: An open connection; closed with this object.
            vault: To read from.
            key: Of the keyed hashes.
            make_judge: Makes what judges notes; the scanner's processes unless a test does without.
        """
        self.settings = settings
        self.store = store
        self.vault = vault
        self.key = key
        self.provider = Provider(settings, store, vault, key)
        self._allowances = AllowList(settings.allow_list_file, key, vault=settings.vault)
        self._preparer = Preparer(vault, self._allowances, make_judge)
        self.planner = Planner(settings, store, vault, key, allowances=self._allowances, preparer=self._preparer)
        self._withdrawer = Withdrawer(
            settings.sync, store, key, planner=self.planner, allowances=self._allowances, preparer=self._preparer
        )
        self._embed = EmbedStep(
            store, self.provider, planner=self.planner, preparer=self._preparer, withdrawer=self._withdrawer
        )
        self._persist = PersistStep(
            settings.sync, store, vault, planner=self.planner, preparer=self._preparer, provider=self.provider
        )
        self._rebuild = Rebuild(store, self.provider, planner=self.planner, preparer=self._preparer)

    @classmethod
    def open(cls, settings: Settings, *, accept_model: bool = False) -> Self:
        """Open vault, database, key and embedder, and hold them against what the database recorded.

        Args:
            settings: Of the vault.
            accept_model: Take the settings' embedder although the vectors are another one's; the caller then owes
                ``rebuild_vectors`` before anything else is embedded.

        Raises:
            ConfigError: A setting contradicts what is recorded (another vault or key).
            VaultError: The vault cannot be read, or is not of the kind that the settings say.
            StoreError: The database is out of reach or of another version.
        """
        vault = open_source(settings)
        with ExitStack() as cleanup:
            store = open_store(settings)
            cleanup.callback(store.close)
            state = store.sync_state()
            key = load_key(settings.hmac_key_file, create=state.key_fingerprint is None)
            _check_identity(state, vault, key, settings, is_empty=not store.statuses())
            self = cls(settings, store, vault, key)
            self._allowances.refresh()
            self.provider.open(state, accept_model=accept_model)
            cleanup.pop_all()
        return self

    def close(self) -> None:
        """Close the connection and end the scanner process."""
        self._preparer.close()
        self.store.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    # -- planning ----------------------------------------------------------------------------------------------

    def head(self) -> str | None:
        """Return the commit of HEAD; None before the first commit."""
        return self.vault.head()

    def author_time(self, commit: str | None) -> datetime | None:
        """Return when a commit was written by its author, in UTC; None for no commit."""
        return None if commit is None else self.vault.author_time(commit)

    def rules(self, commit: str | None) -> Ruleset:
        """Return the rules in force at a commit (``Planner.rules``)."""
        return self.planner.rules(commit)

    def is_current(self) -> bool:
        """Whether HEAD is what the store was brought to, under the same rules, and no retry is due."""
        return self.planner.is_current()

    def plan(self, *, full: bool = False, retry_all: bool = False) -> VaultPlan:
        """Compare HEAD with the manifest.

        Args:
            full: Every note again, whether it changed or not.
            retry_all: Failed notes at once, not only when their retry is due.
        """
        return self.planner.plan(full=full, retry_all=retry_all)

    def refuse_mass_deletion(self, plan: VaultPlan) -> None:
        """Refuse a tree that suddenly lacks most notes (``Planner.refuse_mass_deletion``)."""
        self.planner.refuse_mass_deletion(plan)

    def estimate(self, plan: VaultPlan) -> Estimate:
        """Say what carrying out a plan would send; scans the notes, writes and sends nothing."""
        model, dimensions = self.provider.model()
        return estimates.estimate(
            plan.work,
            self.rules(plan.commit),
            known=lambda hashes: self.store.known_vectors(hashes, model, dimensions),
            preparer=self._preparer,
            embedder=self.provider.embedder,
        )

    def estimate_rebuild(self, plan: VaultPlan) -> Estimate:
        """Say what ``rebuild_vectors`` would send; scans the notes, writes and sends nothing."""
        return estimates.estimate_rebuild(self._rebuild, plan, self.provider)

    @contextmanager
    def writer(self, wait_seconds: float, *, holder: str) -> Generator[None]:
        """Be the only writer of this vault's memory.

        Raises:
            WriterBusyError: Another writer held on for ``wait_seconds``; the message names it.
        """
        with self.store.writer(wait_seconds, holder=holder):
            yield

    def settle(self, plan: VaultPlan) -> None:
        """Write what needs no run, and move the indexed commit if nothing else is left to do.

        Call it as the writer.

        Args:
            plan: Made before; it is made again, since another writer may have been at work until now.
        """
        del plan
        self._settle()

    def _settle(self) -> None:
        plan = self.plan()
        rules = self.rules(plan.commit)
        self.provider.record_identity(embedder=False)
        self._withdrawer.put_in_force(rules)
        if plan.gone:
            self.store.drop_states(plan.gone)
        busy = set(plan.note_ids)  # a note that was indexed until now is taken out by a run first
        settled = [one for one in plan.settled if one.id not in busy]
        if settled:
            self.store.write_states(
                NoteState(
                    id=one.id,
                    status=one.status,
                    blob_tag=self.key.tag(one.blob_id) if one.status is NoteStatus.EXCLUDED else one.blob_id,
                    ruleset_id=rules.id,
                    commit=plan.commit,
                    reason=one.reason.value,
                )
                for one in settled
            )
        if plan.note_ids:
            return
        if not plan.work.deferred:
            self._clear_stage()  # every note is written: what is still staged was overtaken by a later commit
        self.store.drop_stage()
        self.store.record_commit(plan.commit)

    def _clear_stage(self) -> None:
        state = self.store.sync_state()
        if state.model is not None and state.dimensions is not None:
            self.store.clear_stage(state.model, state.dimensions)

    def put_in_force(self) -> None:
        """Take out at once what the rules and the releases of this moment do not let through. Call it as the writer."""
        self._withdrawer.put_in_force(self.rules(self.head()))

    # -- the steps of a run ------------------------------------------------------------------------------------

    def begin(self, note_ids: Sequence[str], *, follow_plan: bool, run_id: str) -> Batch:
        """Read HEAD and say what is to be done with each selected note.

        Args:
            note_ids: The selected notes.
            follow_plan: True: only what the planner finds to do. False: every selected note is scanned and
                written again, and one that HEAD does not have is forgotten.
            run_id: Whose run.

        Raises:
            MassDeletionError: HEAD lacks most notes, and nobody has allowed that.
        """
        plan = self.plan(full=not follow_plan, retry_all=True)
        self.refuse_mass_deletion(plan)
        self.store.record_start()
        rules = self.rules(plan.commit)
        self.provider.record_identity(embedder=True)
        self._withdrawer.put_in_force(rules)
        items = items_of(plan.work, note_ids, notes_of(plan.tree, rules))
        return Batch(run_id=run_id, commit=plan.commit, ruleset_id=rules.id, items=items)

    def scan(self, batch: Batch, *, most_chunks: int | None = None) -> Batch:
        """Read and judge the notes; delete at once what must not be found any more.

        Args:
            batch: What to look at.
            most_chunks: Notes beyond so many chunks are put off until the next plan; None: no bound. The first note
                is never put off.
        """
        rules = self.rules(batch.commit)
        items = {item.note_id: item for item in batch.items}
        refused: list[Refused] = []
        wanted = [
            (item.path, item.blob_id) for item in batch.items if item.kind == "upsert" and item.is_open and item.blob_id
        ]
        self._preparer.ready(wanted, rules)
        chunks = 0
        started = time.perf_counter()
        for note in self._preparer.prepare(wanted, rules):
            if isinstance(note, PreparedNote):
                item = items[note.note.path.id]
                if chunks and most_chunks is not None and chunks + len(note.chunks) > most_chunks:
                    items[item.note_id] = replace(item, action="postponed")
                else:
                    items[item.note_id] = self._scanned(item, note, rules, started=started)
                    chunks += len(note.chunks)
            elif isinstance(note, Unreadable):
                items[note.path.id] = replace(items[note.path.id], failure=failure_of("scan", note.error))
            else:
                refused.append(note)
            started = time.perf_counter()
        batch = batch.with_items(tuple(items.values()))
        self._withdrawer.prune(batch, refused, items)
        return batch.with_items(tuple(items.values()))

    def _scanned(self, item: Item, note: PreparedNote, rules: Ruleset, *, started: float) -> Item:
        """Say in its item what is known of a clean note."""
        if self._is_held(item, rules):
            return replace(item, failure=failure_of("scan", HeldByRules(rules)))
        return replace(
            item,
            hashes=tuple(part.text_hash for part in note.chunks if part.embed_text),
            chunks=len(note.chunks),
            tokens=sum(part.token_bound for part in note.chunks),
            milliseconds=item.milliseconds + (time.perf_counter() - started) * 1000,
        )

    def _is_held(self, item: Item, rules: Ruleset) -> bool:
        """Whether a clean note must wait, since a rule that cannot be read may have meant it; old rows stay."""
        if not rules.holding:
            return False
        stored = self.store.stored_version(item.note_id)
        return stored is None or stored[0] != item.blob_id

    def embed(self, batch: Batch) -> Batch:
        """Get the vectors that are missing, and stage each as soon as it is paid for.

        A text that cannot be embedded fails its notes, not the batch.
        """
        return self._embed.run(batch)

    def persist(self, batch: Batch) -> Iterator[NoteOutcome]:
        """Write each note in a transaction of its own, and yield what became of it."""
        return self._persist.run(batch)

    def finish(self) -> None:
        """Settle what a run left: files that are never read, the indexed commit. Call it as the writer."""
        self._preparer.forget()
        self._settle()

    def rebuild_vectors(self, *, report: Callable[[str], None] = lambda _line: None) -> Rebuilt:
        """Make every vector anew with the embedder at hand, and change over in one transaction.

        Until then the old vectors answer. New ones wait on a stage of their own, so that a rebuild which was cut off
        goes on where it was and pays for nothing twice. Call it as the writer.

        Args:
            report: Is told one line now and then.

        A text that the provider refuses for good does not hold the others back; its note fails.
        """
        self.provider.required()
        plan = self.plan(retry_all=True)
        if self.rules(plan.commit).holding:  # it would send the notes that wait
            raise ConfigError("; ".join(problem_lines(self.rules(plan.commit))))
        batch = self.scan(self.begin(plan.note_ids, follow_plan=True, run_id="rebuild"))
        rebuilt = self._rebuild.fill_stage(plan, run_id=batch.run_id, report=report)
        if not rebuilt.changed_over:
            return rebuilt
        with self.store.transaction():
            self._clear_stage()
            self._rebuild.change_over()
            for done in self.persist(batch):  # what changed since the last sync: its old rows went with the old model
                log.info("%s: %s", one_line(done.note_id), done.action)
        self.finish()
        return rebuilt

    def partition_ids(self) -> frozenset[str]:
        """Return the notes that have a partition: every one that is read, whatever came of it."""
        return self.store.read_notes()

    def failed_ids(self) -> frozenset[str]:
        """Return the notes whose last try failed."""
        return frozenset(note for note, status in self.store.statuses().items() if status is NoteStatus.FAILED)

    def report(self) -> IndexReport:
        """Count what is in the store, and what should not be."""
        counts = self.store.counts()
        manifest = self.store.manifest()
        hollow = sum(entry.status is NoteStatus.INDEXED and not entry.has_rows for entry in manifest.values())
        return IndexReport(
            commit=self.store.sync_state().commit,
            head=self.head(),
            notes=counts.notes,
            chunks=counts.chunks,
            indexed=counts.indexed,
            excluded=counts.excluded,
            quarantined=counts.quarantined,
            skipped=counts.skipped,
            failed=counts.failed,
            orphans=counts.orphans,
            missing=hollow + counts.unlisted,
            quarantine_leaks=counts.leaks,
            tokens=counts.tokens,
            size_bytes=counts.size_bytes,
            month=self.store.month_usage(),
        )


def _check_identity(state: SyncState, vault: Source, key: KeyedHash, settings: Settings, *, is_empty: bool) -> None:
    if state.key_fingerprint is not None and state.key_fingerprint != key.fingerprint:
        raise ConfigError(
            f"{settings.hmac_key_file}: not the key that this database was made with; restore the old one"
        )
    moved = state.vault is not None and state.vault != str(vault.path)
    if moved and state.commit is None and is_empty:
        return  # a first try on a vault without notes binds nobody
    if moved and (state.commit is None or not vault.exists(state.commit)):
        raise ConfigError(
            f"this memory belongs to {state.vault}, not to {vault.path}; for a second vault set VAULT_MEMORY_SCHEMA"
        )
    if moved and state.vault is not None and _is_another_part(state.vault, vault):
        raise ConfigError(
            f"this memory belongs to {state.vault}, another folder of the same repository than {vault.path}; name that "
            "one, or set VAULT_MEMORY_SCHEMA for a second vault"
        )


def _is_another_part(recorded: str, vault: Source) -> bool:
    """Whether the recorded vault is still there as another folder of the same repository: its commits prove nothing."""
    if not isinstance(vault, GitVault):
        return False
    try:
        before = GitVault.open(Path(recorded))
        return before.prefix != vault.prefix and before.common_directory() == vault.common_directory()
    except VaultError:  # it was moved or deleted, as a vault may be
        return False
