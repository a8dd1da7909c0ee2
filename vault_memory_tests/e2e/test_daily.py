"""The daily commands as processes: set up, looked after, backed up, forgotten, and brought back."""

import contextlib
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psycopg
import pytest

from vault_memory.adapters import server
from vault_memory_tests.e2e.test_commands import NOTE, command
from vault_memory_tests.fixtures.installation import Installation
from vault_memory_tests.fixtures.vault import MakeVault, VaultRepo


@pytest.fixture
def notes(installation: Installation) -> Installation:
    """An installation with three notes in memory."""
    for name in "abc":
        installation.vault.write(f"01_Projects/{name}.md", NOTE.replace("caches", f"caches of {name}"))
    installation.vault.commit()
    installation.steps()
    return installation


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The variables of a user who has nothing yet; an embedded server of theirs is deleted at the end."""
    home = tmp_path / "user" / "memory"
    yield {"HOME": str(tmp_path / "user"), "VAULT_MEMORY_HOME": str(home)}
    server.remove(home)


def checks(environment: dict[str, str], *arguments: str) -> tuple[int, dict[str, dict[str, str]], list[str]]:
    """Run ``doctor --json``; exit status, checks by name, repairs."""
    done = command(environment, "doctor", "--json", *arguments)
    found = json.loads(done.stdout)
    return done.returncode, {check["check"]: check for check in found["checks"]}, found["repaired"]


def answers(environment: dict[str, str], text: str) -> list[str]:
    """Ask, and return the sources."""
    done = command(environment, "query", text, "--format", "json")
    return [item["source"] for item in json.loads(done.stdout)["items"]] if done.returncode == 0 else []


def free_port() -> int:
    """Return a port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_dry_run_makes_nothing(newcomer: dict[str, str], make_vault: MakeVault) -> None:
    """Before there is a memory, the plan is told without a database, a key or a home."""
    vault = make_vault(files={"01_Projects/a.md": NOTE, "01_Projects/diary/b.md": NOTE})
    environment = {**newcomer, "VAULT_MEMORY_VAULT": str(vault.path)}

    done = command(environment, "sync", "--dry-run", "--json")

    assert 0 == done.returncode, done.stderr
    plan = json.loads(done.stdout)
    assert (2, 0) == (plan["texts"], plan["texts_reused"]), plan
    assert not Path(environment["VAULT_MEMORY_HOME"]).exists()
    assert not server.locate(Path(environment["VAULT_MEMORY_HOME"])).directory.exists()


# -- init ---------------------------------------------------------------------------------------------------------


def test_init_then_sync_then_query_without_a_variable(newcomer: dict[str, str], make_vault: MakeVault) -> None:
    """A vault with folders of its own: init proposes roots, takes them, and the later commands need no setting."""
    vault = make_vault(files={"Projects/a.md": NOTE, "Archive/b.md": NOTE})
    before = command(newcomer, "query", "rollback")

    first = command(newcomer, "init", str(vault.path))
    second = command(newcomer, "init", "--roots", "Projects")
    refused = command(newcomer, "init", "--roots", "Archive")

    assert 3 == before.returncode
    assert "vault-memory" in before.stderr
    assert 1 == len(before.stderr.splitlines()), before.stderr
    assert 0 == first.returncode, first.stderr
    assert "0 of 2 notes" in first.stderr
    assert "--roots Projects" in first.stderr
    assert 0 == second.returncode, second.stderr
    assert (3, 1) == (refused.returncode, len(refused.stderr.splitlines()))
    config = Path(newcomer["HOME"], ".config/vault-memory/config.toml")
    assert 0o600 == stat.S_IMODE(config.stat().st_mode)
    later = {"HOME": newcomer["HOME"]}  # the home stands in the file now
    assert 0 == command(later, "sync").returncode
    assert ["Projects/a.md"] == answers(later, "rollback")
    os.kill(_postmaster(newcomer), signal.SIGKILL)  # as a power cut would
    vault.write("Projects/a.md", NOTE + "\nmore\n")
    vault.commit()

    done = command(later, "query", "rollback")

    assert 0 == done.returncode, done.stderr
    assert "Projects/a.md" in done.stdout
    assert "the index is behind HEAD" in done.stdout


def _postmaster(environment: dict[str, str]) -> int:
    pid = server.status(Path(environment["VAULT_MEMORY_HOME"])).pid
    assert pid is not None
    return pid


def test_settings_inside_the_vault_are_refused(installation: Installation) -> None:
    """Whoever can write notes must not be able to write settings."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.commit()
    inside = str(installation.vault.path / "config.toml")
    Path(inside).write_text("")

    done = command({**installation.environment, "VAULT_MEMORY_CONFIG": inside}, "init")

    assert 3 == done.returncode
    assert "outside the vault" in done.stderr


def test_a_vault_of_other_folders_is_told_of_in_status_and_sync(installation: Installation) -> None:
    """Where nothing would be indexed, both say why."""
    installation.vault.write("Notes/a.md", NOTE)
    installation.vault.commit()

    assert "0 of 1 notes" in command(installation.environment, "sync").stderr
    done = command(installation.environment, "status", "--json")

    assert "0 of 1 notes" in json.loads(done.stdout)["warnings"][0]


# -- doctor -------------------------------------------------------------------------------------------------------


def test_a_sound_installation_has_no_problem(notes: Installation) -> None:
    """Exit 0; what is not there yet is a warning."""
    status, found, repaired = checks(notes.environment)

    assert (0, "ok", []) == (status, found["store"]["verdict"], repaired), found
    assert {"git", "vault", "HEAD", "roots", "hash key", "database", "pgvector", "schema"} <= set(found)


def test_what_is_wrong_in_the_store_is_found_and_mended(notes: Installation) -> None:
    """Ghost, stale row, missing row, wrong count and leftovers: each is named; repair and a sync make it right."""
    with psycopg.connect(notes.settings.dsn or "", autocommit=True) as connection:
        connection.execute("SET search_path = vault_memory, public")
        connection.execute(
            """INSERT INTO memory_primary SELECT (m).* FROM (SELECT jsonb_populate_record(p, '{"id": "04_Archive/ghost.md", "source": "04_Archive/ghost.md"}') AS m FROM memory_primary p WHERE id LIKE '%/a.md') x"""
        )
        connection.execute("UPDATE memory_primary SET blob_id = repeat('0', 40) WHERE id LIKE '%/b.md'")
        connection.execute("DELETE FROM memory_primary WHERE id LIKE '%/c.md'")
        connection.execute(
            "UPDATE memory_term SET chunks = chunks + 7 WHERE dimension = (SELECT min(dimension) FROM memory_term)"
        )
        connection.execute("""INSERT INTO embedding_stage SELECT 'old', model, dimensions, embedding, 'r', now() - interval '9 days'
                              FROM memory_chunk LIMIT 1""")
        connection.execute(
            "INSERT INTO note_state (id, status, blob_tag, ruleset_id) VALUES ('gone.md', 'indexed', 'x', 'y')"
        )

    status, found, _ = checks(notes.environment)

    assert 1 == status
    named = {"ghosts": "ghost.md", "stale rows": "b.md", "missing rows": "c.md", "left lines": "gone.md"}
    assert dict.fromkeys(named, True) == {name: named[name] in found[name]["detail"] for name in named}
    assert {"without chunks", "term counts", "staged"} <= set(found)

    _, found, repaired = checks(notes.environment, "--repair")

    assert {"ghosts", "left lines", "term counts", "staged"}.isdisjoint(found)
    assert any("ghosts" in line for line in repaired)
    notes.steps()
    status, found, _ = checks(notes.environment)
    assert (0, "ok") == (status, found["store"]["verdict"]), found


def test_repair_does_not_forget_a_whole_vault(notes: Installation) -> None:
    """On a wrong branch most notes look like ghosts; they are not deleted without a word of the user."""
    for number in range(12):
        notes.vault.write(f"01_Projects/n{number}.md", NOTE)
    notes.vault.commit()
    notes.steps()
    notes.vault.git("checkout", "-q", "--orphan", "other")
    notes.vault.git("rm", "-rqf", ".")
    notes.vault.write("01_Projects/other.md", NOTE)
    notes.vault.commit()

    status, found, repaired = checks(notes.environment, "--repair")

    assert (1, []) == (status, repaired)
    assert "--allow-mass-deletion" in found["store"]["detail"]


# -- forget, dump, restore ----------------------------------------------------------------------------------------


def test_forgotten_stays_forgotten_until_its_text_changes(notes: Installation) -> None:
    """Rows go at once; sync, sync --full and new rules leave it out; a new version, or --undo, brings it back."""
    source = "01_Projects/b.md"
    assert 0 == command(notes.environment, "forget", source).returncode
    assert source not in answers(notes.environment, "caches of b")

    notes.steps()
    notes.steps(full=True)
    assert source not in answers(notes.environment, "caches of b")
    assert 0 == checks(notes.environment)[0]
    assert 0 == command(notes.environment, "forget", "--undo", source).returncode
    notes.steps()
    assert source in answers(notes.environment, "caches of b")

    command(notes.environment, "forget", source)
    notes.vault.write(source, NOTE.replace("caches", "caches of b again"))
    notes.vault.commit()
    notes.steps()
    assert source in answers(notes.environment, "caches of b")
    unknown = command(notes.environment, "forget", "01_Projects/nowhere.md")
    assert (2, 1) == (unknown.returncode, len(unknown.stderr.splitlines()))


def test_a_dump_comes_back_whole(notes: Installation, tmp_path: Path) -> None:
    """Dump, lose everything, restore: the same store, and the reader may read it."""
    file = tmp_path / "memory.dump"
    assert 0 == command(notes.environment, "dump", str(file)).returncode
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    assert 3 == command(notes.environment, "dump", str(file)).returncode
    inside = command(notes.environment, "dump", str(notes.vault.path / "x.dump"))
    assert "must not lie in the vault" in inside.stderr
    refused = command(notes.environment, "restore", str(file))
    assert (3, 1) == (refused.returncode, len(refused.stderr.splitlines()))
    with psycopg.connect(notes.settings.dsn or "", autocommit=True) as connection:
        connection.execute("DROP SCHEMA vault_memory CASCADE")

    done = command(notes.environment, "restore", str(file))

    assert 0 == done.returncode, done.stderr
    assert 0 == checks(notes.environment)[0]
    assert "01_Projects/a.md" in answers(notes.environment, "caches of a")


def test_a_restore_that_fails_leaves_the_old_memory(notes: Installation, tmp_path: Path) -> None:
    """A damaged dump is refused, or rolled back; the notes go on answering."""
    file = tmp_path / "memory.dump"
    command(notes.environment, "dump", str(file))
    whole = file.read_bytes()
    for content in (b"nothing", whole[: len(whole) * 2 // 3]):
        file.write_bytes(content)

        done = command(notes.environment, "restore", "--replace", str(file))

        assert (3, 1) == (done.returncode, len(done.stderr.splitlines())), done.stderr
        assert 0 == checks(notes.environment)[0]


# -- hooks --------------------------------------------------------------------------------------------------------


def test_a_commit_is_remembered_by_the_hook(notes: Installation) -> None:
    """After install-hook a commit alone makes a note searchable."""
    refused = command(notes.environment, "install-hook")
    assert "dsn is set in this shell only" in said(refused)
    config = Path(notes.environment["HOME"], ".config/vault-memory/config.toml")
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(
        f"dsn = {json.dumps(notes.settings.dsn)}\ndagster_dsn = {json.dumps(notes.settings.dagster_dsn)}\n"
    )
    assert 0 == command(notes.environment, "install-hook").returncode
    notes.vault.write("01_Projects/d.md", "# Zebra\n\nAbout a zebra crossing.\n")
    notes.vault.commit()

    deadline = time.monotonic() + 90
    while "01_Projects/d.md" not in answers(notes.environment, "zebra crossing"):
        assert time.monotonic() < deadline, "the hook's sync did not come"
        time.sleep(0.5)
    assert 0 == command(notes.environment, "uninstall-hook").returncode


# -- up -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def running_up(environment: dict[str, str], port: int) -> Iterator[subprocess.Popen[str]]:
    """Run ``up``, wait until it says that it is up, and end it if the test has not."""
    process = subprocess.Popen(
        [sys.executable, "-m", "vault_memory.cli", "up", "--port", str(port)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path.cwd()), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert f"http://127.0.0.1:{port}" in line, line + process.stdout.read()
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=60)


def processes_of(home: str) -> list[int]:
    """Return the processes that have this home among their variables; Linux only."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"={home}/dagster\0".encode() in (folder / "environ").read_bytes() + b"\0":
                found.append(int(folder.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="counts processes in /proc")
def test_up_follows_commits_and_leaves_nothing(notes: Installation) -> None:
    """A commit is searchable by itself, GraphQL answers, a second up and down are refused, SIGINT ends everything."""
    environment, port = notes.environment, free_port()
    with running_up(environment, port) as process:
        notes.vault.write("01_Projects/d.md", "# Zebra\n\nAbout a zebra crossing.\n")
        notes.vault.commit()
        deadline = time.monotonic() + 90
        while "01_Projects/d.md" not in answers(environment, "zebra crossing"):
            assert time.monotonic() < deadline, "nothing followed the commit"
            time.sleep(0.3)
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/graphql",
            data=json.dumps({"query": "{version}"}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert "version" in json.load(answer)["data"]
        assert json.loads(command(environment, "status", "--json").stdout)["daemon"]["alive"]
        for arguments in (("down",), ("up", "--port", str(free_port()))):
            refused = command(environment, *arguments)
            assert (3, 1) == (refused.returncode, len(refused.stderr.splitlines())), refused.stderr
            assert str(process.pid) in refused.stderr
        assert 3 <= len(processes_of(environment["VAULT_MEMORY_HOME"]))
        process.send_signal(signal.SIGINT)
        assert 0 == process.wait(60)

    assert [] == processes_of(environment["VAULT_MEMORY_HOME"])
    assert not json.loads(command(environment, "status", "--json").stdout)["daemon"]["alive"]


@pytest.mark.slow  # two starts of Dagster, and a look at the folder every 15 s
def test_a_running_up_takes_up_a_new_folder(notes: Installation, tmp_path: Path) -> None:
    """A folder is indexed while ``up`` runs: it is watched from then on, and HEAD is followed as before."""
    config = Path(notes.environment["HOME"], ".config/vault-memory/config.toml")
    environment = {key: value for key, value in notes.environment.items() if key != "VAULT_MEMORY_CONFIG"}
    folder = tmp_path / "papers"
    folder.mkdir()
    (folder / "one.md").write_text("# Otters\n\nAbout otters and rivers.\n")
    with running_up(environment, free_port()) as process:
        done = command(environment, "index", str(folder), "--yes")
        assert 0 == done.returncode, done.stderr
        assert config.exists()
        assert "sees the new settings" in done.stderr
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        assert "the settings changed: starting anew\n" in lines
        assert f"the folder {folder}" in lines[-1]
        (folder / "two.md").write_text("# Herons\n\nAbout herons at the pond.\n")
        notes.vault.write("01_Projects/d.md", "# Zebra\n\nAbout a zebra crossing.\n")
        notes.vault.commit()
        deadline = time.monotonic() + 180
        while not ({"two.md", "01_Projects/d.md"} <= {*answers(environment, "herons"), *answers(environment, "zebra")}):
            assert time.monotonic() < deadline, "a change was not taken"
            time.sleep(0.3)
    assert [] == processes_of(environment["VAULT_MEMORY_HOME"])


def wait_for_nobody(home: str) -> None:
    """Wait until no process of a home is left."""
    deadline = time.monotonic() + 30
    while left := processes_of(home):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


@pytest.mark.slow
def test_a_killed_up_leaves_no_orphan(notes: Installation) -> None:
    """SIGKILL ends no child by itself; the guard does, and the next ``up`` needs no hand."""
    home = notes.environment["VAULT_MEMORY_HOME"]
    with running_up(notes.environment, free_port()) as process:
        assert 3 <= len(processes_of(home))
        process.kill()
        process.wait(10)
        wait_for_nobody(home)

    with running_up(notes.environment, free_port()):
        assert 3 <= len(processes_of(home))


@pytest.mark.slow
def test_after_a_reboot_the_next_query_answers(newcomer: dict[str, str], make_vault: MakeVault) -> None:
    """Everything is killed at once: ``up``, its children and the database. Query, then ``up`` go on by themselves."""
    vault = make_vault(files={"01_Projects/a.md": NOTE})
    for arguments in (("init", str(vault.path)), ("sync",)):
        assert 0 == command(newcomer, *arguments).returncode
    home = newcomer["VAULT_MEMORY_HOME"]
    with running_up(newcomer, free_port()) as process:
        doomed = [process.pid, *processes_of(home)]
        postmaster = _postmaster(newcomer)
        for pid in (*doomed, postmaster):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(10)
        wait_for_nobody(home)
    vault.write("01_Projects/a.md", NOTE + "\nmore\n")
    vault.commit()

    done = command(newcomer, "query", "rollback")

    assert 0 == done.returncode, done.stderr
    assert "01_Projects/a.md" in done.stdout
    assert "the index is behind HEAD" in done.stdout
    with running_up(newcomer, free_port()):
        deadline = time.monotonic() + 90
        while json.loads(command(newcomer, "status", "--json").stdout)["behind"] != 0:
            assert time.monotonic() < deadline, "nothing followed the commit after the reboot"
            time.sleep(0.5)
    assert 0 == command(newcomer, "down").returncode


@pytest.mark.slow
def test_up_ends_when_a_child_does(notes: Installation) -> None:
    """A daemon that dies takes ``up`` with it, with a message; nothing is left."""
    with running_up(notes.environment, free_port()) as process:
        for pid in processes_of(notes.environment["VAULT_MEMORY_HOME"]):
            with contextlib.suppress(OSError):
                if b"dagster._daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
        assert 3 == process.wait(60)
        assert process.stdout is not None
        assert "the daemon ended by itself (signal 9)" in process.stdout.read()

    assert [] == processes_of(notes.environment["VAULT_MEMORY_HOME"])


def test_a_taken_port_is_one_line(notes: Installation) -> None:
    """Another program's port is named, and the next one proposed."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(1)
        port = other.getsockname()[1]

        done = command(notes.environment, "up", "--port", str(port))

    assert (3, 1) == (done.returncode, len(done.stderr.splitlines())), done.stderr
    assert f"port {port} on 127.0.0.1 is taken" in done.stderr


# -- what a newcomer meets ----------------------------------------------------------------------------------------


def said(done: subprocess.CompletedProcess[str]) -> str:
    """Return the one line that a failed command said."""
    assert 3 == done.returncode, done.stdout + done.stderr
    assert 1 == len(done.stderr.splitlines()), done.stderr
    return done.stderr


def test_no_key_for_an_embedder_that_needs_one(notes: Installation) -> None:
    """Asked for the provider without a key: one line names the three places for it."""
    done = command({**notes.environment, "VAULT_MEMORY_EMBEDDER": "openai"}, "init", "--embedder", "openai")

    assert "OPENROUTER_API_KEY" in said(done)


@pytest.fixture
def denying_provider() -> Iterator[str]:
    """An embedding API on loopback that takes no key; its base URL."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Stay quiet."""

        def do_POST(self) -> None:
            """Refuse."""
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()

    provider = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=provider.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{provider.server_address[1]}/v1"
    provider.shutdown()
    provider.server_close()


def test_a_wrong_key(installation: Installation, denying_provider: str) -> None:
    """The provider's 401 is named with the setting to mend, by sync and by doctor; the key itself by neither."""
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.commit()
    environment = {
        **installation.environment,
        "VAULT_MEMORY_EMBEDDER": "openai",
        "VAULT_MEMORY_EMBEDDING_BASE_URL": denying_provider,
        "VAULT_MEMORY_EMBEDDING_ALLOW_HTTP_LOOPBACK": "1",
        "OPENROUTER_API_KEY": "sk-hunter2secret",
    }

    done = command(environment, "sync")
    status, found, _ = checks(environment, "--online")

    assert 0 != done.returncode
    assert "answered 401: check the API key" in done.stderr, done.stderr
    assert (1, "problem") == (status, found["embedder answers"]["verdict"]), found
    assert "OPENROUTER_API_KEY" in found["embedder answers"]["detail"] + found["embedder answers"]["mend"]
    assert "hunter2secret" not in done.stdout + done.stderr + json.dumps(found)


def test_a_role_without_rights(installation: Installation, postgres_server, make_database: Callable[..., str]) -> None:
    """The line says which role lacks what, and who can give it."""
    empty = make_database()
    name = f"vm_poor_{os.getpid()}"
    with postgres_server.connect() as connection:
        connection.execute(f"DROP ROLE IF EXISTS {name}")
        connection.execute(f"CREATE ROLE {name} LOGIN")
    try:
        dsn = psycopg.conninfo.make_conninfo(empty, user=name)
        line = said(command({**installation.environment, "VAULT_MEMORY_DSN": dsn}, "sync"))
    finally:
        with postgres_server.connect() as connection:
            connection.execute(f"DROP ROLE {name}")

    assert f"{name} may not" in line


def test_an_extra_that_is_not_installed(notes: Installation) -> None:
    """Without the pipeline's libraries the operator's commands name the extra."""
    program = (
        "import sys\n"
        "for name in ('dagster', 'openai', 'markdown_it', 'pgvector'): sys.modules[name] = None\n"
        "from vault_memory.cli import main\n"
        "main()\n"
    )
    for arguments in (("sync",), ("init",), ("doctor",), ("up",)):
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path.cwd()), **notes.environment},
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip

        assert "pip install 'vault-memory[pipeline]'" in said(done)


def test_data_of_another_server_version(newcomer: dict[str, str], make_vault: MakeVault, tmp_path: Path) -> None:
    """Data that the installed wheel cannot read is named with both versions, and left alone."""
    vault: VaultRepo = make_vault(files={"01_Projects/a.md": NOTE})
    info = server.locate(Path(newcomer["VAULT_MEMORY_HOME"]))
    info.data.mkdir(parents=True)
    (info.data / "PG_VERSION").write_text("12\n")
    if os.geteuid() == 0:
        shutil.chown(info.data, "nobody")

    line = said(command({**newcomer, "VAULT_MEMORY_VAULT": str(vault.path)}, "sync"))

    assert "PostgreSQL 12" in line
    assert "12\n" == (info.data / "PG_VERSION").read_text()


def test_the_data_is_named_and_can_be_deleted(newcomer: dict[str, str], make_vault: MakeVault) -> None:
    """``status`` and ``doctor`` say where the database lies; ``down --delete-data`` asks, then leaves nothing of it."""
    vault = make_vault(files={"01_Projects/a.md": NOTE})
    environment = {**newcomer, "VAULT_MEMORY_VAULT": str(vault.path)}
    directory = server.locate(Path(environment["VAULT_MEMORY_HOME"])).directory
    assert 0 == command(environment, "sync").returncode

    assert str(directory) in command(environment, "status").stdout
    assert str(directory) in json.loads(command(environment, "status", "--json").stdout)["database"]
    assert str(directory) in checks(environment)[1]["database"]["detail"]
    asked = command(environment, "down", "--delete-data")
    assert f"would delete {directory}" in asked.stdout
    assert "--yes" in said(asked)
    assert directory.exists()
    done = command(environment, "down", "--delete-data", "--yes")

    assert 0 == done.returncode, done.stderr
    assert not directory.exists()
    home = Path(environment["VAULT_MEMORY_HOME"])
    assert [] == sorted(path.name for path in home.iterdir()) if home.exists() else True
    assert "nothing to delete" in command(environment, "down", "--delete-data", "--yes").stdout
    assert 0 == command(environment, "sync").returncode, "settings and key stayed"
    assert ["01_Projects/a.md"] == answers(environment, "rollback")


def test_the_users_own_server_is_not_deleted(notes: Installation) -> None:
    """Where a DSN is set, the line names the statement that would do it there."""
    assert "DROP SCHEMA vault_memory" in said(command(notes.environment, "down", "--delete-data", "--yes"))
    assert answers(notes.environment, "rollback")


def test_an_old_pgvector(installation: Installation, make_database: Callable[..., str]) -> None:
    """Too old for the tables, or for the HNSW index that was asked for: one line with version and mend.

    The catalogue's row of the extension is what the product goes by, so that row is made older.
    """
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.commit()
    environment = installation.environment

    def have(version: str, dsn: str) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            connection.execute("UPDATE pg_extension SET extversion = %s WHERE extname = 'vector'", (version,))

    assert 0 == command(environment, "sync").returncode
    have("0.8.3", environment["VAULT_MEMORY_DSN"])
    code, found, _ = checks(environment)
    assert (0, "warning") == (code, found["pgvector"]["verdict"]), found
    assert "0.8.4" in found["pgvector"]["mend"]
    refused = command(environment, "index-check", "--set", "hnsw")
    assert 3 == refused.returncode
    assert "needs pgvector 0.8.4" in refused.stderr.splitlines()[-1]
    fresh = make_database()
    have("0.6.2", fresh)
    line = said(command({**environment, "VAULT_MEMORY_DSN": fresh}, "sync"))
    assert "0.6.2 is too old" in line
    assert "ALTER EXTENSION vector UPDATE" in line


def test_no_vault_and_no_repository(newcomer: dict[str, str], tmp_path: Path) -> None:
    """Nothing named, a folder that is not there, a folder without git: each is one line with what to do."""
    plain = tmp_path / "plain"
    plain.mkdir()

    assert "vault-memory init" in said(command(newcomer, "sync"))
    assert "vault-memory init /path/to/vault" in said(command(newcomer, "init"))
    assert "absent" in said(command(newcomer, "init", str(tmp_path / "absent")))
    assert "git init" in said(command(newcomer, "init", str(plain)))


@pytest.mark.skipif(sys.platform != "linux", reason="needs a loopback address of its own")
def test_a_server_over_tcp_with_a_password(newcomer: dict[str, str], make_vault: MakeVault, tmp_path: Path) -> None:
    """PostgreSQL over TCP with SCRAM: sync, query and status work; a wrong password is a line without it."""
    address = f"127.{1 + os.getpid() % 250}.{os.getpid() // 250 % 250}.9"
    vault = make_vault(files={"01_Projects/a.md": NOTE})
    home = tmp_path / "far"
    try:
        info = server.ensure_running(home, settings={"listen_addresses": address, "fsync": "off"})
        with psycopg.connect(info.dsn("postgres"), autocommit=True) as connection:
            connection.execute("CREATE ROLE far LOGIN SUPERUSER PASSWORD 'opensesame'")
            connection.execute("CREATE DATABASE far OWNER far")
            with (info.data / "pg_hba.conf").open("r+") as file:
                rules = file.read()
                file.seek(0)
                file.write(f"host all all 127.0.0.0/8 scram-sha-256\n{rules}")
            connection.execute("SELECT pg_reload_conf()")
        dsn = f"postgresql://far:opensesame@{address}:5432/far"
        environment = {**newcomer, "VAULT_MEMORY_VAULT": str(vault.path), "VAULT_MEMORY_DSN": dsn}
        first = command(environment, "sync")
        assert 0 == first.returncode, first.stderr
        assert ["01_Projects/a.md"] == answers(environment, "rollback")
        assert not server.locate(Path(newcomer["VAULT_MEMORY_HOME"])).directory.exists(), "no embedded one was made"
        shown = command(environment, "status")
        wrong = command({**environment, "VAULT_MEMORY_DSN": dsn.replace("opensesame", "opensesamy")}, "sync")
    finally:
        server.remove(home)

    assert "VAULT_MEMORY_DSN" in shown.stdout
    assert "opensesam" not in shown.stdout + shown.stderr + wrong.stdout + wrong.stderr
    assert "password" in said(wrong)
