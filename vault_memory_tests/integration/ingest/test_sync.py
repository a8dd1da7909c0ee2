"""The steps of a sync against a real repository and a real database."""

import threading
from collections.abc import Callable
from dataclasses import replace

import psycopg
import pytest

from vault_memory.commands.status import status
from vault_memory.errors import ConfigError
from vault_memory.ingest.planning import MassDeletionError
from vault_memory.ingest.sync import Synchronizer
from vault_memory_tests.fixtures.installation import Installation, walk
from vault_memory_tests.fixtures.rebuild import SpottyEmbedder
from vault_memory_tests.fixtures.vault import VaultRepo

NOTE = "# Pipeline\n\nFirst paragraph about caches.\n\n## Deploy\n\nSecond paragraph about 部署 and rollback.\n"
TOKEN = "ghp" + "_" + "Ab3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3bC6"


def rows(installation: Installation, statement: str) -> list[tuple[object, ...]]:
    """Run a statement in the installation's schema."""
    with psycopg.connect(installation.environment["VAULT_MEMORY_DSN"]) as connection:
        connection.execute("SET search_path = vault_memory, public")
        return connection.execute(statement).fetchall()


def contents(installation: Installation) -> list[tuple[object, ...]]:
    """Everything in the store that a rebuild must reproduce."""
    return [
        *rows(
            installation,
            "SELECT id, content, content_hash, blob_id, title, tags, embedding::text, ruleset_id FROM memory_primary ORDER BY id",
        ),
        *rows(
            installation,
            """SELECT id, note_id, ordinal, heading_path, start_line, end_line, content, text_hash, embedding::text,
               keywords::text, term_weights::text FROM memory_chunk ORDER BY note_id, ordinal""",
        ),
        *rows(installation, "SELECT dimension, chunks FROM memory_term ORDER BY dimension"),
        *rows(installation, "SELECT id, status, blob_tag, ruleset_id, reason FROM note_state ORDER BY id"),
        *rows(installation, "SELECT text_hash FROM embedding_stage"),
    ]


def test_a_commit_becomes_rows(installation: Installation) -> None:
    """A note's chunks are stored with their file lines, and the commit is recorded."""
    installation.vault.write("01_Projects/a.md", NOTE)
    commit = installation.vault.commit()

    outcomes = installation.steps()

    assert "added" == outcomes["01_Projects/a.md"].action
    assert 2 == outcomes["01_Projects/a.md"].texts_embedded
    assert [(1, 3), (5, 7)] == rows(installation, "SELECT start_line, end_line FROM memory_chunk ORDER BY ordinal")
    assert [(commit,)] == rows(installation, "SELECT commit FROM sync_state")


def test_an_unchanged_vault_needs_nothing(installation: Installation) -> None:
    """A second sync has an empty plan."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.commit()
    installation.steps()

    with Synchronizer.open(installation.settings) as synchronizer:
        assert synchronizer.plan().is_empty
        assert synchronizer.is_current()


def test_a_rename_embeds_nothing(installation: Installation) -> None:
    """A renamed note keeps its vectors, its old name is gone, and one transaction does both."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.commit()
    installation.steps()
    installation.vault.rename("01_Projects/a.md", "02_Areas/b.md")
    installation.vault.commit()

    outcomes = installation.steps()

    assert ("renamed", 0, 2) == (
        outcomes["02_Areas/b.md"].action,
        outcomes["02_Areas/b.md"].texts_embedded,
        outcomes["02_Areas/b.md"].texts_reused,
    )
    assert outcomes["01_Projects/a.md"].drop_partition
    assert [("02_Areas/b.md",)] == rows(installation, "SELECT id FROM memory_primary")


def test_a_swap_embeds_nothing(installation: Installation) -> None:
    """Two notes that change names in one commit are both right, and no text is paid for again."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.write("01_Projects/b.md", NOTE.replace("caches", "queues").replace("部署", "回滚"))
    installation.vault.commit()
    installation.steps()
    installation.vault.rename("01_Projects/a.md", "01_Projects/c.tmp")
    installation.vault.rename("01_Projects/b.md", "01_Projects/a.md")
    installation.vault.rename("01_Projects/c.tmp", "01_Projects/b.md")
    installation.vault.commit()

    outcomes = installation.steps()

    assert 0 == sum(outcome.texts_embedded for outcome in outcomes.values())
    found = dict(rows(installation, "SELECT id, content FROM memory_primary"))
    assert "queues" in str(found["01_Projects/a.md"])
    assert "caches" in str(found["01_Projects/b.md"])


def test_a_section_that_moves_keeps_its_vector(installation: Installation) -> None:
    """Text cut from a note that is deleted in the same commit is not paid for again in the note it moved to."""
    installation.vault.write("01_Projects/a.md", "Alpha text of its own.\n")
    installation.vault.write("01_Projects/z.md", "Something else entirely.\n")
    installation.vault.commit()
    installation.steps()
    installation.vault.delete("01_Projects/a.md")
    installation.vault.write("01_Projects/z.md", "Alpha text of its own.\n")
    installation.vault.commit()

    assert 0 == sum(outcome.texts_embedded for outcome in installation.steps().values())


def test_a_body_line_costs_at_most_two_texts(installation: Installation) -> None:
    """An edit pays for the chunks it touches, not for the note."""
    sections = [f"## Part {n}\n\n" + f"Sentence {n} about caches and queues. " * 40 + "\n" for n in range(8)]
    installation.vault.write("01_Projects/a.md", "# Long\n\n" + "\n".join(sections))
    installation.vault.commit()
    installation.steps()
    sections[4] = sections[4].replace("Sentence 4 about caches", "Sentence 4 about ships", 1)
    installation.vault.write("01_Projects/a.md", "# Long\n\n" + "\n".join(sections))
    installation.vault.commit()

    assert 1 <= installation.steps()["01_Projects/a.md"].texts_embedded <= 2


def test_a_secret_takes_the_note_out_at_once(installation: Installation) -> None:
    """A note that gains a secret loses every row; the audit names rule and line, never the text."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.commit()
    installation.steps()
    installation.vault.write("01_Projects/a.md", f"{NOTE}\ntoken {TOKEN}\n")
    installation.vault.commit()

    assert "quarantined" == installation.steps()["01_Projects/a.md"].action

    assert [] == rows(installation, "SELECT id FROM memory_primary")
    assert [] == rows(installation, "SELECT dimension FROM memory_term")
    audit = rows(installation, "SELECT id, risk, action, lines, was_embedded FROM memory_secure_audit")
    assert [("01_Projects/a.md", "excluded_or_sensitive", "quarantined", [9], False)] == audit


def test_a_note_that_is_clean_again_is_released(installation: Installation) -> None:
    """The audit line is closed, not deleted, when the secret is gone."""
    installation.vault.write("01_Projects/a.md", f"token {TOKEN}\n")
    installation.vault.commit()
    installation.steps()
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.commit()

    assert "released" == installation.steps()["01_Projects/a.md"].action

    assert [("released", True)] == rows(installation, "SELECT action, resolved_at IS NOT NULL FROM memory_secure_audit")


def test_a_deleted_quarantined_note_leaves_a_closed_audit_line(installation: Installation) -> None:
    """Deleting the note closes its audit line and forgets its state."""
    installation.vault.write("01_Projects/a.md", f"token {TOKEN}\n")
    installation.vault.write("01_Projects/b.md", NOTE)
    installation.vault.commit()
    installation.steps()
    installation.vault.delete("01_Projects/a.md")
    installation.vault.commit()

    installation.steps()

    assert [("deleted",)] == rows(installation, "SELECT action FROM memory_secure_audit")
    assert [("01_Projects/b.md",)] == rows(installation, "SELECT id FROM note_state")


def test_every_tracked_file_is_accounted_for(installation: Installation) -> None:
    """The sum rule: odd names, empty files, dates, CRLF, BOM, twins and links; nothing is silently lost."""
    vault = installation.vault
    vault.write("01_Projects/笔记/项目 计划.md", NOTE)
    vault.write('01_Projects/a "b", [c].md', NOTE)
    vault.write("01_Projects/...x.md", NOTE)
    vault.write("01_Projects/-x.md", NOTE)
    vault.write("01_Projects/🚀 launch.md", NOTE)
    vault.write("01_Projects/caf\u00e9.md", NOTE)
    vault.write("01_Projects/cafe\u0301.md", NOTE)
    vault.write("01_Projects/cafe\u0301 only.MD", NOTE)
    vault.write("01_Projects/empty.md", "")
    vault.write("01_Projects/dated.markdown", "---\ncreated: 2026-03-15\n---\n\nBody.\n")
    vault.write("01_Projects/crlf.md", NOTE.replace("\n", "\r\n"))
    vault.write("01_Projects/bom.md", b"\xef\xbb\xbf" + NOTE.encode())
    vault.write("01_Projects/latin1.md", "caf\u00e9".encode("latin-1"))
    vault.write("01_Projects/secret.md", f"token {TOKEN}\n")
    vault.write("01_Projects/private.md", "---\nprivate: true\n---\n\nBody.\n")
    vault.write("01_Projects/Infrastructure/x.md", NOTE)
    vault.write("04_Archive/old.md", NOTE)
    vault.write("README.md", NOTE)
    vault.write("01_Projects/picture.png", b"\x89PNG")
    (vault.path / "01_Projects/link.md").symlink_to("bom.md")
    vault.commit()

    installation.steps()

    found = status(installation.settings).to_json()
    assert 0 == found["behind"]
    assert any("cafe\\u0301.md" in str(line) for line in found["warnings"])
    assert (19, 11, 4, 2, 2, [], 0) == tuple(
        found[name] for name in ("tracked", "indexed", "excluded", "quarantined", "skipped", "failed", "pending")
    )


def test_any_history_ends_in_a_rebuild(
    installation: Installation,
    make_installation: Callable[..., Installation],
    make_database: Callable[..., str],
    template_database: str,
) -> None:
    """After edits, renames, deletions, a secret and its removal, the store equals one built from scratch."""
    vault = installation.vault
    for name in "abcdef":
        vault.write(f"01_Projects/{name}.md", NOTE.replace("caches", name * 3))
    vault.commit()
    installation.steps()
    vault.rename("01_Projects/a.md", "02_Areas/a2.md")
    vault.write("01_Projects/b.md", f"{NOTE}\ntoken {TOKEN}\n")
    vault.delete("01_Projects/c.md")
    vault.commit()
    installation.steps()
    vault.write("01_Projects/b.md", NOTE.replace("Second", "Third"))
    vault.write("01_Projects/d.md", "---\nprivate: yes\n---\nx\n")
    vault.rename("01_Projects/e.md", "01_Projects/c.md")
    vault.commit()
    installation.steps()

    fresh = make_installation(
        vault,
        VAULT_MEMORY_DSN=make_database(template_database),
        VAULT_MEMORY_HMAC_KEY_FILE=str(installation.settings.hmac_key_file),
    )
    fresh.steps()

    assert contents(fresh) == contents(installation)


def test_a_full_sync_rewrites_without_paying(installation: Installation) -> None:
    """Every note again, and every vector reused."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.commit()
    installation.steps()
    before = contents(installation)

    outcome = installation.steps(full=True)["01_Projects/a.md"]

    assert ("changed", 0, 2) == (outcome.action, outcome.texts_embedded, outcome.texts_reused)
    assert before == contents(installation)


def test_new_rules_hide_before_any_run(installation: Installation) -> None:
    """An exclusion added to the vault takes effect as soon as a writer has looked, before a note is read again."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.write("01_Projects/drafts/b.md", NOTE)
    installation.vault.commit()
    installation.steps()
    installation.vault.write(".vaultmemoryignore", "drafts/\n")
    installation.vault.commit()

    with Synchronizer.open(installation.settings) as synchronizer, synchronizer.writer(5, holder="test"):
        plan = synchronizer.plan()
        synchronizer.settle(plan)

        assert [("01_Projects/a.md",)] == rows(installation, "SELECT DISTINCT note_id FROM memory_live")
        walk(synchronizer)

    assert [("01_Projects/a.md", "indexed"), ("01_Projects/drafts/b.md", "excluded")] == rows(
        installation, "SELECT id, status FROM note_state ORDER BY id"
    )


def test_a_note_kept_out_by_its_text_and_then_by_its_path(installation: Installation) -> None:
    """A rule about paths re-reads nothing, but the manifest gives the reason that a rebuild would give."""
    installation.vault.write("01_Projects/drafts/b.md", "Filed under #private\n")
    installation.vault.commit()
    installation.steps()
    before = rows(installation, "SELECT id, status, reason, step FROM note_state")
    installation.vault.write(".vaultmemoryignore", "drafts/\n")
    installation.vault.commit()
    installation.steps()

    assert [("01_Projects/drafts/b.md", "excluded", "tag", "scan")] == before
    assert [("01_Projects/drafts/b.md", "excluded", "pattern", None)] == rows(
        installation, "SELECT id, status, reason, step FROM note_state"
    )


def test_a_blob_that_is_missing_fails_its_note_alone(installation: Installation) -> None:
    """The other notes go on, the old rows of that one answer, and the object's return heals it (P6)."""
    installation.vault.write("01_Projects/a.md", "# A\n\nThe first text.\n")
    installation.vault.commit()
    installation.steps()
    installation.vault.write("01_Projects/a.md", "# A\n\nThe second text.\n")
    installation.vault.write("01_Projects/b.md", "# B\n\nAnother note.\n")
    installation.vault.commit()
    blob = installation.vault.git("rev-parse", "HEAD:01_Projects/a.md").strip()
    file = installation.vault.path / ".git/objects" / blob[:2] / blob[2:]
    away = file.rename(file.with_name("away"))

    first = installation.steps()
    texts = rows(installation, "SELECT content FROM memory_primary ORDER BY id")
    away.rename(file)
    healed = [outcome.action for outcome in installation.steps().values()]

    assert ("failed", "added") == (first["01_Projects/a.md"].action, first["01_Projects/b.md"].action)
    said = "scan: BlobError: its content is not in the repository (a partial clone?); run: git fsck"
    assert said == first["01_Projects/a.md"].error  # and not its id, by which a guess of its text could be tested
    assert [("# A\n\nThe first text.\n",), ("# B\n\nAnother note.\n",)] == texts
    assert ["changed"] == healed
    assert [("# A\n\nThe second text.\n",), ("# B\n\nAnother note.\n",)] == rows(
        installation, "SELECT content FROM memory_primary ORDER BY id"
    )


def test_a_run_takes_no_more_chunks_than_it_may(installation: Installation) -> None:
    """Notes beyond the bound are put off, the first is always taken, and the next plan has the rest."""
    sections = "\n".join(f"## Part {number}\n\n{'word ' * 200}\n" for number in range(3))
    for name in "abc":
        installation.vault.write(f"01_Projects/{name}.md", f"# {name}\n\n{sections}")
    installation.vault.commit()
    with Synchronizer.open(installation.settings) as synchronizer, synchronizer.writer(5, holder="test"):
        taken: list[list[str]] = []
        while note_ids := synchronizer.plan().note_ids:
            begun = synchronizer.begin(note_ids, follow_plan=True, run_id="r")
            done = list(synchronizer.persist(synchronizer.embed(synchronizer.scan(begun, most_chunks=1))))
            taken.append(sorted(outcome.action for outcome in done))
            synchronizer.finish()

    assert [["added", "postponed", "postponed"], ["added", "postponed"], ["added"]] == taken
    assert [(3,)] == rows(installation, "SELECT count(*) FROM memory_primary")


@pytest.mark.parametrize("second", ["sub/x", "."])
def test_another_folder_of_the_same_repository_is_another_vault(
    make_installation: Callable[..., Installation], second: str
) -> None:
    """Its commits are the same, its notes are not: the folder that the memory belongs to is named."""
    installation = make_installation()
    installation.vault.write("sub/01_Projects/a.md", NOTE)
    installation.vault.write("sub/x/01_Projects/a.md", NOTE)
    installation.vault.commit()
    first = replace(installation.settings, vault=installation.vault.path / "sub")
    with Synchronizer.open(first) as synchronizer, synchronizer.writer(5, holder="test"):
        synchronizer.settle(synchronizer.plan())
        batch = synchronizer.begin(synchronizer.plan().note_ids, follow_plan=True, run_id="r")
        list(synchronizer.persist(synchronizer.embed(synchronizer.scan(batch))))
        synchronizer.finish()

    with pytest.raises(ConfigError, match="another folder of the same repository"):
        Synchronizer.open(replace(first, vault=installation.vault.path / second))


def test_a_newer_commit_wins_over_a_note_in_flight(installation: Installation) -> None:
    """A note that is deleted while its texts are embedded is not written (B31)."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.commit()
    with Synchronizer.open(installation.settings) as synchronizer, synchronizer.writer(5, holder="test"):
        batch = synchronizer.embed(
            synchronizer.scan(synchronizer.begin(["01_Projects/a.md"], follow_plan=True, run_id="r"))
        )
        installation.vault.delete("01_Projects/a.md")
        installation.vault.write("01_Projects/b.md", NOTE)
        installation.vault.commit()

        assert ["superseded"] == [outcome.action for outcome in synchronizer.persist(batch)]

    assert [] == rows(installation, "SELECT id FROM memory_primary")


def test_a_tree_without_most_notes_is_refused(installation: Installation) -> None:
    """A wrong branch does not empty the memory by itself; the message names the override."""
    for number in range(12):
        installation.vault.write(f"01_Projects/{number}.md", f"{NOTE}\n{number}\n")
    installation.vault.commit()
    installation.steps()
    for number in range(11):
        installation.vault.delete(f"01_Projects/{number}.md")
    installation.vault.commit()

    with (
        Synchronizer.open(installation.settings) as synchronizer,
        pytest.raises(MassDeletionError, match="--allow-mass-deletion"),
    ):
        synchronizer.planner.refuse_mass_deletion(synchronizer.plan())


def test_another_vault_is_refused(
    installation: Installation, make_installation: Callable[..., Installation], make_vault: Callable[..., VaultRepo]
) -> None:
    """A memory belongs to one vault; another one needs a schema of its own (B41)."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.commit()
    installation.steps()
    other = make_installation(make_vault("other"))
    other.vault.write("01_Projects/b.md", "# Other\n\nText.\n")
    other.vault.commit()

    with pytest.raises(ConfigError, match="VAULT_MEMORY_SCHEMA"):
        other.steps()


def test_a_try_on_an_empty_vault_binds_nobody(
    installation: Installation, make_installation: Callable[..., Installation], make_vault: Callable[..., VaultRepo]
) -> None:
    """A sync of a vault without a note does not keep the memory from the right one."""
    installation.steps()
    other = make_installation(make_vault("other"))
    other.vault.write("01_Projects/b.md", NOTE)
    other.vault.commit()

    assert ["added"] == [outcome.action for outcome in other.steps().values()]


def test_another_key_is_refused(installation: Installation) -> None:
    """Without the recorded key nothing quarantined would be recognised again."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.commit()
    installation.steps()
    installation.settings.hmac_key_file.write_text("00" * 32 + "\n")

    with pytest.raises(ConfigError, match="not the key"):
        installation.steps()


def test_a_head_that_came_back_in_mid_run_is_not_current(installation: Installation) -> None:
    """HEAD goes on, a run is cut off, HEAD goes back to the recorded commit: the store is not what it was."""
    installation.vault.write("01_Projects/a.md", NOTE)
    first = installation.vault.commit()
    installation.steps()
    installation.vault.write("01_Projects/b.md", NOTE.replace("caches", "queues"))
    installation.vault.commit()
    with Synchronizer.open(installation.settings) as synchronizer, synchronizer.writer(5, holder="test"):
        batch = synchronizer.begin(["01_Projects/b.md"], follow_plan=True, run_id="r")
        list(synchronizer.persist(synchronizer.embed(synchronizer.scan(batch))))
    installation.vault.git("reset", "-q", "--hard", first)

    with Synchronizer.open(installation.settings) as synchronizer:
        assert not synchronizer.is_current()

    installation.steps()
    assert [("01_Projects/a.md",)] == rows(installation, "SELECT id FROM memory_primary")


def test_rules_about_paths_look_into_no_note(installation: Installation) -> None:
    """A new line in the ignore file takes its notes out and leaves the others as they are, unread."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.write("01_Projects/drafts/b.md", NOTE)
    installation.vault.write("01_Projects/secret.md", f"token {TOKEN}\n")
    installation.vault.write("01_Projects/private.md", "---\nprivate: true\n---\nx\n")
    installation.vault.commit()
    installation.steps()
    installation.vault.write(".vaultmemoryignore", "drafts/\n")
    installation.vault.commit()

    assert {"01_Projects/drafts/b.md": "deleted"} == {k: v.action for k, v in installation.steps().items()}

    installation.vault.delete(".vaultmemoryignore")
    installation.vault.commit()
    assert {"01_Projects/drafts/b.md": "added"} == {k: v.action for k, v in installation.steps().items()}


def test_a_reader_never_finds_memory_blank_while_rules_change(
    installation: Installation, make_installation: Callable[..., Installation]
) -> None:
    """While every text is judged by new rules, a query sees all notes but those that they take out."""
    for number in range(30):
        installation.vault.write(f"01_Projects/{number}.md", f"# N{number}\n\n{'#diary ' if number < 3 else ''}Text.\n")
    installation.vault.commit()
    installation.steps()
    config = installation.settings.config_file.parent / "other.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('[scan]\nprivate_tags = ["diary"]\n')
    stricter = make_installation(
        installation.vault,
        VAULT_MEMORY_CONFIG=str(config),
        VAULT_MEMORY_HMAC_KEY_FILE=str(installation.settings.hmac_key_file),
    )
    seen: list[int] = []
    over = threading.Event()

    def read() -> None:
        with psycopg.connect(installation.environment["VAULT_MEMORY_DSN"], autocommit=True) as connection:
            connection.execute("SET search_path = vault_memory, public")
            while not over.is_set():
                row = connection.execute("SELECT count(DISTINCT note_id) FROM memory_live").fetchone()
                assert row is not None
                seen.append(row[0])

    reader = threading.Thread(target=read)
    reader.start()
    try:
        outcomes = stricter.steps()
    finally:
        over.set()
        reader.join()

    assert {30, 27} == set(seen)
    assert sorted(seen, reverse=True) == seen
    assert 3 == sum(outcome.action == "excluded" for outcome in outcomes.values())


def test_the_audit_of_new_rules_knows_what_had_been_sent(installation: Installation) -> None:
    """A note that new rules quarantine had been embedded by the recorded provider, and its audit line says so."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.commit()
    with Synchronizer.open(installation.settings) as synchronizer:
        walk(synchronizer)
        with psycopg.connect(installation.environment["VAULT_MEMORY_DSN"], autocommit=True) as connection:
            connection.execute(
                """UPDATE vault_memory.sync_state SET embedder = 'openai', base_url = 'https://api.example/v1',
                   ruleset_id = 'older-rules'"""
            )
            connection.execute("UPDATE vault_memory.memory_primary SET content = content || %s", [f"token {TOKEN}"])
        with synchronizer.writer(5, holder="test"):
            synchronizer.settle(synchronizer.plan())

    assert [] == rows(installation, "SELECT id FROM memory_primary")
    assert [("quarantined", True, "api.example")] == rows(
        installation, "SELECT action, was_embedded, embedded_by FROM memory_secure_audit"
    )


def test_a_permanent_failure_asks_for_no_run(installation: Installation) -> None:
    """A note that would fail again is named, does not hold the commit up, and does not keep the sensor awake."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.write("01_Projects/b.md", "# B\n\nBroken mirror.\n")
    commit = installation.vault.commit()
    with Synchronizer.open(installation.settings) as synchronizer:
        synchronizer.provider.embedder = SpottyEmbedder(
            unlucky={"Broken mirror": False}, model=str(synchronizer.provider.embedder.model)
        )

        assert "failed" == walk(synchronizer)["01_Projects/b.md"].action

        assert synchronizer.plan().is_empty
        assert synchronizer.is_current()
    assert [(commit,)] == rows(installation, "SELECT commit FROM sync_state")
    assert [("01_Projects/b.md",)] == rows(installation, "SELECT id FROM note_state WHERE status = 'failed'")


def test_a_run_on_a_wrong_branch_is_refused(installation: Installation) -> None:
    """Not only the command's plan: a run that the UI starts while HEAD lacks most notes deletes nothing."""
    for number in range(12):
        installation.vault.write(f"01_Projects/{number}.md", f"{NOTE}\n{number}\n")
    installation.vault.commit()
    installation.steps()
    installation.vault.git("checkout", "-q", "--orphan", "empty")
    installation.vault.git("rm", "-q", "-r", "--cached", ".")
    installation.vault.git("commit", "-q", "--allow-empty", "-m", "empty")

    with (
        Synchronizer.open(installation.settings) as synchronizer,
        synchronizer.writer(5, holder="test"),
        pytest.raises(MassDeletionError),
    ):
        synchronizer.begin(["01_Projects/1.md"], follow_plan=False, run_id="r")

    assert [(12,)] == rows(installation, "SELECT count(*) FROM memory_primary")
