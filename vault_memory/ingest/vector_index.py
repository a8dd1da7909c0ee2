"""Which index the vector leg uses, and when to think again.

Belongs here: the rule behind ``vector_index = auto``, and its step after a sync. Does not: SQL
(``adapters.vector_index``), and how a search uses the index (``sql/queries/search.sql``).

Measured with 1,536 dimensions: exact search takes 21 ms of CPU at 10,000 chunks and 205 at 100,000; a scan of the
vectors' signs with an exact look at the best thousand 15 and 45, where the signs tell vectors apart: they do for
trained models and do not for the hashing embedder, so they are tried on stored vectors first. HNSW takes 23 at 100,000
and a third of the time, but makes every write seven times dearer, and pays where a scan is felt.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from vault_memory.adapters.vector_index import OLDEST_PGVECTOR_FOR_HNSW, IndexFacts, VectorIndex
from vault_memory.ingest.database import open_database

if TYPE_CHECKING:
    from collections.abc import Callable

    from vault_memory.settings import IndexChoice, IndexMode, Settings

log = logging.getLogger(__name__)

MAX_EXACT_CHUNKS: Final = 3_000
MAX_BITS_CHUNKS: Final = 50_000  # a question waits 70 ms for the scan there, and 140 at twice as many
MIN_IVFFLAT_CHUNKS: Final = 5_000  # lists are made from what is there: on few rows they fit nothing that comes later
MIN_RECALL: Final = 0.95
_QUICK_SAMPLE: Final = 10  # after every sync: a second at 50,000 chunks, where the full check takes four
_SHRINK_MARGIN: Final = 1.25  # a store that breathes around a border keeps its index


@dataclass(frozen=True, slots=True)
class VectorIndexReport:
    """What a look at the index found or did.

    Attributes:
        choice: What is asked for, by the settings or else by the database.
        mode: What searches use now.
        recall: At ten, against exact search; None where it was not measured.
        chunks: In the store.
        changed: Whether this call chose or built anything.
    """

    choice: IndexChoice
    mode: IndexMode
    recall: float | None
    chunks: int
    changed: bool
    seconds: float

    def to_json(self) -> dict[str, object]:
        """Return the contract of ``index-check --json``."""
        return {
            "choice": self.choice,
            "vector_index": self.mode,
            "recall_at_10": None if self.recall is None else round(self.recall, 4),
            "chunks": self.chunks,
            "changed": self.changed,
            "seconds": round(self.seconds, 3),
        }


def wanted(facts: IndexFacts, choice: IndexChoice) -> tuple[IndexMode, ...]:
    """Return the modes to try, best first; the last one needs no check."""
    match choice:
        case "ivfflat":
            return ("ivfflat",) if facts.chunks >= MIN_IVFFLAT_CHUNKS else ("exact",)
        case "auto":
            size = _size_class(facts)
            if size == 0:
                return ("exact",)
            if size == 1 or facts.pgvector < OLDEST_PGVECTOR_FOR_HNSW:
                return ("bits", "exact")
            return ("hnsw", "bits", "exact")
        case _:
            return (choice,)


def is_due(facts: IndexFacts, choice: IndexChoice) -> bool:
    """Say whether the recorded mode has to be thought over; else a sync leaves it alone."""
    modes = wanted(facts, choice)
    if facts.mode not in modes:
        return True
    if modes == ("exact",) or choice in ("exact", "bits", "hnsw"):
        return False
    doubled = facts.chunks >= 2 * max(facts.chosen_chunks, 1)
    if choice == "ivfflat":
        return doubled
    return (
        doubled
        or facts.model != facts.chosen_model
        or _class(facts.chosen_chunks) != _size_class(facts)  # it passed a border
    )


def settle(settings: Settings, *, report: Callable[[str], None] = lambda _line: None) -> VectorIndexReport | None:
    """Choose and build the index if that is due; the step after a sync, some milliseconds where nothing is.

    Args:
        settings: Of the vault; the schema is migrated.
        report: Is told before something slow begins.

    Returns:
        What was done; None if another process is at it.

    Raises:
        StoreError: The database refused a statement.
        ConfigError: The settings ask for an index that this server cannot build.
    """
    with VectorIndex.connect(open_database(settings).dsn, settings.schema) as index:
        facts = index.facts()
        choice = settings.search.vector_index or facts.choice
        if not is_due(facts, choice):
            return VectorIndexReport(choice, facts.mode, facts.recall, facts.chunks, changed=False, seconds=0.0)
        return _choose(index, facts, choice, report=report)


def check(
    settings: Settings, *, change_to: IndexChoice | None = None, report: Callable[[str], None] = lambda _line: None
) -> VectorIndexReport | None:
    """Measure the index against exact search, or change it.

    Args:
        settings: Of the vault; the schema is migrated.
        change_to: Record this choice and carry it out; None: measure what is in use.
        report: Is told before something slow begins.

    Returns:
        What was found; None if another process works on the index.

    Raises:
        StoreError: The database refused a statement.
        ConfigError: This server cannot build it.
    """
    with VectorIndex.connect(open_database(settings).dsn, settings.schema) as index:
        facts = index.facts()
        if change_to is not None:
            return _choose(index, facts, change_to, record_choice=True, report=report)
        started = time.monotonic()
        recall = index.recall(facts.mode)
        choice = settings.search.vector_index or facts.choice
        return VectorIndexReport(
            choice, facts.mode, recall, facts.chunks, changed=False, seconds=time.monotonic() - started
        )


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """What a quick look at the index in use showed.

    Attributes:
        mode: What searches use.
        recall: At ten, against exact search, by some stored vectors; 1 where searches are exact, None without vectors.
        milliseconds: What one search by vector takes in the database, the median of some; None without vectors.
    """

    mode: IndexMode
    recall: float | None
    milliseconds: float | None

    @property
    def is_good(self) -> bool:
        """Whether the index finds enough of what exact search finds."""
        return self.recall is None or self.recall >= MIN_RECALL


def self_check(settings: Settings) -> SelfCheck:
    """Look whether the index in use is as good as it was when it was chosen; some searches, nothing is changed.

    Raises:
        StoreError: The database refused a statement.
    """
    with VectorIndex.connect(open_database(settings).dsn, settings.schema) as index:
        mode = index.facts().mode
        milliseconds = index.milliseconds(mode, _QUICK_SAMPLE)
        if mode == "exact" or milliseconds is None:
            return SelfCheck(mode, None if milliseconds is None else 1.0, milliseconds)
        return SelfCheck(mode, index.recall(mode, _QUICK_SAMPLE), milliseconds)


def _choose(
    index: VectorIndex,
    facts: IndexFacts,
    choice: IndexChoice,
    *,
    record_choice: bool = False,
    report: Callable[[str], None],
) -> VectorIndexReport | None:
    started = time.monotonic()
    if not index.try_lock():
        return None
    modes = wanted(facts, choice)
    mode, recall = modes[-1], None
    for mode in modes:
        if mode != "exact":
            report(f"building the vector index {mode} over {facts.chunks} chunks")
        index.build(mode)
        recall = None if mode == "exact" else index.recall(mode)
        # What was asked for by name is not second-guessed; the number is recorded and shown.
        if choice != "auto" or mode == "exact" or (recall is not None and recall >= MIN_RECALL):
            break
    index.record(mode, recall=recall, choice=choice if record_choice else None)
    seconds = time.monotonic() - started
    log.info("vector index %s over %d chunks, recall@10 %s", mode, facts.chunks, recall)
    return VectorIndexReport(choice, mode, recall, facts.chunks, changed=True, seconds=seconds)


def _class(chunks: float) -> int:
    return (chunks > MAX_EXACT_CHUNKS) + (chunks > MAX_BITS_CHUNKS)


def _size_class(facts: IndexFacts) -> int:
    """Return 0, 1 or 2, and leave a class downwards only by a margin."""
    now, before = _class(facts.chunks), _class(facts.chosen_chunks)
    return min(before, _class(facts.chunks * _SHRINK_MARGIN)) if now < before else now
