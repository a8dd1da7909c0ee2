"""Two vaults of one configuration file: each has one writer, and neither waits for the other."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import dagster as dg
import pytest

from vault_memory import settings as settings_module
from vault_memory.defs.instance import open_instance
from vault_memory.defs.partitions import COMMIT_TAG, Names
from vault_memory.ingest.sync import Synchronizer
from vault_memory.query.search import search
from vault_memory.settings import Settings
from vault_memory_tests.e2e.test_commands import command
from vault_memory_tests.fixtures.deployment import deployed, wait_for
from vault_memory_tests.fixtures.embedding_server import EmbeddingServer
from vault_memory_tests.fixtures.installation import Installation
from vault_memory_tests.fixtures.vault import VaultRepo


@dataclass
class Pair:
    """Two vaults that share an installation."""

    repositories: dict[str, VaultRepo]
    vaults: tuple[Settings, ...]
    environment: dict[str, str]

    def commit(self, name: str, path: str, text: str) -> None:
        """Commit a note in one of them."""
        self.repositories[name].write(path, text)
        self.repositories[name].commit()


@pytest.fixture
def make_pair(
    make_installation: Callable[..., Installation], make_vault: Callable[..., VaultRepo], tmp_path: Path
) -> Callable[..., Pair]:
    """Return a factory of ``home`` and ``work``, each with one note."""

    def make(**environment: str) -> Pair:
        repositories = {
            name: make_vault(name, {"01_Projects/first.md": f"# {name} harbour\n"}) for name in ("home", "work")
        }
        config = tmp_path / "config.toml"
        config.write_text(
            "".join(f'[vaults.{name}]\npath = "{one.path}"\n' for name, one in repositories.items()), encoding="utf-8"
        )
        made = make_installation(
            repositories["home"], VAULT_MEMORY_VAULT="", VAULT_MEMORY_CONFIG=str(config), **environment
        )
        return Pair(repositories, settings_module.load_all(made.environment), made.environment)

    return make


def test_commands_go_through_all_vaults_or_one(make_pair: Callable[..., Pair]) -> None:
    """``sync`` and ``status`` take all, a busy or broken vault holds up no other, and one note's command asks which."""
    pair = make_pair()
    home, work = pair.vaults
    with Synchronizer.open(home) as synchronizer, synchronizer.writer(5, holder="somebody"):
        done = command(pair.environment, "sync", "--json", "--wait", "0.2")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert (3, ["work"]) == (done.returncode, [line["name"] for line in lines])
        assert (1, "work") == (lines[0]["added"], search("harbour", vaults=(work,)).items[0].vault)
        assert "vault-memory: vault home: " in done.stderr
        assert "somebody" in done.stderr
    done = command(pair.environment, "sync", "--vault", "home")
    assert (0, "") == (done.returncode, done.stderr)
    assert "[home]" not in done.stdout
    assert ["home", "work"] == [
        json.loads(line)["name"] for line in command(pair.environment, "status", "--json").stdout.splitlines()
    ]
    assert ["[home]", "[work]"] == [
        line for line in command(pair.environment, "status").stdout.splitlines() if line.startswith("[")
    ]
    held = command(pair.environment, "quarantine", "list")
    assert (0, "[home]\n[work]\n") == (held.returncode, held.stdout)
    for arguments in (("forget", "01_Projects/first.md"), ("quarantine", "list", "--json"), ("dump", "x.dump")):
        done = command(pair.environment, *arguments)
        assert (3, 1) == (done.returncode, done.stderr.count("\n"))
        assert "there are several vaults: say which with --vault, one of home, work" in done.stderr
    assert 0 == command(pair.environment, "forget", "01_Projects/first.md", "--vault", "work").returncode
    answered = command(pair.environment, "query", "harbour")
    assert (1, '"vault":"home"' in answered.stdout) == (answered.stdout.count("first.md"), True)
    assert (
        "no vault is called 'x'; known: home, work"
        in command(pair.environment, "query", "harbour", "--vault", "x").stderr
    )


def test_dagster_has_a_source_set_for_each_vault(
    make_pair: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Assets, jobs, sensors and resources of two vaults share no name, and each resource opens its own vault."""
    from vault_memory.defs.build import build_definitions  # noqa: PLC0415 - reads the environment

    pair = make_pair()
    for name, value in pair.environment.items():
        monkeypatch.setenv(name, value)
    repository = build_definitions().get_repository_def()
    for settings in pair.vaults:
        names = Names.of(settings)
        assert {names.vault, names.notes, names.index} <= set(repository.asset_graph.get_all_asset_keys())
        assert {names.sync_job, names.index_job} <= {job.name for job in repository.get_all_jobs()}
        assert names.sensor in {sensor.name for sensor in repository.sensor_defs}
        resource = repository.get_top_level_resources()[names.resource]
        with dg.build_resources({"vault": resource}) as opened:
            assert settings.vault == opened.vault.settings.vault
    assert 6 == len(set(repository.asset_graph.get_all_asset_keys()))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_one_daemon_follows_both_and_neither_waits(
    make_pair: Callable[..., Pair], embedding_server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a writer holds one vault the other follows its commits; free, their runs overlap, one at a time each."""
    key = "sk-loopback-only"
    pair = make_pair(
        VAULT_MEMORY_EMBEDDER="openai",
        VAULT_MEMORY_EMBEDDING_BASE_URL=embedding_server.url,
        VAULT_MEMORY_EMBEDDING_ALLOW_HTTP_LOOPBACK="1",
        OPENROUTER_API_KEY=key,
    )
    home, work = pair.vaults
    monkeypatch.setenv("DAGSTER_HOME", "")
    monkeypatch.setenv("VAULT_MEMORY_DAGSTER_DSN", "")
    assert home.dagster_dsn is not None
    environment = {name: value for name, value in pair.environment.items() if not name.endswith("DAGSTER_DSN")}

    def found(settings: Settings, word: str) -> bool:
        return any(word in hit.text for hit in search(word, settings=settings, mode="keyword").items)

    for settings in pair.vaults:
        with Synchronizer.open(settings):
            pass  # the schema
    with (
        open_instance(home, home.dagster_dsn) as instance,
        open_instance(work, home.dagster_dsn),
        deployed(instance, home.dagster_home, "vault_memory.definitions", environment),
    ):
        wait_for(lambda: found(home, "harbour") and found(work, "harbour"), 180)
        with Synchronizer.open(home) as synchronizer, synchronizer.writer(30, holder="test"):
            pair.commit("home", "01_Projects/second.md", "# the lighthouse\n")
            pair.commit("work", "01_Projects/second.md", "# the lighthouse\n")
            wait_for(lambda: found(work, "lighthouse"), 120)
            assert not found(home, "lighthouse")
        wait_for(lambda: found(home, "lighthouse"), 120)

        wait_for(lambda: all(_is_settled(instance, one) for one in pair.vaults), 180)  # nothing else is left to run
        embedding_server.control(latency_ms=20_000)  # longer than a busy machine takes to start a run
        for name in ("home", "work"):
            pair.commit(name, "01_Projects/third.md", f"# the windmill of {name}\n")
        wait_for(lambda: found(home, "windmill") and found(work, "windmill"), 240)
        wait_for(lambda: all(run.is_finished for run in instance.get_runs()), 60)
        spans = {name: _spans(instance, Names.of(one).sync_job) for name, one in (("home", home), ("work", work))}
    (start, end), (other_start, other_end) = spans["home"][-1], spans["work"][-1]
    assert max(start, other_start) < min(end, other_end)
    for own in spans.values():
        assert all(before[1] <= after[0] for before, after in pairwise(own))


def _is_settled(instance: dg.DagsterInstance, settings: Settings) -> bool:
    """Whether the index of the vault's HEAD was counted and checked, and no run goes on."""
    with Synchronizer.open(settings) as synchronizer:
        head = synchronizer.head() or ""
    counted = dg.RunsFilter(job_name=Names.of(settings).index_job, tags={COMMIT_TAG: head})
    return any(run.is_finished for run in instance.get_runs(counted)) and all(
        run.is_finished for run in instance.get_runs()
    )


def _spans(instance: dg.DagsterInstance, job: str) -> list[tuple[float, float]]:
    """Return start and end of a job's finished runs, oldest first."""
    records = instance.get_run_records(dg.RunsFilter(job_name=job))
    return sorted((record.start_time, record.end_time) for record in records if record.start_time and record.end_time)
