"""The embedded PostgreSQL: one server for one ``VAULT_MEMORY_HOME``, started by whoever needs it first.

Belongs here: making the data directory, starting, stopping, finding the server. Does not: tables (``migrations``),
and any PostgreSQL that the user runs.

The server listens on a Unix socket only, in a directory that no other user may enter; inside it every connection
is trusted. It outlives the process that started it, so that a query a minute later finds it warm.

Under a home the server keeps ``postgres/``: ``data``, ``run`` (the socket), ``log``, ``lock``. PostgreSQL refuses to
run as root. Root therefore runs it as the owner of the data directory, on first start as ``pg_user``; where that
user cannot enter the home (it is inside ``/root``), the folder is ``/var/lib/vault-memory/<hash of home>`` instead.
A place that holds data is kept, whatever the permissions of the home become later.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

from vault_memory.adapters.server_binaries import Account, Install, copy_for, find_install
from vault_memory.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

State = Literal["absent", "stopped", "starting", "running", "stopping"]

SUPERUSER: Final = "postgres"
PORT: Final = 5432  # part of the socket's name, nothing listens on it
ROOT_DIRECTORY: Final = Path("/var/lib/vault-memory")
# sun_path holds 104 bytes on macOS and 108 on Linux; PostgreSQL also makes "<socket>.lock".
_MAX_SOCKET_BYTES: Final = 96
_POLL_SECONDS: Final = 0.02
_START_POLL_SECONDS: Final = 0.003
_ENVIRONMENT: Final = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C"}
# A killed postmaster's children hold its shared memory until they notice.
_PASSING: Final = ("pre-existing shared memory block", "lock file", "Is another postmaster")

_SETTINGS: Final = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "jit": "off",
    "max_wal_size": "512MB",  # 2 GB made recovery after a crash take 20 s
    "client_connection_check_interval": "500ms",  # a killed client's lock goes after 0.24 s instead of 5.3 s
    # The log must hold no note text. An ERROR's message can quote a value and its DETAIL the row, so errors go to
    # the client alone; the log keeps what concerns the server.
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_statement": "none",
    "log_min_duration_statement": "-1",
    "log_parameter_max_length": "0",
    "log_parameter_max_length_on_error": "0",
    "log_checkpoints": "off",
    "log_autovacuum_min_duration": "-1",
}


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """Where one embedded server is.

    Attributes:
        home: The ``VAULT_MEMORY_HOME`` it belongs to.
        directory: Where it keeps everything.
        socket_directory: The host of every connection string.
    """

    home: Path
    directory: Path
    socket_directory: Path

    @property
    def data(self) -> Path:
        """PostgreSQL's data directory."""
        return self.directory / "data"

    @property
    def log(self) -> Path:
        """The server's log; statements, parameters and rows are kept out of it."""
        return self.directory / "log" / "postgresql.log"

    @property
    def socket(self) -> Path:
        """The socket itself."""
        return self.socket_directory / f".s.PGSQL.{PORT}"

    def dsn(self, database: str, user: str = SUPERUSER) -> str:
        """Return a libpq URL."""
        return f"postgresql://{quote(user, safe='')}@{self._place(database)}"

    def sqlalchemy_url(self, database: str) -> str:
        """Return the URL for Dagster's storage; a bare ``postgresql://`` would pick psycopg 3 and break it."""
        return f"postgresql+psycopg2://{SUPERUSER}@{self._place(database)}"

    def _place(self, database: str) -> str:
        # The port is named because PGPORT of the caller's environment would be taken otherwise.
        return f"/{quote(database, safe='')}?host={quote(str(self.socket_directory), safe='')}&port={PORT}"


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """What is known of a server without starting it.

    Attributes:
        state: ``absent`` if there is no data directory.
        info: Where it is, or would be.
        pid: The postmaster's, while there is one.
        version: PostgreSQL's major version, as the data directory records it.
    """

    state: State
    info: ServerInfo
    pid: int | None
    version: int | None


def reader_role(schema: str) -> str:
    """Return the name of the role that may only read a schema's live notes."""
    return f"{schema}_reader"


def locate(home: Path, pg_user: str = "nobody") -> ServerInfo:
    """Say where the server of a home is, or would be made; nothing is created.

    Raises:
        ServerError: ``pg_user`` is needed and does not exist.
    """
    home = home.absolute()
    directory = home / "postgres"
    if os.geteuid() == 0:
        outside = ROOT_DIRECTORY / _digest(home)
        with_data = [place for place in (directory, outside) if (place / "data" / "PG_VERSION").exists()]
        if with_data:
            directory = with_data[0]
        elif not _account_of(pg_user).may_enter(home):
            directory = outside
    sockets = directory / "run"
    if len(os.fsencode(sockets / f".s.PGSQL.{PORT}")) > _MAX_SOCKET_BYTES or "," in str(sockets):
        # The client library takes a comma for the end of a host. The short place does not come from $TMPDIR or
        # $XDG_RUNTIME_DIR: a cron job and a login shell must find the same server.
        sockets = Path(f"/tmp/vault-memory-{_digest(directory)}")  # noqa: S108 - its owner and mode are checked
    return ServerInfo(home, directory, sockets)


def ensure_running(
    home: Path,
    pg_user: str = "nobody",
    *,
    settings: Mapping[str, str] | None = None,
    timeout_seconds: float = 60.0,
) -> ServerInfo:
    """Return a server that takes connections; make and start it if need be.

    Any number of processes may call this at once: one makes the server, the others wait for it.

    Args:
        home: The ``VAULT_MEMORY_HOME``.
        pg_user: Who runs the server if the caller is root and there is no data directory yet.
        settings: PostgreSQL settings beside ours, taken at a start.
        timeout_seconds: For all of it, waiting for other processes included.

    Raises:
        ServerError: It does not start; the message says why.
        MissingExtraError: The wheel with PostgreSQL is not installed.
    """
    info = locate(home, pg_user)
    with _one_line_errors(info):
        if _answers(info):
            return info
        deadline = time.monotonic() + timeout_seconds
        account = _owner(info, pg_user)
        _make_directory(info.directory, account)
        with _locked(info, account, deadline):
            if not _settled(info, deadline):
                _start(info, account, {**_SETTINGS, **(settings or {})}, deadline)
    return info


def stop(home: Path, pg_user: str = "nobody", *, timeout_seconds: float = 60.0) -> bool:
    """Stop the server of a home; open connections are ended, open transactions rolled back.

    Returns:
        Whether one was running.

    Raises:
        ServerError: It does not stop.
    """
    info = locate(home, pg_user)
    with _one_line_errors(info):
        if not info.data.is_dir():
            return False
        account = _owner(info, pg_user)
        deadline = time.monotonic() + timeout_seconds
        with _locked(info, account, deadline):
            running = _postmaster(info) is not None
            if running:
                _shut_down(info, deadline)
    return running


def status(home: Path, pg_user: str = "nobody") -> ServerStatus:
    """Say what the server of a home is doing, without starting it or waiting for it.

    Raises:
        ServerError: The caller may not look.
    """
    info = locate(home, pg_user)
    with _one_line_errors(info):
        version = _data_version(info)
        pid = _postmaster(info)
        if version is None:
            return ServerStatus("absent", info, None, None)
        if pid is None:
            return ServerStatus("stopped", info, None, version)
        if _answers(info):
            return ServerStatus("running", info, pid, version)
        word = "stopping" if _recorded(info)[1] == "stopping" else "starting"
        return ServerStatus(word, info, pid, version)


def remove(home: Path, pg_user: str = "nobody") -> None:
    """Stop the server of a home and delete its data, for homes that were temporary.

    Raises:
        ServerError: It does not stop, or a file cannot be deleted.
    """
    stop(home, pg_user)
    info = locate(home, pg_user)
    with _one_line_errors(info):
        for directory in (info.directory, info.socket_directory):
            if directory.is_dir():
                shutil.rmtree(directory)


def program(home: Path, name: str, pg_user: str = "nobody") -> Path:
    """Return the path of ``pg_dump``, ``pg_restore`` or ``psql`` in the version that a home's data has.

    Raises:
        ServerError: The wheel does not carry it, or has another version.
        MissingExtraError: The wheel is not installed.
    """
    return find_install(_data_version(locate(home, pg_user))).program(name)


# --- is it running ---------------------------------------------------------------------------------------------


def _answers(info: ServerInfo) -> bool:
    """Connect without a word: 0.1 ms, and the postmaster itself says "ready" in its pid file."""
    if _recorded(info)[1] != "ready":
        return False
    try:
        _check_socket_directory(info, info.data.lstat().st_uid if os.geteuid() == 0 else os.geteuid())
    except FileNotFoundError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(2.0)
        try:
            client.connect(os.fspath(info.socket))
        except OSError:
            return False
    return True


def _recorded(info: ServerInfo) -> tuple[int | None, str]:
    """Read pid and state ("starting", "ready", "stopping", or "" while it is written) from the pid file."""
    try:
        lines = (info.data / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return None, ""
    pid = int(lines[0]) if lines and lines[0].isdigit() else None
    return pid, lines[7].strip() if len(lines) > 7 else ""  # noqa: PLR2004 - the eighth line, as in pidfile.h


def _postmaster(info: ServerInfo) -> int | None:
    """Return the pid of this data directory's living postmaster; a pid may belong to another program by now."""
    pid, _ = _recorded(info)
    if pid is None:
        return None
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        return None
    return pid if _serves(pid, info) else None


def _serves(pid: int, info: ServerInfo) -> bool:
    """Say whether a process is the postmaster of this data directory, which it works in."""
    if sys.platform == "linux":
        try:
            return Path(f"/proc/{pid}/cwd").readlink() == info.data.resolve()
        except OSError:  # a zombie, or another user's process
            return False
    done = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False, timeout=10)
    return b"postgres -D" in done.stdout


def _data_version(info: ServerInfo) -> int | None:
    try:
        return int((info.data / "PG_VERSION").read_text(encoding="ascii").partition(".")[0])
    except FileNotFoundError:
        return None
    except ValueError:
        raise ServerError(f"{info.data}/PG_VERSION is damaged: set the directory aside, then sync again") from None


def _check_socket_directory(info: ServerInfo, owner: int) -> None:
    """Look before every connection: whoever owns the directory could stand in for the server.

    Raises:
        ServerError: It belongs to somebody else, or others may enter it.
    """
    found = info.socket_directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner or stat.S_IMODE(found.st_mode) & 0o077:
        raise ServerError(f"{info.socket_directory}: want a directory of user id {owner} with mode 0700; remove it")


# --- starting and stopping -------------------------------------------------------------------------------------


def _settled(info: ServerInfo, deadline: float) -> bool:
    """Wait for a postmaster that is on its way up or down; say whether one takes connections at the end."""
    while (pid := _postmaster(info)) is not None:
        if _answers(info):
            return True
        if _recorded(info)[1] == "ready":
            # Ready, and no socket: something emptied the directory. Nobody can reach this server any more.
            _shut_down(info, deadline)
        _wait(deadline, f"PostgreSQL (pid {pid}) is neither up nor down; see {info.log}")
    # No postmaster is behind the files of a killed one. PostgreSQL only looks whether the pid is in use (a zombie's
    # is, and so is one that was given out again) and would not start; the shared memory, whose key comes from the
    # data directory, still keeps two servers apart.
    for left_over in (info.data / "postmaster.pid", info.socket.with_name(f"{info.socket.name}.lock")):
        left_over.unlink(missing_ok=True)
    return False


def _start(info: ServerInfo, account: Account, settings: Mapping[str, str], deadline: float) -> None:
    install = find_install(_data_version(info))
    if os.geteuid() == 0 and not account.may_enter(install.program("postgres")):
        _make_directory(ROOT_DIRECTORY, None)
        install = copy_for(install, account, ROOT_DIRECTORY)
    for directory in (info.socket_directory, info.log.parent):
        _make_directory(directory, account)
    _check_socket_directory(info, account.uid)
    if _data_version(info) is None:
        _initialise(info, account, install, durable=settings.get("fsync") != "off")
    # The setting is a list of names.
    directories = '"{}"'.format(os.fspath(info.socket_directory).replace('"', '""'))
    _write_settings(info, account, {**settings, "unix_socket_directories": directories})
    while True:
        written = info.log.stat().st_size if info.log.exists() else 0
        if _launched(info, account, install, deadline):
            return
        fatal = _fatal_lines(info.log, written) or ["no reason was given"]
        # All lines count: a dying child of the old server may write the last one.
        passing = [line for line in fatal if any(sign in line for sign in _PASSING)]
        message = f"PostgreSQL does not start: {(passing or fatal)[-1]}; see {info.log}"
        if not passing:
            raise ServerError(message)
        _wait(deadline, message, seconds=0.1)
        if _settled(info, deadline):
            return


def _launched(info: ServerInfo, account: Account, install: Install, deadline: float) -> bool:
    """Start once; say whether the server takes connections now."""
    seconds = max(1, round(deadline - time.monotonic()))
    arguments = ["start", "--wait", f"--timeout={seconds}", "--pgdata=data", "--log=log/postgresql.log"]
    # pg_ctl gives the server a session of its own, and notices when it dies; but it looks ten times a second only,
    # and a warm start is over in a third of that.
    with subprocess.Popen(
        [install.program("pg_ctl"), *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **_as(info, account),
    ) as pg_ctl:
        while pg_ctl.poll() is None and not _answers(info):
            time.sleep(_START_POLL_SECONDS)
        pg_ctl.kill()
    return _answers(info)


def _initialise(info: ServerInfo, account: Account, install: Install, *, durable: bool) -> None:
    """Make the data directory under a temporary name: one that exists is whole."""
    for left_over in info.directory.glob("data.new-*"):
        shutil.rmtree(left_over)  # of an initdb that was killed; the lock says that none is at work
    if info.data.exists():
        raise ServerError(f"{info.data} is no PostgreSQL data directory: set it aside, then try again")
    new = info.directory / f"data.new-{os.getpid()}"
    done = subprocess.run(
        [
            install.program("initdb"),
            f"--pgdata={new.name}",
            f"--username={SUPERUSER}",
            "--auth-local=trust",
            "--auth-host=reject",
            "--encoding=UTF8",
            # The operating system's locales differ between machines and change under an index.
            *(("--locale-provider=builtin", "--builtin-locale=C.UTF-8") if install.major >= 17 else ()),  # noqa: PLR2004
            "--locale=C",
            "--no-instructions",
            *(() if durable else ("--no-sync",)),
        ],
        check=False,
        capture_output=True,
        **_as(info, account),
    )
    if done.returncode != 0:
        shutil.rmtree(new, ignore_errors=True)
        lines = [line for line in done.stderr.decode(errors="replace").splitlines() if "error:" in line]
        raise ServerError(f"initdb failed: {lines[-1] if lines else f'exit status {done.returncode}'}")
    descriptor = os.open(new / "postgresql.conf", os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "a", encoding="utf-8") as file:
        file.write("\n# Written anew at every start; your own settings go to postgresql.auto.conf (ALTER SYSTEM).\n")
        file.write("include_if_exists 'vault-memory.conf'\n")
    new.rename(info.data)


def _write_settings(info: ServerInfo, account: Account, settings: Mapping[str, str]) -> None:
    path = info.data / "vault-memory.conf"
    new = info.data / "vault-memory.conf.new"
    new.unlink(missing_ok=True)
    # O_EXCL: as root this writes into a directory of another user, and must not follow that user's links.
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(f"{name} = {_quoted(value)}\n" for name, value in settings.items())
        if os.geteuid() == 0:
            os.fchown(file.fileno(), account.uid, account.gid)
    new.rename(path)


def _quoted(value: str) -> str:
    return "'{}'".format(value.replace("\\", "\\\\").replace("'", "''"))


def _shut_down(info: ServerInfo, deadline: float) -> None:
    # What pg_ctl stop --mode=fast does, but it looks ten times a second only.
    while (pid := _postmaster(info)) is not None:
        if _recorded(info)[1] != "stopping":
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)
        _wait(deadline, f"PostgreSQL (pid {pid}) does not stop; see {info.log}")


def _as(info: ServerInfo, account: Account) -> dict[str, Any]:
    """Return how every program of PostgreSQL is run: as the server's user, out of reach of the caller's Ctrl-C.

    They run in our directory and are given relative paths: pg_ctl and initdb hand theirs to a shell, in double quotes.
    """
    common: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "cwd": info.directory,
        "env": _ENVIRONMENT,
        "start_new_session": True,
        "umask": 0o077,
    }
    if os.geteuid() == 0:
        common |= {"user": account.uid, "group": account.gid, "extra_groups": ()}
    return common


def _fatal_lines(log: Path, offset: int) -> list[str]:
    """Return the fatal messages that a start added to the log; a server that is starting knows no note text."""
    try:
        with log.open("rb") as file:
            file.seek(offset)
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        text = ""
    return [line.partition("FATAL:")[2].strip() for line in text.splitlines() if "FATAL:" in line]


# --- files and waiting -----------------------------------------------------------------------------------------


def _owner(info: ServerInfo, pg_user: str) -> Account:
    """Return who runs the server: for root the owner of the data, so that ``sudo`` takes nothing over."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    if info.data.is_dir():
        found = info.data.stat()
        if found.st_uid == 0:
            raise ServerError(f"{info.data} belongs to root, and PostgreSQL does not run as root: chown it")
        return Account(found.st_uid, found.st_gid)
    return _account_of(pg_user)


def _account_of(name: str) -> Account:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise ServerError(f"pg_user: there is no user {name!r} on this machine") from None
    if entry.pw_uid == 0:
        raise ServerError("pg_user: PostgreSQL does not run as root; name another user")
    return Account(entry.pw_uid, entry.pw_gid)


def _make_directory(path: Path, account: Account | None) -> None:
    """Make a directory that only ``account`` may enter (None: everybody, as for parents made on the way)."""
    if path.is_dir() and not path.is_symlink():
        return
    if not path.parent.is_dir():
        _make_directory(path.parent, None if os.geteuid() == 0 else account)
    path.mkdir(mode=0o700, exist_ok=True)
    if os.geteuid() != 0:
        return
    if account is None:
        path.chmod(0o711)  # root's umask may be narrow, and the server's user must pass
    else:
        os.chown(path, account.uid, account.gid, follow_symlinks=False)


@contextlib.contextmanager
def _locked(info: ServerInfo, account: Account, deadline: float) -> Generator[None]:
    """Hold the lock under which the server is made, started and stopped; it dies with its holder."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(info.directory / "lock", flags, 0o600)
    try:
        if os.geteuid() == 0:
            os.fchown(descriptor, account.uid, account.gid)
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                _wait(deadline, f"{info.directory}/lock: another process has been starting the server for too long")
        yield
    finally:
        os.close(descriptor)


def _wait(deadline: float, message: str, seconds: float = _POLL_SECONDS) -> None:
    if time.monotonic() > deadline:
        raise ServerError(message)
    time.sleep(seconds)


@contextlib.contextmanager
def _one_line_errors(info: ServerInfo) -> Generator[None]:
    try:
        yield
    except OSError as error:
        place = error.filename or info.directory
        raise ServerError(
            f"embedded PostgreSQL: {os.fsdecode(place)}: {error.strerror or type(error).__name__}"
        ) from None
    except subprocess.SubprocessError as error:
        raise ServerError(f"embedded PostgreSQL: {type(error).__name__}; see {info.log}") from None


def _digest(path: Path) -> str:
    return hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:16]
