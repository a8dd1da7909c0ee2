"""Roots that fit a vault, and what is said where they do not."""

import pytest

from vault_memory.commands.roots import examine
from vault_memory.notes.model import EntryKind, TreeEntry
from vault_memory.notes.paths import NotePath
from vault_memory.settings import ScanSettings


def tree(*paths: str) -> list[TreeEntry]:
    """Make a tree of plain files."""
    return [TreeEntry(NotePath.from_text(path), "0" * 40, EntryKind.FILE) for path in paths]


def test_roots_that_hold_notes_need_no_hint() -> None:
    """A vault with the default folders is left in peace."""
    report = examine(tree("01_Projects/a.md", "04_Archive/b.md"), ScanSettings())

    assert (2, 1, ("01_Projects",), None) == (report.tracked, report.within, report.present, report.hint)


@pytest.mark.parametrize(
    ("paths", "proposed"),
    [
        (("Projects/a.md", "Areas/b.md", "Resources/c.md", "Archive/d.md"), ("Areas", "Projects")),
        (("1 - Projects/a.md", "notes/b.md"), ("1 - Projects",)),
        (("项目/a.md", "归档/b.md"), ("项目",)),
        (("journal/a.md", "work/b.md", "templates/c.md"), ("journal", "work")),
        (("a.md", "work/b.md"), (".",)),
        (("Archive/a.md",), (".",)),
        (("a, b/c.md",), (".",)),
    ],
)
def test_other_folders_are_proposed(paths: tuple[str, ...], proposed: tuple[str, ...]) -> None:
    """Active folders of the PARA method first; else all but parked ones; else the whole vault."""
    report = examine(tree(*paths), ScanSettings())

    assert (0, proposed) == (report.within, report.proposals)
    assert report.hint is not None
    assert f"0 of {len(paths)} notes" in report.hint


def test_an_empty_vault_gets_no_hint() -> None:
    """Where nothing is tracked, folders are not the trouble."""
    assert None is examine([], ScanSettings()).hint
