"""What must not be found any more leaves memory at once, before anything waits for the embedding API.

Belongs here: putting new rules in force, taking out deleted, excluded and quarantined notes, the audit of a
quarantine with its notice of what had been sent. Does not: what a rule means (``notes``).
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from vault_memory.adapters.store import Store
from vault_memory.adapters.store_records import NoteState, Sent
from vault_memory.ingest.planning import is_out
from vault_memory.notes.exclusion import Ruleset, same_but_for_paths
from vault_memory.notes.model import Excluded, NoteStatus, Quarantined, QuarantineReason
from vault_memory.notes.paths import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vault_memory.ingest.allowances import AllowList
    from vault_memory.ingest.batch import Batch, Item
    from vault_memory.ingest.keys import KeyedHash
    from vault_memory.ingest.planning import Planner
    from vault_memory.ingest.prepare import Preparer, Refused
    from vault_memory.settings import SyncSettings

log = logging.getLogger(__name__)


class Withdrawer:
    """Takes notes out of memory. Call it as the writer."""

    def __init__(
        self,
        settings: SyncSettings,
        store: Store,
        key: KeyedHash,
        *,
        planner: Planner,
        allowances: AllowList,
        preparer: Preparer,
    ) -> None:
        """Take over open parts.

        Args:
            settings: When to look again at a note that was not scanned in time.
            store: To delete from.
            key: Of the keyed hashes.
            planner: Knows which releases have ended.
            allowances: The operator's releases.
            preparer: Judges stored texts.
        """
        self._settings = settings
        self._store = store
        self._key = key
        self._planner = planner
        self._allowances = allowances
        self._preparer = preparer

    def put_in_force(self, rules: Ruleset) -> None:
        """Take out at once what new rules or an ended release forbid; the runs that follow do the rest.

        Until the one transaction at its end the old rules hold, and the old rows answer. Where only rules about
        paths changed, no text is looked at again, neither here nor by a run.
        """
        self._allowances.refresh()
        before = self._store.sync_state().ruleset_id
        is_new = before != rules.id
        only_paths = is_new and before is not None and same_but_for_paths(before, rules.id)
        ended = sorted({one.note_id for one in self._planner.ended_releases()})
        if not is_new and not ended:
            return
        out: list[str] = []
        settled: list[str] = []
        if before is not None and only_paths:
            out = [note_id for note_id in self._store.row_ids() if is_out(note_id, rules)]
            settled = [note_id for note_id in self._store.judged_notes(before) if not is_out(note_id, rules)]
        judge_all = is_new and not only_paths
        stored = (
            self._store.stored_texts() if judge_all else ((one, self._store.stored_text(one) or "") for one in ended)
        )
        doomed: dict[str, tuple[Quarantined | Excluded, str]] = {}
        for note_id, content, verdict in self._preparer.judge_stored(stored, rules, many=judge_all):
            if verdict is not None:
                doomed[note_id] = (verdict, self._key.tag(content.encode()))

        def take_out() -> None:
            # Now, not in the run that follows: it will find no rows that say where they had been sent.
            sent = {note_id: self._sent(note_id, held_secret=True) for note_id in doomed}
            self._store.delete_rows([*out, *doomed])
            if is_new:
                self._store.record_ruleset(rules.id, settled=settled)
            for note_id, (verdict, tag) in doomed.items():
                if isinstance(verdict, Quarantined):
                    self._store.write_audit(verdict, ruleset_id=rules.id, content_hmac=tag, sent=sent[note_id])

        self._store.transact(take_out)
        log.info("ruleset %s in force, %d notes taken out", rules.id, len(out) + len(doomed))

    def prune(self, batch: Batch, refused: Sequence[Refused], items: dict[str, Item]) -> None:
        """Take out of the store, one transaction a note, what was deleted, excluded or quarantined."""
        forgotten = [item for item in batch.items if item.kind == "forget" and item.is_open]
        # A text that moved here from a note that this run deletes or rewrites keeps its vector.
        self._store.rescue_vectors(
            [(item.note_id, text_hash) for item in batch.items for text_hash in item.hashes],
            [item.note_id for item in batch.items] + [old for item in batch.items for old in item.old_ids],
            batch.run_id,
        )
        for item in forgotten:
            started = time.perf_counter()
            self._store.transact(partial(self._forget, item.note_id))
            taken = (time.perf_counter() - started) * 1000
            items[item.note_id] = replace(item, action="deleted", milliseconds=item.milliseconds + taken)
            log.info("%s: deleted", one_line(item.note_id))
        for one in refused:
            self.refuse(batch, one, items)

    def _forget(self, note_id: str) -> None:
        self._store.delete_rows([note_id])
        self._store.drop_states([note_id])
        self._store.close_audit(note_id, "deleted")

    def refuse(self, batch: Batch, one: Refused, items: dict[str, Item]) -> None:
        """Take one note out of memory because of a verdict, and say so in its item and in the audit."""
        verdict = one.verdict
        item = items[verdict.path.id]
        quarantined = isinstance(verdict, Quarantined)
        status = NoteStatus.QUARANTINED if quarantined else NoteStatus.EXCLUDED
        late = verdict.reason is QuarantineReason.SCAN_TIMEOUT
        attempts = self._store.attempts(item.note_id) + 1 if late else 0
        started = time.perf_counter()
        sent: Sent | None = None
        if isinstance(verdict, Quarantined):
            sent = self._sent_before((item.note_id, *item.old_ids), verdict, self._planner.rules(batch.commit))

        def take_out() -> None:
            self._store.delete_rows([item.note_id, *item.old_ids])
            self._store.drop_states(item.old_ids)
            self._store.write_state(
                NoteState(
                    id=item.note_id,
                    status=status,
                    blob_tag=self._key.tag(verdict.blob_id),
                    ruleset_id=batch.ruleset_id,
                    commit=batch.commit,
                    reason=verdict.reason.value,
                    step="scan",
                    attempts=attempts,
                    # A machine may have been busy: what was not scanned in time is looked at again, and not too often.
                    next_retry_at=datetime.now(UTC) + self._settings.retry_after(attempts) if attempts else None,
                )
            )
            if isinstance(verdict, Quarantined):
                self._store.write_audit(verdict, ruleset_id=batch.ruleset_id, content_hmac=one.content_hmac, sent=sent)
            else:
                self._store.close_audit(item.note_id, "released")

        self._store.transact(take_out)
        rules = verdict.rules if isinstance(verdict, Quarantined) else (verdict.reason.value,)
        taken = (time.perf_counter() - started) * 1000
        items[item.note_id] = replace(
            item,
            action="quarantined" if quarantined else "excluded",
            rules=rules,
            milliseconds=item.milliseconds + taken,
        )
        log.info("%s: %s (%s)", one_line(item.note_id), status.value, ", ".join(rules))

    def _sent_before(self, note_ids: Sequence[str], verdict: Quarantined, rules: Ruleset) -> Sent | None:
        """Say which version of a note that is to be quarantined had been sent to an embedding provider.

        Args:
            note_ids: Its name and those it had before.
            verdict: Why it is quarantined.
            rules: Those in force.
        """
        found: Sent | None = None
        for note_id in note_ids:
            stored = self._store.stored_version(note_id)
            if stored is None:
                continue
            held = stored[0] == verdict.blob_id
            if not held and verdict.reason is QuarantineReason.SECRET:
                text = self._store.stored_text(note_id) or ""
                held = any(
                    isinstance(again, Quarantined)
                    for _, _, again in self._preparer.judge_stored([(note_id, text)], rules)
                )
            found = self._sent(note_id, held_secret=held) or found
        return found

    def _sent(self, note_id: str, *, held_secret: bool) -> Sent | None:
        """Say where the stored version of a note went, by what the database recorded: settings may have changed."""
        state = self._store.sync_state()
        stored = self._store.stored_version(note_id)
        if stored is None:
            return None
        if state.embedder in (None, "hashing"):
            # The embedder may have been changed since; rather one notice too many than a leak that nobody is told of.
            bought = self._store.has_bought_since(stored[1])
            return Sent("an embedding provider used before", stored[1], held_secret=held_secret) if bought else None
        host = urlsplit(state.base_url or "").hostname or "the embedding provider"
        return Sent(host, stored[1], held_secret=held_secret)
