"""Whether the folders that are indexed fit the vault.

Belongs here: counting the notes inside the roots, and proposing other roots. Does not: judging a single note
(``notes.exclusion``), changing a setting (``setup``).

The default roots are two folders of the PARA method. A vault with other folders would be indexed as nothing, and
nobody would know why.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from vault_memory.notes.exclusion import compile_ruleset, fold
from vault_memory.notes.model import ExclusionReason

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from vault_memory.notes.model import TreeEntry
    from vault_memory.settings import ScanSettings

# PARA in the spellings that people use: "1 Projects", "02-Areas", "领域".
_ACTIVE: Final = re.compile(r"[\d\s._-]*(?:projects?|areas?(?: of responsibility)?|项目|領域|领域|專案)")
_PARKED: Final = re.compile(
    r"[\d\s._-]*(?:archives?|archived|inbox|templates?|attachments?|assets|trash|归档|歸檔|存档|收件箱|收集箱|模板|附件)"
)


@dataclass(frozen=True, slots=True)
class RootReport:
    """The roots beside the vault.

    Attributes:
        tracked: Markdown files in the commit.
        within: Those inside the roots.
        present: The configured roots that hold a note.
        proposals: Roots that would fit; empty where the present ones do, or nothing is tracked.
    """

    tracked: int
    within: int
    present: tuple[str, ...]
    proposals: tuple[str, ...]

    @property
    def hint(self) -> str | None:
        """One line for a vault of which nothing would be indexed; None otherwise."""
        if self.within or not self.tracked:
            return None
        roots = shlex.quote(",".join(self.proposals))
        return (
            f"0 of {self.tracked} notes lie in the folders that are indexed (scan.roots); "
            f"to index others, run: vault-memory init --roots {roots}"
        )


def examine(tree: Iterable[TreeEntry], scan: ScanSettings) -> RootReport:
    """Compare the configured roots with the Markdown files of a commit."""
    rules = compile_ruleset(scan, None)
    folders: Counter[str] = Counter()
    present: set[str] = set()
    tracked = within = 0
    for entry in tree:
        tracked += 1
        top, slash, _ = entry.path.id.partition("/")
        folders[top if slash else "."] += 1
        if rules.path_exclusion(entry.path) is ExclusionReason.OUTSIDE_ROOTS:
            continue
        within += 1
        present.update(root for root in scan.roots if root == "." or _lies_in(entry.path.id, root))
    proposals = () if within or not tracked else _proposals(folders, scan)
    return RootReport(tracked, within, tuple(root for root in scan.roots if root in present), proposals)


def looks_like_obsidian(vault: Path) -> bool:
    """Say whether Obsidian keeps its settings in this folder."""
    return (vault / ".obsidian").is_dir()


def _lies_in(note_id: str, root: str) -> bool:
    return fold(note_id).startswith(fold(root.strip("/")) + "/")


def _proposals(folders: Counter[str], scan: ScanSettings) -> tuple[str, ...]:
    excluded = {fold(name) for name in scan.exclude_directories}
    shown = [name for name in folders if not name.startswith(".") or name == "."]
    usable = sorted(name for name in shown if fold(name) not in excluded and not _PARKED.fullmatch(fold(name)))
    active = tuple(name for name in usable if _ACTIVE.fullmatch(fold(name)))
    if active:
        return active
    # A comma separates roots on the command line, so a folder with one in its name cannot be proposed.
    if not usable or "." in usable or any("," in name for name in usable):
        return (".",)
    return tuple(usable)
