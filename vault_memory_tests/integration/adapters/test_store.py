"""The store's writer lock, seen from databases that share a server."""

from collections.abc import Callable
from contextlib import closing

from vault_memory.adapters.store import Store
from vault_memory_tests.fixtures.postgres import SCHEMA


def test_the_writer_of_another_database_is_never_named(
    make_database: Callable[..., str], template_database: str
) -> None:
    """The server lists the locks of all its databases; only the own ones say who is writing here."""
    here, elsewhere = make_database(template_database), make_database(template_database)
    with (
        closing(Store.connect(here, SCHEMA)) as waiting,
        closing(Store.connect(here, SCHEMA)) as neighbour,
        closing(Store.connect(elsewhere, SCHEMA)) as stranger,
        stranger.writer(0, holder="a stranger"),
    ):
        alone = waiting.writer_name()
        with neighbour.writer(0, holder="the neighbour"):
            busy = waiting.writer_name()

    assert alone is None
    assert "vault-memory the neighbour (database process" in str(busy)
