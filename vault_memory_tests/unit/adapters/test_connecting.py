"""A server on its way up is waited for, and an error of the database is told by what may be done about it."""

import psycopg
import pytest
from psycopg import errors

from vault_memory.adapters import connecting
from vault_memory.adapters.connecting import when_up
from vault_memory.adapters.database_errors import translated
from vault_memory.errors import Retryable, StoreConflict, StoreError, StoreUnavailable


@pytest.mark.parametrize(
    "words",
    [
        "FATAL:  the database system is starting up",
        "FATAL:  the database system is in recovery mode",
        "FATAL:  the database system is not yet accepting connections",
        "FATAL:  the database system is shutting down",
    ],
)
def test_a_server_on_its_way_is_waited_for(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """It is asked again until it lets us in."""
    monkeypatch.setattr(connecting, "_POLL_SECONDS", 0.0)
    answers = [psycopg.OperationalError(f"connection failed: {words}"), psycopg.OperationalError(words), "in"]

    def connect() -> str:
        answer = answers.pop(0)
        if isinstance(answer, str):
            return answer
        raise answer

    assert "in" == when_up(connect)
    assert [] == answers


@pytest.mark.parametrize(("words", "seconds"), [("Connection refused", 20.0), ("is starting up", 0.0)])
def test_a_no_is_not_waited_for(words: str, seconds: float) -> None:
    """Nor one that has been on its way for too long."""
    calls = []

    def connect() -> str:
        calls.append(1)
        raise psycopg.OperationalError(words)

    with pytest.raises(psycopg.OperationalError, match=words):
        when_up(connect, wait_seconds=seconds)
    assert [1] == calls


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.DeadlockDetected, StoreConflict),
        (errors.SerializationFailure, StoreConflict),
        (errors.LockNotAvailable, StoreConflict),
        (errors.DiskFull, StoreUnavailable),
        (errors.IoError, StoreUnavailable),
        (errors.ReadOnlySqlTransaction, StoreUnavailable),
        (errors.AdminShutdown, StoreUnavailable),
        (errors.OutOfMemory, StoreUnavailable),
        (errors.NotNullViolation, StoreError),
        (errors.UndefinedTable, StoreError),
    ],
)
def test_an_error_is_told_by_what_may_be_done(error: type[psycopg.Error], kind: type[StoreError]) -> None:
    """What may pass by itself can be retried; what is refused for good cannot."""
    with pytest.raises(StoreError) as caught, translated():
        raise error("DETAIL: Failing row contains (the note's text).")

    assert kind is type(caught.value)
    assert (kind is not StoreError) == isinstance(caught.value, Retryable)
    assert "the note's text" not in str(caught.value)
