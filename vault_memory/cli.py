"""The operator's command, ``vault-memory``.

Belongs here: flags, exit statuses and printing. Does not: what the commands do (``commands``), the agent's query
(``query``), which has its own light command.

Results go to stdout, everything else to stderr. Exit 0: done; 1: done but for some notes; 2: wrong usage;
3: could not run. Heavy modules are imported by the command that needs them.
"""

from __future__ import annotations

import errno
import logging
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from vault_memory import __version__
from vault_memory.commands import choosing, operations
from vault_memory.commands.agent import agent
from vault_memory.commands.choosing import vault_option
from vault_memory.commands.printing import note, print_json, print_plan, print_status, print_sync, shown
from vault_memory.errors import MissingExtraError, VaultMemoryError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from vault_memory.settings import IndexChoice, Settings

_PIPELINE_MODULES = frozenset(
    {
        "dagster",
        "dagster_postgres",
        "openai",
        "pgvector",
        "markdown_it",
        "yaml",
        "pathspec",
        "re2",
        "regex",
    }
)


_ORDER = (
    "demo",
    "init",
    "sync",
    "index",
    "status",
    "up",
    "down",
    "doctor",
    "install-hook",
    "uninstall-hook",
    "service",
)


class _Group(click.Group):
    """Lists commands in the order in which a newcomer needs them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the first ones as named above, the others as they were added."""
        first = [name for name in _ORDER if name in self.commands]
        return [*first, *(name for name in self.commands if name not in first)]


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="vault-memory")
@click.option("-v", "--verbose", is_flag=True, help="One line a note on stderr.")
def cli(*, verbose: bool) -> None:
    """Long-term memory for AI agents, made from the notes you already keep.

    Reads committed notes of the git vault that VAULT_MEMORY_VAULT names, and never writes there.
    """
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO if verbose else logging.ERROR,
        format="%(levelname)s %(name)s: %(message)s",
    )
    # Libraries' lines may quote what they handle; ours do not.
    for name in ("httpx2", "httpx", "openai", "dagster", "alembic", "sqlalchemy", "psycopg"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


@cli.command()
@click.option("--keep", is_flag=True, help="Keep the demo's folder and print where it is.")
def demo(*, keep: bool) -> None:
    """Show what vault-memory does, on a small example vault: no key, no server, no vault needed."""
    from vault_memory.commands import demo as command  # noqa: PLC0415 - heavy

    command.run(keep=keep, write=click.echo)


@cli.command()
@click.option(
    "--dry-run", is_flag=True, help="Say what would happen, with texts, tokens and price; no note is written or sent."
)
@click.option("--full", is_flag=True, help="Scan and write every note again; unchanged texts keep their vectors.")
@click.option(
    "--accept-model", is_flag=True, help="Change over to the embedder that the settings name; implies --full."
)
@click.option("--re-embed", is_flag=True, help="Embed every text again, even unchanged ones; implies --full.")
@click.option("--yes", "confirmed", is_flag=True, help="Embed even above the configured price limit.")
@click.option("--allow-mass-deletion", is_flag=True, help="Carry out a plan that deletes most notes.")
@click.option(
    "--wait", "wait_seconds", type=click.FloatRange(min=0), metavar="S", help="Seconds to wait for another writer."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a vault, each on a line.")
@vault_option
def sync(
    *,
    vault: str | None,
    dry_run: bool,
    full: bool,
    accept_model: bool,
    re_embed: bool,
    confirmed: bool,
    allow_mass_deletion: bool,
    wait_seconds: float | None,
    as_json: bool,
) -> None:
    """Bring memory to the vault's HEAD, or each vault's. Exit 0 done, 1 some notes failed, 3 could not run."""
    from vault_memory.commands import sync as command  # noqa: PLC0415 - heavy

    def act(settings: Settings) -> int:
        if dry_run:
            plan, estimate = command.plan_only(settings, full=full, accept_model=accept_model, re_embed=re_embed)
            print_plan(settings.name, plan, estimate, as_json=as_json)
            return 0
        result = command.sync(
            settings,
            full=full,
            accept_model=accept_model,
            re_embed=re_embed,
            allow_mass_deletion=allow_mass_deletion,
            confirmed=confirmed,
            wait_seconds=wait_seconds,
            report=note,
        )
        print_sync(settings.name, result, as_json=as_json)
        return result.exit_status

    choosing.for_each(vault, act, heading=not as_json)


@cli.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--name", metavar="NAME", help="What to call it; default: after the folder.")
@click.option("--dry-run", is_flag=True, help="Say what would happen, with texts, tokens and price.")
@click.option("--remove", metavar="NAME", help="Take the folder of this name out of memory; its files stay.")
@click.option("--yes", "confirmed", is_flag=True, help="Embed above the price limit; with --remove: do not ask.")
@click.option("--allow-mass-deletion", is_flag=True, help="Carry out a plan that deletes most notes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def index(
    *,
    path: Path | None,
    name: str | None,
    dry_run: bool,
    remove: str | None,
    confirmed: bool,
    allow_mass_deletion: bool,
    as_json: bool,
) -> None:
    """Bring a folder of Markdown that is in no git repository into memory, and remember it as a vault of its own."""
    from vault_memory.commands import index as command  # noqa: PLC0415 - heavy

    if remove is not None:
        if path is not None or name is not None or dry_run:
            raise click.UsageError("--remove NAME stands alone")
        _remove_folder(remove, confirmed=confirmed)
        return
    if path is None:
        raise click.UsageError("name the folder: vault-memory index PATH")
    settings = command.chosen(path, name)
    if dry_run:
        from vault_memory.commands import sync as sync_command  # noqa: PLC0415 - heavy

        print_plan(settings.name, *sync_command.plan_only(settings), as_json=as_json)
        return
    done = command.index(settings, confirmed=confirmed, allow_mass_deletion=allow_mass_deletion, report=note)
    print_sync(settings.name, done.result, as_json=as_json)
    if done.is_new:
        note(
            f'remembered as {settings.name} in {settings.config_file}; ask: vault-memory query "..."; '
            f"watch it: vault-memory up; take it out again: vault-memory index --remove {settings.name}"
        )
    if done.soon_watched:
        note("vault-memory up is running, sees the new settings and watches the folder in some seconds")
    sys.exit(done.result.exit_status)


def _remove_folder(name: str, *, confirmed: bool) -> None:
    from vault_memory.commands import index as command  # noqa: PLC0415 - heavy

    settings, notes = command.to_remove(name)
    if not confirmed:
        question = f"take {notes} notes of {shown(str(settings.vault))} out of memory? The files stay"
        if not sys.stdin.isatty():
            raise click.UsageError(f"{question}: add --yes")
        click.confirm(question, abort=True, err=True)
    command.remove(settings)
    click.echo(f"removed {name}: {notes} notes out of memory, and its table out of {settings.config_file}")


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a vault, each on a line.")
@vault_option
def status(*, vault: str | None, as_json: bool) -> None:
    """Say where memory is, beside the vault's HEAD."""
    from vault_memory.commands import status as command  # noqa: PLC0415 - heavy

    def act(settings: Settings) -> int:
        found = command.status(settings)
        if as_json:
            print_json({"name": settings.name, **found.to_json()})
        else:
            print_status(found)
        return 0

    choosing.for_each(vault, act, heading=not as_json)


for _command in (*operations.COMMANDS, agent):
    cli.add_command(_command)


@cli.group()
def quarantine() -> None:
    """Show what is held back and why; release what is no secret; erase what was deleted."""


@quarantine.command("list")
@click.option("--all", "closed", is_flag=True, help="Also notes that were released or deleted since.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list, of one vault.")
@vault_option
def quarantine_list(*, vault: str | None, closed: bool, as_json: bool) -> None:
    """List the quarantined notes with rules and lines; never their text."""
    from vault_memory.commands import quarantine as command  # noqa: PLC0415 - heavy

    if as_json:
        print_json([one.to_json() for one in command.held(choosing.one(vault), closed=closed)])
        return

    def act(settings: Settings) -> int:
        for one in command.held(settings, closed=closed):
            line = one.line
            where = f" line {', '.join(map(str, line.lines))}" if line.lines else ""
            click.echo(f"{shown(line.source)}: {', '.join(line.rules)}{where} ({line.action})")
            if line.notice:
                click.echo(f"  {line.notice}")
        return 0

    choosing.for_each(vault, act)


@quarantine.command("show")
@click.argument("source")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@vault_option
def quarantine_show(*, vault: str | None, source: str, as_json: bool) -> None:
    """Show what the audit says of one note, and its releases."""
    from vault_memory.commands import quarantine as command  # noqa: PLC0415 - heavy

    found = command.held(choosing.one(vault), source=source)[0]
    if as_json:
        print_json(found.to_json())
        return
    facts = found.to_json()
    for name in ("source", "action", "reason", "rules", "lines", "detected_at", "resolved_at", "notice"):
        value = facts[name]
        if value:
            click.echo(f"{name:<12} {', '.join(map(str, value)) if isinstance(value, list) else shown(str(value))}")
    for release in found.releases:
        state = "until" if release.is_active() else "ended"
        click.echo(f"allowed      {release.rule} {state} {release.expires_at:%Y-%m-%d}")


@quarantine.command("allow")
@click.argument("source")
@click.option("--rule", "rules", multiple=True, metavar="R", help="Only this rule; may be repeated. Default: all.")
@click.option("--days", type=click.IntRange(1, 3650), default=90, show_default=True, help="How long it holds.")
@vault_option
def quarantine_allow(*, vault: str | None, source: str, rules: tuple[str, ...], days: int) -> None:
    """Release a note's findings as no secrets: for its exact bytes, at this path, for some days."""
    from vault_memory.commands import quarantine as command  # noqa: PLC0415 - heavy

    added = command.allow(choosing.one(vault), source, rules=rules, days=days)
    names = ", ".join(entry.rule for entry in added)
    click.echo(f"allowed until {added[0].expires_at:%Y-%m-%d}: {names}; 'vault-memory sync' looks at the note again")


@quarantine.command("revoke")
@click.argument("source")
@click.option("--rule", "rules", multiple=True, metavar="R", help="Only this rule; may be repeated. Default: all.")
@vault_option
def quarantine_revoke(*, vault: str | None, source: str, rules: tuple[str, ...]) -> None:
    """End a note's releases; what is in memory by them is taken out at once."""
    from vault_memory.commands import quarantine as command  # noqa: PLC0415 - heavy

    gone = command.revoke(choosing.one(vault), source, rules=rules)
    click.echo(f"revoked: {', '.join(entry.rule for entry in gone)}; the note is out of memory where it needed them")


@quarantine.command("erase")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@vault_option
def quarantine_erase(*, vault: str | None, as_json: bool) -> None:
    """Write the tables anew, so that deleted rows are gone from their files too; see docs/security.md for limits."""
    from vault_memory.commands import erase as command  # noqa: PLC0415 - heavy

    done = command.erase(choosing.one(vault))
    if as_json:
        print_json(done.to_json())
        return
    click.echo(done.summary)


@cli.command("eval")
@click.argument("questions", type=click.Path(path_type=Path))
@click.option("--mode", default="hybrid", show_default=True, type=click.Choice(["hybrid", "vector", "keyword"]))
@click.option(
    "-k", "--k", type=click.IntRange(1, 100), default=5, show_default=True, help="Hits that go into the block."
)
@click.option(
    "--compare", metavar="A,B", help="Two settings side by side, such as hybrid,keyword or hybrid:5,hybrid:8."
)
@click.option("--min-recall", type=click.FloatRange(0, 1), metavar="X", help="Exit 1 if Recall@5 is below this.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Also draw it, as .png, .html or .svg.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@vault_option
def evaluate(
    *,
    vault: str | None,
    questions: Path,
    mode: str,
    k: int,
    compare: str | None,
    min_recall: float | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Measure how well the memory answers QUESTIONS, a JSONL file of 'query' and 'sources'."""
    from vault_memory.commands import evaluate as command  # noqa: PLC0415 - only here
    from vault_memory.query.evaluation import parse_setting  # noqa: PLC0415 - as above

    names = compare.split(",") if compare else [f"{mode}:{k}"]
    report = command.run(
        choosing.one(vault),
        questions,
        asked=[parse_setting(name) for name in names],
        min_recall=min_recall,
        plot=plot,
    )
    if as_json:
        print_json(report.to_json())
    else:
        for line in command.table(report):
            click.echo(shown(line))
    if not report.passed:
        note(f"vault-memory: Recall@5 is {report.recall:.3f}, below {min_recall}")
        sys.exit(1)


@cli.command("index-check")
@click.option(
    "--set",
    "change_to",
    type=click.Choice(["auto", "exact", "bits", "hnsw", "ivfflat"]),
    help="Use this index from now on (or let the size of the store decide), and build it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@vault_option
def index_check(*, vault: str | None, change_to: str | None, as_json: bool) -> None:
    """Measure the vector index: stored vectors as questions, against exact search. Exit 1 below recall@10 of 0.95."""
    from vault_memory.commands import index_check as command  # noqa: PLC0415 - heavy

    found = command.check(choosing.one(vault), change_to=cast("IndexChoice | None", change_to), report=note)
    if as_json:
        print_json(found.to_json())
    else:
        recall = "not measured" if found.recall is None else f"{found.recall:.3f}"
        click.echo(
            f"vector index {found.mode} (asked for: {found.choice}), {found.chunks} chunks, "
            f"recall@10 {recall}, {found.seconds:.1f} s"
        )
    sys.exit(command.exit_status(found))


def _query(arguments: list[str]) -> None:
    from vault_memory.query.cli import main as query_main  # noqa: PLC0415 - the agent's command

    query_main(arguments)


def run(command: Callable[[], object]) -> None:
    """Run a command and turn our errors into one line and an exit status."""
    try:
        with _telling_of_memory():
            status = command()
        if isinstance(status, int):  # how click, left to us, says that --help or --version ended the command
            sys.exit(status)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except MissingExtraError as error:
        _fail(str(error), error.exit_status)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PIPELINE_MODULES:
            raise
        _fail(str(MissingExtraError("this command", "pipeline")), MissingExtraError.exit_status)
    except VaultMemoryError as error:
        _fail(str(error), error.exit_status)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted; what was written stays, and the next sync does the rest", 130)


@contextmanager
def _telling_of_memory() -> Generator[None]:
    """Say that there is no memory left, whether Python, the loader of libraries or the system noticed."""
    try:
        yield
    except (MemoryError, ImportError, OSError) as error:
        other = isinstance(error, ImportError) and "failed to map segment" not in str(error)
        if other or (isinstance(error, OSError) and error.errno != errno.ENOMEM):
            raise
        raise VaultMemoryError(
            "there is no memory left; what was written stays, and the next sync does the rest"
        ) from None


def _fail(message: str, exit_status: int) -> None:
    note(f"vault-memory: {' '.join(message.split())}")
    sys.exit(exit_status)


def main() -> None:
    """Run ``vault-memory``; ``vault-memory query`` hands over to the agent's light command."""
    if sys.argv[1:2] == ["query"]:
        _query(sys.argv[2:])
        return
    # In its standalone mode click would turn Ctrl-C into "Aborted!" and status 1.
    run(lambda: cli.main(prog_name="vault-memory", standalone_mode=False))


if __name__ == "__main__":
    main()
