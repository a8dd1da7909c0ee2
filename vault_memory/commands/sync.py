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

from vault_memory.commands.roots import examine
from vault_memory.errors import ConfigError
from vault_memory.ingest import vector_index
from vault_memory.ingest.database import has_memory, open_database
from vault_memory.ingest.first_look import first_look
from vault_memory.ingest.rules import problem_lines
from vault_memory.ingest.sync import Synchronizer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vault_memory.ingest.batch import NoteFailure, NoteOutcome
    from vault_memory.ingest.estimates import Estimate
    from vault_memory.ingest.planning import VaultPlan
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
        price_usd: What they cost; None where no price is known.
        problem: Why a run broke off, one line.
        blocked: Why nothing more could be embedded, if that is a matter of settings.
        rebuild_failures: Notes that a change of model could not embed.
        rotate: By note that was quarantined now and had been embedded before: by whom and when.
        notice: What there is to know of the embedder.
        hint: What to do where no note lies in the folders that are indexed; None otherwise.
        rule_problems: Rules to exclude that cannot be read, where they stand and how to mend them, one line each.
    """

    start: str | None
    end: str | None = None
    outcomes: dict[str, NoteOutcome] = field(default_factory=dict)
    unchanged: int = 0
    texts_embedded: int = 0
    texts_reused: int = 0
    tokens: int = 0
    requests: int = 0
    price_usd: float | None = 0.0
    seconds: float = 0.0
    problem: str | None = None
    blocked: str | None = None
    rebuild_failures: Mapping[str, NoteFailure] = field(default_factory=dict)
    rotate: dict[str, str] = field(default_factory=dict)
    notice: str | None = None
    hint: str | None = None
    rule_problems: list[str] = field(default_factory=list[str])

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
        found = {note: failure.reason for note, failure in self.rebuild_failures.items()}
        for note, outcome in self.outcomes.items():
            found.pop(note, None)
            if outcome.action == "failed":
                found[note] = outcome.error or ""
        return found

    @property
    def exit_status(self) -> int:
        """0 done, 1 some notes failed or a rule cannot be read, 3 could not run."""
        if self.problem is not None and not self.failures:
            return 3
        if self.blocked is not None:
            return 3
        return 1 if self.failures or self.rule_problems else 0

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
            "price_usd": None if self.price_usd is None else round(self.price_usd, 6),
            "seconds": round(self.seconds, 3),
            "rule_problems": self.rule_problems,
            "rotate": [{"source": source, "notice": notice} for source, notice in sorted(self.rotate.items())],
            "failures": [{"source": source, "reason": reason} for source, reason in sorted(self.failures.items())],
        }


def plan_only(
    settings: Settings, *, full: bool = False, accept_model: bool = False, re_embed: bool = False
) -> tuple[VaultPlan, Estimate]:
    """Say what a sync would do, and what it would send; nothing is written or sent.

    Where there is no memory yet, none is made: no database, no key.

    Raises:
        VaultMemoryError: Vault, database or settings cannot be used.
    """
    if not has_memory(settings):
        return first_look(settings)
    with Synchronizer.open(settings, accept_model=accept_model) as synchronizer:
        rebuild = re_embed or synchronizer.provider.model_changed
        plan = synchronizer.plan(full=full or rebuild, retry_all=True)
        return plan, synchronizer.estimate_rebuild(plan) if rebuild else synchronizer.estimate(plan)


def sync(
    settings: Settings,
    *,
    full: bool = False,
    accept_model: bool = False,
    re_embed: bool = False,
    allow_mass_deletion: bool = False,
    confirmed: bool = False,
    wait_seconds: float | None = None,
    report: Callable[[str], None] = lambda _line: None,
) -> SyncResult:
    """Bring the store to HEAD.

    Args:
        settings: Of the vault.
        full: Scan and write every note again; vectors of unchanged texts are reused.
        accept_model: If the settings name another embedder than the recorded one, change over to it.
        re_embed: Make every vector anew, whoever made the old ones.
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
    with Synchronizer.open(settings, accept_model=accept_model) as synchronizer:
        synchronizer.planner.may_delete_most = allow_mass_deletion
        result = SyncResult(start=synchronizer.store.sync_state().commit)
        plan = synchronizer.plan(full=full, retry_all=True)
        synchronizer.refuse_mass_deletion(plan)
        rebuild = re_embed or synchronizer.provider.model_changed
        if not confirmed:
            _refuse_high_price(settings, synchronizer, plan, rebuild=rebuild)
        if rebuild:
            with synchronizer.writer(wait, holder="sync"):
                rebuilt = synchronizer.rebuild_vectors(report=report)
            result.rebuild_failures = rebuilt.failures
            if not rebuilt.changed_over:
                result.problem = (
                    "not all texts could be embedded; the old vectors answer until a later try has them all"
                )
                _close(result, synchronizer)
                result.seconds = time.monotonic() - started
                return result
            result.texts_embedded = synchronizer.provider.spent.texts
            full = True  # the notes are written again, so that Dagster knows of what changed
            plan = synchronizer.plan(full=True, retry_all=True)
        result.unchanged = plan.unchanged
        result.hint = examine(plan.tree, settings.scan).hint
        rounds = 0
        while rounds < _MAX_ROUNDS and plan.note_ids and not set(plan.note_ids) <= set(result.failures):
            rounds += 1
            _run(settings, synchronizer, plan, full=full, wait=wait, result=result, report=report)
            full = False
            if result.problem is not None and not result.failures:
                break
            if any(outcome.action == "postponed" for outcome in result.outcomes.values()):
                rounds = 0  # each round does some of them
            plan = synchronizer.plan()
        if not plan.note_ids and not (plan.is_empty and synchronizer.is_current()):
            with synchronizer.writer(wait, holder="sync"):
                synchronizer.settle(plan)
        _close(result, synchronizer)
    vector_index.settle(settings, report=report)
    result.seconds = time.monotonic() - started
    return result


def _close(result: SyncResult, synchronizer: Synchronizer) -> None:
    """Add what is known at the end."""
    spent = synchronizer.provider.spent
    result.tokens, result.requests, result.price_usd = spent.tokens, spent.requests, spent.price_usd
    result.end = synchronizer.store.sync_state().commit
    result.rotate = {
        line.source: line.notice
        for line in synchronizer.store.audit()
        if line.notice is not None
        and line.source in result.outcomes
        and result.outcomes[line.source].action == "quarantined"
    }
    if synchronizer.provider.error is not None:
        result.blocked = str(synchronizer.provider.error)
    result.notice = synchronizer.provider.notice
    result.rule_problems = problem_lines(synchronizer.rules(synchronizer.head()))


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
                full=full,
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
        commit = synchronizer.store.sync_state().commit
        dagster_instance.show_index(settings, instance, commit, opener=lambda _settings: nullcontext(synchronizer))


def _refuse_high_price(settings: Settings, synchronizer: Synchronizer, plan: VaultPlan, *, rebuild: bool) -> None:
    embedder = synchronizer.provider.embedder
    nothing = not plan.note_ids and not rebuild
    if embedder is None or nothing or embedder.price_usd(1_000_000) in (None, 0.0):
        return
    estimate = synchronizer.estimate_rebuild(plan) if rebuild else synchronizer.estimate(plan)
    limit = settings.embedding.confirm_above_usd
    if estimate.price_usd is not None and estimate.price_usd > limit:
        raise ConfigError(
            f"this sync would send {estimate.texts} texts for about ${estimate.price_usd:.2f} (limit ${limit:.2f}); "
            "if that is meant, run: vault-memory sync --yes"
        )
