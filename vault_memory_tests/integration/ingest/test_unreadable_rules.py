"""A rule to exclude that cannot be read: what is hidden, what waits, who is told, and what mending it does."""

import json
from dataclasses import replace

import pytest

from vault_memory.commands.doctor import diagnose
from vault_memory.commands.status import status
from vault_memory.errors import ConfigError
from vault_memory.ingest.sync import Synchronizer
from vault_memory.query import search
from vault_memory_tests.e2e.test_commands import command
from vault_memory_tests.fixtures.installation import Installation, walk
from vault_memory_tests.integration.ingest.test_sync import NOTE, TOKEN, rows

NAMED = ".vaultmemoryignore, line 2: "


@pytest.fixture
def broken(installation: Installation) -> Installation:
    """A vault with four notes in memory, whose owner then hides one rightly and wants to hide another by a typing mistake."""
    vault = installation.vault
    for name in ("drafts/a", "diary-2026", "kept", "changing"):
        vault.write(f"01_Projects/{name}.md", f"# {name}\n\nFirst paragraph about caches and {name}.\n")
    vault.commit()
    installation.steps()
    vault.write(".vaultmemoryignore", "drafts/\ndiary\\\n")
    vault.commit()
    return installation


def test_valid_lines_and_the_widest_reading_of_a_broken_one_hide_at_once(broken: Installation) -> None:
    """Both notes leave the memory with the next step, the others answer on."""
    broken.steps()
    assert [("01_Projects/changing.md",), ("01_Projects/kept.md",)] == rows(
        broken, "SELECT id FROM memory_primary ORDER BY id"
    )
    found = {item.source for item in search("paragraph caches", settings=broken.settings).items}
    assert {"01_Projects/changing.md", "01_Projects/kept.md"} == found


def test_new_and_changed_notes_wait_until_the_rule_is_mended(broken: Installation) -> None:
    """What could be meant is not indexed; deletions and quarantines go on; mending brings everything in at once."""
    vault = broken.vault
    vault.write("01_Projects/new.md", NOTE)
    vault.write("01_Projects/changing.md", "# Changing\n\nNew words.\n")
    vault.write("01_Projects/secret.md", f"token {TOKEN}\n")
    vault.commit()

    outcomes = broken.steps()

    assert {"01_Projects/new.md": "failed", "01_Projects/changing.md": "failed", "01_Projects/secret.md": "quarantined"} == {
        source: outcome.action for source, outcome in outcomes.items() if outcome.action != "deleted"
    }  # fmt: skip
    assert NAMED in str(outcomes["01_Projects/new.md"].error)
    assert [("01_Projects/changing.md",), ("01_Projects/kept.md",)] == rows(
        broken, "SELECT id FROM memory_primary ORDER BY id"
    )
    assert [] == rows(broken, "SELECT text_hash FROM embedding_stage")

    vault.write(".vaultmemoryignore", "drafts/\ndiary*\n")
    vault.commit()
    with Synchronizer.open(broken.settings) as synchronizer:
        assert {"01_Projects/new.md", "01_Projects/changing.md"} <= set(synchronizer.plan().note_ids)
        assert "changed" == walk(synchronizer)["01_Projects/new.md"].action
    assert [("01_Projects/changing.md",), ("01_Projects/kept.md",), ("01_Projects/new.md",)] == rows(
        broken, "SELECT id FROM memory_primary ORDER BY id"
    )
    assert () == status(broken.settings).rule_problems


def test_a_refused_negation_lets_nothing_in_and_holds_nothing_back(installation: Installation) -> None:
    """It could only have let notes in: new notes are indexed, the excluded one is not, and the line is named."""
    vault = installation.vault
    vault.write(".vaultmemoryignore", "drafts/\n!drafts/ok.md\n")
    vault.write("01_Projects/drafts/ok.md", NOTE)
    vault.write("01_Projects/a.md", NOTE)
    vault.commit()
    installation.steps()
    assert [("01_Projects/a.md",)] == rows(installation, "SELECT id FROM memory_primary")
    (line,) = status(installation.settings).rule_problems
    assert line.startswith(NAMED)


@pytest.mark.parametrize(
    ("content", "trouble"),
    [(b"\xe9t\xe9/\n", "line 1: not UTF-8"), (b"x/\n" * 30_000, "larger than 64 KiB"), (b"x/\n" * 90_000, "larger than 256 KiB"),
     (None, "not a regular file")],
)  # fmt: skip
def test_a_file_that_cannot_be_read_holds_new_notes(
    installation: Installation, content: bytes | None, trouble: str
) -> None:
    """Undecodable, too large for us or for git's reader, or no file at all: never the same as no rules."""
    vault = installation.vault
    vault.write("01_Projects/old.md", NOTE)
    vault.commit()
    installation.steps()
    if content is None:
        (vault.path / ".vaultmemoryignore").symlink_to("01_Projects/old.md")
    else:
        vault.write(".vaultmemoryignore", content)
    vault.write("01_Projects/new.md", NOTE.replace("caches", "queues"))
    vault.commit()

    assert "failed" == installation.steps()["01_Projects/new.md"].action

    assert [("01_Projects/old.md",)] == rows(installation, "SELECT id FROM memory_primary")
    assert trouble in status(installation.settings).rule_problems[0]


def test_a_setting_to_exclude_that_cannot_be_read_does_the_same(installation: Installation) -> None:
    """The other entries hold, and new notes wait."""
    settings = replace(
        installation.settings, scan=replace(installation.settings.scan, exclude_patterns=("drafts/", "[x"))
    )
    for name in ("drafts/a", "b"):
        installation.vault.write(f"01_Projects/{name}.md", NOTE)
    installation.vault.commit()
    with Synchronizer.open(settings) as synchronizer:
        outcome = walk(synchronizer)["01_Projects/b.md"]
    assert "failed" == outcome.action
    assert "scan.exclude_patterns, entry 2" in str(outcome.error)
    assert [("01_Projects/drafts/a.md", "excluded")] == rows(
        installation, "SELECT id, status FROM note_state WHERE status <> 'failed'"
    )


def test_vectors_are_not_made_anew_while_notes_wait(broken: Installation) -> None:
    """A change of model would send the notes that must not be sent."""
    with (
        Synchronizer.open(broken.settings) as synchronizer,
        synchronizer.writer(5, holder="test"),
        pytest.raises(ConfigError, match="line 2"),
    ):
        synchronizer.rebuild_vectors()


def test_sync_status_and_doctor_name_file_line_and_mend(broken: Installation) -> None:
    """By exit status 1, on standard error and in the JSON; never the line's own text."""
    done = command(broken.environment, "sync", "--json")
    assert 1 == done.returncode
    assert NAMED in json.loads(done.stdout)["rule_problems"][0]
    assert NAMED in done.stderr
    shown = command(broken.environment, "status", "--json")
    assert NAMED in json.loads(shown.stdout)["warnings"][0]
    assert "mend that line and commit" in shown.stdout
    (check,) = [one for one in diagnose(broken.settings).checks if one.name == "exclusion rules"]
    assert ("problem", True) == (check.verdict, check.detail.startswith(NAMED))
    assert "mend" in check.mend
    assert "diary" not in done.stderr + shown.stdout + check.detail
