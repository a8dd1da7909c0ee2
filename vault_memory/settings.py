"""All settings, read once.

Belongs here: every name a user may set, its default and its check. This is the only module that reads
``os.environ`` and names the configuration file. Does not: how a value is read (``settings_reader``), nor anything
inside the vault, which is data.

The environment wins over the file. The file is TOML, named by ``VAULT_MEMORY_CONFIG`` or
``~/.config/vault-memory/config.toml``; its keys are the names below without their prefix, in lower case,
with ``[embedding]``, ``[scan]``, ``[sync]``, ``[search]``, ``[eval]``, ``[agent]``, ``[journal]`` and ``[dagster]`` as
tables.
Every ``[vaults.NAME]`` adds a vault of its own, which shares all but its path, kind, schema, scan and questions.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args

from vault_memory.errors import ConfigError
from vault_memory.settings_reader import Reader, coerce, read_config, read_key_file, run_key_command

if TYPE_CHECKING:
    from collections.abc import Mapping

EmbedderName = Literal["openai", "hashing"]
IndexMode = Literal["exact", "bits", "hnsw", "ivfflat"]
IndexChoice = Literal["auto", "exact", "bits", "hnsw", "ivfflat"]
VaultKind = Literal["git", "directory"]

MAX_DIMENSIONS: Final = 1536
DEFAULT_BASE_URL: Final = "https://openrouter.ai/api/v1"
DEFAULT_MODEL: Final = "openai/text-embedding-3-small"
DEFAULT_ROOTS: Final = ("01_Projects", "02_Areas")
DEFAULT_EXCLUDED_DIRECTORIES: Final = ("00_Inbox", "04_Archive", "Infrastructure", "Home-Automation")
DEFAULT_SCHEMA: Final = "vault_memory"
UNNAMED: Final = "default"
"""What the vault is called that ``VAULT_MEMORY_VAULT`` or the file's own ``vault`` sets."""
MIN_BLOCK_CHARACTERS: Final = 512
MAX_RECALL_HITS: Final = 20
_VAULT_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,29}", re.ASCII)


@dataclass(frozen=True, slots=True)
class EmbeddingSettings:
    """How texts become vectors.

    Attributes:
        embedder: ``openai`` or ``hashing`` if asked for by name; None: as the database recorded.
        base_url: Root of an OpenAI-compatible API.
        model: The model's name at that API.
        dimensions: Width of its vectors, at most 1,536; narrower ones are padded with zeros.
        allow_hosts: Hosts that may be sent note text besides those of the known providers.
        allow_http_loopback: Whether ``http://`` to a loopback address is accepted.
        concurrency: Requests in flight at once.
        timeout_seconds: For one request.
        max_batch_texts: None: as the provider's preset says.
        max_attempts: Tries of one request before its notes are marked failed.
        max_backoff_seconds: Longest wait between two tries.
        price_usd_per_million_tokens: None: as the provider's preset says.
        confirm_above_usd: ``sync`` asks for ``--yes`` above this estimate.
        api_key_file: File with the provider's key; nobody else may read it.
        api_key_command: Command line that prints the provider's key.
    """

    embedder: EmbedderName | None = None
    base_url: str = DEFAULT_BASE_URL
    model: str = DEFAULT_MODEL
    dimensions: int = MAX_DIMENSIONS
    allow_hosts: tuple[str, ...] = ()
    allow_http_loopback: bool = False
    concurrency: int = 4
    timeout_seconds: float = 60.0
    max_batch_texts: int | None = None
    max_attempts: int = 6
    max_backoff_seconds: float = 60.0
    price_usd_per_million_tokens: float | None = None
    confirm_above_usd: float = 5.0
    api_key: str | None = field(default=None, repr=False)
    api_key_file: Path | None = None
    api_key_command: str | None = None


@dataclass(frozen=True, slots=True)
class ScanSettings:
    """What is left out of memory; ``.vaultmemoryignore`` in the vault can only add to it.

    Attributes:
        roots: Top-level folders (paths relative to the vault) that are indexed; ``.`` stands for all.
        exclude_directories: Names of folders that are excluded at any depth, as exact path parts.
        exclude_keywords: Words that exclude a note when its file name contains them as whole words.
        exclude_patterns: Patterns in the style of ``.gitignore``, without ``!``.
        private_tags: Tags that exclude a note.
        max_note_bytes: Larger notes are quarantined as ``too_large``.
        time_budget_seconds: A note whose scan takes longer is quarantined as ``scan_timeout``.
    """

    roots: tuple[str, ...] = DEFAULT_ROOTS
    exclude_directories: tuple[str, ...] = DEFAULT_EXCLUDED_DIRECTORIES
    exclude_keywords: tuple[str, ...] = ()
    exclude_patterns: tuple[str, ...] = ()
    private_tags: tuple[str, ...] = ("private", "confidential", "私密", "机密", "隐私")
    max_note_bytes: int = 1024 * 1024
    time_budget_seconds: float = 3.0


@dataclass(frozen=True, slots=True)
class SyncSettings:
    """How much one run takes, and how failures are retried.

    Attributes:
        max_notes_per_run: Notes in one Dagster run.
        max_chunks_per_run: Chunks in one Dagster run that follows a commit; the next run takes the notes beyond.
        wait_seconds: How long a writer waits for another one.
        retry_base_seconds: Wait before the first retry of a failed note; doubles each time.
        retry_max_seconds: Longest wait between retries.
        folder_poll_seconds: How often ``up`` looks at a plain folder; a repository's HEAD costs nothing to follow.
        max_deleted_share: A plan that would delete more than this share of the notes is refused.
    """

    max_notes_per_run: int = 300
    max_chunks_per_run: int = 4000
    wait_seconds: float = 30.0
    retry_base_seconds: float = 60.0
    retry_max_seconds: float = 3600.0
    folder_poll_seconds: float = 15.0
    max_deleted_share: float = 0.5

    def retry_after(self, attempts: int) -> timedelta:
        """Return how long to wait after so many failures in a row."""
        return timedelta(seconds=min(self.retry_base_seconds * 2 ** min(attempts - 1, 20), self.retry_max_seconds))


@dataclass(frozen=True, slots=True)
class EvalSettings:
    """The check of ``memory_index`` that asks questions whose notes are known.

    Attributes:
        questions: File as for ``vault-memory eval``, relative to the configuration file; None: no such check.
        min_recall: Recall@5 below this fails the check.
    """

    questions: Path | None = None
    min_recall: float = 0.0


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How a search finds its candidates.

    Attributes:
        vector_index: ``auto``, ``exact``, ``bits``, ``hnsw`` or ``ivfflat``; None: as the database recorded.
        remembered_questions: Vectors of questions that a running MCP server keeps in its memory; 0: none.
    """

    vector_index: IndexChoice | None = None
    remembered_questions: int = 256


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What an agent is handed without asking: by ``vault-memory agent`` and by the plugin's hooks.

    Attributes:
        claude: The program that ``vault-memory agent`` starts.
        max_chars: Bound of all that is handed over at once, notes and memory files together.
        memory_max_chars: Part of it that memory files (``MEMORY.md``) may take.
        claude_md: Also quote ``CLAUDE.md`` files, for agents that do not read them; Claude Code does by itself.
        recall: Whether the plugin looks every prompt up.
        recall_hits: Excerpts handed over with a prompt.
        recall_seconds: A prompt never waits longer for them.
    """

    claude: str = "claude"
    max_chars: int = 2500
    memory_max_chars: int = 1000
    claude_md: bool = False
    recall: bool = True
    recall_hits: int = 3
    recall_seconds: float = 2.5


@dataclass(frozen=True, slots=True)
class DagsterSettings:
    """How Dagster keeps house, for all vaults.

    Attributes:
        keep_days: Runs, events and ticks older than this go, unless they show how things stand.
        on_failure_command: Command line that is given a JSON object about a failed run on its standard input.
    """

    keep_days: int = 30
    on_failure_command: str | None = None


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """How sessions of an agent become notes.

    Attributes:
        enabled: Whether the plugin writes a journal.
        folder: Where its days lie; None: ``journal`` in ``home``.
        summariser_command: Command line that reads an extract of a session and prints its summary.
        model: Chat model that writes the summary; None: the extract itself is the entry.
        base_url: Root of the chat model's API; None: that of ``[embedding]``, with its key and its allowed hosts.
        timeout_seconds: For one summary; after it the extract is used.
        index: Whether an entry is put into memory as soon as it is written; one in a vault comes with its commit.
    """

    enabled: bool = True
    folder: Path | None = None
    summariser_command: str | None = None
    model: str | None = None
    base_url: str | None = None
    timeout_seconds: float = 60.0
    index: bool = True


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting of one source set.

    Attributes:
        name: What the vault is called in commands and results.
        vault: Root of the vault's work tree (or a bare repository), or a plain folder; None where a command needs none.
        kind: ``git``: the commits of a repository; ``directory``: the files of a plain folder.
        home: Where the embedded server, DAGSTER_HOME and logs live.
        dsn: PostgreSQL of the operator; None: the embedded server.
        query_dsn: PostgreSQL of the read-only role; None: derived from the embedded server, or ``dsn``.
        dagster_dsn: Dagster's own storage; None: database ``dagster`` on the same server.
        schema: The schema that holds this source set's tables.
        hmac_key_file: 32 random bytes (hexadecimal) that key the hashes of secret content.
        pg_user: Operating system user that the embedded server runs as when started by root.
        config_file: The file that was read, or would be.
    """

    vault: Path | None
    home: Path
    config_file: Path
    hmac_key_file: Path
    dsn: str | None = field(default=None, repr=False)
    query_dsn: str | None = field(default=None, repr=False)
    dagster_dsn: str | None = field(default=None, repr=False)
    name: str = UNNAMED
    kind: VaultKind = "git"
    schema: str = DEFAULT_SCHEMA
    pg_user: str = "nobody"
    embedding: EmbeddingSettings = field(default_factory=EmbeddingSettings)
    scan: ScanSettings = field(default_factory=ScanSettings)
    sync: SyncSettings = field(default_factory=SyncSettings)
    eval: EvalSettings = field(default_factory=EvalSettings)
    search: SearchSettings = field(default_factory=SearchSettings)
    agent: AgentSettings = field(default_factory=AgentSettings)
    journal: JournalSettings = field(default_factory=JournalSettings)
    dagster: DagsterSettings = field(default_factory=DagsterSettings)

    @property
    def journal_folder(self) -> Path:
        """Where the journal of agents' sessions lies."""
        return (self.journal.folder or self.home / "journal").absolute()

    @property
    def dagster_home(self) -> Path:
        """``DAGSTER_HOME`` of every command."""
        return self.home / "dagster"

    @property
    def allow_list_file(self) -> Path:
        """The operator's released findings: beside the configuration, never in the vault."""
        return self.config_file.parent / f"{self.schema}.allowed.json"

    def require_vault(self) -> Path:
        """Return the vault.

        Raises:
            ConfigError: None is set.
        """
        if self.vault is None:
            raise ConfigError("no vault is set: export VAULT_MEMORY_VAULT=/path/to/vault, or run 'vault-memory init'")
        return self.vault

    def api_key(self) -> str | None:
        """Return the provider's key from the environment, the key file or the key command; None if there is none.

        Raises:
            ConfigError: The file cannot be read or others may read it, or the command failed.
        """
        embedding = self.embedding
        if embedding.api_key:
            return embedding.api_key
        if embedding.api_key_file is not None:
            return read_key_file(embedding.api_key_file)
        if embedding.api_key_command:
            return run_key_command(embedding.api_key_command)
        return None


def load(
    environ: Mapping[str, str] | None = None, *, name: str | None = None, config_must_exist: bool = True
) -> Settings:
    """Read the environment and the configuration file, for one vault.

    Args:
        environ: In place of ``os.environ``, for tests.
        name: Of the vault; None: the unnamed one, or where there is none the first that the file names.
        config_must_exist: Whether a file that ``VAULT_MEMORY_CONFIG`` names has to be there; ``init`` makes it.

    Raises:
        ConfigError: A value or the file is malformed, the message names the setting; or no vault has this name.
    """
    vaults = load_all(environ, config_must_exist=config_must_exist)
    if name is None:
        return vaults[0]
    for one in vaults:
        if one.name == name:
            return one
    raise ConfigError(f"no vault is called {name!r}; known: {', '.join(one.name for one in vaults)}")


def load_all(
    environ: Mapping[str, str] | None = None,
    *,
    config_must_exist: bool = True,
    also: Mapping[str, Mapping[str, str]] | None = None,
) -> tuple[Settings, *tuple[Settings, ...]]:
    """Read the environment and the configuration file, for all vaults: the unnamed one first, then in the file's order.

    Args:
        environ: In place of ``os.environ``, for tests.
        config_must_exist: As for ``load``.
        also: More tables ``[vaults.NAME]`` than the file has.

    Raises:
        ConfigError: A value or the file is malformed; the message names the setting.
    """
    env = os.environ if environ is None else environ
    home_directory = Path(env.get("HOME") or "~").expanduser()
    config_file = Path(
        env.get("VAULT_MEMORY_CONFIG") or home_directory / ".config/vault-memory/config.toml"
    ).expanduser()
    config = read_config(config_file, required=config_must_exist and "VAULT_MEMORY_CONFIG" in env)
    if also:
        config = {**config, "vaults": {**config.get("vaults", {}), **also}}
    reader = Reader(env, config, config_file)
    default_home = Path("/var/lib/vault-memory") if os.geteuid() == 0 else home_directory / ".vault-memory"
    unnamed = Settings(
        vault=reader.path("vault"),
        home=(reader.path("home") or default_home).absolute(),
        config_file=config_file,
        hmac_key_file=reader.path("hmac_key_file") or config_file.parent / "hmac.key",
        dsn=reader.text("dsn"),
        query_dsn=reader.text("query_dsn"),
        dagster_dsn=reader.text("dagster_dsn"),
        kind=_kind("kind", reader.text("kind") or "git"),
        schema=_schema("schema", reader.text("schema") or DEFAULT_SCHEMA),
        pg_user=reader.text("pg_user") or "nobody",
        embedding=_embedding(reader),
        scan=reader.table("scan", ScanSettings),
        sync=reader.table("sync", SyncSettings),
        eval=_eval(reader.table("eval", EvalSettings), config_file),
        search=_search(reader),
        agent=_agent(reader),
        journal=reader.table("journal", JournalSettings),
        dagster=reader.table("dagster", DagsterSettings),
    )
    if unnamed.kind == "directory" and "roots" not in reader.config.get("scan", {}):
        unnamed = replace(unnamed, scan=replace(unnamed.scan, roots=(".",)))
    named = _named_vaults(reader, unnamed)
    reader.refuse_unknown()
    if unnamed.vault is None and named:
        first, *others = named
        return _told_apart(first, *others)
    return _told_apart(unnamed, *named)


def _named_vaults(reader: Reader, unnamed: Settings) -> list[Settings]:
    """Return the vaults of ``[vaults.NAME]``: the unnamed one's settings with their own on top."""
    reader.known.add("vaults")
    tables = reader.config.get("vaults", {})
    if not isinstance(tables, dict) or not all(
        isinstance(table, dict) for table in cast("dict[str, Any]", tables).values()
    ):
        raise ConfigError(f"{reader.config_file}: vaults: want a table for each vault, [vaults.NAME]")
    return [
        _named_vault(reader, unnamed, name, table) for name, table in cast("dict[str, dict[str, Any]]", tables).items()
    ]


def _named_vault(reader: Reader, unnamed: Settings, name: str, table: Mapping[str, Any]) -> Settings:
    title = f"vaults.{name}"
    if not _VAULT_NAME.fullmatch(name) or name == UNNAMED:
        raise ConfigError(
            f"{reader.config_file}: [vaults.{name!a}]: want a name of lower-case letters, digits and underscores, "
            f"at most 30, and not {UNNAMED!r}"
        )
    own = Reader({}, table, reader.config_file, prefix=f"{title}.")
    path = own.path("path")
    kind = _kind(f"{title}.kind", own.text("kind") or "git")
    schema = _schema(f"{title}.schema", own.text("schema") or f"{DEFAULT_SCHEMA}_{name}")
    scan = own.table("scan", ScanSettings, unnamed.scan)
    if kind == "directory" and "roots" not in table.get("scan", {}):
        scan = replace(scan, roots=(".",))  # PARA's folders are a vault's; a plain folder is meant whole
    evaluation = _eval(own.table("eval", EvalSettings), reader.config_file)
    own.refuse_unknown()
    if path is None:
        raise ConfigError(f'{reader.config_file}: {title}.path is missing: the folder of the vault, path = "/..."')
    return replace(unnamed, name=name, vault=path, kind=kind, schema=schema, scan=scan, eval=evaluation)


def _told_apart(first: Settings, *others: Settings) -> tuple[Settings, *tuple[Settings, ...]]:
    """Return the vaults, none of which shares a schema or Dagster's names with another.

    Raises:
        ConfigError: Two do.
    """
    seen: dict[str, str] = {}
    for one in (first, *others):
        # Dagster's names end with what distinguishes the schema.
        suffix = one.schema.removeprefix(f"{DEFAULT_SCHEMA}_")
        if suffix in seen:
            raise ConfigError(
                f"the vaults {seen[suffix]} and {one.name} would share the schema {one.schema}: "
                f"set another vaults.{one.name}.schema"
            )
        seen[suffix] = one.name
    return first, *others


def _kind(setting: str, value: str) -> VaultKind:
    if value not in get_args(VaultKind):
        raise ConfigError(f"{setting}: want {' or '.join(get_args(VaultKind))}")
    return cast("VaultKind", value)


def _schema(setting: str, value: str) -> str:
    if not value.isidentifier() or not value.isascii() or not value.islower():
        raise ConfigError(f"{setting}: want lower-case letters, digits and underscores, for example vault_memory_work")
    return value


def _embedding(reader: Reader) -> EmbeddingSettings:
    embedding = reader.table("embedding", EmbeddingSettings)
    values = {item.name: getattr(embedding, item.name) for item in fields(embedding)}
    overrides = {
        "embedder": reader.environment("EMBEDDER"),
        "base_url": reader.environment("EMBEDDING_BASE_URL"),
        "model": reader.environment("EMBEDDING_MODEL"),
        "dimensions": reader.environment("EMBEDDING_DIMENSIONS"),
        "allow_http_loopback": reader.environment("EMBEDDING_ALLOW_HTTP_LOOPBACK"),
        "concurrency": reader.environment("EMBEDDING_CONCURRENCY"),
        "max_batch_texts": reader.environment("EMBEDDING_MAX_BATCH_TEXTS"),
        "timeout_seconds": reader.environment("EMBEDDING_TIMEOUT_SECONDS"),
        "max_attempts": reader.environment("EMBEDDING_MAX_ATTEMPTS"),
        "max_backoff_seconds": reader.environment("EMBEDDING_MAX_BACKOFF_SECONDS"),
    }
    for name, text in overrides.items():
        if text is not None:
            values[name] = coerce(f"embedding.{name}", EmbeddingSettings.__annotations__[name], text)
    values["api_key"] = reader.environ.get("OPENROUTER_API_KEY") or None
    if values["embedder"] not in (None, "openai", "hashing"):
        raise ConfigError("embedder: want openai or hashing")
    if not 1 <= values["dimensions"] <= MAX_DIMENSIONS:
        raise ConfigError(f"embedding dimensions: want 1 to {MAX_DIMENSIONS}; ask a wider model for {MAX_DIMENSIONS}")
    return EmbeddingSettings(**values)


def _eval(given: EvalSettings, config_file: Path) -> EvalSettings:
    if given.min_recall > 1:
        raise ConfigError("eval.min_recall: want a number from 0 to 1")
    questions = given.questions
    return given if questions is None else replace(given, questions=config_file.absolute().parent / questions)


def _search(reader: Reader) -> SearchSettings:
    given = reader.table("search", SearchSettings)
    named = reader.environment("VECTOR_INDEX") or given.vector_index
    if named not in (None, *get_args(IndexChoice)):
        raise ConfigError(f"vector_index: want {', '.join(get_args(IndexChoice))}")
    return replace(given, vector_index=cast("IndexChoice | None", named))


def _agent(reader: Reader) -> AgentSettings:
    given = reader.table("agent", AgentSettings)
    if given.max_chars < MIN_BLOCK_CHARACTERS:
        raise ConfigError(f"agent.max_chars: want at least {MIN_BLOCK_CHARACTERS}")
    if not 1 <= given.recall_hits <= MAX_RECALL_HITS:
        raise ConfigError(f"agent.recall_hits: want a number from 1 to {MAX_RECALL_HITS}")
    return given
