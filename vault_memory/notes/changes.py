"""The planner: what has to happen so that the store equals a commit.

Belongs here: the comparison of the manifest (what the store says it holds) with the tree of the wanted commit.
Does not: how the manifest is read, how a note is scanned, or how an action is carried out.

The plan depends on the manifest and the tree alone, never on the commits between them. A history that was
rewritten, lost or never seen cannot lead it astray; hints about renames only save work.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

from vault_memory.notes.model import EntryKind, ExclusionReason, NoteStatus, SkipReason, TreeEntry
from vault_memory.notes.paths import NotePath, distinct, spelling_order

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

RetryFailed: TypeAlias = bool | Literal["due"]
ForgetReason: TypeAlias = Literal["deleted"] | ExclusionReason | SkipReason

_TRACED_STATUSES: Final = frozenset({NoteStatus.INDEXED, NoteStatus.QUARANTINED, NoteStatus.FAILED})
_HASHED_STATUSES: Final = frozenset({NoteStatus.QUARANTINED, NoteStatus.EXCLUDED})
_SKIPPED_KINDS: Final = {kind: SkipReason(kind.value) for kind in EntryKind if kind is not EntryKind.FILE}


class PathRules(Protocol):
    """What the planner needs of the rules in force."""

    @property
    def id(self) -> str:
        """Digest of the rules; another digest means that every note is looked at again."""
        ...

    def path_exclusion(self, path: NotePath) -> ExclusionReason | None:
        """Return why a path is left out, by its name alone."""
        ...


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """What the store says of one tracked file.

    Attributes:
        id: Identity of the note.
        status: How it ended when it was last looked at.
        blob_tag: Its blob id then; the keyed hash of it where quarantined or excluded.
        ruleset_id: The rules it was looked at with.
        next_retry_at: For a failed note, or one that was not scanned in time, when to try again; None: never by itself.
        has_rows: Whether the search tables hold the note, perhaps in an older version.
        row_blob_id: Blob id of the version in the search tables.
        forgotten: Whether its owner had this version taken out by hand; no rules and no ``full`` bring it back.
    """

    id: str
    status: NoteStatus
    blob_tag: str
    ruleset_id: str
    next_retry_at: datetime | None = None
    has_rows: bool = False
    row_blob_id: str | None = None
    forgotten: bool = False


@dataclass(frozen=True, slots=True)
class Upsert:
    """Scan the note and write what comes of it: rows, a quarantine or an exclusion.

    Attributes:
        path: The note.
        blob_id: The content to read.
        previous: Its status so far; None: it is new.
    """

    path: NotePath
    blob_id: str
    previous: NoteStatus | None

    @property
    def ids(self) -> tuple[str, ...]:
        """The note's identity."""
        return (self.path.id,)


@dataclass(frozen=True, slots=True)
class Forget:
    """Remove every trace of a note from the store: rows, vectors, state.

    Attributes:
        id: The note.
        reason: Why: ``deleted``, or what its path or kind says now (a ``Settle`` of the same id then follows).
    """

    id: str
    reason: ForgetReason

    @property
    def ids(self) -> tuple[str, ...]:
        """The note's identity."""
        return (self.id,)


@dataclass(frozen=True, slots=True)
class Rename:
    """Forget ``old_id`` and write the note at ``path``, in one transaction.

    ``old_id`` is not in the tree any more, so that no other action writes it.
    """

    old_id: str
    path: NotePath
    blob_id: str

    @property
    def ids(self) -> tuple[str, ...]:
        """The old and the new identity."""
        return (self.old_id, self.path.id)


Action: TypeAlias = Upsert | Forget | Rename


@dataclass(frozen=True, slots=True)
class Settle:
    """Record the state of a file that is never read.

    Attributes:
        id: Identity; its own spelling for the loser of a name collision.
        path: The file.
        status: ``excluded`` or ``skipped``.
        reason: Why.
        blob_id: Object id in the tree.
    """

    id: str
    path: NotePath
    status: NoteStatus
    reason: ExclusionReason | SkipReason
    blob_id: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What has to happen, in the order in which it should.

    Attributes:
        actions: What needs a run: removals first, then renames, edits, new notes, retries; by id within each.
        settled: What needs only a line in the manifest. Carry out a ``Forget`` of the same id before it.
        unchanged: Files of the tree that are as the manifest says.
        deferred: Failed notes of the tree whose time to retry has not come.
        links: Pairs of ids between which content moved while both stay in the tree (a swap). They share a batch
            where they fit, so that vectors are still there to be reused; nothing but cost depends on it.
    """

    actions: tuple[Action, ...] = ()
    settled: tuple[Settle, ...] = ()
    unchanged: int = 0
    deferred: int = 0
    links: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def note_ids(self) -> tuple[str, ...]:
        """The ids that need a run, each once, in the order of the actions; both ids of a rename."""
        return tuple(dict.fromkeys(note_id for action in self.actions for note_id in action.ids))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be done now."""
        return not self.actions and not self.settled

    def for_ids(self, ids: Collection[str]) -> tuple[Action, ...]:
        """Return the actions that touch any of the ids."""
        chosen = set(ids)
        return tuple(action for action in self.actions if not chosen.isdisjoint(action.ids))

    def batches(self, max_notes: int) -> tuple[tuple[str, ...], ...]:
        """Cut ``note_ids`` into runs of at most ``max_notes``; the two ids of a rename are never parted.

        Raises:
            ValueError: ``max_notes`` is less than 1.
        """
        if max_notes < 1:
            message = "a batch takes at least one note"
            raise ValueError(message)
        batches: list[list[str]] = []
        for group in self._groups(max_notes):
            if not batches or len(batches[-1]) + len(group) > max_notes:
                batches.append([])
            batches[-1].extend(group)
        return tuple(tuple(batch) for batch in batches)

    def _groups(self, max_notes: int) -> Iterator[tuple[str, ...]]:
        """Yield ids that belong into one batch, in the order of their first action."""
        pairs = {note_id: action.ids for action in self.actions for note_id in action.ids}
        neighbours: defaultdict[str, list[str]] = defaultdict(list)
        for old, new in self.links:
            neighbours[old].append(new)
            neighbours[new].append(old)
        done: set[str] = set()
        for first in self.note_ids:
            if first in done:
                continue
            group: dict[str, None] = {}
            waiting = [first]
            while waiting:
                note_id = waiting.pop()
                if note_id in group or note_id in done or note_id not in pairs:
                    continue
                pair = pairs[note_id]
                if group and len(group) + len(pair) > max_notes:
                    break  # a long chain is cut between its notes
                group.update(dict.fromkeys(pair))
                waiting.extend(neighbour for item in reversed(pair) for neighbour in neighbours[item])
            done.update(group)
            yield tuple(group)


def plan(
    manifest: Mapping[str, ManifestEntry],
    tree: Sequence[TreeEntry],
    rules: PathRules,
    *,
    tag: Callable[[str], str],
    now: datetime,
    full: bool = False,
    retry_failed: RetryFailed = "due",
    renames: Mapping[str, str] | None = None,
) -> Plan:
    """Compare the manifest with the tree.

    Every entry of the tree ends in exactly one of: unchanged, deferred, ``Upsert``, target of a ``Rename``,
    ``Settle``. Every id of the manifest that is not in the tree ends in a ``Forget`` or as source of a ``Rename``.

    Args:
        manifest: By id.
        tree: The Markdown files of the wanted commit, in any order.
        rules: The rules in force.
        tag: Keyed hash of a blob id, as the manifest holds it for quarantined and excluded notes.
        now: Aware time against which retries are due.
        full: Look at every note again.
        retry_failed: ``"due"``: failed notes whose time has come; True: all of them; False: none.
        renames: Hints: new id to old id. A hint that does not fit is ignored.
    """
    planner = _Planner(manifest, rules, tag, now, full, retry_failed)
    for entry, path, lost in identified(tree):
        planner.look_at(entry, path, lost=lost)
    return planner.finish(renames or {})


def deletion_share(plan: Plan, manifest: Mapping[str, ManifestEntry]) -> float:
    """Return the share (0 to 1) of the searchable notes that the plan would delete because their files are gone.

    Notes that new rules exclude do not count: hiding them must never wait for anybody.
    """
    searchable = {entry.id for entry in manifest.values() if entry.has_rows}
    lost = {
        action.id
        for action in plan.actions
        if isinstance(action, Forget) and not isinstance(action.reason, ExclusionReason)
    }
    return len(searchable & lost) / len(searchable) if searchable else 0.0


@dataclass(slots=True)
class _Planner:
    """Gathers decisions about single files, then pairs what vanished with what appeared."""

    manifest: Mapping[str, ManifestEntry]
    rules: PathRules
    tag: Callable[[str], str]
    now: datetime
    full: bool
    retry_failed: RetryFailed
    seen: set[str] = field(default_factory=set)
    upserts: dict[str, Upsert] = field(default_factory=dict)
    arriving: dict[str, str] = field(default_factory=dict)  # ids that get content they did not have, and its blob id
    forgotten: dict[str, ForgetReason] = field(default_factory=dict)
    settled: list[Settle] = field(default_factory=list)
    unchanged: int = 0
    deferred: int = 0

    def look_at(self, entry: TreeEntry, path: NotePath, *, lost: bool) -> None:
        """Decide about one file of the tree.

        Args:
            entry: As the tree has it.
            path: Under the identity it got.
            lost: Whether another file has its NFC identity.
        """
        self.seen.add(path.id)
        excluded = self.rules.path_exclusion(entry.path)
        if excluded is not None:
            self._settle(path, entry.blob_id, NoteStatus.EXCLUDED, excluded)
        elif lost:
            self._settle(path, entry.blob_id, NoteStatus.SKIPPED, SkipReason.NAME_COLLISION)
        elif entry.kind is not EntryKind.FILE:
            self._settle(path, entry.blob_id, NoteStatus.SKIPPED, _SKIPPED_KINDS[entry.kind])
        else:
            self._note(path, entry.blob_id)

    def finish(self, hints: Mapping[str, str]) -> Plan:
        """Account for what is in the manifest only, and put everything in order."""
        gone = self.manifest.keys() - self.seen
        searchable = {note_id for note_id, entry in self.manifest.items() if entry.has_rows}
        leaving = {
            note_id: blob_id
            for note_id in searchable
            if (blob_id := _row_blob(self.manifest[note_id])) and self._leaves(note_id, blob_id)
        }
        moves = _exact_moves(leaving, self.arriving, gone, hints)
        free = (gone & searchable).difference(moves.values())
        for new, old in sorted(hints.items()):  # git's hints of moves with an edit
            if new in self.arriving and new not in moves and old in free:
                moves[new] = old
                free.remove(old)
        renamed = {new: old for new, old in moves.items() if old in gone}
        actions: list[Action] = [
            Rename(renamed[note_id], upsert.path, upsert.blob_id) if note_id in renamed else upsert
            for note_id, upsert in self.upserts.items()
        ]
        self.forgotten.update(dict.fromkeys(gone.difference(renamed.values()), "deleted"))
        actions.extend(Forget(note_id, reason) for note_id, reason in self.forgotten.items())
        links = sorted((old, new) for new, old in moves.items() if old not in gone)
        return Plan(
            actions=tuple(sorted(actions, key=_order)),
            settled=tuple(sorted(self.settled, key=lambda item: item.id)),
            unchanged=self.unchanged,
            deferred=self.deferred,
            links=tuple(links),
        )

    def _settle(self, path: NotePath, blob_id: str, status: NoteStatus, reason: ExclusionReason | SkipReason) -> None:
        entry = self.manifest.get(path.id)
        # A quarantined note has no rows, but its line in the audit table goes with it; that of a note which was
        # quarantined before it failed is still open too.
        if entry is not None and (entry.has_rows or entry.status in _TRACED_STATUSES):
            self.forgotten[path.id] = reason
        elif entry is not None and entry.status is status and self._is_current(entry, blob_id):
            self.unchanged += 1
            return
        self.settled.append(Settle(path.id, path, status, reason, blob_id))

    def _note(self, path: NotePath, blob_id: str) -> None:
        entry = self.manifest.get(path.id)
        if entry is not None and entry.forgotten and not entry.has_rows and entry.blob_tag == self.tag(blob_id):
            self.unchanged += 1
            return
        if entry is not None and not self.full and self._is_current(entry, blob_id):
            if entry.status is NoteStatus.FAILED:
                if not self._retry_is_due(entry):
                    self.deferred += 1
                    return
            elif _is_consistent(entry) and not self._was_late(entry):
                self.unchanged += 1
                return
        self.upserts[path.id] = Upsert(path, blob_id, None if entry is None else entry.status)
        if entry is None or not entry.has_rows or _row_blob(entry) != blob_id:
            self.arriving[path.id] = blob_id

    def _is_current(self, entry: ManifestEntry, blob_id: str) -> bool:
        """Return whether a file was looked at with this content and these rules."""
        expected = self.tag(blob_id) if entry.status in _HASHED_STATUSES else blob_id
        return entry.ruleset_id == self.rules.id and entry.blob_tag == expected

    def _was_late(self, entry: ManifestEntry) -> bool:
        """Whether a quarantined note was not scanned in time and is due again: the machine may have been busy."""
        return entry.status is NoteStatus.QUARANTINED and entry.next_retry_at is not None and self._retry_is_due(entry)

    def _retry_is_due(self, entry: ManifestEntry) -> bool:
        if self.retry_failed != "due":
            return self.retry_failed
        return entry.next_retry_at is not None and entry.next_retry_at <= self.now

    def _leaves(self, note_id: str, blob_id: str) -> bool:
        """Return whether the version in the search tables will not be at this id any more."""
        if note_id in self.upserts:
            return self.upserts[note_id].blob_id != blob_id
        return note_id not in self.seen or note_id in self.forgotten


def identified(tree: Iterable[TreeEntry]) -> Iterator[tuple[TreeEntry, NotePath, bool]]:
    """Give every file an identity of its own, whatever the order of the tree.

    Of files whose names differ only in Unicode normalisation one is the note; the others go under their own
    spelling, which is nobody's identity, since it is not NFC. Bytes that are no UTF-8 all read as U+FFFD, so those
    that lose get a digest.
    """
    groups: defaultdict[str, list[TreeEntry]] = defaultdict(list)
    for entry in tree:
        groups[entry.path.id].append(entry)
    taken = set(groups)
    for note_id in sorted(groups):
        first, *others = sorted(groups[note_id], key=lambda entry: spelling_order(entry.path))
        yield first, first.path, False
        for entry in others:
            path = distinct(entry.path)
            if unicodedata.is_normalized("NFC", path.id):
                path = _with_digest(path)
            while path.id in taken:
                path = _with_digest(path)
            taken.add(path.id)
            yield entry, path, True


def _with_digest(path: NotePath) -> NotePath:
    return NotePath(f"{path.id} [{hashlib.sha256(path.raw).hexdigest()}].md", path.raw)


def _exact_moves(
    leaving: Mapping[str, str], arriving: Mapping[str, str], gone: Collection[str], hints: Mapping[str, str]
) -> dict[str, str]:
    """Pair ids by equal content, new to old, each id once; files that vanished before files that changed."""
    olds_of: defaultdict[str, list[str]] = defaultdict(list)
    for old in sorted(leaving):
        olds_of[leaving[old]].append(old)
    news_of: defaultdict[str, list[str]] = defaultdict(list)
    for new in sorted(arriving):
        if arriving[new] in olds_of:
            news_of[arriving[new]].append(new)
    moves: dict[str, str] = {}
    for blob_id, news in news_of.items():
        vanished = [old for old in olds_of[blob_id] if old in gone]
        changed = [old for old in olds_of[blob_id] if old not in gone]
        for olds in (vanished, changed):
            moves.update(_match(olds, [new for new in news if new not in moves], hints))
    return moves


def _match(olds: Sequence[str], news: Sequence[str], hints: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Pair new with old ids of the same content: by hint, then by file name, then in order."""
    free = dict.fromkeys(olds)
    unhinted: list[str] = []
    for new in news:
        old = hints.get(new)
        if old is not None and old in free:
            del free[old]
            yield new, old
        else:
            unhinted.append(new)
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for old in reversed(free):
        by_name[_name(old)].append(old)
    rest: list[str] = []
    for new in unhinted:
        same_name = by_name[_name(new)]
        if same_name:
            old = same_name.pop()
            del free[old]
            yield new, old
        else:
            rest.append(new)
    yield from zip(rest, free, strict=False)


def _name(note_id: str) -> str:
    return note_id.rpartition("/")[2]


def _row_blob(entry: ManifestEntry) -> str | None:
    """Return the blob of the version in the search tables, where it is known."""
    if entry.row_blob_id is None and entry.status is NoteStatus.INDEXED:
        return entry.blob_tag
    return entry.row_blob_id


def _is_consistent(entry: ManifestEntry) -> bool:
    """Return whether the search tables hold what the status says; if not, the note is looked at again."""
    if entry.status is NoteStatus.INDEXED:
        return entry.has_rows and _row_blob(entry) == entry.blob_tag
    return entry.status in _HASHED_STATUSES and not entry.has_rows


def _order(action: Action) -> tuple[int, str]:
    """Sort key: what must not be found any more first, what failed before last."""
    match action:
        case Forget():
            return 0, action.id
        case Rename():
            return 1, action.path.id
        case Upsert(previous=None):
            return 3, action.path.id
        case Upsert(previous=NoteStatus.FAILED):
            return 4, action.path.id
        case Upsert():
            return 2, action.path.id
