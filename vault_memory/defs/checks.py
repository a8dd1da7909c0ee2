"""Checks of the store as a whole, shown with the ``memory_index`` asset.

Belongs here: what makes a count good or bad. Does not: counting (``ingest.sync``).
"""

from collections.abc import Iterator

import dagster as dg

from vault_memory.defs.partitions import Names
from vault_memory.defs.resources import VaultSession

NO_ORPHANS = "no_orphans"
MATCHES_HEAD = "matches_head"
NO_QUARANTINE_LEAK = "no_quarantine_leak"


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
        ],
        required_resource_keys={names.resource},
    )
    def memory_index_checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        session: VaultSession = getattr(context.resources, names.resource)
        report = session.synchronizer.report()
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

    return memory_index_checks
