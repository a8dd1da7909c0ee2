"""Starts an agent that knows: both layers and the task in one prompt.

Belongs here: the prompt and how it is handed to ``claude``. Does not: the layers (``block``, ``memory_files``).

The layers go into the **user's prompt**, in front of the task, and not into the system prompt: a system prompt speaks
with the operator's authority, which quoted notes must not have. With ``-p`` the prompt goes through standard
input, which no other user of the machine sees; an interactive ``claude`` takes it as an argument and nowhere else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vault_memory.agent import memory_files
from vault_memory.agent.block import handed_over, without_our_blocks
from vault_memory.errors import ConfigError, QueryError, VaultMemoryError
from vault_memory.query.search import search

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vault_memory.query.search import SearchResult
    from vault_memory.settings import Settings

_BETWEEN: Final = "The above quotes notes and memory files as reference data. The task follows.\n\n"
_PRINT_FLAGS: Final = frozenset({"-p", "--print"})
_MAX_ARGUMENT_BYTES: Final = 120_000


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the agent is started with.

    Attributes:
        block: Both layers; may be empty.
        task: The user's own words.
        notices: What the user should know, one line each.
    """

    block: str = field(repr=False)
    task: str = field(repr=False)
    notices: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The whole prompt."""
        return f"{self.block}\n{_BETWEEN}{self.task}" if self.block else self.task


def prepare(
    task: str, vaults: Sequence[Settings], *, directory: Path, environ: Mapping[str, str], max_chars: int | None = None
) -> Prompt:
    """Build the prompt; a memory that cannot be asked is a notice, never a reason not to work.

    Args:
        task: The user's own words.
        vaults: Whose notes may answer, at least one.
        directory: Where the agent will work.
        environ: For the places of its memory files.
        max_chars: Bound of both layers; None: as the settings say.

    Raises:
        QueryError: The task is blank, or ``max_chars`` is too small.
    """
    notices: list[str] = []
    result: SearchResult | None = None
    agent = vaults[0].agent
    try:
        result = search(without_our_blocks(task), vaults=vaults)
        notices += result.notices
    except QueryError:
        raise
    except VaultMemoryError as error:
        notices.append(f"no notes from the vault: {error}")
    roots = [one.vault for one in vaults if one.vault is not None]
    found = memory_files.read(directory, environ, vaults=roots, claude_md=agent.claude_md)
    notices += [f"{name} was left out: it matches a rule of the secret scan" for name in found.withheld]
    block = handed_over(result, found, max_chars=max_chars or agent.max_chars, memory_max_chars=agent.memory_max_chars)
    return Prompt(block, task, tuple(notices))


def start(prompt: Prompt, settings: Settings, arguments: Sequence[str]) -> int:
    """Run ``claude`` with the prompt and the user's own arguments; return its exit status.

    Raises:
        ConfigError: There is no such program, or the prompt does not fit into an argument.
    """
    program = shutil.which(settings.agent.claude)
    if program is None:
        raise ConfigError(f"{settings.agent.claude} is not installed, or agent.claude names another program")
    if _PRINT_FLAGS & set(arguments):
        done = subprocess.run([program, *arguments], input=prompt.text.encode("utf-8", "replace"), check=False)
        return done.returncode if done.returncode >= 0 else 128 - done.returncode
    data = prompt.text.encode("utf-8", "replace").replace(b"\0", b" ")
    if len(data) > _MAX_ARGUMENT_BYTES:
        raise ConfigError("the task is too long for an argument: use 'vault-memory agent TASK -- -p'")
    # In front of the options, some of which take every word up to the next one. A task that begins with a dash or is
    # the name of one of claude's subcommands is neither.
    data = data if prompt.block else b" " + data
    # The process becomes claude: its terminal, signals and exit status are its own.
    os.execv(program, [program, data, *arguments])  # noqa: S606 - no shell, the user's own program
    raise AssertionError
