"""A server of Dagster's that is away: how long a process waits for it."""

import socket

import pytest
from dagster_postgres.utils import DagsterPostgresException, create_pg_connection, create_pg_engine
from sqlalchemy import event, text

from vault_memory.defs.storage import Patience, storage_url
from vault_memory.errors import StoreUnavailable


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the seconds that were to be waited for, none of which is."""
    made: list[float] = []
    monkeypatch.setattr("dagster_postgres.utils.time.sleep", made.append)
    return made


def test_one_statement_waits_and_the_others_do_not(waits: list[float]) -> None:
    """The first is tried six times, as Dagster has it, and each further one once: a run has dozens of them."""
    with socket.socket() as bound:  # nobody listens on it
        bound.bind(("127.0.0.1", 0))
        engine = create_pg_engine(f"postgresql+psycopg2://nobody@127.0.0.1:{bound.getsockname()[1]}/none", None)
        event.listen(engine, "do_connect", Patience().connect)
        with pytest.raises(DagsterPostgresException), create_pg_connection(engine):
            pass
        assert 5 == len(waits)
        for _ in range(3):
            with pytest.raises(StoreUnavailable, match="does not answer"), create_pg_connection(engine):
                pass
        assert 5 == len(waits)


def test_a_server_that_came_back_is_waited_for_again(waits: list[float], database: str) -> None:
    """One success, or a long time without a failure, and the next statement is tried in full."""
    patience = Patience(tries=1)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        gone = create_pg_engine(f"postgresql+psycopg2://nobody@127.0.0.1:{bound.getsockname()[1]}/none", None)
        there = create_pg_engine(storage_url(database), None)
        for engine in (gone, there):
            event.listen(engine, "do_connect", patience.connect)
        with pytest.raises(StoreUnavailable), create_pg_connection(gone):
            pass
        with create_pg_connection(there) as connection:
            assert 1 == connection.execute(text("SELECT 1")).scalar()
        assert 1 == len(waits)
        with pytest.raises(StoreUnavailable), create_pg_connection(gone):
            pass
        assert 2 == len(waits)
        there.dispose()


def test_an_old_failure_is_forgotten(waits: list[float]) -> None:
    """A process that lives for months counts failures that belong together."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        engine = create_pg_engine(f"postgresql+psycopg2://nobody@127.0.0.1:{bound.getsockname()[1]}/none", None)
        event.listen(engine, "do_connect", Patience(forget_seconds=0).connect)
        for tried in (5, 10):
            with pytest.raises(DagsterPostgresException), create_pg_connection(engine):
                pass
            assert tried == len(waits)
