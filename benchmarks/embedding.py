"""How much of what latency and concurrency allow the embedder uses.

Usage::

    python benchmarks/embedding.py [--notes 1000] [--latency-ms 0,100] [--concurrency 4] [--batch 64]

Needs ``VAULT_MEMORY_TEST_DATA`` (a vault maker and an embeddings server). Two servers answer:

* ``hash``: the real one, which computes vectors; its own work is part of every second. What it allows is
  measured with plain threads that send the very same requests and throw the answers away unread.
* ``canned``: answers at once with a prepared body, so that latency is all there is. What it allows is computed:
  the number of rounds times the latency.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from vault_memory.adapters.batching import Limits, pack
from vault_memory.adapters.egress import check_base_url
from vault_memory.adapters.embed_text import EmbedText, texts_of
from vault_memory.adapters.embedding import OpenAIEmbedder
from vault_memory.errors import EgressBlocked
from vault_memory.notes.chunking import chunk
from vault_memory.notes.exclusion import compile_ruleset
from vault_memory.notes.model import CleanNote, RawNote
from vault_memory.notes.paths import NotePath
from vault_memory.notes.scanner import scan_note
from vault_memory.settings import EmbeddingSettings, ScanSettings

DATA = Path(os.environ.get("VAULT_MEMORY_TEST_DATA", ""))


def read_texts(notes: int) -> list[EmbedText]:
    """Make a vault and take the way of every note: read, scan, chunk, scan what would be sent."""
    rules = compile_ruleset(ScanSettings(), None)
    texts: list[EmbedText] = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, DATA / "tools" / "make_vault.py", folder, str(notes)], check=True, capture_output=True
        )
        for path in sorted(Path(folder).rglob("*.md")):
            raw = RawNote(NotePath.from_text(path.relative_to(folder).as_posix()), "0" * 40, path.read_bytes())
            note = scan_note(raw, rules)
            if isinstance(note, CleanNote):
                try:
                    texts += texts_of(note, chunk(note))
                except EgressBlocked as stopped:
                    print(f"stopped: {stopped}")
    return list({text.text_hash: text for text in texts}.values())


@contextmanager
def served(*command: str) -> Iterator[str]:
    """Run a server that prints its URL as the third word of its first line."""
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().split()[2]
        finally:
            process.terminate()


def serve_canned(latency_ms: float) -> None:
    """Answer every request with unit vectors after the latency; never returns."""
    vector = json.dumps([round(math.sin(place + 1) / 28, 9) for place in range(1536)])
    bodies: dict[int, bytes] = {}
    counts = {"live": 0, "max_concurrency": 0}
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"] or 0))
            count = len(json.loads(data)["input"])
            with lock:
                counts["live"] += 1
                counts["max_concurrency"] = max(counts["live"], counts["max_concurrency"])
            if count not in bodies:
                items = ",".join(f'{{"index":{index},"embedding":{vector}}}' for index in range(count))
                bodies[count] = f'{{"data":[{items}],"usage":{{"total_tokens":{count}}}}}'.encode()
            time.sleep(latency_ms / 1000)
            with lock:
                counts["live"] -= 1
            self._send(bodies[count])

        def do_GET(self) -> None:
            self._send(json.dumps(counts).encode())

        def _send(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(f"listening on http://127.0.0.1:{server.server_address[1]}/v1", flush=True)
    server.serve_forever()


def call(url: str, path: str, body: bytes | None = None, connection: http.client.HTTPConnection | None = None) -> bytes:
    """Send one plain request."""
    connection = connection or http.client.HTTPConnection(url.split("/")[2], timeout=60)
    connection.request("GET" if body is None else "POST", path, body, {"Content-Type": "application/json"})
    return connection.getresponse().read()


def plain_seconds(embedder: OpenAIEmbedder, texts: list[EmbedText], concurrency: int) -> float:
    """Send the same requests from plain threads, a connection each, and drop the answers."""
    provider = embedder.endpoint.provider
    limits = Limits(embedder.max_texts_per_request, provider.max_request_tokens, provider.max_request_bytes)
    bodies = [
        json.dumps(
            embedder.endpoint.request_body(embedder.model, embedder.dimensions, [text.text for text in batch])
        ).encode()
        for batch in pack(texts, limits)
    ]
    local = threading.local()

    def send(body: bytes) -> None:
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection(embedder.endpoint.embeddings_url.split("/")[2], timeout=60)
        call(embedder.endpoint.base_url, "/v1/embeddings", body, local.connection)

    start = time.perf_counter()
    with ThreadPoolExecutor(concurrency) as pool:
        list(pool.map(send, bodies))
    return time.perf_counter() - start


def measure(name: str, url: str, texts: list[EmbedText], latency_ms: float, options: argparse.Namespace) -> None:
    """Print one row."""
    settings = EmbeddingSettings(
        model="m", base_url=url, concurrency=options.concurrency, max_batch_texts=options.batch
    )
    embedder = OpenAIEmbedder(check_base_url(url, allow_http_loopback=True), settings, "k")
    embedder.embed(texts[:1])  # imports and the server's warm-up are not what is measured
    embedder.proven = False
    plain = plain_seconds(embedder, texts, options.concurrency)
    if name == "hash":
        call(url, "/__reset", b"{}")
    start, cpu = time.perf_counter(), time.process_time()
    result = embedder.embed(texts, on_vectors=lambda _: None, keep_vectors=False)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    in_flight = json.loads(call(url, "/__stats"))["max_concurrency"]
    rounds = math.ceil(result.requests / options.concurrency)
    allowed = rounds * latency_ms / 1000 if name == "canned" and latency_ms else plain
    print(
        f"| {name} | {latency_ms:g} | {result.embedded} | {result.requests} | {result.tokens} | {in_flight} "
        f"| {seconds:.2f} | {cpu:.2f} | {plain:.2f} | {allowed:.2f} | {100 * allowed / seconds:.0f} % |",
        flush=True,
    )


def main() -> None:
    """Run every combination and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--notes", type=int, default=1000)
    parser.add_argument("--latency-ms", default="0,100")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--serve-canned", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_canned is not None:
        serve_canned(options.serve_canned)
    start = time.perf_counter()
    texts = read_texts(options.notes)
    print(
        f"{options.notes} notes, {len(texts)} texts; read, scanned and chunked in {time.perf_counter() - start:.1f} s"
    )
    print(
        "| server | latency ms | texts | requests | tokens | in flight | seconds | own CPU | plain | allowed | share |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for latency_ms in map(float, options.latency_ms.split(",")):
        script = str(DATA / "tools" / "embedding_server.py")
        for _ in range(options.repeat):
            with served(script, "--backend", "hash", "--port", "0", "--latency-ms", str(latency_ms)) as url:
                measure("hash", url, texts, latency_ms, options)
            with served(__file__, "--serve-canned", str(latency_ms)) as url:
                measure("canned", url, texts, latency_ms, options)


if __name__ == "__main__":
    main()
