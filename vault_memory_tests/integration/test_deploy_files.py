"""The files of docs/deploy: each is loaded by what would load it there, as far as that can be had here."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.workspace.load import location_origins_from_yaml_paths

from vault_memory.defs.storage import BatchedEventLog, VaultStorage
from vault_memory_tests.fixtures.deployment import CHECKOUT

DEPLOY = CHECKOUT / "docs" / "deploy"
PACKAGED = CHECKOUT / "vault_memory" / "deploy"
PLACES = ("one-machine", "server", "compose", "kubernetes")


def _documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


@pytest.fixture
def loaded(
    request: pytest.FixtureRequest,
    make_database: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[dg.DagsterInstance]:
    """Dagster's instance, as a place's dagster.yaml makes it."""
    monkeypatch.setenv("VAULT_MEMORY_DAGSTER_DSN", make_database())  # as libpq takes it
    (tmp_path / "dagster.yaml").write_bytes((DEPLOY / request.param / "dagster.yaml").read_bytes())
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        yield instance


@pytest.mark.parametrize("loaded", PLACES, indirect=True)
def test_dagster_starts_with_it(loaded: dg.DagsterInstance) -> None:
    """Storage works over the given DSN, and the limits that keep one writer a vault are in force."""
    assert isinstance(loaded.get_ref().storage, VaultStorage)
    assert isinstance(loaded.event_log_storage, BatchedEventLog)
    loaded.add_dynamic_partitions("notes", ["a"])
    assert ["a"] == list(loaded.get_dynamic_partitions("notes"))
    queue = loaded.get_concurrency_config().run_queue_config
    assert queue is not None
    assert 8 == queue.max_concurrent_runs
    assert ["vault-memory/vault"] == [limit["key"] for limit in queue.tag_concurrency_limits]
    assert loaded.run_monitoring_enabled
    assert not loaded.telemetry_enabled


@pytest.mark.parametrize("loaded", ["kubernetes"], indirect=True)
def test_kubernetes_runs_are_jobs(loaded: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster's own launcher accepts its configuration."""
    pytest.importorskip("dagster_k8s")
    monkeypatch.setattr("kubernetes.config.load_incluster_config", lambda: None)
    assert "K8sRunLauncher" == type(loaded.run_launcher).__name__


@pytest.mark.parametrize("place", PLACES)
def test_settings_are_the_packaged_ones(place: str) -> None:
    """What a release changes in its own dagster.yaml cannot be forgotten here."""
    (packaged,) = _documents(PACKAGED / "dagster.yaml")
    (given,) = _documents(DEPLOY / place / "dagster.yaml")
    given.pop("run_launcher", None)
    assert packaged == given


@pytest.mark.parametrize("place", PLACES)
def test_the_workspace_names_one_location(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name that runs are recorded under."""
    monkeypatch.chdir(DEPLOY / place)
    origins = location_origins_from_yaml_paths(["workspace.yaml"])
    assert ["vault_memory"] == [origin.location_name for origin in origins]


def test_units_run_what_there_is() -> None:
    """The unit of systemd has no setting that it would ignore, and each of the three commands knows its options."""
    unit = (DEPLOY / "server" / "vault-memory@.service").read_text(encoding="utf-8")
    assert ["Unit", "Service", "Install"] == re.findall(r"^\[(\w+)\]$", unit, re.MULTILINE)
    assert "$ARGUMENTS" in unit
    for name in ("code", "daemon", "web"):
        ((key, _, command),) = [
            line.partition("=") for line in (DEPLOY / "server" / f"{name}.env").read_text().splitlines()
        ]
        assert "ARGUMENTS" == key
        _knows_options(shlex.split(command))


PROGRAMS = {"dagster-daemon": "dagster._daemon", "dagster-webserver": "dagster_webserver"}
SUBCOMMAND = {"dagster": 3, "dagster._daemon": 2, "dagster_webserver": 1}
_helps: dict[tuple[str, ...], str] = {}


def _knows_options(command: list[str]) -> None:
    """Hold a command's options against its help."""
    program = PROGRAMS.get(command[0], command[0])
    start = (program, *command[1 : SUBCOMMAND[program]])
    if start not in _helps:
        environment = {**os.environ, "COLUMNS": "200"}
        called = [sys.executable, "-m", *start, "--help"]
        _helps[start] = subprocess.run(called, capture_output=True, text=True, check=True, env=environment).stdout
    for option in (word for word in command if word.startswith("-")):
        assert re.search(rf"(?<![\w-]){option}\b", _helps[start]), f"{start} has no {option}"


def test_compose_names_only_what_is_there() -> None:
    """Every service waits for one that exists and mounts files that exist; the page is for this machine alone."""
    (compose,) = _documents(DEPLOY / "compose" / "compose.yaml")
    services = compose["services"]
    assert {"db", "prepare", "code", "daemon", "web"} == services.keys()
    for service in services.values():
        assert service.get("depends_on", {}).keys() <= services.keys()
        for volume in service["volumes"]:
            source = volume.rsplit(":", 2)[0] if volume.endswith(":ro") else volume.split(":")[0]
            is_file = source.startswith("./")
            assert not is_file or (DEPLOY / "compose" / source).exists()
        if service.get("command", ["vault-memory"])[0] != "vault-memory":
            _knows_options(service["command"])
    assert ["127.0.0.1:3000:3000"] == services["web"]["ports"]
    hosts = {"db", "code"}
    assert hosts <= services.keys()
    assert "FROM python:" in (DEPLOY / "compose" / "Dockerfile").read_text(encoding="utf-8")


def test_kubernetes_objects_refer_to_each_other() -> None:
    """Whatever a pod or a run mounts or reads is one of the objects here, or one that the first lines say to make."""
    path = DEPLOY / "kubernetes" / "vault-memory.yaml"
    objects = _documents(path)[0]["items"]
    made = {(one["kind"], one["metadata"]["name"]) for one in objects}
    head = path.read_text(encoding="utf-8").partition("apiVersion")[0]
    made |= {("ConfigMap", "vault-memory-instance")} if "configmap vault-memory-instance" in head else set()
    made |= {("Secret", name) for name in re.findall(r"secret generic (\S+)", head)}
    deployments = [one for one in objects if one["kind"] == "Deployment"]
    assert 3 == len(deployments)
    for one in deployments:
        pod = one["spec"]["template"]["spec"]
        assert one["spec"]["selector"]["matchLabels"] == one["spec"]["template"]["metadata"]["labels"]
        assert ("ServiceAccount", pod["serviceAccountName"]) in made
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for container in (*pod["initContainers"], *pod["containers"]):
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes.keys()
            if container["command"][0] != "vault-memory":
                _knows_options(container["command"])
            for source in container["envFrom"]:
                ((kind, named),) = source.items()
                assert ({"configMapRef": "ConfigMap", "secretRef": "Secret"}[kind], named["name"]) in made
        assert ("Secret", volumes["key"]["secret"]["secretName"]) in made
        assert ("ConfigMap", volumes["instance"]["configMap"]["name"]) in made
    launcher = _documents(DEPLOY / "kubernetes" / "dagster.yaml")[0]["run_launcher"]["config"]
    assert ("ConfigMap", launcher["instance_config_map"]) in made
    assert {("ConfigMap", name) for name in launcher["env_config_maps"]} <= made
    assert {("Secret", name) for name in launcher["env_secrets"]} <= made
    environment = next(one for one in objects if one["kind"] == "ConfigMap")["data"]
    assert launcher["dagster_home"] == environment["DAGSTER_HOME"]
