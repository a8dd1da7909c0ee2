"""The sensor of a plain folder: what it asks for when files change, and what it does when they are out of reach."""

from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

from vault_memory.adapters import directory
from vault_memory.defs.build import build_definitions
from vault_memory.defs.partitions import COMMIT_TAG, Names
from vault_memory.defs.resources import VaultSession
from vault_memory.defs.sensors import Cursor, HeadTick
from vault_memory.ingest.sync import Synchronizer
from vault_memory_tests.fixtures.folder import FolderInstallation
from vault_memory_tests.fixtures.installation import Installation


class Watch:
    """A folder, its sensor, and an instance that is never asked to run anything."""

    def __init__(self, made: FolderInstallation, instance: dg.DagsterInstance) -> None:
        self.made = made
        self.names = Names.of(made.settings)
        self.instance = instance
        self.cursor: str | None = None
        self.session = VaultSession(lambda: made.settings, Synchronizer.open)

    def tick(self, seconds: float = 0.0) -> dg.SensorResult:
        """Evaluate the sensor once."""
        cursor = Cursor.read(self.cursor)
        tick = HeadTick(self.names, self.instance, self.session, cursor, 0.2, seconds, settle_seconds=0.05)
        result = tick.evaluate()
        if isinstance(result, dg.SensorResult):
            self.cursor = result.cursor
            return result
        return dg.SensorResult(skip_reason=result)


@pytest.fixture
def watch(make_folder: Callable[..., FolderInstallation], installation: Installation) -> Iterator[Watch]:
    """Return a folder with two notes in memory and its sensor."""
    made = make_folder(installation)
    made.write("a.md", "# A\n\nRoses.\n")
    made.write("b.md", "# B\n\nTulips.\n")
    made.steps()
    with dg.DagsterInstance.ephemeral() as instance:
        watch = Watch(made, instance)
        watch.tick()  # asks for the index to be checked, once
        yield watch
        watch.session.close()


def test_a_changed_folder_becomes_a_run(watch: Watch) -> None:
    """New, changed and renamed files are asked for; what was not touched is not."""
    assert "memory is at HEAD" in (str(watch.tick().skip_reason))
    watch.made.write("c.md", "# C\n\nLilies.\n")
    (watch.made.folder / "b.md").rename(watch.made.folder / "d.md")
    (request,) = watch.tick().run_requests
    assert {"b.md", "c.md", "d.md"} == set(watch.instance.get_dynamic_partitions(watch.names.partitions))
    assert watch.session.synchronizer.head() == request.tags[COMMIT_TAG]


def test_a_folder_is_taken_when_it_is_at_rest(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is still being written when it is noticed is not brought in by halves."""
    watch.tick()
    path = watch.made.write("c.md", "# C\n")
    more = iter(["# C\n\nLil", "# C\n\nLilies.\n"])
    real = directory.DirectorySource.head

    def head(source: directory.DirectorySource) -> str | None:
        found = real(source)
        if (text := next(more, None)) is not None:
            path.write_text(text)
        return found

    monkeypatch.setattr(directory.DirectorySource, "head", head)
    (request,) = watch.tick().run_requests
    assert real(watch.session.synchronizer.vault) == request.tags[COMMIT_TAG]  # type: ignore[arg-type]
    assert "Lilies." in path.read_text()


@pytest.mark.parametrize("case", ["missing", "empty", "not a folder"])
def test_a_folder_out_of_reach_fails_the_tick_and_deletes_nothing(watch: Watch, case: str, tmp_path: Path) -> None:
    """One line says so; when the folder is back, there is nothing to do."""
    folder = watch.made.folder.rename(tmp_path / "away")
    if case == "empty":
        watch.made.folder.mkdir()
    elif case == "not a folder":
        watch.made.folder.write_text("")
    with pytest.raises(dg.Failure) as raised:
        watch.tick()
    assert 1 == len((raised.value.description or "").splitlines())
    assert 2 == watch.session.synchronizer.store.counts().notes

    if case == "empty":
        watch.made.folder.rmdir()
    elif case == "not a folder":
        watch.made.folder.unlink()
    folder.rename(watch.made.folder)
    assert "memory is at HEAD" in (str(watch.tick().skip_reason))


def test_a_drive_that_comes_back_within_a_tick_is_no_failure(
    watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that stays away fails a tick once in its whole time, not every second."""
    away = watch.made.folder.rename(tmp_path / "away")
    with pytest.raises(dg.Failure):
        watch.tick(seconds=0.5)
    real = directory.DirectorySource.head

    def head(source: directory.DirectorySource) -> str | None:
        try:
            return real(source)
        finally:
            if away.exists():
                away.rename(watch.made.folder)

    monkeypatch.setattr(directory.DirectorySource, "head", head)
    assert "memory is at HEAD" in str(watch.tick(seconds=1.0).skip_reason)


def test_a_tick_waits_for_a_change(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks are as far apart as the settings say, within one tick."""
    looks: list[int] = []
    real = directory.DirectorySource.head

    def head(source: directory.DirectorySource) -> str | None:
        looks.append(1)
        if len(looks) == 4:
            watch.made.write("c.md", "# C\n\nLilies.\n")
        return real(source)

    monkeypatch.setattr(directory.DirectorySource, "head", head)
    assert 1 == len(watch.tick(seconds=5.0).run_requests)
    assert len(looks) < 12


def test_a_folder_of_the_settings_has_a_sensor_of_its_own(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the vault's, and it looks as often as the settings say."""
    config = tmp_path / "config.toml"
    config.write_text(
        f'[sync]\nfolder_poll_seconds = 90\n[vaults.papers]\npath = "{tmp_path}/papers"\nkind = "directory"\n'
    )
    for name, value in {**installation.environment, "VAULT_MEMORY_CONFIG": str(config)}.items():
        monkeypatch.setenv(name, value)
    definitions = build_definitions()
    sensors = {name: definitions.resolve_sensor_def(name) for name in ("vault_head", "vault_head_papers")}
    assert [1, 90] == [sensor.minimum_interval_seconds for sensor in sensors.values()]
    assert "Watches the folder" in (sensors["vault_head_papers"].description or "")
