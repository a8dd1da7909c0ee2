"""The memory in PostgreSQL: every statement that ingest needs.

Belongs here: SQL of the writing side, one transaction a note, and the translation of database errors.
Does not: which note to write and why (``ingest``), the reader's search (``query``), the schema (``sql/``).

Errors carry sqlstate and constraint only: PostgreSQL's DETAIL prints the row, which is note text.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, LiteralString, Self, TypeVar

import psycopg
from pgvector import SparseVector, Vector
from pgvector.psycopg import register_vector
from psycopg import sql
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, namedtuple_row, scalar_row
from psycopg.types.json import Jsonb

from vault_memory.adapters import store_statements as statements
from vault_memory.adapters.connecting import when_up
from vault_memory.adapters.database_errors import translated
from vault_memory.adapters.store_records import AuditLine, Counts, Failure, Release, SyncState, Usage
from vault_memory.errors import StoreConflict, StoreError, WriterBusyError
from vault_memory.notes.changes import ManifestEntry
from vault_memory.notes.model import NoteStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from vault_memory.adapters.store_records import NoteRow, NoteState, Sent
    from vault_memory.notes.model import Quarantined

log = logging.getLogger(__name__)

STORED_DIMENSIONS: Final = 1536
FORGOTTEN: Final = "forgotten"
"""The reason of a note that its owner had taken out by hand."""
_LOCK_POLL_SECONDS: Final = 0.1
_CONFLICT_TRIES: Final = 5
_CONFLICT_PAUSE_SECONDS: Final = 0.05
_LOCK_SPACE: Final = 0x564D  # "VM", so that other programs' advisory locks on the same database stay apart

Result = TypeVar("Result")


class Store:
    """One connection to one schema; not for use by two threads."""

    def __init__(self, connection: psycopg.Connection, schema: str) -> None:
        """Take over an open connection; ``connect`` makes one."""
        self._connection = connection
        self._schema = schema
        self._locked = False

    @classmethod
    def connect(cls, conninfo: str, schema: str, *, application_name: str = "vault-memory") -> Self:
        """Open a connection to a migrated schema.

        Raises:
            StoreUnavailable: The server does not answer or refuses the login.
            StoreError: The schema or the vector extension is missing.
        """
        with translated():
            connection = when_up(
                lambda: psycopg.connect(
                    conninfo, autocommit=True, application_name=application_name, connect_timeout=10
                )
            )
            try:
                connection.execute(
                    sql.SQL("SET search_path = {}, public").format(sql.Identifier(schema)), prepare=False
                )
                connection.execute("SET client_connection_check_interval = '500ms'")
                register_vector(connection)
            except BaseException:
                connection.close()
                raise
        return cls(connection, schema)

    def close(self) -> None:
        """Close the connection; an advisory lock that it holds goes with it."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Run the statements of a block as one transaction.

        Raises:
            StoreConflict: Another transaction was in the way; nothing of the block was kept.
            StoreError: A statement was refused; nothing of the block was kept.
            StoreUnavailable: The connection is gone.
        """
        with translated(), self._connection.transaction():
            yield

    def transact(self, work: Callable[[], Result]) -> Result:
        """Run ``work`` as one transaction, and once more from its start if another transaction got in its way.

        All that we write takes its locks in one order (the note's rows, the term counts by number, the stage, the
        manifest, the audit), so only other people's transactions, as of a backup or by hand, can cross ours.

        Args:
            work: Statements of this store; repeated, so it must not change anything else.

        Raises:
            StoreConflict: Each try met another transaction.
            StoreError: A statement was refused; nothing was kept.
        """
        tries = 1 if self._connection.info.transaction_status is not TransactionStatus.IDLE else _CONFLICT_TRIES
        for attempt in range(1, tries):
            try:
                with self.transaction():
                    return work()
            except StoreConflict as error:
                log.warning("try %d of %d: %s", attempt, tries, error)
                time.sleep(_CONFLICT_PAUSE_SECONDS * attempt)
        with self.transaction():
            return work()

    # -- the single writer -------------------------------------------------------------------------------------

    @contextmanager
    def writer(self, wait_seconds: float, *, holder: str) -> Generator[None]:
        """Hold this schema's advisory lock: one writer a vault, released when its process dies.

        Args:
            wait_seconds: How long to wait for another writer.
            holder: Shown to whoever waits for us.

        Raises:
            WriterBusyError: Another writer held the lock for all that time; the message names it.
        """
        if self._locked:
            yield
            return
        with translated():
            self._connection.execute(
                "SELECT set_config('application_name', %s, false)", [f"vault-memory {holder}"[:63]]
            )
            deadline = time.monotonic() + wait_seconds
            while not self._scalar("SELECT pg_try_advisory_lock(%s, hashtext(%s))", [_LOCK_SPACE, self._schema]):
                if time.monotonic() >= deadline:
                    raise WriterBusyError(
                        f"{self.writer_name() or 'another process'} is writing to this vault's memory; "
                        f"waited {wait_seconds:g} s"
                    )
                time.sleep(_LOCK_POLL_SECONDS)
        self._locked = True
        try:
            yield
        finally:
            self._locked = False
            if not self._connection.closed:
                with translated():
                    self._connection.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", [_LOCK_SPACE, self._schema])

    def try_writer(self) -> bool:
        """Whether nobody holds the lock at this moment (it is not kept)."""
        with translated():
            free = self._scalar("SELECT pg_try_advisory_lock(%s, hashtext(%s))", [_LOCK_SPACE, self._schema])
            if free:
                self._connection.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", [_LOCK_SPACE, self._schema])
            return bool(free)

    def writer_name(self) -> str | None:
        """Return who holds this database's lock on the schema now, as it named itself; None when nobody does."""
        with translated():
            name = self._scalar(
                """SELECT a.application_name || ' (database process ' || a.pid || ')' FROM pg_locks l
                   JOIN pg_stat_activity a USING (pid)
                   WHERE l.locktype = 'advisory' AND l.granted AND l.classid = %s::oid
                     AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                     AND l.objid = (hashtext(%s)::bigint & 4294967295)::oid""",
                [_LOCK_SPACE, self._schema],
            )
        return None if name is None else str(name)

    # -- state -------------------------------------------------------------------------------------------------

    def sync_state(self) -> SyncState:
        """Read what the store was last brought to."""
        with translated(), self._connection.cursor(row_factory=namedtuple_row) as cursor:
            row = cursor.execute(
                """SELECT vault, commit, ruleset_id, embedder, model, dimensions, base_url, key_fingerprint,
                   vector_index, under_way FROM sync_state"""
            ).fetchone()
        if row is None:
            raise StoreError("the table sync_state is empty; restore it from a dump")
        return SyncState(*row)

    def record_owner(self, *, vault: str, key_fingerprint: str) -> None:
        """Record whose memory this is."""
        with translated():
            self._connection.execute(
                "UPDATE sync_state SET vault = %s, key_fingerprint = %s, updated_at = now()", [vault, key_fingerprint]
            )

    def record_identity(
        self, *, vault: str, embedder: str, model: str, dimensions: int, base_url: str | None, key_fingerprint: str
    ) -> None:
        """Record whose memory this is and how its vectors are made."""
        with translated():
            self._connection.execute(
                """UPDATE sync_state SET vault = %s, embedder = %s, model = %s, dimensions = %s, base_url = %s,
                   key_fingerprint = %s, updated_at = now()""",
                [vault, embedder, model, dimensions, base_url, key_fingerprint],
            )

    def record_ruleset(self, ruleset_id: str, *, settled: Sequence[str] = ()) -> None:
        """Put a ruleset in force: every remaining row was checked against it.

        Args:
            ruleset_id: The rules.
            settled: Notes whose line in the manifest would come out the same under them.
        """
        with self.transaction():
            self._connection.execute(
                "UPDATE memory_primary SET ruleset_id = %s WHERE ruleset_id <> %s", [ruleset_id] * 2
            )
            if settled:
                self._connection.execute(
                    "UPDATE note_state SET ruleset_id = %s WHERE id = ANY(%s)", [ruleset_id, list(settled)]
                )
                self._connection.execute(
                    "UPDATE memory_secure_audit SET ruleset_id = %s WHERE id = ANY(%s) AND action = 'quarantined'",
                    [ruleset_id, list(settled)],
                )
            self._connection.execute("UPDATE sync_state SET ruleset_id = %s, updated_at = now()", [ruleset_id])

    def record_start(self) -> None:
        """Record that notes are to change: until ``record_commit`` a plan may find work at the recorded commit, too."""
        with translated():
            self._connection.execute("UPDATE sync_state SET under_way = TRUE WHERE NOT under_way")

    def record_commit(self, commit: str | None) -> None:
        """Record the commit whose plan has been carried out."""
        with translated():
            self._connection.execute(
                """UPDATE sync_state SET commit = %s, under_way = FALSE, updated_at = now()
                   WHERE commit IS DISTINCT FROM %s OR under_way""",
                [commit, commit],
            )

    def manifest(self) -> dict[str, ManifestEntry]:
        """Read the manifest, by id."""
        with translated(), self._connection.cursor() as cursor:
            rows = cursor.execute(
                """SELECT s.id, s.status, s.blob_tag, s.ruleset_id, s.next_retry_at, p.id IS NOT NULL, p.blob_id,
                   s.status = 'excluded' AND s.reason IS NOT DISTINCT FROM %s
                   FROM note_state s LEFT JOIN memory_primary p ON p.id = s.id""",
                [FORGOTTEN],
            ).fetchall()
        return {
            row[0]: ManifestEntry(
                id=row[0],
                status=NoteStatus(row[1]),
                blob_tag=row[2],
                ruleset_id=row[3],
                next_retry_at=row[4],
                has_rows=row[5],
                row_blob_id=row[6],
                forgotten=row[7],
            )
            for row in rows
        }

    def statuses(self) -> dict[str, NoteStatus]:
        """Return the status of every line of the manifest, by id."""
        with translated(), self._connection.cursor() as cursor:
            rows = cursor.execute("SELECT id, status FROM note_state").fetchall()
        return {note_id: NoteStatus(status) for note_id, status in rows}

    def read_notes(self) -> frozenset[str]:
        """Return the ids of all files that are read: not those left out by their path or kind."""
        with translated(), self._connection.cursor(row_factory=scalar_row) as cursor:
            return frozenset(
                cursor.execute(
                    """SELECT id FROM note_state WHERE status IN ('indexed', 'quarantined', 'failed')
                       OR (status = 'excluded' AND step = 'scan')"""
                ).fetchall()
            )

    def judged_notes(self, ruleset_id: str) -> list[str]:
        """Return the ids of the files that were read and judged under these rules; not those that wait for others."""
        with translated(), self._connection.cursor(row_factory=scalar_row) as cursor:
            return cursor.execute(
                """SELECT id FROM note_state WHERE ruleset_id = %s AND (status IN ('indexed', 'quarantined')
                   OR (status = 'failed' AND error_class IS DISTINCT FROM 'HeldByRules')
                   OR (status = 'excluded' AND step = 'scan'))""",
                [ruleset_id],
            ).fetchall()

    def row_ids(self) -> list[str]:
        """Return the ids of the notes that have rows."""
        with translated(), self._connection.cursor(row_factory=scalar_row) as cursor:
            return cursor.execute("SELECT id FROM memory_primary").fetchall()

    def attempts(self, note_id: str) -> int:
        """How often a note has failed in a row."""
        with translated():
            return int(self._scalar("SELECT attempts FROM note_state WHERE id = %s", [note_id]) or 0)

    def next_retry_at(self) -> datetime | None:
        """When the first note is due again that failed or was not scanned in time; None if there is none."""
        with translated():
            return self._scalar(
                "SELECT min(next_retry_at) FROM note_state WHERE status IN ('failed', 'quarantined')", []
            )

    def failures(self) -> list[Failure]:
        """The failed notes with their reasons, by path."""
        with translated(), self._connection.cursor() as cursor:
            rows = cursor.execute(
                """SELECT id, step, error_class, reason, attempts, next_retry_at FROM note_state
                   WHERE status = 'failed' ORDER BY id"""
            ).fetchall()
        return [Failure(*row) for row in rows]

    def counts(self) -> Counts:
        """Count rows by status, and look for what must not be there."""
        with translated(), self._connection.cursor(row_factory=dict_row) as cursor:
            row = cursor.execute(statements.COUNTS).fetchone()
        if row is None:
            raise StoreError("counting the tables gave no answer")
        return Counts(**row)

    # -- vectors -----------------------------------------------------------------------------------------------

    def known_vectors(self, hashes: Sequence[str], model: str, dimensions: int) -> set[str]:
        """Say for which texts there is a vector, in a living chunk or staged."""
        with translated(), self._connection.cursor(row_factory=scalar_row) as cursor:
            return set(cursor.execute(statements.KNOWN_VECTORS, [list(hashes), model, dimensions]).fetchall())

    def stage_vectors(self, vectors: Mapping[str, Vector], model: str, dimensions: int, run: str) -> None:
        """Keep vectors that were paid for until their notes are persisted.

        Args:
            vectors: By text hash; each of 1,536 numbers.
            model: The model that made them.
            dimensions: Its width before padding.
            run: Who paid, for the clean-up by age.
        """
        if not vectors:
            return
        with translated(), self._connection.cursor() as cursor:
            cursor.executemany(
                """INSERT INTO embedding_stage (text_hash, model, dimensions, embedding, run)
                   VALUES (%s, %s, %s, %b, %s) ON CONFLICT DO NOTHING""",
                [(text_hash, model, dimensions, vector, run) for text_hash, vector in vectors.items()],
            )

    def rescue_vectors(self, wanted: Sequence[tuple[str, str]], changing: Sequence[str], run: str) -> None:
        """Stage vectors that live only in notes which are about to change or go, for texts that moved elsewhere.

        Args:
            wanted: Pairs of note id and text hash that will be written.
            changing: The notes whose rows a run may delete.
            run: Whose run.
        """
        if wanted and changing:
            with translated():
                self._connection.execute(
                    statements.RESCUE, [run, [note for note, _ in wanted], [text for _, text in wanted], list(changing)]
                )

    def vectors(self, hashes: Sequence[str], model: str, dimensions: int) -> dict[str, Vector]:
        """Read the vectors of texts, by text hash; texts without one are absent."""
        with translated(), self._connection.cursor(binary=True) as cursor:
            return dict(cursor.execute(statements.VECTORS, [list(hashes), model, dimensions]).fetchall())

    def drop_stage(self, *, older_than_days: int = 7) -> int:
        """Delete staged vectors that nobody came for; return how many."""
        with translated():
            return self._connection.execute(
                "DELETE FROM embedding_stage WHERE created_at < now() - make_interval(days => %s)", [older_than_days]
            ).rowcount

    def clear_stage(self, model: str, dimensions: int) -> int:
        """Delete the staged vectors of a model: no note waits for them; return how many."""
        with translated():
            return self._connection.execute(
                "DELETE FROM embedding_stage WHERE model = %s AND dimensions = %s", [model, dimensions]
            ).rowcount

    # -- another model -----------------------------------------------------------------------------------------

    def staged(self, hashes: Sequence[str], stage: str, dimensions: int) -> set[str]:
        """Say which texts have a vector on a stage of its own name."""
        with translated(), self._connection.cursor(row_factory=scalar_row) as cursor:
            return set(
                cursor.execute(
                    """SELECT text_hash FROM embedding_stage
                       WHERE text_hash = ANY(%s) AND model = %s AND dimensions = %s""",
                    [list(hashes), stage, dimensions],
                ).fetchall()
            )

    def flip_vectors(self, stage: str, model: str, dimensions: int) -> int:
        """Put the vectors of a stage in place of the stored ones, and delete the rows of notes it does not cover.

        Call it within ``transaction``: readers see all old vectors or all new ones. What no row took is left staged
        for the model, so that notes which are written next find it.

        Returns:
            How many notes were deleted; their files have changed or are gone.
        """
        with translated(), self._connection.cursor(row_factory=scalar_row) as cursor:
            uncovered: list[str] = cursor.execute(statements.UNCOVERED, [stage, dimensions]).fetchall()
            self.delete_rows(uncovered)
            self._connection.execute(statements.FLIP_CHUNKS, [model, dimensions, stage, dimensions])
            self._connection.execute(
                "UPDATE memory_chunk SET model = %s, dimensions = %s WHERE embedding IS NULL", [model, dimensions]
            )
            self._flip_means(model)
            self._connection.execute(
                "DELETE FROM embedding_stage WHERE model = %s AND dimensions = %s", [model, dimensions]
            )
            self._connection.execute(
                "UPDATE embedding_stage SET model = %s WHERE model = %s AND dimensions = %s", [model, stage, dimensions]
            )
            return len(uncovered)

    def _flip_means(self, model: str) -> None:
        last = ""
        while True:
            with self._connection.cursor(binary=True) as cursor:
                rows = cursor.execute(
                    """SELECT p.id, array_agg(c.embedding ORDER BY c.ordinal) FILTER (WHERE c.embedding IS NOT NULL)
                       FROM (SELECT id FROM memory_primary WHERE id > %s ORDER BY id LIMIT 100) p
                       JOIN memory_chunk c ON c.note_id = p.id GROUP BY p.id ORDER BY p.id""",
                    [last],
                ).fetchall()
            if not rows:
                return
            with self._connection.cursor() as cursor:
                cursor.executemany(
                    "UPDATE memory_primary SET embedding = %b, model = %s WHERE id = %s",
                    [(mean_vector(vectors or ()), model, note_id) for note_id, vectors in rows],
                )
            last = rows[-1][0]

    # -- the account -------------------------------------------------------------------------------------------

    def record_usage(
        self, *, model: str, texts: int, tokens: int, requests: int, price_usd: float, texts_reused: int = 0
    ) -> None:
        """Add to this month's account of the embedding provider."""
        with translated():
            self._connection.execute(
                """INSERT INTO embedding_usage AS u (month, model, texts, tokens, requests, price_usd, texts_reused)
                   VALUES (date_trunc('month', now())::date, %s, %s, %s, %s, %s, %s)
                   ON CONFLICT (month, model) DO UPDATE SET texts = u.texts + EXCLUDED.texts,
                   tokens = u.tokens + EXCLUDED.tokens, requests = u.requests + EXCLUDED.requests,
                   price_usd = u.price_usd + EXCLUDED.price_usd,
                   texts_reused = u.texts_reused + EXCLUDED.texts_reused""",
                [model, texts, tokens, requests, price_usd, texts_reused],
            )

    def month_usage(self) -> Usage:
        """Return what this month's embeddings took."""
        with translated():
            row = self._connection.execute(
                """SELECT coalesce(sum(texts), 0)::int8, coalesce(sum(texts_reused), 0)::int8,
                          coalesce(sum(tokens), 0)::int8, coalesce(sum(requests), 0)::int8,
                          coalesce(sum(price_usd), 0)::float8
                   FROM embedding_usage WHERE month = date_trunc('month', now())::date"""
            ).fetchone()
        return Usage(*row) if row else Usage(0, 0, 0, 0, 0.0)

    def has_bought_since(self, moment: datetime) -> bool:
        """Whether a provider was sent texts in the month of a moment or later."""
        with translated():
            return bool(
                self._scalar(
                    """SELECT EXISTS (SELECT FROM embedding_usage
                       WHERE requests > 0 AND month >= date_trunc('month', %s::timestamptz)::date)""",
                    [moment],
                )
            )

    # -- one note ----------------------------------------------------------------------------------------------

    def replace_note(self, note: NoteRow, *, also_forget: Sequence[str] = ()) -> None:
        """Write a note in place of its old rows, and of the rows of the names it had before (not their manifest lines).

        Call it within ``transaction``: readers see the old note or the new one, never both and never neither.
        """
        gone = self._delete_rows([note.id, *also_forget])
        self._connection.execute(
            statements.INSERT_NOTE,
            [
                note.id,
                note.id,
                note.content,
                note.content_hash,
                mean_vector([row.embedding for row in note.chunks if row.embedding is not None]),
                note.blob_id,
                note.title,
                list(note.tags),
                Jsonb(dict(note.front_matter)),
                list(note.links),
                note.note_date,
                note.commit,
                note.ruleset_id,
                note.model,
                note.token_count,
            ],
        )
        with self._connection.cursor() as cursor:
            cursor.executemany(
                statements.INSERT_CHUNK,
                [
                    (
                        row.id,
                        note.id,
                        row.chunk.ordinal,
                        row.chunk.heading,
                        row.chunk.level,
                        row.chunk.start_line,
                        row.chunk.end_line,
                        row.chunk.content,
                        row.chunk.text_hash,
                        note.model,
                        note.dimensions,
                        row.chunk.script.value,
                        row.embedding,
                        row.terms.keywords,
                        row.terms.weights,
                    )
                    for row in note.chunks
                ],
            )
        come = Counter(dimension for row in note.chunks for dimension in row.terms.dimensions)
        self._count_terms(come, gone)
        self._connection.execute(
            "DELETE FROM embedding_stage WHERE text_hash = ANY(%s) AND model = %s AND dimensions = %s",
            [[row.chunk.text_hash for row in note.chunks], note.model, note.dimensions],
        )

    def delete_rows(self, note_ids: Sequence[str]) -> bool:
        """Delete the rows and vectors of notes; return whether there were any. Call within ``transaction``."""
        before = self._delete_rows(note_ids)
        self._count_terms(Counter(), before)
        return bool(before)

    def _delete_rows(self, note_ids: Sequence[str]) -> Counter[int]:
        with self._connection.cursor(binary=True, row_factory=scalar_row) as cursor:
            weights: list[SparseVector] = cursor.execute(
                "SELECT term_weights FROM memory_chunk WHERE note_id = ANY(%s)", [list(note_ids)]
            ).fetchall()
        self._connection.execute("DELETE FROM memory_primary WHERE id = ANY(%s)", [list(note_ids)])
        return Counter(index for vector in weights for index in vector.indices())

    def _count_terms(self, come: Counter[int], gone: Counter[int]) -> None:
        more = come - gone
        less = gone - come
        # In one order, so that two writers of different vaults on one schema could never deadlock here.
        if less:
            given = [sorted(less), [less[dimension] for dimension in sorted(less)]]
            self._connection.execute(statements.DROP_TERMS, given)
            self._connection.execute(statements.LESSEN_TERMS, given)
        if more:
            self._connection.execute(
                statements.ADD_TERMS, [sorted(more), [more[dimension] for dimension in sorted(more)]]
            )

    def write_state(self, state: NoteState) -> None:
        """Write the manifest's line about one file."""
        with translated():
            self._connection.execute(statements.WRITE_STATE, state.values())

    def write_states(self, states: Iterable[NoteState]) -> None:
        """Write many lines of the manifest in one transaction."""
        with self.transaction(), self._connection.cursor() as cursor:
            cursor.executemany(statements.WRITE_STATE, [state.values() for state in states])

    def drop_states(self, note_ids: Sequence[str]) -> None:
        """Delete lines of the manifest: these files are not tracked any more."""
        with translated():
            self._connection.execute("DELETE FROM note_state WHERE id = ANY(%s)", [list(note_ids)])

    # -- audit -------------------------------------------------------------------------------------------------

    def stored_version(self, note_id: str) -> tuple[str, datetime] | None:
        """Return blob id and time of the version in the search tables; None if there is none."""
        with translated():
            return self._connection.execute(
                "SELECT blob_id, updated_at FROM memory_primary WHERE id = %s", [note_id]
            ).fetchone()

    def audit(self, source: str | None = None, *, closed: bool = False) -> list[AuditLine]:
        """Read the audit, by path: of one note or all, open lines only or all."""
        with translated(), self._connection.cursor() as cursor:
            rows = cursor.execute(statements.READ_AUDIT, {"id": source, "closed": closed}).fetchall()
        return [AuditLine(*row) for row in rows]

    def allow(self, note_id: str, allowed: Iterable[tuple[str, str, datetime]]) -> None:
        """Record which releases (rule, keyed hash, end) a note is in memory by. Call within ``transaction``."""
        with self._connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO memory_allowed (note_id, rule, content_hmac, expires_at) VALUES (%s, %s, %s, %s)",
                [(note_id, *one) for one in allowed],
            )

    def releases(self) -> list[Release]:
        """Return every release that a note is in memory by."""
        with translated(), self._connection.cursor() as cursor:
            rows = cursor.execute(
                """SELECT a.note_id, a.rule, a.content_hmac, a.expires_at, s.status = 'indexed'
                   FROM memory_allowed a JOIN note_state s ON s.id = a.note_id"""
            ).fetchall()
        return [Release(*row) for row in rows]

    def held_back(self, note_ids: Sequence[str]) -> list[tuple[str, str, list[str]]]:
        """Return id, keyed hash and rules of those of the notes that are quarantined for a secret."""
        with translated():
            return self._connection.execute(
                """SELECT a.id, a.content_hmac, a.rules FROM memory_secure_audit a JOIN note_state s ON s.id = a.id
                   WHERE a.action = 'quarantined' AND a.reason = 'secret' AND s.status = 'quarantined'
                   AND a.id = ANY(%s)""",
                [list(note_ids)],
            ).fetchall()

    def write_audit(self, note: Quarantined, *, ruleset_id: str, content_hmac: str, sent: Sent | None) -> None:
        """Record a quarantine: rules and lines, never the text, its length or a bare hash of it."""
        with translated():
            self._connection.execute(
                statements.WRITE_AUDIT,
                {
                    "id": note.path.id,
                    "reason": note.reason.value,
                    "rules": list(note.rules),
                    "lines": sorted({finding.line for finding in note.findings}),
                    "ruleset": ruleset_id,
                    "hmac": content_hmac,
                    "embedded": sent is not None,
                    "by": sent.provider if sent else None,
                    "at": sent.at if sent else None,
                    "held": sent is not None and sent.held_secret,
                },
            )

    def close_audit(self, note_id: str, action: LiteralString) -> bool:
        """Close an open audit line as ``released`` or ``deleted``; return whether one was open."""
        with translated():
            return bool(
                self._connection.execute(
                    """UPDATE memory_secure_audit SET action = %s, resolved_at = now(), updated_at = now()
                       WHERE id = %s AND action = 'quarantined'""",
                    [action, note_id],
                ).rowcount
            )

    # -- the whole store ---------------------------------------------------------------------------------------

    def stored_text(self, note_id: str) -> str | None:
        """Return the text of a note in the search tables."""
        with translated():
            return self._scalar("SELECT content FROM memory_primary WHERE id = %s", [note_id])

    def stored_texts(self) -> Iterator[tuple[str, str]]:
        """Yield id and content of every note, in batches, for a look with new rules."""
        last = ""
        while True:
            with translated(), self._connection.cursor() as cursor:
                rows = cursor.execute(
                    "SELECT id, content FROM memory_primary WHERE id > %s ORDER BY id LIMIT 200", [last]
                ).fetchall()
            if not rows:
                return
            yield from rows
            last = rows[-1][0]

    def analyze(self) -> None:
        """Refresh the planner's statistics after a large change."""
        with translated():
            self._connection.execute("ANALYZE memory_primary, memory_chunk, memory_term, note_state")

    def _scalar(self, statement: LiteralString, values: Sequence[object]):  # noqa: ANN202 - the column's own type
        row = self._connection.execute(statement, values).fetchone()
        return None if row is None else row[0]


def mean_vector(vectors: Sequence[Vector]) -> Vector | None:
    """Return the normalised mean of unit vectors of shape ``(1536,)``; None for none."""
    if not vectors:
        return None
    sums = [float(sum(column)) for column in zip(*(vector.to_list() for vector in vectors), strict=True)]
    length = sum(value * value for value in sums) ** 0.5
    return Vector([value / length for value in sums] if length else sums)
