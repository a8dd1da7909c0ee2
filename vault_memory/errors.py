"""Every error this package raises on purpose.

::

    VaultMemoryError                 exit status 3, one line, no note text
    ├── ConfigError                  a setting is missing, malformed or contradicts what is recorded
    ├── MissingExtraError            a command needs an optional dependency that is not installed
    ├── VaultError                   the vault is not a readable git repository
    │   ├── CommitGoneError          a commit that was named is not in the repository any more
    │   └── IgnoreFileError          .vaultmemoryignore is there and cannot be read
    ├── ScanError                    the scanner itself failed: the note is not indexed
    │   └── EgressBlocked            a text about to leave the machine matched a rule: the note is not indexed
    ├── EmbeddingError               texts could not be embedded
    │   ├── EmbeddingUnavailable     (retryable) the provider does not answer, or asks to wait
    │   ├── EmbeddingRejected        the provider refuses this input and will refuse it again
    │   ├── EmbeddingDenied          (also a ConfigError) the provider refuses the key, the account or the model
    │   └── EmbeddingAnswerError     (retryable) the answer is short, mis-sized, not finite or not JSON
    ├── ServerError                  the embedded PostgreSQL cannot be started or stopped
    ├── StoreError                   the database refused a statement (sqlstate and constraint only)
    │   ├── StoreUnavailable         (retryable) no connection, or no room to write
    │   ├── StoreConflict            (retryable) another transaction was in the way
    │   ├── MigrationError           the schema is newer, changed or unknown
    │   └── WriterBusyError          (retryable) another writer holds this vault
    └── QueryError                   the question cannot be answered (exit status 2: usage)

Messages carry paths, commits, counts and settings' names. They never carry note text, query text or a
secret: an exception ends up in logs, in the Dagster UI and in bug reports.
"""


class VaultMemoryError(Exception):
    """The root of this package's errors; its message is one line that says what to do."""

    exit_status = 3


class Retryable(VaultMemoryError):
    """Marks an error that may pass by itself: the same call can succeed later."""


class ConfigError(VaultMemoryError):
    """A setting is missing, malformed or contradicts what the database recorded."""


class MissingExtraError(VaultMemoryError):
    """A command needs an optional dependency that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an extra that is not installed: pip install 'vault-memory[{extra}]'")


class VaultError(VaultMemoryError):
    """The vault is not a git repository that can be read."""


class CommitGoneError(VaultError):
    """A commit that was named is not in the repository any more (amend, force-push, gc, shallow clone)."""


class BlobError(VaultError, Retryable):
    """The content of one file cannot be read: it is missing (a partial clone), damaged, or no blob.

    The message never names the blob: it may be a quarantined note's, and its id lets anyone test guesses.
    """


class IgnoreFileError(VaultError):
    """The vault's ``.vaultmemoryignore`` is there and cannot be read: a link, a folder, too large."""


class ScanError(VaultMemoryError):
    """The scanner itself failed; whatever it was looking at is not indexed."""


class EgressBlocked(ScanError):
    """A text about to leave the machine matched a rule; nothing of its note was sent.

    Attributes:
        rules: Identifiers of the rules.
        line: First line of the chunk whose text it was.
    """

    def __init__(self, message: str, *, rules: tuple[str, ...] = (), line: int = 1) -> None:
        super().__init__(message)
        self.rules = rules
        self.line = line


class EmbeddingError(VaultMemoryError):
    """Texts could not be embedded."""


class EmbeddingUnavailable(EmbeddingError, Retryable):
    """The provider does not answer, or asks to wait.

    Attributes:
        may_be_the_texts: It answered that it failed itself, as some do at a text that they cannot digest.
    """

    may_be_the_texts: bool = False


class EmbeddingRejected(EmbeddingError):
    """The provider refuses this input, and will refuse it again."""


class EmbeddingDenied(EmbeddingError, ConfigError):
    """The provider refuses the key, the account or the model; no text is sent before a setting changes."""


class EmbeddingAnswerError(EmbeddingError, Retryable):
    """The provider's answer is short, mis-sized, not finite or not JSON; nothing of it was used."""


class ServerError(VaultMemoryError):
    """The embedded PostgreSQL server cannot be started or stopped."""


class StoreError(VaultMemoryError):
    """The database refused a statement; the message holds sqlstate and constraint, never the row."""


class StoreUnavailable(StoreError, Retryable):
    """There is no connection to the database, or it cannot write for now: a full disk, a read-only one."""


class StoreConflict(StoreError, Retryable):
    """Another transaction was in the way: a deadlock, a serialization failure, a lock that did not come."""


class MigrationError(StoreError):
    """The schema in the database is newer than this program, changed or unknown."""


class WriterBusyError(StoreError, Retryable):
    """Another writer holds this vault."""


class QueryError(VaultMemoryError):
    """The question, or an argument beside it, is not one that can be answered: a mistake in usage."""

    exit_status = 2
