"""The flags of the commands that keep an installation going.

Belongs here: options, help texts, printing, exit statuses of init, up, down, doctor, hooks, service, dump, restore,
forget, env. Does not: what they do, which is in the module of the same name and is imported when it is needed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from vault_memory import settings as settings_module
from vault_memory.commands import choosing
from vault_memory.commands.choosing import vault_option
from vault_memory.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vault_memory.commands.doctor import Diagnosis
    from vault_memory.commands.erase import Erased
    from vault_memory.commands.hooks import HookResult
    from vault_memory.settings import Settings

_FILE = click.Path(dir_okay=False, path_type=Path)


def _note(line: str) -> None:
    click.echo(line, err=True)


@click.command("init")
@click.argument("vault", required=False, type=click.Path(path_type=Path))
@click.option("--roots", metavar="A,B", help="Folders to index, relative to the vault; '.' for all of it.")
@click.option("--embedder", type=click.Choice(["openai", "hashing"]), help="Record how texts become vectors.")
@click.option("--api-key-file", type=_FILE, help="File with the provider's key, mode 0600.")
@click.option("--replace", "replace_settings", is_flag=True, help="Change settings that the file has already.")
def init(
    *,
    vault: Path | None,
    roots: str | None,
    embedder: str | None,
    api_key_file: Path | None,
    replace_settings: bool,
) -> None:
    """Write the settings, make the key and the database, and check that all is there. May be run again."""
    from vault_memory.commands import setup  # noqa: PLC0415 - heavy

    chosen = [root.strip() for root in roots.split(",") if root.strip()] if roots else []
    done = setup.set_up(
        settings_module.load(config_must_exist=False),
        vault=vault,
        roots=chosen,
        embedder=embedder,
        api_key_file=api_key_file,
        replace_settings=replace_settings,
    )
    for name, fact in done.facts:
        click.echo(f"{name:<10} {fact}")
    for warning in done.warnings:
        _note(f"warning: {warning}")
    click.echo("\nnext:")
    for step in done.next_steps:
        click.echo(f"  {step}")


@click.command("up")
@click.option("--port", type=click.IntRange(1, 65535), default=3000, show_default=True, help="Of the web page.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; the page has no login.")
@click.option("--read-only", is_flag=True, help="The web page starts and changes nothing.")
def up(*, port: int, host: str, read_only: bool) -> None:
    """Follow every commit of the vault, and serve Dagster's web page, until Ctrl-C."""
    from vault_memory.commands import up as command  # noqa: PLC0415 - heavy

    if warning := command.exposure(host):
        _note(f"warning: {warning}")
    command.up(settings_module.load_all, port=port, host=host, read_only=read_only, write=click.echo)


@click.command("down")
@click.option("--delete-data", is_flag=True, help="Also delete the memory: database, Dagster's files, logs.")
@click.option("--yes", is_flag=True, help="With --delete-data: do not ask.")
def down(*, delete_data: bool, yes: bool) -> None:
    """Stop the embedded database server, which other commands leave running on purpose.

    With --delete-data the memory is gone for good; the vault, the settings and the hash key stay.
    """
    from vault_memory.adapters import running, server  # noqa: PLC0415 - only here

    settings = settings_module.load()
    if delete_data:
        _delete_data(settings, yes=yes)
        return
    if (other := running.find(settings.home)) is not None:
        raise ConfigError(f"{other.name} is running and needs the database: end it first, with Ctrl-C or a SIGTERM")
    if settings.dsn is not None:
        click.echo("the database is not ours to stop: VAULT_MEMORY_DSN is set")
        return
    stopped = server.stop(settings.home, settings.pg_user)
    click.echo("database server stopped" if stopped else "no database server was running")


def _delete_data(settings: Settings, *, yes: bool) -> None:
    from vault_memory.commands import place  # noqa: PLC0415 - only here

    found = place.data_places(settings)
    if not found:
        click.echo("there is nothing to delete")
        return
    for path in found:
        click.echo(f"{'deletes' if yes else 'would delete'} {path}")
    if not yes and not sys.stdin.isatty():
        raise ConfigError("nothing was deleted: nobody is there to ask; to delete it all the same, add --yes")
    if yes or click.confirm("delete all of it?"):
        place.delete_data(settings)
        kept = [str(file) for file in (settings.config_file, settings.hmac_key_file) if file.exists()]
        click.echo(f"deleted; what stays: {', '.join(['the vault', *kept])}")


@click.command("doctor")
@click.option("--repair", is_flag=True, help="Mend what the store holds wrongly.")
@click.option("--erase", is_flag=True, help="Also write the tables anew, without deleted rows.")
@click.option("--online", is_flag=True, help="Also ask the embedding API for one vector.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@vault_option
def doctor(*, vault: str | None, repair: bool, erase: bool, online: bool, as_json: bool) -> None:
    """Check each part, and hold the store against HEAD. Exit 0 fine, 1 problems found, 3 could not run."""
    from vault_memory.commands import doctor as command  # noqa: PLC0415 - heavy

    def act(settings: Settings) -> int:
        found = command.diagnose(settings, online=online, repair=repair)
        erased = None
        if erase:
            from vault_memory.commands.erase import erase as write_anew  # noqa: PLC0415 - only here

            erased = write_anew(settings)
        if as_json:
            answer = {"name": settings.name, **found.to_json()}
            if erased is not None:
                answer["erased"] = erased.to_json()
            click.echo(json.dumps(answer, ensure_ascii=False))
        else:
            _print_diagnosis(found, erased)
        return found.exit_status

    choosing.for_each(vault, act, heading=not as_json)


def _print_diagnosis(found: Diagnosis, erased: Erased | None) -> None:
    for check in found.checks:
        click.echo(f"{check.verdict:<8} {check.name}: {check.detail}")
        if check.mend and check.verdict != "ok":
            click.echo(f"{'':<8} -> {check.mend}")
    for line in found.repaired:
        click.echo(f"repaired {line}")
    if erased is not None:
        click.echo(f"erased   {erased.summary}")


@click.command("install-hook")
@click.option("--force", is_flag=True, help="Also where core.hooksPath leads out of the repository's own folder.")
@vault_option
def install_hook(*, vault: str | None, force: bool) -> None:
    """Let git's hooks start a sync in the background after each commit, merge, rebase and switch.

    This writes into the hooks folder of the vault's repository, the one thing that is ever written there.
    It adds to a commit what git needs to start any hook, a millisecond or more; "vault-memory up" follows without one.
    """
    from vault_memory.commands import hooks  # noqa: PLC0415 - only here

    def act(settings: Settings) -> int:
        if settings.kind == "directory":
            return _has_no_hooks(settings)
        done = hooks.install(settings, force=force)
        _print_hooks(done.hooks)
        _warn_of_missing(done.missing)
        return int(any(hook.problem for hook in done.hooks))

    choosing.for_each(vault, act)


@click.command("uninstall-hook")
@click.option("--force", is_flag=True, help="Also where core.hooksPath leads out of the repository's own folder.")
@vault_option
def uninstall_hook(*, vault: str | None, force: bool) -> None:
    """Remove our lines from git's hooks; lines of others stay."""
    from vault_memory.commands import hooks  # noqa: PLC0415 - only here

    def act(settings: Settings) -> int:
        if settings.kind == "directory":
            return _has_no_hooks(settings)
        _print_hooks(hooks.uninstall(settings, force=force))
        return 0

    choosing.for_each(vault, act)


def _has_no_hooks(settings: Settings) -> int:
    click.echo(f"left alone {settings.vault} (a plain folder has no commits; 'vault-memory up' watches it)")
    return 0


def _print_hooks(results: Iterable[HookResult]) -> None:
    for hook in results:
        click.echo(f"{hook.action:<10} {hook.path}")
        if hook.problem:
            _note(f"warning: {hook.name}: {hook.problem}")


def _warn_of_missing(names: Iterable[str]) -> None:
    for name in names:
        _note(f"warning: {name} is set in this shell only: put it into the configuration file, or it will be missing")


@click.group("service")
def service() -> None:
    """Run 'vault-memory up' at every login (systemd's user manager, or launchd)."""


@service.command("install")
@click.option("--port", type=click.IntRange(1, 65535), default=3000, show_default=True, help="Of the web page.")
@click.option("--print", "print_only", is_flag=True, help="Print the unit and do nothing.")
def service_install(*, port: int, print_only: bool) -> None:
    """Write the unit and start it."""
    from vault_memory.commands import service as command  # noqa: PLC0415 - only here

    found = command.unit(settings_module.load(), port=port)
    if print_only:
        click.echo(found.text, nl=False)
    else:
        by_hand = command.install(found)
        click.echo(f"wrote {found.path}")
        if by_hand:
            _note(f"warning: the service manager did not start it; run: {by_hand}")
    _warn_of_missing(found.missing)


@service.command("remove")
def service_remove() -> None:
    """End the service and delete its unit."""
    from vault_memory.commands import service as command  # noqa: PLC0415 - only here

    found = command.unit(settings_module.load(), port=3000)
    click.echo(f"removed {found.path}" if command.remove(found) else "there is no such service")


@click.command("dump")
@click.argument("file", type=_FILE)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@vault_option
def dump(*, vault: str | None, file: Path, force: bool) -> None:
    """Write the memory into FILE, mode 0600. It holds the notes' text; keep the hash key with it."""
    from vault_memory.commands import backup  # noqa: PLC0415 - heavy

    settings = choosing.one(vault)
    size = backup.dump(settings, file, force=force)
    click.echo(f"wrote {file} ({size / 1e6:.1f} MB); keep a copy of {settings.hmac_key_file} with it")


@click.command("restore")
@click.argument("file", type=_FILE)
@click.option("--replace", "replace_memory", is_flag=True, help="In place of the notes that are in memory now.")
@vault_option
def restore(*, vault: str | None, file: Path, replace_memory: bool) -> None:
    """Put a dump in place of the memory, all or nothing."""
    from vault_memory.commands import backup  # noqa: PLC0415 - heavy

    done = backup.restore(choosing.one(vault), file, replace=replace_memory)
    click.echo(f"restored {done.notes} notes, at commit {(done.commit or 'none')[:12]}; next: vault-memory sync")
    if done.warning:
        _note(f"warning: {done.warning}")


@click.command("forget")
@click.argument("source")
@click.option("--undo", is_flag=True, help="Let the next sync bring it back.")
@vault_option
def forget(*, vault: str | None, source: str, undo: bool) -> None:
    """Take the note SOURCE (its path in the vault) out of memory now, until its text changes."""
    from vault_memory.commands import forget as command  # noqa: PLC0415 - heavy

    settings = choosing.one(vault)
    if undo:
        back = command.undo(settings, source)
        click.echo("the next sync brings it back" if back else "it had not been forgotten")
        return
    done = command.forget(settings, source)
    click.echo(f"{done.source}: {'forgotten' if done.had_rows else 'was not in memory'}")
    if done.tracked:
        _note("it comes back when its text changes; to keep it out for good, write 'vault-memory: false' at its top")


@click.command("env")
def env() -> None:
    """Print the variables that a plain 'dagster dev' needs, for: eval "$(vault-memory env)"."""
    from vault_memory.commands import environment as command  # noqa: PLC0415 - heavy

    for line in command.environment(settings_module.load()):
        click.echo(line)


COMMANDS: Final = (init, up, down, doctor, install_hook, uninstall_hook, service, dump, restore, forget, env)
