"""One question over several vaults: each asked by its own role, all hits in one order, labelled."""

import json
from dataclasses import dataclass, replace

import pytest

from vault_memory import settings as settings_module
from vault_memory.errors import QueryError, StoreError
from vault_memory.ingest.sync import Synchronizer
from vault_memory.query import reading
from vault_memory.query.context import render
from vault_memory.query.database import Sessions
from vault_memory.query.mcp import Memory
from vault_memory.query.search import search
from vault_memory_tests.fixtures.installation import walk

SHARED = "# Shared\n\nThe same words about the harbour stand in both vaults.\n"


@dataclass
class World:
    """Two vaults in one database, and a third that was never synced."""

    home: object
    work: object
    vaults: tuple[settings_module.Settings, ...]
    environment: dict[str, str]


@pytest.fixture
def world(make_installation, make_vault, tmp_path):
    """Return two synced vaults, ``home`` and ``work``, and an empty one."""
    home = make_vault(name="home", files={"01_Projects/boat.md": "# Boat\n\nThe keel is oak and the mast is ash.\n"})
    work = make_vault(
        name="work", files={"01_Projects/release.md": "# Release\n\nThe release train leaves on the second Tuesday.\n"}
    )
    for vault in (home, work):
        vault.write("01_Projects/shared.md", SHARED)
        vault.commit()
    config = tmp_path / "config.toml"
    config.write_text(f'[vaults.home]\npath = "{home.path}"\n[vaults.work]\npath = "{work.path}"\n', encoding="utf-8")
    made = make_installation(home, VAULT_MEMORY_VAULT="", VAULT_MEMORY_CONFIG=str(config))
    vaults = settings_module.load_all(made.environment)
    for settings in vaults:
        with Synchronizer.open(settings) as synchronizer:
            walk(synchronizer)
    return World(home, work, vaults, made.environment)


def places(result):
    """Return vault and source of every hit."""
    return [(hit.vault, hit.source) for hit in result.items]


def test_the_best_note_comes_first_whichever_vault_it_is_in(world):
    """A question that a note of one vault answers finds that note first, and says which vault it is from."""
    for question, place in (
        ("which wood is the keel made of: oak", ("home", "01_Projects/boat.md")),
        ("when does the release train leave", ("work", "01_Projects/release.md")),
    ):
        result = search(question, vaults=world.vaults)
        assert place == places(result)[0]
        assert ["home", "work"] == [one.name for one in result.vaults]
        assert (None, None, False) == (result.commit, result.head, result.stale)


def test_two_vaults_answer_as_one_vault_with_all_their_notes_would(world, make_installation, make_vault, make_database):
    """The order over both is that of one store that holds the notes of both, for every question tried."""
    both = make_vault(name="both")
    for prefix, vault in (("home", world.home), ("work", world.work)):
        for path in vault.path.rglob("*.md"):
            if path.name != "shared.md":
                both.write(f"01_Projects/{prefix}-{path.name}", path.read_text(encoding="utf-8"))
    both.commit()
    one = make_installation(both, VAULT_MEMORY_DSN=make_database())
    one.steps()
    for question in ("keel oak", "release Tuesday", "the mast of the train", "oak Tuesday release"):
        merged = [
            f"{vault}-{source.rpartition('/')[2]}" for vault, source in places(search(question, vaults=world.vaults))
        ]
        alone = [hit.source.rpartition("/")[2] for hit in search(question, settings=one.settings).items]
        assert alone[0] == next(name for name in merged if "shared" not in name)


def test_the_same_note_in_two_vaults_is_one_hit_that_names_the_other(world):
    """Equal chunks have equal ids in every vault; one is shown, the other is its duplicate."""
    result = search("words about the harbour", vaults=world.vaults)
    shared = [hit for hit in result.items if hit.source == "01_Projects/shared.md"]
    assert 1 == len(shared)
    other = {"home": "work", "work": "home"}[shared[0].vault]
    assert (f"{other}:01_Projects/shared.md",) == shared[0].duplicates


def test_only_several_vaults_are_labelled(world):
    """The block of one vault is what it always was; of two, every item names its vault, within the same bound."""
    both = search("harbour keel release", vaults=world.vaults)
    for max_chars in (512, 700, 2500):
        lines = [json.loads(line) for line in render(both, max_chars).splitlines() if line.startswith("{")]
        assert len(render(both, max_chars)) <= max_chars
        assert {"home", "work"} >= {line["vault"] for line in lines}
    one = search("harbour keel release", settings=world.vaults[0])
    assert not any("vault" in json.loads(line) for line in render(one).splitlines() if line.startswith("{"))
    assert [one.vaults[0].name] == ["home"]
    assert one.commit == one.head is not None


def test_a_vault_that_cannot_answer_does_not_silence_the_others(world):
    """One without memory is a line; only if none can answer is it an error."""
    empty = replace(world.vaults[0], name="empty", schema="vault_memory_empty")
    result = search("release train", vaults=(*world.vaults, empty))
    assert ("work", "01_Projects/release.md") == places(result)[0]
    assert ["home", "work"] == [one.name for one in result.vaults]
    assert any(line.startswith("vault empty did not answer: ") for line in result.notices)
    with pytest.raises(StoreError):
        search("release train", vaults=(empty,))
    with pytest.raises(QueryError, match="there is no such note in the memory; vault empty did not answer"):
        reading.get("nowhere.md", vaults=(*world.vaults, empty))


def test_what_is_behind_says_which_vault_it_is(world):
    """A commit that is not in memory yet is a notice of its vault, and a vanished note is dropped."""
    world.work.delete("01_Projects/release.md")
    world.work.commit()
    result = search("release train", vaults=world.vaults)
    assert "01_Projects/release.md" not in [hit.source for hit in result.items]
    assert result.stale
    assert [True] == [one.stale for one in result.vaults if one.name == "work"]
    assert [line for line in result.notices if line.startswith("work: the index is behind HEAD")]
    assert not [line for line in result.notices if line.startswith("home: the index")]


def test_a_note_is_read_from_the_vault_that_has_it(world):
    """``get``, ``related`` and ``expand`` look in all vaults; a path that two of them have has to be told apart."""
    assert places(reading.get("release.md", vaults=world.vaults)) == [("work", "01_Projects/release.md")]
    assert {"home"} == {hit.vault for hit in reading.related("boat.md", vaults=world.vaults).items}
    chunk = search("keel", vaults=world.vaults).items[0].chunk_id
    assert places(reading.expand(chunk, vaults=world.vaults)) == [("home", "01_Projects/boat.md")]
    with pytest.raises(QueryError, match=r"^more than one vault has this: say which with --vault, one of home, work$"):
        reading.get("shared.md", vaults=world.vaults)
    assert places(reading.get("shared.md", settings=world.vaults[1])) == [("work", "01_Projects/shared.md")]
    with pytest.raises(QueryError, match=r"^there is no such note in the memory$"):
        reading.get("nowhere.md", vaults=world.vaults)


def test_each_vault_has_one_kept_connection(world):
    """A long-lived caller opens one connection a vault, asks by name, and is told of a name that there is not."""
    memory = Memory(world.vaults)
    try:
        for _ in range(2):
            assert memory.ask(lambda sessions: search("keel", vaults=memory.named("home"), sessions=sessions)).items
            assert memory.ask(lambda sessions: search("release", vaults=memory.named(None), sessions=sessions)).items
        assert {"vault_memory_home", "vault_memory_work"} == set(memory.ask(lambda sessions: sessions.schemas))
        with pytest.raises(QueryError, match=r"^no vault has this name; known: home, work$"):
            memory.named("x")
    finally:
        memory.close()


def test_borrowed_connections_stay_open(world):
    """Sessions close what they opened and nothing else."""
    with Sessions() as owner:
        connection = owner.ask(world.vaults[0], lambda session: session)
        with Sessions({world.vaults[0].schema: connection}) as borrower:
            assert search("keel", settings=world.vaults[0], sessions=borrower).items
        assert not connection.closed
    assert connection.closed
