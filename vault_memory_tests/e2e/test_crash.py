"""A sync that is killed in mid-run, and the one after it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from vault_memory_tests.e2e.test_commands import NOTE, command
from vault_memory_tests.fixtures.installation import Installation
from vault_memory_tests.integration.ingest.test_sync import contents


@dataclass
class Provider:
    """An embedding API on loopback that answers the first requests and then keeps the caller waiting.

    Attributes:
        url: Its base URL.
        texts: Every text that it was paid for, in order.
        stuck: Set when a request is waiting.
        go_on: Set to answer at once from now on.
        answer_first: How many requests are answered before it stops.
    """

    url: str = ""
    texts: list[str] = field(default_factory=list)
    stuck: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    answer_first: int = 1


@pytest.fixture
def provider() -> Iterator[Provider]:
    """Run a provider that gives every text the same unit vector."""
    state = Provider()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Stay quiet."""

        def do_POST(self) -> None:
            """Answer with vectors, or wait."""
            texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
            with lock:
                waits = state.answer_first <= 0 and not state.go_on.is_set()
                state.answer_first -= 1
            if waits:
                state.stuck.set()
                state.go_on.wait(120)
            state.texts += texts
            data = [{"object": "embedding", "index": n, "embedding": [1.0, *[0.0] * 7]} for n, _ in enumerate(texts)]
            body = json.dumps({"object": "list", "data": data, "model": "m", "usage": {"total_tokens": 1}}).encode()
            with contextlib.suppress(OSError):
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    yield state
    state.go_on.set()
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_killed_sync_is_made_good_by_the_next(
    make_installation: Callable[..., Installation],
    make_database: Callable[..., str],
    template_database: str,
    provider: Provider,
) -> None:
    """SIGKILL in mid-run, then sync again without a daemon: the same as a rebuild, and nothing paid for twice."""
    installation = make_installation(
        VAULT_MEMORY_EMBEDDER="openai",
        VAULT_MEMORY_EMBEDDING_BASE_URL=provider.url,
        VAULT_MEMORY_EMBEDDING_MODEL="m",
        VAULT_MEMORY_EMBEDDING_DIMENSIONS="8",
        VAULT_MEMORY_EMBEDDING_ALLOW_HTTP_LOOPBACK="1",
        VAULT_MEMORY_EMBEDDING_CONCURRENCY="1",
        VAULT_MEMORY_EMBEDDING_MAX_BATCH_TEXTS="4",
        OPENROUTER_API_KEY="k",
    )
    for number in range(6):
        installation.vault.write(f"01_Projects/{number}.md", NOTE.replace("caches", f"topic{number}" * 3))
    installation.vault.commit()
    process = subprocess.Popen(
        [sys.executable, "-m", "vault_memory.cli", "sync"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path.cwd()), **installation.environment},
    )
    assert provider.stuck.wait(120), "the sync never got to its second request"
    process.send_signal(signal.SIGKILL)
    assert -signal.SIGKILL == process.wait(30)
    provider.go_on.set()

    result = command(installation.environment, "sync", "--json", "--wait", "10")

    assert 0 == result.returncode, result.stderr
    assert 6 == json.loads(result.stdout)["added"]
    fresh = make_installation(
        installation.vault,
        **{
            **installation.environment,
            "VAULT_MEMORY_DSN": make_database(template_database),
            "VAULT_MEMORY_HMAC_KEY_FILE": str(installation.settings.hmac_key_file),
        },
    )
    paid = list(provider.texts)
    fresh.steps()
    assert contents(fresh) == contents(installation)
    # The request in flight when the process died may have been answered; what had arrived is not bought again.
    assert 7 == len(set(paid))
    assert len(paid) <= 7 + 4
