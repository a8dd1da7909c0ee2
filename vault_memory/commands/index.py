"""``vault-memory index``: a folder of Markdown that is in no repository becomes a vault of its own.

Belongs here: which folders may, what they are called, and taking one out again. Does not: how a folder is read
(``adapters.directory``), the sync itself (``sync``).
"""

from __future__ import annotations

import re
import unicodedata
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vault_memory import settings as settings_module
from vault_memory.adapters import migrations, running
from vault_memory.commands import sync as sync_command
from vault_memory.commands import vault_tables
from vault_memory.errors import ConfigError, VaultError
from vault_memory.ingest.database import has_memory, open_database, open_store
from vault_memory.ingest.source import cache_file, open_source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vault_memory.commands.sync import SyncResult
    from vault_memory.settings import Settings

_MAX_NAME: Final = 30


@dataclass(frozen=True, slots=True)
class Indexed:
    """What ``index`` did.

    Attributes:
        settings: Of the folder.
        result: Of its sync.
        is_new: Whether the folder was written into the configuration file.
        soon_watched: Whether an ``up`` is running, which starts anew with it.
    """

    settings: Settings
    result: SyncResult
    is_new: bool
    soon_watched: bool


def chosen(path: Path, name: str | None) -> Settings:
    """Return the settings of a folder, as they will be once it is in the configuration file.

    Args:
        path: The folder.
        name: What to call it; None: as it is called already, or after the folder.

    Raises:
        ConfigError: The folder is no place for a vault of its own, or the name is taken.
        VaultError: The folder does not exist or cannot be read.
    """
    vaults = settings_module.load_all(config_must_exist=False)
    try:
        folder = path.expanduser().resolve(strict=True)
    except (OSError, RuntimeError):
        raise VaultError(f"the folder {_shown(path)} does not exist") from None
    if not folder.is_dir():
        raise VaultError(f"{_shown(path)} is not a folder: give the folder that holds the notes")
    known = next((one for one in vaults if one.kind == "directory" and _place(one) == folder), None)
    if known is not None:
        if name not in (None, known.name):
            raise ConfigError(f"{_shown(folder)} is in memory as {known.name}: leave --name out, or remove it first")
        return known
    _refuse_overlap(folder, vaults)
    _refuse_own_files(folder, vaults[0])
    if folder != vaults[0].journal_folder.resolve():
        _refuse_repository(folder)
    taken = {one.name for one in vaults}
    if name in taken:
        raise ConfigError(f"there is another vault {name}; choose another name with --name")
    found = name or _name_after(folder, taken)
    tables = {found: {"path": str(folder), "kind": "directory"}}
    made = {one.name: one for one in settings_module.load_all(config_must_exist=False, also=tables)}[found]
    open_source(made)
    return made


def index(
    settings: Settings,
    *,
    confirmed: bool = False,
    allow_mass_deletion: bool = False,
    report: Callable[[str], None] = lambda _line: None,
) -> Indexed:
    """Bring a folder into memory, and remember it in the configuration file once that went well.

    Args:
        settings: As ``chosen`` returned them.
        confirmed: Embed even if it costs more than ``confirm_above_usd``.
        allow_mass_deletion: Carry out a plan that deletes most notes.
        report: Is told one line a batch.

    Raises:
        VaultMemoryError: Folder, database or settings cannot be used.
    """
    result = sync_command.sync(settings, confirmed=confirmed, allow_mass_deletion=allow_mass_deletion, report=report)
    is_new = False
    if result.exit_status <= 1:  # some notes may have failed: the next look takes them
        values = {"path": str(settings.require_vault()), "kind": "directory"}
        is_new = not _is_remembered(settings) and vault_tables.add(
            settings.config_file, _lock(settings), settings.name, values
        )
    return Indexed(settings, result, is_new, is_new and running.find(settings.home) is not None)


def _is_remembered(settings: Settings) -> bool:
    return any(one.name == settings.name for one in settings_module.load_all(config_must_exist=False))


def to_remove(name: str) -> tuple[Settings, int]:
    """Return the settings of a folder that is to be removed, and the number of its notes in memory.

    Raises:
        ConfigError: There is no such folder, or something is running that would bring it back.
    """
    settings = settings_module.load(name=name)
    if settings.kind != "directory" or settings.name == settings_module.UNNAMED:
        raise ConfigError(f"{name} is no folder that 'vault-memory index' made: it is in the settings by your own hand")
    if (other := running.find(settings.home)) is not None:
        raise ConfigError(f"{other.name} is running and watches {name}: end it first, with Ctrl-C or a SIGTERM")
    if not has_memory(settings):
        return settings, 0
    store = open_store(settings)
    try:
        return settings, store.counts().notes
    finally:
        store.close()


def remove(settings: Settings) -> None:
    """Take a folder out of memory and of the configuration file; its files stay as they are.

    Raises:
        WriterBusyError: Somebody is writing to its memory.
        VaultMemoryError: Database or configuration file cannot be changed.
    """
    if has_memory(settings):
        store = open_store(settings)
        try:
            with store.writer(settings.sync.wait_seconds, holder="index --remove"):
                migrations.drop_schema(open_database(settings).dsn, settings.schema)
        finally:
            store.close()
    for file in (cache_file(settings), settings.allow_list_file):
        with suppress(OSError):
            file.unlink(missing_ok=True)
    vault_tables.remove(settings.config_file, _lock(settings), settings.name)


def _lock(settings: Settings) -> Path:
    return settings.home / "config.lock"


def _place(settings: Settings) -> Path | None:
    return None if settings.vault is None else settings.vault.resolve()


def _refuse_overlap(folder: Path, vaults: Sequence[Settings]) -> None:
    """Refuse a folder whose notes are, or would be, in memory twice."""
    for one in vaults:
        place = _place(one)
        if place is None:
            continue
        if folder.is_relative_to(place):
            how = "commit its notes" if one.kind == "git" else "it is watched with it"
            raise ConfigError(
                f"{_shown(folder)} is part of the vault {one.name} ({_shown(place)}), which brings it into memory: "
                f"{how}, see that scan.roots names its folder, then: vault-memory sync"
            )
        if place.is_relative_to(folder):
            raise ConfigError(
                f"the vault {one.name} lies in {_shown(folder)}: its notes would be in memory twice; "
                "index the folders beside it"
            )


def _refuse_own_files(folder: Path, settings: Settings) -> None:
    for what, place in (("the configuration file", settings.config_file), ("VAULT_MEMORY_HOME", settings.home)):
        if place.resolve().is_relative_to(folder):
            raise ConfigError(f"{what} lies in {_shown(folder)}, at {place}: index the folders beside it")


def _refuse_repository(folder: Path) -> None:
    for parent in (folder, *folder.parents):
        if (parent / ".git").exists() or (parent / ".git").is_symlink():
            raise ConfigError(
                f"{_shown(folder)} lies in the git repository {_shown(parent)}: make it a vault that follows its "
                f'commits (vault-memory init {folder}, or a table [vaults.NAME] with path and kind = "git" in the '
                'settings); for a plain folder all the same, write that table with kind = "directory"'
            )


def _name_after(folder: Path, taken: set[str]) -> str:
    plain = unicodedata.normalize("NFKD", folder.name).encode("ascii", "ignore").decode().lower()
    base = re.sub(r"[^a-z0-9]+", "_", plain).strip("_")
    base = (base if base[:1].isalpha() else f"folder_{base}".rstrip("_"))[: _MAX_NAME - 3]
    if base == settings_module.UNNAMED:
        base = "folder"
    names = [base, *(f"{base}_{number}" for number in range(2, 100))]
    for found in names:
        if found not in taken:
            return found
    raise ConfigError(f"there are many vaults called {base}: choose a name with --name")


def _shown(path: Path) -> str:
    text = str(path)
    return text if text.isprintable() else ascii(text)
