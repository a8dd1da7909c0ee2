"""Every step at which a process may die: before and after each write, commit and network request.

Belongs here: counting those steps in this process, and killing somebody at one of them. Does not: what is killed and
what must come of it (``matrix``). Nothing in the product knows of this: only a test can arm it, in a process of its own.
"""

import contextlib
import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx2
import psycopg
from sqlalchemy import event
from sqlalchemy.engine import Engine

_WRITES = re.compile(
    r"\s*(?:WITH\b.*?\b)?(INSERT\s+INTO|UPDATE|DELETE\s+FROM|CREATE|ALTER|DROP|TRUNCATE|ANALYZE|GRANT|REVOKE|COMMENT)\b"
    r"\s*(?:(?:TABLE|INDEX|VIEW|SCHEMA|ROLE|EXTENSION|FUNCTION|IF|NOT|EXISTS|ONLY|UNIQUE|OR|REPLACE)\s+)*(\S+)?",
    re.IGNORECASE | re.DOTALL,
)
_LOCKS = re.compile(r"SELECT (pg_try_advisory_lock|pg_advisory_unlock)")


class Act(Protocol):
    """What is done at the chosen step."""

    def __call__(self) -> None:
        """Kill somebody."""


@dataclass
class Points:
    """The steps of this process.

    Attributes:
        chosen: The number of the step, from 1, at which to act; 0: none.
        act: What to do there.
        log: Where the names of all steps go, one a line, as they happen; None: nowhere.
        is_on: Whether steps are counted at the moment.
        number: Of the last step.
        among: Count towards ``chosen`` the steps of this name alone; None: all.
    """

    chosen: int
    act: Act
    log: Path | None = None
    is_on: bool = True
    number: int = 0
    among: str | None = None

    def pass_by(self, name: str) -> None:
        """Count a step, and act if it is the chosen one."""
        if not self.is_on:
            return
        self.number += self.among in (None, name)
        if self.log is not None:
            with self.log.open("a", encoding="utf-8") as file:
                file.write(f"{name}\n")
        if self.number == self.chosen and self.among in (None, name):
            self.act()

    @contextlib.contextmanager
    def around(self, name: str | None) -> Iterator[None]:
        """Count the steps before and after something; None: nothing that counts."""
        if name is None:
            yield
            return
        self.pass_by(f"before {name}")
        yield
        self.pass_by(f"after {name}")


def kill(pid: int) -> Act:
    """Return an act that ends a process the hard way."""
    return lambda: os.kill(pid, signal.SIGKILL)


def kill_self() -> None:
    """End this process the hard way."""
    os.kill(os.getpid(), signal.SIGKILL)


def name_of(statement: object) -> str | None:
    """Name a statement that writes or locks; None for any other."""
    text = statement.decode(errors="replace") if isinstance(statement, bytes) else statement
    if not isinstance(text, str):
        text = text.as_string(None) if hasattr(text, "as_string") else str(text)
    if lock := _LOCKS.match(text):
        return lock[1]
    written = _WRITES.match(text)
    return f"{' '.join(written[1].split()).lower()} {(written[2] or '').strip('(;')}".strip() if written else None


def arm(points: Points, *, dagster: bool = True) -> None:
    """Count this process' steps from now on: our own writes, Dagster's if wanted, and requests to the provider."""
    _arm_psycopg(points)
    if dagster:
        _arm_dagster(points)
    send = httpx2.AsyncHTTPTransport.handle_async_request

    async def handle_async_request(self: Any, request: Any) -> Any:
        with points.around("request to the provider"):
            return await send(self, request)

    httpx2.AsyncHTTPTransport.handle_async_request = handle_async_request


def _arm_psycopg(points: Points) -> None:
    for method in ("execute", "executemany"):
        setattr(psycopg.Cursor, method, _counted(points, getattr(psycopg.Cursor, method)))
    leave = psycopg.Transaction.__exit__

    def commit(self: psycopg.Transaction, kind: Any, error: Any, trace: Any) -> bool:
        with points.around("commit" if kind is None else None):
            return leave(self, kind, error, trace)

    psycopg.Transaction.__exit__ = commit


def _counted(points: Points, plain: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: psycopg.Cursor, query: object, *given: Any, **options: Any) -> Any:
        with points.around(name_of(query)):
            return plain(self, query, *given, **options)

    return method


def _arm_dagster(points: Points) -> None:
    """Dagster's storage commits each statement by itself, so that its statements are all there is to count."""

    @event.listens_for(Engine, "before_cursor_execute")
    def before(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if name := name_of(statement):
            points.pass_by(f"before dagster: {name}")

    @event.listens_for(Engine, "after_cursor_execute")
    def after(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if name := name_of(statement):
            points.pass_by(f"after dagster: {name}")
