"""Checks of the store as a whole, shown with the ``memory_index`` asset.

Belongs here: what makes a count or a figure good or bad. Does not: counting (``ingest.sync``) and measuring
(``query.evaluation``).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg

from vault_memory.defs.assets import translated
from vault_memory.defs.partitions import Names
from vault_memory.defs.resources import VaultSession
from vault_memory.errors import ConfigError, VaultMemoryError

if TYPE_CHECKING:
    from vault_memory.query.evaluation import Evaluation

NO_ORPHANS = "no_orphans"
MATCHES_HEAD = "matches_head"
NO_QUARANTINE_LEAK = "no_quarantine_leak"
INDEX_SELF_CHECK = "index_self_check"
ANSWERS_QUESTIONS = "answers_questions"


def build_index_checks(names: Names) -> dg.AssetChecksDefinition:
    """Return the checks of ``memory_index``; they read the store once together."""

    @dg.multi_asset_check(
        name=names.named("memory_index_checks"),
        specs=[
            dg.AssetCheckSpec(
                NO_ORPHANS, asset=names.index, description="Nothing is in memory whose note is not in HEAD."
            ),
            dg.AssetCheckSpec(
                MATCHES_HEAD, asset=names.index, description="Every note of HEAD is in memory, or known why not."
            ),
            dg.AssetCheckSpec(
                NO_QUARANTINE_LEAK, asset=names.index, description="No quarantined note has a row or a vector."
            ),
            dg.AssetCheckSpec(
                INDEX_SELF_CHECK,
                asset=names.index,
                description="The vector index finds what exact search finds (recall@10, by stored vectors).",
            ),
        ],
        required_resource_keys={names.resource},
    )
    def memory_index_checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        session: VaultSession = getattr(context.resources, names.resource)
        with translated(session):
            report = session.synchronizer.report()
            look = session.look_at_index()
        counts = (
            (NO_ORPHANS, report.orphans),
            (MATCHES_HEAD, report.missing),
            (NO_QUARANTINE_LEAK, report.quarantine_leaks),
        )
        for check_name, bad in counts:
            yield dg.AssetCheckResult(
                asset_key=names.index,
                check_name=check_name,
                passed=bad == 0,
                severity=dg.AssetCheckSeverity.ERROR,
                metadata={"notes": bad, "commit": report.commit or ""},
                description=None if bad == 0 else "run 'vault-memory doctor --repair'",
            )

        yield dg.AssetCheckResult(
            asset_key=names.index,
            check_name=INDEX_SELF_CHECK,
            passed=look.is_good,
            severity=dg.AssetCheckSeverity.WARN,  # searches find less than they could; nothing wrong is shown
            metadata={
                "vector_index": look.mode,
                **({} if look.recall is None else {"recall_at_10": look.recall}),
                **({} if look.milliseconds is None else {"milliseconds": round(look.milliseconds, 2)}),
            },
            description=None if look.is_good else "run 'vault-memory index-check', which can also build another index",
        )

    return memory_index_checks


def build_evaluation_check(names: Names) -> dg.AssetChecksDefinition:
    """Return the check that asks the configured questions; Dagster plots its figures over time."""

    @dg.asset_check(
        name=ANSWERS_QUESTIONS,
        asset=names.index,
        description="The memory answers the configured questions ([eval] in the configuration) well enough.",
        required_resource_keys={names.resource},
    )
    def answers_questions(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        session: VaultSession = getattr(context.resources, names.resource)
        with translated(session):
            try:
                measured = _evaluation(session)
            except VaultMemoryError as error:
                # Not a failure of the run: what is in memory was counted and is as good as before.
                return dg.AssetCheckResult(passed=False, severity=dg.AssetCheckSeverity.WARN, description=str(error))
        figures = {name.replace("@", "_at_"): one.value for name, one in measured.overall.measures.items()}
        # An observation too: the asset's plots are drawn from those, a check's history is a list.
        context.op_execution_context.log_event(dg.AssetObservation(names.index, metadata=figures))
        recall, wanted = measured.overall.measures["recall@5"], session.settings.eval.min_recall
        passed = recall.value >= wanted
        return dg.AssetCheckResult(
            passed=passed,
            severity=dg.AssetCheckSeverity.WARN,
            metadata={
                **figures,
                "recall_at_5_low": recall.low,
                "recall_at_5_high": recall.high,
                "questions": measured.overall.questions,
                "answered_by_keywords_alone": measured.degraded,
                "min_recall": wanted,
                "missed": ", ".join(measured.missed),
            },
            description=None if passed else "Recall@5 is below min_recall; 'vault-memory eval' shows the slices",
        )

    return answers_questions


def _evaluation(session: VaultSession) -> "Evaluation":
    from vault_memory.query.evaluation import Setting, evaluate, read_questions  # noqa: PLC0415 - no webserver needs it

    questions = session.settings.eval.questions
    if questions is None:
        raise ConfigError("no questions are configured any more: reload the definitions")
    return evaluate(read_questions(questions), Setting(), session.settings)
