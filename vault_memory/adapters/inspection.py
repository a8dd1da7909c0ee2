"""A second look at the store, by statements of its own.

Belongs here: what ``doctor`` reads, and the repairs that touch rows. Does not: the manifest's way of looking
(``store``, ``notes.changes``), which is what is being checked here.

It never migrates: a doctor that changes what it examines finds nothing.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, LiteralString, Self

import psycopg
from psycopg import sql

from vault_memory.adapters.connecting import when_up
from vault_memory.adapters.database_errors import translated
from vault_memory.adapters.server import reader_role

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

_STAGE_DAYS: Final = 7

_NOTES: Final[LiteralString] = """
SELECT p.id, p.blob_id, p.ruleset_id, (SELECT count(*) FROM memory_chunk c WHERE c.note_id = p.id) FROM memory_primary p
"""
_CHUNKS: Final[LiteralString] = """
SELECT count(*) FILTER (WHERE NOT EXISTS (SELECT FROM memory_primary p WHERE p.id = c.note_id)),
       count(*) FILTER (WHERE c.embedding IS NOT NULL
                        AND (c.model IS DISTINCT FROM s.model OR c.dimensions IS DISTINCT FROM s.dimensions))
FROM memory_chunk c CROSS JOIN sync_state s
"""
_RIGHTS: Final[LiteralString] = """
SELECT has_schema_privilege(r.oid, %(schema)s, 'USAGE')
       AND has_table_privilege(r.oid, format('%%I.memory_live', %(schema)s::text), 'SELECT')
       AND has_table_privilege(r.oid, format('%%I.memory_term', %(schema)s::text), 'SELECT'),
       has_table_privilege(r.oid, format('%%I.note_state', %(schema)s::text), 'SELECT')
       OR has_table_privilege(r.oid, format('%%I.memory_primary', %(schema)s::text), 'INSERT, UPDATE, DELETE')
FROM pg_roles r WHERE r.rolname = %(role)s
"""


@dataclass(frozen=True, slots=True)
class StoredNote:
    """A note as the search tables hold it.

    Attributes:
        id: Its identity.
        blob_id: Of the version.
        ruleset_id: The rules it was checked against.
        chunks: How many chunks hang on it.
    """

    id: str
    blob_id: str
    ruleset_id: str
    chunks: int


@dataclass(frozen=True, slots=True)
class StateLine:
    """What the manifest says of a file; read only to explain why a note has no rows."""

    status: str
    step: str | None


class Inspection:
    """One connection that reads; the repairs are called under the writer's lock."""

    def __init__(self, connection: psycopg.Connection, schema: str) -> None:
        """Take over an open connection; ``connect`` makes one."""
        self._connection = connection
        self._schema = schema

    @classmethod
    @contextmanager
    def connect(cls, conninfo: str, schema: str) -> Generator[Self]:
        """Open a connection for a block.

        Raises:
            StoreUnavailable: The server does not answer or refuses the login.
        """
        with translated():
            connection = when_up(lambda: psycopg.connect(conninfo, autocommit=True, connect_timeout=10))
            connection.execute(sql.SQL("SET search_path = {}, public").format(sql.Identifier(schema)))
        try:
            yield cls(connection, schema)
        finally:
            connection.close()

    def server_version(self) -> str:
        """Return PostgreSQL's version."""
        return self._connection.info.parameter_status("server_version") or "unknown"

    def pgvector_version(self) -> str | None:
        """Return pgvector's version; None: it is not installed in this database."""
        row = self._row("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
        return None if row is None else str(row[0])

    def reader(self) -> tuple[bool, bool] | None:
        """Say whether the read-only role may read what it must, and whether it may do more; None: there is none."""
        with translated():
            row = self._connection.execute(
                _RIGHTS, {"schema": self._schema, "role": reader_role(self._schema)}
            ).fetchone()
        return None if row is None else (bool(row[0]), bool(row[1]))

    def notes(self) -> dict[str, StoredNote]:
        """Return the notes that have rows, by id."""
        return {row[0]: StoredNote(*row) for row in self._rows(_NOTES)}

    def state_lines(self) -> dict[str, StateLine]:
        """Return the manifest, by id."""
        rows = self._rows("SELECT id, status, step FROM note_state")
        return {note_id: StateLine(status, step) for note_id, status, step in rows}

    def open_quarantines(self) -> frozenset[str]:
        """Return the ids that the audit lists as quarantined at this moment."""
        return frozenset(
            row[0] for row in self._rows("SELECT id FROM memory_secure_audit WHERE action = 'quarantined'")
        )

    def chunk_faults(self) -> tuple[int, int]:
        """Count chunks without a note, and vectors of another model than the recorded one."""
        row = self._row(_CHUNKS)
        return (0, 0) if row is None else (int(row[0]), int(row[1]))

    def old_stage(self) -> int:
        """Count staged vectors that nobody came for within a week."""
        row = self._row(
            "SELECT count(*) FROM embedding_stage WHERE created_at < now() - make_interval(days => %s)", [_STAGE_DAYS]
        )
        return int(row[0]) if row else 0

    def wrong_terms(self) -> int:
        """Count the terms whose document frequency is not what the chunks say."""
        counted = self._counted_terms()
        recorded = Counter({row[0]: row[1] for row in self._rows("SELECT dimension, chunks FROM memory_term")})
        return sum(counted[term] != recorded[term] for term in counted.keys() | recorded.keys())

    def recount_terms(self) -> None:
        """Write the document frequencies anew, in one transaction."""
        with translated(), self._connection.transaction():
            counted = self._counted_terms()
            self._connection.execute("DELETE FROM memory_term")
            self._connection.execute(
                "INSERT INTO memory_term (dimension, chunks) SELECT * FROM unnest(%s::int[], %s::int[])",
                [list(counted), list(counted.values())],
            )

    def drop_old_stage(self) -> int:
        """Delete staged vectors that nobody came for; return how many."""
        with translated():
            return self._connection.execute(
                "DELETE FROM embedding_stage WHERE created_at < now() - make_interval(days => %s)", [_STAGE_DAYS]
            ).rowcount

    def _counted_terms(self) -> Counter[int]:
        """Count in how many chunks each term occurs, from the weights as text (indices from 1)."""
        counted: Counter[int] = Counter()
        with (
            translated(),
            self._connection.transaction(),
            self._connection.cursor(name="weights", withhold=False) as cursor,
        ):
            for (text,) in cursor.execute("SELECT term_weights::text FROM memory_chunk"):
                pairs = str(text).partition("}")[0].removeprefix("{")
                counted.update(int(pair.partition(":")[0]) - 1 for pair in pairs.split(",") if pair)
        return counted

    def _rows(self, statement: LiteralString) -> list[tuple[Any, ...]]:
        with translated():
            return self._connection.execute(statement).fetchall()

    def _row(self, statement: LiteralString, values: Sequence[object] = ()) -> tuple[Any, ...] | None:
        with translated():
            return self._connection.execute(statement, values).fetchone()
