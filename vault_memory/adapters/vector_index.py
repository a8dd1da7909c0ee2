"""The index of the vector leg in PostgreSQL: building, dropping and measuring it.

Belongs here: its SQL on the operator's connection. Does not: which one is wanted (``ingest.vector_index``), and the
search itself, whose statement is measured here as it is.
"""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from vault_memory.adapters.connecting import when_up
from vault_memory.adapters.database_errors import translated
from vault_memory.adapters.sqlfiles import SEARCH_SETTINGS, query
from vault_memory.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from vault_memory.settings import IndexChoice, IndexMode

OLDEST_PGVECTOR_FOR_HNSW: Final = (0, 8, 4)  # 0.8.2 to 0.8.4 fixed an overflow and corrupt graphs
RECALL_AT: Final = 10
SAMPLE: Final = 40

_BUILD: Final[dict[str, LiteralString]] = {
    "hnsw": (
        "CREATE INDEX memory_chunk_hnsw ON memory_chunk"
        " USING hnsw ((embedding::halfvec(1536)) halfvec_cosine_ops) WITH (m = 16, ef_construction = 100)"
    ),
    "ivfflat": (
        "CREATE INDEX memory_chunk_ivfflat ON memory_chunk USING ivfflat (embedding vector_cosine_ops)"
        " WITH (lists = 100)"
    ),
}
_DROP: Final[dict[str, LiteralString]] = {
    "hnsw": "DROP INDEX IF EXISTS memory_chunk_hnsw",
    "ivfflat": "DROP INDEX IF EXISTS memory_chunk_ivfflat",
}


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """What the database knows of its vector index.

    Attributes:
        mode: What a search uses.
        choice: What the operator asked for: a mode, or ``auto``.
        chosen_chunks: Vectors in the store when ``mode`` was chosen.
        chosen_model: Their model.
        recall: Measured then; None where it was not.
        chunks: Vectors now.
        model: Their model now.
        pgvector: The extension's version.
    """

    mode: IndexMode
    choice: IndexChoice
    chosen_chunks: int
    chosen_model: str | None
    recall: float | None
    chunks: int
    model: str | None
    pgvector: tuple[int, ...]


class VectorIndex:
    """A connection of the operator, for work on the index alone."""

    def __init__(self, connection: psycopg.Connection[tuple[object, ...]], schema: str) -> None:
        self._connection = connection
        self._schema = schema

    @classmethod
    @contextmanager
    def connect(cls, conninfo: str, schema: str) -> Generator[VectorIndex]:
        """Open a connection to a migrated schema, and close it at the end.

        Raises:
            StoreUnavailable: The server does not answer.
            StoreError: A statement was refused.
        """
        with translated():
            connection = when_up(
                lambda: psycopg.connect(
                    conninfo, autocommit=True, application_name="vault-memory-index", connect_timeout=10
                )
            )
        with translated(), connection:
            connection.execute(sql.SQL("SET search_path = {}, public").format(sql.Identifier(schema)), prepare=False)
            yield cls(connection, schema)

    def try_lock(self) -> bool:
        """Become the only one that works on this index, until the connection closes; False: another one does."""
        row = self._connection.execute(
            "SELECT pg_try_advisory_lock(%s, hashtext(%s))", [_LOCK_SPACE, self._schema]
        ).fetchone()
        return row is not None and bool(row[0])

    def facts(self) -> IndexFacts:
        """Read what is recorded and what there is now; quick also on large stores."""
        with self._connection.cursor(row_factory=dict_row) as cursor:
            row = cursor.execute(
                """SELECT s.vector_index AS mode, s.vector_index_choice AS choice, s.vector_index_recall AS recall,
                          s.vector_index_chunks AS chosen_chunks, s.vector_index_model AS chosen_model, s.model,
                          (SELECT count(*) FROM memory_chunk) AS chunks, e.extversion
                   FROM sync_state s, pg_extension e WHERE e.extname = 'vector'"""
            ).fetchone()
        if row is None:
            raise StoreError("the table sync_state is empty; restore it from a dump")
        version = tuple(int(part) for part in re.findall(r"\d+", row.pop("extversion"))[:3])
        return IndexFacts(**row, pgvector=version)

    def build(self, mode: IndexMode) -> None:
        """Build what a mode needs, anew if it is there; searches go on, writers wait.

        Raises:
            ConfigError: The server's pgvector is too old for it.
        """
        version = self.facts().pgvector
        if mode == "hnsw" and version < OLDEST_PGVECTOR_FOR_HNSW:
            raise ConfigError(
                f"vector_index = hnsw needs pgvector 0.8.4 or newer, this server has {'.'.join(map(str, version))}: "
                "install a newer one and run ALTER EXTENSION vector UPDATE, or choose bits"
            )
        if mode in _BUILD:
            with self._connection.transaction():
                self._connection.execute("SET LOCAL maintenance_work_mem = '512MB'")
                self._connection.execute(_DROP[mode])
                self._connection.execute(_BUILD[mode])
        # For the planner, and for scans that read the index alone: pages that were just written are not known to be
        # visible to all.
        self._connection.execute("VACUUM (ANALYZE) memory_chunk, memory_primary, memory_term")

    def record(self, mode: IndexMode, *, recall: float | None, choice: IndexChoice | None = None) -> None:
        """Make searches use a mode, and drop what the others needed.

        Args:
            mode: Whatever it needs is built.
            recall: As measured.
            choice: What the operator asked for; None: as before.
        """
        self._connection.execute(
            """UPDATE sync_state SET vector_index = %s, vector_index_recall = %s, vector_index_model = model,
               vector_index_chunks = (SELECT count(*) FROM memory_chunk),
               vector_index_choice = coalesce(%s, vector_index_choice)""",
            [mode, recall, choice],
        )
        for other, statement in _DROP.items():
            if other != mode:
                self._connection.execute(statement)

    def recall(self, mode: IndexMode, sample: int | None = None) -> float | None:
        """Ask for the neighbours of stored vectors by a mode and by exact search, and compare; None: too few vectors.

        Args:
            mode: To compare with exact search.
            sample: Stored vectors to ask with; None: ``SAMPLE``.

        Returns:
            Share of the exact ten that the mode finds (or others as near), the vector itself not counted.
        """
        found = wanted = 0
        for chunk_id, vector in self._sample(sample or SAMPLE):
            exact = self._nearest(vector, "exact", chunk_id)
            if len(exact) < RECALL_AT:
                continue
            near = self._nearest(vector, mode, chunk_id)
            wanted += RECALL_AT
            found += sum(similarity >= exact[-1] - 1e-6 for similarity in near)
        return found / wanted if wanted else None

    def milliseconds(self, mode: IndexMode, sample: int) -> float | None:
        """Return what the search for a stored vector takes, the median of some; None where there is no vector."""
        taken: list[float] = []
        for chunk_id, vector in self._sample(sample):
            started = time.perf_counter()
            self._nearest(vector, mode, chunk_id)
            taken.append(1000 * (time.perf_counter() - started))
        return median(taken) if taken else None

    def _sample(self, most: int) -> Sequence[tuple[object, ...]]:
        return self._connection.execute(
            "SELECT id, embedding::text FROM memory_chunk WHERE embedding IS NOT NULL ORDER BY md5(id) LIMIT %s", [most]
        ).fetchall()

    def _nearest(self, vector: object, mode: str, itself: object) -> list[float]:
        """Return the similarities of the ten nearest chunks, by the statement of a search without a keyword."""
        nothing = dict.fromkeys(("query", "prefix", "path", "tag", "since", "heading"))
        given = {**nothing, "dimensions": [], "lexemes": [], "vector": vector, "index": mode}
        with self._connection.transaction(), self._connection.cursor(row_factory=dict_row) as cursor:
            for name, value in SEARCH_SETTINGS.items():
                cursor.execute("SELECT set_config(%s, %s, true)", [name, value])
            rows = cursor.execute(query("search"), given).fetchall()
        ranked = sorted(
            (row["vector_rank"], row["vector_score"]) for row in rows if row["chunk_id"] not in (None, itself)
        )
        return [score for _, score in ranked[:RECALL_AT]]


_LOCK_SPACE: Final = 0x564D49  # "VMI": not the writers' lock, since a sync holds that one
