"""``vault-memory init``: the configuration file, the key and the database of a vault.

Belongs here: what is written at the start, and what is said about it. Does not: checks of a running installation
(``doctor``), the first sync.

It may be run again: what is set stays as it is, and another value for it is refused unless it is asked for.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from vault_memory.adapters.git import git_version
from vault_memory.ingest.source import open_source
from vault_memory.commands.place import database_place
from vault_memory.commands.roots import RootReport, examine, looks_like_obsidian
from vault_memory.errors import ConfigError
from vault_memory.ingest.database import open_store
from vault_memory.ingest.keys import load_key
from vault_memory.ingest.sync import Synchronizer

if TYPE_CHECKING:
    from vault_memory.ingest.source import Source
    from collections.abc import Mapping, Sequence

    from vault_memory.settings import Settings

_FIRST_LINES: Final = "# Settings of vault-memory; the environment wins over this file. See docs/configuration.md.\n"


@dataclass(frozen=True, slots=True)
class SetUp:
    """What ``init`` found and made.

    Attributes:
        settings: As the next command will have them.
        written: Settings that were written into the file, as ``table.key``.
        facts: Pairs of a name and what is so.
        warnings: What the user should do something about.
        next_steps: Commands to run now.
    """

    settings: Settings
    written: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    next_steps: tuple[str, ...]


def set_up(
    settings: Settings,
    *,
    vault: Path | None = None,
    roots: Sequence[str] = (),
    embedder: str | None = None,
    api_key_file: Path | None = None,
    replace_settings: bool = False,
) -> SetUp:
    """Make an installation ready for its first sync.

    Args:
        settings: As the environment and the file have them now.
        vault: The vault; None: as the settings say.
        roots: Folders to index; empty: as the settings say.
        embedder: ``openai`` or ``hashing``, to be recorded; None: as the settings say.
        api_key_file: Where the provider's key is.
        replace_settings: Change settings that the file has already.

    Raises:
        ConfigError: A setting is there with another value, or the file or the key cannot be written.
        VaultError: There is no readable git repository.
        VaultMemoryError: The database cannot be used.
    """
    wanted = _in_force(settings, vault=vault, roots=roots, embedder=embedder, api_key_file=api_key_file)
    opened = open_source(wanted)
    for name, place in (("the configuration file", wanted.config_file), ("VAULT_MEMORY_HOME", wanted.home)):
        if place.resolve().is_relative_to(opened.top):
            raise ConfigError(f"{name} must lie outside the vault, not at {place}")
    head = opened.head()
    report = examine(opened.tree(head) if head else (), wanted.scan)
    facts = [("uses git", git_version()), ("vault", _about_vault(opened, head)), ("notes", _about_notes(report))]
    values: dict[str, Any] = {"vault": str(wanted.require_vault())}
    if settings.home != _default_home():
        values["home"] = str(settings.home)
    if roots:
        values["scan.roots"] = list(roots)
    if embedder:
        values["embedding.embedder"] = embedder
    if api_key_file:
        values["embedding.api_key_file"] = str(wanted.embedding.api_key_file)
    wanted.api_key()  # a key file that others may read is refused before anything is written
    written = write_config(wanted.config_file, values, replace_settings=replace_settings)
    facts.append(("settings", f"{wanted.config_file} ({', '.join(written) if written else 'nothing to change'})"))
    if "home" in written:
        facts.append(("home", f"{wanted.home} (in the settings from now on: no command needs VAULT_MEMORY_HOME)"))
    facts += _make_store(wanted)
    return SetUp(wanted, written, tuple(facts), tuple(_warnings(wanted, head, report)), tuple(_steps(wanted, head)))


def write_config(path: Path, values: Mapping[str, Any], *, replace_settings: bool) -> tuple[str, ...]:
    """Put settings into the configuration file, mode 0600; comments and other settings stay.

    Args:
        path: The file; made if it is missing.
        values: By name, ``key`` or ``table.key``.
        replace_settings: Whether a setting that has another value is changed; else it is refused.

    Returns:
        The names that were added or changed.

    Raises:
        ConfigError: A setting has another value, or the file cannot be read, edited or written.
    """
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else _FIRST_LINES
        before = tomllib.loads(text)
        written: list[str] = []
        for name, value in values.items():
            now = _value(before, name)
            if now == value:
                continue
            if now is not None and not replace_settings:
                raise ConfigError(
                    f"{path}: {name} is {json.dumps(now, ensure_ascii=False)} there; "
                    "to change it, edit the file or add --replace"
                )
            text = _set(text, name, value, present=now is not None)
            written.append(name)
        after = tomllib.loads(text)
        if any(_value(after, name) != value for name, value in values.items()):
            raise ConfigError(f"{path}: cannot be edited safely; set {', '.join(written)} by hand")
        if written or not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _replace(path, text)
    except tomllib.TOMLDecodeError:
        raise ConfigError(f"{path}: cannot be edited safely; set {', '.join(values)} by hand") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be written ({type(error).__name__})") from None
    return tuple(written)


def _in_force(
    settings: Settings,
    *,
    vault: Path | None,
    roots: Sequence[str],
    embedder: str | None,
    api_key_file: Path | None,
) -> Settings:
    found = vault.expanduser().absolute() if vault else settings.vault
    if found is None:
        raise ConfigError("no vault is named: vault-memory init /path/to/vault")
    scan = replace(settings.scan, roots=tuple(roots)) if roots else settings.scan
    embedding = settings.embedding
    if embedder is not None:
        embedding = replace(embedding, embedder=embedder)  # pyright: ignore[reportArgumentType] - a choice of the two
    if api_key_file is not None:
        embedding = replace(embedding, api_key_file=api_key_file.expanduser().absolute())
    return replace(settings, vault=found, scan=scan, embedding=embedding)


def _default_home() -> Path:
    from vault_memory import settings as settings_module  # noqa: PLC0415 - only here

    return settings_module.load({"HOME": str(Path.home())} | {"VAULT_MEMORY_CONFIG": os.devnull}).home


def _about_vault(vault: Source, head: str | None) -> str:
    kind = "Obsidian vault, " if looks_like_obsidian(vault.path) else ""
    return f"{vault.path} ({kind}HEAD {head[:12] if head else 'without a commit'})"


def _about_notes(report: RootReport) -> str:
    where = ", ".join(report.present) or "the folders that are indexed"
    return f"{report.within} of {report.tracked} Markdown files lie in {where}"


def _make_store(settings: Settings) -> list[tuple[str, str]]:
    """Make database, schema, key; record the embedder where it is certain."""
    chosen = settings.embedding.embedder is not None or settings.api_key() is not None
    store = open_store(settings)
    try:
        state = store.sync_state()
        load_key(settings.hmac_key_file, create=state.key_fingerprint is None)
        facts = [
            ("database", database_place(settings)),
            ("hash key", f"{settings.hmac_key_file} (keep a copy: a restored database needs it)"),
        ]
    finally:
        store.close()
    if not chosen and state.embedder is None:
        return [*facts, ("embedder", "not chosen yet")]
    with Synchronizer.open(settings) as synchronizer:  # holds vault, key and embedder against what is recorded
        if synchronizer.provider.error is not None:
            raise synchronizer.provider.error
        found = synchronizer.store.sync_state()
    return [*facts, ("embedder", f"{found.embedder} {found.model}")]


def _warnings(settings: Settings, head: str | None, report: RootReport) -> list[str]:
    warnings: list[str] = []
    if head is None:
        warnings.append("the vault has no commit yet: only committed notes are read (git add, git commit)")
    if report.hint:
        warnings.append(report.hint)
    absent = [root for root in settings.scan.roots if root not in report.present]
    if report.within and absent:
        warnings.append(f"no note lies in {', '.join(absent)}")
    if settings.embedding.embedder is None and settings.api_key() is None:
        warnings.append(
            "no API key: the first sync uses the offline hashing embedder, which compares spelling, not meaning; "
            "for the other, set OPENROUTER_API_KEY (or init --api-key-file FILE) before it"
        )
    return warnings


def _steps(settings: Settings, head: str | None) -> list[str]:
    if head is None:
        return [f"cd {shlex.quote(str(settings.vault))} && git add . && git commit    # then: vault-memory sync"]
    return [
        "vault-memory sync --dry-run    # what would be read and sent, and its price",
        "vault-memory sync              # bring memory to HEAD",
        'vault-memory query "..."       # ask',
        "vault-memory up                # follow every commit, with a web page; or: vault-memory install-hook",
    ]


# -- editing TOML -------------------------------------------------------------------------------------------------


def _value(config: Mapping[str, Any], name: str) -> Any:
    table, dot, key = name.rpartition(".")
    found = config.get(table, {}) if dot else config
    return found.get(key) if isinstance(found, dict) else None


def _set(text: str, name: str, value: object, *, present: bool) -> str:
    """Set one key by editing the text; ``write_config`` checks by parsing that it came out right."""
    table, _, key = name.rpartition(".")
    line = f"{key} = {_toml(value)}"
    start, end = _section(text, table)
    if start is None:
        return f"{text.rstrip()}\n\n[{table}]\n{line}\n"
    body = text[start:end]
    if present:
        # An array may go over several lines.
        old = re.compile(rf"^[ \t]*{re.escape(key)}[ \t]*=[ \t]*(?:\[[^\]]*\][^\n]*|[^\n]*)", re.MULTILINE)
        return text[:start] + old.sub(lambda _: line, body, count=1) + text[end:]
    kept = body.rstrip("\n")
    return (
        text[:start] + (f"{kept}\n{line}\n" if kept else f"{line}\n") + ("\n" if end < len(text) else "") + text[end:]
    )


def _section(text: str, table: str) -> tuple[int | None, int]:
    """Return where the lines of a table begin and end; ``""`` is what stands before the first table."""
    headers = list(re.finditer(r"^[ \t]*\[+([^\]\n]+)\]+[^\n]*\n?", text, re.MULTILINE))
    if not table:
        return 0, headers[0].start() if headers else len(text)
    for position, header in enumerate(headers):
        if header[1].strip() == table:
            after = headers[position + 1].start() if position + 1 < len(headers) else len(text)
            return header.end(), after
    return None, len(text)


def _toml(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"  # pyright: ignore[reportUnknownVariableType]
    # JSON's escapes are TOML's, but for DEL, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _replace(path: Path, text: str) -> None:
    target = path.resolve()  # a link into a folder of dotfiles stays a link
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IRUSR | stat.S_IWUSR)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(target)
