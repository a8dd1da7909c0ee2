"""Much at once: thousands of files, hundreds of commits, huge notes; runs, ticks and memory stay within their bounds.

The figures that a test prints are shown by ``pytest -s``.
"""

import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest

from vault_memory import settings as settings_module
from vault_memory.commands.status import status
from vault_memory.defs.instance import open_instance
from vault_memory.defs.sensors import TICK_SECONDS
from vault_memory.ingest.sync import Synchronizer
from vault_memory.query.search import search
from vault_memory_tests.e2e.crash.matrix import CONTEXT
from vault_memory_tests.fixtures.deployment import deployed, wait_for
from vault_memory_tests.fixtures.installation import Installation, walk
from vault_memory_tests.fixtures.online import rows
from vault_memory_tests.fixtures.postgres import SCHEMA
from vault_memory_tests.fixtures.rebuild import contents, differences
from vault_memory_tests.integration.defs.test_retries import MakeWorld, open_world  # noqa: F401 - a fixture

MEGABYTE = 2**20
TICK_LIMIT_SECONDS = 60.0  # Dagster's, after which it ends a tick


@pytest.fixture(autouse=True)
def _own_dagster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take back what a sync sets in this process."""
    monkeypatch.setenv("DAGSTER_HOME", "")
    monkeypatch.setenv("VAULT_MEMORY_DAGSTER_DSN", "")


def import_notes(installation: Installation, names: Iterator[str]) -> str:
    """Commit many tiny notes in one go, without writing files: git fast-import."""
    stream = [b"commit refs/heads/main\ncommitter t <t@example.invalid> 1700000000 +0000\ndata 1\nc\n"]
    if installation.vault.commits:
        stream.append(b"from refs/heads/main^0\n")
    for name in names:
        text = f"# {name}\n\nWords about {name}.\n".encode()
        stream.append(b"M 100644 inline 01_Projects/%s.md\ndata %d\n%s\n" % (name.encode(), len(text), text))
    installation.vault.git("fast-import", "--quiet", "--force", stdin=b"".join(stream))
    installation.vault.commits += 1
    return installation.vault.head


def measured(work: Callable[[Any], Any], given: object) -> tuple[Any, float, float]:
    """Run something in a fresh process; returns its result, its seconds and its greatest memory in megabytes."""
    ours, theirs = CONTEXT.Pipe()
    process = CONTEXT.Process(target=_measured, args=(work, given, theirs))
    process.start()
    theirs.close()
    assert ours.poll(1500), "it does not end"
    told = ours.recv()
    process.join(30)
    return told


def _measured(work: Callable[[Any], Any], given: object, told: Connection) -> None:
    started = time.monotonic()
    result = work(given)
    seconds = time.monotonic() - started
    told.send((result, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def sync_all(environment: dict[str, str]) -> tuple[int, int]:
    """Run ``vault-memory sync``; returns its exit status and how many notes it touched."""
    from vault_memory.commands.sync import sync  # noqa: PLC0415 - in the process that is measured

    os.environ.update(environment)
    result = sync(settings_module.load(environment))
    return result.exit_status, len(result.outcomes)


def plan_all(environment: dict[str, str]) -> tuple[int, int]:
    """Plan; returns the notes that need a run and those that do not."""
    with Synchronizer.open(settings_module.load(environment)) as synchronizer:
        plan = synchronizer.plan()
        return len(plan.note_ids), plan.unchanged


def told(line: str) -> None:
    """Show a figure."""
    sys.stdout.write(f"\n{line}\n")


def test_a_note_of_five_megabytes_is_named_and_costs_no_other(installation: Installation) -> None:
    """Over the limit it is quarantined by name without being read into memory's tables; others are not held up."""
    installation.vault.write("01_Projects/a.md", "# A\n\nWords about caches.\n")
    installation.vault.write(
        "01_Projects/huge.md", "# Huge\n\n" + "A line of a very long note. \n" * (5 * MEGABYTE // 28)
    )
    installation.vault.commit()

    outcomes = installation.steps()

    assert {"01_Projects/a.md": "added", "01_Projects/huge.md": "quarantined"} == {
        note: outcome.action for note, outcome in outcomes.items()
    }
    assert [("01_Projects/huge.md", "too_large")] == rows(
        installation, "SELECT id, reason FROM note_state WHERE status = 'quarantined'"
    )
    assert 1 == status(installation.settings).to_json()["quarantined"]


@pytest.mark.slow  # some thousand chunks
@pytest.mark.timeout(900)
def test_a_note_of_five_megabytes_where_the_limit_allows_it(
    make_installation: Callable[..., Installation], tmp_path: Path
) -> None:
    """With a higher limit it is in memory whole: its first and its last line are found."""
    config = tmp_path / "config.toml"
    config.write_text("[scan]\nmax_note_bytes = 8000000\ntime_budget_seconds = 120.0\n")
    installation = make_installation(VAULT_MEMORY_CONFIG=str(config))
    lines = [f"## Part {number}\n\n" + f"line {number} of a long note " * 40 for number in range(5 * MEGABYTE // 990)]
    text = "# Huge\n\nalphaword\n\n" + "\n\n".join(lines) + "\n\nomegaword\n"
    assert len(text) >= 5 * MEGABYTE
    installation.vault.write("01_Projects/huge.md", text)
    installation.vault.commit()

    (exit_status, _), seconds, peak = measured(sync_all, installation.environment)

    assert 0 == exit_status
    for word in ("alphaword", "omegaword"):
        assert search(word, settings=installation.settings, mode="keyword").items
    ((chunks,),) = rows(installation, "SELECT count(*) FROM memory_chunk")
    told(f"5 MB note: {chunks} chunks, {seconds:.1f} s, peak {peak:.0f} MB")
    assert peak < 1000


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_fifty_thousand_tiny_notes_are_planned(installation: Installation) -> None:
    """The first plan names them all, the next one only what changed; both in seconds and bounded memory."""
    import_notes(installation, (f"n{number:05d}" for number in range(50_000)))
    (first, _), seconds, peak = measured(plan_all, installation.environment)
    told(f"50,000 new notes: planned in {seconds:.1f} s, peak {peak:.0f} MB")
    assert 50_000 == first
    assert seconds < TICK_LIMIT_SECONDS / 2
    assert peak < 700

    with Synchronizer.open(installation.settings) as synchronizer:  # as if all had been written
        rules = synchronizer.rules(synchronizer.head()).id
        blobs = [(entry.path.id, entry.blob_id) for entry in synchronizer.vault.tree(synchronizer.head() or "")]
    with psycopg.connect(installation.environment["VAULT_MEMORY_DSN"], autocommit=True) as connection:
        connection.execute(f"SET search_path = {SCHEMA}, public")
        ids, hashes = [note for note, _ in blobs], [blob for _, blob in blobs]
        connection.execute(
            """INSERT INTO memory_primary (id, source, content, content_hash, blob_id, title, tags, front_matter, links,
                                           commit, ruleset_id, model, token_count)
               SELECT id, id, '', '', blob, '', '{}', '{}', '{}', '', %s, '', 0
               FROM unnest(%s::text[], %s::text[]) AS t (id, blob)""",
            [rules, ids, hashes],
        )
        connection.execute(
            """INSERT INTO note_state (id, status, blob_tag, ruleset_id) SELECT id, 'indexed', blob_id, ruleset_id
               FROM memory_primary"""
        )
        connection.execute("UPDATE sync_state SET ruleset_id = %s", [rules])
    import_notes(installation, iter(["n00007x"]))
    (second, unchanged), seconds, peak = measured(plan_all, installation.environment)
    told(f"one of 50,001 notes: planned in {seconds:.1f} s, peak {peak:.0f} MB")
    assert (1, 50_000) == (second, unchanged)
    assert seconds < TICK_LIMIT_SECONDS / 2
    assert peak < 700


@pytest.mark.slow  # 5,500 notes through Dagster
@pytest.mark.timeout(1800)
def test_a_commit_of_five_thousand_files(
    installation: Installation,
    open_world: MakeWorld,  # noqa: F811 - the fixture above
) -> None:
    """Bounded runs, a tick far under its limit, and no more memory than for five hundred."""
    import_notes(installation, (f"few{number}" for number in range(500)))
    (exit_status, touched), _, few = measured(sync_all, installation.environment)
    assert (0, 500) == (exit_status, touched)
    import_notes(installation, (f"many{number}" for number in range(5_000)))
    with open_world(installation) as world:
        started = time.monotonic()
        asked = [request for request in world.tick().run_requests or [] if request.job_name == world.names.sync_job]
        tick = time.monotonic() - started
    (exit_status, touched), seconds, many = measured(sync_all, installation.environment)
    settings = installation.settings
    assert settings.dagster_dsn is not None
    with open_instance(settings, settings.dagster_dsn) as instance:
        runs = instance.get_runs(dg.RunsFilter(job_name=world.names.sync_job))
        sizes = [
            len(instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION).records)
            for run in runs
        ]

    told(
        f"5,000 files in one commit: tick {tick:.1f} s of {TICK_LIMIT_SECONDS:.0f}, {len(runs) - 2} runs of at most"
        f" {max(sizes)} notes, {seconds:.0f} s in all, peak {many:.0f} MB ({few:.0f} MB for 500)"
    )
    assert 1 == len(asked)
    assert (0, 5_000) == (exit_status, touched)
    assert max(sizes) <= settings.sync.max_notes_per_run
    assert tick < TICK_LIMIT_SECONDS - TICK_SECONDS
    assert many < few + 100


@pytest.mark.slow  # a minute of commits
@pytest.mark.timeout(600)
def test_two_hundred_commits_in_a_minute(
    make_installation: Callable[..., Installation], make_database: Callable[..., str], template_database: str
) -> None:
    """They coalesce into few runs, no tick fails, and the end is as in a rebuild."""
    installation = make_installation()
    vault, settings = installation.vault, installation.settings
    assert settings.dagster_dsn is not None
    for number in range(20):
        vault.write(f"01_Projects/n{number}.md", f"# N{number}\n\nThe first words.\n")
    vault.commit()
    environment = {key: value for key, value in installation.environment.items() if not key.endswith("DAGSTER_DSN")}
    with (
        psycopg.connect(installation.environment["VAULT_MEMORY_DSN"], autocommit=True) as store,
        open_instance(settings, settings.dagster_dsn) as instance,
        deployed(instance, settings.dagster_home, "vault_memory.definitions", environment) as ui,
    ):

        def is_at(commit: str) -> bool:
            row = store.execute(f"SELECT commit, under_way FROM {SCHEMA}.sync_state").fetchone()
            return row == (commit, False)

        wait_for(lambda: is_at(vault.head), 120)
        started = time.monotonic()
        for number in range(200):
            vault.write(f"01_Projects/n{number % 20}.md", f"# N{number % 20}\n\nWords of commit {number}.\n")
            if number % 10 == 0:
                vault.write(f"01_Projects/extra{number}.md", f"# Extra\n\nExtra words of {number}.\n")
            if number % 10 == 5:
                vault.rename(f"01_Projects/extra{number - 5}.md", f"02_Areas/extra{number}.md")
            vault.commit()
            time.sleep(max(0.0, started + (number + 1) * 0.3 - time.monotonic()))
        commits = time.monotonic() - started
        wait_for(lambda: is_at(vault.head), 120)
        behind = time.monotonic() - started - commits
        runs = [run for run in ui.runs("vault_sync") if run.status is dg.DagsterRunStatus.SUCCESS]
        failed = [run for run in ui.runs("vault_sync") if run.status is dg.DagsterRunStatus.FAILURE]
        (sensor,) = [one for one in instance.all_instigator_state() if one.instigator_name == "vault_head"]
        ticks = instance.get_ticks(sensor.instigator_origin_id, sensor.selector_id, limit=500)

    rebuilt = make_database(template_database)
    values = {**installation.environment, "VAULT_MEMORY_DSN": rebuilt}
    with Synchronizer.open(settings_module.load(values)) as synchronizer:
        walk(synchronizer)
    with psycopg.connect(rebuilt, autocommit=True) as connection:
        expected = contents(connection, SCHEMA)
    with psycopg.connect(installation.environment["VAULT_MEMORY_DSN"], autocommit=True) as connection:
        assert [] == differences(expected, contents(connection, SCHEMA))
    longest = max((tick.end_timestamp or tick.timestamp) - tick.timestamp for tick in ticks)
    told(
        f"200 commits in {commits:.0f} s: {len(runs)} runs, {len(ticks)} ticks of at most {longest:.1f} s, at HEAD"
        f" {behind:.1f} s after the last commit"
    )
    assert [] == failed
    assert [] == [tick for tick in ticks if tick.status.value == "FAILURE"]
    assert longest < TICK_LIMIT_SECONDS
    assert len(runs) < 100
