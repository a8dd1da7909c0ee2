"""``vault-memory dump`` and ``restore``: one schema in one file, by PostgreSQL's own programs.

Belongs here: finding the programs, keeping passwords off command lines, putting the old schema back when a restore
fails. Does not: the vault itself (git is its backup) and Dagster's history, which is only history.

A dump holds the text of every note in memory. It is written with mode 0600, and never into the vault.
"""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from vault_memory.adapters import migrations, server
from vault_memory.adapters.database_errors import translated
from vault_memory.adapters.server_binaries import find_install
from vault_memory.errors import ConfigError, StoreError, VaultMemoryError
from vault_memory.ingest.database import open_database, open_store

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from vault_memory.settings import Settings

_TIMEOUT_SECONDS: Final = 3600
_DUMPED_FROM: Final = re.compile(r"^;\s+Dumped from database version: (\d+)", re.MULTILINE)
_SCHEMA: Final = re.compile(r"^\d+; \d+ \d+ SCHEMA - (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore put in place.

    Attributes:
        notes: Notes in memory now.
        commit: The commit that it is at.
        warning: One line about what could not be done; None if all was.
    """

    notes: int
    commit: str | None
    warning: str | None


def dump(settings: Settings, file: Path, *, force: bool = False) -> int:
    """Write the schema into a file, mode 0600; return its size in bytes.

    Args:
        settings: Whose memory.
        file: Where to; its folder exists.
        force: Write over a file that is there.

    Raises:
        ConfigError: The file is there already, lies in the vault or cannot be written.
        StoreError: ``pg_dump`` failed, or there is no memory yet.
        VaultMemoryError: The database cannot be used.
    """
    file = file.expanduser().absolute()
    if settings.vault is not None and file.resolve().is_relative_to(settings.vault.resolve()):
        raise ConfigError(f"{file}: a dump holds the text of all notes and must not lie in the vault")
    if file.exists() and not force:
        raise ConfigError(f"{file}: exists already; choose another name or add --force")
    open_store(settings).close()  # a started server, and a schema of this version
    database = open_database(settings)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written ({type(error).__name__})") from None
    try:
        options = ["--format=custom", "--no-owner", "--no-privileges", f"--schema={_pattern(settings.schema)}"]
        try:
            _run(_program(settings, "pg_dump"), options, database.dsn, output=descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    return file.stat().st_size


def restore(settings: Settings, file: Path, *, replace: bool = False) -> Restored:
    """Put a dump in place of the schema, all or nothing.

    Args:
        settings: Whose memory.
        file: A dump of the same schema.
        replace: Also where the schema holds notes; they are gone afterwards.

    Raises:
        ConfigError: The file is no such dump, or the schema is not empty.
        StoreError: The dump is of a newer server or vault-memory, or the restore failed: the old schema is back.
        VaultMemoryError: The database cannot be used.
    """
    file = file.expanduser().absolute()
    major = _check_dump(settings, file)
    store = open_store(settings)
    database = open_database(settings)
    try:
        if (store.counts().notes or store.statuses()) and not replace:
            raise ConfigError(f"schema {settings.schema} holds notes; to put the dump in their place: --replace")
        # Another session of ours holds the lock of the single writer for all of this.
        with store.writer(settings.sync.wait_seconds, holder="restore"):
            _check_server(database.dsn, major)
            _swap_in(settings, database.dsn, file)
    finally:
        store.close()
    warning = migrations.grant_reader(database.dsn, settings.schema)
    store = open_store(settings)
    try:
        store.analyze()
        return Restored(store.counts().notes, store.sync_state().commit, warning)
    finally:
        store.close()


def _swap_in(settings: Settings, dsn: str, file: Path) -> None:
    """Move the old schema aside, restore, and drop the old one; or put it back."""
    schema = sql.Identifier(settings.schema)
    aside = sql.Identifier(f"{settings.schema[:40]}_before_restore")
    with translated(), closing(psycopg.connect(dsn, autocommit=True, connect_timeout=10)) as connection:
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(aside))
        connection.execute(sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(schema, aside))
        try:
            options = ["--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges", str(file)]
            _run(_program(settings, "pg_restore"), options, dsn)
            migrations.migrate(dsn, settings.schema)  # refuses what a newer program made
        except BaseException:
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(schema))
            connection.execute(sql.SQL("ALTER SCHEMA {} RENAME TO {}").format(aside, schema))
            raise
        connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(aside))


def _check_dump(settings: Settings, file: Path) -> int:
    """Read a dump's table of contents; return the major version of the server that it came from."""
    if not file.is_file():
        raise ConfigError(f"{file}: no such file")
    try:
        contents = _run(_program(settings, "pg_restore"), ["--list", str(file)], None)
    except StoreError:
        raise ConfigError(f"{file}: not a dump that this pg_restore can read") from None
    schemas = _SCHEMA.findall(contents)
    if schemas != [settings.schema]:
        held = ", ".join(schemas) or "no schema"
        raise ConfigError(f"{file}: holds {held}, not {settings.schema}; set VAULT_MEMORY_SCHEMA to what it holds")
    match = _DUMPED_FROM.search(contents)
    return int(match[1]) if match else 0


def _check_server(dsn: str, dumped_from: int) -> None:
    with translated(), closing(psycopg.connect(dsn, autocommit=True, connect_timeout=10)) as connection:
        major = connection.info.server_version // 10_000
    if major < dumped_from:
        raise StoreError(
            f"the dump is from PostgreSQL {dumped_from}, this server is {major}: restore it on {dumped_from} or newer"
        )


def _program(settings: Settings, name: str) -> Path:
    if settings.dsn is None:
        return server.program(settings.home, name, settings.pg_user)
    return find_install().program(name)


def _run(program: Path, options: list[str], dsn: str | None, *, output: int | None = None) -> str:
    """Run one of PostgreSQL's programs; its output, unless it goes elsewhere.

    Raises:
        StoreError: It failed. Its own words are not repeated but for a line without a row in it.
    """
    environment: dict[str, str] = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
    arguments = [str(program), *options]
    if dsn is not None:
        place, secret = _without_secrets(dsn)
        environment.update(secret)
        arguments.insert(1, f"--dbname={place}")
    try:
        done = subprocess.run(
            arguments,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if output is None else output,
            stderr=subprocess.PIPE,
            check=False,
            timeout=_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StoreError(f"{program.name} cannot be run ({type(error).__name__})") from None
    if done.returncode != 0:
        words = done.stderr.decode("utf-8", "replace")
        if "server version mismatch" in words:
            raise StoreError(
                f"{program.name} of the wheel is older than the server: use the server's own {program.name}"
            )
        denied = " (permission denied)" if "permission denied" in words else ""
        raise StoreError(f"{program.name} failed with exit status {done.returncode}{denied}")
    return (done.stdout or b"").decode("utf-8", "replace")


def _without_secrets(dsn: str) -> tuple[str, Mapping[str, str]]:
    """Part a DSN into what may stand on a command line and what goes into the environment."""
    try:
        parts = {name: value for name, value in conninfo_to_dict(dsn).items() if value is not None}
    except psycopg.ProgrammingError:
        raise ConfigError("VAULT_MEMORY_DSN: not a PostgreSQL URL; want postgresql://user@host/database") from None
    password = parts.pop("password", None)
    if "sslpassword" in parts:
        raise VaultMemoryError("a DSN with sslpassword cannot be handed to pg_dump: use a key without a password")
    place = make_conninfo("", **parts)
    return place, {} if password is None else {"PGPASSWORD": str(password)}


def _pattern(schema: str) -> str:
    """Return a pattern that means this name alone; an underscore is no wildcard in pg_dump's patterns."""
    return f'"{schema}"'
