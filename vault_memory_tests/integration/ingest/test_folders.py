"""A plain folder comes into memory and stays in step with it, with the promises of a repository."""

import os
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from vault_memory.errors import ConfigError, VaultError
from vault_memory.ingest.planning import MassDeletionError
from vault_memory.ingest.source import cache_file, open_source
from vault_memory.ingest.sync import Synchronizer
from vault_memory.query.search import search
from vault_memory_tests.fixtures.embedding_server import EmbeddingServer
from vault_memory_tests.fixtures.folder import FolderInstallation
from vault_memory_tests.fixtures.installation import Installation
from vault_memory_tests.fixtures.online import paid
from vault_memory_tests.fixtures.sessions import SECRET
from vault_memory_tests.fixtures.vault import VaultRepo

MakeFolder = Callable[..., FolderInstallation]


@pytest.fixture
def made(make_folder: MakeFolder, installation: Installation) -> FolderInstallation:
    """Return a folder with an empty memory."""
    return make_folder(installation)


def actions(made: FolderInstallation) -> dict[str, str | None]:
    """Bring the store in step and say what became of each note."""
    return {name: outcome.action for name, outcome in made.steps().items()}


def sources(made: FolderInstallation, question: str) -> list[tuple[str, bool]]:
    """Ask, and return the notes with their mark of staleness."""
    return [(hit.source, hit.stale) for hit in search(question, settings=made.settings, k=5).items]


def test_a_folder_is_searched_like_a_vault(made: FolderInstallation) -> None:
    """Notes of all folders come in, edits replace, deletions and secrets take out."""
    made.write("gardens.md", "# Gardens\n\nRoses want pruning in March.\n")
    made.write("deep/er/bees.md", "# Bees\n\nHives are opened in April.\n")
    made.write("keys.md", f"# Keys\n\n{SECRET}\n")
    assert {"gardens.md": "added", "deep/er/bees.md": "added", "keys.md": "quarantined"} == actions(made)
    assert ("gardens.md", False) in sources(made, "When are roses pruned?")

    made.write("gardens.md", "# Gardens\n\nTulips are planted in October.\n")
    (made.folder / "deep/er/bees.md").unlink()
    assert {"gardens.md": "changed", "deep/er/bees.md": "deleted"} == actions(made)
    assert {} == actions(made)
    assert [("gardens.md", False)] == sources(made, "When are tulips planted?")


def test_hits_are_held_against_the_files_before_the_next_sync(made: FolderInstallation) -> None:
    """What changed is marked, what is gone does not answer, and no folder is listed for it."""
    made.write("a.md", "# A\n\nRoses want pruning in March.\n")
    made.write("b.md", "# B\n\nRoses are cut back in March.\n")
    made.steps()
    made.write("a.md", "# A\n\nRoses need nothing.\n")
    (made.folder / "b.md").unlink()
    result = search("When are roses pruned?", settings=made.settings)
    assert [("a.md", True)] == [(hit.source, hit.stale) for hit in result.items]
    assert () == result.notices


def test_a_folder_out_of_reach_is_said_to_be_and_still_answers(made: FolderInstallation) -> None:
    """The query says that it could not look; the sync refuses, and nothing is deleted."""
    made.write("a.md", "# A\n\nRoses want pruning in March.\n")
    made.steps()
    made.folder.rename(made.folder.with_name("away"))
    result = search("When are roses pruned?", settings=made.settings)
    assert ["a.md"] == [hit.source for hit in result.items]
    assert "does not exist" in " ".join(result.notices)
    with pytest.raises(VaultError, match="does not exist"):
        made.steps()


def test_an_empty_folder_deletes_nothing_unasked(made: FolderInstallation) -> None:
    """A drive that is not mounted leaves an empty folder behind, whatever the number of notes."""
    made.write("a.md", "# A\n\nRoses.\n")
    made.steps()
    (made.folder / "a.md").unlink()
    with pytest.raises(MassDeletionError, match="is its drive there"):
        made.steps(may_delete_most=False)
    assert {"a.md": "deleted"} == actions(made)


def test_a_file_that_is_unreadable_fails_and_keeps_its_rows(
    made: FolderInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system refuses one file: its old version answers, the note is named, the others go on."""
    from vault_memory.adapters import beneath, directory  # noqa: PLC0415 - for this test alone

    made.write("a.md", "# A\n\nRoses.\n")
    made.steps()
    real = beneath.read_file

    def refuse(root: int, raw: bytes, max_bytes: int) -> object:
        if raw == b"a.md":
            raise beneath.Unreadable("PermissionError")
        return real(root, raw, max_bytes)

    made.write("b.md", "# B\n\nTulips.\n")
    made.write("a.md", "# A\n\nLilies.\n")
    with monkeypatch.context() as patched:
        patched.setattr(directory, "read_file", refuse)
        assert {"a.md": "failed", "b.md": "added"} == actions(made)
    assert [("a.md", True)] == [one for one in sources(made, "Roses") if one[0] == "a.md"]
    assert {"a.md": "changed"} == actions(made)


def test_the_kind_of_a_vault_is_as_the_settings_say(made: FolderInstallation) -> None:
    """A folder that is called a repository is an error that says what to do instead."""
    with pytest.raises(VaultError, match="vault-memory index"):
        open_source(replace(made.settings, kind="git"))


def test_a_memory_of_another_folder_is_not_taken_over(made: FolderInstallation) -> None:
    """Only where its content is the very same, as after a move."""
    made.write("a.md", "# A\n\nRoses.\n")
    made.steps()
    moved = made.folder.rename(made.folder.with_name("moved"))
    at_new_place = replace(made, folder=moved, settings=replace(made.settings, vault=moved))
    assert {} == actions(at_new_place)
    other = moved.with_name("other")
    other.mkdir()
    (other / "x.md").write_text("# X\n")
    with pytest.raises(ConfigError, match="belongs to"):
        Synchronizer.open(replace(made.settings, vault=other))


def test_unchanged_files_are_not_read_again(made: FolderInstallation, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second look costs a listing, by another process too: what files held is kept in home, and says nothing."""
    from vault_memory.adapters import directory  # noqa: PLC0415 - for this test alone

    for number in range(20):
        path = made.write(f"n{number}.md", f"# N{number}\n\nText {number}.\n")
    made.steps()
    real = time.time_ns
    monkeypatch.setattr(directory.time, "time_ns", lambda: real() + 10_000_000_000)
    made.steps()
    reads: list[bytes] = []
    read_file = directory.read_file
    monkeypatch.setattr(
        directory, "read_file", lambda root, raw, most: (reads.append(raw), read_file(root, raw, most))[1]
    )
    with Synchronizer.open(made.settings) as synchronizer:
        assert synchronizer.is_current()
    assert [] == reads
    assert path.stem.encode() not in cache_file(made.settings).read_bytes()


def test_a_note_moved_between_kinds_costs_nothing(
    make_folder: MakeFolder,
    make_online: Callable[..., Installation],
    embedding_server: EmbeddingServer,
    make_vault: Callable[..., VaultRepo],
) -> None:
    """Contents are called alike: a repository that becomes a plain folder keeps every vector."""
    vault = make_vault(files={"01_Projects/a.md": "# A\n\nRoses.\n", "01_Projects/b.md": "# B\n\nTulips.\n"})
    online = make_online(embedding_server.url, vault=vault)
    online.steps()
    before = len(paid(embedding_server))
    made = make_folder(online, schema=online.settings.schema)
    made = replace(made, folder=vault.path, settings=replace(made.settings, vault=vault.path))
    assert {} == actions(made)
    assert before == len(paid(embedding_server)) > 0


def test_a_rename_asks_for_no_embedding(
    make_folder: MakeFolder, make_online: Callable[..., Installation], embedding_server: EmbeddingServer
) -> None:
    """Files and whole folders are renamed, replaced atomically and touched: not one request."""
    made = make_folder(make_online(embedding_server.url))
    for number in range(6):
        made.write(f"d/n{number}.md", f"---\ntitle: Note {number}\n---\n\nRoses and tulips {number}.\n")
    made.steps()
    requests = len(embedding_server.requests())
    assert requests > 0

    (made.folder / "d").rename(made.folder / "e")
    (made.folder / "e/n0.md").rename(made.folder / "top.md")
    fresh = made.write("e/.n1.new", (made.folder / "e/n1.md").read_text())
    os.replace(fresh, made.folder / "e/n1.md")  # noqa: PTH105 - as editors save
    os.utime(made.folder / "e/n2.md")
    assert {"renamed"} == set(actions(made).values()) - {"deleted"}
    assert requests == len(embedding_server.requests())
    assert {} == actions(made)


def test_a_rename_with_an_edit_pays_for_the_edit(
    make_folder: MakeFolder, make_online: Callable[..., Installation], embedding_server: EmbeddingServer
) -> None:
    """Parts that did not change keep their vectors, although nothing says where the note came from."""
    made = make_folder(make_online(embedding_server.url))
    parts = [f"## Part {name}\n\nRoses and tulips, {name}.\n" for name in ("one", "two", "three")]
    path = made.write("old.md", "---\ntitle: Garden\n---\n\n" + "\n".join(parts))
    made.steps()
    before = len(paid(embedding_server))
    path.rename(made.folder / "new.md")
    made.write("new.md", "---\ntitle: Garden\n---\n\n" + "\n".join([*parts[:2], "## Part three\n\nLilies.\n"]))
    assert {"new.md": "added", "old.md": "deleted"} == actions(made)
    assert before + 1 == len(paid(embedding_server))
