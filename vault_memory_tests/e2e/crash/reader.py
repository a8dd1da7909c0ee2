"""A reader that asks all the while, and notes whatever a reader must never see.

Belongs here: the versions of each note that may be seen, and one process that looks. Does not: what is going on
meanwhile.
"""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psycopg

from vault_memory import settings as settings_module
from vault_memory.errors import ServerError, StoreError
from vault_memory.query.search import search
from vault_memory_tests.fixtures.rebuild import Contents

COMMON = "caches"
"""A word of every chunk."""
SNAPSHOT = """SELECT p.id, p.content_hash, array_agg(c.content ORDER BY c.ordinal)
              FROM vault_memory.memory_primary p LEFT JOIN vault_memory.memory_chunk c ON c.note_id = p.id
              GROUP BY p.id, p.content_hash"""

MODELS = "SELECT count(DISTINCT (model, dimensions)) FROM vault_memory.memory_chunk"

Version = tuple[str, ...]


@dataclass(frozen=True)
class Expected:
    """What may be seen of each note.

    Attributes:
        before: The chunks of each note before the commit.
        after: The same after it.
        renamed: New names by old ones: always one of the two is there.
    """

    before: dict[str, Version]
    after: dict[str, Version]
    renamed: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, before: Contents, after: Contents, renamed: dict[str, str]) -> "Expected":
        """Read the versions from the contents of two stores."""
        return cls(versions(before), versions(after), renamed)

    def wrong_in_store(self, seen: dict[str, Version]) -> list[str]:
        """Say what is wrong in one look at all notes."""
        wrong = [f"{note}: no version" for note, parts in seen.items() if parts not in self._versions(note)]
        wrong += [f"{note}: gone" for note in self.before.keys() & self.after.keys() if note not in seen]
        for old, new in self.renamed.items():
            if (old in seen) == (new in seen):
                wrong.append(f"{old}: {'both names' if old in seen else 'neither name'}")
        return wrong

    def wrong_in_answer(self, hits: list[tuple[str, str]]) -> list[str]:
        """Say what is wrong in an answer to a question that every chunk answers, by source and text."""
        wrong = [f"{hit[0]}: twice" for hit, times in Counter(hits).items() if times > 1]
        found: dict[str, set[str]] = {}
        for source, text in hits:
            found.setdefault(source, set()).add(text)
        for source, texts in found.items():
            if not any(
                texts <= set(version) and len(texts) == min(2, len(version)) for version in self._versions(source)
            ):
                wrong.append(f"{source}: half of a version")
        wrong += [f"{note}: not found" for note in self.before.keys() & self.after.keys() if note not in found]
        return wrong

    def _versions(self, note: str) -> list[Version]:
        return [side[note] for side in (self.before, self.after) if note in side]


def versions(contents: Contents) -> dict[str, Version]:
    """Return the chunks of each note, in order."""
    parts: dict[str, list[tuple[int, str]]] = {str(row[0]): [] for row in contents["notes"]}
    for row in contents["chunks"]:
        parts[str(row[1])].append((int(str(row[2])), str(row[7])))
    return {note: tuple(text for _, text in sorted(chunks)) for note, chunks in parts.items()}


@dataclass
class Seen:
    """What the reader has to tell.

    Attributes:
        looks: How often all notes were looked at.
        answers: How many questions were answered.
        outages: Looks and questions that found no database.
        wrong: What must never be seen.
    """

    looks: int = 0
    answers: int = 0
    outages: int = 0
    wrong: list[str] = field(default_factory=list)


def read(environment: dict[str, str], dsn: str, expected: Expected, over: Connection) -> None:
    """Look and ask until told to end; then send what was seen."""
    settings = settings_module.load(environment)
    seen = Seen()
    connection: psycopg.Connection | None = None
    over.send("ready")
    while not over.poll(0.02):
        try:
            if connection is None or connection.closed:
                connection = psycopg.connect(dsn, autocommit=True, connect_timeout=5)
            found: dict[str, Any] = {note: tuple(parts) for note, _, parts in connection.execute(SNAPSHOT)}
            seen.looks += 1
            seen.wrong += expected.wrong_in_store(found)
            (models,) = connection.execute(MODELS).fetchone() or (0,)
            seen.wrong += [f"{models} models at once"] if models != 1 else []
            items = search(COMMON, k=100, mode="keyword", settings=settings).items
            seen.answers += 1
            seen.wrong += expected.wrong_in_answer([(hit.source, hit.text) for hit in items])
        except (StoreError, ServerError, psycopg.OperationalError):
            seen.outages += 1
            if connection is not None:
                connection.close()
            time.sleep(0.02)
    over.send(seen)


@contextlib.contextmanager
def reading(context: Any, environment: dict[str, str], dsn: str, expected: Expected) -> Iterator[Seen]:
    """Let a process look all the while; what it saw is there at the end."""
    ours, theirs = context.Pipe()
    process = context.Process(target=read, args=(environment, dsn, expected, theirs), daemon=True)
    process.start()
    theirs.close()
    assert ours.poll(30), "the reader did not start"
    assert "ready" == ours.recv()
    seen = Seen()
    try:
        yield seen
    finally:
        ours.send("end")
        assert ours.poll(30), "the reader did not end"
        told: Seen = ours.recv()
        seen.__dict__.update(told.__dict__)
        process.join(30)
        ours.close()


def log_of(folder: Path) -> list[str]:
    """Return the names of the steps that were counted."""
    return folder.read_text(encoding="utf-8").splitlines()
