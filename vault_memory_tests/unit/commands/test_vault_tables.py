"""Tables of vaults in the configuration file: put in and taken out, and nothing else touched."""

import os
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vault_memory.commands import vault_tables
from vault_memory.errors import ConfigError

VALUES = {"path": '/home/me/Notes "x" ä', "kind": "directory"}
FILES = (
    b"",
    b"# only a comment",
    b'vault = "/v"\r\n\r\n[scan]\r\nroots = ["."]  # all\r\n',
    b'[vaults.other]\npath = "/o"\n\n# of nobody\n',
    b'[vaults.other]\npath = "/o"\n[vaults.other.scan]\nroots = ["a"]\n\n\n[embedding]\nmodel = """\n[no table]\n"""\n',
    b'[vaults."quoted"]\npath = "/q"\n# about embedding\n[embedding]\n',
    b'vault = "/v" # no end of line',
)


@pytest.mark.parametrize("data", FILES)
def test_a_table_is_put_in_and_taken_out_again(tmp_path: Path, data: bytes) -> None:
    """What was there stays, byte for byte, and the mode too; removal gives the file of before."""
    file, lock = tmp_path / "config.toml", tmp_path / "home/lock"
    if data:
        file.write_bytes(data)
        file.chmod(0o640)
    assert vault_tables.add(file, lock, "notes", VALUES)
    assert file.read_bytes().startswith(data)
    assert VALUES == tomllib.loads(file.read_text())["vaults"]["notes"]
    assert (0o640 if data else 0o600) == stat.S_IMODE(file.stat().st_mode)
    assert not vault_tables.add(file, lock, "notes", VALUES)

    assert vault_tables.remove(file, lock, "notes")
    left = file.read_bytes()
    assert data == left or (data + b"\n" == left and not data.endswith(b"\n")) or (not data and left.startswith(b"# "))
    assert not vault_tables.remove(file, lock, "notes")
    assert [file.name, "home"] == sorted(path.name for path in tmp_path.iterdir())


def test_a_table_in_the_middle_is_taken_out_with_those_below_it(tmp_path: Path) -> None:
    """Comments of the tables around it stay."""
    file = tmp_path / "config.toml"
    file.write_text(
        '# top\n[vaults.a]\npath = "/a"\n\n[vaults.notes]  # mine\npath = "/n"\n# inside\nkind = "directory"\n'
        '[vaults.notes.scan]\nroots = [\n  "x",\n]\n\n# about b\n[vaults.b]\npath = "/b"\n'
    )
    assert vault_tables.remove(file, tmp_path / "lock", "notes")
    assert '# top\n[vaults.a]\npath = "/a"\n\n# about b\n[vaults.b]\npath = "/b"\n' == file.read_text()


@pytest.mark.parametrize(
    "data", [b'vaults = { other = { path = "/o" } }\n', b"[scan\n", b"\xff\xfe", b'[vaults]\nnotes.path = "/n"\n']
)
def test_a_file_that_cannot_be_edited_safely_is_left_alone(tmp_path: Path, data: bytes) -> None:
    """The user is told what to write, and nothing of the file is quoted."""
    file = tmp_path / "config.toml"
    file.write_bytes(data)
    with pytest.raises(ConfigError) as raised:
        vault_tables.add(file, tmp_path / "lock", "notes", VALUES)
    assert data == file.read_bytes()
    assert "\n" not in str(raised.value)


def test_another_table_of_the_name_is_not_overwritten(tmp_path: Path) -> None:
    """It is somebody's."""
    file = tmp_path / "config.toml"
    file.write_text('[vaults.notes]\npath = "/mine"\n')
    with pytest.raises(ConfigError, match="another vault notes"):
        vault_tables.add(file, tmp_path / "lock", "notes", VALUES)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """As people keep their dotfiles."""
    (tmp_path / "dotfiles").mkdir()
    real = tmp_path / "dotfiles/config.toml"
    real.write_text("# mine\n")
    file = tmp_path / "config.toml"
    file.symlink_to(real)
    vault_tables.add(file, tmp_path / "lock", "notes", VALUES)
    assert file.is_symlink()
    assert "[vaults.notes]" in real.read_text()
    assert 1 == len(os.listdir(tmp_path / "dotfiles"))  # noqa: PTH208 - hidden ones too


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30))
def test_any_path_comes_back_as_it_was(tmp_path: Path, name: str) -> None:
    """Quotes, backslashes, control characters."""
    file = tmp_path / "config.toml"
    file.write_text("# x\n")
    vault_tables.add(file, tmp_path / "lock", "notes", {"path": name})
    assert name == tomllib.loads(file.read_bytes().decode())["vaults"]["notes"]["path"]
