"""Which vault a command is about: ``--vault NAME``, or all of them.

Belongs here: the option and what its absence means. Does not: what commands do with a vault.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn, TypeVar

import click

from vault_memory import settings as settings_module
from vault_memory.errors import ConfigError, VaultMemoryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from vault_memory.settings import Settings

_Function = TypeVar("_Function", bound="Callable[..., object]")


def vault_option(function: _Function) -> _Function:
    """Add ``--vault NAME``, which arrives as the argument ``vault``."""
    return click.option("--vault", metavar="NAME", help="The vault, where the configuration file names several.")(
        function
    )


def one(vault: str | None) -> Settings:
    """Return the settings of the vault that a command is about; where there are several, it has to be named.

    Raises:
        ConfigError: It has to be named and was not, there is none of this name, or the settings are malformed.
    """
    first, *others = each(vault)
    if others:
        names = ", ".join(found.name for found in (first, *others))
        raise ConfigError(f"there are several vaults: say which with --vault, one of {names}")
    return first


def each(vault: str | None) -> tuple[Settings, *tuple[Settings, ...]]:
    """Return the settings of the named vault, or of all.

    Raises:
        ConfigError: There is none of this name, or the settings are malformed.
    """
    return settings_module.load_all() if vault is None else (settings_module.load(name=vault),)


def for_each(vault: str | None, act: Callable[[Settings], int], *, heading: bool = True) -> NoReturn:
    """Do something with the named vault, or with one after the other, and end the process with the worst status.

    An error of one vault among several is a line, and the others are done all the same.

    Args:
        vault: Its name; None: all.
        act: Returns an exit status.
        heading: Whether each of several gets a line of its own above what is printed for it.
    """
    vaults = each(vault)
    worst = 0
    for one_vault in vaults:
        if len(vaults) > 1 and heading:
            click.echo(f"[{one_vault.name}]")
        try:
            worst = max(worst, act(one_vault))
        except VaultMemoryError as error:
            if len(vaults) == 1:
                raise
            click.echo(f"vault-memory: vault {one_vault.name}: {' '.join(str(error).split())}", err=True)
            worst = max(worst, error.exit_status)
    sys.exit(worst)
