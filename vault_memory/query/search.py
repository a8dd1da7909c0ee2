"""Search: from a question to verified hits.

Belongs here: the one path of a question, text -> vector and tokens -> candidates -> order -> checks -> hits, and
what a hit is. Does not: how scores are fused (``fusion``), how hits are shown (``context``, ``cli``).
"""

from __future__ import annotations

import hashlib
import logging
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, get_args

from vault_memory import settings as settings_module
from vault_memory.errors import ConfigError, EmbeddingError, QueryError, ScanError
from vault_memory.notes.tokens import tokenize
from vault_memory.query import verify
from vault_memory.query.candidates import (
    MAX_QUERY_CHARACTERS,
    Filters,
    Mode,
    candidates,
    find,
    read_question,
    term_weights,
)
from vault_memory.query.cleaning import FLAGS, clean
from vault_memory.query.database import connect, fetch
from vault_memory.query.embed import HASHING_NOTICE, RecordedEmbedder, embed_query
from vault_memory.query.fusion import Candidate, favour_recent, fuse, script_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from psycopg import Connection
    from psycopg.rows import DictRow

    from vault_memory.settings import Settings

MAX_K: Final = 100
CHUNKS_PER_NOTE: Final = 2
_DUPLICATE_SHARE: Final = 0.95

_log = logging.getLogger(__name__)


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
        duplicates: Other notes that hold nearly the same text and were left out for it.
        relation: Of ``related`` alone: ``links_to``, ``linked_from``, ``similar``.
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

    @property
    def citation(self) -> str:
        """``path:start-end``."""
        return f"{self.source}:{self.start_line}-{self.end_line}"


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
        term_weights: Inverse document frequencies of the question's tokens, for whoever shows the hits; no part of
            the JSON contract.
    """

    query: str = field(repr=False)
    mode: Mode
    commit: str | None
    head: str | None
    stale: bool
    notices: tuple[str, ...]
    items: tuple[Hit, ...]
    term_weights: Mapping[str, float] = field(default_factory=dict[str, float], repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON contract of ``--format json``."""
        contract = asdict(self)
        del contract["term_weights"]
        return contract


def search(
    text: str,
    *,
    k: int = 5,
    mode: Mode = "hybrid",
    path: str | None = None,
    tag: str | None = None,
    since: str | datetime | None = None,
    heading: str | None = None,
    recent: bool = False,
    settings: Settings | None = None,
    connection: Connection[DictRow] | None = None,
    embedder: Callable[[str], Sequence[float]] | None = None,
    semantic: bool = True,
) -> SearchResult:
    """Search the memory; no text of a question can make it fail.

    Args:
        text: The question, in any language; cut after 2,000 characters.
        k: At most this many hits, at most two of one note.
        mode: ``hybrid``, or one leg alone.
        path: Glob over sources (``*`` within a folder, ``**`` across); without a wildcard a note or folder.
        tag: Notes with this tag, or one nested below it, in any case.
        since: Notes dated (front matter, else last change in the index) at or after this: ``2026-03-15``, an ISO
            date and time, or an age such as ``12h``, ``7d``, ``4w``.
        heading: Chunks whose heading path contains this, in any case.
        recent: Of two that answer about as well, the newer first; dated as for ``since``.
        settings: None: from the environment.
        connection: An open one of ``query.database.connect``, for callers that ask often.
        embedder: In place of the recorded one, for measurements.
        semantic: Whether that one knows meaning.

    Raises:
        QueryError: The question is blank, or an argument is malformed. Nothing was asked of anybody.
        StoreError: The database cannot answer.
    """
    question = _checked(text, k, mode)
    filters = Filters.read(path, tag, since, heading)
    settings = settings or settings_module.load()
    notices = ["the question was cut to 2,000 characters"] if len(text.strip()) > MAX_QUERY_CHARACTERS else []
    with nullcontext(connection) if connection is not None else connect(settings) as session:
        state = fetch(session, "state")
        vector, recorded, notice = _vector(question, mode, state, settings, embedder)
        if notice:
            notices.append(notice)
            mode = "keyword"
        elif recorded.name == "hashing" and settings.embedding.embedder != "hashing":
            notices.append(HASHING_NOTICE)
        index = state[0]["vector_index"] if state else "exact"
        rows = find(session, question, vector, mode=mode, filters=filters, index=index)
        commit: str | None = rows[0]["indexed_commit"] if rows else None
        rows = [row for row in rows if row["chunk_id"] is not None]
        view = verify.look(settings, {row["note_id"] for row in rows})
        notices += vault_notices(commit, view)
        meaning = semantic if embedder else recorded.is_semantic
        ranked = _ranked(rows, script_of(question), semantic=meaning, recent=recent)
        items, withheld = _select(ranked, view, k, lambda note_id: allowed_rules(session, note_id))
    if withheld:
        notices.append(f"{withheld} hits were withheld: the secret scan matches them now, run vault-memory sync")
    stale = view.head is not None and view.head != commit
    return SearchResult(
        question, mode, commit, view.head, stale, tuple(notices), tuple(items), term_weights(question, rows)
    )


def _checked(text: str, k: int, mode: Mode) -> str:
    question = read_question(text)
    if isinstance(k, bool) or not 1 <= k <= MAX_K:
        raise QueryError(f"k: want a number from 1 to {MAX_K}")
    if mode not in get_args(Mode):
        raise QueryError("mode: want hybrid, vector or keyword")
    return question


def _vector(
    question: str,
    mode: Mode,
    state: Sequence[DictRow],
    settings: Settings,
    embedder: Callable[[str], Sequence[float]] | None,
) -> tuple[Sequence[float] | None, RecordedEmbedder, str | None]:
    """Embed the question; where that fails, say so and let the keyword leg answer."""
    nothing = RecordedEmbedder(None, None, None)
    if mode == "keyword":
        return None, nothing, None
    if embedder is not None:
        return embedder(question), nothing, None
    recorded = RecordedEmbedder(state[0]["embedder"], state[0]["model"], state[0]["dimensions"]) if state else nothing
    if recorded.name is None:
        return None, recorded, None  # an empty store: there is nothing to say about vectors
    try:
        return embed_query(question, recorded, settings), recorded, None
    except (EmbeddingError, ConfigError) as error:
        return None, recorded, f"answered by keywords alone: {error}"


def vault_notices(commit: str | None, view: verify.VaultView) -> Iterator[str]:
    """Say which commit a result belongs to, where that is not HEAD or HEAD is not known."""
    if view.problem is not None:
        yield f"the vault could not be looked at: {view.problem}"
    shown = commit[:12] if commit else None
    if view.head is not None and view.head != commit:
        yield f"the index is behind HEAD: it shows {shown or 'no commit'}, HEAD is {view.head[:12]}"
    elif view.head is None and shown and not view.is_folder:
        yield f"as of commit {shown}"


_Ranked = tuple[float, Candidate, "DictRow"]


def _ranked(rows: Sequence[DictRow], script: str, *, semantic: bool, recent: bool) -> list[_Ranked]:
    by_id = {row["chunk_id"]: row for row in rows}
    fused = fuse(candidates(rows, semantic=semantic), script=script, semantic=semantic)
    if recent:
        now = datetime.now(UTC)
        fused = favour_recent(fused, {name: (now - row["dated"]) / timedelta(days=1) for name, row in by_id.items()})
    return [(score, item, by_id[item.id]) for score, item in fused]


def _select(
    ranked: Iterable[_Ranked], view: verify.VaultView, k: int, allowed: Callable[[str], Collection[str]]
) -> tuple[list[Hit], int]:
    """Take the best that are still there, clean, not the third of a note and not a repetition."""
    items: list[Hit] = []
    words: list[frozenset[str]] = []
    withheld = 0
    for score, candidate, row in ranked:
        if len(items) == k:
            break
        source: str = row["source"]
        if view.has_vanished(row["note_id"]) or sum(hit.source == source for hit in items) >= CHUNKS_PER_NOTE:
            continue
        own_words = frozenset(tokenize(row["content"])) or frozenset({row["chunk_id"]})
        twin = next((i for i, other in enumerate(words) if _is_duplicate(own_words, other)), None)
        if twin is not None:
            if source not in (items[twin].source, *items[twin].duplicates):
                items[twin] = replace(items[twin], duplicates=(*items[twin].duplicates, source))
            continue
        shown = (row["content"], row["title"], row["heading_path"])
        if holds_secret(source, shown, partial(allowed, row["note_id"])):
            withheld += 1
            continue
        items.append(_hit(score, candidate, row, stale=view.has_changed(row["note_id"], row["blob_id"])))
        words.append(own_words)
    return items, withheld


def _is_duplicate(words: frozenset[str], other: frozenset[str]) -> bool:
    return len(words & other) >= _DUPLICATE_SHARE * len(words | other)


def flags_of(*parts: str) -> tuple[str, ...]:
    """Return what is conspicuous about a text and its names."""
    found = {flag for part in parts for flag in clean(part).flags}
    return tuple(flag for flag in FLAGS if flag in found)


def allowed_rules(session: Connection[DictRow], note_id: str) -> frozenset[str]:
    """Return the rules whose findings in a note the operator released; almost no note has any."""
    return frozenset(row["rule"] for row in fetch(session, "allowed", {"ids": [note_id]}))


def holds_secret(source: str, texts: Iterable[str], allowed: Callable[[], Collection[str]] = tuple) -> bool:
    """Look again with today's rules; whatever cannot be looked at is withheld.

    Args:
        source: Of the texts, for the log.
        texts: What would be shown; each is looked at on its own, as a heading is no label of its section.
        allowed: Tells the rules whose findings the operator released for this note; asked only if something is found.
    """
    from vault_memory.notes import secrets  # noqa: PLC0415 - only when there is a hit

    try:
        # Cleaning takes out what stood between two halves: what is shown is looked at, not just what is stored.
        readings = dict.fromkeys(reading for text in texts for reading in (text, clean(text).text))
        rules = {finding.rule for reading in readings for finding in secrets.scan(reading)}
    except (ScanError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
        found = True
    else:
        found = bool(rules) and not rules <= set(allowed())
    if found:
        _log.warning("withheld a chunk of %a: it matches a rule of the secret scan", source)
    return found


def _hit(score: float, candidate: Candidate, row: DictRow, *, stale: bool) -> Hit:
    text: str = row["content"]
    return Hit(
        source=row["source"],
        title=row["title"],
        heading_path=row["heading_path"],
        level=row["level"],
        start_line=row["start_line"],
        end_line=row["end_line"],
        score=round(score, 4),
        legs=Legs(
            vector=_leg(candidate.vector_rank, candidate.similarity),
            keyword=_leg(candidate.keyword_rank, candidate.keyword_score),
        ),
        flags=flags_of(text, row["source"], row["heading_path"]),
        stale=stale,
        text=text,
        chunk_id=row["chunk_id"],
        source_hash=row["content_hash"],
        content_hash=hashlib.sha256(text.encode()).hexdigest(),
    )


def _leg(rank: int | None, score: float | None) -> Leg | None:
    return None if rank is None or score is None else Leg(rank, round(score, 4))
