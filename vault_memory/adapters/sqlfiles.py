"""The SQL files: where they lie, and their text.

Belongs here: finding ``sql/`` in a wheel and in a checkout, and reading its files. Does not: a database, and
psycopg, so that the query pays nothing for it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from vault_memory.errors import StoreError

if TYPE_CHECKING:
    from typing import LiteralString  # its home since 3.11

SEARCH_SETTINGS: Final = {
    # With the values at hand the planner drops the filters and branches that a question does not use. A connection that
    # asks with those parts alone may plan once (``query.database``).
    "plan_cache_mode": "force_custom_plan",
    # Pages of an index lie in memory or on an SSD. With the default of 4, meant for discs that turn, all vectors were
    # read rather than the narrow index over their signs as soon as a sync had touched a part of the table.
    "random_page_cost": "1.1",
    "hnsw.ef_search": "200",
    "hnsw.iterative_scan": "relaxed_order",
    "ivfflat.probes": "10",
    "ivfflat.iterative_scan": "relaxed_order",
}
"""What a session sets that runs ``search``; what names an index is read only where that index is used."""


@cache
def sql_directory() -> Path:
    """Return ``sql/`` inside the package if it is there, else beside it in a checkout.

    A wheel carries the folder as ``vault_memory/sql``; an editable install cannot.

    Raises:
        StoreError: The installation is incomplete.
    """
    package = Path(__file__).parent.parent
    checkout = package.parent
    if (package / "sql").is_dir():
        return package / "sql"
    if (checkout / "pyproject.toml").is_file() and (checkout / "sql").is_dir():
        return checkout / "sql"
    raise StoreError(f"{package}: the SQL files are missing; install vault-memory again")


@cache
def query(name: str, parts: frozenset[str] | None = None) -> LiteralString:
    """Return the text of ``sql/queries/<name>.sql``.

    The type says what psycopg asks for: text that no caller's data is part of. That holds, since the files are
    part of the program.

    Args:
        name: Of the file.
        parts: Lines that end with ``-- @part`` stay for these alone; None keeps all.

    Raises:
        StoreError: There is no such file.
    """
    path = sql_directory() / "queries" / f"{name}.sql"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({type(error).__name__})") from None
    if parts is not None:
        lines = (line.partition(" -- @") for line in text.split("\n"))
        text = "\n".join(line for line, _, part in lines if not part or part in parts)
    return cast("LiteralString", text)
