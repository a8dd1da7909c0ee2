"""Database errors as ours, without the row that PostgreSQL likes to print.

Belongs here: telling a server that is away from a statement that was refused. Does not: what to do then.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import psycopg

from vault_memory.errors import StoreConflict, StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Generator

# Connection exceptions, server going down, out of resources (a full disk), errors of the file system; and a database
# that is read-only for now, as a standby is or one whose owner has stopped all writing.
_UNAVAILABLE: Final = ("08", "57P", "53", "58", "25006")
_CONFLICT: Final = ("40", "55P03")  # deadlock, serialization failure, a lock that did not come in time


@contextmanager
def translated() -> Generator[None]:
    """Turn database errors into ours, without the row that PostgreSQL likes to print.

    Raises:
        StoreUnavailable: There is no connection, or the server is going down or cannot write.
        StoreConflict: Another transaction was in the way.
        StoreError: The statement was refused.
    """
    try:
        yield
    except psycopg.Error as error:
        state = error.sqlstate
        if state is None and isinstance(error, psycopg.OperationalError):
            raise StoreUnavailable(
                f"the database does not answer ({_first_words(error)}); check VAULT_MEMORY_DSN"
            ) from None
        constraint = error.diag.constraint_name
        facts = f"sqlstate {state or 'none'}" + (f", constraint {constraint}" if constraint else "")
        if state is not None and state.startswith(_UNAVAILABLE):
            raise StoreUnavailable(f"the database went away ({facts}); try again") from None
        if state is not None and state.startswith(_CONFLICT):
            raise StoreConflict(f"another transaction was in the way ({facts}); try again") from None
        if state is not None and state.startswith(("28", "3D")):
            raise StoreError(
                f"the database refuses the login or does not exist ({facts}); check VAULT_MEMORY_DSN"
            ) from None
        raise StoreError(f"the database refused a statement ({type(error).__name__}, {facts})") from None


def _first_words(error: psycopg.Error) -> str:
    """Name the kind of a connection error; its text can hold the whole DSN."""
    text = str(error).lower()
    for words in ("connection refused", "no such file", "timeout", "password", "could not translate", "missing"):
        if words in text:
            return words
    return type(error).__name__
