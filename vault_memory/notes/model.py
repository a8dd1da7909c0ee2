"""The values a note is on its way into memory.

::

    RawNote -> CleanNote | Quarantined | Excluded -> Chunk -> EmbeddedChunk

Belongs here: frozen values that several modules share. Does not: the functions that make them.
A ``CleanNote`` can be made by the scanner alone (``vault_memory.notes.scanner``), and everything that
leaves this machine or enters the search tables takes nothing else: that is how a secret is kept in.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vault_memory.notes.paths import NotePath


class EntryKind(StrEnum):
    """What a tree entry is."""

    FILE = "file"
    SYMLINK = "symlink"
    SUBMODULE = "submodule"
    HARD_LINK = "hard_link"
    SPECIAL = "special"


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One tracked file of a commit: where it is and which bytes it has.

    Attributes:
        path: Identity and original bytes of the name.
        blob_id: Hexadecimal object id (SHA-1 or SHA-256 repositories) of the content.
        kind: What it is; only files are ever read. A folder on disk may hold what no repository does: hard links,
            and pipes, sockets and devices (``special``).
    """

    path: NotePath
    blob_id: str
    kind: EntryKind = EntryKind.FILE


@dataclass(frozen=True, slots=True)
class RawNote:
    """A note as it was read: bytes nobody has looked at yet."""

    path: NotePath
    blob_id: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Finding:
    """Where a rule matched; never what it matched.

    Attributes:
        rule: Identifier of the rule, for example ``github_token``.
        line: File line (1-based) on which the match starts.
        view: Which reading of the text showed it: ``text``, ``nfkc``, ``base64``, ...
    """

    rule: str
    line: int
    view: str = "text"


class QuarantineReason(StrEnum):
    """Why a note was quarantined."""

    SECRET = "secret"  # noqa: S105 - the name of a reason
    SCAN_TIMEOUT = "scan_timeout"
    SCAN_ERROR = "scan_error"
    UNDECODABLE = "undecodable"
    UNSTORABLE_TEXT = "unstorable_text"
    TOO_LARGE = "too_large"
    FRONTMATTER_UNREADABLE = "frontmatter_unreadable"


class ExclusionReason(StrEnum):
    """Why a note is left out on purpose."""

    OUTSIDE_ROOTS = "outside_roots"
    DIRECTORY = "directory"
    KEYWORD = "keyword"
    PATTERN = "pattern"
    FRONT_MATTER = "front_matter"
    TAG = "tag"
    FORGOTTEN = "forgotten"


class SkipReason(StrEnum):
    """Why a tracked Markdown file is no note at all."""

    SYMLINK = "symlink"
    SUBMODULE = "submodule"
    HARD_LINK = "hard_link"
    SPECIAL = "special"
    NAME_COLLISION = "name_collision"


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A note that must not be indexed; its text is not kept."""

    path: NotePath
    blob_id: str
    reason: QuarantineReason
    findings: tuple[Finding, ...] = ()

    @property
    def rules(self) -> tuple[str, ...]:
        """The distinct rule ids, sorted; the reason itself where no rule matched."""
        return tuple(sorted({finding.rule for finding in self.findings})) or (self.reason.value,)


@dataclass(frozen=True, slots=True)
class Excluded:
    """A note whose owner keeps it out, by its content (front matter or a tag)."""

    path: NotePath
    blob_id: str
    reason: ExclusionReason


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the body under it, down to the next heading of any level.

    Attributes:
        heading_path: The headings above and including this one, outermost first; empty before the first.
        level: 1 to 6; 0 before the first heading.
        start_line: File line (1-based) of the heading, or of the first body line at level 0.
        end_line: Last file line (inclusive) that belongs to it.
        blocks: The block-level pieces of the body, in order.
    """

    heading_path: tuple[str, ...]
    level: int
    start_line: int
    end_line: int
    blocks: tuple[Block, ...]


class BlockKind(StrEnum):
    """How a block may be split when it is too long."""

    TEXT = "text"
    FENCE = "fence"
    TABLE = "table"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class Block:
    """A block-level piece of Markdown with the file lines (1-based, inclusive) it stands on."""

    kind: BlockKind
    start_line: int
    end_line: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """The parsed note.

    Attributes:
        title: From front matter, else the first level-1 heading, else the file name without its suffix.
        title_is_sent: False where the title is only the file name: it is searchable, never embedded.
        front_matter: JSON-safe values (dates as ISO strings); empty where there is none or it is broken.
        tags: Without ``#``, in order of appearance, front matter first, no duplicates (casefold).
        links: Targets of wikilinks, embeds and relative Markdown links, no duplicates.
        sections: In order; they cover the whole body.
        warnings: Identifiers of what was odd, for example ``front_matter_invalid``; no content.
    """

    title: str
    title_is_sent: bool
    front_matter: Mapping[str, object]
    tags: tuple[str, ...]
    links: tuple[str, ...]
    sections: tuple[Section, ...]
    warnings: tuple[str, ...] = ()


class _ScannerSeal:
    """Held by the scanner; whoever has it vouches that the text was scanned."""

    __slots__ = ()


SCANNER_SEAL: Final = _ScannerSeal()
"""Import this in ``vault_memory.notes.scanner`` only; an architecture test holds that."""


@dataclass(frozen=True, slots=True)
class CleanNote:
    """A note that was scanned and may be indexed.

    Attributes:
        text: Decoded, one byte-order mark removed, line ends normalised to line feeds; file lines kept.
        content_hash: SHA-256 (hexadecimal) of the bytes as they were read.
    """

    path: NotePath
    blob_id: str
    text: str = field(repr=False)
    content_hash: str
    document: Document = field(repr=False)
    seal: _ScannerSeal = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse to exist without the scanner's seal.

        Raises:
            TypeError: Somebody other than the scanner tried to make a clean note.
        """
        if self.seal is not SCANNER_SEAL:
            message = "a CleanNote is made by vault_memory.notes.scanner.scan_note alone"
            raise TypeError(message)


class Script(StrEnum):
    """The writing system that dominates a text (share of CJK characters above 8 %)."""

    CJK = "cjk"
    LATIN = "latin"


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a note that is embedded and found on its own.

    Attributes:
        ordinal: Position in the note, from 0.
        heading_path: Headings from the outside in.
        level: Level of the innermost heading, 0 before the first.
        start_line: First file line, 1-based.
        end_line: Last file line, inclusive.
        content: What is shown; empty for a note that has nothing but a title.
        embed_text: The exact text to embed; empty if there is nothing worth sending.
        token_bound: An upper bound of its tokens, right for Chinese.
        script: The dominant writing system.
    """

    ordinal: int
    heading_path: tuple[str, ...]
    level: int
    start_line: int
    end_line: int
    content: str = field(repr=False)
    embed_text: str = field(repr=False)
    token_bound: int
    script: Script

    @property
    def text_hash(self) -> str:
        """SHA-256 (hexadecimal) of the exact text to embed."""
        return hashlib.sha256(self.embed_text.encode()).hexdigest()

    @property
    def heading(self) -> str:
        """The heading path as one line."""
        return " > ".join(self.heading_path)


@dataclass(frozen=True, slots=True)
class EmbeddedChunk:
    """A chunk with its vector: ``dimensions`` finite floats of unit length, or none for an empty text."""

    id: str
    chunk: Chunk
    embedding: tuple[float, ...] | None = field(repr=False)


class NoteStatus(StrEnum):
    """What the manifest says of a tracked Markdown file."""

    INDEXED = "indexed"
    EXCLUDED = "excluded"
    QUARANTINED = "quarantined"
    SKIPPED = "skipped"
    FAILED = "failed"
