"""Asking vaults: one after the other, each over its own connection, and what each has to say.

Belongs here: a question's way to the candidates of one vault, and what is said of a vault that cannot answer or is
behind HEAD. Does not: which candidates become hits (``search``), reading notes (``reading``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from vault_memory.errors import ConfigError, EmbeddingError, StoreError
from vault_memory.query import verify
from vault_memory.query.candidates import Filters, Mode, find
from vault_memory.query.database import Sessions, fetch
from vault_memory.query.embed import HASHING_NOTICE, RecordedEmbedder, embed_query
from vault_memory.query.result import VaultState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from psycopg import Connection
    from psycopg.rows import DictRow

    from vault_memory.query.embed import Kept
    from vault_memory.settings import Settings

_T = TypeVar("_T")


def ask_each(
    vaults: Sequence[Settings], sessions: Sessions, question: Callable[[Settings, Connection[DictRow]], _T]
) -> tuple[list[_T], list[str]]:
    """Ask one vault after the other; return the answers, and a line for each vault that has none.

    Raises:
        StoreError: No vault has an answer; the first one's reason.
    """
    answers: list[_T] = []
    problems: list[str] = []
    first: StoreError | None = None
    for one in vaults:
        try:
            answers.append(sessions.ask(one, partial(question, one)))
        except StoreError as error:
            first = first or error
            problems.append(f"vault {one.name} did not answer: {error}")
    if first is not None and not answers:
        raise first
    return answers, problems


def labelled(vault: str, lines: Iterable[str], *, several: bool) -> Iterator[str]:
    """Put a vault's name in front of what is said of it, where there are several."""
    return (f"{vault}: {line}" if several else line for line in lines)


def state_of(name: str, commit: str | None, view: verify.VaultView) -> VaultState:
    """Say where a vault stands."""
    return VaultState(name, commit, view.head, view.head is not None and view.head != commit)


@dataclass(frozen=True, slots=True)
class Found:
    """One vault's candidates.

    Attributes:
        embedder: What made its vectors; cosines of two vaults are comparable only if it is the same.
        semantic: Whether those know meaning.
        mode: The legs that answered.
        chunks: How many the vault has, all or nearly.
    """

    settings: Settings
    state: VaultState
    view: verify.VaultView
    rows: Sequence[DictRow]
    embedder: RecordedEmbedder
    semantic: bool
    mode: Mode
    chunks: float
    notices: tuple[str, ...]


@dataclass(slots=True)
class Look:
    """A question on its way through the vaults; it is embedded once for each embedder that is recorded.

    Attributes:
        kept: What a process that asks often keeps of the embedder.
        notices: About the question's embedding, each once.
    """

    question: str
    mode: Mode
    filters: Filters
    embedder: Callable[[str], Sequence[float]] | None
    semantic: bool
    kept: Kept | None = None
    notices: list[str] = field(default_factory=list[str])
    _vectors: dict[RecordedEmbedder, Sequence[float] | None] = field(
        default_factory=dict["RecordedEmbedder", "Sequence[float] | None"]
    )

    def at(self, settings: Settings, session: Connection[DictRow]) -> Found:
        """Ask one vault."""
        state = fetch(session, "state")
        recorded = self._recorded(state)
        if recorded not in self._vectors:
            self._vectors[recorded] = self._vector(recorded, settings)
        vector = self._vectors[recorded]
        wants_vector = self.mode != "keyword" and (self.embedder is not None or recorded.name is not None)
        mode: Mode = "keyword" if wants_vector and vector is None else self.mode
        index = state[0]["vector_index"] if state else "exact"
        rows = find(session, self.question, vector, mode=mode, filters=self.filters, index=index)
        commit: str | None = rows[0]["indexed_commit"] if rows else None
        chunks: float = rows[0]["chunks"] if rows else 0.0
        rows = [row for row in rows if row["chunk_id"] is not None]
        view = verify.look(settings, {row["note_id"] for row in rows})
        return Found(
            settings=settings,
            state=state_of(settings.name, commit, view),
            view=view,
            rows=rows,
            embedder=recorded,
            semantic=self.semantic if self.embedder else recorded.is_semantic,
            mode=mode,
            chunks=chunks,
            notices=tuple(vault_notices(commit, view)),
        )

    def _recorded(self, state: Sequence[DictRow]) -> RecordedEmbedder:
        if self.mode == "keyword" or self.embedder is not None or not state:
            return RecordedEmbedder(None, None, None)
        return RecordedEmbedder(state[0]["embedder"], state[0]["model"], state[0]["dimensions"])

    def _vector(self, recorded: RecordedEmbedder, settings: Settings) -> Sequence[float] | None:
        """Embed the question; where that fails, say so and let the keyword leg answer."""
        if self.mode == "keyword":
            return None
        if self.embedder is not None:
            return self.embedder(self.question)
        if recorded.name is None:
            return None  # an empty store: there is nothing to say about vectors
        try:
            vector = embed_query(self.question, recorded, settings, kept=self.kept)
        except (EmbeddingError, ConfigError) as error:
            self.notices.append(f"answered by keywords alone: {error}")
            return None
        if recorded.name == "hashing" and settings.embedding.embedder != "hashing":
            self.notices.append(HASHING_NOTICE)
        return vector


def vault_notices(commit: str | None, view: verify.VaultView) -> Iterator[str]:
    """Say which commit a result belongs to, where that is not HEAD or HEAD is not known."""
    if view.problem is not None:
        yield f"the vault could not be looked at: {view.problem}"
    shown = commit[:12] if commit else None
    if view.head is not None and view.head != commit:
        yield f"the index is behind HEAD: it shows {shown or 'no commit'}, HEAD is {view.head[:12]}"
    elif view.head is None and shown and not view.is_folder:
        yield f"as of commit {shown}"
