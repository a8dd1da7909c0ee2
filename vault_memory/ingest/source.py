"""Where notes come from: what a repository and a plain folder have in common.

Belongs here: the port that planning and the steps of a run read through, and the choice by the settings' kind.
Does not: either kind (``adapters.git``, ``adapters.directory``).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal, Protocol

from vault_memory.adapters.directory import DirectorySource
from vault_memory.adapters.git import GitVault
from vault_memory.errors import ConfigError
from vault_memory.ingest.keys import load_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from datetime import datetime
    from pathlib import Path

    from vault_memory.errors import BlobError
    from vault_memory.notes.model import TreeEntry
    from vault_memory.settings import Settings


class Source(Protocol):
    """Files under names, in states that have names too ("commits"), and their contents by ids.

    What is asked of a state is as it was then; a state that is not known (any more) is a ``CommitGoneError``. What
    cannot be read is a ``VaultError``, never an empty answer: that would forget notes.
    """

    @property
    def kind(self) -> Literal["git", "directory"]:
        """Which kind it is."""
        ...

    @property
    def head_name(self) -> str:
        """What a person calls the newest state: ``HEAD``, ``the folder``."""
        ...

    @property
    def empty_head(self) -> str:
        """What is so where ``head`` is None, as the begin of a sentence."""
        ...

    @property
    def path(self) -> Path:
        """The vault's folder, resolved."""
        ...

    @property
    def top(self) -> Path:
        """The folder around it that nothing of ours may be written to."""
        ...

    def head(self) -> str | None:
        """Return the newest state; None if there is none."""
        ...

    def exists(self, commit: str) -> bool:
        """Return whether a state is known."""
        ...

    def author_time(self, commit: str) -> datetime | None:
        """Return when a state was written, in UTC; None where nobody wrote that down."""
        ...

    def count_between(self, old: str, new: str) -> int | None:
        """Count the steps from one state to another; None if that cannot be told."""
        ...

    def tree(self, commit: str) -> tuple[TreeEntry, ...]:
        """Return every file of a state that is Markdown by its name."""
        ...

    def tracked_blobs(self, commit: str, ids: Collection[str]) -> dict[str, str]:
        """Return the content ids of a few notes in a state; what is no regular file there is left out."""
        ...

    def ignore_file(self, commit: str) -> bytes | None:
        """Return the bytes of ``.vaultmemoryignore``; None if there is none."""
        ...

    def renames(self, old: str, new: str) -> dict[bytes, bytes]:
        """Return hints on which files moved between two states: new name to old name."""
        ...

    def read(self, blob_ids: Iterable[str], max_bytes: int) -> Iterator[tuple[str, bytes | BlobError | None]]:
        """Yield contents in the order asked for: None if too large, an error if one cannot be read."""
        ...


def open_source(settings: Settings) -> Source:
    """Open the vault of the settings, as the kind that they say it is.

    Raises:
        ConfigError: No vault is set.
        VaultError: It is not there, not of this kind, or cannot be read.
    """
    path = settings.require_vault()
    if settings.kind == "git":
        return GitVault.open(path)
    return DirectorySource.open(
        path,
        max_bytes=settings.scan.max_note_bytes,
        secret=partial(_secret, settings),
        cache_file=cache_file(settings),
    )


def cache_file(settings: Settings) -> Path:
    """Return where it is kept what the files of a folder held."""
    return settings.home / "folders" / f"{settings.schema}.cache"


def _secret(settings: Settings) -> bytes | None:
    """Return the key of a folder's states; None before the installation has a key."""
    try:
        return load_key(settings.hmac_key_file, create=False).tag(f"folder {settings.schema}").encode()
    except ConfigError:  # whoever needs the key says so
        return None
