"""The configuration file that ``init`` writes."""

import stat
import tomllib
from pathlib import Path

import pytest

from vault_memory.commands.setup import write_config
from vault_memory.errors import ConfigError
from vault_memory.settings import load


def test_a_new_file_is_private_and_loads(tmp_path: Path) -> None:
    """What is written is what the settings read, and nobody else may read it."""
    path = tmp_path / "new" / "config.toml"

    written = write_config(path, {"vault": "/a b/笔记", "scan.roots": ["One", 'Tw"o']}, replace_settings=False)

    assert ("vault", "scan.roots") == written
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    settings = load({"HOME": str(tmp_path), "VAULT_MEMORY_CONFIG": str(path)})
    assert (Path("/a b/笔记"), ("One", 'Tw"o')) == (settings.vault, settings.scan.roots)


def test_again_changes_nothing(tmp_path: Path) -> None:
    """The second time there is nothing to write, and the bytes stay."""
    path = tmp_path / "config.toml"
    write_config(path, {"vault": "/v"}, replace_settings=False)
    before = path.read_bytes()

    assert () == write_config(path, {"vault": "/v"}, replace_settings=False)
    assert before == path.read_bytes()


def test_another_value_is_refused_unless_asked_for(tmp_path: Path) -> None:
    """An existing setting is never changed silently; with ``--replace`` it is, and everything else stays."""
    path = tmp_path / "config.toml"
    path.write_text(
        '# mine\nvault = "/old"  # why\ndsn = "x"\n\n[scan]\nroots = [\n  "A",\n  "B",\n]\nmax_note_bytes = 5\n'
    )

    with pytest.raises(ConfigError, match=r'vault is "/old" there.*--replace'):
        write_config(path, {"vault": "/new"}, replace_settings=False)
    write_config(path, {"vault": "/new", "scan.roots": ["C"]}, replace_settings=True)

    text = path.read_text()
    assert {"vault": "/new", "dsn": "x", "scan": {"roots": ["C"], "max_note_bytes": 5}} == tomllib.loads(text)
    assert text.startswith("# mine\n")


def test_keys_land_in_their_own_table(tmp_path: Path) -> None:
    """A key of the top level goes before the first table, a table's key into the table."""
    path = tmp_path / "config.toml"
    path.write_text('[embedding]\nmodel = "m"\n\n[sync]\nwait_seconds = 3\n')

    write_config(path, {"vault": "/v", "embedding.embedder": "hashing", "scan.roots": ["."]}, replace_settings=False)

    assert {
        "vault": "/v",
        "embedding": {"model": "m", "embedder": "hashing"},
        "sync": {"wait_seconds": 3},
        "scan": {"roots": ["."]},
    } == tomllib.loads(path.read_text())


@pytest.mark.parametrize(
    "text",
    ["scan = { max_note_bytes = 5 }\n", "scan.max_note_bytes = 5\n", "not toml at all\n"],
    ids=["inline table", "dotted key", "broken"],
)
def test_what_cannot_be_edited_safely_is_left_alone(tmp_path: Path, text: str) -> None:
    """A file whose shape the editor does not understand stays as it is, and the user is told."""
    path = tmp_path / "config.toml"
    path.write_text(text)

    with pytest.raises(ConfigError, match="by hand"):
        write_config(path, {"scan.roots": ["C"]}, replace_settings=True)

    assert text == path.read_text()
