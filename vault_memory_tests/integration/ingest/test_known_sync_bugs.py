"""Bugs that tools like this one had with file names, renames and ghosts (B25 to B41) and git (B43 to B48), end to end.

Each number is a test; the parts' own tests look at each closer. What counts here is what is in memory afterwards.
"""

import hashlib
import shutil
from pathlib import Path

import psycopg
import pytest

from vault_memory import settings as settings_module
from vault_memory.commands.status import status
from vault_memory.errors import ConfigError, VaultError
from vault_memory.ingest.sync import Synchronizer
from vault_memory.query.search import search
from vault_memory_tests.fixtures.installation import Installation, walk
from vault_memory_tests.fixtures.vault import MakeVault

TEXT = "# Title\n\nWords about {}.\n"


def rows(installation: Installation, statement: str) -> list[tuple[object, ...]]:
    """Run a statement in the installation's schema."""
    with psycopg.connect(installation.environment["VAULT_MEMORY_DSN"]) as connection:
        connection.execute("SET search_path = vault_memory, public")
        return connection.execute(statement).fetchall()


def notes(installation: Installation) -> list[object]:
    """The notes in memory."""
    return [row[0] for row in rows(installation, "SELECT id FROM memory_primary ORDER BY id")]


def commit(installation: Installation, **texts: str) -> None:
    """Write notes of a folder by name, and commit."""
    for name, words in texts.items():
        installation.vault.write(f"01_Projects/{name}.md", TEXT.format(words))
    installation.vault.commit()


def test_b25_no_name_is_lost_to_quoting(installation: Installation) -> None:
    """Names that git prints in quotes are notes like any others."""
    names = [
        "笔记/项目 计划.md",
        "tab\there.md",
        'say "so".md',
        "back\\slash.md",
        "-x.md",
        "two\nlines.md",
        " a .md",
        "é.md",
    ]
    for name in names:
        installation.vault.write(f"01_Projects/{name}", TEXT.format(name))
    installation.vault.commit()

    installation.steps()

    assert sorted(f"01_Projects/{name}" for name in names) == sorted(map(str, notes(installation)))
    found = status(installation.settings).to_json()
    assert len(names) == found["tracked"] == found["indexed"]


def test_b26_two_forms_of_an_accent_are_one_note(installation: Installation) -> None:
    """NFC and NFD side by side: one note, the other one is reported, not forgotten."""
    installation.vault.write("01_Projects/caf\u00e9.md", TEXT.format("the composed form"))
    installation.vault.write("01_Projects/cafe\u0301.md", TEXT.format("the decomposed form"))
    installation.vault.commit()

    installation.steps()

    assert ["01_Projects/caf\u00e9.md"] == notes(installation)
    found = status(installation.settings)
    assert 1 == len(found.collisions)
    assert (2, 1, 1) == tuple(found.to_json()[name] for name in ("tracked", "indexed", "skipped"))


def test_b29_a_subset_deletes_nobody_else(installation: Installation) -> None:
    """A run over some notes leaves the others alone."""
    commit(installation, a="caches", b="queues", c="locks")
    installation.steps()

    with Synchronizer.open(installation.settings) as synchronizer, synchronizer.writer(5, holder="test"):
        batch = synchronizer.begin(["01_Projects/a.md"], follow_plan=False, run_id="r")
        list(synchronizer.persist(synchronizer.embed(synchronizer.scan(batch))))
        synchronizer.finish()

    assert ["01_Projects/a.md", "01_Projects/b.md", "01_Projects/c.md"] == notes(installation)


def test_b30_a_rename_leaves_no_ghost_and_embeds_nothing(installation: Installation) -> None:
    """The old name is gone, the new one is there, no text is embedded."""
    commit(installation, a="caches")
    installation.steps()
    installation.vault.rename("01_Projects/a.md", "02_Areas/b.md")
    installation.vault.commit()

    outcomes = installation.steps()

    assert "renamed" == outcomes["02_Areas/b.md"].action
    assert 0 == sum(outcome.texts_embedded for outcome in outcomes.values())
    assert ["02_Areas/b.md"] == notes(installation)


def test_b31_a_note_deleted_in_flight_is_not_written(installation: Installation) -> None:
    """The file goes while its texts are embedded: what was embedded is not written."""
    commit(installation, a="caches", b="queues")
    with Synchronizer.open(installation.settings) as synchronizer, synchronizer.writer(5, holder="test"):
        batch = synchronizer.begin(["01_Projects/a.md", "01_Projects/b.md"], follow_plan=True, run_id="r")
        batch = synchronizer.embed(synchronizer.scan(batch))
        installation.vault.delete("01_Projects/a.md")
        installation.vault.commit()
        done = {outcome.note_id: outcome.action for outcome in synchronizer.persist(batch)}

    assert {"01_Projects/a.md": "superseded", "01_Projects/b.md": "added"} == done
    assert ["01_Projects/b.md"] == notes(installation)


def test_b32_a_committed_delete_is_seen_by_the_next_question(installation: Installation) -> None:
    """The process that answered before the delete does not name the note after it, though no sync came between."""
    commit(installation, a="caches", b="caches too")
    installation.steps()
    before = {hit.source for hit in search("caches", settings=installation.settings).items}
    installation.vault.delete("01_Projects/a.md")
    installation.vault.commit()

    after = {hit.source for hit in search("caches", settings=installation.settings).items}

    assert ({"01_Projects/a.md", "01_Projects/b.md"}, {"01_Projects/b.md"}) == (before, after)


def test_b33_a_note_changed_twice_has_its_last_chunks_only(installation: Installation) -> None:
    """Chunks of older versions do not stay."""
    for words in ("caches", "queues", "locks"):
        commit(installation, a=words)
        installation.steps()

    assert [("Words about locks.",)] == rows(
        installation, "SELECT regexp_replace(content, '^.*\\n\\s*', '') FROM memory_chunk"
    )


def test_b35_vectors_and_rows_go_together(installation: Installation) -> None:
    """There is no time at which a note has rows and no vectors, whatever statement its writing dies at."""
    commit(installation, a="caches")
    installation.steps()
    commit(installation, a="queues")
    with Synchronizer.open(installation.settings) as synchronizer, synchronizer.writer(5, holder="test"):
        batch = synchronizer.begin(["01_Projects/a.md"], follow_plan=True, run_id="r")
        batch = synchronizer.embed(synchronizer.scan(batch))
        with psycopg.connect(installation.environment["VAULT_MEMORY_DSN"], autocommit=True) as other:
            other.execute("ALTER TABLE vault_memory.memory_term ADD CONSTRAINT never CHECK (chunks < 0) NOT VALID")
            (done,) = synchronizer.persist(batch)
            other.execute("ALTER TABLE vault_memory.memory_term DROP CONSTRAINT never")

    assert "failed" == done.action
    assert [(True, True)] == rows(
        installation,
        """SELECT p.content LIKE '%caches%', c.embedding IS NOT NULL
           FROM memory_primary p JOIN memory_chunk c ON c.note_id = p.id""",
    )
    assert ["changed"] == [outcome.action for outcome in installation.steps().values()]


def test_b37_an_unreadable_vault_is_not_an_empty_one(installation: Installation) -> None:
    """A vault that is away ends in an error; every note stays in memory."""
    commit(installation, a="caches", b="queues")
    installation.steps()
    away = installation.vault.path.rename(installation.vault.path.with_name("away"))

    with pytest.raises(VaultError):
        Synchronizer.open(installation.settings)

    assert ["01_Projects/a.md", "01_Projects/b.md"] == notes(installation)
    away.rename(installation.vault.path)
    assert {} == installation.steps()


def test_b38_a_new_rule_purges_and_its_removal_brings_back(installation: Installation) -> None:
    """What a rule excludes leaves memory, vectors too; without the rule it is back."""
    commit(installation, a="caches", b="queues")
    installation.steps()
    installation.vault.write(".vaultmemoryignore", "a.md\n")
    installation.vault.commit()
    installation.steps()
    without = notes(installation)
    chunks = rows(installation, "SELECT DISTINCT note_id FROM memory_chunk")
    installation.vault.delete(".vaultmemoryignore")
    installation.vault.commit()
    installation.steps()

    assert (["01_Projects/b.md"], [("01_Projects/b.md",)]) == (without, chunks)
    assert ["01_Projects/a.md", "01_Projects/b.md"] == notes(installation)


def test_b39_nothing_outside_the_vault_is_read(installation: Installation, tmp_path: Path) -> None:
    """A tracked link to a file elsewhere is skipped; its target is in no table."""
    (tmp_path / "outside.md").write_text(TEXT.format("somebody else's secret plans"))
    folder = installation.vault.path / "01_Projects"
    folder.mkdir()
    (folder / "link.md").symlink_to(tmp_path / "outside.md")
    (folder / "up.md").symlink_to("../../outside.md")
    commit(installation, a="caches")

    installation.steps()

    assert ["01_Projects/a.md"] == notes(installation)
    assert 2 == status(installation.settings).to_json()["skipped"]


def test_b40_the_vault_is_never_written(installation: Installation) -> None:
    """After syncs, failures and questions every file of work tree and repository is what it was."""
    commit(installation, a="caches", b="queues without a line feed at its end")

    def digests() -> dict[str, str]:
        top = installation.vault.path
        return {
            str(file.relative_to(top)): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(top.rglob("*"))
            if file.is_file()
        }

    before = digests()
    installation.steps()
    installation.steps(full=True)
    search("caches", settings=installation.settings)
    status(installation.settings)

    assert before == digests()
    assert "" == installation.vault.git("status", "--porcelain")


def test_b41_another_vault_is_refused_before_it_leaves_anything(
    installation: Installation, make_vault: MakeVault
) -> None:
    """The memory of one vault takes nothing of another one in."""
    commit(installation, a="caches")
    installation.steps()
    other = make_vault("other", files={"01_Projects/wrong.md": TEXT.format("the wrong vault")})
    wrong = settings_module.load({**installation.environment, "VAULT_MEMORY_VAULT": str(other.path)})

    with pytest.raises(ConfigError, match="VAULT_MEMORY_SCHEMA"):
        Synchronizer.open(wrong)

    assert ["01_Projects/a.md"] == notes(installation)
    assert [("01_Projects/a.md",)] == rows(installation, "SELECT id FROM note_state")


def test_b43_a_base_that_is_gone_stops_nothing(installation: Installation) -> None:
    """After amend and gc the indexed commit is no more; the next sync is as right as any."""
    commit(installation, a="caches", b="queues")
    installation.steps()
    indexed = installation.vault.head
    installation.vault.delete("01_Projects/b.md")
    installation.vault.write("01_Projects/c.md", TEXT.format("locks"))
    installation.vault.commit(amend=True)
    installation.vault.git("reflog", "expire", "--expire=now", "--all")
    installation.vault.git("gc", "-q", "--prune=now")

    installation.steps()

    with pytest.raises(AssertionError):
        installation.vault.git("cat-file", "-e", indexed)
    assert ["01_Projects/a.md", "01_Projects/c.md"] == notes(installation)


def test_b44_variables_of_an_outer_git_choose_nothing(
    installation: Installation, make_vault: MakeVault, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a hook of another repository: its variables lead neither the sync nor a question there."""
    outer = make_vault("outer", files={"01_Projects/outer.md": TEXT.format("the outer repository")})
    commit(installation, a="caches")
    monkeypatch.setenv("GIT_DIR", str(outer.path / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(outer.path))
    monkeypatch.setenv("GIT_INDEX_FILE", str(outer.path / ".git/index"))
    index = (outer.path / ".git/index").read_bytes()

    installation.steps()

    assert ["01_Projects/a.md"] == notes(installation)
    assert ["01_Projects/a.md"] == [hit.source for hit in search("caches", settings=installation.settings).items]
    assert index == (outer.path / ".git/index").read_bytes()


def test_b45_every_status_of_git_is_handled(installation: Installation) -> None:
    """Copied, changed in kind, changed in mode, added, modified, deleted and renamed in one commit."""
    commit(installation, copied="caches", kind="queues", mode="locks", edited="threads", deleted="forks", moved="pipes")
    installation.steps()
    top = installation.vault.path / "01_Projects"
    shutil.copy(top / "copied.md", top / "copy.md")
    (top / "kind.md").unlink()
    (top / "kind.md").symlink_to("mode.md")
    (top / "mode.md").chmod(0o755)
    installation.vault.delete("01_Projects/deleted.md")
    installation.vault.rename("01_Projects/moved.md", "01_Projects/there.md")
    commit(installation, edited="fibres", added="sockets")

    with Synchronizer.open(installation.settings) as synchronizer:
        outcomes = walk(synchronizer)

    wanted = ["added", "copied", "copy", "edited", "mode", "there"]
    assert [f"01_Projects/{name}.md" for name in wanted] == notes(installation)
    assert 2 == sum(outcome.texts_embedded for outcome in outcomes.values())
    assert "01_Projects/mode.md" not in outcomes
    assert [("01_Projects/kind.md", "skipped")] == rows(
        installation, "SELECT id, status FROM note_state WHERE status <> 'indexed'"
    )


def test_b48_one_bad_note_holds_no_commit_up(installation: Installation) -> None:
    """The failure stays queued and visible with its note; later commits go on; the mend heals it."""
    commit(installation, bad="caches", good="queues")
    blob = installation.vault.git("rev-parse", "HEAD:01_Projects/bad.md")
    file = installation.vault.path / ".git/objects" / blob[:2] / blob[2:]
    away = file.rename(file.with_name("away"))
    installation.steps()
    away.replace(file)  # git commits nothing without it
    commit(installation, later="locks")
    file.replace(away)
    installation.steps()
    found = status(installation.settings).to_json()
    between = notes(installation)
    away.replace(file)
    healed = installation.steps()

    assert ["01_Projects/good.md", "01_Projects/later.md"] == between
    assert installation.vault.head == found["indexed_commit"]
    assert [("01_Projects/bad.md", "BlobError", 2)] == [
        (one["source"], one["class"], one["attempts"])
        for one in found["failed"]  # pyright: ignore[reportGeneralTypeIssues] - a list in the contract
    ]
    assert {"01_Projects/bad.md": "changed"} == {note: outcome.action for note, outcome in healed.items()}
    assert ["01_Projects/bad.md", "01_Projects/good.md", "01_Projects/later.md"] == notes(installation)
