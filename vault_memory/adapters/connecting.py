"""Connecting to a PostgreSQL that may be on its way up.

Belongs here: telling "in a moment" from "no", and waiting for it. Does not: starting a server (``server``), choosing a
DSN, what an error becomes (``database_errors``).

When one of its processes is killed, PostgreSQL ends all others and recovers for a moment (0.1 to 8 s were seen): it
takes the connection and refuses the login. Whoever comes then would fail for nothing.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

import psycopg

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.1
# Of a failed login the driver keeps no sqlstate (57P03), only the words.
_ON_ITS_WAY: Final = ("is starting up", "in recovery mode", "not yet accepting connections", "is shutting down")

Connected = TypeVar("Connected")


def when_up(connect: Callable[[], Connected], *, wait_seconds: float = WAIT_SECONDS) -> Connected:
    """Call ``connect`` until the server lets us in or says no; return what it returns.

    Args:
        connect: Opens a connection.
        wait_seconds: How long a server may be on its way.

    Raises:
        psycopg.Error: Of the last try.
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            return connect()
        except psycopg.OperationalError as error:
            said = str(error)
            if not any(words in said for words in _ON_ITS_WAY) or time.monotonic() >= deadline:
                raise
        time.sleep(_POLL_SECONDS)
