"""How processes that others start (git's hooks, systemd, launchd) find this installation.

Belongs here: the command line and the variables to write into such a file. Does not: the files themselves.

Those processes see neither the user's shell nor its variables, so what the shell says now is written down. Secrets
are not: a hook lies in a repository, a unit in a folder that is backed up.
"""

from __future__ import annotations

import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import vault_memory
from vault_memory import settings as settings_module
from vault_memory.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from vault_memory.settings import Settings


@dataclass(frozen=True, slots=True)
class Launch:
    """What to write into a hook or unit.

    Attributes:
        command: Program and arguments; absolute.
        environment: Variables that it needs.
        missing: Names of secret settings that come from the environment alone, and so will be missing there.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    missing: tuple[str, ...]


def launch(settings: Settings, module: str, *arguments: str) -> Launch:
    """Return how to start a module of ours so that it finds what this process found."""
    environment = {"VAULT_MEMORY_HOME": str(settings.home)}
    # A vault with a name is in the configuration file, and is found there.
    if settings.vault is not None and settings.name == settings_module.UNNAMED:
        environment["VAULT_MEMORY_VAULT"] = str(settings.vault)
    if settings.config_file.exists():
        environment["VAULT_MEMORY_CONFIG"] = str(settings.config_file)
    if (root := checkout_root()) is not None:
        environment["PYTHONPATH"] = str(root)
    from_file = _from_file_alone(settings)
    plain = {
        "VAULT_MEMORY_HMAC_KEY_FILE": (str(settings.hmac_key_file), str(from_file.hmac_key_file)),
        "VAULT_MEMORY_SCHEMA": (settings.schema, from_file.schema),
        "VAULT_MEMORY_PG_USER": (settings.pg_user, from_file.pg_user),
        "VAULT_MEMORY_EMBEDDER": (settings.embedding.embedder, from_file.embedding.embedder),
        "VAULT_MEMORY_EMBEDDING_BASE_URL": (settings.embedding.base_url, from_file.embedding.base_url),
        "VAULT_MEMORY_EMBEDDING_MODEL": (settings.embedding.model, from_file.embedding.model),
        "VAULT_MEMORY_EMBEDDING_DIMENSIONS": (settings.embedding.dimensions, from_file.embedding.dimensions),
    }
    environment.update({name: str(now) for name, (now, then) in plain.items() if now != then and now is not None})
    secret = {
        "dsn": (settings.dsn, from_file.dsn),
        "query_dsn": (settings.query_dsn, from_file.query_dsn),
        "dagster_dsn": (settings.dagster_dsn, from_file.dagster_dsn),
        "embedding.api_key_file": (settings.embedding.api_key, from_file.embedding.api_key),
    }
    has_key_elsewhere = bool(settings.embedding.api_key_file or settings.embedding.api_key_command)
    missing = tuple(
        name
        for name, (now, then) in secret.items()
        if now and now != then and not (name == "embedding.api_key_file" and has_key_elsewhere)
    )
    # -P: without it Python would look for modules in the folder it is started in, which is the vault's.
    return Launch((sys.executable, "-P", "-m", module, *arguments), environment, missing)


def refuse_without_database(missing: Collection[str]) -> None:
    """Refuse to write down a start that would not find the database, and would make one of its own.

    Raises:
        ConfigError: ``dsn`` comes from this shell alone.
    """
    if "dsn" in missing:
        raise ConfigError(
            "dsn is set in this shell only, as VAULT_MEMORY_DSN: put it into the configuration file first"
        )


def checkout_root() -> Path | None:
    """Return where this package lies if it is not installed, and so has to be named to a child; None if it is."""
    root = Path(vault_memory.__file__).resolve().parent.parent
    installed = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    return None if root in installed else root


def _from_file_alone(settings: Settings) -> Settings:
    """Read the settings as a process without our variables would."""
    environ = {"HOME": str(Path.home())}
    if settings.config_file.exists():
        environ["VAULT_MEMORY_CONFIG"] = str(settings.config_file)
    vaults = settings_module.load_all(environ)
    return next((one for one in vaults if one.name == settings.name), vaults[0])
