"""The buttons of Dagster's pages, by the mutations they send, on a real vault: failed notes, and backfills of all."""

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from vault_memory.defs.instance import open_instance
from vault_memory.defs.partitions import Names
from vault_memory_tests.fixtures.deployment import Deployment, deployed, wait_for
from vault_memory_tests.fixtures.installation import Installation

BACKFILL_SECONDS = 240  # Dagster looks for backfills every 30 s
DONE, FAILED = "COMPLETED_SUCCESS", "COMPLETED_FAILED"
_STATUSES = """query($asset: AssetKeyInput!) { assetNodeOrError(assetKey: $asset) { ... on AssetNode {
  assetPartitionStatuses { ... on DefaultPartitionStatuses { materializedPartitions failedPartitions } } } } }"""


def colours(ui: Deployment, asset: str) -> tuple[list[str], list[str]]:
    """Return the partitions that the asset page shows green and red."""
    found = ui.ask(_STATUSES, asset={"path": [asset]})["assetNodeOrError"]["assetPartitionStatuses"]
    return sorted(found["materializedPartitions"]), sorted(found["failedPartitions"])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_failed_notes_and_whole_backfills(
    make_installation: Callable[..., Installation], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Failed partitions alone are run again; all are, with what fails named, and a backfill from its failure on."""
    # No retry comes between: what turns a note green is the button.
    config = tmp_path / "patient.toml"
    config.write_text("[sync]\nretry_base_seconds = 3600\n")
    config.chmod(0o600)
    installation = make_installation(VAULT_MEMORY_CONFIG=str(config))
    vault, settings = installation.vault, installation.settings
    monkeypatch.setenv("DAGSTER_HOME", "")
    monkeypatch.setenv("VAULT_MEMORY_DAGSTER_DSN", "")
    assert settings.dsn is not None
    assert settings.dagster_dsn is not None
    names = Names.of(settings)
    asset = names.notes.path[-1]
    environment = {key: value for key, value in installation.environment.items() if not key.endswith("DAGSTER_DSN")}
    every = [f"01_Projects/{name}.md" for name in "abcd"]
    for note in every:
        vault.write(note, f"# {note}\n\nText of {note}.\n")
    vault.commit()
    blob = vault.git("rev-parse", "HEAD:01_Projects/b.md")
    file = vault.path / ".git/objects" / blob[:2] / blob[2:]
    away = file.rename(file.with_name("away"))
    with (
        psycopg.connect(settings.dsn, autocommit=True) as store,
        open_instance(settings, settings.dagster_dsn) as instance,
        deployed(instance, settings.dagster_home, "vault_memory.definitions", environment) as ui,
    ):

        def written() -> dict[str, object]:
            rows = store.execute("SELECT id, updated_at FROM vault_memory.memory_primary").fetchall()
            return {row[0]: row[1] for row in rows}

        def over(backfill: str) -> str:
            return wait_for(
                lambda: (status := ui.backfill_status(backfill)) in (DONE, FAILED) and status, BACKFILL_SECONDS
            )

        # one note fails, and is red alone
        wait_for(lambda: len(written()) == 3)
        wait_for(lambda: colours(ui, asset) == ([every[0], *every[2:]], [every[1]]))
        before = written()

        # "Materialize" on the failed ones, after the mend: that one turns green, no other is touched
        away.rename(file)
        assert DONE == over(ui.backfill(asset, [every[1]]))
        assert (every, []) == wait_for(lambda: (found := colours(ui, asset)) == (every, []) and found)
        assert before == {note: when for note, when in written().items() if note != every[1]}

        # "Materialize all": every note is written again, the one that fails is named
        before = written()
        away = file.rename(file.with_name("away"))
        failing = ui.backfill_all(asset)
        assert FAILED == over(failing)
        after = written()
        assert [every[1]] == [note for note in every if before[note] == after[note]]
        assert [every[1]] == colours(ui, asset)[1]

        # the backfill again from its failure on, after the mend: that note alone
        away.rename(file)
        assert DONE == over(ui.reexecute_backfill(failing, "FROM_FAILURE"))
        assert (every, []) == colours(ui, asset)
        last = written()
        assert [every[1]] == [note for note in every if after[note] != last[note]]

        # and all of it again
        assert DONE == over(ui.reexecute_backfill(failing, "ALL_STEPS"))
        assert [] == [note for note, when in written().items() if when == last[note]]
