"""Dagster's pages in a real browser: what a user sees of memory, and what two clicks do to failed notes and to all.

The pictures are kept in ``artefacts/screenshots``, or where ``VAULT_MEMORY_PICTURES`` says: those of ``docs/dagster.md`` are
made by ``VAULT_MEMORY_PICTURES=docs/images/dagster python -m pytest vault_memory_tests/e2e/defs/test_web.py``.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest

from vault_memory.defs.instance import open_instance
from vault_memory.defs.partitions import Names
from vault_memory_tests.fixtures.browser import Page, browser, program
from vault_memory_tests.fixtures.deployment import CHECKOUT, Deployment, deployed, wait_for
from vault_memory_tests.fixtures.installation import Installation

EXAMPLE = CHECKOUT / "vault_memory" / "example" / "vault"
FAILING = ("01_Projects/garden shed/plan.md", "02_Areas/厨房/sourdough.md")
PICTURES = Path(os.environ.get("VAULT_MEMORY_PICTURES") or CHECKOUT / "artefacts" / "screenshots")
BACKFILL_SECONDS = 240  # Dagster looks for backfills every 30 s
SLOW = 240  # a page on a busy machine
READ = 31  # notes of the example that have a partition


@dataclass(slots=True)
class Visit:
    """A user before Dagster's pages, and the memory behind them."""

    page: Page
    ui: Deployment
    store: psycopg.Connection[Any]
    names: Names

    def go(self, path: str) -> None:
        """Open a page."""
        self.page.open(f"http://127.0.0.1:{self.ui.port}/{path}")

    def partitions(self) -> None:
        """Open the list of notes."""
        self.go("assets/memory_notes?view=partitions")
        self.page.see(r"^\d+ Partitions Selected$", seconds=SLOW)

    def launch(self, which: str, shown: str) -> None:
        """Press "Materialize", choose partitions, see how many those are, and launch."""
        self.partitions()
        self.page.click("^Materialize…$")
        self.page.see("^Launch runs to materialize memory_notes$")
        self.page.click_until(f"^{which}$", f"^{shown}$")
        self.page.picture(f"materialize_{which.lower()}")
        self.page.click(r"^Launch (backfill|\d+ runs?)$")

    def written(self) -> dict[str, object]:
        """Return when each note in memory was written."""
        return dict(self.store.execute("SELECT id, updated_at FROM vault_memory.memory_primary").fetchall())

    def index_runs(self) -> int:
        """Count the finished runs that counted and checked the index."""
        return sum(run.is_finished for run in self.ui.runs(self.names.index_job))


@pytest.fixture
def visit(
    make_installation: Callable[..., Installation], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[tuple[Visit, Installation, list[Path]]]:
    """The example in memory but for two notes whose content git cannot give; the files that would mend it."""
    config = tmp_path / "patient.toml"  # no retry comes between: what turns a note green is the click
    config.write_text("[sync]\nretry_base_seconds = 36000\nretry_max_seconds = 36000\n")
    config.chmod(0o600)
    installation = make_installation(VAULT_MEMORY_CONFIG=str(config))
    vault, settings = installation.vault, installation.settings
    monkeypatch.setenv("DAGSTER_HOME", "")
    monkeypatch.setenv("VAULT_MEMORY_DAGSTER_DSN", "")
    assert settings.dsn is not None
    assert settings.dagster_dsn is not None
    for file in EXAMPLE.rglob("*"):
        if file.is_file():
            vault.write(str(file.relative_to(EXAMPLE)), file.read_bytes())
    vault.commit()
    away = [_move_away(vault.path, vault.git("rev-parse", f"HEAD:{note}")) for note in FAILING]
    environment = {key: value for key, value in installation.environment.items() if not key.endswith("DAGSTER_DSN")}
    with (
        psycopg.connect(settings.dsn, autocommit=True) as store,
        open_instance(settings, settings.dagster_dsn) as instance,
        deployed(instance, settings.dagster_home, "vault_memory.definitions", environment) as ui,
        browser(PICTURES) as page,
    ):
        visit = Visit(page, ui, store, Names.of(settings))
        wait_for(visit.index_runs, SLOW)
        yield visit, installation, away


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(program() is None, reason="no Chromium")
def test_a_user_sees_memory_and_mends_it_by_clicking(visit: tuple[Visit, Installation, list[Path]]) -> None:
    """Lineage, partitions, why notes failed; "Failed" turns those green and touches no other; "All" writes every one."""
    user, installation, away = visit
    _look_around(user)
    _find_out_why(user)
    _mend_failed(user, away)
    _write_all(user)
    installation.vault.write("01_Projects/one more.md", "# One more\n\nA note that makes the plots move.\n")
    installation.vault.commit()
    _look_at_index(user)
    assert [] == user.page.trouble


def _look_around(user: Visit) -> None:
    page = user.page
    user.go("asset-groups")
    page.see(r"\(2 failed\)$", seconds=SLOW)
    for words in ("^vault$", "^memory_notes$", "^memory_index$", "^4 / 4 Passed$", "^markdown$"):
        page.see(words)
    page.picture("lineage")
    user.partitions()
    page.see(r"^Failed \(2\)$")
    page.see(rf"^Materialized \({READ - 2}\)$")
    page.picture("partitions")
    page.click("ed/materials.md$")
    for words in ("^texts_embedded$", "^added$", "^milliseconds$"):
        page.see(words)
    page.picture("note")


def _find_out_why(user: Visit) -> None:
    page = user.page
    user.partitions()
    page.click(r"^Materialized \(")  # off: the failed ones are left
    page.click("n shed/plan.md$")
    page.see("failed, and did not materialize this asset")
    page.picture("failed_note")
    (failed,) = [run for run in user.ui.runs(user.names.sync_job) if not run.is_success]
    user.go(f"runs/{failed.run_id}")
    page.see(f"2 of {READ} notes failed", seconds=SLOW)
    for words in (*FAILING, "to try now: asset page, Partitions, failed, Materialize"):
        assert words in page.text()
    page.picture("failed_run")


def _mend_failed(user: Visit, away: list[Path]) -> None:
    before = user.written()
    assert not before.keys() & set(FAILING)
    for file in away:
        file.rename(file.with_name(file.name.removesuffix(".away")))
    user.launch("Failed", "2 partitions")
    wait_for(lambda: len(user.written()) == len(before) + 2, BACKFILL_SECONDS)
    user.partitions()
    user.page.see(rf"^Materialized \({READ}\)$", seconds=SLOW)
    user.page.see(r"^Failed \(0\)$")
    user.page.picture("mended")
    assert before == {note: when for note, when in user.written().items() if note not in FAILING}


def _write_all(user: Visit) -> None:
    before = user.written()
    user.launch("All", f"{READ} partitions")
    wait_for(lambda: not set(before.items()) & set(user.written().items()), BACKFILL_SECONDS)
    assert before.keys() == user.written().keys()
    wait_for(lambda: not user.ui.instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])), SLOW)
    user.go("runs")
    user.page.see("^Succe(ss|eded)$|^Completed$", seconds=SLOW)
    user.page.picture("runs")


def _look_at_index(user: Visit) -> None:
    runs = user.index_runs()
    wait_for(lambda: user.index_runs() > runs, SLOW)
    user.go("assets/memory_index?view=overview")
    user.page.see("^search_milliseconds$", seconds=SLOW)
    for words in ("^vault-memory$", "^Freshness policy$", "^index_job$|memory_index_job"):
        user.page.see(words)
    user.page.picture("index")
    user.page.see("^Passing$", seconds=SLOW)  # Dagster's daemon looks at the freshness policy every 30 s
    user.page.click("^Plots$")
    user.page.see("^notes$")
    user.page.see("^chunks$")
    user.page.picture("plots")
    user.go("assets/memory_index?view=checks")
    user.page.see("^index_self_check$", seconds=SLOW)
    user.page.picture("checks")


def _move_away(vault: Path, blob: str) -> Path:
    file = vault / ".git/objects" / blob[:2] / blob[2:]
    return file.rename(file.with_name(f"{file.name}.away"))
