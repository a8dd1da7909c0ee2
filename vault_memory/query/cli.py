"""The agent's command, ``vault-memory-query``.

Belongs here: flags, output formats and exit statuses of the query. Does not: searching, and anything that writes.

Results go to stdout, everything else to stderr. Exit 0: answered, also with nothing found (empty output);
2: wrong usage, also an empty question; 3: could not run.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any, cast

import click

from vault_memory import __version__
from vault_memory import settings as settings_module
from vault_memory.errors import MissingExtraError, VaultMemoryError
from vault_memory.query import reading
from vault_memory.query.cleaning import clean, one_line
from vault_memory.query.context import DEFAULT_MAX_CHARS, check_max_chars, render
from vault_memory.query.search import MAX_K, Mode, search

if TYPE_CHECKING:
    from collections.abc import Callable

    from vault_memory.query.result import Hit, SearchResult
    from vault_memory.settings import Settings

_READ_MAX_CHARS = 20_000
# What a terminal acts on and JSON leaves as it is: C1 controls, bidirectional overrides, separators, tags, halves.
_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e0fff]")


class _QueryFirst(click.Group):
    """A group whose first word, where it is no command, begins a question."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``search`` before a question."""
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help", "--version")):
            args = ["search", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=_QueryFirst,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="The word 'get' (or 'related', 'expand', 'search') as a question: vault-memory-query search get",
)
@click.version_option(__version__, prog_name="vault-memory-query")
def cli() -> None:
    """Ask the memory: vault-memory-query "why did we move to pgvector".

    Prints quoted excerpts of the notes for an agent. A first word that is no command is part of the question.
    """


def _output_options(default_max_chars: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        function = click.option(
            "--max-chars", type=int, default=default_max_chars, show_default=True, help="Bound of the context block."
        )(function)
        return click.option(
            "--format",
            "output",
            type=click.Choice(["context", "json", "text"]),
            default="context",
            show_default=True,
            help="A block for an agent, JSON, or plain text.",
        )(function)

    return decorate


_vault_option = click.option("--vault", metavar="NAME", help="Only this vault, where there are several.")


def _vaults(name: str | None) -> tuple[Settings, ...]:
    return settings_module.load_all() if name is None else (settings_module.load(name=name),)


@cli.command("search")
@click.argument("text", nargs=-1)
@click.option("-k", type=click.IntRange(1, MAX_K), default=5, show_default=True, help="Hits, at most two of one note.")
@click.option("--path", metavar="GLOB", help="Only notes whose path matches, for example '01_Projects/**'.")
@click.option("--tag", metavar="TAG", help="Only notes with this tag or one below it.")
@click.option("--since", metavar="DATE", help="Only notes dated since: 2026-03-15, or an age such as 7d or 4w.")
@click.option("--heading", metavar="TEXT", help="Only sections whose headings contain this.")
@click.option("--recent", is_flag=True, help="Of notes that answer about as well, the newer first.")
@click.option("--mode", type=click.Choice(["hybrid", "vector", "keyword"]), default="hybrid", show_default=True)
@click.option("--explain", is_flag=True, help="Rank and score of each leg, on stderr.")
@_output_options(DEFAULT_MAX_CHARS)
@_vault_option
def _search(
    *,
    vault: str | None,
    text: tuple[str, ...],
    k: int,
    path: str | None,
    tag: str | None,
    since: str | None,
    heading: str | None,
    recent: bool,
    mode: str,
    explain: bool,
    output: str,
    max_chars: int,
) -> None:
    """Search for TEXT, in any language."""
    check_max_chars(max_chars)
    result = search(
        " ".join(text),
        k=k,
        mode=cast("Mode", mode),
        path=path,
        tag=tag,
        since=since,
        heading=heading,
        recent=recent,
        vaults=_vaults(vault),
    )
    _show(result, output, max_chars)
    if explain:
        for number, hit in enumerate(result.items, start=1):
            click.echo(_explanation(number, hit, labelled=result.is_labelled), err=True)


@cli.command("get")
@click.argument("source")
@_output_options(_READ_MAX_CHARS)
@_vault_option
def _get(*, vault: str | None, source: str, output: str, max_chars: int) -> None:
    """Read a note, a section (PATH#HEADING) or lines of it (PATH:10-20)."""
    check_max_chars(max_chars)
    _show(reading.get(source, vaults=_vaults(vault)), output, max_chars)


@cli.command("related")
@click.argument("source")
@click.option("-k", type=click.IntRange(1, MAX_K), default=5, show_default=True, help="Notes.")
@_output_options(DEFAULT_MAX_CHARS)
@_vault_option
def _related(*, vault: str | None, source: str, k: int, output: str, max_chars: int) -> None:
    """List the notes around a note: linked ones, then similar ones."""
    check_max_chars(max_chars)
    _show(reading.related(source, k=k, vaults=_vaults(vault)), output, max_chars)


@cli.command("expand")
@click.argument("chunk")
@click.option("--note", "whole_note", is_flag=True, help="The whole note.")
@_output_options(_READ_MAX_CHARS)
@_vault_option
def _expand(*, vault: str | None, chunk: str, whole_note: bool, output: str, max_chars: int) -> None:
    """Read the section around a hit, by its chunk_id."""
    check_max_chars(max_chars)
    _show(reading.expand(chunk, whole_note=whole_note, vaults=_vaults(vault)), output, max_chars)


@cli.command("mcp")
def _mcp() -> None:
    """Serve search, get, related, expand and status over stdio, for agents that speak MCP."""
    try:
        from vault_memory.query import mcp  # noqa: PLC0415 - the SDK takes most of a second
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        raise MissingExtraError("the MCP server", "mcp") from None
    mcp.serve(settings_module.load_all())


def _show(result: SearchResult, output: str, max_chars: int) -> None:
    if output == "json":
        _write(_json(result.to_dict()) + "\n")
        return
    text = render(result, max_chars) if output == "context" else _plain(result)
    if text:
        _write(text)
    else:
        click.echo("nothing in memory matches", err=True)  # empty output alone looks like a fault to a person
    if output == "text" or not text:
        for notice in result.notices:
            click.echo(one_line(notice), err=True)


def _write(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone (`| head`), which is no failure; the interpreter would flush and complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    # Beyond the basic plane, JSON writes an escape as a pair of halves.
    return _UNSAFE.sub(lambda match: json.dumps(match.group())[1:-1], text)


def _plain(result: SearchResult) -> str:
    blocks: list[str] = []
    for number, hit in enumerate(result.items, start=1):
        heading = f"  {one_line(hit.heading_path)}" if hit.heading_path else ""
        marks = "".join(f" [{mark}]" for mark in (*hit.flags, *hit.relation, *(["stale"] if hit.stale else [])))
        vault = f"{hit.vault}: " if result.is_labelled else ""
        body = "\n".join(f"   {line}".rstrip() for line in clean(hit.text).text.strip("\n").split("\n"))
        blocks.append(f"{number}. {vault}{one_line(hit.citation)}{heading}  ({hit.score:.2f}){marks}\n{body}\n")
    return "\n".join(blocks)


def _explanation(number: int, hit: Hit, *, labelled: bool) -> str:
    legs = "  ".join(
        f"{name} -" if leg is None else f"{name} #{leg.rank} {leg.score:.4f}"
        for name, leg in (("vector", hit.legs.vector), ("keyword", hit.legs.keyword))
    )
    vault = f"{hit.vault}: " if labelled else ""
    return f"{number}. {hit.score:.4f}  {legs}  {hit.chunk_id}  {vault}{one_line(hit.citation)}"


def main(arguments: list[str] | None = None) -> None:
    """Run the command and end the process; every failure is one line on stderr.

    Args:
        arguments: In place of the process's own, for callers that go on afterwards: success then returns.
    """
    for stream in (sys.stdout, sys.stderr):
        # Notes are UTF-8 whatever the locale is; a bare C locale would raise on the first Chinese character.
        getattr(stream, "reconfigure", dict)(encoding="utf-8", errors="backslashreplace")
    status = _run(arguments)
    if arguments is None:
        sys.stdout.flush()
        sys.stderr.flush()
        # The connection is closed and nothing else is left to tidy up; the interpreter would spend a tenth of a
        # question's time on taking its modules apart.
        os._exit(status)
    if status:
        sys.exit(status)


def _run(arguments: list[str] | None) -> int:
    """Run the command; return the exit status."""
    try:
        # click returns the status of --help and --version, and what a command returned, which is nothing.
        return cli.main(arguments, prog_name="vault-memory-query", standalone_mode=False) or 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except VaultMemoryError as error:
        click.echo(f"vault-memory-query: {one_line(str(error))}", err=True)
        return error.exit_status


if __name__ == "__main__":
    main()
