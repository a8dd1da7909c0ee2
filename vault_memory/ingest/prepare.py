"""From a blob to a clean note with its chunks, at most once a run.

Belongs here: reading, screening and chunking of selected notes, and a bounded cache of the results, because
the steps of a run hand each other only names and hashes. Does not: anything that writes.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Final, Protocol

from vault_memory.ingest.screening import Screener
from vault_memory.notes.chunking import chunk
from vault_memory.notes.model import CleanNote, Excluded, Quarantined, QuarantineReason, RawNote
from vault_memory.notes.paths import NotePath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from vault_memory.adapters.git import GitVault
    from vault_memory.ingest.allowances import Allowance, AllowList
    from vault_memory.notes.exclusion import Ruleset
    from vault_memory.notes.model import Chunk

_CACHE_CHARACTERS: Final = 64 * 1024 * 1024
_SCANNERS: Final = 2
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


class Judge(Protocol):
    """What judges notes: the ``Screener`` and its processes, or one without processes in tests."""

    def screen_all(self, raws: Iterable[RawNote]) -> Iterator[CleanNote | Quarantined | Excluded]:
        """Judge notes, in order."""
        ...

    def close(self) -> None:
        """Let go of what it holds."""
        ...


class Preparer:
    """Reads, screens and chunks notes of one vault, and remembers the latest ones.

    Args:
        vault: To read from.
        allowances: What the operator released.
        make_judge: Returns what judges notes by some rules; None: the scanner's processes.
    """

    def __init__(
        self, vault: GitVault, allowances: AllowList, make_judge: Callable[[Ruleset], Judge] | None = None
    ) -> None:
        self._vault = vault
        self._allowances = allowances
        self._make_judge = make_judge or self._screener
        self._judge: tuple[str, Judge] | None = None
        self._cache: OrderedDict[tuple[str, str], PreparedNote] = OrderedDict()
        self._cached_characters = 0

    def prepare(self, wanted: Iterable[tuple[NotePath, str]], rules: Ruleset) -> Iterator[PreparedNote | Refused]:
        """Yield every wanted note (path and blob id), in an order of its own.

        Raises:
            VaultError: A blob is missing or git failed.
            ScanError: The scanner cannot run at all.
        """
        by_blob: dict[str, list[NotePath]] = {}
        for path, blob_id in wanted:
            known = self._cache.get((path.id, blob_id))
            if known is not None:
                yield known
            else:
                by_blob.setdefault(blob_id, []).append(path)
        if not by_blob:
            return
        too_large: list[Refused] = []
        # A worker examines one note while git reads the next: what waits between the two is bounded by the workers.
        under_way: deque[RawNote] = deque()

        def raw_notes() -> Iterator[RawNote]:
            for blob_id, data in self._vault.read(list(by_blob), max_bytes=rules.scan.max_note_bytes):
                for path in by_blob[blob_id]:
                    if data is None:
                        verdict = Quarantined(path, blob_id, QuarantineReason.TOO_LARGE)
                        too_large.append(Refused(verdict, self._allowances.tag(blob_id.encode())))
                    else:
                        under_way.append(RawNote(path, blob_id, data))
                        yield under_way[-1]

        for verdict in self._judge_for(rules).screen_all(raw_notes()):
            raw = under_way.popleft()
            if isinstance(verdict, CleanNote):
                allowed = self._allowances.of(raw.path.id, raw.data)
                prepared = PreparedNote(verdict, chunk(verdict), self._allowances.tag(raw.data), allowed)
                self._remember((raw.path.id, raw.blob_id), prepared)
                yield prepared
            else:
                yield Refused(verdict, self._allowances.tag(raw.data))
        yield from too_large

    def judge_stored(
        self, stored: Iterable[tuple[str, str, str]], rules: Ruleset
    ) -> Iterator[tuple[RawNote, CleanNote | Quarantined | Excluded]]:
        """Judge stored texts (id, blob id, text) by rules they may not have seen yet, in order."""
        under_way: deque[RawNote] = deque()

        def raw_notes() -> Iterator[RawNote]:
            for note_id, blob_id, text in stored:
                under_way.append(RawNote(NotePath.from_text(note_id), blob_id, text.encode()))
                yield under_way[-1]

        for verdict in self._judge_for(rules).screen_all(raw_notes()):
            yield under_way.popleft(), verdict

    def _screener(self, rules: Ruleset) -> Judge:
        return Screener(rules, allowed=self._allowances.allows, max_workers=_SCANNERS)

    def _judge_for(self, rules: Ruleset) -> Judge:
        if self._judge is None or self._judge[0] != rules.id:
            self.close()
            self._judge = (rules.id, self._make_judge(rules))
        return self._judge[1]

    def close(self) -> None:
        """End the scanner processes and empty the cache."""
        if self._judge is not None:
            self._judge[1].close()
            self._judge = None
        self.forget()

    def _remember(self, key: tuple[str, str], prepared: PreparedNote) -> None:
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
