"""Another model: bought beside the old vectors, and changed over in one transaction."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from vault_memory import settings as settings_module
from vault_memory.adapters import migrations
from vault_memory.adapters.git import GitVault
from vault_memory.adapters.store import Store
from vault_memory.ingest.keys import KeyedHash
from vault_memory.ingest.model_change import Rebuilt
from vault_memory.ingest.sync import Synchronizer
from vault_memory_tests.fixtures.installation import walk
from vault_memory_tests.fixtures.rebuild import (
    Contents,
    Interrupted,
    ScreenerInProcess,
    SpottyEmbedder,
    contents,
    differences,
    unsound,
)
from vault_memory_tests.fixtures.vault import VaultRepo

KEY = KeyedHash(bytes(range(32)))
TOKEN = "ghp" + "_" + "Ab3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3bC6"


@dataclass
class Memory:
    """A vault and two schemas: its memory, and one to rebuild it in."""

    vault: VaultRepo
    dsn: str
    folder: Path

    def open(self, embedder: SpottyEmbedder, schema: str = "vault_memory") -> Synchronizer:
        """Open the vault with an embedder; the first one is recorded."""
        values = {"VAULT_MEMORY_VAULT": str(self.vault.path), "VAULT_MEMORY_DSN": self.dsn, "HOME": str(self.folder)}
        vault = GitVault.open(self.vault.path)
        store = Store.connect(self.dsn, schema)
        made = Synchronizer(settings_module.load(values), store, vault, KEY, make_judge=ScreenerInProcess)
        made.provider.embedder = embedder
        if store.sync_state().model is None:
            store.record_identity(
                vault="x", embedder=embedder.name, model=embedder.model, dimensions=embedder.dimensions, base_url=None,
                key_fingerprint=KEY.fingerprint,
            )  # fmt: skip
        return made

    def sync(self, embedder: SpottyEmbedder, schema: str = "vault_memory") -> None:
        """Bring a schema to HEAD."""
        with self.open(embedder, schema) as synchronizer:
            walk(synchronizer)

    def change(self, embedder: SpottyEmbedder) -> Rebuilt:
        """Change over to an embedder."""
        with self.open(embedder) as synchronizer, synchronizer.writer(5, holder="test"):
            return synchronizer.rebuild_vectors()

    def contents(self, schema: str = "vault_memory") -> Contents:
        """Read a schema."""
        with psycopg.connect(self.dsn, autocommit=True) as watcher:
            assert [] == unsound(watcher, schema)
            return contents(watcher, schema)

    def models(self) -> set[str]:
        """Return the models of the stored chunks."""
        return {str(row[9]) for row in self.contents()["chunks"]}

    def assert_rebuilt(self, model: str) -> None:
        """Hold the memory against one built from nothing with a model."""
        self.sync(SpottyEmbedder(model=model), "rebuilt")
        assert [] == differences(self.contents("rebuilt"), self.contents())


@pytest.fixture
def memory(make_vault: Callable[..., VaultRepo], database: str, tmp_path: Path) -> Memory:
    """Six notes, synced with the model ``old``."""
    migrations.migrate(database, "rebuilt")
    files = {
        f"01_Projects/{name}.md": f"# {name}\n\nText {name}.\n\n## More\n\nWords of {name}.\n" for name in "abcdef"
    }
    files["01_Projects/empty.md"] = ""
    memory = Memory(make_vault(files=files), database, tmp_path)
    memory.sync(SpottyEmbedder(model="old"))
    return memory


def test_the_store_ends_as_if_built_with_the_new_model(memory: Memory) -> None:
    """Every vector and mean is the new model's, each text was bought once, and nothing stays staged."""
    new = SpottyEmbedder(model="new")

    assert memory.change(new).changed_over

    assert {1} == set(new.paid.values())
    memory.assert_rebuilt("new")


def test_what_changed_since_the_last_sync_changes_over_too(memory: Memory) -> None:
    """An edit, a rename, a deletion and a secret that no sync has seen yet end right in the same step."""
    vault = memory.vault
    vault.write("01_Projects/a.md", "# a\n\nAnother text.\n")
    vault.rename("01_Projects/b.md", "02_Areas/b.md")
    vault.delete("01_Projects/c.md")
    vault.write("01_Projects/d.md", f"token {TOKEN}\n")
    vault.write("01_Projects/new.md", "# New\n\nA new note.\n")
    vault.commit()

    assert memory.change(SpottyEmbedder(model="new")).changed_over

    memory.assert_rebuilt("new")


def test_readers_see_one_model_at_any_time(memory: Memory) -> None:
    """A query during the change finds all notes, with the vectors of one model."""
    seen: list[tuple[int, int]] = []
    over = threading.Event()

    def read() -> None:
        with psycopg.connect(memory.dsn, autocommit=True) as connection:
            connection.execute("SET search_path = vault_memory, public")
            while not over.is_set():
                row = connection.execute(
                    "SELECT count(DISTINCT note_id), count(DISTINCT model) FROM memory_chunk"
                ).fetchone()
                assert row is not None
                seen.append((row[0], row[1]))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        memory.change(SpottyEmbedder(model="new"))
    finally:
        over.set()
        reader.join()

    assert {(7, 1)} == set(seen)
    assert {"new"} == memory.models()


def test_a_change_that_was_cut_off_goes_on_where_it_was(memory: Memory) -> None:
    """The old vectors answer after the cut, and what was paid for is not paid for again."""

    class Dying(SpottyEmbedder):
        def embed(self, texts, **options):
            super().embed(texts[: len(texts) // 2], **options)
            raise Interrupted

    before = memory.contents()
    first, second = Dying(model="new"), SpottyEmbedder(model="new")
    with pytest.raises(Interrupted):
        memory.change(first)

    assert {"old"} == memory.models()
    assert before["notes"] == memory.contents()["notes"]
    memory.sync(SpottyEmbedder(model="old"))  # a sync in between leaves what is staged for the change alone
    assert memory.change(second).changed_over
    assert first.paid
    assert first.paid.keys().isdisjoint(second.paid)
    memory.assert_rebuilt("new")


def test_nothing_changes_over_while_a_text_may_still_succeed(memory: Memory) -> None:
    """One text of one note fails: the old index answers whole, the note is named, and a later try finishes."""
    new = SpottyEmbedder(unlucky={"Words of c": True}, model="new")

    rebuilt = memory.change(new)

    assert (False, ["01_Projects/c.md"]) == (rebuilt.changed_over, sorted(rebuilt.failures))
    assert {"old"} == memory.models()
    new.unlucky.clear()
    assert memory.change(new).changed_over
    assert {1} == set(new.paid.values())
    memory.assert_rebuilt("new")


def test_a_text_refused_for_good_holds_nothing_up(memory: Memory) -> None:
    """A note that the new provider refuses fails by name; the others change over."""
    rebuilt = memory.change(SpottyEmbedder(unlucky={"Words of c": False}, model="new"))

    assert (True, ["01_Projects/c.md"]) == (rebuilt.changed_over, sorted(rebuilt.failures))
    assert {"new"} == memory.models()
    memory.sync(SpottyEmbedder(model="new"))
    memory.assert_rebuilt("new")


def test_the_same_model_can_be_asked_again(memory: Memory) -> None:
    """``--re-embed`` buys every text once more, though its vector is known."""
    same = SpottyEmbedder(model="old")

    assert memory.change(same).changed_over

    assert 12 == sum(same.paid.values())
    memory.assert_rebuilt("old")
