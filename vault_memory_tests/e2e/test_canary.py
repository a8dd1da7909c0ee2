"""Where a canary beside a secret could sing: every sink of a real sync, with Dagster, a provider and PostgreSQL.

One vault holds a note of every reason for quarantine, of every rule of the pack and of every kind of exclusion, one whose
name itself is the secret, notes that the provider and the database refuse, and
one that is fine. Every note holds a canary of its own. The canaries of the first kinds may be nowhere; those of the
others only where note text belongs, which also proves that the search through each of those sinks can find something.
"""

import base64
import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psycopg
import pytest
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import EmptyWorkspaceTarget
from dagster_graphql.schema import create_schema
from psycopg import sql

from vault_memory.adapters import server
from vault_memory.defs.instance import open_instance
from vault_memory.notes.model import QuarantineReason
from vault_memory_tests.fixtures.installation import Installation
from vault_memory_tests.fixtures.postgres import PostgresServer, test_home
from vault_memory_tests.fixtures.secret_samples import RULE_IDS, SAMPLES

# In no other test: what the server's write-ahead log holds of others must not be taken for ours.
TOKEN = "ghp" + "_" + "Qm4vT8xZ1bN6cR3kW9sJ5hD2fL7pY0gA8eUi"
PEM = (
    "-----BEGIN OPENSSH " + "PRIVATE KEY-----\n"
    + "b3BlbnNzaC1rZXktdjEAAAAACmFlczI1Ni1jdHIAAAAGYmNyeXB0AAAAGAAAABCx\n" * 4
    + "-----END OPENSSH " + "PRIVATE KEY-----\n"
)  # fmt: skip
NAME = "ghp" + "_" + "Zt7wQ2mV9xK4bN1cR6sJ3hD8fL5pY0gA2eUo"  # in a name and nowhere else
KEPT_IN = {
    "token": "Deploy with {token} and the word {canary}.\n",
    "chinese": "服务器 {canary}\n\n密码：Xk9" + "#mQ2vLp7w\n",
    "database-url": "{canary} postgresql://admin:" + "hUnt3r-9xQz@db7.harbour.net/prod\n",
    "pem": "{canary}\n\n{pem}",
    "base64": "{canary}\n\n{base64}\n",
    "split": '{canary}: key = "' + TOKEN[:12] + '" + "' + TOKEN[12:] + '"\n',
    "heading": "# {canary} {token}\n\nText.\n",
    "too-large": "{canary}\n" + "x" * 70_000,
    "undecodable": b"{canary} 21\xb0 {canary}\n",
    "nul": b"{canary} a\x00b {canary}\n",
    "front-matter": "---\nprivate: [yes\ntitle: {canary}\n---\n\n{canary}\n",
    "timeout": "{canary} SLEEP\n",
    "scan-error": "{canary} RAISE\n",
    "crash": "{canary} CRASH\n",
}
EXCLUDED = {
    "01_Projects/private-key.md": "---\nprivate: true\n---\n\n{canary}\n",
    "01_Projects/tagged.md": "{canary} #private/sub\n",
    "01_Projects/Infrastructure/x.md": "{canary}\n",
    "01_Projects/drafts/x.md": "{canary}\n",
    "04_Archive/x.md": "{canary}\n",
    "outside.md": "{canary}\n",
}
FAILING = {
    "01_Projects/refused-nul.md": "# A\n\nFirst {canary}.\n",
    "01_Projects/refused-cast.md": "# B\n\nSecond {canary}.\n",
    "01_Projects/refused-null.md": "# C\n\nThird {canary}.\n",
    "01_Projects/refused-check.md": "# D\n\nFourth {canary}.\n",
    "01_Projects/provider-echoes.md": "# E\n\nECHO this {canary} please.\n",
}
FINE = {"01_Projects/fine.md": "# Harbour\n\nThe lighthouse keeper says {canary}.\n"}
_LOGS = """query($id: ID!, $after: String) { logsForRun(runId: $id, afterCursor: $after) { __typename
  ... on EventConnection { cursor hasMore events { __typename
    ... on MessageEvent { message stepKey level }
    ... on ErrorEvent { error { message className stack causes { message stack }
      errorChain { error { message stack } } } }
    ... on MaterializationEvent { partition label metadataEntries { label description
      ... on TextMetadataEntry { text } ... on JsonMetadataEntry { jsonString } } tags { key value } }
    ... on ExecutionStepFailureEvent { failureMetadata { label description metadataEntries { label description
      ... on TextMetadataEntry { text } ... on JsonMetadataEntry { jsonString } } } }
  } } ... on PythonError { message } } }"""
_RUNS = "query { runsOrError { ... on Runs { results { runId runConfigYaml tags { key value } } } } }"


@dataclass
class Recorder:
    """An embedding API on loopback that keeps every byte it was sent, and repeats a text that asks for it."""

    url: str = ""
    received: list[bytes] = field(default_factory=list)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """Run the provider."""
    state = Recorder()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Stay quiet."""

        def do_POST(self) -> None:
            """Answer with a vector for each text, or with an error that quotes the request."""
            request = self.rfile.read(int(self.headers["Content-Length"]))
            state.received += [request, bytes(self.headers)]
            texts = json.loads(request)["input"]
            data = [{"object": "embedding", "index": n, "embedding": [1.0, *[0.0] * 7]} for n, _ in enumerate(texts)]
            status, answer = 200, {"object": "list", "data": data, "model": "m", "usage": {"total_tokens": 1}}
            if any("ECHO" in text for text in texts):
                status, answer = 400, {"error": {"message": f"bad input: {request.decode()}", "code": "invalid"}}
            body = json.dumps(answer).encode()
            with contextlib.suppress(OSError):
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    yield state
    http.shutdown()
    http.server_close()
    thread.join()


def run(installation: Installation, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run the launcher as a process of its own, with -v."""
    return subprocess.run(
        [sys.executable, "-m", "vault_memory_tests.e2e.canary_launcher", "-v", *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path.cwd()), **installation.environment},
        capture_output=True,
        check=False,
        timeout=280,
    )


def ask(installation: Installation, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Ask as an agent does."""
    return subprocess.run(
        [sys.executable, "-m", "vault_memory.query.cli", *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path.cwd()), **installation.environment},
        capture_output=True,
        check=False,
        timeout=60,
    )


def rows_of(dsn: str) -> bytes:
    """Return every row of every table of a database as text."""
    found: list[bytes] = []
    with psycopg.connect(dsn) as connection:
        tables = connection.execute(
            """SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE c.relkind IN ('r', 'm', 'v') AND n.nspname NOT IN ('pg_catalog', 'information_schema')"""
        ).fetchall()
        assert len(tables) > 5
        for schema, name in tables:
            rows = connection.execute(sql.SQL("SELECT t::text FROM {} t").format(sql.Identifier(schema, name)))
            found += [row[0].encode() for row in rows]
    return b"\n".join(found)


def files_of(folder: Path) -> bytes:
    """Return the bytes and names of all files below a folder."""
    found: list[bytes] = []
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # the server swaps files while we read
            found.append(os.fsencode(path) + b"\n" + (path.read_bytes() if path.is_file() else b""))
    return b"\n".join(found)


def events_of(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Return what Dagster's web page could ask of every run, by its own GraphQL schema."""
    for name in ("DAGSTER_HOME", "VAULT_MEMORY_DAGSTER_DSN"):
        monkeypatch.setenv(name, "set by the bootstrap")
    schema = create_schema()
    found: list[str] = []
    dsn = installation.environment["VAULT_MEMORY_DAGSTER_DSN"]
    with (
        open_instance(installation.settings, dsn) as instance,
        WorkspaceProcessContext(instance, EmptyWorkspaceTarget()) as process,
    ):
        context = process.create_request_context()

        def ask(query: str, **variables: object) -> dict[str, object]:
            result = schema.execute(query, context_value=context, variables=variables)
            assert not result.errors, result.errors
            found.append(json.dumps(result.data, ensure_ascii=False))
            return result.data

        runs = ask(_RUNS)["runsOrError"]["results"]
        assert runs
        for one in runs:
            after, more = None, True
            while more:
                page = ask(_LOGS, id=one["runId"], after=after)["logsForRun"]
                after, more = page["cursor"], page["hasMore"]
    text = "\n".join(found)
    assert "MaterializationEvent" in text
    assert "01_Projects/token.md" in text
    return text.encode()


def database_files(postgres_server: PostgresServer, installation: Installation) -> bytes:
    """Return what may be looked for in the files of both databases and the write-ahead log, after a checkpoint."""
    data = server.status(test_home()).info.data
    names = [psycopg.conninfo.conninfo_to_dict(installation.environment[name])["dbname"] for name in _DSNS]
    with postgres_server.connect() as connection:
        connection.execute("CHECKPOINT")
        ids = connection.execute("SELECT oid FROM pg_database WHERE datname = ANY(%s)", [names]).fetchall()
    assert len(_DSNS) == len(ids)
    pattern = re.compile(
        b"|".join((rb"CANARY-[0-9a-f-]{36}", TOKEN.encode(), NAME.encode(), PEM.splitlines()[1].encode()))
    )
    marks: set[bytes] = set()
    for folder in (*(data / "base" / str(oid) for (oid,) in ids), data / "pg_wal"):
        for path in folder.iterdir():
            with contextlib.suppress(OSError):  # the server swaps segments while we read; they may be 512 MB together
                marks.update(pattern.findall(path.read_bytes()))
    return b"\n".join(marks)


def fill(installation: Installation, notes: dict[str, str | bytes]) -> dict[str, bytes]:
    """Write notes with a canary in each, and return the canaries."""
    canaries: dict[str, bytes] = {}
    for path, text in notes.items():
        canary = f"CANARY-{uuid.uuid4()}"
        canaries[path] = canary.encode()
        if isinstance(text, bytes):
            installation.vault.write(path, text.replace(b"{canary}", canary.encode()))
        else:
            values = {"canary": canary, "token": TOKEN, "pem": PEM, "base64": base64.b64encode(PEM.encode()).decode()}
            for name, value in values.items():
                text = text.replace(f"{{{name}}}", value)  # noqa: PLW2901 - a template being filled
            installation.vault.write(path, text)
    return canaries


_LONG = 24


def secrets_in(content: bytes, canaries: list[bytes]) -> list[bytes]:
    """Return which of the canaries and the secrets of this test stand in a sink."""
    # What stands alone on a line of a sample is its secret; shorter lines are words that any text may hold.
    lines = [line.encode() for text in SAMPLES.values() for line in text.splitlines() if len(line) > _LONG]
    own = [TOKEN.encode(), NAME.encode(), NAME.encode().hex().encode(), PEM.splitlines()[1].encode()]
    return [text for text in (*canaries, *own, *lines) if text in content]


_DSNS = ("VAULT_MEMORY_DSN", "VAULT_MEMORY_DAGSTER_DSN")


@pytest.mark.timeout(600)  # a dozen processes, one of which waits for a scan that has to be killed
@pytest.mark.skipif(
    "VAULT_MEMORY_TEST_SERVER" in os.environ, reason="looks into the files and the log of our own server"
)
def test_no_canary_sings(
    make_installation: Callable[..., Installation],
    recorder: Recorder,
    postgres_server: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No sink holds a quarantined or excluded note's text; no log, event or exception holds any note's text."""
    config = tmp_path / "config" / "config.toml"
    config.parent.mkdir()
    config.write_text("[scan]\nmax_note_bytes = 65536\ntime_budget_seconds = 5\n")
    installation = make_installation(
        VAULT_MEMORY_CONFIG=str(config),
        VAULT_MEMORY_EMBEDDER="openai",
        VAULT_MEMORY_EMBEDDING_BASE_URL=recorder.url,
        VAULT_MEMORY_EMBEDDING_MODEL="m",
        VAULT_MEMORY_EMBEDDING_DIMENSIONS="8",
        VAULT_MEMORY_EMBEDDING_ALLOW_HTTP_LOOPBACK="1",
        VAULT_MEMORY_EMBEDDING_MAX_ATTEMPTS="2",
        OPENROUTER_API_KEY="sk-canary-of-the-key",
    )
    quarantined = {f"01_Projects/{name}.md": text for name, text in KEPT_IN.items()}
    by_rule = {f"01_Projects/rules/{rule}.md": f"{{canary}}\n\n{SAMPLES[rule]}\n" for rule in sorted(RULE_IDS)}
    named = f"01_Projects/{NAME}.md"
    quarantined |= {**by_rule, named: "{canary}\n"}
    canaries = fill(installation, {**quarantined, **EXCLUDED, **FAILING, **FINE})
    # It was fine once and embedded, then it gained a secret: what is new may be nowhere.
    grown = "01_Projects/grown.md"
    installation.vault.write(grown, "# Grown\n\nHarmless.\n")
    installation.vault.write(".vaultmemoryignore", "drafts/\n")
    installation.vault.commit()
    first = run(installation, "sync", "--json")
    canaries[grown] = f"CANARY-{uuid.uuid4()}".encode()
    installation.vault.write(grown, f"# Grown\n\nHarmless, {canaries[grown].decode()} {TOKEN}.\n")
    installation.vault.commit()

    outputs = [
        first,
        run(installation, "sync", "--json"),
        run(installation, "status", "--json"),
        run(installation, "quarantine", "list", "--json"),
        run(installation, "quarantine", "show", grown),
        run(installation, "quarantine", "allow", grown),
        run(installation, "quarantine", "revoke", grown),
    ]
    checked = run(installation, "doctor", "--json")
    answers = [
        ask(installation, "the lighthouse keeper of the harbour", "-k", "20", "--explain"),
        ask(installation, "the word deploy token password", "-k", "20", "--mode", "keyword", "--format", "json"),
        ask(installation, "get", grown),
        ask(installation, "get", "01_Projects/token.md"),
    ]

    result = json.loads(first.stdout)
    assert (1, len(quarantined), len(FAILING), 2) == (
        first.returncode, result["quarantined"], result["failed"], result["excluded"],
    ), first.stderr  # fmt: skip
    assert [1, 0, 0, 0, 0, 0] == [done.returncode for done in outputs[1:]], outputs
    held = {one["source"]: one["reason"] for one in json.loads(outputs[3].stdout)}
    withheld = next(source for source in held if source.startswith("01_Projects/withheld-"))
    assert {grown, withheld, *quarantined} - {named} == set(held)
    assert {reason.value for reason in QuarantineReason} == set(held.values())
    listed = {one["source"]: one["rules"] for one in json.loads(outputs[3].stdout)}
    assert [] == [path for path in by_rule if Path(path).stem not in listed[path]]
    assert [grown] == [one["source"] for one in json.loads(outputs[1].stdout)["rotate"]]
    assert [0, 0] == [done.returncode for done in answers[:2]], answers
    assert all(done.returncode for done in answers[2:])  # what is held back is not there to be had
    assert json.loads(checked.stdout)

    info = server.status(test_home()).info
    texts = {
        "requests": b"".join(recorder.received),
        "memory tables": rows_of(installation.environment["VAULT_MEMORY_DSN"]),
        "database files": database_files(postgres_server, installation),
        "answers": b"".join(done.stdout + done.stderr for done in answers),
    }
    silent = {
        "Dagster's tables": rows_of(installation.environment["VAULT_MEMORY_DAGSTER_DSN"]),
        "GraphQL": events_of(installation, monkeypatch),
        "output": b"".join(done.stdout + done.stderr for done in (*outputs, checked)),
        "home": files_of(installation.settings.home),
        "configuration": files_of(config.parent),
        "PostgreSQL's log": info.log.read_bytes(),
    }
    kept = [canaries[path] for path in sorted({*quarantined, *EXCLUDED, grown})]
    assert {} == {sink: found for sink, content in {**texts, **silent}.items() if (found := secrets_in(content, kept))}
    for sink, content in silent.items():
        assert [] == [path for path in sorted(canaries) if canaries[path] in content], sink
        assert b"sk-canary-of-the-key" not in content, sink
    # Control: the same search does find what belongs there.
    fine = canaries["01_Projects/fine.md"]
    assert texts.keys() == {sink for sink, text in texts.items() if fine in text}
    assert canaries["01_Projects/provider-echoes.md"] in texts["requests"]
    failures = {failure["source"]: failure["reason"] for failure in result["failures"]}
    assert set(FAILING) == set(failures)
    assert "sqlstate 22007" in failures["01_Projects/refused-cast.md"]
    assert "constraint memory_chunk_check" in failures["01_Projects/refused-check.md"]
