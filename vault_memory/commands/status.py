"""``vault-memory status``: where the store is, beside HEAD.

Belongs here: the stable JSON contract of ``status``. Does not: repairs, anything that writes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vault_memory.commands.daemon import daemon_state
from vault_memory.commands.place import database_place
from vault_memory.commands.roots import examine
from vault_memory.ingest.database import open_database, open_store
from vault_memory.ingest.rules import problem_lines, rules_at
from vault_memory.ingest.source import open_source
from vault_memory.notes.changes import identified
from vault_memory.notes.model import NoteStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vault_memory.adapters.store_records import Counts, Failure, SyncState, Usage
    from vault_memory.commands.daemon import DaemonState
    from vault_memory.ingest.source import Source
    from vault_memory.settings import Settings


@dataclass(frozen=True, slots=True)
class Status:
    """The store beside HEAD.

    Attributes:
        head: HEAD's commit; None before the first.
        behind: Commits of HEAD that the store does not have; None where the histories do not meet.
        tracked: Markdown files in HEAD's tree.
        rotate: Quarantined notes that had been embedded before, with the notice for each.
        usage: Of the embedder in this month.
        by_status: Tracked files by their status in the manifest; None: no sync has looked at them yet.
        daemon: Whether anything follows HEAD by itself.
        collisions: Files left out because another one has the same name but for Unicode normalisation.
        roots_hint: What to do where no note lies in the folders that are indexed; None otherwise.
        database: Where the rows lie.
        rule_problems: Rules to exclude that cannot be read, where they stand and how to mend them.
    """

    vault: str
    head: str | None
    behind: int | None
    tracked: int
    by_status: Mapping[NoteStatus | None, int]
    state: SyncState
    counts: Counts
    failures: list[Failure]
    usage: Usage
    rotate: Mapping[str, str]
    daemon: DaemonState
    collisions: tuple[str, ...]
    roots_hint: str | None
    rule_problems: tuple[str, ...] = ()
    database: str = ""

    @property
    def warnings(self) -> list[str]:
        """What the user should know, one line each."""
        found = [*self.rule_problems, *([self.roots_hint] if self.roots_hint else [])]
        if self.head is not None and self.behind != 0 and not self.daemon.alive:
            found.append("memory is behind HEAD and no daemon follows it: run 'vault-memory sync' or 'vault-memory up'")
        if self.collisions:
            found.append(
                f"{len(self.collisions)} files are left out, since another has the same name but for the form of its "
                f"accents (rename one of each pair): {', '.join(map(ascii, self.collisions[:5]))}"
            )
        return found

    def number(self, status: NoteStatus | None) -> int:
        """Return how many tracked files have a status."""
        return self.by_status.get(status, 0)

    def to_json(self) -> dict[str, object]:
        """Return the stable contract of ``status --json``."""
        return {
            "vault": self.vault,
            "head": self.head,
            "indexed_commit": self.state.commit,
            "behind": self.behind,
            "tracked": self.tracked,
            "indexed": self.number(NoteStatus.INDEXED),
            "excluded": self.number(NoteStatus.EXCLUDED),
            "quarantined": self.number(NoteStatus.QUARANTINED),
            "skipped": self.number(NoteStatus.SKIPPED),
            "failed": [
                {
                    "source": failure.source,
                    "step": failure.step,
                    "class": failure.error_class,
                    "reason": failure.reason,
                    "attempts": failure.attempts,
                    "next_retry": failure.next_retry.isoformat() if failure.next_retry else None,
                }
                for failure in self.failures
            ],
            "rotate": [{"source": source, "notice": notice} for source, notice in self.rotate.items()],
            "pending": self.number(None),
            "chunks": self.counts.chunks,
            "embedder": self.state.embedder,
            "model": self.state.model,
            "dimensions": self.state.dimensions,
            "ruleset": self.state.ruleset_id,
            "vector_index": self.state.vector_index,
            "database": self.database,
            "size_bytes": self.counts.size_bytes,
            "cost_this_month_usd": self.usage.price_usd,
            "embedding_this_month": {
                "texts_embedded": self.usage.texts,
                "texts_reused": self.usage.texts_reused,
                "tokens": self.usage.tokens,
                "requests": self.usage.requests,
                "price_usd": self.usage.price_usd,
            },
            "daemon": {
                "alive": self.daemon.alive,
                "heartbeat_age_seconds": self.daemon.heartbeat_age_seconds,
                "last_run": self.daemon.last_run,
                "last_run_at": self.daemon.last_run_at.isoformat() if self.daemon.last_run_at else None,
            },
            "warnings": self.warnings,
        }


def status(settings: Settings) -> Status:
    """Read where the store is.

    Raises:
        VaultMemoryError: Vault, database or settings cannot be used.
    """
    vault = open_source(settings)
    store = open_store(settings)
    try:
        state = store.sync_state()
        head = vault.head()
        tree = vault.tree(head) if head else ()
        statuses = store.statuses()
        # Of the files that HEAD has now: then the numbers add up, whatever the store still holds of older commits.
        by_status = Counter(statuses.get(path.id) for _, path, _ in identified(tree))
        return Status(
            vault=str(vault.path),
            head=head,
            behind=_behind(vault, state.commit, head),
            tracked=len(tree),
            by_status=by_status,
            state=state,
            counts=store.counts(),
            failures=store.failures(),
            usage=store.month_usage(),
            rotate={line.source: line.notice for line in store.audit() if line.notice is not None},
            daemon=daemon_state(open_database(settings).dagster_dsn, settings.schema),
            collisions=tuple(
                path.id for _, path, lost in identified(tree) if lost and statuses.get(path.id) is NoteStatus.SKIPPED
            ),
            roots_hint=examine(tree, settings.scan).hint,
            rule_problems=tuple(problem_lines(rules_at(vault, head, settings.scan))),
            database=database_place(settings),
        )
    finally:
        store.close()


def _behind(vault: Source, indexed: str | None, head: str | None) -> int | None:
    if indexed == head:
        return 0
    if indexed is None or head is None:
        return None
    return vault.count_between(indexed, head)
