"""What ops and sensors are handed: a vault's synchronizer for the length of a run, and what ops hand each other.

Belongs here: opening and closing, and holding the writer lock. Does not: what is done with the synchronizer, nor any
setting: those come from ``vault_memory.settings``, so that no run configuration can hold a secret.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import dagster as dg

from vault_memory import settings as settings_module
from vault_memory.settings import Settings

if TYPE_CHECKING:
    from vault_memory.ingest.batch import NoteOutcome
    from vault_memory.ingest.sync import Synchronizer
    from vault_memory.ingest.vector_index import SelfCheck, VectorIndexReport

IndexStep = Callable[[Settings], "VectorIndexReport | None"]
IndexLook = Callable[[Settings], "SelfCheck"]
Opener = Callable[[Settings], "AbstractContextManager[Synchronizer]"]

MAX_RUN_WAIT_SECONDS: Final = 30.0


class VaultSession:
    """One vault's synchronizer, opened when it is first used, and the writer lock while it is held.

    The ops of a run share one session: the lock is taken by the first op, let go of by the last, and let go of
    whatever happens when the session is closed. It belongs to the database connection, so it dies with the process.

    Attributes:
        outcomes: What became of the notes, in the order in which they were written; for who ran the run.
        problem: Why the run failed, one line; None if it did not, or not by an op of ours.
    """

    def __init__(
        self,
        load_settings: Callable[[], Settings],
        opener: Opener,
        settle_index: "IndexStep | None" = None,
        look_at_index: "IndexLook | None" = None,
    ) -> None:
        self._load_settings = load_settings
        self._settle_index = settle_index
        self._look_at_index = look_at_index
        self._opener = opener
        self._settings: Settings | None = None
        self._opened: ExitStack | None = None
        self._synchronizer: Synchronizer | None = None
        self._lock: ExitStack | None = None
        self.outcomes: list[NoteOutcome] = []
        self.problem: str | None = None

    def __enter__(self) -> Self:
        """Return the session; nothing is opened yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the session."""
        self.close()

    def settle_index(self) -> str:
        """Let the vector index follow the size of the store; return what searches use."""
        from vault_memory.ingest import vector_index  # noqa: PLC0415 - psycopg, only where it is used

        found = (self._settle_index or vector_index.settle)(self.settings)
        return found.mode if found is not None else "being built by another process"

    def look_at_index(self) -> "SelfCheck":
        """Measure the vector index that searches use, quickly."""
        from vault_memory.ingest import vector_index  # noqa: PLC0415 - psycopg, only where it is used

        return (self._look_at_index or vector_index.self_check)(self.settings)

    @property
    def settings(self) -> Settings:
        """The settings, read once a session."""
        if self._settings is None:
            self._settings = self._load_settings()
        return self._settings

    @property
    def synchronizer(self) -> "Synchronizer":
        """The vault's planner and writer."""
        if self._synchronizer is None:
            with ExitStack() as stack:
                synchronizer = stack.enter_context(self._opener(self.settings))
                self._opened = stack.pop_all()
            self._synchronizer = synchronizer
        return self._synchronizer

    @property
    def is_writer(self) -> bool:
        """Whether this session holds the writer lock."""
        return self._lock is not None

    def hold_writer(self, wait_seconds: float, *, holder: str) -> None:
        """Take the writer lock and keep it until ``release_writer``; nothing happens if it is held already.

        Raises:
            WriterBusyError: Someone else still holds it after ``wait_seconds``; the message says who.
        """
        if self._lock is None:
            with ExitStack() as stack:
                stack.enter_context(self.synchronizer.writer(wait_seconds, holder=holder))
                self._lock = stack.pop_all()

    def release_writer(self) -> None:
        """Let go of the writer lock, if it is held."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    def close(self) -> None:
        """Let go of the lock and of the connection; the next use opens a new one."""
        opened, self._opened, self._synchronizer = self._opened, None, None
        with ExitStack() as stack:
            if opened is not None:
                stack.callback(opened.close)
            stack.callback(self.release_writer)


def open_synchronizer(settings: Settings) -> "Synchronizer":
    """Open the vault that the settings name."""
    from vault_memory.ingest.sync import Synchronizer  # noqa: PLC0415 - the webserver never needs it

    return Synchronizer.open(settings)


class VaultMemoryResource(dg.ConfigurableResource[VaultSession]):
    """The vault, its database and its embedder, as the environment and the configuration file describe them.

    All of its configuration is the vault's name: run configuration is stored and shown, and so must not hold a secret.

    Attributes:
        vault_name: Of the vault; None: the only or first one.
    """

    vault_name: str | None = None

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Generator[VaultSession]:  # noqa: ARG002 - Dagster's signature
        """Hand out a session that is closed when the run or the sensor's tick ends."""
        with VaultSession(partial(settings_module.load, name=self.vault_name), open_synchronizer) as session:
            yield session


def session_resource(make_session: Callable[[], VaultSession]) -> dg.ResourceDefinition:
    """Return a resource that hands out sessions of someone else's making, in place of ``VaultMemoryResource``."""

    @dg.resource(description="A vault opened by the caller.")
    def caller_vault(_: dg.InitResourceContext) -> Generator[VaultSession]:
        with make_session() as session:
            yield session

    return caller_vault


class HandOver(dg.IOManager):
    """Keeps what one op hands to the next in memory, for one run.

    Dagster's default writes it to a file, and its in-memory one raises on what it does not have. A run that is
    re-executed from the failed op on has nothing here: it is handed None, and derives its inputs anew, because the
    old ones describe an old commit.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], object] = {}

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """Keep an op's output."""
        self._held[context.step_key, context.name] = obj

    def load_input(self, context: dg.InputContext) -> Any:
        """Return what the op before handed over in this run, or None."""
        upstream = context.upstream_output
        return None if upstream is None else self._held.get((upstream.step_key, upstream.name))


@dg.io_manager(description="In memory, for one run.")
def hand_over(_: dg.InitResourceContext) -> HandOver:
    """Make an empty ``HandOver`` for a run."""
    return HandOver()
