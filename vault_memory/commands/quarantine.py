"""``vault-memory quarantine``: what is held back and why, and the operator's releases.

Belongs here: reading the audit, writing the allow-list. Does not: the rules, what a release does to the store
(``ingest``), printing.

Nothing here reads a note: whoever wants to see the secret looks at the file, at the lines that the audit names.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from vault_memory.errors import ConfigError, QueryError
from vault_memory.ingest.allowances import Allowance, add_allowances, read_allowances, remove_allowances
from vault_memory.ingest.database import open_store
from vault_memory.ingest.sync import Synchronizer
from vault_memory.notes.model import QuarantineReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vault_memory.adapters.store_records import AuditLine
    from vault_memory.settings import Settings

DEFAULT_DAYS: Final = 90
MAX_DAYS: Final = 3650


@dataclass(frozen=True, slots=True)
class Held:
    """A line of the audit with the releases that name its note."""

    line: AuditLine
    releases: tuple[Allowance, ...]

    def to_json(self) -> dict[str, object]:
        """Return the contract of ``quarantine list --json``: no text, no length, no hash of the note."""
        line = self.line
        return {
            "source": line.source,
            "action": line.action,
            "reason": line.reason,
            "rules": line.rules,
            "lines": line.lines,
            "detected_at": line.detected_at.isoformat(),
            "resolved_at": line.resolved_at.isoformat() if line.resolved_at else None,
            "was_embedded": line.was_embedded,
            "secret_embedded": line.secret_embedded,
            "embedded_by": line.embedded_by,
            "embedded_at": line.embedded_at.isoformat() if line.embedded_at else None,
            "notice": line.notice,
            "allowed": [
                {"rule": entry.rule, "expires_at": entry.expires_at.isoformat(), "active": entry.is_active()}
                for entry in self.releases
            ],
        }


def held(settings: Settings, *, source: str | None = None, closed: bool = False) -> list[Held]:
    """Read the audit.

    Args:
        settings: Of the vault.
        source: One note, whatever became of it; None: all.
        closed: Also notes that were released or deleted since.

    Raises:
        QueryError: The audit has no line about ``source``.
        VaultMemoryError: Database or allow-list cannot be used.
    """
    entries = read_allowances(settings.allow_list_file, vault=settings.vault)
    store = open_store(settings)
    try:
        lines = store.audit(source, closed=closed or source is not None)
    finally:
        store.close()
    if source is not None and not lines:
        raise QueryError("the audit has no line about this note; 'vault-memory quarantine list --all' shows all")
    return [Held(line, tuple(entry for entry in entries if entry.source == line.source)) for line in lines]


def allow(
    settings: Settings, source: str, *, rules: Sequence[str] = (), days: int = DEFAULT_DAYS
) -> tuple[Allowance, ...]:
    """Release findings of a quarantined note, for its exact bytes; the next sync looks at that note again.

    Args:
        settings: Of the vault.
        source: The note.
        rules: Those of the note's rules that are wrong about it; none: all that the audit names.
        days: How long.

    Raises:
        QueryError: The note is not quarantined for a secret, or not by these rules.
        VaultMemoryError: Database or allow-list cannot be used.
    """
    line = held(settings, source=source)[0].line
    if line.action != "quarantined":
        raise QueryError(f"this note is not quarantined any more ({line.action})")
    if line.reason != QuarantineReason.SECRET.value:
        raise QueryError(f"a note that is quarantined as {line.reason} cannot be released: mend the note")
    unknown = sorted(set(rules).difference(line.rules))
    if unknown:
        raise QueryError(f"the note is not held back by {', '.join(unknown)}, but by {', '.join(line.rules)}")
    now = datetime.now(UTC)
    added = tuple(
        Allowance(line.source, rule, line.content_hmac, now, now + timedelta(days=days))
        for rule in sorted(set(rules or line.rules))
    )
    add_allowances(settings.allow_list_file, added)
    return added


def revoke(settings: Settings, source: str, *, rules: Sequence[str] = ()) -> tuple[Allowance, ...]:
    """End releases of a note, and take it out of memory at once if it is there by them.

    Raises:
        QueryError: There is no such release.
        VaultMemoryError: The list was written, but the rows could not be taken out: the next sync does it.
    """
    gone = remove_allowances(settings.allow_list_file, source, rules or None)
    if not gone:
        raise QueryError("there is no such release; 'vault-memory quarantine show SOURCE' lists a note's")
    if settings.vault is None:
        raise ConfigError("the release is ended; set VAULT_MEMORY_VAULT and run vault-memory sync to take its rows out")
    with (
        Synchronizer.open(settings) as synchronizer,
        synchronizer.writer(settings.sync.wait_seconds, holder="quarantine revoke"),
    ):
        synchronizer.put_in_force()
    return gone
