"""From a question to candidates: the words, the filters and the one statement that asks the database.

Belongs here: what a question looks for, what its filters mean, and the rows of both legs. Does not: their order
(``fusion``), and which of them become hits (``search``).
"""

from __future__ import annotations

import re
import unicodedata
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from vault_memory.errors import QueryError
from vault_memory.notes.tokens import query_terms, quote_lexeme
from vault_memory.query.cleaning import clean
from vault_memory.query.database import QueryVector, fetch, planned_anew, storable
from vault_memory.query.fusion import Candidate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from psycopg import Connection
    from psycopg.rows import DictRow

Mode = Literal["hybrid", "vector", "keyword"]

MAX_QUERY_CHARACTERS: Final = 2_000
POOL: Final = 100
"""Candidates of each leg, as ``sql/queries/search.sql`` has it."""
# Unrelated texts have cosines around 0 +- 1/sqrt(1536) under the hashing embedder: this is three times that.
_SPELLING_NOISE: Final = 0.08


@dataclass(frozen=True, slots=True)
class Filters:
    """What stands before the cut of both legs, as the statement takes it; None lets everything through.

    Attributes:
        path: A regular expression of PostgreSQL over sources.
        tag: A tag, without its sign.
        since: Notes dated at or after this.
        heading: Part of a heading path.
    """

    path: str | None = None
    tag: str | None = None
    since: datetime | None = None
    heading: str | None = None

    @classmethod
    def read(cls, path: str | None, tag: str | None, since: str | datetime | None, heading: str | None) -> Filters:
        """Read filters as a user writes them.

        Raises:
            QueryError: ``since`` is no date and no age.
        """
        return cls(
            path=None if not path else _glob_pattern(path),
            tag=None if not tag else _text(tag).lstrip("#").rstrip("/"),
            since=None if since is None else _moment(since),
            heading=None if not heading else _text(heading),
        )


def read_question(text: str) -> str:
    """Return a question as it is used: what PostgreSQL takes, and at most 2,000 characters.

    Raises:
        QueryError: Nothing of it can be seen.
    """
    # Cut first: what follows should not depend on the length.
    question = storable(text[: 4 * MAX_QUERY_CHARACTERS]).strip()[:MAX_QUERY_CHARACTERS].strip()
    # Whether anything of it can be seen; markup is no comment in a question, but what was typed.
    if not clean(question.replace("<", "x").replace("]", "x")).text.strip():
        raise QueryError("the question is empty")
    return question


def find(
    session: Connection[DictRow],
    question: str,
    vector: Sequence[float] | None,
    *,
    mode: Mode = "hybrid",
    filters: Filters | None = None,
    index: str = "exact",
) -> list[DictRow]:
    """Return the rows of ``sql/queries/search.sql``: the candidates of both legs, in no order.

    Args:
        session: Of ``query.database.connect``.
        question: As ``read_question`` returns it.
        vector: Its embedding; None leaves the vector leg empty.
        mode: ``vector`` leaves the keyword leg empty.
        filters: None: all notes.
        index: The recorded mode of the vector index.

    Raises:
        StoreError: The database cannot answer.
    """
    wanted = filters or Filters()
    named = {"path": wanted.path, "tag": wanted.tag, "since": wanted.since, "heading": wanted.heading}
    used = {name for name, value in named.items() if value is not None}
    parameters = {**_legs(question, mode, vector), **named, "index": index}
    # How much a filter lets through decides which way is the fastest; without one the plan is always the same.
    with planned_anew(session) if used else nullcontext():
        return fetch(session, "search", parameters, parts=frozenset({index, *used}))


def candidates(rows: Iterable[DictRow], *, semantic: bool) -> list[Candidate]:
    """Return the candidates that rows of ``find`` are, without those that only noise of spelling brought here.

    Args:
        rows: Of one question.
        semantic: Whether the vectors know meaning; those of letters are near nothing where nothing is shared.
    """
    return [
        Candidate(
            id=row["chunk_id"],
            script=row["script"],
            vector_rank=row["vector_rank"],
            similarity=row["vector_score"],
            keyword_rank=row["keyword_rank"],
            keyword_score=row["keyword_score"],
            coverage=row["coverage"],
        )
        for row in rows
        if row["chunk_id"] is not None
        and (semantic or row["keyword_rank"] is not None or (row["vector_score"] or 0.0) >= _SPELLING_NOISE)
    ]


def term_weights(question: str, rows: Iterable[DictRow]) -> dict[str, float]:
    """Return what the database knows of the rarity of the question's tokens; nothing where no token was looked for."""
    by_dimension: Mapping[str, float] = next((row["term_idf"] for row in rows if row["term_idf"]), {})
    terms = query_terms(question)
    return {
        token: by_dimension[str(place)]
        for token, place in zip(terms.tokens, terms.dimensions, strict=True)
        if str(place) in by_dimension
    }


def _legs(question: str, mode: Mode, vector: Sequence[float] | None) -> dict[str, Any]:
    terms = query_terms("" if mode == "vector" else question)
    return {
        "dimensions": list(terms.dimensions),
        "lexemes": [quote_lexeme(token) for token in terms.tokens],
        "query": terms.query or None,
        "prefix": terms.prefix,
        "vector": None if vector is None else QueryVector.of(vector),
    }


def _text(value: str) -> str:
    return unicodedata.normalize("NFC", storable(value))


def _glob_pattern(glob: str) -> str:
    """Translate a glob to PostgreSQL's regular expressions; every other sign stands for itself."""
    glob = _text(glob).removeprefix("./").rstrip("/")
    if not any(sign in glob for sign in "*?"):
        return f"^{_literal(glob)}(/|$)"
    pieces = re.split(r"(\*\*/|\*\*|\*|\?)", glob)
    meaning = {"**/": "(.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "^" + "".join(meaning.get(piece) or _literal(piece) for piece in pieces) + "$"


def _literal(text: str) -> str:
    return "".join(sign if sign.isalnum() or ord(sign) > 127 else f"\\{sign}" for sign in text)  # noqa: PLR2004 - ASCII


def _moment(since: str | datetime) -> datetime:
    if isinstance(since, datetime):
        return since if since.tzinfo else since.replace(tzinfo=UTC)
    age = re.fullmatch(r"(\d{1,5})([hdwmy])", since.strip().lower(), re.ASCII)
    try:
        if age:
            hours = {"h": 1, "d": 24, "w": 168, "m": 730, "y": 8766}[age[2]]
            return datetime.now(UTC) - timedelta(hours=int(age[1]) * hours)
        moment = datetime.fromisoformat(since.strip())
    except (ValueError, OverflowError):
        raise QueryError("since: want a date (2026-03-15), a date and time, or an age such as 7d or 4w") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
