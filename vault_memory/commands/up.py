"""``vault-memory up``: webserver and daemon as children of one process.

Belongs here: starting the two, watching them, ending them. Does not: what they do (``defs``), staying up after a
reboot (``service``).

The children run in Dagster's home, never in the folder of the caller: Python looks for modules where it is started,
and that may be the vault.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING, Final

from vault_memory.adapters import running
from vault_memory.commands.guard import Guard
from vault_memory.commands.launching import checkout_root
from vault_memory.commands.settings_watch import SettingsWatch
from vault_memory.errors import ConfigError, ServerError, VaultMemoryError, WriterBusyError
from vault_memory.ingest.database import open_database, open_store
from vault_memory.ingest.source import open_source

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    from vault_memory.settings import Settings

log = logging.getLogger(__name__)

LOOPBACK: Final = "127.0.0.1"
_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_READY_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.2
_WRITERS_SECONDS: Final = 60.0
_LOADED: Final = "{workspaceOrError {... on Workspace {locationEntries {locationOrLoadError {__typename}}}}}"
# Dagster's daemon waits for its threads, and the webserver for its code server.
_GRACE_SECONDS: Final = 12.0


@dataclass(frozen=True, slots=True)
class Child:
    """One process that ``up`` started, leader of a group of its own.

    Attributes:
        name: For messages.
        process: The leader.
        log: What the group prints.
    """

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Raise if it ended by itself.

        Raises:
            ServerError: It did; the message names its log.
        """
        status = self.process.poll()
        if status is not None:
            how = f"signal {-status}" if status < 0 else f"exit status {status}"
            raise ServerError(f"the {self.name} ended by itself ({how}); see {self.log}")

    def signal_group(self, number: int) -> bool:
        """Send a signal to all of its group; return whether anybody was there."""
        try:
            os.killpg(self.process.pid, number)
        except (ProcessLookupError, PermissionError):  # macOS says the latter of a group of zombies
            return False
        return True


def up(
    read: Callable[[], Sequence[Settings]], *, port: int, host: str, read_only: bool, write: Callable[[str], None]
) -> None:
    """Run the webserver and the daemon until SIGINT, SIGTERM or SIGHUP; anew whenever the settings change.

    Args:
        read: Reads the settings of each vault to follow, at least one; they share home and database.
        port: Of the web page.
        host: The address to listen on.
        read_only: The web page starts and changes nothing.
        write: Takes the lines to show.

    Raises:
        ConfigError: The port is taken, or ``up`` runs for this home already.
        ServerError: A child ended by itself.
        VaultMemoryError: Vault, database or settings cannot be used.
    """
    watch = SettingsWatch(read, _followed)
    home = watch.vaults[0].home
    url = f"http://{_in_url(host)}:{port}"
    with ExitStack() as stack:
        other = stack.enter_context(running.claim(home, url))
        if other is not None:
            raise ConfigError(f"{other.name} runs for {home} already")
        refuse_taken_port(host, port)
        stop = stack.enter_context(_stop_signals())
        _import_from_here()
        logs = home / "log"
        logs.mkdir(mode=0o700, exist_ok=True)
        while not stop():
            vaults = watch.vaults
            for one in vaults:
                _make_ready(one)
            if stop():
                return
            with _children(vaults[0], host=host, port=port, read_only=read_only) as children:
                if not _wait_until_ready(host, port, children, stop):
                    return
                write(f"vault-memory is up: {url} (Ctrl-C ends it)")
                write(f"following {', '.join(_followed(vaults))}; logs in {logs}")
                while not stop():
                    for child in children:
                        child.check()
                    if watch.is_changed(write):
                        write("the settings changed: starting anew")
                        _let_writers_end(vaults, stop)
                        break
                    time.sleep(_POLL_SECONDS)


def _followed(vaults: Sequence[Settings]) -> list[str]:
    """Name what is followed.

    Raises:
        VaultError: A vault is not there.
    """
    return [
        f"{'HEAD of' if source.kind == 'git' else 'the folder'} {source.path}" for source in map(open_source, vaults)
    ]


@contextmanager
def _children(settings: Settings, *, host: str, port: int, read_only: bool) -> Generator[list[Child]]:
    """Start webserver and daemon, and end them and all that they started."""
    children: list[Child] = []
    with ExitStack() as stack:
        guard = Guard()
        stack.callback(guard.dismiss)
        stack.callback(_take_back_heartbeats, settings)
        stack.callback(_end, children)
        for name, arguments in _commands(settings, host=host, port=port, read_only=read_only).items():
            children.append(_start(name, arguments, settings.home / "log" / f"{name}.log", settings.dagster_home))
            guard.watch(children[-1].process.pid)
        yield children


def _let_writers_end(vaults: Sequence[Settings], stop: Callable[[], bool]) -> None:
    """Wait for runs that are writing, for some time: one that is cut off is done again, and shown as failed."""
    deadline = time.monotonic() + _WRITERS_SECONDS
    for one in vaults:
        store = open_store(one)
        try:
            while not store.try_writer() and not stop() and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
        except VaultMemoryError as error:
            log.warning("did not wait for what may be writing: %s", error)
        finally:
            store.close()


def refuse_taken_port(host: str, port: int) -> None:
    """Check that nobody listens on a port.

    Raises:
        ConfigError: Somebody does, or the address is not ours to listen on.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        if isinstance(error, PermissionError):
            raise ConfigError(f"port {port} needs rights that this user has not: choose one from 1024 on") from None
        if isinstance(error, socket.gaierror):
            raise ConfigError(f"--host {host}: no such address") from None
        raise ConfigError(
            f"port {port} on {host} is taken ({error.strerror}): choose another, vault-memory up --port {port + 1}"
        ) from None


def _make_ready(settings: Settings) -> None:
    """Database, schema, Dagster's home and tables; and end the runs whose process died with the machine."""
    from vault_memory.defs import instance as dagster_instance  # noqa: PLC0415 - most of a second
    from vault_memory.defs.liveness import reclaim  # noqa: PLC0415 - as above
    from vault_memory.defs.partitions import Names  # noqa: PLC0415 - as above

    database = open_database(settings)
    store = open_store(settings)
    try:
        with dagster_instance.open_instance(settings, database.dagster_dsn) as instance:
            reclaim(instance, Names.of(settings), writer_is_free=store.try_writer)
    except WriterBusyError:
        pass  # a sync is going on; the sensor looks again in each of its ticks
    finally:
        store.close()


def _take_back_heartbeats(settings: Settings) -> None:
    """Let ``status`` know at once that nothing follows HEAD any more; by itself it would after ``ALIVE_SECONDS``."""
    from vault_memory.defs import instance as dagster_instance  # noqa: PLC0415 - most of a second

    try:
        with dagster_instance.open_instance(settings, open_database(settings).dagster_dsn) as instance:
            instance.wipe_daemon_heartbeats()  # another machine's daemon on this storage beats again within 30 s
    except VaultMemoryError as error:
        log.warning("the heartbeats could not be taken back: %s", error)


def _commands(settings: Settings, *, host: str, port: int, read_only: bool) -> dict[str, list[str]]:
    workspace = ["-w", str(settings.dagster_home / "workspace.yaml")]
    web = ["-h", host, "-p", str(port), *workspace, *(["--read-only"] if read_only else [])]
    return {
        "webserver": [sys.executable, "-P", "-m", "dagster_webserver", *web],
        "daemon": [sys.executable, "-P", "-m", "dagster._daemon", "run", "--log-level", "warning", *workspace],
    }


def _import_from_here() -> None:
    """Let the children and theirs import this package where it is not installed.

    PYTHONSAFEPATH would break that: Dagster's code server drops the first entry of the path, which it takes for the
    folder that it was started in.
    """
    if (root := checkout_root()) is not None:
        os.environ["PYTHONPATH"] = str(root)


def _start(name: str, arguments: list[str], log: Path, folder: Path) -> Child:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=subprocess.STDOUT,
            cwd=folder,
            # A group of its own: the terminal's Ctrl-C comes to us alone, and what is left at the end can be found.
            start_new_session=True,
        )
    except OSError as error:
        raise ServerError(f"the {name} cannot be started ({type(error).__name__})") from None
    finally:
        os.close(descriptor)
    return Child(name, process, log)


def _wait_until_ready(host: str, port: int, children: list[Child], stop: Callable[[], bool]) -> bool:
    """Wait for the web page; False if a signal came first."""
    deadline = time.monotonic() + _READY_SECONDS
    address = LOOPBACK if host in {"0.0.0.0", ""} else "::1" if host == "::" else host  # noqa: S104 - compared only
    while not stop():
        for child in children:
            child.check()
        connection = HTTPConnection(address, port, timeout=5)
        try:
            connection.request("GET", "/server_info")
            if connection.getresponse().status == HTTPStatus.OK:
                _require_definitions(address, port, children[0].log)
                return True
        except (OSError, HTTPException):
            pass  # not yet
        finally:
            connection.close()
        if time.monotonic() > deadline:
            raise ServerError(f"the web page did not come within {_READY_SECONDS:.0f} s; see {children[0].log}")
        time.sleep(_POLL_SECONDS)
    return False


def _require_definitions(address: str, port: int, log: Path) -> None:
    """Ask the web page whether it could load our definitions; with none, nothing would ever run.

    Raises:
        ServerError: It could not.
    """
    connection = HTTPConnection(address, port, timeout=_READY_SECONDS)
    try:
        connection.request("POST", "/graphql", json.dumps({"query": _LOADED}), {"Content-Type": "application/json"})
        entries = json.loads(connection.getresponse().read())["data"]["workspaceOrError"]["locationEntries"]
        kinds = [entry["locationOrLoadError"]["__typename"] for entry in entries]
    finally:
        connection.close()
    if kinds != ["RepositoryLocation"]:
        raise ServerError(f"Dagster cannot load vault_memory.definitions; see {log}")


def _end(children: list[Child]) -> None:
    """End all children and whatever they started; at most ``_GRACE_SECONDS`` are given to each sign."""
    for child in children:
        # To the leader alone: it ends its own children in order.
        if child.process.poll() is None:
            child.process.send_signal(signal.SIGINT)
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + _GRACE_SECONDS
        while time.monotonic() < deadline and any(child.process.poll() is None for child in children):
            time.sleep(_POLL_SECONDS / 4)
        for child in children:
            child.signal_group(number)
        if _all_gone(children, seconds=2.0):
            break
    for child in children:
        child.process.wait()


def _all_gone(children: list[Child], *, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for child in children:
            child.process.poll()  # a zombie would count as somebody
        if not any(child.signal_group(0) for child in children):
            return True
        time.sleep(_POLL_SECONDS / 4)
    return False


@contextmanager
def _stop_signals() -> Generator[Callable[[], bool]]:
    """Catch the signals that mean "end"; yields a function that says whether one came."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda got, _frame: came.append(got)) for number in _STOPPING}
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def exposure(host: str) -> str | None:
    """Return a warning for an address that others can reach; None for this machine's own."""
    if host in {"localhost", "::1"} or host.startswith("127."):
        return None
    return f"anybody who reaches {host} can read paths and start runs: the web page has no login"
