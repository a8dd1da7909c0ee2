"""``vault-memory index``: which folders may, and what is remembered of them."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner, Result

from vault_memory import settings as settings_module
from vault_memory.cli import cli
from vault_memory.commands import index as command
from vault_memory.errors import ConfigError, VaultError
from vault_memory.query.search import search
from vault_memory_tests.fixtures.installation import Installation

CONFIG = '# mine\n[journal]\nenabled = false # "quoted"\n'


@pytest.fixture
def installed(installation: Installation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Installation:
    """Return an installation that commands in this process find, with a configuration file."""
    config = tmp_path / "config" / "config.toml"
    config.parent.mkdir()
    config.write_text(CONFIG)
    for name, value in {**installation.environment, "VAULT_MEMORY_CONFIG": str(config)}.items():
        monkeypatch.setenv(name, value)
    return installation


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Return a folder with a note."""
    folder = tmp_path / "Notizen & mehr"
    folder.mkdir()
    (folder / "a.md").write_text("# Gardens\n\nRoses want pruning in March.\n")
    return folder


def run(*arguments: str | Path) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(cli, ["index", *map(str, arguments)])


def config() -> dict[str, object]:
    """Return what the configuration file says."""
    return tomllib.loads(settings_module.load().config_file.read_text())


def test_a_folder_is_indexed_remembered_and_taken_out(installed: Installation, notes: Path) -> None:
    """The whole life of a folder, by the command."""
    planned = run(notes, "--dry-run", "--json")
    assert 0 == planned.exit_code, planned.output
    assert ("notizen_mehr", 1) == (json.loads(planned.stdout)["name"], json.loads(planned.stdout)["notes"])
    assert "vaults" not in config()

    done = run(notes)
    assert 0 == done.exit_code, done.output
    assert "1 added" in done.stdout
    assert "vault-memory index --remove notizen_mehr" in done.stderr
    assert {"notizen_mehr": {"path": str(notes), "kind": "directory"}} == config()["vaults"]
    made = settings_module.load(name="notizen_mehr")
    assert made.config_file.read_text().startswith(CONFIG)
    assert ["a.md"] == [hit.source for hit in search("When are roses pruned?", settings=made).items]

    (notes / "a.md").rename(notes / "b.md")
    again = run(notes / ".." / notes.name, "--json")
    assert 0 == again.exit_code, again.output
    assert (1, 0) == (json.loads(again.stdout)["renamed"], json.loads(again.stdout)["texts_embedded"])
    assert "remembered" not in again.stderr

    assert 2 == run("--remove", "notizen_mehr").exit_code  # nobody is there to answer
    gone = run("--remove", "notizen_mehr", "--yes")
    assert 0 == gone.exit_code, gone.output
    assert CONFIG == made.config_file.read_text()
    assert (notes / "b.md").exists()
    assert not (made.home / "folders" / f"{made.schema}.cache").exists()
    with psycopg.connect(installed.environment["VAULT_MEMORY_DSN"]) as connection:
        found = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'vault_memory%'").fetchall()
    assert made.schema not in {name for (name,) in found}
    assert 3 == _status(lambda: command.to_remove("notizen_mehr"))


def _status(call: Callable[[], object]) -> int:
    try:
        call()
    except ConfigError as error:
        return error.exit_status
    return 0


def test_places_that_are_no_vault_of_their_own(installed: Installation, notes: Path, tmp_path: Path) -> None:
    """Each is refused with a line that says what to do, before anything is written."""
    repository = tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)
    (repository / "docs").mkdir()
    inside = installed.vault.path / "02_Areas"
    inside.mkdir(exist_ok=True)
    cases: list[tuple[Path, type[Exception], str]] = [
        (inside, ConfigError, "part of the vault default"),
        (installed.vault.path, ConfigError, "part of the vault default"),
        (installed.vault.path.parent, ConfigError, "in memory twice"),
        (repository / "docs", ConfigError, "lies in the git repository"),
        (tmp_path / "config", ConfigError, "configuration file lies in"),
        (tmp_path / "missing", VaultError, "does not exist"),
        (notes / "a.md", VaultError, "is not a folder"),
    ]
    for path, kind, words in cases:
        with pytest.raises(kind, match=words) as raised:
            command.chosen(path, None)
        assert "\n" not in str(raised.value)
    with pytest.raises(ConfigError, match="want a name"):
        command.chosen(notes, "Großes")
    assert CONFIG == settings_module.load().config_file.read_text()


def test_names_are_made_of_the_folders(installed: Installation, tmp_path: Path) -> None:
    """Whatever a folder is called, the name is one that the settings take; a taken one gets a number."""
    names = {"Ä b": "a_b", "日記": "folder", "2024": "folder_2024", "default": "folder", "x" * 60: "x" * 27}
    for folder, name in names.items():
        (tmp_path / "in" / folder).mkdir(parents=True)
        assert name == command.chosen(tmp_path / "in" / folder, None).name
    file = settings_module.load().config_file
    file.write_text(f'{CONFIG}\n[vaults.a_b]\npath = "/elsewhere"\n')
    assert "a_b_2" == command.chosen(tmp_path / "in" / "Ä b", None).name
    with pytest.raises(ConfigError, match="another vault"):
        command.chosen(tmp_path / "in" / "Ä b", "a_b")


def test_what_was_not_made_by_index_is_not_removed_by_it(installed: Installation) -> None:
    """The vault in git stays."""
    with pytest.raises(ConfigError, match="your own hand"):
        command.to_remove("default")
