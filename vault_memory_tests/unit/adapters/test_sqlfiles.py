"""Finding and reading the SQL files."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from vault_memory.adapters import migrations, sqlfiles
from vault_memory.errors import MigrationError, StoreError


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty ``sql/migrations`` in place of ours."""
    monkeypatch.setattr(migrations, "sql_directory", lambda: tmp_path)
    (tmp_path / "migrations").mkdir()
    return tmp_path / "migrations"


def test_checkout_or_wheel_has_the_files() -> None:
    """Whatever way the package was installed, the first migration is there."""
    assert (sqlfiles.sql_directory() / "migrations" / "0001_memory.sql").is_file()


def test_package_copy_wins_over_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel's own files are taken; a folder beside it counts only in a checkout."""
    module = tmp_path / "vault_memory" / "adapters" / "sqlfiles.py"
    (tmp_path / "sql").mkdir()
    monkeypatch.setattr(sqlfiles, "__file__", str(module))
    find = sqlfiles.sql_directory.__wrapped__
    with pytest.raises(StoreError, match="SQL files are missing"):
        find()
    (tmp_path / "pyproject.toml").touch()
    assert tmp_path / "sql" == find()
    (tmp_path / "vault_memory" / "sql").mkdir(parents=True)
    assert tmp_path / "vault_memory" / "sql" == find()


def test_unknown_query_is_one_line() -> None:
    """The error names the file."""
    with pytest.raises(StoreError, match=r"no_such_query\.sql: cannot be read"):
        sqlfiles.query("no_such_query")


def test_a_part_is_left_out_line_by_line() -> None:
    """A statement without its filters is what is planned once; whole, it holds every part."""
    whole, part = sqlfiles.query("search"), sqlfiles.query("search", frozenset({"bits", "tag"}))
    assert all(name in whole for name in ("%(path)s", "%(tag)s", "%(since)s", "%(heading)s", "halves FROM question"))
    assert "%(tag)s" in part
    assert "bits <~>" in part
    assert not any(name in part for name in ("%(path)s", "%(since)s", "%(heading)s", "halves FROM question", "-- @"))


def test_sqlfiles_are_light() -> None:
    """The query pays for no driver to read a text."""
    code = "import sys, vault_memory.adapters.sqlfiles; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert set() == set(loaded) & {"psycopg", "subprocess", "socket", "dagster"}


def test_our_migrations_count_from_one() -> None:
    """Versions are the files' numbers, in order."""
    found = migrations.migrations()
    assert list(range(1, len(found) + 1)) == [migration.version for migration in found]
    assert "0001_memory.sql" == found[0].name


def test_line_ends_do_not_change_a_checksum(directory: Path) -> None:
    """A checkout with CRLF is the same migration."""
    (directory / "0001_a.sql").write_bytes(b"SELECT 1;\r\nSELECT 2;\r\n")
    (found,) = migrations.migrations()
    assert hashlib.sha256(b"SELECT 1;\nSELECT 2;\n").hexdigest() == found.checksum


@pytest.mark.parametrize("names", [["0002_a.sql"], ["0001_a.sql", "0003_b.sql"], ["0001_A.sql"], ["1_a.sql"]])
def test_gap_or_odd_name_is_refused(names: list[str], directory: Path) -> None:
    """A file that was lost on the way must not be skipped in silence."""
    for name in names:
        (directory / name).write_text("SELECT 1;")
    with pytest.raises(MigrationError, match="install vault-memory again"):
        migrations.migrations()
