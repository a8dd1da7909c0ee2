"""``vault-memory doctor``: is every part as it should be, and does the store equal HEAD.

Belongs here: the checks, what to do about each, and the repair of the store. Does not: the planner. The store is
compared with HEAD in a way of its own, so that a fault in the planner or the manifest is found too.
"""

from __future__ import annotations

import re
import stat
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from vault_memory.adapters import migrations, server
from vault_memory.adapters.git import git_version
from vault_memory.adapters.inspection import Inspection
from vault_memory.commands.daemon import daemon_state
from vault_memory.commands.place import database_place
from vault_memory.commands.roots import examine
from vault_memory.errors import StoreError, VaultError, VaultMemoryError
from vault_memory.ingest.database import Database, open_database, open_store
from vault_memory.ingest.keys import load_key
from vault_memory.ingest.rules import rules_at
from vault_memory.ingest.source import open_source
from vault_memory.notes.model import EntryKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from vault_memory.adapters.store_records import SyncState
    from vault_memory.ingest.source import Source
    from vault_memory.settings import Settings

Level = Literal["ok", "warning", "problem"]

_HNSW_PGVECTOR: Final = (0, 8, 4)
_GUARDED_NOTES: Final = 10
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What.
        verdict: ``ok``, ``warning`` (it works, but) or ``problem``.
        detail: What was found.
        mend: What to do about it; empty where there is nothing to do.
    """

    name: str
    verdict: Level
    detail: str
    mend: str = ""

    def to_json(self) -> dict[str, str]:
        """Return the contract of ``doctor --json``."""
        return {"check": self.name, "verdict": self.verdict, "detail": self.detail, "mend": self.mend}


@dataclass(frozen=True, slots=True)
class Difference:
    """What the store holds beside what HEAD and the rules say it should.

    Attributes:
        ghosts: Notes with rows that HEAD does not have, or that the rules or a quarantine keep out.
        stale: Notes whose rows are of another version than HEAD's.
        missing: Notes of HEAD without rows, and without a reason for it in the manifest.
        hollow: Notes with rows but no chunk: nothing finds them.
        hidden: Notes that no query sees, because they were not checked against the rules in force.
        lines: Lines of the manifest for files that HEAD does not have.
        orphans: Chunks without a note.
        foreign: Vectors of another model than the recorded one.
        terms: Terms that are counted wrongly.
        staged: Vectors that were paid for and never came into a note.
        rows: Notes with rows.
    """

    ghosts: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    hollow: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    orphans: int = 0
    foreign: int = 0
    terms: int = 0
    staged: int = 0
    rows: int = 0


@dataclass(slots=True)
class Diagnosis:
    """What a doctor's visit found.

    Attributes:
        checks: In the order in which they were made.
        difference: The store beside HEAD; None where it could not be read.
        repaired: What was mended, one line each.
    """

    checks: list[Check] = field(default_factory=list)
    difference: Difference | None = None
    repaired: list[str] = field(default_factory=list)

    @property
    def exit_status(self) -> int:
        """0 fine, 1 problems found."""
        return int(any(check.verdict == "problem" for check in self.checks))

    def to_json(self) -> dict[str, object]:
        """Return the contract of ``doctor --json``."""
        return {
            "ok": self.exit_status == 0,
            "checks": [check.to_json() for check in self.checks],
            "repaired": self.repaired,
        }


def diagnose(settings: Settings, *, online: bool = False, repair: bool = False) -> Diagnosis:
    """Look at every part; whatever cannot be looked at is a problem of its own.

    Args:
        settings: Of the installation.
        online: Also send a short text of our own to the embedding API.
        repair: Mend what the store holds wrongly, then look again.

    Raises:
        WriterBusyError: A repair was asked for while another writer was at it.
    """
    diagnosis = Diagnosis()
    checks = diagnosis.checks
    vault = _vault_checks(settings, checks)
    _file_checks(settings, checks, vault)
    database = _database_checks(settings, checks)
    if database is None:
        return diagnosis
    state = _state_checks(settings, checks, database)
    _dagster_checks(settings, checks, database)
    if state is not None and online:
        checks.extend(
            _guarded("embedder answers", lambda: _online(settings, state), "mend OPENROUTER_API_KEY or embedding.*")
        )
    if vault is not None:
        checks.extend(_rule_checks(settings, vault))
    if state is not None and vault is not None:
        try:
            difference = compare(settings, vault, database)
            if repair:
                diagnosis.repaired = mend(settings, database, difference)
                difference = compare(settings, vault, database)
        except VaultError as error:
            checks.append(Check("store", "problem", str(error), "mend the vault first"))
            return diagnosis
        diagnosis.difference = difference
        checks.extend(_store_checks(vault, state, difference))
    return diagnosis


def _rule_checks(settings: Settings, vault: Source) -> Iterator[Check]:
    try:
        rules = rules_at(vault, vault.head(), settings.scan)
    except VaultMemoryError as error:
        yield Check("exclusion rules", "problem", str(error), "mend scan.* in the configuration")
        return
    for problem in rules.problems:
        held = "; new and changed notes wait for it" if problem.holds else ""
        yield Check("exclusion rules", "problem", f"{problem}{held}", "mend that line and commit, or the setting")
    if not rules.problems:
        yield Check("exclusion rules", "ok", f"{len(rules.ignore_lines)} lines of the vault, all read")


def compare(settings: Settings, vault: Source, database: Database) -> Difference:
    """Hold the rows of the store against the tree of HEAD, file by file.

    Raises:
        VaultError: HEAD cannot be read.
        StoreError: The store cannot be read.
    """
    head = vault.head()
    rules = rules_at(vault, head, settings.scan)
    # All versions under one identity: of names that differ only in normalisation, either may be the note.
    wanted: defaultdict[str, set[str]] = defaultdict(set)
    everything: set[str] = set()
    for entry in vault.tree(head) if head else ():
        everything.add(entry.path.id)
        if entry.kind is EntryKind.FILE and rules.path_exclusion(entry.path) is None:
            wanted[entry.path.id].add(entry.blob_id)
    with Inspection.connect(database.dsn, settings.schema) as inspection:
        notes, lines = inspection.notes(), inspection.state_lines()
        quarantined = inspection.open_quarantines()
        in_force = {note.ruleset_id for note in notes.values()} - {rules.id}
        orphans, foreign = inspection.chunk_faults()
        explained = {
            note_id
            for note_id, line in lines.items()
            if line.status in {"quarantined", "failed"} or (line.status == "excluded" and line.step == "scan")
        }
        return Difference(
            ghosts=tuple(sorted(id_ for id_ in notes if id_ not in wanted or id_ in quarantined)),
            stale=tuple(
                sorted(id_ for id_, note in notes.items() if id_ in wanted and note.blob_id not in wanted[id_])
            ),
            missing=tuple(sorted(wanted.keys() - notes.keys() - explained - set(quarantined))),
            hollow=tuple(sorted(id_ for id_, note in notes.items() if not note.chunks)),
            hidden=tuple(sorted(id_ for id_, note in notes.items() if note.ruleset_id in in_force)),
            # The loser of a name collision has a line under a name of its own, which is nobody's identity.
            lines=tuple(
                sorted(id_ for id_, line in lines.items() if id_ not in everything and line.status != "skipped")
            ),
            orphans=orphans,
            foreign=foreign,
            terms=inspection.wrong_terms(),
            staged=inspection.old_stage(),
            rows=len(notes),
        )


def mend(settings: Settings, database: Database, difference: Difference) -> list[str]:
    """Make the store right, as far as that needs no text to be read; the next sync does the rest.

    Ghosts go at once. Of a note that is wrong in another way the manifest's line is dropped: its rows go on
    answering until the next sync has written it anew.

    Raises:
        WriterBusyError: Another writer is at it.
        VaultError: Most notes would go, as on a wrong branch.
    """
    found = difference
    if found.rows >= _GUARDED_NOTES and len(found.ghosts) > settings.sync.max_deleted_share * found.rows:
        raise VaultError(
            f"HEAD lacks {len(found.ghosts)} of the {found.rows} notes in memory: nothing was repaired; "
            "if that is meant, run: vault-memory sync --allow-mass-deletion"
        )
    done: list[str] = []
    store = open_store(settings)
    try:
        with store.writer(settings.sync.wait_seconds, holder="doctor"):
            for note_id in found.ghosts:
                with store.transaction():
                    store.delete_rows([note_id])
            gone = set(found.lines)
            with store.transaction():
                store.drop_states(found.lines)
                for note_id in found.lines:
                    store.close_audit(note_id, "deleted")
            again = sorted({*found.stale, *found.missing, *found.hollow, *found.hidden} - gone - set(found.ghosts))
            if again:
                with store.transaction():
                    store.drop_states(again)
                    store.record_start()  # or the daemon would see nothing to do
            with Inspection.connect(database.dsn, settings.schema) as inspection:
                if inspection.wrong_terms():
                    inspection.recount_terms()
                    done.append(f"counted {found.terms} terms anew" if found.terms else "counted the terms anew")
                staged = inspection.drop_old_stage()
    finally:
        store.close()
    told = (
        (len(found.ghosts), "ghosts forgotten"),
        (len(found.lines), "lines of the manifest dropped"),
        (len(again), "notes marked for the next sync"),
        (staged, "staged vectors deleted"),
    )
    return [*(f"{number} {what}" for number, what in told if number), *done]


# -- the checks -----------------------------------------------------------------------------------------------------


def _guarded(name: str, look: Callable[[], Check], mend: str = "") -> Iterator[Check]:
    try:
        yield look()
    except VaultMemoryError as error:
        yield Check(name, "problem", str(error), mend)


def _vault_checks(settings: Settings, checks: list[Check]) -> Source | None:
    is_folder = settings.kind == "directory"
    if not is_folder:
        checks.extend(_guarded("git", lambda: Check("git", "ok", git_version()), "install git 2.38 or newer"))
    try:
        vault = open_source(settings)
        checks.append(Check("vault", "ok", str(vault.path)))
    except VaultMemoryError as error:
        mend = "mount or restore it, or: vault-memory index --remove NAME"
        checks.append(Check("vault", "problem", str(error), mend if is_folder else "vault-memory init /path/to/vault"))
        return None
    try:
        head = vault.head()
        if head is None and is_folder:
            checks.append(Check("folder", "warning", vault.empty_head, "mount it, or write a note"))
            return vault
        if head is None:
            checks.append(Check("HEAD", "warning", "no commit yet", "git add, git commit: only commits are read"))
            return vault
        checks.append(Check("folder" if is_folder else "HEAD", "ok", head))
        report = examine(vault.tree(head), settings.scan)
        detail = f"{report.within} of {report.tracked} Markdown files within {', '.join(settings.scan.roots)}"
        checks.append(Check("roots", "problem" if report.hint else "ok", detail, report.hint or ""))
    except VaultMemoryError as error:
        if is_folder:
            checks.append(Check("folder", "problem", str(error), "let the user that runs this read all of it"))
        else:
            checks.append(Check("HEAD", "problem", str(error), "git fsck"))
        return None
    return vault


def _file_checks(settings: Settings, checks: list[Check], vault: Source | None) -> None:
    config = settings.config_file
    if not config.exists():
        checks.append(Check("config", "warning", f"{config}: none; the environment decides", "vault-memory init"))
    elif _open_to_others(config):
        checks.append(Check("config", "problem", f"{config}: others may read it", f"chmod 600 {config}"))
    elif vault is not None and config.resolve().is_relative_to(vault.top):
        checks.append(Check("config", "problem", f"{config}: inside the vault", "move it out, set VAULT_MEMORY_CONFIG"))
    else:
        checks.append(Check("config", "ok", str(config)))
    key = settings.hmac_key_file
    if key.exists() and _open_to_others(key):
        checks.append(Check("hash key", "problem", f"{key}: others may read it", f"chmod 600 {key}"))
    elif not key.exists():
        detail = f"{key}: none"
        mend = "a new installation: vault-memory init; an old one: restore the file from your backup"
        checks.append(Check("hash key", "problem", detail, mend))
    else:
        checks.extend(
            _guarded(
                "hash key",
                lambda: Check("hash key", "ok", f"{key} (fingerprint {load_key(key, create=False).fingerprint})"),
                "restore the file from your backup",
            )
        )


def _open_to_others(path: Path) -> bool:
    return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)


def _database_checks(settings: Settings, checks: list[Check]) -> Database | None:
    """Find the database; an embedded server that was never made is not made now."""
    try:
        if settings.dsn is None and server.status(settings.home, settings.pg_user).state == "absent":
            detail = f"{settings.home}: there is no database yet"
            checks.append(Check("database", "problem", detail, "vault-memory init, or: vault-memory sync"))
            return None
        database = open_database(settings)
        with Inspection.connect(database.dsn, settings.schema) as inspection:
            place = database_place(settings)
            checks.append(Check("database", "ok", f"PostgreSQL {inspection.server_version()}; {place}"))
            checks.append(_pgvector(inspection.pgvector_version()))
    except VaultMemoryError as error:
        checks.append(Check("database", "problem", str(error), "start it, or mend VAULT_MEMORY_DSN"))
        return None
    return database


def _pgvector(version: str | None) -> Check:
    wanted = ".".join(map(str, _HNSW_PGVECTOR))
    if version is None:
        return Check("pgvector", "problem", "not in this database", "an administrator runs: CREATE EXTENSION vector")
    numbers = tuple(map(int, re.findall(r"\d+", version)[:3]))
    if numbers[:2] < migrations.OLDEST_PGVECTOR:
        mend = "install a newer one, then ALTER EXTENSION vector UPDATE"
        return Check("pgvector", "problem", f"{version} is too old (want {wanted})", mend)
    if numbers < _HNSW_PGVECTOR:
        mend = f"install {wanted}, then ALTER EXTENSION vector UPDATE"
        return Check("pgvector", "warning", f"{version}: HNSW indexes need {wanted}", mend)
    return Check("pgvector", "ok", version)


def _state_checks(settings: Settings, checks: list[Check], database: Database) -> SyncState | None:
    """Look at schema, reader role and identity; the state, if the schema is this program's."""
    try:
        pending = migrations.pending(database.dsn, settings.schema)
    except StoreError as error:
        checks.append(Check("schema", "problem", str(error)))
        return None
    if pending:
        detail = f"{len(pending)} migrations are pending in {settings.schema}: {pending[0]}"
        checks.append(Check("schema", "problem", detail, "vault-memory init"))
        return None
    checks.append(Check("schema", "ok", settings.schema))
    with Inspection.connect(database.dsn, settings.schema) as inspection:
        reader = inspection.reader()
    name = server.reader_role(settings.schema)
    if reader is None:
        verdict: Level = "problem" if database.embedded else "warning"
        checks.append(Check("reader role", verdict, f"{name} does not exist", "vault-memory init, as an administrator"))
    elif not reader[0]:
        checks.append(Check("reader role", "problem", f"{name} may not read the memory", "vault-memory init"))
    elif reader[1]:
        checks.append(Check("reader role", "problem", f"{name} may do more than read", f"REVOKE that from {name}"))
    else:
        checks.append(Check("reader role", "ok", name))
    store = open_store(settings)
    try:
        state = store.sync_state()
    finally:
        store.close()
    checks.extend(_identity(settings, state))
    return state


def _identity(settings: Settings, state: SyncState) -> Iterator[Check]:
    if state.key_fingerprint is not None:
        with suppress(VaultMemoryError):  # a key that cannot be read was reported already
            if load_key(settings.hmac_key_file, create=False).fingerprint != state.key_fingerprint:
                detail = f"the database was made with another one (fingerprint {state.key_fingerprint})"
                yield Check("hash key", "problem", detail, "restore the key file that belongs to this database")
    if state.embedder is None:
        yield Check("embedder", "warning", "not chosen yet", "vault-memory sync")
    elif state.embedder == "hashing":
        yield Check("embedder", "ok", "hashing: offline, compares spelling and not meaning")
    else:
        yield from _guarded("embedder", lambda: _key_check(settings, state), "set OPENROUTER_API_KEY, or api_key_file")


def _key_check(settings: Settings, state: SyncState) -> Check:
    if settings.api_key() is None and "127.0.0.1" not in settings.embedding.base_url:
        return Check(
            "embedder", "problem", f"{state.model}: no API key; notes fail, queries use keywords alone",
            "set OPENROUTER_API_KEY, embedding.api_key_file or embedding.api_key_command",
        )  # fmt: skip
    return Check("embedder", "ok", f"{state.embedder} {state.model} (a key is set; --online tries it)")


def _online(settings: Settings, state: SyncState) -> Check:
    from vault_memory.query.embed import RecordedEmbedder, embed_query  # noqa: PLC0415 - only on demand

    recorded = RecordedEmbedder(state.embedder, state.model, state.dimensions)
    width = len(embed_query("vault-memory doctor", recorded, settings, timeout_seconds=20.0))
    return Check("embedder answers", "ok", f"{state.model}: a vector of {width} numbers")


def _dagster_checks(settings: Settings, checks: list[Check], database: Database) -> None:
    if not (settings.dagster_home / "dagster.yaml").is_file():
        detail = f"{settings.dagster_home}: not made yet"
        checks.append(Check("Dagster", "warning", detail, "vault-memory sync, or: vault-memory up"))
        return
    checks.append(Check("Dagster", "ok", str(settings.dagster_home)))
    daemon = daemon_state(database.dagster_dsn, settings.schema)
    if daemon.alive:
        checks.append(Check("daemon", "ok", f"last sign {daemon.heartbeat_age_seconds:.0f} s ago"))
    else:
        mend = "vault-memory up, vault-memory service install, or vault-memory install-hook"
        checks.append(Check("daemon", "warning", "none: nothing follows the vault's commits by itself", mend))


def _store_checks(vault: Source, state: SyncState, found: Difference) -> Iterator[Check]:
    head = vault.head()
    behind = state.commit != head
    if behind:
        detail = f"memory is at {(state.commit or 'no commit')[:12]}, HEAD is {(head or 'none')[:12]}"
        yield Check("behind HEAD", "warning", detail, "vault-memory sync")
    sync = "vault-memory sync" if behind else "vault-memory doctor --repair, then: vault-memory sync"
    repair = "vault-memory doctor --repair"
    faults = (
        ("ghosts", found.ghosts, "notes answer that HEAD does not have or that must stay out", repair),
        ("stale rows", found.stale, "notes are stored in another version than HEAD's", sync),
        ("missing rows", found.missing, "notes of HEAD have no rows and no reason for it", sync),
        ("without chunks", found.hollow, "notes have no chunk", sync),
        ("hidden rows", found.hidden, "notes were not checked against the rules in force", sync),
        ("left lines", found.lines, "lines of the manifest are of files that HEAD does not have", repair),
    )
    sound = not behind
    for name, notes, what, how in faults:
        if notes:
            sound = False
            named = ", ".join(ascii(note) if not note.isprintable() else note for note in notes[:_NAMED])
            more = f" and {len(notes) - _NAMED} more" if len(notes) > _NAMED else ""
            yield Check(name, "problem", f"{len(notes)} {what}: {named}{more}", how)
    numbers: tuple[tuple[str, int, str, Level, str], ...] = (
        ("orphans", found.orphans, "chunks belong to no note", "problem", "restore a dump: the schema was changed"),
        ("vectors", found.foreign, "vectors are of another model than the recorded one", "problem",
         "vault-memory sync --full"),
        ("term counts", found.terms, "terms are counted wrongly", "problem", "vault-memory doctor --repair"),
        ("staged", found.staged, "vectors wait for a note since more than a week", "warning",
         "vault-memory doctor --repair"),
    )  # fmt: skip
    for name, number, what, verdict, how in numbers:
        if number:
            sound = False
            yield Check(name, verdict, f"{number} {what}", how)
    if sound:
        yield Check("store", "ok", f"{found.rows} notes, each as HEAD has it")
