"""The embedded server, really started: each test has a home of its own."""

import contextlib
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from vault_memory.adapters import server
from vault_memory.adapters.server_binaries import Account, copy_for, find_install
from vault_memory.errors import ServerError

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="wants root")
CANARY = "canary-Xk29-值"


@pytest.fixture
def make_home() -> Iterator[Callable[[str], Path]]:
    """A factory of homes that the server's user can enter; servers are stopped and deleted afterwards."""
    homes: list[Path] = []
    top = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="vm-home-"))
    top.chmod(0o711)

    def make(name: str = "home") -> Path:
        homes.append(top / name)
        return homes[-1]

    yield make
    for home in homes:
        server.remove(home)
    shutil.rmtree(top)


@pytest.fixture
def home(make_home: Callable[..., Path]) -> Path:
    """A home of this test's own."""
    return make_home()


def start(home: Path) -> server.ServerInfo:
    """Start without flushing to disk, which says nothing here and takes seconds on a busy machine."""
    return server.ensure_running(home, settings={"fsync": "off"})


def ask(info: server.ServerInfo, statement: str) -> object:
    """Run one statement and return its only value."""
    with psycopg.connect(info.dsn("postgres")) as connection:
        return connection.execute(statement.encode()).fetchone()[0]


def test_first_start_warm_start_and_stop(home: Path) -> None:
    """A server is made, found again, stopped, and started again with its data."""
    info = server.ensure_running(home)
    assert info == server.ensure_running(home)
    found = server.status(home)
    assert ("running", find_install().major) == (found.state, found.version)
    with psycopg.connect(info.dsn("postgres"), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS n")

    assert server.stop(home) is True
    assert "stopped" == server.status(home).state
    assert server.stop(home) is False
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(info.dsn("postgres"))

    server.ensure_running(home)
    assert 7 == ask(info, "SELECT n FROM kept")


def test_server_is_set_up_as_documented(home: Path) -> None:
    """Socket only, a directory of its own, a locale that no system update changes, our settings, its own session."""
    info = server.ensure_running(home, settings={"work_mem": "7MB", "fsync": "off"})
    expected = {
        "listen_addresses": "",
        "unix_socket_permissions": "0700",
        "max_wal_size": "512MB",
        "client_connection_check_interval": "500ms",
        "jit": "off",
        "log_parameter_max_length": "0",
        "log_parameter_max_length_on_error": "0",
        "work_mem": "7MB",
    }
    assert expected == {name: ask(info, f"SHOW {name}") for name in expected}
    assert ("b", "C.UTF-8") == (
        ask(info, "SELECT datlocprovider FROM pg_database WHERE datname = 'postgres'"),
        ask(info, "SELECT datlocale FROM pg_database WHERE datname = 'postgres'"),
    )
    pid = server.status(home).pid
    assert pid is not None
    assert 0o700 == info.socket_directory.stat().st_mode & 0o777
    assert 0o700 == info.data.stat().st_mode & 0o777
    assert os.getsid(0) != os.getsid(pid)
    assert "psql (PostgreSQL)" in subprocess.check_output([server.program(home, "psql"), "--version"], text=True)


def test_our_own_settings_of_a_user_are_kept(home: Path) -> None:
    """What a user set by ALTER SYSTEM survives our rewriting of the settings at every start."""
    info = start(home)
    with psycopg.connect(info.dsn("postgres"), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET max_wal_size = '768MB'")
    server.stop(home)
    assert "768MB" == ask(start(home), "SHOW max_wal_size")


def test_long_and_odd_home(make_home: Callable[[str], Path]) -> None:
    """A home of 200 bytes and one with every character a shell or a setting reads otherwise both work."""
    for name in ("x" * 200, "a b,c'd\"e\\f $(id) `id` 笔记"):
        info = start(make_home(name))
        assert 1 == ask(info, "SELECT 1")
        assert len(os.fsencode(info.socket)) < 104


def test_killed_server_comes_back(home: Path) -> None:
    """After SIGKILL of the postmaster the next caller has a server with all that was committed."""
    info = start(home)
    with psycopg.connect(info.dsn("postgres"), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS n")
    kill(home)
    assert 7 == ask(start(home), "SELECT n FROM kept")


def test_killed_server_whose_children_are_still_dying(home: Path) -> None:
    """A busy child holds the shared memory; the start waits for it instead of failing."""
    info = start(home)
    busy = psycopg.connect(info.dsn("postgres"))
    busy.pgconn.send_query(b"SELECT count(*) FROM generate_series(1, 100000000000)")
    time.sleep(0.1)
    kill(home)
    threading.Timer(0.3, busy.close).start()  # the child notices within client_connection_check_interval
    started = time.monotonic()
    start(home)
    assert time.monotonic() - started > 0.3
    assert 1 == ask(info, "SELECT 1")


def test_pid_of_another_program_in_the_pid_file(home: Path) -> None:
    """After a reboot the recorded pid may be anybody's; nobody is waited for, and nobody is signalled."""
    info = start(home)
    text = (info.data / "postmaster.pid").read_text()
    server.stop(home)
    (info.data / "postmaster.pid").write_text(re.sub(r"\A\d+", str(os.getpid()), text))
    (info.socket_directory / ".s.PGSQL.5432.lock").write_text(f"{os.getpid()}\n")
    assert ("stopped", None) == (server.status(home).state, server.status(home).pid)
    assert server.stop(home) is False
    assert 1 == ask(start(home), "SELECT 1")


def test_socket_that_was_swept_away(home: Path) -> None:
    """A living server that nobody can reach is replaced."""
    info = start(home)
    info.socket.unlink()
    assert 1 == ask(start(home), "SELECT 1")


def test_initdb_that_was_killed(home: Path) -> None:
    """Half a data directory is never taken for one."""
    info = server.locate(home)
    left_over = info.directory / "data.new-1"
    left_over.mkdir(parents=True)
    (left_over / "PG_VERSION").write_text("18\n")
    if os.geteuid() == 0:
        entry = pwd.getpwnam("nobody")
        os.chown(info.directory, entry.pw_uid, entry.pw_gid)
    assert 1 == ask(start(home), "SELECT 1")
    assert not left_over.exists()


def test_twelve_processes_make_one_server(home: Path) -> None:
    """Whoever comes first makes it, all get it, and it outlives them."""
    code = (
        "import sys; from pathlib import Path; from vault_memory.adapters import server;"
        "home = Path(sys.argv[1]); server.ensure_running(home, settings={'fsync': 'off'});"
        "print(server.status(home).pid)"
    )
    callers = [
        subprocess.Popen([sys.executable, "-c", code, str(home)], stdout=subprocess.PIPE, text=True) for _ in range(12)
    ]
    answers = [(caller.communicate(timeout=60)[0].strip(), caller.returncode) for caller in callers]
    assert {(str(server.status(home).pid), 0)} == set(answers)
    log = server.locate(home).log.read_text()
    assert 1 == log.count("database system is ready to accept connections")
    assert "FATAL" not in log


def test_wait_for_another_starter_ends(home: Path) -> None:
    """A lock that is never given back is reported with its path."""
    start(home)
    server.stop(home)
    info = server.locate(home)
    with (
        server._locked(info, server._owner(info, "nobody"), time.monotonic()),
        pytest.raises(ServerError, match="lock:"),
    ):
        server.ensure_running(home, timeout_seconds=0.1)


def test_server_that_cannot_start_says_why(home: Path) -> None:
    """The server's own reason is in the message, on one line, with the log's path."""
    with pytest.raises(ServerError, match=r"^PostgreSQL does not start: .*; see .*postgresql\.log$") as caught:
        server.ensure_running(home, settings={"shared_buffers": "nonsense", "fsync": "off"})
    assert "\n" not in str(caught.value)
    assert 1 == ask(start(home), "SELECT 1")


@pytest.mark.parametrize("wrong", ["mode", "link", pytest.param("owner", marks=root_only)])
def test_socket_directory_of_somebody_else_is_refused(wrong: str, make_home: Callable[[str], Path]) -> None:
    """In a shared directory anyone may be first at a name; whoever owns it could stand in for the server."""
    home = make_home("y" * 100)
    sockets = server.locate(home).socket_directory
    assert Path("/tmp") == sockets.parent
    if wrong == "link":
        sockets.symlink_to(make_home("elsewhere").parent)
    else:
        sockets.mkdir(mode=0o700 if wrong == "owner" else 0o755)
        uid = pwd.getpwnam("nobody").pw_uid if wrong == "mode" else 4242
        if os.geteuid() == 0:
            os.chown(sockets, uid, uid)
    try:
        with pytest.raises(ServerError, match=re.escape(f"{sockets}: want a directory of user id")):
            start(home)
    finally:
        sockets.unlink() if wrong == "link" else sockets.rmdir()
    assert 1 == ask(start(home), "SELECT 1")


@pytest.mark.parametrize("moment", ["before", "after"])
def test_owner_is_checked_before_every_connection(moment: str, make_home: Callable[[str], Path]) -> None:
    """A directory that was exchanged under a running server is noticed by status and start alike."""
    home = make_home("z" * 100)
    info = start(home)
    info.socket_directory.chmod(0o777)
    call = start if moment == "before" else server.status
    with pytest.raises(ServerError, match="want a directory of user id"):
        call(home)
    info.socket_directory.chmod(0o700)
    assert "running" == server.status(home).state


@root_only
def test_root_with_a_home_that_the_server_cannot_enter(tmp_path: Path) -> None:
    """The data go where the server's user can go; no directory of root is opened for it."""
    tmp_path.chmod(0o700)
    home = tmp_path / "home"
    try:
        info = start(home)
        assert server.ROOT_DIRECTORY == info.directory.parent
        assert pwd.getpwnam("nobody").pw_uid == info.data.stat().st_uid
        assert 0o700 == tmp_path.stat().st_mode & 0o777
        assert 1 == ask(info, "SELECT 1")
        tmp_path.chmod(0o711)
        assert info == start(home)  # data stay where they are
    finally:
        server.remove(home)
    assert not info.directory.exists()


@root_only
def test_ordinary_user(home: Path, tmp_path: Path) -> None:
    """Without root everything lies under the home and belongs to the caller."""
    entry = pwd.getpwnam("nobody")
    # The wheel may be in a virtual environment inside /root.
    library = copy_for(find_install(), Account(entry.pw_uid, entry.pw_gid), server.ROOT_DIRECTORY).tree.parent.parent
    home.mkdir()
    os.chown(home, entry.pw_uid, entry.pw_gid)
    code = """
import encodings.ascii, os, pwd, sys
from pathlib import Path
import psycopg
from vault_memory.adapters import server
home, library = map(Path, sys.argv[1:])
os.setgroups([]); os.setgid(int(pwd.getpwnam("nobody").pw_gid)); os.setuid(pwd.getpwnam("nobody").pw_uid)
os.chdir("/"); sys.path[:] = [str(library)]; sys.path_importer_cache.clear()
info = server.ensure_running(home, settings={"fsync": "off"})
with psycopg.connect(info.dsn("postgres")) as connection:
    print(connection.execute("SELECT 6 * 7").fetchone()[0], info.directory)
print(server.stop(home), server.status(home).state)
"""
    done = subprocess.run([sys.executable, "-c", code, home, library], capture_output=True, text=True, check=False)
    assert ("", f"42 {home}/postgres\nTrue stopped\n") == (done.stderr, done.stdout)
    assert {entry.pw_uid} == {path.lstat().st_uid for path in (home / "postgres").rglob("*")}
    # And root, by sudo, runs the same server as the same user.
    info = server.ensure_running(home, "daemon")
    assert home / "postgres" == info.directory
    assert {entry.pw_uid} == {path.lstat().st_uid for path in info.directory.rglob("*")}


def test_log_holds_no_values(home: Path) -> None:
    """Failing statements leave neither their text, nor their parameters, nor the row in the server's log."""
    info = start(home)
    with contextlib.closing(psycopg.connect(info.dsn("postgres"), autocommit=True)) as connection:
        connection.execute("CREATE TABLE t (id TEXT PRIMARY KEY, n INT NOT NULL CHECK (n > 0))")
        connection.execute("INSERT INTO t VALUES (%s, 1)", (CANARY,))
        for statement, values in (
            ("INSERT INTO t VALUES (%s, 1)", (CANARY,)),
            ("INSERT INTO t VALUES (%s, NULL)", (CANARY,)),
            ("INSERT INTO t VALUES (%s, -1)", (CANARY,)),
            ("SELECT %s::int", (CANARY,)),
            (f"SELECT '{CANARY}'::int", None),
            (f"SELEKT '{CANARY}'", None),
            ("SET statement_timeout = '1ms'", None),
            ("SELECT pg_sleep(1), %s::text", (CANARY,)),
        ):
            with contextlib.suppress(psycopg.Error):
                connection.execute(statement.encode(), values)
        connection.execute("SET statement_timeout = 0")
        with pytest.raises(psycopg.Error), connection.cursor().copy("COPY t FROM STDIN") as copy:
            copy.write(f"{CANARY}2\t{CANARY}\n")
        backend = connection.info.backend_pid
        connection.pgconn.send_query(f"SELECT pg_sleep(9), '{CANARY}'".encode())
        time.sleep(0.1)
        os.kill(backend, signal.SIGSEGV)  # a crash logs what the process was running
        time.sleep(0.3)
    log = info.log.read_text()
    assert "terminated by signal 11" in log
    assert CANARY not in log
    for word in ("STATEMENT", "DETAIL", "CONTEXT", "pg_sleep", "SELEKT"):
        assert word not in log


def kill(home: Path) -> None:
    """Kill a postmaster the hard way and wait until it is gone."""
    pid = server.status(home).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while server.status(home).state == "running" and time.monotonic() < deadline:
        time.sleep(0.005)
    assert "running" != server.status(home).state
