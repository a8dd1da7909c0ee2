"""From a blob to a clean note with its chunks, at most once a run.

Belongs here: reading, screening and chunking of selected notes, and a bounded cache of the results, because
the steps of a run hand each other only names and hashes. Does not: anything that writes.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Final, Protocol

from vault_memory.errors import BlobError
from vault_memory.ingest.screening import Screener
from vault_memory.notes.chunking import chunk
from vault_memory.notes.model import CleanNote, Excluded, Quarantined, QuarantineReason, RawNote
from vault_memory.notes.paths import NotePath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from vault_memory.ingest.allowances import Allowance, AllowList
    from vault_memory.ingest.source import Source
    from vault_memory.notes.exclusion import Ruleset
    from vault_memory.notes.model import Chunk, Finding

_CACHE_CHARACTERS: Final = 64 * 1024 * 1024
_SCANNERS: Final = 2
_MANY: Final = 100  # notes from which a second worker earns the 0.3 s that it takes to start
_DATE_KEYS: Final = ("updated", "modified", "date", "created")


@dataclass(frozen=True, slots=True)
class PreparedNote:
    """A clean note with its chunks.

    Attributes:
        note: The note.
        chunks: In order.
        content_hmac: Keyed hash of the bytes that were read.
        allowed: The operator's releases for exactly these bytes.
    """

    note: CleanNote
    chunks: tuple[Chunk, ...]
    content_hmac: str
    allowed: tuple[Allowance, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """A note that must not be indexed, with the keyed hash of its bytes (of its blob id if it is too large to read)."""

    verdict: Quarantined | Excluded
    content_hmac: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A note whose content git cannot give; what is in memory of it stays there."""

    path: NotePath
    error: BlobError


class Judge(Protocol):
    """What judges notes: the ``Screener`` and its processes, or one without processes in tests."""

    def screen_all(self, raws: Iterable[RawNote]) -> Iterator[CleanNote | Quarantined | Excluded]:
        """Judge notes, in order."""
        ...

    def start(self) -> None:
        """Be ready for the first note."""
        ...

    def close(self) -> None:
        """Let go of what it holds."""
        ...


class MakeJudge(Protocol):
    """Makes what judges notes."""

    def __call__(self, rules: Ruleset, *, allowed: Callable[[RawNote, Finding], bool], max_workers: int) -> Judge:
        """Return a judge by some rules and releases."""
        ...


class Preparer:
    """Reads, screens and chunks notes of one vault, and remembers the latest ones.

    Args:
        vault: To read from.
        allowances: What the operator released.
        make_judge: Makes what judges notes.
    """

    def __init__(self, vault: Source, allowances: AllowList, make_judge: MakeJudge = Screener) -> None:
        self._vault = vault
        self._allowances = allowances
        self._make_judge = make_judge
        self._judge: tuple[str, int, Judge] | None = None
        self._cache: OrderedDict[tuple[str, str, str], PreparedNote] = OrderedDict()
        self._cached_characters = 0

    def prepare(
        self, wanted: Iterable[tuple[NotePath, str]], rules: Ruleset
    ) -> Iterator[PreparedNote | Refused | Unreadable]:
        """Yield every wanted note (path and blob id), in an order of its own.

        Raises:
            VaultError: Git failed.
            ScanError: The scanner cannot run at all.
        """
        by_blob: dict[str, list[NotePath]] = {}
        for path, blob_id in wanted:
            known = self._cache.get((path.id, blob_id, rules.id))
            if known is not None:
                yield known
            else:
                by_blob.setdefault(blob_id, []).append(path)
        if not by_blob:
            return
        not_judged: list[Refused | Unreadable] = []
        # A worker examines one note while git reads the next: what waits between the two is bounded by the workers.
        under_way: deque[RawNote] = deque()

        def raw_notes() -> Iterator[RawNote]:
            for blob_id, data in self._vault.read(list(by_blob), max_bytes=rules.scan.max_note_bytes):
                for path in by_blob[blob_id]:
                    if isinstance(data, bytes):
                        under_way.append(RawNote(path, blob_id, data))
                        yield under_way[-1]
                    else:
                        not_judged.append(self._without_content(path, blob_id, data))

        for verdict in self._judge_for(rules, len(by_blob)).screen_all(raw_notes()):
            yield self._judged(under_way.popleft(), verdict, rules)
        yield from not_judged

    def _without_content(self, path: NotePath, blob_id: str, problem: BlobError | None) -> Refused | Unreadable:
        if problem is not None:
            return Unreadable(path, problem)
        verdict = Quarantined(path, blob_id, QuarantineReason.TOO_LARGE)
        return Refused(verdict, self._allowances.tag(blob_id.encode()))

    def _judged(
        self, raw: RawNote, verdict: CleanNote | Quarantined | Excluded, rules: Ruleset
    ) -> PreparedNote | Refused:
        tag = self._allowances.tag(raw.data)
        if not isinstance(verdict, CleanNote):
            return Refused(verdict, tag)
        prepared = PreparedNote(verdict, chunk(verdict), tag, self._allowances.of(raw.path.id, raw.data))
        self._remember((raw.path.id, raw.blob_id, rules.id), prepared)
        return prepared

    def judge_stored(
        self, stored: Iterable[tuple[str, str]], rules: Ruleset, *, many: bool = False
    ) -> Iterator[tuple[str, str, Quarantined | Excluded | None]]:
        """Yield id and text of stored notes, and why rules keep them out: path, secrets or what they say of themselves.

        None: they are let through.

        Args:
            stored: Pairs of id and text.
            rules: They may not have been seen by these rules yet.
            many: Whether a second worker is worth its start.
        """
        under_way: deque[tuple[str, str]] = deque()

        def raw_notes() -> Iterator[RawNote]:
            for note_id, text in stored:
                under_way.append((note_id, text))
                yield RawNote(NotePath.from_text(note_id), "stored", text.encode())

        for verdict in self._judge_for(rules, _MANY if many else 1).screen_all(raw_notes()):
            yield *under_way.popleft(), None if isinstance(verdict, CleanNote) else verdict

    def ready(self, wanted: Iterable[tuple[NotePath, str]], rules: Ruleset) -> None:
        """Start what is needed to prepare notes, so that its start counts for none of them.

        Raises:
            ScanError: The scanner cannot run at all.
        """
        count = sum((path.id, blob_id, rules.id) not in self._cache for path, blob_id in wanted)
        if count:
            self._judge_for(rules, count).start()

    def _judge_for(self, rules: Ruleset, notes: int) -> Judge:
        workers = _SCANNERS if notes >= _MANY else 1
        if self._judge is None or self._judge[0] != rules.id or self._judge[1] < workers:
            self._close_judge()
            judge = self._make_judge(rules, allowed=self._allowances.allows, max_workers=workers)
            self._judge = (rules.id, workers, judge)
        return self._judge[2]

    def _close_judge(self) -> None:
        if self._judge is not None:
            self._judge[2].close()
            self._judge = None

    def close(self) -> None:
        """End the scanner processes and empty the cache."""
        self._close_judge()
        self.forget()

    def _remember(self, key: tuple[str, str, str], prepared: PreparedNote) -> None:
        self._cache[key] = prepared
        self._cached_characters += 2 * len(prepared.note.text)
        while self._cached_characters > _CACHE_CHARACTERS and len(self._cache) > 1:
            _, dropped = self._cache.popitem(last=False)
            self._cached_characters -= 2 * len(dropped.note.text)

    def forget(self) -> None:
        """Empty the cache at the end of a run."""
        self._cache.clear()
        self._cached_characters = 0


def note_date(front_matter: Mapping[str, object]) -> datetime | None:
    """Return the date a note gives itself: the first of ``updated``, ``modified``, ``date`` and ``created``."""
    lowered = {key.casefold(): value for key, value in front_matter.items()}
    for key in _DATE_KEYS:
        value = lowered.get(key)
        if isinstance(value, str):
            try:
                found = datetime.fromisoformat(value.strip())
            except ValueError:
                try:
                    found = datetime.combine(date.fromisoformat(value.strip()), time())
                except ValueError:
                    continue
            return found if found.tzinfo else found.replace(tzinfo=UTC)
    return None
