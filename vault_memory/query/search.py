"""Search: from a question to verified hits.

Belongs here: the one path of a question, text -> vector and tokens -> candidates -> order -> checks -> hits. Does not:
what a hit is (``result``), how scores are fused (``fusion``), how hits are shown (``context``, ``cli``).

Of several vaults each is asked over its own connection, by its own role. Their candidates are ordered as one corpus:
cosines are comparable where one model made the vectors, and BM25 nearly so. Vaults of different embedders are ordered
each for itself, and put together by score.
"""

from __future__ import annotations

import hashlib
import logging
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, get_args

from vault_memory import settings as settings_module
from vault_memory.errors import QueryError, ScanError
from vault_memory.notes.tokens import tokenize
from vault_memory.query.asking import Found, Look, ask_each, labelled
from vault_memory.query.candidates import (
    MAX_QUERY_CHARACTERS,
    Filters,
    Mode,
    candidates,
    read_question,
    term_weights,
)
from vault_memory.query.cleaning import FLAGS, clean
from vault_memory.query.database import Sessions, fetch
from vault_memory.query.embed import RecordedEmbedder
from vault_memory.query.fusion import Candidate, favour_recent, fuse, ranked_anew, script_of
from vault_memory.query.result import Hit, Leg, Legs, SearchResult

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from psycopg import Connection
    from psycopg.rows import DictRow

    from vault_memory.notes.model import Finding
    from vault_memory.settings import Settings

MAX_K: Final = 100
CHUNKS_PER_NOTE: Final = 2
_DUPLICATE_SHARE: Final = 0.95
_REMEMBERED_CHARACTERS: Final = 4_000

_log = logging.getLogger(__name__)


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
    vaults: Sequence[Settings] | None = None,
    sessions: Sessions | None = None,
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
        settings: Of the one vault to ask.
        vaults: Of the vaults to ask; with neither, all that environment and configuration file name.
        sessions: Open ones, for callers that ask often.
        embedder: In place of the recorded one, for measurements.
        semantic: Whether that one knows meaning.

    Raises:
        QueryError: The question is blank, or an argument is malformed. Nothing was asked of anybody.
        StoreError: The database cannot answer for any vault.
    """
    question = _checked(text, k, mode)
    filters = Filters.read(path, tag, since, heading)
    asked = vaults or ((settings,) if settings else settings_module.load_all())
    notices = ["the question was cut to 2,000 characters"] if len(text.strip()) > MAX_QUERY_CHARACTERS else []
    with nullcontext(sessions) if sessions is not None else Sessions() as open_sessions:
        look = Look(question, mode, filters, embedder, semantic, open_sessions.kept)
        found, problems = ask_each(asked, open_sessions, look.at)
        notices += [*look.notices, *problems]
        notices += [line for one in found for line in labelled(one.state.name, one.notices, several=len(asked) > 1)]
        ranked = _ranked(found, script_of(question), recent=recent)
        items, withheld = _select(ranked, k, open_sessions)
    if withheld:
        notices.append(f"{withheld} hits were withheld: the secret scan matches them now, run vault-memory sync")
    only = found[0].state if len(found) == 1 else None
    return SearchResult(
        query=question,
        mode=mode if any(one.mode == mode for one in found) else "keyword",
        commit=only.commit if only else None,
        head=only.head if only else None,
        stale=any(one.state.stale for one in found),
        notices=tuple(notices),
        items=tuple(items),
        term_weights=_all_weights(question, found),
        chunks=sum(one.chunks for one in found),
        semantic=all(one.semantic for one in found),
        vaults=tuple(one.state for one in found),
    )


def _checked(text: str, k: int, mode: Mode) -> str:
    question = read_question(text)
    if isinstance(k, bool) or not 1 <= k <= MAX_K:
        raise QueryError(f"k: want a number from 1 to {MAX_K}")
    if mode not in get_args(Mode):
        raise QueryError("mode: want hybrid, vector or keyword")
    return question


@dataclass(frozen=True, slots=True)
class _Ranked:
    """A candidate in its place."""

    score: float
    candidate: Candidate
    row: DictRow
    found: Found


def _ranked(found: Sequence[Found], script: str, *, recent: bool) -> list[_Ranked]:
    """Order the candidates of all vaults, best first."""
    groups: dict[RecordedEmbedder, list[Found]] = {}
    for one in found:
        groups.setdefault(one.embedder, []).append(one)
    ranked = [item for group in groups.values() for item in _ranked_together(group, script, recent=recent)]
    return ranked if len(groups) == 1 else sorted(ranked, key=lambda item: -item.score)


def _ranked_together(found: Sequence[Found], script: str, *, recent: bool) -> list[_Ranked]:
    semantic = found[0].semantic
    places = {_name(one, row["chunk_id"], several=len(found) > 1): (row, one) for one in found for row in one.rows}
    every = [
        replace(candidate, id=_name(one, candidate.id, several=len(found) > 1))
        for one in found
        for candidate in candidates(one.rows, semantic=semantic)
    ]
    fused = fuse(every if len(found) == 1 else ranked_anew(every), script=script, semantic=semantic)
    if recent:
        now = datetime.now(UTC)
        ages = {name: (now - row["dated"]) / timedelta(days=1) for name, (row, _) in places.items()}
        fused = favour_recent(fused, ages)
    return [_Ranked(score, candidate, *places[candidate.id]) for score, candidate in fused]


def _name(found: Found, chunk_id: str, *, several: bool) -> str:
    """Name a candidate: the same note in two vaults has the same chunk ids."""
    return f"{chunk_id}@{found.settings.name}" if several else chunk_id


def _all_weights(question: str, found: Sequence[Found]) -> Mapping[str, float]:
    """Return how rare the question's tokens are; of several vaults, where they are rarest."""
    weights: dict[str, float] = {}
    for one in found:
        for token, weight in term_weights(question, one.rows).items():
            weights[token] = max(weight, weights.get(token, 0.0))
    return weights


def _select(ranked: Iterable[_Ranked], k: int, sessions: Sessions) -> tuple[list[Hit], int]:
    """Take the best that are still there, clean, not the third of a note and not a repetition."""
    items: list[Hit] = []
    words: list[frozenset[str]] = []
    withheld = 0
    for ranking in ranked:
        if len(items) == k:
            break
        row, view, vault = ranking.row, ranking.found.view, ranking.found.settings.name
        place = vault, row["source"]
        of_note = sum((hit.vault, hit.source) == place for hit in items)
        if view.has_vanished(row["note_id"]) or of_note >= CHUNKS_PER_NOTE:
            continue
        own_words = frozenset(tokenize(row["content"])) or frozenset({row["chunk_id"]})
        twin = next((i for i, other in enumerate(words) if _is_duplicate(own_words, other)), None)
        if twin is not None:
            items[twin] = _with_duplicate(items[twin], *place)
            continue
        shown = (row["content"], row["title"], row["heading_path"])
        if holds_secret(row["source"], shown, partial(_allowed, sessions, ranking.found.settings, row["note_id"])):
            withheld += 1
            continue
        items.append(_hit(ranking))
        words.append(own_words)
    return items, withheld


def _allowed(sessions: Sessions, settings: Settings, note_id: str) -> frozenset[str]:
    return sessions.ask(settings, lambda session: allowed_rules(session, note_id))


def _with_duplicate(hit: Hit, vault: str, source: str) -> Hit:
    if (vault, source) == (hit.vault, hit.source):
        return hit
    named = source if vault == hit.vault else f"{vault}:{source}"
    return hit if named in hit.duplicates else replace(hit, duplicates=(*hit.duplicates, named))


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
    try:
        # Cleaning takes out what stood between two halves: what is shown is looked at, not just what is stored.
        readings = dict.fromkeys(reading for text in texts for reading in (text, clean(text).text))
        rules = {rule for reading in readings for rule in _rules_matched(reading)}
    except (ScanError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError):
        found = True
    else:
        found = bool(rules) and not rules <= set(allowed())
    if found:
        _log.warning("withheld a chunk of %a: it matches a rule of the secret scan", source)
    return found


def _rules_matched(text: str) -> frozenset[str]:
    from vault_memory.notes import secrets  # noqa: PLC0415 - only when there is a hit

    if len(text) > _REMEMBERED_CHARACTERS:
        return frozenset(finding.rule for finding in secrets.scan(text))
    return _remembered_rules(text, secrets.scan)


@lru_cache(maxsize=2_048)  # a process that answers many questions shows the same chunks again, and titles in every hit
def _remembered_rules(text: str, scan: Callable[[str], tuple[Finding, ...]]) -> frozenset[str]:
    """Scan a text once; what one set of rules said is not remembered for another one."""
    return frozenset(finding.rule for finding in scan(text))


def _hit(ranking: _Ranked) -> Hit:
    row, candidate, found = ranking.row, ranking.candidate, ranking.found
    text: str = row["content"]
    return Hit(
        source=row["source"],
        title=row["title"],
        heading_path=row["heading_path"],
        level=row["level"],
        start_line=row["start_line"],
        end_line=row["end_line"],
        score=round(ranking.score, 4),
        legs=Legs(
            vector=_leg(candidate.vector_rank, candidate.similarity),
            keyword=_leg(candidate.keyword_rank, candidate.keyword_score),
        ),
        flags=flags_of(text, row["source"], row["heading_path"]),
        stale=found.view.has_changed(row["note_id"], row["blob_id"]),
        text=text,
        chunk_id=row["chunk_id"],
        source_hash=row["content_hash"],
        content_hash=hashlib.sha256(text.encode()).hexdigest(),
        vault=found.settings.name,
    )


def _leg(rank: int | None, score: float | None) -> Leg | None:
    return None if rank is None or score is None else Leg(rank, round(score, 4))
