"""What has to happen so that the store equals a commit.

Belongs here: the rules and the tree of a commit, the manifest as the planner is to see it, the guard against a tree
that suddenly lacks most notes. Does not: the comparison itself (``notes.changes``), or anything that writes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from vault_memory.errors import VaultError
from vault_memory.ingest.batch import Item
from vault_memory.ingest.rules import rules_at
from vault_memory.notes import changes
from vault_memory.notes.exclusion import Ruleset, same_but_for_paths
from vault_memory.notes.model import EntryKind, NoteStatus
from vault_memory.notes.paths import NotePath

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from vault_memory.adapters.store import Store
    from vault_memory.adapters.store_records import Release
    from vault_memory.ingest.allowances import AllowList
    from vault_memory.ingest.keys import KeyedHash
    from vault_memory.ingest.prepare import Preparer
    from vault_memory.ingest.source import Source
    from vault_memory.notes.changes import ManifestEntry, Plan
    from vault_memory.notes.model import TreeEntry
    from vault_memory.settings import Settings

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


class MassDeletionError(VaultError):
    """HEAD lacks most of the notes that are in memory."""


class Planner:
    """Compares HEAD with the manifest.

    Attributes:
        may_delete_most: Whether somebody has allowed that most notes are deleted.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        vault: Source,
        key: KeyedHash,
        *,
        allowances: AllowList,
        preparer: Preparer,
    ) -> None:
        """Take over open parts.

        Args:
            settings: Of the vault.
            store: To read the manifest from.
            vault: To read commits from.
            key: Of the keyed hashes.
            allowances: The operator's releases.
            preparer: Forgets what it knows when they change.
        """
        self.may_delete_most = False
        self._settings = settings
        self._store = store
        self._vault = vault
        self._key = key
        self._allowances = allowances
        self._preparer = preparer
        # What a commit holds never changes, and a run looks at the same one several times.
        self._rules_of: tuple[str | None, Ruleset] | None = None
        self._tree_of: tuple[str, Sequence[TreeEntry]] | None = None
        self._hints_of: tuple[tuple[str, str], Mapping[str, str]] | None = None

    def rules(self, commit: str | None) -> Ruleset:
        """Return the rules in force at a commit: the settings, and what its ``.vaultmemoryignore`` adds.

        Raises:
            ConfigError: A root is malformed.
        """
        if self._rules_of is None or self._rules_of[0] != commit:
            self._rules_of = commit, rules_at(self._vault, commit, self._settings.scan)
        return self._rules_of[1]

    def _tree(self, commit: str | None) -> Sequence[TreeEntry]:
        if commit is None:
            return ()
        if self._tree_of is None or self._tree_of[0] != commit:
            self._tree_of = commit, self._vault.tree(commit)
        return self._tree_of[1]

    def is_current(self) -> bool:
        """Whether HEAD is what the store was brought to, under the same rules, and no retry is due."""
        state = self._store.sync_state()
        head = self._vault.head()
        if state.under_way or state.commit != head or state.ruleset_id != self.rules(head).id:
            return False
        return not self._is_due(self._store.next_retry_at()) and not self._reconsidered()

    def _is_due(self, moment: datetime | None) -> bool:
        """Whether the time of a retry has come.

        One further off than any retry is put was written while the clock was wrong: waiting for it could take years.
        """
        now = datetime.now(UTC)
        longest = timedelta(seconds=self._settings.sync.retry_max_seconds)
        return moment is not None and (moment <= now or moment > now + longest)

    def plan(self, *, full: bool = False, retry_all: bool = False) -> VaultPlan:
        """Compare HEAD with the manifest.

        Args:
            full: Every note again, whether it changed or not.
            retry_all: Failed notes at once, not only when their retry is due.
        """
        head = self._vault.head()
        rules = self.rules(head)
        tree = self._tree(head)
        manifest = self._manifest(rules)
        found = changes.plan(
            manifest,
            tree,
            rules,
            tag=self._key.tag,
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
        manifest = self._store.manifest()
        before = self._store.sync_state().ruleset_id
        if before is not None and before != rules.id and same_but_for_paths(before, rules.id):
            for note_id in self._store.judged_notes(before):
                if is_out(note_id, rules):
                    continue  # its line is to give the path as the reason, whatever it was before
                manifest[note_id] = replace(manifest[note_id], ruleset_id=rules.id)
        for note_id in self._reconsidered() & manifest.keys():
            manifest[note_id] = replace(manifest[note_id], ruleset_id="")
        for note_id, entry in manifest.items():
            if entry.next_retry_at is not None and self._is_due(entry.next_retry_at):
                manifest[note_id] = replace(entry, next_retry_at=datetime.min.replace(tzinfo=UTC))
        return manifest

    def _reconsidered(self) -> set[str]:
        """Return the notes that the allow-list lets in or out since they were judged."""
        if self._allowances.refresh():
            self._preparer.forget()  # what was clean by a release may be so no longer
        # A note that failed waits for its retry: asking again at once would keep a provider that is down busy.
        changed = {one.note_id for one in self.ended_releases() if one.is_settled}
        sources = self._allowances.sources
        held_back = self._store.held_back(sources) if sources else ()
        return changed | {note_id for note_id, tag, rules in held_back if self._allowances.covers(note_id, tag, rules)}

    def ended_releases(self) -> list[Release]:
        """Return the releases in memory that the allow-list does not grant any more."""
        return [
            one
            for one in self._store.releases()
            if not self._allowances.holds(one.note_id, one.rule, one.content_hmac, one.expires_at)
        ]

    def _rename_hints(self, head: str | None) -> Mapping[str, str]:
        base = self._store.sync_state().commit
        if base is None or head is None or base == head:
            return {}
        if self._hints_of is None or self._hints_of[0] != (base, head):
            try:
                pairs = self._vault.renames(base, head)
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
                f"{self._vault.empty_head}, and {plan.searchable} notes are in memory; "
                "if they are to be deleted, run: vault-memory sync --allow-mass-deletion"
            )
        limit = self._settings.sync.max_deleted_share
        if plan.searchable >= _GUARDED_NOTES and plan.deletion_share > limit:
            raise MassDeletionError(
                f"{self._vault.head_name} lacks {plan.deletion_share:.0%} of the {plan.searchable} notes in memory "
                f"(limit {limit:.0%}); if that is meant, run: vault-memory sync --allow-mass-deletion"
            )


def items_of(plan: Plan, note_ids: Sequence[str], notes: Collection[str]) -> tuple[Item, ...]:
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


def is_out(note_id: str, rules: Ruleset) -> bool:
    """Whether the rules keep a note out by its path."""
    return rules.path_exclusion(NotePath.from_text(note_id)) is not None


def notes_of(tree: Sequence[TreeEntry], rules: Ruleset) -> frozenset[str]:
    """Return the identities of the files of a tree that are read as notes."""
    return frozenset(
        entry.path.id for entry in tree if entry.kind is EntryKind.FILE and rules.path_exclusion(entry.path) is None
    )
