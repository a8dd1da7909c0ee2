"""The operator's commands as a person runs them: processes, exit statuses, output."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from vault_memory_tests.fixtures.installation import Installation

NOTE = "# Pipeline\n\nFirst paragraph about caches.\n\n## Deploy\n\nSecond paragraph about 部署 and rollback.\n"


def command(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run ``vault-memory`` with just this environment."""
    return subprocess.run(
        [sys.executable, "-m", "vault_memory.cli", *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path.cwd()), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def test_sync_and_status_keep_their_contracts(installation: Installation) -> None:
    """Both print one JSON object with the documented keys; a second sync finds nothing to do."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.write("04_Archive/b.md", NOTE)
    commit = installation.vault.commit()

    dry = json.loads(command(installation.environment, "sync", "--dry-run", "--json").stdout)
    first = command(installation.environment, "sync", "--json")
    second = json.loads(command(installation.environment, "sync", "--json").stdout)
    found = json.loads(command(installation.environment, "status", "--json").stdout)

    assert (1, 2) == (dry["notes"], dry["texts"])
    assert (0, "") == (first.returncode, first.stderr)
    result = json.loads(first.stdout)
    assert (None, commit, 1, 0, 2) == tuple(
        result[name] for name in ("from", "to", "added", "failed", "texts_embedded")
    )
    assert {
        "from", "to", "added", "changed", "renamed", "deleted", "quarantined", "released", "failed", "unchanged",
        "texts_embedded", "texts_reused", "tokens", "requests", "seconds",
    } <= set(result)  # fmt: skip
    assert (0, 0, 2, 0, 0) == tuple(
        second[name] for name in ("added", "changed", "unchanged", "texts_embedded", "requests")
    )
    assert {
        "vault", "head", "indexed_commit", "behind", "tracked", "indexed", "excluded", "quarantined", "skipped",
        "failed", "chunks", "model", "dimensions", "ruleset", "vector_index",
    } <= set(found)  # fmt: skip
    assert (commit, commit, 0, 2, 1, 1) == tuple(
        found[name] for name in ("head", "indexed_commit", "behind", "tracked", "indexed", "excluded")
    )


def test_query_answers_with_lines(installation: Installation) -> None:
    """What was synced is found by the agent's command, cited to file and line."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.commit()
    command(installation.environment, "sync")

    found = command(installation.environment, "query", "部署 rollback", "--format", "json")

    assert "" == found.stderr
    assert ("01_Projects/a.md", 5, 7) == tuple(
        json.loads(found.stdout)["items"][0][name] for name in ("source", "start_line", "end_line")
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"VAULT_MEMORY_VAULT": "/nonexistent/vault"}, "/nonexistent/vault"),
        ({"VAULT_MEMORY_VAULT": "/usr"}, "git"),
        ({"VAULT_MEMORY_VAULT": ""}, "VAULT_MEMORY_VAULT"),
        ({"VAULT_MEMORY_DSN": "postgresql://nobody:hunter2secret@127.0.0.1:9/none"}, "VAULT_MEMORY_DSN"),
        ({"VAULT_MEMORY_DSN": "not a dsn hunter2secret"}, "VAULT_MEMORY_DSN"),
        ({"VAULT_MEMORY_DSN": "", "VAULT_MEMORY_HOME": "/proc/nope"}, "/proc/nope"),
        ({"VAULT_MEMORY_EMBEDDING_DIMENSIONS": "many"}, "dimensions"),
        ({"VAULT_MEMORY_CONFIG": "/nonexistent.toml"}, "/nonexistent.toml"),
        ({"VAULT_MEMORY_HMAC_KEY_FILE": "/proc/nope/key"}, "VAULT_MEMORY_HMAC_KEY_FILE"),
    ],
)
def test_what_cannot_run_says_why_in_one_line(installation: Installation, change: dict[str, str], said: str) -> None:
    """A wrong setting or a missing part ends with status 3 and one line that names it; never a traceback."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.commit()

    done = command({**installation.environment, **change}, "sync")

    assert 3 == done.returncode, done.stderr
    assert 1 == len(done.stderr.splitlines()), done.stderr
    assert said in done.stderr
    assert "hunter2secret" not in done.stderr + done.stdout
    assert "" == done.stdout


def test_a_vault_without_commits_is_empty(installation: Installation) -> None:
    """Before the first commit there is nothing to do, and that is no error."""
    done = command(installation.environment, "sync", "--json")

    assert (0, "") == (done.returncode, done.stderr)
    assert None is json.loads(done.stdout)["to"]


def test_head_that_goes_back_is_followed(installation: Installation) -> None:
    """HEAD A, then B, then A again: memory follows each time."""
    installation.vault.write("01_Projects/a.md", NOTE)
    first = installation.vault.commit()
    command(installation.environment, "sync")
    installation.vault.write("01_Projects/b.md", NOTE.replace("caches", "queues"))
    second = installation.vault.commit()
    assert second == json.loads(command(installation.environment, "sync", "--json").stdout)["to"]
    installation.vault.git("reset", "-q", "--hard", first)

    result = json.loads(command(installation.environment, "sync", "--json").stdout)

    assert (first, 1) == (result["to"], result["deleted"])


def test_full_writes_every_note_again(installation: Installation) -> None:
    """``sync --full`` rewrites what is unchanged, and pays for nothing."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.commit()
    command(installation.environment, "sync")

    result = json.loads(command(installation.environment, "sync", "--full", "--json").stdout)

    assert (1, 0, 2) == tuple(result[name] for name in ("changed", "texts_embedded", "texts_reused"))


def test_dagster_shows_the_partitions(
    installation: Installation, make_installation: Callable[..., Installation]
) -> None:
    """A sync from the command line leaves a run and one partition a note where the UI looks for them."""
    installation.vault.write('01_Projects/...odd, "name".md', NOTE)
    installation.vault.write("01_Projects/b.md", NOTE.replace("caches", "queues"))
    installation.vault.commit()
    command(installation.environment, "sync")
    program = (
        "import json, dagster as dg\n"
        "with dg.DagsterInstance.get() as i:\n"
        "    keys = i.get_dynamic_partitions('vault_notes')\n"
        "    done = i.get_materialized_partitions(dg.AssetKey('memory_notes'))\n"
        "    print(json.dumps([sorted(keys), sorted(done), sorted(r.job_name + ' ' + r.status.value for r in i.get_runs())]))\n"
    )
    exported = command(installation.environment, "env").stdout
    variables = dict(line.removeprefix("export ").split("=", 1) for line in exported.splitlines())
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": os.environ["PATH"], **{name: value.strip("'") for name, value in variables.items()}},
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip

    keys, materialized, statuses = json.loads(done.stdout)

    assert ["01_Projects/%2E%2E%2Eodd%2C %22name%22.md", "01_Projects/b.md"] == keys == materialized
    assert ["memory_index_job SUCCESS", "vault_sync SUCCESS"] == statuses
