"""``vault-memory status``: where the store is, beside HEAD.

Belongs here: the stable JSON contract of ``status``. Does not: repairs, anything that writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vault_memory.adapters.git import GitVault
from vault_memory.ingest.database import open_store

if TYPE_CHECKING:
    from vault_memory.adapters.store import Counts, Failure, SyncState
    from vault_memory.settings import Settings


@dataclass(frozen=True, slots=True)
class Status:
    """The store beside HEAD.

    Attributes:
        head: HEAD's commit; None before the first.
        behind: Commits of HEAD that the store does not have; None where the histories do not meet.
        tracked: Markdown files in HEAD's tree.
        pending: Tracked files that no sync has looked at yet.
    """

    vault: str
    head: str | None
    behind: int | None
    tracked: int
    pending: int
    state: SyncState
    counts: Counts
    failures: list[Failure]
    cost_this_month_usd: float

    def to_json(self) -> dict[str, object]:
        """Return the stable contract of ``status --json``."""
        return {
            "vault": self.vault,
            "head": self.head,
            "indexed_commit": self.state.commit,
            "behind": self.behind,
            "tracked": self.tracked,
            "indexed": self.counts.indexed,
            "excluded": self.counts.excluded,
            "quarantined": self.counts.quarantined,
            "skipped": self.counts.skipped,
            "failed": [
                {
                    "source": failure.source,
                    "step": failure.step,
                    "reason": failure.reason,
                    "attempts": failure.attempts,
                    "next_retry": failure.next_retry.isoformat() if failure.next_retry else None,
                }
                for failure in self.failures
            ],
            "pending": self.pending,
            "chunks": self.counts.chunks,
            "embedder": self.state.embedder,
            "model": self.state.model,
            "dimensions": self.state.dimensions,
            "ruleset": self.state.ruleset_id,
            "vector_index": self.state.vector_index,
            "size_bytes": self.counts.size_bytes,
            "cost_this_month_usd": self.cost_this_month_usd,
        }


def status(settings: Settings) -> Status:
    """Read where the store is.

    Raises:
        VaultMemoryError: Vault, database or settings cannot be used.
    """
    vault = GitVault.open(settings.require_vault())
    store = open_store(settings)
    try:
        state = store.sync_state()
        head = vault.head()
        tree = vault.tree(head) if head else ()
        manifest = store.manifest()
        # Two files may share an NFC name; the manifest then has the second under its own spelling.
        pending = (
            max(0, len(tree) - len(manifest))
            if head == state.commit
            else sum(entry.path.id not in manifest for entry in tree)
        )
        return Status(
            vault=str(vault.path),
            head=head,
            behind=_behind(vault, state.commit, head),
            tracked=len(tree),
            pending=pending,
            state=state,
            counts=store.counts(),
            failures=store.failures(),
            cost_this_month_usd=store.month_cost(),
        )
    finally:
        store.close()


def _behind(vault: GitVault, indexed: str | None, head: str | None) -> int | None:
    if indexed == head:
        return 0
    if indexed is None or head is None:
        return None
    return vault.count_between(indexed, head)
