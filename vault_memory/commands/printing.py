"""What commands print.

Belongs here: lines and JSON of results, and making names fit for a terminal. Does not: what is printed, which the
commands return.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from vault_memory.errors import VaultMemoryError
from vault_memory.notes.model import NoteStatus

if TYPE_CHECKING:
    from vault_memory.commands.status import Status
    from vault_memory.commands.sync import SyncResult
    from vault_memory.ingest.estimates import Estimate
    from vault_memory.ingest.planning import VaultPlan

_MAX_NAMED_FAILURES = 20


def note(line: str) -> None:
    """Print a line for the person, on stderr."""
    click.echo(shown(line), err=True)


def shown(text: str) -> str:
    """Escape what a terminal acts on or does not show: names of notes are the vault's, and one event is one line."""
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape", "surrogatepass").decode() for sign in text
    )


def print_json(value: object) -> None:
    """Print a value as JSON, on one line."""
    click.echo(json.dumps(value, ensure_ascii=False))


def print_plan(name: str, plan: VaultPlan, estimate: Estimate, *, as_json: bool) -> None:
    """Print what a sync would do."""
    facts: dict[str, Any] = {
        "name": name,
        "commit": plan.commit,
        "notes": len(plan.note_ids),
        "unchanged": plan.unchanged,
        "texts": estimate.texts,
        "texts_reused": estimate.reused,
        "estimated_tokens": estimate.estimated_tokens,
        "tokens": estimate.tokens,
        "price_usd": estimate.price_usd,
        "refused": estimate.refused,
        "settled": len(plan.settled) + len(plan.gone),
    }
    if as_json:
        print_json(facts)
        return
    price = "" if estimate.price_usd is None else f", about ${estimate.price_usd:.4f}"
    click.echo(
        f"would touch {len(plan.note_ids)} notes ({estimate.refused} of them kept out), leave {plan.unchanged}; "
        f"embed {estimate.texts} texts (about {estimate.estimated_tokens} tokens{price}; at most {estimate.tokens} "
        f"tokens), reuse {estimate.reused}"
    )


def print_sync(name: str, result: SyncResult, *, as_json: bool) -> None:
    """Print what a sync did, and on stderr what the person should know of it."""
    if as_json:
        print_json({"name": name, **result.to_json()})
    else:
        _print_counts(result)
    if result.hint:
        note(result.hint)
    for line in result.rule_problems:
        note(line)
    for source, notice in sorted(result.rotate.items()):
        note(f"quarantined: {shown(source)}: {notice}")
    if result.notice:
        note(f"note: {result.notice}")
    if result.exit_status == VaultMemoryError.exit_status:
        waiting = f" ({len(result.failures)} notes wait for it)" if result.failures else ""
        note(f"vault-memory: {result.blocked or result.problem}{waiting}")
    else:
        _print_failures(result)


def _print_counts(result: SyncResult) -> None:
    counts = result.counts
    happened = ", ".join(f"{counts[name]} {name}" for name in counts if counts[name] > 0 and name != "unchanged")
    click.echo(
        f"{(result.start or 'nothing')[:12]} -> {(result.end or 'nothing')[:12]}: {happened or 'nothing to do'}, "
        f"{result.unchanged} unchanged; {result.texts_embedded} texts embedded{_cost(result)}, "
        f"{result.texts_reused} reused; {result.seconds:.1f} s"
    )


def _cost(result: SyncResult) -> str:
    if not result.requests:
        return ""
    price = "" if result.price_usd is None else f", ${result.price_usd:.4f}"
    return f" ({result.requests} requests, {result.tokens} tokens{price})"


def _print_failures(result: SyncResult) -> None:
    failures = sorted(result.failures.items())
    for source, reason in failures[:_MAX_NAMED_FAILURES]:
        note(f"failed: {shown(source)}: {reason}")
    if len(failures) > _MAX_NAMED_FAILURES:
        note(f"failed: {len(failures) - _MAX_NAMED_FAILURES} more; 'vault-memory status' lists all")


def print_status(found: Status) -> None:
    """Print where a store is, beside HEAD."""
    state, counts = found.state, found.counts
    behind = {None: "not in memory", 0: "up to date"}.get(found.behind, f"{found.behind} commits behind")
    parts = [f"{found.number(status)} {status.value}" for status in NoteStatus] + [f"{found.number(None)} pending"]
    embedder = f"{state.embedder} {state.model} ({state.dimensions} dimensions)" if state.embedder else "not chosen yet"
    usage = found.usage
    embedded = f"{usage.texts} texts embedded ({usage.requests} requests, {usage.tokens} tokens)"
    rows = [
        ("vault", found.vault),
        ("HEAD", f"{(found.head or 'no commit')[:12]} ({behind})"),
        ("in memory", (state.commit or "nothing")[:12]),
        ("notes", f"{found.tracked} tracked: {', '.join(parts)}"),
        ("chunks", f"{counts.chunks} ({counts.size_bytes / 1e6:.1f} MB)"),
        ("database", found.database),
        ("embedder", embedder),
        ("rules", state.ruleset_id or "none yet"),
        ("cost", f"${usage.price_usd:.4f} this month: {embedded}, {usage.texts_reused} reused"),
    ]
    daemon = found.daemon
    if daemon.alive:
        rows.append(("daemon", f"follows HEAD, last sign {daemon.heartbeat_age_seconds:.0f} s ago"))
    else:
        rows.append(("daemon", "none"))
    if daemon.last_run:
        when = daemon.last_run_at.isoformat(sep=" ", timespec="seconds") if daemon.last_run_at else "not started"
        rows.append(("last run", f"{daemon.last_run.lower()}, {when}"))
    for name, value in rows:
        click.echo(f"{name:<10} {value}")
    for warning in found.warnings:
        note(f"warning: {warning}")
    for failure in found.failures:
        due = failure.next_retry.isoformat(timespec="seconds") if failure.next_retry else "after a change or 'sync'"
        tries = f"(tried {failure.attempts}, next {due})"
        click.echo(f"failed     {shown(failure.source)}: {failure.step}: {failure.reason} {tries}")
    for source, notice in found.rotate.items():
        click.echo(f"rotate     {shown(source)}: {notice}")
