"""Physical erasure: rewrite what deleted rows may still lie in.

Belongs here: what can be done from SQL, and how much of it could be. Does not: deleting rows (``ingest``).

PostgreSQL marks deleted rows and reuses their place later, so a note that was indexed before its secret was found can
lie in a table's file for a while. ``VACUUM FULL`` writes tables and indexes anew, without them, and drops the old
files. What this does not reach is said in ``docs/security.md``: the write-ahead log until its segments are used
again, freed blocks of the disk, replicas, backups and the vault's own history.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import sql

from vault_memory.adapters.database_errors import translated
from vault_memory.ingest.database import open_database, open_store

if TYPE_CHECKING:
    from vault_memory.settings import Settings

TABLES: Final = (
    "memory_allowed",
    "memory_chunk",
    "memory_primary",
    "memory_term",
    "memory_secure_audit",
    "note_state",
    "embedding_stage",
)
_CHECKPOINTS: Final = 2  # a segment is given back when it is older than the checkpoint before the last


@dataclass(frozen=True, slots=True)
class Erased:
    """What was done.

    Attributes:
        tables: Tables and their indexes that were written anew.
        staged: Vectors paid for and never used that were dropped.
        bytes_before: Size of the tables with their indexes.
        bytes_after: The same afterwards.
        wal_recycled: Whether old write-ahead log could be given back for reuse; the role may lack the right.
    """

    tables: tuple[str, ...]
    staged: int
    bytes_before: int
    bytes_after: int
    wal_recycled: bool

    @property
    def summary(self) -> str:
        """Say in one line what was done."""
        wal = "old write-ahead log given back" if self.wal_recycled else "the role may not recycle write-ahead log"
        return (
            f"{len(self.tables)} tables written anew: {self.bytes_before / 1e6:.1f} -> "
            f"{self.bytes_after / 1e6:.1f} MB; {self.staged} staged vectors dropped; {wal}"
        )

    def to_json(self) -> dict[str, object]:
        """Return the contract of ``quarantine erase --json`` and of ``erased`` in ``doctor --erase --json``."""
        return {
            "tables": list(self.tables),
            "staged": self.staged,
            "bytes_before": self.bytes_before,
            "bytes_after": self.bytes_after,
            "wal_recycled": self.wal_recycled,
        }


def erase(settings: Settings) -> Erased:
    """Write our tables anew without what was deleted from them; readers wait for each table in turn.

    Raises:
        WriterBusyError: Another writer did not end in time.
        StoreError: The role does not own the tables.
        VaultMemoryError: The database cannot be used.
    """
    store = open_store(settings)
    try:
        # A connection of its own: VACUUM runs in no transaction, and the store's holds the writer's lock.
        with (
            store.writer(settings.sync.wait_seconds, holder="erase"),
            translated(),
            psycopg.connect(open_database(settings).dsn, autocommit=True, connect_timeout=10) as connection,
        ):
            return _erase(connection, settings.schema)
    finally:
        store.close()


def _erase(connection: psycopg.Connection, schema: str) -> Erased:
    before = _size(connection, schema)
    staged = connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(schema, "embedding_stage"))).rowcount
    for table in TABLES:
        connection.execute(sql.SQL("VACUUM (FULL, ANALYZE) {}").format(sql.Identifier(schema, table)))
    return Erased(TABLES, staged, before, _size(connection, schema), _recycle_wal(connection))


def _size(connection: psycopg.Connection, schema: str) -> int:
    row = connection.execute(
        """SELECT sum(pg_total_relation_size(c.oid))::bigint FROM pg_class c
           JOIN pg_namespace n ON n.oid = c.relnamespace
           WHERE n.nspname = %s AND c.relname = ANY(%s) AND c.relkind = 'r'""",
        [schema, list(TABLES)],
    ).fetchone()
    return int(row[0] or 0) if row else 0


def _recycle_wal(connection: psycopg.Connection) -> bool:
    try:
        for _ in range(_CHECKPOINTS):
            connection.execute("SELECT pg_switch_wal()")
            connection.execute("CHECKPOINT")
    except psycopg.errors.InsufficientPrivilege:
        return False
    return True
