"""Plan and write: the one way in which a vault's notes come into the store and leave it.

Belongs here: the order of the steps of a run and what a failure in one of them means.
Does not: Dagster (it calls these steps), SQL, rules.

A run walks scan -> embed -> persist. What must go (deleted, excluded, quarantined) goes already in ``scan``,
before anything waits for the embedding API; what comes is written in ``persist``, one transaction a note.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Self, cast
from urllib.parse import urlsplit

from pgvector import Vector

from vault_memory.adapters import embedding as embedding_adapter
from vault_memory.adapters.batching import estimated_tokens
from vault_memory.adapters.git import GitVault
from vault_memory.adapters.store import ChunkRow, NoteRow, NoteState, Sent, Store
from vault_memory.errors import (
    ConfigError,
    EgressBlocked,
    EmbeddingError,
    EmbeddingRejected,
    Retryable,
    StoreError,
    StoreUnavailable,
    VaultError,
    VaultMemoryError,
)
from vault_memory.ingest.allowances import AllowList
from vault_memory.ingest.batch import Action, Batch, Item, NoteFailure, NoteOutcome, outcome
from vault_memory.ingest.database import open_store
from vault_memory.ingest.keys import KeyedHash, load_key
from vault_memory.ingest.prepare import PreparedNote, Preparer, Refused, note_date
from vault_memory.ingest.rules import HeldByRules, problem_lines, rules_at
from vault_memory.ingest.screening import Screener
from vault_memory.notes import changes
from vault_memory.notes.chunking import chunk_ids
from vault_memory.notes.exclusion import Ruleset, same_but_for_paths
from vault_memory.notes.model import EntryKind, Excluded, Finding, NoteStatus, Quarantined, QuarantineReason
from vault_memory.notes.paths import NotePath
from vault_memory.notes.tokens import document_terms

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
    from types import TracebackType

    from vault_memory.adapters.embedding import Embedder, EmbedText, OnVectors
    from vault_memory.adapters.store import Release, SyncState
    from vault_memory.ingest.prepare import MakeJudge
    from vault_memory.notes.changes import ManifestEntry, Plan
    from vault_memory.notes.model import TreeEntry
    from vault_memory.settings import EmbedderName, Settings

log = logging.getLogger(__name__)

_EMBED_SLICE: Final = 2000  # texts handed to the embedder at once, so that memory does not grow with the run
_REBUILD_NOTES: Final = 300
_RECHECK_SECONDS: Final = 0.5
_GUARDED_NOTES: Final = 10  # fewer notes are seen at a glance, and half of them go easily


@dataclass(frozen=True, slots=True)
class VaultPlan:
    """What has to happen so that the store equals a commit.

    Attributes:
        commit: HEAD when the plan was made; None before the first commit.
        work: The actions that need a run, and the lines of the manifest that do not.
        gone: Files that were never read and are not tracked any more: their lines are dropped without a run.
        tree: The Markdown files of the commit.
        deletion_share: Share (0 to 1) of the searchable notes that would be deleted.
        searchable: Notes in memory now.
    """

    commit: str | None
    work: Plan
    gone: tuple[str, ...]
    tree: Sequence[TreeEntry]
    deletion_share: float
    searchable: int

    @property
    def note_ids(self) -> tuple[str, ...]:
        """The notes that need a run; both names of a renamed one."""
        return self.work.note_ids

    @property
    def settled(self) -> tuple[changes.Settle, ...]:
        """The files whose line in the manifest changes without a run."""
        return self.work.settled

    @property
    def unchanged(self) -> int:
        """Files that are as the manifest says."""
        return self.work.unchanged

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be done now."""
        return self.work.is_empty and not self.gone

    def batches(self, max_notes: int) -> tuple[tuple[str, ...], ...]:
        """Cut the notes into runs."""
        return self.work.batches(max_notes)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What carrying out a plan would send to the embedding API.

    Attributes:
        texts: Texts without a vector.
        reused: Texts with one.
        estimated_tokens: Tokens of the former, as far as they can be told without the model's own tokenizer.
        tokens: Upper bound of them.
        price_usd: What the estimate would cost; None where no price is known.
        refused: Notes that would be quarantined or excluded.
    """

    texts: int
    reused: int
    estimated_tokens: int
    tokens: int
    price_usd: float | None
    refused: int


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What came of making every vector anew.

    Attributes:
        changed_over: Whether the new vectors are in force.
        failures: Notes with a text that could not be embedded.
    """

    changed_over: bool
    failures: Mapping[str, NoteFailure]


@dataclass(slots=True)
class Spent:
    """What this process has asked of the embedding API so far."""

    texts: int = 0
    tokens: int = 0
    requests: int = 0
    price_usd: float | None = 0.0

    def __add__(self, other: Spent) -> Spent:
        """Add up; a price that is not known stays unknown."""
        known = self.price_usd is not None and other.price_usd is not None
        return Spent(
            self.texts + other.texts,
            self.tokens + other.tokens,
            self.requests + other.requests,
            (self.price_usd or 0.0) + (other.price_usd or 0.0) if known else None,
        )


@dataclass(frozen=True, slots=True)
class IndexReport:
    """The state of the whole index, for the downstream asset and its checks.

    Attributes:
        commit: The commit that the store was brought to.
        orphans: Chunks without a note.
        missing: Indexed notes of the manifest without rows, and rows that the manifest does not list.
        quarantine_leaks: Quarantined notes that have rows.
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


class Synchronizer:
    """One vault's planner and writer; owns one store connection and one scanner process.

    Not for use by two threads. Close it, or use it as a context manager.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        vault: GitVault,
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
        self.embedder: Embedder | None = None
        self.embedder_error: ConfigError | None = None
        self.may_delete_most = False
        self.spent = Spent()
        self._chooses = False  # whether nothing was recorded when the embedder was opened
        # What a commit holds never changes, and a run looks at the same one several times.
        self._rules_of: tuple[str | None, Ruleset] | None = None
        self._tree_of: tuple[str, Sequence[TreeEntry]] | None = None
        self._hints_of: tuple[tuple[str, str], Mapping[str, str]] | None = None
        self._allowances = AllowList(settings.allow_list_file, key, vault=settings.vault)
        self._preparer = Preparer(vault, self._allowances, make_judge)

    @classmethod
    def open(cls, settings: Settings, *, accept_model: bool = False) -> Self:
        """Open vault, database, key and embedder, and hold them against what the database recorded.

        Args:
            settings: Of the vault.
            accept_model: Take the settings' embedder although the vectors are another one's; the caller then owes
                ``rebuild_vectors`` before anything else is embedded.

        Raises:
            ConfigError: A setting contradicts what is recorded (another vault or key).
            VaultError: The vault is no git repository.
            StoreError: The database is out of reach or of another version.
        """
        vault = GitVault.open(settings.require_vault())
        with ExitStack() as cleanup:
            store = open_store(settings)
            cleanup.callback(store.close)
            state = store.sync_state()
            key = load_key(settings.hmac_key_file, create=state.key_fingerprint is None)
            _check_identity(state, vault, key, settings, is_empty=not store.statuses())
            self = cls(settings, store, vault, key)
            self._allowances.refresh()
            self._open_embedder(state, accept_model=accept_model)
            self._chooses = state.model is None
            cleanup.pop_all()
        return self

    def _open_embedder(self, state: SyncState, *, accept_model: bool) -> None:
        try:
            self.embedder = embedding_adapter.open_embedder(self.settings, _recorded(state), accept_change=accept_model)
        except ConfigError as error:
            # Deletions and quarantines must still be carried out; whatever has to be embedded fails by name.
            if state.model is None:
                raise
            self.embedder_error = error

    def _record_identity(self, *, embedder: bool) -> None:
        """Record whose memory this is, and how its vectors are made, where the database does not say so yet.

        Not when it is opened: a look (``--dry-run``, a sensor's tick) before the key is set must not bind the
        memory to the offline embedder for good. Call it as the writer.
        """
        state = self.store.sync_state()
        if state.key_fingerprint is None:
            self.store.record_owner(vault=str(self.vault.path), key_fingerprint=self.key.fingerprint)
        if not embedder or self.embedder is None:
            return
        identity = embedding_adapter.identity_of(self.embedder)
        if state.model is None:
            self._write_identity(self.embedder)
        elif self._chooses and _recorded(state) != identity:
            self._open_embedder(state, accept_model=False)  # somebody else was first

    def _write_identity(self, embedder: Embedder) -> None:
        self.store.record_identity(
            vault=str(self.vault.path),
            embedder=embedder.name,
            model=embedder.model,
            dimensions=embedder.dimensions,
            base_url=embedder.base_url,
            key_fingerprint=self.key.fingerprint,
        )

    @property
    def model_changed(self) -> bool:
        """Whether the vectors in the store are another embedder's than the one at hand."""
        recorded = _recorded(self.store.sync_state())
        return (
            self.embedder is not None
            and recorded is not None
            and embedding_adapter.identity_of(self.embedder) != recorded
        )

    @property
    def notice(self) -> str | None:
        """What a user should know of the embedder on every use: that it is the offline one, unless asked for."""
        embedder = self.embedder
        if embedder is None or embedder.name != "hashing" or self.settings.embedding.embedder == "hashing":
            return None
        return embedding_adapter.HASHING_NOTICE

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

    def rules(self, commit: str | None) -> Ruleset:
        """Return the rules in force at a commit: the settings, and what its ``.vaultmemoryignore`` adds.

        Raises:
            ConfigError: A root is malformed.
        """
        if self._rules_of is None or self._rules_of[0] != commit:
            self._rules_of = commit, rules_at(self.vault, commit, self.settings.scan)
        return self._rules_of[1]

    def _tree(self, commit: str | None) -> Sequence[TreeEntry]:
        if commit is None:
            return ()
        if self._tree_of is None or self._tree_of[0] != commit:
            self._tree_of = commit, self.vault.tree(commit)
        return self._tree_of[1]

    def is_current(self) -> bool:
        """Whether HEAD is what the store was brought to, under the same rules, and no retry is due."""
        state = self.store.sync_state()
        head = self.head()
        if state.under_way or state.commit != head or state.ruleset_id != self.rules(head).id:
            return False
        due = self.store.next_retry_at()
        return (due is None or due > datetime.now(UTC)) and not self._reconsidered()

    def plan(self, *, full: bool = False, retry_all: bool = False) -> VaultPlan:
        """Compare HEAD with the manifest.

        Args:
            full: Every note again, whether it changed or not.
            retry_all: Failed notes at once, not only when their retry is due.
        """
        head = self.head()
        rules = self.rules(head)
        tree = self._tree(head)
        manifest = self._manifest(rules)
        found = changes.plan(
            manifest,
            tree,
            rules,
            tag=self.key.tag,
            now=datetime.now(UTC),
            full=full,
            retry_failed=retry_all or "due",
            renames=self._rename_hints(head),
        )
        never_read = (NoteStatus.EXCLUDED, NoteStatus.SKIPPED)
        gone = tuple(
            action.id
            for action in found.actions
            if isinstance(action, changes.Forget)
            and not manifest[action.id].has_rows
            and manifest[action.id].status in never_read
        )
        forgotten = set(gone)
        work = replace(found, actions=tuple(action for action in found.actions if forgotten.isdisjoint(action.ids)))
        return VaultPlan(
            commit=head,
            work=work,
            gone=gone,
            tree=tree,
            deletion_share=changes.deletion_share(found, manifest),
            searchable=sum(entry.has_rows for entry in manifest.values()),
        )

    def _manifest(self, rules: Ruleset) -> dict[str, ManifestEntry]:
        """Read the manifest as it will be once the rules are in force (``_put_in_force``).

        Notes whose release changed count as not looked at, and no others for their sake.
        """
        manifest = self.store.manifest()
        before = self.store.sync_state().ruleset_id
        if before is not None and before != rules.id and same_but_for_paths(before, rules.id):
            for note_id in self.store.judged_notes(before):
                manifest[note_id] = replace(manifest[note_id], ruleset_id=rules.id)
        for note_id in self._reconsidered() & manifest.keys():
            manifest[note_id] = replace(manifest[note_id], ruleset_id="")
        return manifest

    def _reconsidered(self) -> set[str]:
        """Return the notes that the allow-list lets in or out since they were judged."""
        if self._allowances.refresh():
            self._preparer.forget()  # what was clean by a release may be so no longer
        # A note that failed waits for its retry: asking again at once would keep a provider that is down busy.
        changed = {one.note_id for one in self._ended_releases() if one.is_settled}
        sources = self._allowances.sources
        held_back = self.store.held_back(sources) if sources else ()
        return changed | {note_id for note_id, tag, rules in held_back if self._allowances.covers(note_id, tag, rules)}

    def _ended_releases(self) -> list[Release]:
        return [
            one
            for one in self.store.releases()
            if not self._allowances.holds(one.note_id, one.rule, one.content_hmac, one.expires_at)
        ]

    def _rename_hints(self, head: str | None) -> Mapping[str, str]:
        base = self.store.sync_state().commit
        if base is None or head is None or base == head:
            return {}
        if self._hints_of is None or self._hints_of[0] != (base, head):
            try:
                pairs = self.vault.renames(base, head)
            except VaultError:  # the hints only save work: a commit that is gone, or blobs that a partial clone lacks
                pairs = {}
            hints = {NotePath.from_bytes(new).id: NotePath.from_bytes(old).id for new, old in pairs.items()}
            self._hints_of = (base, head), hints
        return self._hints_of[1]

    def refuse_mass_deletion(self, plan: VaultPlan) -> None:
        """Refuse a tree that suddenly lacks most notes: a wrong branch, a wrong vault, a broken checkout.

        Raises:
            MassDeletionError: More notes would be deleted than the settings allow, or HEAD has no commit at all.
        """
        if self.may_delete_most:
            return
        if plan.commit is None and plan.searchable:
            raise MassDeletionError(
                f"HEAD has no commit, and {plan.searchable} notes are in memory; "
                "if they are to be deleted, run: vault-memory sync --allow-mass-deletion"
            )
        limit = self.settings.sync.max_deleted_share
        if plan.searchable >= _GUARDED_NOTES and plan.deletion_share > limit:
            raise MassDeletionError(
                f"HEAD lacks {plan.deletion_share:.0%} of the {plan.searchable} notes in memory (limit {limit:.0%}); "
                "if that is meant, run: vault-memory sync --allow-mass-deletion"
            )

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
        self._record_identity(embedder=False)
        self._put_in_force(rules)
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
        self._put_in_force(self.rules(self.head()))

    def _put_in_force(self, rules: Ruleset) -> None:
        """Take out at once what new rules or an ended release forbid; the runs that follow do the rest.

        Until the one transaction at its end the old rules hold, and the old rows answer. Where only rules about
        paths changed, no text is looked at again, neither here nor by a run.
        """
        self._allowances.refresh()
        before = self.store.sync_state().ruleset_id
        is_new = before != rules.id
        only_paths = is_new and before is not None and same_but_for_paths(before, rules.id)
        ended = sorted({one.note_id for one in self._ended_releases()})
        if not is_new and not ended:
            return
        out: list[str] = []
        settled: list[str] = []
        if before is not None and only_paths:
            out = [note_id for note_id in self.store.row_ids() if _is_out(note_id, rules)]
            settled = [note_id for note_id in self.store.judged_notes(before) if not _is_out(note_id, rules)]
        judge_all = is_new and not only_paths
        stored = self.store.stored_texts() if judge_all else ((one, self.store.stored_text(one) or "") for one in ended)
        doomed: dict[str, tuple[Quarantined | Excluded, str]] = {}
        for note_id, content, verdict in self._preparer.judge_stored(stored, rules, many=judge_all):
            if verdict is not None:
                doomed[note_id] = (verdict, self.key.tag(content.encode()))
        with self.store.transaction():
            for note_id, (verdict, tag) in doomed.items():
                # Now, not in the run that follows: it will find no rows that say where they had been sent.
                if isinstance(verdict, Quarantined):
                    sent = self._sent(note_id, held_secret=True)
                    self.store.write_audit(verdict, ruleset_id=rules.id, content_hmac=tag, sent=sent)
            self.store.delete_rows([*out, *doomed])
            if is_new:
                self.store.record_ruleset(rules.id, settled=settled)
        log.info("ruleset %s in force, %d notes taken out", rules.id, len(out) + len(doomed))

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
        self._record_identity(embedder=True)
        self._put_in_force(rules)
        notes = frozenset(
            entry.path.id
            for entry in plan.tree
            if entry.kind is EntryKind.FILE and rules.path_exclusion(entry.path) is None
        )
        items = _items(plan.work, note_ids, notes)
        return Batch(run_id=run_id, commit=plan.commit, ruleset_id=rules.id, items=items)

    def scan(self, batch: Batch) -> Batch:
        """Read and judge the notes; delete at once what must not be found any more."""
        rules = self.rules(batch.commit)
        items = {item.note_id: item for item in batch.items}
        refused: list[Refused] = []
        wanted = [
            (item.path, item.blob_id) for item in batch.items if item.kind == "upsert" and item.is_open and item.blob_id
        ]
        self._preparer.ready(wanted, rules)
        started = time.perf_counter()
        for note in self._preparer.prepare(wanted, rules):
            taken = (time.perf_counter() - started) * 1000
            if isinstance(note, PreparedNote):
                item = items[note.note.path.id]
                if self._is_held(item, rules):
                    items[item.note_id] = replace(item, failure=_failure("scan", HeldByRules(rules)))
                    started = time.perf_counter()
                    continue
                items[item.note_id] = replace(
                    item,
                    hashes=tuple(part.text_hash for part in note.chunks if part.embed_text),
                    chunks=len(note.chunks),
                    tokens=sum(part.token_bound for part in note.chunks),
                    milliseconds=item.milliseconds + taken,
                )
            else:
                refused.append(note)
            started = time.perf_counter()
        batch = batch.with_items(tuple(items.values()))
        self._prune(batch, refused, items)
        return batch.with_items(tuple(items.values()))

    def _is_held(self, item: Item, rules: Ruleset) -> bool:
        """Whether a clean note must wait, since a rule that cannot be read may have meant it; old rows stay."""
        if not rules.holding:
            return False
        stored = self.store.stored_version(item.note_id)
        return stored is None or stored[0] != item.blob_id

    def _prune(self, batch: Batch, refused: Sequence[Refused], items: dict[str, Item]) -> None:
        """Take out of the store, one transaction a note, what was deleted, excluded or quarantined."""
        forgotten = [item for item in batch.items if item.kind == "forget" and item.is_open]
        # A text that moved here from a note that this run deletes or rewrites keeps its vector.
        self.store.rescue_vectors(
            [(item.note_id, text_hash) for item in batch.items for text_hash in item.hashes],
            [item.note_id for item in batch.items] + [old for item in batch.items for old in item.old_ids],
            batch.run_id,
        )
        for item in forgotten:
            started = time.perf_counter()
            with self.store.transaction():
                self.store.delete_rows([item.note_id])
                self.store.drop_states([item.note_id])
                self.store.close_audit(item.note_id, "deleted")
            taken = (time.perf_counter() - started) * 1000
            items[item.note_id] = replace(item, action="deleted", milliseconds=item.milliseconds + taken)
            log.info("%s: deleted", _one_line(item.note_id))
        for one in refused:
            self._refuse(batch, one, items)

    def _refuse(self, batch: Batch, one: Refused, items: dict[str, Item]) -> None:
        verdict = one.verdict
        item = items[verdict.path.id]
        quarantined = isinstance(verdict, Quarantined)
        status = NoteStatus.QUARANTINED if quarantined else NoteStatus.EXCLUDED
        started = time.perf_counter()
        sent: Sent | None = None
        if isinstance(verdict, Quarantined):
            sent = self._sent_before((item.note_id, *item.old_ids), verdict, self.rules(batch.commit))
        with self.store.transaction():
            self.store.delete_rows([item.note_id, *item.old_ids])
            self.store.drop_states(item.old_ids)
            if isinstance(verdict, Quarantined):
                self.store.write_audit(verdict, ruleset_id=batch.ruleset_id, content_hmac=one.content_hmac, sent=sent)
            else:
                self.store.close_audit(item.note_id, "released")
            self.store.write_state(
                NoteState(
                    id=item.note_id,
                    status=status,
                    blob_tag=self.key.tag(verdict.blob_id),
                    ruleset_id=batch.ruleset_id,
                    commit=batch.commit,
                    reason=verdict.reason.value,
                    step="scan",
                )
            )
        rules = verdict.rules if isinstance(verdict, Quarantined) else (verdict.reason.value,)
        taken = (time.perf_counter() - started) * 1000
        items[item.note_id] = replace(
            item,
            action="quarantined" if quarantined else "excluded",
            rules=rules,
            milliseconds=item.milliseconds + taken,
        )
        log.info("%s: %s (%s)", _one_line(item.note_id), status.value, ", ".join(rules))

    def _sent_before(self, note_ids: Sequence[str], verdict: Quarantined, rules: Ruleset) -> Sent | None:
        """Say which version of a note that is to be quarantined had been sent to an embedding provider.

        Args:
            note_ids: Its name and those it had before.
            verdict: Why it is quarantined.
            rules: Those in force.
        """
        found: Sent | None = None
        for note_id in note_ids:
            stored = self.store.stored_version(note_id)
            if stored is None:
                continue
            held = stored[0] == verdict.blob_id
            if not held and verdict.reason is QuarantineReason.SECRET:
                text = self.store.stored_text(note_id) or ""
                held = any(
                    isinstance(again, Quarantined)
                    for _, _, again in self._preparer.judge_stored([(note_id, text)], rules)
                )
            found = self._sent(note_id, held_secret=held) or found
        return found

    def _sent(self, note_id: str, *, held_secret: bool) -> Sent | None:
        """Say where the stored version of a note went, by what the database recorded: settings may have changed."""
        state = self.store.sync_state()
        stored = self.store.stored_version(note_id)
        if stored is None:
            return None
        if state.embedder in (None, "hashing"):
            # The embedder may have been changed since; rather one notice too many than a leak that nobody is told of.
            bought = self.store.has_bought_since(stored[1])
            return Sent("an embedding provider used before", stored[1], held_secret=held_secret) if bought else None
        host = urlsplit(state.base_url or "").hostname or "the embedding provider"
        return Sent(host, stored[1], held_secret=held_secret)

    def embed(self, batch: Batch) -> Batch:
        """Get the vectors that are missing, and stage each as soon as it is paid for.

        A text that cannot be embedded fails its notes, not the batch.
        """
        items = {item.note_id: item for item in batch.items}
        waiting = [item for item in batch.items if item.is_open and item.hashes]
        if not waiting:
            return batch
        model, dimensions = self._model()
        known = self.store.known_vectors(sorted({h for item in waiting for h in item.hashes}), model, dimensions)
        failed: dict[str, VaultMemoryError] = {}
        for part in _slices(waiting, _EMBED_SLICE):
            texts = self._missing_texts(part, batch, known, items)
            if not texts:
                continue
            if self.embedder is None or self.embedder_error is not None:
                error = self.embedder_error or ConfigError("no embedder is configured")
                failed.update(dict.fromkeys((text.text_hash for text in texts), error))
                continue
            try:
                failed.update(self._buy(texts, batch, self.embedder))
            except EmbeddingError as error:
                failed.update(dict.fromkeys((text.text_hash for text in texts), error))
        for item in waiting:
            errors = [failed[text_hash] for text_hash in item.hashes if text_hash in failed]
            if errors and items[item.note_id].is_open:
                # A note with one text that will never pass is not tried again for the sake of its others.
                worst = next((error for error in errors if not _is_retryable(error)), errors[0])
                current = items[item.note_id]
                items[item.note_id] = replace(
                    current,
                    embedded=max(0, current.embedded - len(failed.keys() & item.hashes)),
                    failure=_failure("embed", worst),
                )
        return batch.with_items(tuple(items.values()))

    def _missing_texts(
        self, part: Sequence[Item], batch: Batch, known: set[str], items: dict[str, Item]
    ) -> list[EmbedText]:
        """Gather the texts of some notes that no vector is known for, each once; mark them as known."""
        texts: list[EmbedText] = []
        wanted = [(item.path, item.blob_id) for item in part if item.blob_id]
        for note in self._preparer.prepare(wanted, self.rules(batch.commit)):
            if not isinstance(note, PreparedNote):
                continue  # the scanner changed its mind; persist says so
            item = items[note.note.path.id]
            try:
                # All texts, since one with a vector may have been sent under older rules.
                texts_of_note = _texts_of(note)
            except EgressBlocked as error:
                # Harmless line by line, a secret once title, heading and body stand together.
                findings = tuple(Finding(rule, error.line, "egress") for rule in error.rules)
                verdict = Quarantined(note.note.path, note.note.blob_id, QuarantineReason.SECRET, findings)
                self._refuse(batch, Refused(verdict, note.content_hmac), items)
                continue
            sent = [text for text in texts_of_note if text.text_hash not in known]
            known.update(text.text_hash for text in sent)
            texts += sent
            items[item.note_id] = replace(item, embedded=len(sent), reused=len(set(item.hashes)) - len(sent))
        return texts

    def _buy(self, texts: Sequence[EmbedText], batch: Batch, embedder: Embedder) -> Mapping[str, VaultMemoryError]:
        """Embed texts, stage their vectors as they arrive, keep the account; return what failed."""

        def stage(vectors: Mapping[str, tuple[float, ...]]) -> None:
            self.store.stage_vectors(
                {text_hash: Vector(list(vector)) for text_hash, vector in vectors.items()},
                embedder.model,
                embedder.dimensions,
                batch.run_id,
            )

        return self._pay(texts, embedder, stage)

    def _pay(self, texts: Sequence[EmbedText], embedder: Embedder, stage: OnVectors) -> Mapping[str, VaultMemoryError]:
        result = embedder.embed(texts, on_vectors=stage, keep_vectors=False)
        spent = Spent(result.embedded, result.tokens, result.requests, result.price_usd)
        self.spent += spent
        if spent.requests:
            self.store.record_usage(
                model=embedder.model,
                texts=spent.texts,
                tokens=spent.tokens,
                requests=spent.requests,
                price_usd=spent.price_usd or 0.0,
            )
        # Refused for the key, the account or an address: the rest of this process would only knock again. Whatever
        # needs no embedding is still carried out.
        self.embedder_error = result.denied or self.embedder_error
        return result.failed

    # -- another model -----------------------------------------------------------------------------------------

    def rebuild_vectors(self, *, report: Callable[[str], None] = lambda _line: None) -> Rebuilt:
        """Make every vector anew with the embedder at hand, and change over in one transaction.

        Until then the old vectors answer. New ones wait on a stage of their own, so that a rebuild which was cut off
        goes on where it was and pays for nothing twice. Call it as the writer.

        Args:
            report: Is told one line now and then.

        A text that the provider refuses for good does not hold the others back; its note fails.
        """
        embedder = self.embedder
        if embedder is None:
            raise self.embedder_error or ConfigError("no embedder is configured")
        plan = self.plan(retry_all=True)
        if self.rules(plan.commit).holding:  # it would send the notes that wait
            raise ConfigError("; ".join(problem_lines(self.rules(plan.commit))))
        batch = self.scan(self.begin(plan.note_ids, follow_plan=True, run_id="rebuild"))
        stage = _stage_of(embedder)
        failed: dict[str, VaultMemoryError] = {}
        failures: dict[str, NoteFailure] = {}
        for note_ids, hashes, texts in self._rebuild_slices(plan, stage, embedder.dimensions):

            def keep(vectors: Mapping[str, tuple[float, ...]]) -> None:
                self.store.stage_vectors(
                    {text_hash: Vector(list(vector)) for text_hash, vector in vectors.items()},
                    stage,
                    embedder.dimensions,
                    batch.run_id,
                )

            if texts:
                failed.update(self._pay(texts, embedder, keep))
            for note_id in note_ids:
                errors = [failed[text_hash] for text_hash in hashes[note_id] if text_hash in failed]
                if errors:
                    failures[note_id] = _failure("embed", errors[0])
            report(f"{self.spent.texts} texts embedded anew")
        if any(not isinstance(error, EmbeddingRejected) for error in failed.values()):
            return Rebuilt(changed_over=False, failures=failures)
        with self.store.transaction():
            self._clear_stage()
            self.store.flip_vectors(stage, embedder.model, embedder.dimensions)
            self._write_identity(embedder)
            for done in self.persist(batch):  # what changed since the last sync: its old rows went with the old model
                log.info("%s: %s", _one_line(done.note_id), done.action)
        self.finish()
        return Rebuilt(changed_over=True, failures=failures)

    def _rebuild_slices(
        self, plan: VaultPlan, stage: str, dimensions: int
    ) -> Iterator[tuple[list[str], dict[str, set[str]], list[EmbedText]]]:
        """Yield notes of HEAD, the hashes of their texts, and the texts that are not on the stage yet."""
        rules = self.rules(plan.commit)
        wanted = [
            (path, entry.blob_id)
            for entry, path, lost in changes.identified(plan.tree)
            if not lost and entry.kind is EntryKind.FILE and rules.path_exclusion(entry.path) is None
        ]
        asked: set[str] = set()
        for start in range(0, len(wanted), _REBUILD_NOTES):
            hashes: dict[str, set[str]] = {}
            texts: dict[str, EmbedText] = {}
            for note in self._preparer.prepare(wanted[start : start + _REBUILD_NOTES], rules):
                if isinstance(note, PreparedNote):
                    try:
                        of_note = _texts_of(note)
                    except EgressBlocked:
                        continue  # the run that follows quarantines it
                    hashes[note.note.path.id] = {text.text_hash for text in of_note}
                    texts.update({text.text_hash: text for text in of_note})
            known = self.store.staged(sorted(texts), stage, dimensions) | asked
            asked.update(texts)
            yield list(hashes), hashes, [text for text_hash, text in texts.items() if text_hash not in known]

    def estimate_rebuild(self, plan: VaultPlan) -> Estimate:
        """Say what ``rebuild_vectors`` would send; scans the notes, writes and sends nothing."""
        if self.embedder is None:
            raise self.embedder_error or ConfigError("no embedder is configured")
        dimensions = self.embedder.dimensions
        all_texts: set[str] = set()
        sent = tokens = bound = 0
        for _, hashes, texts in self._rebuild_slices(plan, _stage_of(self.embedder), dimensions):
            all_texts.update(*hashes.values())
            sent += len(texts)
            tokens += sum(estimated_tokens(text.text) for text in texts)
            bound += sum(text.token_bound for text in texts)
        return Estimate(sent, len(all_texts) - sent, tokens, bound, self.embedder.price_usd(tokens), 0)

    def estimate(self, plan: VaultPlan) -> Estimate:
        """Say what carrying out a plan would send; scans the notes, writes and sends nothing."""
        model, dimensions = self._model()
        rules = self.rules(plan.commit)
        hashes: dict[str, tuple[int, int]] = {}
        refused = 0
        wanted = [
            (action.path, action.blob_id) for action in plan.work.actions if not isinstance(action, changes.Forget)
        ]
        for note in self._preparer.prepare(wanted, rules):
            if isinstance(note, PreparedNote):
                hashes.update(
                    {
                        part.text_hash: (estimated_tokens(part.embed_text), part.token_bound)
                        for part in note.chunks
                        if part.embed_text
                    }
                )
            else:
                refused += 1
        known = self.store.known_vectors(sorted(hashes), model, dimensions)
        missing = [hashes[text_hash] for text_hash in hashes if text_hash not in known]
        tokens = sum(likely for likely, _ in missing)
        price = self.embedder.price_usd(tokens) if self.embedder else None
        return Estimate(len(missing), len(known), tokens, sum(bound for _, bound in missing), price, refused)

    def persist(self, batch: Batch) -> Iterator[NoteOutcome]:
        """Write each note in a transaction of its own, and yield what became of it."""
        wanted = self._still_wanted(batch)
        checked = time.monotonic()
        for item in batch.items:
            if time.monotonic() - checked > _RECHECK_SECONDS and item.is_open:
                wanted = self._still_wanted(batch)
                checked = time.monotonic()
            done = item
            if item.failure:
                self._record_failure(item, item.failure, batch)
            elif item.action is None and wanted.get(item.note_id) != item.blob_id:
                done = replace(item, action="superseded")  # the next plan has its newer version
            elif item.action is None:
                done = self._write(item, batch)
            yield outcome(done)

    def finish(self) -> None:
        """Settle what a run left: files that are never read, the indexed commit. Call it as the writer."""
        self._preparer.forget()
        self._settle()

    def _model(self) -> tuple[str, int]:
        if self.embedder is not None:
            return self.embedder.model, self.embedder.dimensions
        state = self.store.sync_state()
        if state.model is None or state.dimensions is None:
            raise self.embedder_error or ConfigError("no embedder is configured")
        return state.model, state.dimensions

    def _still_wanted(self, batch: Batch) -> dict[str, str | None]:
        """Return the blob that HEAD has now for each open note: a commit may have come in while we embedded."""
        head = self.head()
        opened = [item for item in batch.items if item.is_open]
        if head == batch.commit:
            return {item.note_id: item.blob_id for item in opened}
        if head is None:
            return {}
        now = self.vault.tracked_blobs(head, [item.note_id for item in opened])
        return {item.note_id: now.get(item.note_id) for item in opened}

    def _write(self, item: Item, batch: Batch) -> Item:
        started = time.perf_counter()
        try:
            written = self._write_rows(item, batch)
        except StoreUnavailable:
            raise
        except (StoreError, EmbeddingError) as error:
            failure = _failure("persist", error)
            self._record_failure(item, failure, batch)
            return replace(item, failure=failure)
        taken = (time.perf_counter() - started) * 1000
        log.info("%s: %s, %d chunks", _one_line(item.note_id), written.action, item.chunks)
        return replace(written, milliseconds=item.milliseconds + taken)

    def _write_rows(self, item: Item, batch: Batch) -> Item:
        model, dimensions = self._model()
        prepared = next(iter(self._preparer.prepare([(item.path, item.blob_id or "")], self.rules(batch.commit))))
        if not isinstance(prepared, PreparedNote):
            raise VerdictChanged("the scanner changed its mind about this note; the next try looks again")
        note, document = prepared.note, prepared.note.document
        with self.store.transaction():
            vectors = self.store.vectors(item.hashes, model, dimensions)
            missing = sum(text_hash not in vectors for text_hash in item.hashes)
            if missing:
                raise EmbeddingVectorsGone(f"{missing} vectors are gone; run vault-memory sync again")
            rows = [
                ChunkRow(
                    id=row_id,
                    chunk=part,
                    embedding=vectors[part.text_hash] if part.embed_text else None,
                    terms=document_terms(part.content, title=document.title, heading=part.heading),
                )
                for row_id, part in zip(chunk_ids(item.note_id, prepared.chunks), prepared.chunks, strict=True)
            ]
            self.store.replace_note(
                NoteRow(
                    id=item.note_id,
                    content=note.text,
                    content_hash=note.content_hash,
                    blob_id=note.blob_id,
                    title=document.title,
                    tags=document.tags,
                    links=document.links,
                    front_matter=document.front_matter,
                    note_date=note_date(document.front_matter),
                    commit=batch.commit or "",
                    ruleset_id=batch.ruleset_id,
                    model=model,
                    dimensions=dimensions,
                    token_count=item.tokens,
                    chunks=rows,
                ),
                also_forget=item.old_ids,
            )
            self.store.allow(item.note_id, [(one.rule, one.content_hmac, one.expires_at) for one in prepared.allowed])
            self.store.write_state(
                NoteState(
                    id=item.note_id,
                    status=NoteStatus.INDEXED,
                    blob_tag=note.blob_id,
                    ruleset_id=batch.ruleset_id,
                    commit=batch.commit,
                    reason=", ".join(document.warnings) or None,
                )
            )
            released = self.store.close_audit(item.note_id, "released")
        return replace(item, action=_written_action(item, released=released))

    def _record_failure(self, item: Item, failure: NoteFailure, batch: Batch) -> None:
        """Note a failure in the manifest; the old rows, if any, go on answering."""
        attempts = self.store.attempts(item.note_id) + 1
        sync = self.settings.sync
        wait = min(sync.retry_base_seconds * 2 ** min(attempts - 1, 20), sync.retry_max_seconds)
        self.store.write_state(
            NoteState(
                id=item.note_id,
                status=NoteStatus.FAILED,
                blob_tag=item.blob_id or "",
                ruleset_id=batch.ruleset_id,
                commit=batch.commit,
                reason=failure.reason,
                step=failure.step,
                error_class=failure.error_class,
                attempts=attempts,
                next_retry_at=datetime.now(UTC) + timedelta(seconds=wait) if failure.retryable else None,
            )
        )
        log.warning("%s: failed in %s (%s)", _one_line(item.note_id), failure.step, failure.error_class)

    def partition_ids(self) -> frozenset[str]:
        """Return the notes that have a partition: every one that is read, whatever came of it."""
        return self.store.read_notes()

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
        )


class MassDeletionError(VaultError):
    """HEAD lacks most of the notes that are in memory."""


class VerdictChanged(StoreError, Retryable):
    """A note that passed the scan does not pass it any more when it is to be written: a slow machine, perhaps."""


class EmbeddingVectorsGone(EmbeddingError, Retryable):
    """Vectors that the embed step had staged are not there any more when they are to be written."""


def _check_identity(state: SyncState, vault: GitVault, key: KeyedHash, settings: Settings, *, is_empty: bool) -> None:
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


def _is_out(note_id: str, rules: Ruleset) -> bool:
    return rules.path_exclusion(NotePath.from_text(note_id)) is not None


def _texts_of(note: PreparedNote) -> tuple[EmbedText, ...]:
    return embedding_adapter.texts_of(note.note, note.chunks, allowed={one.rule for one in note.allowed})


def _stage_of(embedder: Embedder) -> str:
    """Name the stage of a rebuild: by the embedder, so that no other one's vectors pass for its own."""
    return f"rebuild: {embedder.name} {embedder.model} {embedder.base_url or ''}"


def _recorded(state: SyncState) -> embedding_adapter.RecordedIdentity | None:
    if state.embedder is None or state.model is None or state.dimensions is None:
        return None
    return embedding_adapter.RecordedIdentity(
        cast("EmbedderName", state.embedder), state.model, state.dimensions, state.base_url
    )


def _failure(step: str, error: VaultMemoryError) -> NoteFailure:
    return NoteFailure(step, type(error).__name__, str(error), retryable=_is_retryable(error))


def _is_retryable(error: VaultMemoryError) -> bool:
    return isinstance(error, (Retryable, ConfigError))


def _items(plan: Plan, note_ids: Sequence[str], notes: Collection[str]) -> tuple[Item, ...]:
    """Turn the planner's actions into items, in the order of the selection.

    Args:
        plan: What there is to do.
        note_ids: The selection; an action that touches a note outside it leaves that note alone.
        notes: The notes that HEAD has.
    """
    selected = set(note_ids)
    items: dict[str, Item] = {}
    for action in plan.for_ids(note_ids):
        if isinstance(action, changes.Forget):
            items[action.id] = Item(action.id, "forget", reason=str(action.reason))
            continue
        renamed = isinstance(action, changes.Rename)
        if renamed and action.path.id not in selected:
            items[action.old_id] = Item(action.old_id, "forget", reason="deleted")
            continue
        previous = None if renamed else action.previous
        items[action.path.id] = Item(
            action.path.id,
            "upsert",
            raw_path=action.path.raw.hex(),
            blob_id=action.blob_id,
            old_ids=(action.old_id,) if renamed and action.old_id in selected else (),
            previous=previous.value if previous else None,
        )
    for note_id in note_ids:
        if note_id not in items:
            # Nothing to do for it: it is as the manifest says, or its rows go with the note that took them over.
            there = note_id in notes
            items[note_id] = Item(note_id, "upsert" if there else "forget", action="unchanged" if there else "deleted")
    return tuple(items[note_id] for note_id in dict.fromkeys((*note_ids, *items)))


def _written_action(item: Item, *, released: bool) -> Action:
    if item.old_ids:
        return "renamed"
    if released:
        return "released"
    return "changed" if item.previous in (NoteStatus.INDEXED.value, NoteStatus.FAILED.value) else "added"


def _slices(items: Sequence[Item], most_texts: int) -> Iterator[list[Item]]:
    part: list[Item] = []
    texts = 0
    for item in items:
        part.append(item)
        texts += len(item.hashes)
        if texts >= most_texts:
            yield part
            part, texts = [], 0
    if part:
        yield part


def _one_line(note_id: str) -> str:
    """Show a path in a log line: control characters escaped, so that one event stays one line."""
    return note_id.encode("unicode_escape").decode() if not note_id.isprintable() else note_id
