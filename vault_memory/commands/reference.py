"""Writes ``docs/configuration.md`` and ``docs/commands.md``: ``python -m vault_memory.commands.reference``.

Belongs here: turning settings and help texts into pages. Does not: any sentence about a setting that is not in its
docstring; a test compares the pages with what this module makes.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from vault_memory import settings as settings_module
from vault_memory.settings import (
    AgentSettings,
    DagsterSettings,
    EmbeddingSettings,
    EvalSettings,
    JournalSettings,
    ScanSettings,
    SearchSettings,
    Settings,
    SyncSettings,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_GENERATED: Final = "<!-- Made by: python -m vault_memory.commands.reference -->\n"
_WIDTH: Final = 100
_NOT_KEYS: Final = frozenset(
    {"name", "config_file", "api_key", "embedding", "scan", "sync", "search", "eval", "agent", "journal", "dagster"}
)
_DEFAULTS: Final = {
    "home": "`~/.vault-memory`; for root `/var/lib/vault-memory`",
    "hmac_key_file": "`hmac.key` beside the configuration file",
}

_CONFIGURATION: Final = """# Configuration

{generated}
The environment wins over the configuration file. The file is TOML: `~/.config/vault-memory/config.toml`, or what
`VAULT_MEMORY_CONFIG` names. It lies outside the vault, and `vault-memory init` writes it with mode 0600. A file inside
the vault is never read, with one exception that can only leave more out: `.vaultmemoryignore`, patterns in the style of
`.gitignore` without `!`. An unknown key or a value of the wrong kind is an error, never ignored.

```toml
vault = "/home/me/notes"

[embedding]
api_key_file = "/home/me/.config/vault-memory/openrouter.key"   # mode 0600

[scan]
roots = ["01_Projects", "02_Areas"]
exclude_directories = ["00_Inbox", "04_Archive", "Infrastructure", "Home-Automation"]
```

The provider's key comes from `OPENROUTER_API_KEY`, else from `api_key_file`, else from what `api_key_command` prints.
`OPENAI_BASE_URL`, `HTTP_PROXY` and their like are ignored.

Further vaults share one database, one `vault-memory up` and one query; each has a schema, a writer and a sensor of its
own. A vault is named in commands with `--vault NAME`; the one that the top level names is called `default`.

```toml
[vaults.work]
path = "/home/me/work-notes"

[vaults.papers]
path = "/home/me/papers"
kind = "directory"                          # a plain folder, not in git
scan = {{ exclude_directories = ["drafts"] }}   # what differs from [scan]
```

A table `[vaults.NAME]` takes `path`, `kind` (default `git`), `schema` (default `vault_memory_NAME`), `scan` and `eval`.
What its `scan` leaves out is as in `[scan]`; only a plain folder is indexed whole if it names no `roots`.

## Top level

{settings}

## `[embedding]`

{embedding}

## `[scan]`

{scan}

## `[sync]`

{sync}

## `[search]`

{search}

## `[eval]`

{evaluation}

## `[agent]`

{agent}

## `[journal]`

{journal}

## `[dagster]`

{dagster}

`on_failure_command` is run by the shell and gets JSON on its standard input: `vault`, `job`, `run_id`, `commit`,
`reasons`, `failed_notes`, `what_to_do`. It holds paths, never note text, and the same failure is told once a day. For
example, with a chat's webhook: `on_failure_command = "jq -c '{{text: .reasons[0]}}' | curl -fsS --json @- https://chat.example/hook"`.
"""


def configuration_page() -> str:
    """Return the page about settings."""
    return _CONFIGURATION.format(
        generated=_GENERATED,
        settings=_table("", Settings),
        embedding=_table("embedding", EmbeddingSettings),
        scan=_table("scan", ScanSettings),
        sync=_table("sync", SyncSettings),
        search=_table("search", SearchSettings),
        evaluation=_table("eval", EvalSettings),
        agent=_table("agent", AgentSettings),
        journal=_table("journal", JournalSettings),
        dagster=_table("dagster", DagsterSettings),
    )


def commands_page() -> str:
    """Return the page with every command's help."""
    from vault_memory.cli import cli  # noqa: PLC0415 - it imports the modules beside this one
    from vault_memory.query.cli import cli as query  # noqa: PLC0415 - as above

    parts = [
        "# Commands\n",
        _GENERATED,
        (
            "Results go to stdout, everything else to stderr. Exit status 0: done; 1: done but for some notes, or "
            "problems were found;\n2: wrong usage; 3: could not run, and one line says why and what to do.\n"
        ),
    ]
    for name, command in (("vault-memory", cli), ("vault-memory-query", query)):
        parts.extend(f"## `{title}`\n\n```text\n{text}\n```\n" for title, text in _helps(command, name, None))
    return "\n".join(parts)


def pages() -> Mapping[str, str]:
    """Return the text of every generated page, by its path in the checkout."""
    return {"docs/configuration.md": configuration_page(), "docs/commands.md": commands_page()}


def _helps(command: click.Command, name: str, parent: click.Context | None) -> Iterator[tuple[str, str]]:
    context = command.make_context(name.rpartition(" ")[2], [], parent, resilient_parsing=True)
    context.max_content_width = context.terminal_width = _WIDTH
    yield name, "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None and not found.hidden:
                yield from _helps(found, f"{name} {child}", context)


def _table(table: str, kind: type[Any]) -> str:
    about = _attributes(kind)
    lines = ["| key | variable | default | |", "|---|---|---|---|"]
    variables = _environment_names()
    for item in dataclasses.fields(kind):
        if item.name in _NOT_KEYS:
            continue
        # Keys of other tables may share a name with these, and have no variable.
        in_table = variables.get(item.name) if table in ("embedding", "search") else None
        variable = in_table if table else f"VAULT_MEMORY_{item.name.upper()}"
        shown = f"`{variable}`" if variable else ""
        note = about.get(item.name, "").replace("|", "\\|")
        lines.append(f"| `{item.name}` | {shown} | {_default(item, table)} | {note} |")
    return "\n".join(lines)


def _default(item: dataclasses.Field[Any], table: str) -> str:
    if not table and item.name in _DEFAULTS:
        return _DEFAULTS[item.name]
    value = item.default
    if value is None or value is dataclasses.MISSING:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return ", ".join(f"`{part}`" for part in value) or "empty"  # pyright: ignore[reportUnknownVariableType]
    return f"`{value}`"


def _environment_names() -> Mapping[str, str]:
    """Return the variables of settings in tables, by key, as the loader asks for them."""
    source = inspect.getsource(settings_module)
    named = re.findall(r'"(\w+)": reader\.environment\("(\w+)"\)', source)
    alone = re.findall(r'reader\.environment\("(\w+)"\)', source)
    found = {name.lower(): name for name in alone} | dict(named)
    return {key: f"VAULT_MEMORY_{name}" for key, name in found.items()}


def _attributes(kind: type[Any]) -> Mapping[str, str]:
    """Read the section ``Attributes`` of a docstring: name to text in one line."""
    _, _, section = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        match = re.match(r"    (\w+): (.*)", line)
        if match:
            name = match[1]
            found[name] = match[2]
        elif name and line.strip():
            found[name] += f" {line.strip()}"
    return {key: text.replace("``", "`") for key, text in found.items()}


def main() -> None:
    """Write the pages into the checkout that this package was imported from."""
    root = Path(__file__).resolve().parents[2]
    for name, text in pages().items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
        sys.stderr.write(f"wrote {name}\n")


if __name__ == "__main__":
    main()
