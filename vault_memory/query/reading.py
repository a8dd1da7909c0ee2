"""Reading on from a hit: a whole note, a section, its neighbours.

Belongs here: ``get``, ``expand`` and ``related``, which answer with the same ``SearchResult`` as a search does, so
that they are shown and checked in the same way. Does not: the search itself.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from vault_memory import settings as settings_module
from vault_memory.errors import QueryError
from vault_memory.query import verify
from vault_memory.query.database import connect, fetch, storable
from vault_memory.query.search import Hit, Legs, SearchResult, allowed_rules, flags_of, holds_secret, vault_notices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import Connection
    from psycopg.rows import DictRow

    from vault_memory.settings import Settings

_NOTHING: Final = Legs(None, None)
_SUFFIXES: Final = ("", ".md", ".markdown")
_LINES = re.compile(r":(\d{1,7})(?:-(\d{1,7}))?\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Part:
    """Lines of a note (1-based, inclusive) and the heading they stand under."""

    start: int
    end: int
    heading_path: str = ""
    level: int = 0
    chunk_id: str = ""


def get(
    source: str, *, settings: Settings | None = None, connection: Connection[DictRow] | None = None
) -> SearchResult:
    """Return a note, a section of it (``path#heading``) or lines of it (``path:10-20``).

    The path may be shortened to its last parts and left without its suffix while it names one note alone.

    Raises:
        QueryError: There is no such note, or more than one.
    """
    settings = settings or settings_module.load()
    wanted = _normal(source)
    with nullcontext(connection) if connection is not None else connect(settings) as session:
        row, rest = _find(session, wanted)
        lines = _lines(row)
        whole = _Part(1, max(1, len(lines)))
        if rest.startswith("#"):
            part = _section(fetch(session, "outline", {"id": row["id"]}), rest[1:], row["source"])
        elif match := _LINES.match(rest):
            start = min(max(1, int(match[1])), whole.end)
            part = _Part(start, min(max(start, int(match[2] or match[1])), whole.end))
        else:
            part = whole
        return _result(wanted, settings, session, [(row, part, ())])


def expand(
    chunk: str,
    *,
    whole_note: bool = False,
    settings: Settings | None = None,
    connection: Connection[DictRow] | None = None,
) -> SearchResult:
    """Return the section around a chunk; the whole note if the chunk is all of its section, or on request.

    Args:
        chunk: The id of a hit, or its first 8 characters or more.
        whole_note: Skip the section.
        settings: None: from the environment.
        connection: An open one, for callers that ask often.

    Raises:
        QueryError: There is no such chunk, or more than one.
    """
    settings = settings or settings_module.load()
    wanted = _normal(chunk)
    with nullcontext(connection) if connection is not None else connect(settings) as session:
        found = fetch(session, "chunk", {"chunk": wanted}) if len(wanted) >= 8 else []  # noqa: PLR2004 - see above
        if len(found) != 1:
            raise QueryError("there is no such chunk" if not found else "this start of a chunk id names more than one")
        hit = found[0]
        row, _ = _find(session, hit["note_id"])
        own = _Part(hit["start_line"], hit["end_line"], hit["heading_path"], hit["level"])
        part = _around(fetch(session, "outline", {"id": row["id"]}), hit["heading_path"])
        if whole_note or part is None or (part.start, part.end) == (own.start, own.end):
            part = _Part(1, max(1, len(_lines(row))))
        return _result(wanted, settings, session, [(row, part, ())])


def related(
    source: str, *, k: int = 5, settings: Settings | None = None, connection: Connection[DictRow] | None = None
) -> SearchResult:
    """Return the notes around a note: linked ones first, then the nearest ones, each with its beginning.

    Raises:
        QueryError: There is no such note, or more than one.
    """
    settings = settings or settings_module.load()
    wanted = _normal(source)
    with nullcontext(connection) if connection is not None else connect(settings) as session:
        row, rest = _find(session, wanted)
        if rest:
            raise QueryError("related: want a note without a heading or lines")
        rows = fetch(session, "related", {"id": row["id"], "pool": 2 * k + 10})
        found = [(item, _Part(1, max(1, len(_lines(item)))), _relation(item)) for item in rows]
        return _result(wanted, settings, session, found, k)


def _relation(row: DictRow) -> tuple[str, ...]:
    return tuple(
        name for name, holds in (("links_to", row["is_target"]), ("linked_from", row["is_origin"])) if holds
    ) or ("similar",)


def _normal(text: str) -> str:
    wanted = unicodedata.normalize("NFC", storable(text)).strip().removeprefix("./")
    if not wanted:
        raise QueryError("want the path of a note")
    return wanted


def _find(session: Connection[DictRow], wanted: str) -> tuple[DictRow, str]:
    """Find a note by the longest part of ``wanted`` that names one; a path may hold # and : itself."""
    cuts = sorted({match.start() for match in re.finditer("#", wanted)} | {m.start() for m in _LINES.finditer(wanted)})
    for cut in (len(wanted), *reversed(cuts)):
        path, rest = wanted[:cut], wanted[cut:]
        if not path.strip("/"):
            continue
        ids = [path + suffix for suffix in _SUFFIXES]
        rows = fetch(session, "note", {"ids": ids})
        exact = [row for row in rows if row["id"] in ids]
        if exact:
            return exact[0], rest
        if len(rows) > 1:
            raise QueryError("more than one note has this name: " + ", ".join(row["source"] for row in rows[:5]))
        if rows:
            return rows[0], rest
    raise QueryError("there is no such note in the memory")


def _lines(row: DictRow) -> list[str]:
    content: str = row["content"]
    return content.removesuffix("\n").split("\n")  # the last line end begins no further line


def _section(outline: Sequence[DictRow], heading: str, source: str) -> _Part:
    wanted = " > ".join(part.strip() for part in heading.replace("#", ">").split(">") if part.strip()).casefold()
    # A section without text of its own has chunks only below it.
    names = [row["heading_path"].split(" > ") for row in outline]
    paths = dict.fromkeys(" > ".join(parts[:depth]) for parts in names for depth in range(1, len(parts) + 1))
    folded = {path: path.casefold() for path in paths if path}
    exact = [path for path, fold in folded.items() if fold == wanted]
    last = [path for path, fold in folded.items() if fold.endswith(f" > {wanted}")]
    inside = [path for path, fold in folded.items() if wanted in fold.rpartition(" > ")[2]]
    for path in (*exact, *last, *inside) if wanted else ():
        if (part := _around(outline, path)) is not None:
            return part
    raise QueryError(f"{source} has no such heading")


def _around(outline: Sequence[DictRow], heading_path: str) -> _Part | None:
    """Return the lines of a section with everything below it; before the first heading, that text alone."""
    inside = [
        row
        for row in outline
        if row["heading_path"] == heading_path
        or (heading_path and row["heading_path"].startswith(f"{heading_path} > "))
    ]
    if not inside:
        return None
    return _Part(
        min(row["start_line"] for row in inside),
        max(row["end_line"] for row in inside),
        heading_path,
        min(row["level"] for row in inside),
    )


def _result(
    query: str,
    settings: Settings,
    session: Connection[DictRow],
    found: Sequence[tuple[DictRow, _Part, tuple[str, ...]]],
    k: int = 1,
) -> SearchResult:
    state = fetch(session, "state")
    commit: str | None = state[0]["commit"] if state else None
    view = verify.look(settings, {row["id"] for row, _, _ in found})
    notices = list(vault_notices(commit, view))
    items: list[Hit] = []
    for row, part, relation in found:
        if len(items) == k:
            break
        if view.has_vanished(row["id"]):
            continue
        text = "\n".join(_lines(row)[part.start - 1 : part.end])
        shown = (text, row["title"], part.heading_path)
        if holds_secret(row["source"], shown, partial(allowed_rules, session, row["id"])):
            notices.append("a note was withheld: the secret scan matches it now, run vault-memory sync")
            continue
        items.append(_hit(row, part, relation, text, stale=view.has_changed(row["id"], row["blob_id"])))
    stale = view.head is not None and view.head != commit
    return SearchResult(query, "keyword", commit, view.head, stale, tuple(notices), tuple(items))


def _hit(row: DictRow, part: _Part, relation: tuple[str, ...], text: str, *, stale: bool) -> Hit:
    given: dict[str, Any] = {"similarity": None, **row}
    return Hit(
        source=row["source"],
        title=row["title"],
        heading_path=part.heading_path,
        level=part.level,
        start_line=part.start,
        end_line=part.end,
        score=round(given["similarity"] or 0.0, 4) if relation else 1.0,
        legs=_NOTHING,
        flags=flags_of(text, row["source"], part.heading_path),
        stale=stale,
        text=text,
        chunk_id=part.chunk_id,
        source_hash=row["content_hash"],
        content_hash=hashlib.sha256(text.encode()).hexdigest(),
        relation=relation,
    )
