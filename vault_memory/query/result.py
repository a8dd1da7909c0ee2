"""What a search answers with: hits, and what there is to know about them.

Belongs here: the shape of an answer, which is the JSON contract of the query. Does not: finding it (``search``,
``reading``), showing it (``context``, ``cli``, ``mcp``).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from vault_memory.settings import UNNAMED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vault_memory.query.candidates import Mode


@dataclass(frozen=True, slots=True)
class Leg:
    """Place and score of a hit in one leg: the cosine, or BM25."""

    rank: int
    score: float


@dataclass(frozen=True, slots=True)
class Legs:
    """What each leg says of a hit; None where it did not find it."""

    vector: Leg | None
    keyword: Leg | None


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that answers.

    Attributes:
        vault: The name of its vault.
        source: The note's path relative to the vault.
        heading_path: ``A > B``; empty before the first heading.
        level: Of the innermost heading, 0 before the first.
        start_line: First line in the file, 1-based.
        end_line: Last line, inclusive.
        score: 0 to 1, comparable within one result only.
        flags: What is conspicuous about the text, see ``cleaning.FLAGS``.
        stale: HEAD holds another version of the note than the index.
        text: The chunk as it stands in the note.
        source_hash: SHA-256 of the note's bytes.
        content_hash: SHA-256 of ``text``.
        duplicates: Other notes that hold nearly the same text and were left out for it; ``vault:path`` for those of
            another vault.
        relation: Of ``related`` alone: ``links_to``, ``linked_from``, ``similar``.
        vault: The name of its vault.
    """

    source: str
    title: str
    heading_path: str
    level: int
    start_line: int
    end_line: int
    score: float
    legs: Legs
    flags: tuple[str, ...]
    stale: bool
    text: str = field(repr=False)
    chunk_id: str
    source_hash: str
    content_hash: str
    duplicates: tuple[str, ...] = ()
    relation: tuple[str, ...] = ()
    vault: str = UNNAMED

    @property
    def citation(self) -> str:
        """``path:start-end``."""
        return f"{self.source}:{self.start_line}-{self.end_line}"

    def to_dict(self) -> dict[str, Any]:
        """Return an item of the JSON contract: every attribute by its name."""
        # Not asdict, which copies every value in depth: a millisecond a result.
        contract = {name: getattr(self, name) for name in _HIT_FIELDS}
        contract["legs"] = {
            name: leg and {"rank": leg.rank, "score": leg.score}
            for name, leg in (("vector", self.legs.vector), ("keyword", self.legs.keyword))
        }
        return contract


_HIT_FIELDS: Final = tuple(item.name for item in fields(Hit))


@dataclass(frozen=True, slots=True)
class VaultState:
    """Where a vault that was asked stands.

    Attributes:
        name: Of the vault.
        commit: The commit that its index shows; None before the first sync.
        head: Its HEAD, where the vault is at hand.
        stale: HEAD is known and is not the commit that the index shows.
    """

    name: str
    commit: str | None
    head: str | None
    stale: bool


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The answer to one question.

    Attributes:
        query: The question as it was used (cut if it was too long).
        mode: The legs that answered; less than asked for if the question could not be embedded.
        commit: The commit that the index shows; None before the first sync.
        head: HEAD of the vault, where it is at hand.
        stale: HEAD is not the commit that the index shows.
        notices: What the reader should know, one line each.
        items: Best first.
        vaults: Where each vault stands that answered; of several ``commit`` and ``head`` are None.
        term_weights: Inverse document frequencies of the question's tokens, for whoever shows the hits; no part of
            the JSON contract, as the next two.
        chunks: How many chunks the vaults have that answered, all or nearly.
        semantic: Whether all their vectors know meaning, and not only spelling.
    """

    query: str = field(repr=False)
    mode: Mode
    commit: str | None
    head: str | None
    stale: bool
    notices: tuple[str, ...]
    items: tuple[Hit, ...]
    term_weights: Mapping[str, float] = field(default_factory=dict[str, float], repr=False)
    vaults: tuple[VaultState, ...] = ()
    chunks: float = 0.0
    semantic: bool = True

    @property
    def is_labelled(self) -> bool:
        """Whether hits have to say which vault they are from."""
        return len(self.vaults) > 1

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON contract of ``--format json``."""
        return {
            "query": self.query,
            "mode": self.mode,
            "commit": self.commit,
            "head": self.head,
            "stale": self.stale,
            "notices": self.notices,
            "items": tuple(hit.to_dict() for hit in self.items),
            "vaults": tuple(asdict(vault) for vault in self.vaults),
        }
