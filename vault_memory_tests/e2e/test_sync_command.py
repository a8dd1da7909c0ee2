"""``vault-memory sync`` as processes: two at once, another model, a HEAD that lost its notes."""

import json
from concurrent.futures import ThreadPoolExecutor

import psycopg

from vault_memory.adapters.store import Store
from vault_memory_tests.e2e.test_commands import NOTE, command
from vault_memory_tests.fixtures.installation import Installation


def scalars(installation: Installation, statement: str) -> list[object]:
    """Run a statement in the installation's schema and return its first column."""
    with psycopg.connect(installation.environment["VAULT_MEMORY_DSN"]) as connection:
        connection.execute("SET search_path = vault_memory, public")
        return [row[0] for row in connection.execute(statement).fetchall()]


def test_two_syncs_at_once_both_end_right(installation: Installation) -> None:
    """One waits for the other; both end with 0, every note is there once, and nothing was embedded twice."""
    for number in range(20):
        installation.vault.write(f"01_Projects/{number}.md", f"# Note {number}\n\nText of number {number}.\n")
    commit = installation.vault.commit()

    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: command(installation.environment, "sync", "--json"), range(2)))

    assert [0, 0] == [one.returncode for one in done], [one.stderr for one in done]
    results = [json.loads(one.stdout) for one in done]
    assert [commit, commit] == [result["to"] for result in results]
    assert 20 == sum(result["texts_embedded"] for result in results)
    assert [20] == scalars(installation, "SELECT count(*) FROM memory_primary")


def test_a_sync_that_may_not_wait_names_the_writer(installation: Installation) -> None:
    """Another writer is named, nothing is written, and the status is 3."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.commit()
    store = Store.connect(installation.environment["VAULT_MEMORY_DSN"], "vault_memory")
    try:
        with store.writer(1, holder="the other one"):
            done = command(installation.environment, "sync", "--wait", "0")
    finally:
        store.close()

    assert 3 == done.returncode
    assert "the other one" in done.stderr
    assert [] == scalars(installation, "SELECT id FROM memory_primary")


def test_another_model_is_refused_until_it_is_accepted(installation: Installation) -> None:
    """The refusal names the command, the old index answers meanwhile, and the command changes over."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.commit()
    assert 0 == command(installation.environment, "sync").returncode
    made_by = "UPDATE {} SET model = 'an-older-model'"
    with psycopg.connect(installation.environment["VAULT_MEMORY_DSN"], autocommit=True) as connection:
        for table in ("sync_state", "memory_chunk", "memory_primary"):
            connection.execute(made_by.format(f"vault_memory.{table}"))

    refused = command(installation.environment, "sync")
    chunks = scalars(installation, "SELECT DISTINCT model FROM memory_chunk")
    accepted = command(installation.environment, "sync", "--accept-model", "--json")
    after = command(installation.environment, "sync", "--json")

    assert 3 == refused.returncode
    assert "vault-memory sync --full --accept-model" in refused.stderr
    assert ["an-older-model"] == chunks
    assert (0, 2) == (accepted.returncode, json.loads(accepted.stdout)["texts_embedded"])
    assert (0, 0, 1) == (
        after.returncode,
        json.loads(after.stdout)["texts_embedded"],
        json.loads(after.stdout)["unchanged"],
    )
    assert "an-older-model" not in scalars(installation, "SELECT DISTINCT model FROM memory_chunk")


def test_a_head_without_commits_empties_nothing(installation: Installation) -> None:
    """A branch that has no commit yet is no order to forget; the message names the override, which works."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.commit()
    assert 0 == command(installation.environment, "sync").returncode
    installation.vault.git("checkout", "-q", "--orphan", "new")

    refused = command(installation.environment, "sync")
    kept = scalars(installation, "SELECT id FROM memory_primary")
    allowed = command(installation.environment, "sync", "--allow-mass-deletion")

    assert (3, ["01_Projects/a.md"]) == (refused.returncode, kept)
    assert "--allow-mass-deletion" in refused.stderr
    assert 0 == allowed.returncode, allowed.stderr
    assert [] == scalars(installation, "SELECT id FROM memory_primary")
