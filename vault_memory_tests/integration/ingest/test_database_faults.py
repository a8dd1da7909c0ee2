"""A database that is in the way of a sync: deadlocks, serialization failures, read-only, restarted, dropped."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import dagster as dg
import psycopg
import pytest

from vault_memory.adapters.store import Store
from vault_memory.commands.sync import sync
from vault_memory.errors import StoreConflict
from vault_memory.ingest.sync import Synchronizer
from vault_memory.query.search import search
from vault_memory_tests.e2e.crash.points import name_of
from vault_memory_tests.fixtures.installation import Installation
from vault_memory_tests.fixtures.online import rows
from vault_memory_tests.fixtures.postgres import SCHEMA
from vault_memory_tests.integration.defs.test_retries import MakeWorld, open_world  # noqa: F401 - a fixture

NOTE = "# {name}\n\nWords about {words} in {name}.\n"
TOKEN = "ghp" + "_" + "Ab3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3bC6"
ORDER = ["memory_primary", "memory_chunk", "memory_term", "embedding_stage", "memory_allowed", "note_state",
         "memory_secure_audit"]  # fmt: skip


def fill(installation: Installation, words: str, names: Sequence[str] = ("a", "b")) -> str:
    """Write notes and commit them."""
    for name in names:
        installation.vault.write(f"01_Projects/{name}.md", NOTE.format(name=name, words=words))
    return installation.vault.commit()


@contextmanager
def somebody(installation: Installation) -> Iterator[psycopg.Connection]:
    """Open a connection of somebody else's, who never gives way in a deadlock."""
    with psycopg.connect(installation.environment["VAULT_MEMORY_DSN"]) as connection:
        connection.execute(f"SET search_path = {SCHEMA}, public")
        connection.execute("SET deadlock_timeout = '1h'")
        connection.commit()
        yield connection
        connection.rollback()


def execute(installation: Installation, statement: str) -> None:
    """Run a statement as somebody else would."""
    with psycopg.connect(installation.environment["VAULT_MEMORY_DSN"], autocommit=True) as connection:
        connection.execute(f"SET search_path = {SCHEMA}, public")
        connection.execute(statement.encode())


def found(installation: Installation, words: str) -> set[str]:
    """Return the notes that a question finds."""
    return {hit.source for hit in search(words, settings=installation.settings, mode="keyword").items}


def test_a_deadlock_is_tried_again(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL ends our transaction for somebody's sake: the note is written by the next try, not failed."""
    fill(installation, "caches")
    installation.steps()
    fill(installation, "queues")
    plain, calls = Store.write_state, []

    with somebody(installation) as other:
        other.execute("SELECT FROM note_state WHERE id = '01_Projects/a.md' FOR UPDATE")

        def write_state(self: Store, state: Any) -> None:
            calls.append(state.id)
            if len(calls) == 1:  # our rows of the note are locked by now: somebody waits for them, and we for somebody
                thread = threading.Thread(target=lambda: other.execute("UPDATE memory_primary SET title = title"))
                thread.start()
                try:
                    plain(self, state)
                finally:
                    thread.join(30)
                    other.rollback()
            plain(self, state)

        monkeypatch.setattr(Store, "write_state", write_state)
        outcomes = installation.steps()

    assert ["01_Projects/a.md", "01_Projects/a.md", "01_Projects/b.md"] == calls
    assert {"changed"} == {outcome.action for outcome in outcomes.values()}
    assert {"01_Projects/a.md", "01_Projects/b.md"} == found(installation, "queues")


def test_a_serialization_failure_is_tried_again(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the database's owner asks for serializable transactions, one that comes too late is made anew."""
    fill(installation, "caches")
    installation.steps()
    name = psycopg.conninfo.conninfo_to_dict(installation.environment["VAULT_MEMORY_DSN"])["dbname"]
    execute(installation, f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    fill(installation, "queues")
    plain, tries = Store.replace_note, []

    def replace_note(self: Store, note: Any, **given: Any) -> None:
        tries.append(note.id)
        if len(tries) == 1:
            execute(installation, "UPDATE memory_primary SET title = title")
        plain(self, note, **given)

    monkeypatch.setattr(Store, "replace_note", replace_note)
    outcomes = installation.steps()

    assert ["01_Projects/a.md", "01_Projects/a.md", "01_Projects/b.md"] == tries
    assert {"changed"} == {outcome.action for outcome in outcomes.values()}
    assert {"01_Projects/a.md", "01_Projects/b.md"} == found(installation, "queues")


def test_conflicts_without_end_are_named_and_retried_later(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After five tries the note waits like one whose provider is down; the others are written."""
    fill(installation, "caches")
    installation.steps()
    fill(installation, "queues")
    plain = Store.replace_note

    def replace_note(self: Store, note: Any, **given: Any) -> None:
        if note.id.endswith("a.md"):
            raise StoreConflict("another transaction was in the way (sqlstate 40P01)")
        plain(self, note, **given)

    monkeypatch.setattr(Store, "replace_note", replace_note)
    monkeypatch.setattr("vault_memory.adapters.store._CONFLICT_PAUSE_SECONDS", 0.0)
    installation.steps()

    assert [("01_Projects/a.md", "persist", "StoreConflict", True)] == rows(
        installation, "SELECT id, step, error_class, next_retry_at IS NOT NULL FROM note_state WHERE status = 'failed'"
    )
    assert ({"01_Projects/a.md"}, {"01_Projects/b.md"}) == (
        found(installation, "caches"),
        found(installation, "queues"),
    )
    monkeypatch.undo()
    installation.steps()
    assert {"01_Projects/a.md", "01_Projects/b.md"} == found(installation, "queues")


def test_every_transaction_locks_in_one_order(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, terms, stage, manifest, audit: whatever a note's transaction does, it never goes back."""
    fill(installation, "caches", "abcde")
    installation.steps()
    fill(installation, "queues", "a")
    installation.vault.rename("01_Projects/b.md", "02_Areas/b.md")
    installation.vault.delete("01_Projects/c.md")
    installation.vault.write("01_Projects/d.md", f"token {TOKEN}\n")
    installation.vault.write("01_Projects/e.md", "---\nvault-memory: false\n---\n\nWords.\n")
    installation.vault.commit()
    transactions: list[list[str]] = []
    is_open = [False]

    def watched(plain: Callable[..., Any]) -> Callable[..., Any]:
        def method(self: psycopg.Cursor, query: Any, *given: Any, **options: Any) -> Any:
            table = (name_of(query) or "").rpartition(" ")[2]
            if is_open[0] and table in ORDER and (not transactions[-1] or transactions[-1][-1] != table):
                transactions[-1].append(table)
            return plain(self, query, *given, **options)

        return method

    for name in ("execute", "executemany"):
        monkeypatch.setattr(psycopg.Cursor, name, watched(getattr(psycopg.Cursor, name)))
    plain = Store.transaction

    @contextmanager
    def transaction(self: Store) -> Iterator[None]:
        transactions.append([])
        is_open[0] = True
        with plain(self):
            yield
        is_open[0] = False

    monkeypatch.setattr(Store, "transaction", transaction)
    installation.steps()

    assert len(transactions) >= 5
    places = [[0 if ORDER.index(table) < 2 else ORDER.index(table) for table in tables] for tables in transactions]
    assert [sorted(one) for one in places] == places, transactions
    assert {"memory_primary", "memory_term", "embedding_stage", "note_state", "memory_secure_audit"} <= {
        table for tables in transactions for table in tables
    }


def test_a_database_that_takes_no_writing_for_now(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby, or one whose owner has stopped all writing: one line, answers go on, and later all is made good."""
    monkeypatch.setenv("DAGSTER_HOME", "")  # so that what a sync sets is taken back
    monkeypatch.setenv("VAULT_MEMORY_DAGSTER_DSN", "")
    fill(installation, "caches")
    installation.steps()
    commit = fill(installation, "queues")
    name = psycopg.conninfo.conninfo_to_dict(installation.environment["VAULT_MEMORY_DSN"])["dbname"]
    execute(installation, f"ALTER DATABASE {name} SET default_transaction_read_only = on")

    result = sync(installation.settings)
    assert 3 == result.exit_status
    assert "sqlstate 25006" in str(result.problem)
    assert {"01_Projects/a.md", "01_Projects/b.md"} == found(installation, "caches")

    with psycopg.connect(installation.environment["VAULT_MEMORY_DSN"], autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only".encode())
    installation.steps()
    assert [(commit,)] == rows(installation, "SELECT commit FROM sync_state")
    assert {"01_Projects/a.md", "01_Projects/b.md"} == found(installation, "queues")


def test_a_tick_whose_connection_drops_twice_keeps_its_cursor(
    installation: Installation,
    open_world: MakeWorld,  # noqa: F811 - the fixture above
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One reconnect, no more: the tick is skipped with the reason, the cursor stays, and the next tick does its work."""
    fill(installation, "caches")
    plain, opened = Synchronizer.is_current, []

    def is_current(self: Synchronizer) -> bool:
        opened.append(self)
        with psycopg.connect(installation.environment["VAULT_MEMORY_DSN"], autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        return plain(self)

    with open_world(installation) as world:
        (request,) = world.asked()
        world.run(dict(request.tags))
        world.asked()  # the index is shown
        cursor = world.cursor
        fill(installation, "queues")
        monkeypatch.setattr(Synchronizer, "is_current", is_current)
        skipped = world.tick()
        monkeypatch.setattr(Synchronizer, "is_current", plain)

        assert 2 == len(set(map(id, opened)))
        assert [] == list(skipped.run_requests or [])
        assert "StoreUnavailable" in (skipped.skip_message or "")
        assert cursor == world.cursor
        (request,) = world.asked()
        assert dg.DagsterRunStatus.SUCCESS == world.run(dict(request.tags)).status

    assert {"01_Projects/a.md", "01_Projects/b.md"} == found(installation, "queues")


def test_a_commit_during_a_queued_run_is_in_it_or_in_the_next(
    installation: Installation,
    open_world: MakeWorld,  # noqa: F811 - the fixture above
) -> None:
    """A run reads HEAD when it starts, not when it was asked for: nothing old is written, nothing new is left out."""
    fill(installation, "caches", "abc")
    with open_world(installation) as world:
        (request,) = world.asked()
        fill(installation, "queues", "b")  # while it is queued
        installation.vault.delete("01_Projects/c.md")
        head = fill(installation, "locks", "d")
        assert dg.DagsterRunStatus.SUCCESS == world.run(dict(request.tags)).status
        assert {"01_Projects/b.md"} == found(installation, "queues")
        assert {"01_Projects/a.md"} == found(installation, "caches")
        world.sync()

    assert [(head,)] == rows(installation, "SELECT commit FROM sync_state")
    assert {"01_Projects/d.md"} == found(installation, "locks")
    assert {"01_Projects/a.md", "01_Projects/b.md", "01_Projects/d.md"} == found(installation, "words")
