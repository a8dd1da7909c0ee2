"""``vault-memory agent``: start an agent that knows, install the plugin, answer its hooks.

Belongs here: flags and printing, and the command lines that the plugin's files need. Does not: what is done
(``vault_memory.agent``).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import click

from vault_memory import settings as settings_module
from vault_memory.commands import choosing
from vault_memory.commands.choosing import vault_option
from vault_memory.commands.launching import launch, refuse_without_database

_REGISTER_TIMEOUT_SECONDS: Final = 60


class _TaskFirst(click.Group):
    """A group whose first word, where it is no command, begins a task; everything behind ``--`` is the agent's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``run`` before a task."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("agent", cls=_TaskFirst, context_settings={"help_option_names": ["-h", "--help"]})
def agent() -> None:
    """Start Claude Code with what the notes say: vault-memory agent "the task" [-- claude's arguments].

    A first word that is no command is the task. See docs/agents.md.
    """


@agent.command("run", context_settings={"ignore_unknown_options": False})
@click.option("--print", "only_print", is_flag=True, help="Print what would be sent; needs no claude.")
@click.option("--block", "only_block", is_flag=True, help="As --print, without the task.")
@click.option("--max-chars", type=click.IntRange(settings_module.MIN_BLOCK_CHARACTERS), help="Bound of both layers.")
@vault_option
@click.argument("task")
@click.argument("claude_arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    *,
    vault: str | None,
    only_print: bool,
    only_block: bool,
    max_chars: int | None,
    task: str,
    claude_arguments: tuple[str, ...],
) -> None:
    """Start claude with TASK, behind the notes that answer it and the agent's memory files."""
    from vault_memory.agent import launcher  # noqa: PLC0415 - help needs none of it

    vaults = choosing.each(vault)
    settings = vaults[0]
    prompt = launcher.prepare(task, vaults, directory=Path.cwd(), environ=os.environ, max_chars=max_chars)
    for notice in prompt.notices:
        click.echo(f"vault-memory: {notice}", err=True)
    if not (only_print or only_block) and shutil.which(settings.agent.claude) is None:
        click.echo(f"vault-memory: {settings.agent.claude} is not installed; this would be sent:", err=True)
        only_print = True
    if only_print or only_block:
        click.echo(prompt.block if only_block else prompt.text, nl=not only_block)
        return
    sys.exit(launcher.start(prompt, settings, claude_arguments))


@agent.command("hook", hidden=True)
def hook() -> None:
    """Answer an event of Claude Code, as JSON on standard input."""
    from vault_memory.agent import hooks  # noqa: PLC0415 - only here

    hooks.main()


@agent.command("install-plugin")
@click.option("--target", type=click.Path(file_okay=False, path_type=Path), help="Default: claude-plugin in home.")
@click.option("--register/--no-register", default=True, help="Whether Claude Code is told, where it is installed.")
def install_plugin(*, target: Path | None, register: bool) -> None:
    """Write the Claude Code plugin (hooks, skill, MCP server) for this installation, and register it."""
    from vault_memory.agent import plugin_files  # noqa: PLC0415 - only here

    settings = settings_module.load()
    folder = (target or settings.home / "claude-plugin").absolute()
    hooks = launch(settings, "vault_memory.agent.hooks")
    refuse_without_database(hooks.missing)
    server = launch(settings, "vault_memory.query.cli", "mcp")
    plugin_files.write(folder, hook=hooks.command, mcp=server.command, environment=hooks.environment)
    click.echo(f"wrote {folder}")
    if "embedding.api_key_file" in hooks.missing:
        click.echo(
            "the API key is set in this shell only: put embedding.api_key_file into the configuration file, or hooks "
            "answer by keywords alone where it is missing",
            err=True,
        )
    name = f"{plugin_files.NAME}@{plugin_files.NAME}"
    steps = [["plugin", "marketplace", "add", str(folder)], ["plugin", "install", name]]
    program = shutil.which(settings.agent.claude)
    if not register or program is None or not all(_registered(program, step) for step in steps):
        click.echo("to switch it on:")
        for step in steps:
            click.echo(f"  claude {' '.join(step)}")


def _registered(program: str, step: list[str]) -> bool:
    try:
        done = subprocess.run(
            [program, *step],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_REGISTER_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
