"""The planner: named cases, and properties over all small vaults."""

import random
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vault_memory.notes.changes import (
    Action,
    Forget,
    ManifestEntry,
    Plan,
    Rename,
    Settle,
    Upsert,
    deletion_share,
    plan,
)
from vault_memory.notes.model import EntryKind, ExclusionReason, NoteStatus, TreeEntry
from vault_memory.notes.paths import NotePath

DETERMINISTIC = settings(
    derandomize=True, deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow]
)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def tag(blob_id: str) -> str:
    """Stand in for the keyed hash."""
    return f"tag-of-{blob_id}"


@dataclass(frozen=True)
class Rules:
    """Rules that leave out whole top-level folders."""

    id: str = "rules-1"
    folders: frozenset[str] = frozenset({"out"})

    def path_exclusion(self, path: NotePath) -> ExclusionReason | None:
        """Leave out what lies in one of the folders."""
        return ExclusionReason.DIRECTORY if path.parts[0] in self.folders else None


def entry(name: str | bytes, blob_id: str, kind: EntryKind = EntryKind.FILE) -> TreeEntry:
    """Make a tree entry."""
    return TreeEntry(NotePath.from_bytes(name if isinstance(name, bytes) else name.encode()), blob_id, kind)


def files(**blobs: str) -> list[TreeEntry]:
    """Make a tree of files: name without suffix to blob."""
    return [entry(f"{name}.md", blob_id) for name, blob_id in blobs.items()]


def indexed(note_id: str, blob_id: str, **changed: object) -> ManifestEntry:
    """Make the line of an indexed note."""
    line = ManifestEntry(note_id, NoteStatus.INDEXED, blob_id, "rules-1", None, has_rows=True, row_blob_id=blob_id)
    return replace(line, **changed)


def failed(note_id: str, blob_id: str, **changed: object) -> ManifestEntry:
    """Make the line of a note that failed when it was new."""
    return replace(ManifestEntry(note_id, NoteStatus.FAILED, blob_id, "rules-1"), **changed)


def manifest_of(*lines: ManifestEntry) -> dict[str, ManifestEntry]:
    """Key lines by id."""
    return {line.id: line for line in lines}


def planned(lines: Sequence[ManifestEntry], tree: Sequence[TreeEntry], **options: object) -> Plan:
    """Plan with the usual rules and time."""
    return plan(manifest_of(*lines), tree, options.pop("rules", Rules()), tag=tag, now=NOW, **options)


def summary(result: Plan) -> list[str]:
    """Write actions and settled files in short."""
    words = []
    for action in (*result.actions, *result.settled):
        match action:
            case Upsert():
                words.append(f"write {action.path.id} {action.blob_id} ({action.previous or 'new'})")
            case Rename():
                words.append(f"rename {action.old_id} to {action.path.id} {action.blob_id}")
            case Forget():
                words.append(f"forget {action.id} ({action.reason})")
            case Settle():
                words.append(f"settle {action.id} {action.status} ({action.reason})")
    return words


class TestSingleNotes:
    """One file, one decision."""

    def test_new_changed_deleted_and_unchanged(self) -> None:
        """Removals come first, then edits, then new notes; what is as before is only counted."""
        lines = [indexed("same.md", "1"), indexed("edited.md", "2"), indexed("gone.md", "3")]

        result = planned(lines, files(same="1", edited="22", added="4"))

        assert ["forget gone.md (deleted)", "write edited.md 22 (indexed)", "write added.md 4 (new)"] == summary(result)
        assert (1, 0) == (result.unchanged, result.deferred)
        assert ("gone.md", "edited.md", "added.md") == result.note_ids

    def test_mode_change_is_nothing(self) -> None:
        """A file whose mode changed has the same blob, and nothing is to be done."""
        assert planned([indexed("a.md", "1")], files(a="1")).is_empty

    @pytest.mark.parametrize("status", [NoteStatus.QUARANTINED, NoteStatus.EXCLUDED])
    def test_kept_out_by_content(self, status: NoteStatus) -> None:
        """A note that its content keeps out stays out until the content or the rules change."""
        line = ManifestEntry("a.md", status, tag("1"), "rules-1")

        assert planned([line], files(a="1")).is_empty
        assert [f"write a.md 2 ({status})"] == summary(planned([line], files(a="2")))
        assert [f"write a.md 1 ({status})"] == summary(planned([line], files(a="1"), rules=Rules("rules-2")))
        assert [f"write a.md 1 ({status})"] == summary(planned([line], files(a="1"), full=True))

    @pytest.mark.parametrize("status", [NoteStatus.QUARANTINED, NoteStatus.EXCLUDED])
    def test_a_plain_blob_id_is_no_tag(self, status: NoteStatus) -> None:
        """The manifest of a secret note holds no blob id; one that does is written anew."""
        assert not planned([ManifestEntry("a.md", status, "1", "rules-1")], files(a="1")).is_empty

    def test_rows_of_a_quarantined_note_are_mended(self) -> None:
        """Rows where there must be none, none where there must be some, or of another version: looked at again."""
        for line in (
            ManifestEntry("a.md", NoteStatus.QUARANTINED, tag("1"), "rules-1", has_rows=True, row_blob_id="1"),
            indexed("a.md", "1", has_rows=False, row_blob_id=None),
            indexed("a.md", "1", row_blob_id="0"),
        ):
            assert ("a.md",) == planned([line], files(a="1")).note_ids

    @pytest.mark.parametrize(
        ("due", "retry_failed", "written"),
        [
            (None, "due", False),
            (None, True, True),
            (NOW, "due", True),
            (NOW - timedelta(seconds=1), "due", True),
            (NOW + timedelta(seconds=1), "due", False),
            (NOW + timedelta(seconds=1), True, True),
            (NOW - timedelta(seconds=1), False, False),
        ],
    )
    def test_retries(self, due: datetime | None, retry_failed: object, written: bool) -> None:  # noqa: FBT001 - a table
        """A failed note is tried again when its time has come, or on demand; until then it is counted."""
        result = planned([failed("a.md", "1", next_retry_at=due)], files(a="1"), retry_failed=retry_failed)

        assert (["write a.md 1 (failed)"] if written else []) == summary(result)
        assert (0 if written else 1) == result.deferred

    def test_a_failed_note_does_not_wait_when_it_changed(self) -> None:
        """New content, new rules or a full run try at once."""
        line = failed("a.md", "1", next_retry_at=NOW + timedelta(hours=1))

        assert ["write a.md 2 (failed)"] == summary(planned([line], files(a="2")))
        assert ["write a.md 1 (failed)"] == summary(planned([line], files(a="1"), rules=Rules("rules-2")))
        assert ["write a.md 1 (failed)"] == summary(planned([line], files(a="1"), full=True))

    def test_full_takes_every_note(self) -> None:
        """A full run writes what is unchanged too, but never reads what is settled by its path."""
        lines = [indexed("a.md", "1"), ManifestEntry("out/b.md", NoteStatus.EXCLUDED, tag("2"), "rules-1")]

        result = planned(lines, [*files(a="1"), entry("out/b.md", "2")], full=True)

        assert ["write a.md 1 (indexed)"] == summary(result)


class TestSettled:
    """Files that are never read."""

    def test_reasons(self) -> None:
        """Excluded paths, links and submodules are settled, once."""
        tree = [
            entry("out/a.md", "1"),
            entry("link.md", "2", EntryKind.SYMLINK),
            entry("sub.md", "3", EntryKind.SUBMODULE),
        ]
        result = planned([], tree)

        assert [
            "settle link.md skipped (symlink)",
            "settle out/a.md excluded (directory)",
            "settle sub.md skipped (submodule)",
        ] == summary(result)
        assert () == result.note_ids
        assert not result.is_empty

    def test_new_rules_hide_an_indexed_note(self) -> None:
        """A note that the rules exclude by now is forgotten with that reason, and settled (B38)."""
        rules = Rules("rules-2", frozenset({"private"}))

        result = planned([indexed("private/a.md", "1")], [entry("private/a.md", "1")], rules=rules)

        assert ["forget private/a.md (directory)", "settle private/a.md excluded (directory)"] == summary(result)
        assert ("private/a.md",) == result.note_ids

    def test_a_quarantined_note_that_is_excluded_leaves_the_audit(self) -> None:
        """A quarantined note has no rows, but its audit line is forgotten too."""
        line = ManifestEntry("out/a.md", NoteStatus.QUARANTINED, tag("1"), "rules-0")

        assert ["forget out/a.md (directory)", "settle out/a.md excluded (directory)"] == summary(
            planned([line], [entry("out/a.md", "1")])
        )

    def test_loosened_rules_bring_a_note_back(self) -> None:
        """A path that is allowed by now is read."""
        line = ManifestEntry("out/a.md", NoteStatus.EXCLUDED, tag("1"), "rules-1")

        result = planned([line], [entry("out/a.md", "1")], rules=Rules("rules-2", frozenset()))

        assert ["write out/a.md 1 (excluded)"] == summary(result)

    @pytest.mark.parametrize("kind", sorted(set(EntryKind) - {EntryKind.FILE}))
    def test_a_note_becomes_a_link_and_comes_back(self, kind: EntryKind) -> None:
        """A link or submodule in a note's place takes its rows away; the note comes back, even with the same blob."""
        away = planned([indexed("a.md", "1")], [entry("a.md", "1", kind)])
        assert [f"forget a.md ({kind})", f"settle a.md skipped ({kind})"] == summary(away)

        back = planned([ManifestEntry("a.md", NoteStatus.SKIPPED, "1", "rules-1")], files(a="1"))
        assert ["write a.md 1 (skipped)"] == summary(back)

    def test_a_note_becomes_a_folder(self) -> None:
        """``a.md`` deleted and ``a.md/b.md`` added are two notes; with the same content it is a move."""
        assert ["forget a.md (deleted)", "write a.md/b.md 2 (new)"] == summary(
            planned([indexed("a.md", "1")], [entry("a.md/b.md", "2")])
        )
        assert ["rename a.md to a.md/b.md 1"] == summary(planned([indexed("a.md", "1")], [entry("a.md/b.md", "1")]))

    def test_rows_that_outlived_a_settlement_are_forgotten(self) -> None:
        """If a crash left rows of an excluded note, the next plan removes them."""
        line = ManifestEntry("out/a.md", NoteStatus.EXCLUDED, tag("1"), "rules-1", has_rows=True, row_blob_id="1")

        assert "forget out/a.md (directory)" in summary(planned([line], [entry("out/a.md", "1")]))


NFC = "é.md"
NFD = unicodedata.normalize("NFD", NFC)


class TestCollisions:
    """Names that differ only in Unicode normalisation."""

    def test_nfc_wins(self) -> None:
        """Of an NFC and an NFD file the first is the note, the other is skipped under its own spelling (B26)."""
        tree = [entry(NFD, "1"), entry(NFC, "2")]

        result = planned([], tree)

        assert [f"write {NFC} 2 (new)", f"settle {NFD} skipped (name_collision)"] == summary(result)
        assert summary(result) == summary(planned([], tree[::-1]))

    def test_the_loser_takes_over(self) -> None:
        """When the winner is deleted the other file is the note, and its old line goes."""
        lines = [indexed(NFC, "2"), ManifestEntry(NFD, NoteStatus.SKIPPED, "1", "rules-1")]

        assert [f"forget {NFD} (deleted)", f"write {NFC} 1 (indexed)"] == summary(planned(lines, [entry(NFD, "1")]))

    def test_lowest_bytes_win_without_nfc(self) -> None:
        """Without an NFC spelling the lowest bytes are the note; each loser has an id of its own."""
        composed = unicodedata.normalize("NFC", "éü.md")
        spellings = [
            unicodedata.normalize("NFD", "é") + "ü.md",
            "é" + unicodedata.normalize("NFD", "ü") + ".md",
            unicodedata.normalize("NFD", "éü.md"),
        ]

        result = planned([], [entry(name, str(number)) for number, name in enumerate(spellings)])

        winner, *losers = sorted(spellings, key=str.encode)
        assert [(composed, winner.encode())] == [(item.path.id, item.path.raw) for item in result.actions]
        assert sorted(losers) == [item.id for item in result.settled]

    def test_unreadable_bytes_that_meet(self) -> None:
        """A file named as another one's replacement, and losers whose spellings meet, are all told apart."""
        broken = b"a\xff.md"
        twin = NotePath.from_bytes(broken).id
        tree = [entry(broken, "1"), entry(twin, "2"), entry("a�.md", "3")]

        result = planned([], tree)

        assert {twin: "2", "a�.md": "3"} == {item.path.id: item.blob_id for item in result.actions}
        assert [b"a\xff.md"] == [item.path.raw for item in result.settled]
        assert result.settled[0].id not in {twin, "a�.md"}


class TestRenames:
    """Content that moves."""

    def test_equal_content_needs_no_hint(self) -> None:
        """A vanished note whose blob appears elsewhere was moved; also in case only."""
        assert ["rename a.md to b.md 1"] == summary(planned([indexed("a.md", "1")], files(b="1")))
        assert ["rename a.md to A.md 1"] == summary(planned([indexed("a.md", "1")], files(A="1")))

    def test_hint_with_an_edit(self) -> None:
        """Git's hint joins a vanished note with a new one of other content."""
        lines = [indexed("a.md", "1"), indexed("c.md", "3")]

        assert ["rename a.md to b.md 2"] == summary(planned(lines, files(b="2", c="3"), renames={"b.md": "a.md"}))

    @pytest.mark.parametrize(
        "hints", [{"b.md": "c.md"}, {"b.md": "never.md"}, {"c.md": "a.md"}, {"never.md": "a.md"}, {"b.md": "b.md"}]
    )
    def test_hints_that_do_not_fit_are_ignored(self, hints: dict[str, str]) -> None:
        """A hint from or to a note that did not vanish or appear changes nothing."""
        lines = [indexed("a.md", "1"), indexed("c.md", "3")]

        assert ["forget a.md (deleted)", "write b.md 2 (new)"] == summary(
            planned(lines, files(b="2", c="3"), renames=hints)
        )

    def test_a_note_moves_once(self) -> None:
        """Of two hints from one note the first new name gets it."""
        result = planned([indexed("a.md", "1")], files(b="2", c="3"), renames={"c.md": "a.md", "b.md": "a.md"})

        assert ["rename a.md to b.md 2", "write c.md 3 (new)"] == summary(result)

    def test_a_copy_is_no_rename(self) -> None:
        """As long as the old file is there, equal content elsewhere is a new note."""
        assert ["write b.md 1 (new)"] == summary(planned([indexed("a.md", "1")], files(a="1", b="1")))

    def test_a_failed_note_with_rows_moves(self) -> None:
        """What counts is the version in the search tables."""
        line = failed("a.md", "2", has_rows=True, row_blob_id="1")

        assert ["rename a.md to b.md 1"] == summary(planned([line], files(b="1")))

    def test_a_note_without_rows_does_not_move(self) -> None:
        """There is nothing to reuse of a quarantined note."""
        line = ManifestEntry("a.md", NoteStatus.QUARANTINED, tag("1"), "rules-1")

        assert ["forget a.md (deleted)", "write b.md 1 (new)"] == summary(planned([line], files(b="1")))

    def test_a_move_out_of_the_roots(self) -> None:
        """A note that moves to an excluded folder is forgotten there."""
        result = planned([indexed("a.md", "1")], [entry("out/a.md", "1")])

        assert ["forget a.md (deleted)", "settle out/a.md excluded (directory)"] == summary(result)

    def test_several_of_equal_content(self) -> None:
        """With many equal files hints decide, then file names, then order; nobody moves twice."""
        lines = [indexed(f"old/{name}.md", "empty") for name in "abcd"]
        tree = [entry(f"new/{name}.md", "empty") for name in ("d", "c", "x", "y", "z")]

        result = planned(lines, tree, renames={"new/y.md": "old/a.md"})

        assert [
            "rename old/c.md to new/c.md empty",
            "rename old/d.md to new/d.md empty",
            "rename old/b.md to new/x.md empty",
            "rename old/a.md to new/y.md empty",
            "write new/z.md empty (new)",
        ] == summary(result)
        assert summary(result) == summary(planned(lines[::-1], tree[::-1], renames={"new/y.md": "old/a.md"}))

    def test_onto_another_note(self) -> None:
        """``git mv -f a b``: b's old version is overwritten, a is forgotten with it."""
        assert ["rename a.md to b.md 1"] == summary(planned([indexed("a.md", "1"), indexed("b.md", "2")], files(b="1")))

    def test_swap(self) -> None:
        """Two notes that trade places are both written, in one run; neither is forgotten."""
        lines = [indexed("a.md", "1"), indexed("b.md", "2"), indexed("c.md", "3")]

        result = planned(lines, files(a="3", b="22", c="1"))

        assert ["write a.md 3 (indexed)", "write b.md 22 (indexed)", "write c.md 1 (indexed)"] == summary(result)
        assert (("a.md", "c.md"), ("b.md",)) == result.batches(2)

    def test_chain(self) -> None:
        """``b`` to ``c`` and ``a`` to ``b`` in one commit: one rename, one new note, one run."""
        lines = [indexed("a.md", "1"), indexed("b.md", "2")]

        result = planned(lines, files(b="1", c="2"))

        assert ["rename a.md to b.md 1", "write c.md 2 (new)"] == summary(result)
        assert (("a.md", "b.md", "c.md"),) == result.batches(3)


class TestBatches:
    """Cutting a plan into runs."""

    def test_sizes(self) -> None:
        """Batches are full but the last, and together they are the plan."""
        result = planned([], files(**{f"n{number:03d}": str(number) for number in range(25)}))

        batches = result.batches(10)

        assert [10, 10, 5] == [len(batch) for batch in batches]
        assert result.note_ids == tuple(note_id for batch in batches for note_id in batch)

    def test_both_ids_of_a_rename_stay_together(self) -> None:
        """Even a batch of one note takes both names."""
        result = planned([indexed("a.md", "1"), indexed("b.md", "2")], files(c="1", d="2", e="3"))

        assert (("a.md", "c.md"), ("b.md", "d.md"), ("e.md",)) == result.batches(1)
        assert (("a.md", "c.md"), ("b.md", "d.md", "e.md")) == result.batches(3)

    def test_a_chain_longer_than_a_run_is_cut(self) -> None:
        """A renumbering of a thousand notes does not make a run of a thousand."""
        lines = [indexed(f"{number:04d}.md", f"b{number}") for number in range(1000)]
        tree = [entry(f"{number + 1:04d}.md", f"b{number}") for number in range(1000)]

        batches = planned(lines, tree).batches(300)

        assert max(len(batch) for batch in batches) <= 300
        assert 1001 == sum(len(batch) for batch in batches)

    def test_less_than_one_is_refused(self) -> None:
        """A batch without a note would never end."""
        with pytest.raises(ValueError, match="at least one"):
            Plan().batches(0)

    def test_for_ids(self) -> None:
        """The actions of a batch are found by any of its ids."""
        result = planned([indexed("a.md", "1"), indexed("x.md", "9")], files(b="1", c="2"))

        assert [Rename] == [type(action) for action in result.for_ids(["a.md"])]
        assert [Rename] == [type(action) for action in result.for_ids(["b.md"])]
        assert [Forget, Upsert] == [type(action) for action in result.for_ids({"c.md", "x.md", "unknown"})]
        assert () == result.for_ids([])


class TestDeletionShare:
    """The figure behind the guard against mass deletion."""

    def test_only_vanished_notes_with_rows_count(self) -> None:
        """Renames, exclusions and notes without rows are no loss."""
        lines = [
            indexed("gone.md", "1"),
            indexed("moved.md", "2"),
            indexed("out/hidden.md", "3"),
            indexed("kept.md", "4"),
            ManifestEntry("secret.md", NoteStatus.QUARANTINED, tag("5"), "rules-1"),
        ]
        result = planned(lines, [*files(new="2", kept="4"), entry("out/hidden.md", "3")])

        assert 0.25 == deletion_share(result, manifest_of(*lines))

    def test_ends(self) -> None:
        """An empty tree deletes everything; an empty store loses nothing."""
        lines = [indexed("a.md", "1"), indexed("b.md", "2")]

        assert 1.0 == deletion_share(planned(lines, []), manifest_of(*lines))
        assert 0.0 == deletion_share(planned([], files(a="1")), {})

    def test_a_note_behind_a_link_is_lost(self) -> None:
        """Notes that all became links (git-annex, a broken checkout) count as deleted."""
        lines = [indexed("a.md", "1")]

        result = planned(lines, [entry("a.md", "2", EntryKind.SYMLINK)])

        assert 1.0 == deletion_share(result, manifest_of(*lines))


# -- properties ----------------------------------------------------------------------------------------------------

NAMES = [
    "a.md",
    "A.md",
    "b.md",
    "a.md/b.md",
    "x/a.md",
    "out/a.md",
    "private/a.md",
    NFC,
    NFD,
    "x/" + NFC,
    b"\xff.md",
    b"\xfe.md",
    NotePath.from_bytes(b"\xff.md").id,
    "�.md",
]
BLOBS = ["clean-1", "clean-2", "clean-3", "secret-1", "secret-2", "tagged-1", "flaky-1"]


def object_id(blob_id: str, kind: EntryKind) -> str:
    """A submodule's id is a commit's, which no blob has."""
    return blob_id if kind in (EntryKind.FILE, EntryKind.SYMLINK) else f"{kind}-{blob_id}"


trees = st.dictionaries(
    st.sampled_from(NAMES),
    st.tuples(st.sampled_from(BLOBS), st.sampled_from([EntryKind.FILE] * 6 + list(EntryKind))),
).map(lambda tree: [entry(name, object_id(blob_id, kind), kind) for name, (blob_id, kind) in tree.items()])
rulesets = st.sampled_from([Rules(), Rules("rules-2", frozenset()), Rules("rules-3", frozenset({"private", "out"}))])
hints = st.dictionaries(*[st.sampled_from([entry(name, "").path.id for name in NAMES])] * 2)


@dataclass
class Store:
    """The smallest store that carries out plans: the manifest, and the audit lines of quarantined notes."""

    lines: dict[str, ManifestEntry]
    reasons: dict[str, str]
    audit: set[str]
    broken: bool = False  # whether the embedding API is down

    @classmethod
    def empty(cls) -> "Store":
        """Hold nothing."""
        return cls({}, {}, set())

    def apply(self, action: Action | Settle, rules: Rules) -> None:
        """Carry out one action, as one transaction."""
        match action:
            case Forget():
                self.forget(action.id)
            case Rename():
                self.forget(action.old_id)
                self.write(action.path.id, action.blob_id, rules)
            case Upsert():
                self.write(action.path.id, action.blob_id, rules)
            case Settle():
                old = self.lines.get(action.id)
                mark = tag(action.blob_id) if action.status is NoteStatus.EXCLUDED else action.blob_id
                rows = (old.has_rows, old.row_blob_id) if old else (False, None)
                self.lines[action.id] = ManifestEntry(action.id, action.status, mark, rules.id, None, *rows)
                self.reasons[action.id] = action.reason

    def forget(self, note_id: str) -> None:
        """Remove every trace."""
        self.lines.pop(note_id, None)
        self.reasons.pop(note_id, None)
        self.audit.discard(note_id)

    def write(self, note_id: str, blob_id: str, rules: Rules) -> None:
        """Scan and write; a note whose embedding fails keeps its old rows."""
        old = self.lines.get(note_id)
        self.forget(note_id)
        kind = blob_id.partition("-")[0]
        if kind == "secret":
            line = ManifestEntry(note_id, NoteStatus.QUARANTINED, tag(blob_id), rules.id)
            self.audit.add(note_id)
        elif kind == "tagged":
            line = ManifestEntry(note_id, NoteStatus.EXCLUDED, tag(blob_id), rules.id)
            self.reasons[note_id] = ExclusionReason.TAG
        elif kind == "flaky" and self.broken:
            retry = NOW + timedelta(minutes=1)
            rows = (old.has_rows, old.row_blob_id) if old else (False, None)
            line = ManifestEntry(note_id, NoteStatus.FAILED, blob_id, rules.id, retry, *rows)
        else:
            line = ManifestEntry(
                note_id, NoteStatus.INDEXED, blob_id, rules.id, None, has_rows=True, row_blob_id=blob_id
            )
        self.lines[note_id] = line

    def sync(self, tree: Sequence[TreeEntry], rules: Rules, **options: object) -> Plan:
        """Plan and carry out everything."""
        result = plan(self.lines, tree, rules, tag=tag, now=NOW, **options)
        for action in (*result.actions, *result.settled):
            self.apply(action, rules)
        return result


@DETERMINISTIC
@given(st.lists(st.tuples(trees, rulesets, hints), min_size=1, max_size=4))
def test_any_history_ends_like_a_rebuild(history: list[tuple[list[TreeEntry], Rules, Mapping[str, str]]]) -> None:
    """After any sequence of trees and rules the store equals one made from nothing, and nothing is left to do (P1)."""
    store = Store.empty()
    for tree, rules, renames in history:
        store.sync(tree, rules, renames=renames)
        rebuilt = Store.empty()
        rebuilt.sync(tree, rules)

        assert rebuilt == store
        assert plan(store.lines, tree, rules, tag=tag, now=NOW).is_empty


@DETERMINISTIC
@given(trees, trees, rulesets, rulesets, st.booleans(), hints)
def test_every_file_ends_in_exactly_one_place(
    before: list[TreeEntry],
    after: list[TreeEntry],
    rules: Rules,
    new_rules: Rules,
    full: bool,  # noqa: FBT001 - drawn by Hypothesis
    renames: Mapping[str, str],
) -> None:
    """Each tracked file is kept, written, moved or settled; each line that is not tracked is forgotten or moved."""
    store = Store.empty()
    store.broken = True
    store.sync(before, rules)

    result = plan(store.lines, after, new_rules, tag=tag, now=NOW, full=full, renames=renames)

    written = [item.path for item in result.actions if not isinstance(item, Forget)]
    settled = [item.path for item in result.settled]
    assert len(after) == len(written) + len(settled) + result.unchanged + result.deferred
    assert len({path.raw for path in (*written, *settled)}) == len(written) + len(settled)
    ids = [path.id for path in (*written, *settled)]
    assert len(set(ids)) == len(ids)
    forgotten = [item.id for item in result.actions if isinstance(item, Forget)]
    moved = [item.old_id for item in result.actions if isinstance(item, Rename)]
    assert len({*forgotten, *moved}) == len(forgotten) + len(moved)
    assert {*forgotten, *moved}.isdisjoint(path.id for path in written)
    assert len(store.lines.keys() - {*forgotten, *moved} | set(ids)) == len(after)


@DETERMINISTIC
@given(trees, trees, rulesets, rulesets, hints, st.integers(1, 5), st.randoms(use_true_random=False))
def test_batches_in_any_order_with_stops_between(
    before: list[TreeEntry],
    after: list[TreeEntry],
    rules: Rules,
    new_rules: Rules,
    renames: Mapping[str, str],
    max_notes: int,
    chance: random.Random,
) -> None:
    """Batches hold every id once, and a plan that is made anew after each batch ends like a rebuild as well."""
    store = Store.empty()
    store.sync(before, rules)
    rebuilt = Store.empty()
    rebuilt.sync(after, new_rules)

    for _ in range(2 * len(NAMES) + 2):
        result = plan(store.lines, after, new_rules, tag=tag, now=NOW, renames=renames)
        batches = result.batches(max_notes)
        assert sorted(result.note_ids) == sorted(note_id for batch in batches for note_id in batch)
        assert all(len(batch) <= max(2, max_notes) for batch in batches)
        if not batches:
            break
        for action in result.for_ids(chance.choice(batches)):
            store.apply(action, new_rules)
    for action in result.settled:
        store.apply(action, new_rules)

    assert rebuilt == store


@DETERMINISTIC
@given(trees, trees, rulesets)
def test_an_outage_leaves_no_ghost_and_heals(before: list[TreeEntry], after: list[TreeEntry], rules: Rules) -> None:
    """While notes fail, no row of a vanished or excluded note stays; when the retry is due the store is a rebuild."""
    store = Store.empty()
    store.sync(before, rules)
    store.broken = True
    store.sync(after, rules)
    rebuilt = Store.empty()
    rebuilt.sync(after, rules)

    assert rebuilt.lines.keys() == store.lines.keys()
    for note_id, line in store.lines.items():
        if line.status is not NoteStatus.FAILED:
            assert rebuilt.lines[note_id] == line

    store.broken = False
    store.sync(after, rules, retry_failed=True)
    assert rebuilt == store


@DETERMINISTIC
@given(trees, trees, rulesets, hints, st.randoms(use_true_random=False))
def test_the_order_of_the_tree_does_not_matter(
    before: list[TreeEntry], after: list[TreeEntry], rules: Rules, renames: Mapping[str, str], chance: random.Random
) -> None:
    """The same files in another order give the same plan."""
    store = Store.empty()
    store.sync(before, rules)
    shuffled = after[:]
    chance.shuffle(shuffled)
    lines = dict(sorted(store.lines.items(), key=lambda _: chance.random()))

    assert plan(store.lines, after, rules, tag=tag, now=NOW, renames=renames) == plan(
        lines, shuffled, rules, tag=tag, now=NOW, renames=renames
    )
