"""``vault-memory sync``: bring the store to HEAD, through Dagster in this process.

Belongs here: planning, running batch after batch, adding up what happened. Does not: the steps (``ingest``).
Dagster costs most of a second to import, so it is not imported where there is nothing to run.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from vault_memory.errors import ConfigError
from vault_memory.ingest import vector_index
from vault_memory.ingest.database import open_database
from vault_memory.ingest.sync import Synchronizer

if TYPE_CHECKING:
    from collections.abc import Callable

    from vault_memory.ingest.batch import NoteOutcome
    from vault_memory.ingest.sync import Estimate, VaultPlan
    from vault_memory.settings import Settings

_MAX_ROUNDS: Final = 20  # commits may keep coming while we work; the next sync follows whoever commits faster
COUNTED: Final = ("added", "changed", "renamed", "deleted", "quarantined", "released", "excluded")


@dataclass(slots=True)
class SyncResult:
    """What a sync did.

    Attributes:
        start: The commit that the store was at before; None: it was new.
        end: The commit that it is at now; not HEAD where a run broke off.
        outcomes: The last outcome of every note that was touched.
        unchanged: Files that needed nothing.
        texts_embedded: Texts sent to the embedder.
        tokens: As the provider counted them.
        requests: Sent to the provider.
        problem: Why a run broke off, one line.
        blocked: Why nothing could be embedded, if that is a matter of settings.
        rotate: By note that was quarantined now and had been embedded before: by whom and when.
    """

    start: str | None
    end: str | None = None
    outcomes: dict[str, NoteOutcome] = field(default_factory=dict)
    unchanged: int = 0
    texts_embedded: int = 0
    texts_reused: int = 0
    tokens: int = 0
    requests: int = 0
    price_usd: float = 0.0
    seconds: float = 0.0
    problem: str | None = None
    blocked: str | None = None
    rotate: dict[str, str] = field(default_factory=dict)

    @property
    def counts(self) -> Counter[str]:
        """Notes by what happened to them."""
        renamed = sum(outcome.action == "renamed" for outcome in self.outcomes.values())
        counts = Counter(outcome.action for outcome in self.outcomes.values())
        counts["deleted"] -= renamed  # the old name of a renamed note is no deleted note
        return Counter({str(action): number for action, number in counts.items()})

    @property
    def failures(self) -> dict[str, str]:
        """Reasons by note."""
        return {note: outcome.error or "" for note, outcome in self.outcomes.items() if outcome.action == "failed"}

    @property
    def exit_status(self) -> int:
        """0 done, 1 some notes failed, 3 could not run."""
        if self.problem is not None and not self.failures:
            return 3
        if self.blocked is not None and self.failures:
            return 3
        return 1 if self.failures else 0

    def to_json(self) -> dict[str, object]:
        """Return the stable contract of ``sync --json``."""
        counts = self.counts
        return {
            "from": self.start,
            "to": self.end,
            **{name: counts[name] for name in COUNTED},
            "failed": len(self.failures),
            "unchanged": self.unchanged,
            "texts_embedded": self.texts_embedded,
            "texts_reused": self.texts_reused,
            "tokens": self.tokens,
            "requests": self.requests,
            "price_usd": round(self.price_usd, 6),
            "seconds": round(self.seconds, 3),
            "rotate": [{"source": source, "notice": notice} for source, notice in sorted(self.rotate.items())],
            "failures": [{"source": source, "reason": reason} for source, reason in sorted(self.failures.items())],
        }


def plan_only(settings: Settings, *, full: bool = False) -> tuple[VaultPlan, Estimate]:
    """Say what a sync would do, and what it would send; nothing is written or sent.

    Raises:
        VaultMemoryError: Vault, database or settings cannot be used.
    """
    with Synchronizer.open(settings) as synchronizer:
        plan = synchronizer.plan(full=full, retry_all=True)
        return plan, synchronizer.estimate(plan)


def sync(
    settings: Settings,
    *,
    full: bool = False,
    allow_mass_deletion: bool = False,
    confirmed: bool = False,
    wait_seconds: float | None = None,
    report: Callable[[str], None] = lambda _line: None,
) -> SyncResult:
    """Bring the store to HEAD.

    Args:
        settings: Of the vault.
        full: Scan and write every note again; vectors of unchanged texts are reused.
        allow_mass_deletion: Carry out a plan that deletes most notes.
        confirmed: Embed even if it costs more than ``confirm_above_usd``.
        wait_seconds: How long to wait for another writer; None: as the settings say.
        report: Is told one line a batch.

    Raises:
        WriterBusyError: Another writer did not end in time.
        VaultMemoryError: Vault, database or settings cannot be used.
    """
    started = time.monotonic()
    wait = settings.sync.wait_seconds if wait_seconds is None else wait_seconds
    with Synchronizer.open(settings) as synchronizer:
        result = SyncResult(start=synchronizer.store.sync_state().commit)
        plan = synchronizer.plan(full=full, retry_all=True)
        if not allow_mass_deletion:
            synchronizer.refuse_mass_deletion(plan)
        if not confirmed:
            _refuse_high_price(settings, synchronizer, plan)
        result.unchanged = plan.unchanged
        for _ in range(_MAX_ROUNDS):
            if not plan.note_ids or set(plan.note_ids) <= set(result.failures):
                break
            _run(settings, synchronizer, plan, full=full, wait=wait, result=result, report=report)
            full = False
            if result.problem is not None and not result.failures:
                break
            plan = synchronizer.plan()
        if not plan.note_ids:
            with synchronizer.writer(wait, holder="sync"):
                synchronizer.settle(plan)
        spent = synchronizer.spent
        result.tokens, result.requests, result.price_usd = spent.tokens, spent.requests, spent.price_usd
        result.end = synchronizer.store.sync_state().commit
        result.rotate = {
            line.source: line.notice
            for line in synchronizer.store.audit()
            if line.notice is not None
            and line.source in result.outcomes
            and result.outcomes[line.source].action == "quarantined"
        }
        if synchronizer.embedder_error is not None:
            result.blocked = str(synchronizer.embedder_error)
    vector_index.settle(settings, report=report)
    result.seconds = time.monotonic() - started
    return result


def _run(
    settings: Settings,
    synchronizer: Synchronizer,
    plan: VaultPlan,
    *,
    full: bool,
    wait: float,
    result: SyncResult,
    report: Callable[[str], None],
) -> None:
    """Carry out a plan, one Dagster run a batch."""
    from vault_memory.defs import instance as dagster_instance  # noqa: PLC0415 - most of a second

    batches = plan.batches(settings.sync.max_notes_per_run)
    with dagster_instance.open_instance(settings, open_database(settings).dagster_dsn) as instance:
        for number, note_ids in enumerate(batches, 1):
            run = dagster_instance.run_in_process(
                settings,
                instance,
                note_ids,
                plan,
                wait_seconds=wait,
                opener=lambda _settings: nullcontext(synchronizer),
            )
            for outcome in run.outcomes:
                result.outcomes[outcome.note_id] = outcome
                result.texts_embedded += outcome.texts_embedded
                result.texts_reused += outcome.texts_reused
            if len(batches) > 1:
                report(f"run {number} of {len(batches)}: {len(run.outcomes)} notes")
            if not run.succeeded:
                result.problem = run.problem
                if not run.outcomes:
                    return


def _refuse_high_price(settings: Settings, synchronizer: Synchronizer, plan: VaultPlan) -> None:
    embedder = synchronizer.embedder
    if embedder is None or not plan.note_ids or embedder.price_usd(1_000_000) in (None, 0.0):
        return
    estimate = synchronizer.estimate(plan)
    limit = settings.embedding.confirm_above_usd
    if estimate.price_usd is not None and estimate.price_usd > limit:
        raise ConfigError(
            f"this sync would send {estimate.texts} texts for about ${estimate.price_usd:.2f} (limit ${limit:.2f}); "
            "if that is meant, run: vault-memory sync --yes"
        )
