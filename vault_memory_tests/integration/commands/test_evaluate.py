"""``vault-memory eval`` on the example vault, and the same as a check of Dagster."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path

import dagster as dg
import pytest

from vault_memory.commands.demo import example_files
from vault_memory.defs.build import build_definitions
from vault_memory.defs.partitions import Names
from vault_memory.defs.resources import VaultSession, open_synchronizer, session_resource
from vault_memory.settings import EvalSettings
from vault_memory_tests.fixtures.installation import Installation

QUESTIONS = Path(str(resources.files("vault_memory") / "example/questions.jsonl"))


@pytest.fixture
def example(installation: Installation) -> Installation:
    """The example vault, in memory."""
    for name, content in example_files().items():
        installation.vault.write(name, content)
    installation.vault.commit()
    installation.steps()
    return installation


@pytest.fixture
def command(example: Installation) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``vault-memory eval`` as a process."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "vault_memory.cli", "eval", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={"PATH": os.environ["PATH"], **example.environment},
        )

    return run


def test_the_example_is_measured(command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    """Two settings side by side as JSON, with a page to look at; a minimum that is not reached is exit 1."""
    page = tmp_path / "page.html"
    done = command(str(QUESTIONS), "--compare", "hybrid,keyword", "--json", "--plot", str(page), "--min-recall", "0.9")
    assert (0, "") == (done.returncode, done.stderr)
    told = json.loads(done.stdout)
    assert (25, ["hybrid", "keyword"], True) == (
        told["questions"],
        [setting["mode"] for setting in told["settings"]],
        told["passed"],
    )
    overall = told["settings"][0]["overall"]
    assert overall["recall@5"]["low"] <= overall["recall@5"]["value"] <= overall["recall@5"]["high"]
    assert 0.9 <= overall["recall@block"]["value"]
    assert {"lang=en", "lang=zh", "lang=mixed"} < set(told["settings"][0]["slices"])
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")

    worse = tmp_path / "hard.jsonl"
    worse.write_text('{"query": "zebrafish", "sources": ["01_Projects/none.md"]}\n')
    failed = command(str(worse), "--min-recall", "0.5")
    assert (1, "vault-memory: Recall@5 is 0.000, below 0.5\n") == (failed.returncode, failed.stderr)
    assert "recall@5      0.000" in failed.stdout


def test_mistakes_are_one_line(command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    """A malformed question, a setting that is none, and a picture that we do not draw: exit 2, nothing measured."""
    broken = tmp_path / "q.jsonl"
    broken.write_text('{"query": "zebrafish"}\n')
    for arguments, message in (
        ((str(broken),), f"vault-memory: {broken}:1: sources: want a list of at least one path\n"),
        ((str(QUESTIONS), "--compare", "hybrid,magic"), "vault-memory: a setting is a mode"),
        ((str(QUESTIONS), "--plot", "x.gif"), "vault-memory: the plot is written as .png, .html or .svg\n"),
    ):
        done = command(*arguments)
        assert (2, "", 1) == (done.returncode, done.stdout, done.stderr.count("\n"))
        assert done.stderr.startswith(message)


def test_dagster_checks_the_answers(example: Installation, tmp_path: Path) -> None:
    """The check fails below the minimum, has numbers to plot, and says in one line what is wrong with the questions."""
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join(QUESTIONS.read_text(encoding="utf-8").splitlines()[:3]), encoding="utf-8")
    settings = example.settings
    names = Names()
    definitions = build_definitions(
        names,
        resources={names.resource: session_resource(lambda: VaultSession(lambda: settings, open_synchronizer))},
        with_evaluation=True,
    )
    job = definitions.resolve_job_def(names.index_job)
    seen = []
    with dg.DagsterInstance.ephemeral() as instance:
        for given in (EvalSettings(few, 0.5), EvalSettings(few, 1.0), EvalSettings(tmp_path / "none"), EvalSettings()):
            settings = replace(example.settings, eval=given)
            if given.min_recall == 1.0:
                with few.open("a", encoding="utf-8") as file:
                    file.write('\n{"query": "zebrafish", "sources": ["none.md"]}\n')
            done = job.execute_in_process(instance=instance)
            assert done.success
            seen.append(next(c for c in done.get_asset_check_evaluations() if c.check_name == "answers_questions"))
        observed = instance.fetch_observations(names.index, limit=5).records
    good, bad, missing, unset = seen
    assert (True, 3, 1.0) == (good.passed, good.metadata["questions"].value, good.metadata["recall_at_5"].value)
    assert (False, 0.75, dg.AssetCheckSeverity.WARN) == (bad.passed, bad.metadata["recall_at_5"].value, bad.severity)
    assert (False, False) == (missing.passed, unset.passed)
    assert "cannot be read (FileNotFoundError)" in str(missing.description)
    assert "no questions are configured" in str(unset.description)
    assert [0.75, 1.0] == [record.asset_observation.metadata["recall_at_5"].value for record in observed]


def test_the_check_is_there_only_if_questions_are_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path in the configuration, relative to it, brings the check; a share above 1 is refused."""
    config = tmp_path / "config.toml"
    for name in list(os.environ):
        if name.startswith("VAULT_MEMORY_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("VAULT_MEMORY_CONFIG", str(config))
    counts = []
    for text in ("", '[eval]\nquestions = "q.jsonl"\nmin_recall = 0.8\n'):
        config.write_text(text)
        counts.append(len(list(build_definitions().asset_checks or ())))
    assert [1, 2] == counts
