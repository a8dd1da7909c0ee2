"""The embedder against a real server with faults, and against small hostile ones."""

import json
import logging
import math
import threading
import time
import tracemalloc
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module

import pytest

from vault_memory.adapters.egress import check_base_url
from vault_memory.adapters.embedding import OpenAIEmbedder
from vault_memory.adapters.embedding_run import Pace
from vault_memory.errors import (
    EmbeddingAnswerError,
    EmbeddingDenied,
    EmbeddingRejected,
    EmbeddingUnavailable,
)
from vault_memory.settings import EmbeddingSettings

CANARY = "CANARY-0b5c"
KEY = "sk-KEYCANARY-77aa"


@pytest.fixture(autouse=True)
def _hostile_environment(monkeypatch):
    """Variables that would send the text elsewhere if anybody listened to them."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy", "OPENAI_BASE_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-other")
    monkeypatch.setenv("OPENAI_LOG", "debug")


@pytest.fixture(autouse=True)
def logs(caplog):
    """Everything that anybody logs, at the lowest level, also by the libraries."""
    for name in ("", "openai", "openai._base_client", "httpx2", "httpcore2.http11", "httpcore2.connection"):
        caplog.set_level(logging.DEBUG, name)
    return caplog


def embedder(url, pace=None, **changed) -> OpenAIEmbedder:
    """Open an embedder that waits for milliseconds where it would wait for seconds."""
    defaults = {"model": "m", "base_url": url, "max_batch_texts": 8, "timeout_seconds": 5, "max_backoff_seconds": 0.01}
    settings = EmbeddingSettings(**{**defaults, **changed})
    return OpenAIEmbedder(check_base_url(url, allow_http_loopback=True), settings, KEY, pace=pace)


def quiet(result, logs):
    """Assert that neither text nor key is in a log, a message or an exception's surroundings."""
    shown = logs.text + "".join(
        f"{error!r} {error.__cause__!r} {error.__context__!r} {error.__traceback__!r}"
        for error in result.failed.values()
    )
    assert CANARY not in shown
    assert "KEYCANARY" not in shown


@pytest.fixture
def canaries(make_texts):
    """Make so many texts that must not be seen anywhere."""
    return lambda count: make_texts(*(f"{CANARY} number {number} 笔记" for number in range(count)))


# ---------------------------------------------------------------- the real server


def test_embeds_in_batches(embedding_server, canaries, logs):
    """Texts go out in batches, each once; vectors arrive as they come, under their hashes, at unit length."""
    texts = canaries(50)
    handed_over = {}

    result = embedder(embedding_server.url).embed([*texts, texts[0]], on_vectors=handed_over.update)

    assert (50, {}, 7) == (result.embedded, result.failed, result.requests)
    assert {text.text_hash for text in texts} == set(result.vectors)
    assert result.vectors == handed_over
    assert all(1 == pytest.approx(math.hypot(*vector)) for vector in result.vectors.values())
    assert (7, 50, result.tokens) == tuple(embedding_server.stats()[name] for name in ("requests", "inputs", "tokens"))
    assert 0.0 == result.price_usd
    assert {"float"} == {request["fmt"] for request in embedding_server.requests()}
    quiet(result, logs)


def test_shuffled_answers(embedding_server, canaries):
    """An answer in another order gives the same vectors."""
    expected = embedder(embedding_server.url).embed(canaries(8)).vectors
    embedding_server.control(script=["shuffle"])

    assert expected == embedder(embedding_server.url).embed(canaries(8)).vectors


@pytest.mark.parametrize("fault", ["429", "500", "503", "timeout", "reset", "badjson", "short", "wrongdim", "nan"])
def test_passing_faults(embedding_server, canaries, logs, fault):
    """Two faults in a row cost requests, and no text: the vectors are those of a healthy server."""
    expected = embedder(embedding_server.url).embed(canaries(16)).vectors
    embedding_server.reset()
    embedding_server.control(script=[fault, "ok", fault], timeout_s=0.6)

    result = embedder(embedding_server.url, timeout_seconds=0.3).embed(canaries(16))

    assert ({}, expected) == (result.failed, result.vectors)
    assert 4 == result.requests
    quiet(result, logs)


@pytest.mark.parametrize(
    ("fault", "kind", "requests"),
    [
        ("429", EmbeddingUnavailable, 3),
        ("500", EmbeddingUnavailable, 5),  # two more tell an outage from a text that the server cannot digest
        ("503", EmbeddingUnavailable, 3),
        ("timeout", EmbeddingUnavailable, 3),
        ("reset", EmbeddingUnavailable, 3),
    ],
)
def test_outage(embedding_server, canaries, logs, fault, kind, requests):
    """In an outage one request is tried again and again; the rest fail with it unsent; later all of them pass."""
    texts = canaries(40)
    embedding_server.control(faults={fault: 1.0}, timeout_s=0.2)
    opened = embedder(embedding_server.url, max_attempts=3, timeout_seconds=0.1)

    result = opened.embed(texts)

    assert {text.text_hash for text in texts} == set(result.failed)
    assert {kind} == {type(error) for error in result.failed.values()}
    assert (requests, {}) == (result.requests, result.vectors)
    quiet(result, logs)
    embedding_server.reset()
    opened = embedder(embedding_server.url)
    assert (40, 5) == ((again := opened.embed(texts)).embedded, again.requests)


@pytest.mark.parametrize("batch", [1, 8, 64])
@pytest.mark.parametrize("place", [0, 17, 39])
def test_a_text_that_breaks_the_server_fails_alone(canaries, make_texts, logs, batch, place):
    """A server that answers 500 to one text, as Ollama does to a NaN, is not down: all other texts are embedded."""
    texts = [*canaries(39)]
    texts.insert(place, *make_texts("poison"))

    def digest(handler, body):
        send(handler, 500 if "poison" in body.decode() else 200, good(body))

    with hostile(digest) as (url, received):
        result = embedder(url, max_batch_texts=batch, max_attempts=3).embed(texts)

    assert [texts[place].text_hash] == list(result.failed)
    assert 39 == result.embedded == len(result.vectors)
    assert EmbeddingUnavailable is type(result.failed[texts[place].text_hash])
    bought = [text for _, _, body in received if b"poison" not in body for text in json.loads(body)["input"]]
    assert 39 == len(bought) == len(set(bought))
    quiet(result, logs)


@pytest.mark.parametrize("fault", ["badjson", "short", "wrongdim", "nan"])
def test_answers_that_stay_wrong(embedding_server, canaries, logs, fault):
    """An answer that is always wrong is not bought for ever: nothing is used, all texts fail, requests are few."""
    embedding_server.control(faults={fault: 1.0})

    result = embedder(embedding_server.url).embed(canaries(80))

    assert (80, {}) == (len(result.failed), result.vectors)
    assert {EmbeddingAnswerError} == {type(error) for error in result.failed.values()}
    assert result.requests <= 25
    quiet(result, logs)


def test_wrong_key_is_asked_about_once(embedding_server, canaries, logs):
    """A refused key is final: one request, every text fails as denied, and the result says so."""
    embedding_server.control(faults={"401": 1.0})

    result = embedder(embedding_server.url).embed(canaries(80))

    assert (1, 80) == (result.requests, len(result.failed))
    assert isinstance(result.denied, EmbeddingDenied)
    assert "answered 401" in str(result.denied)
    quiet(result, logs)


def test_key_revoked_on_the_way(embedding_server, canaries):
    """What was embedded before a denial is kept; the rest is not tried."""
    embedding_server.control(script=["ok", "ok", *["401"] * 50])

    result = embedder(embedding_server.url, concurrency=1).embed(canaries(80))

    assert (16, 64, 3) == (len(result.vectors), len(result.failed), result.requests)
    assert result.denied is not None


def test_mixed_faults_lose_nothing(embedding_server, canaries):
    """With every second request failing in some way, each text ends with its vector or a named failure."""
    expected = embedder(embedding_server.url).embed(canaries(120)).vectors
    faults = dict.fromkeys(("429", "500", "reset", "badjson", "short", "nan", "shuffle"), 0.07)
    embedding_server.control(faults=faults)

    result = embedder(embedding_server.url, max_attempts=8).embed(canaries(120))

    assert set(expected) == set(result.vectors) | set(result.failed)
    assert not set(result.vectors) & set(result.failed)
    assert all(expected[key] == vector for key, vector in result.vectors.items())
    assert len(result.vectors) >= 100


def test_bad_text_is_isolated(embedding_server, make_texts, logs):
    """A text that the provider refuses fails alone; the others of its batch are embedded."""
    texts = make_texts(*(f"text {number}" for number in range(15)), f"{CANARY} " * 3_000)

    result = embedder(embedding_server.url, max_batch_texts=16).embed(texts)

    assert (15, [texts[-1].text_hash]) == (len(result.vectors), list(result.failed))
    assert EmbeddingRejected is type(result.failed[texts[-1].text_hash])
    sizes = [request.get("n") for request in embedding_server.requests() if request["status"] == 400]
    assert [16, 8, 4, 2, 1] == sizes
    quiet(result, logs)


def test_concurrency_is_bounded(embedding_server, canaries):
    """As many requests as allowed are in flight, and never more."""
    embedding_server.control(latency_ms=60)

    embedder(embedding_server.url, max_batch_texts=2, concurrency=3).embed(canaries(30))

    assert 3 == embedding_server.stats()["max_concurrency"]


def test_callback_failure_ends_the_call(embedding_server, canaries):
    """If vectors cannot be put away, no more are bought."""

    def fail(_vectors):
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        embedder(embedding_server.url, concurrency=1).embed(canaries(80), on_vectors=fail)

    assert embedding_server.stats()["requests"] <= 3


def test_backoff_schedule(embedding_server, canaries):
    """Waits double from a second to the maximum and honour Retry-After; a clock that is ours proves it."""
    slept = []
    clock = [0.0]

    async def sleep(seconds):
        slept.append(seconds)
        clock[0] += seconds

    pace = Pace(now=lambda: clock[0], sleep=sleep, chance=lambda: 1.0)
    embedding_server.control(script=["500"] * 5)
    embedder(embedding_server.url, pace, max_backoff_seconds=10).embed(canaries(1))
    assert [1, 2, 4, 8, 10] == slept

    slept.clear()
    embedding_server.control(script=["429", "429"], retry_after=7)
    embedder(embedding_server.url, pace, max_backoff_seconds=60).embed(canaries(1))
    assert [7, 7] == slept


# ---------------------------------------------------------------- small hostile servers


@contextmanager
def hostile(answer: Callable[[BaseHTTPRequestHandler, bytes], None]):
    """Serve ``answer(handler, body)`` on a free port; yields the URL and the list of requests received."""
    received = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            received.append((self.path, dict(self.headers), body))
            try:
                answer(self, body)
            except OSError:
                self.close_connection = True

        do_GET = do_POST  # noqa: N815 - the name the server looks for

        def log_message(self, *arguments):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request, client_address):
            pass

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def send(handler, status, body=b"", content_type="application/json", **headers):
    """Answer with a status, a body and headers."""
    handler.send_response(status)
    for name, value in {"Content-Type": content_type, "Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def good(body):
    """Return the body of a valid answer to a request."""
    count = len(json.loads(body)["input"])
    return json.dumps({"data": [{"index": i, "embedding": [1.0] * 1536} for i in range(count)]}).encode()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(canaries, logs, status):
    """A redirect is a refusal: the other host is sent neither the text nor the key."""
    with (
        hostile(lambda handler, body: send(handler, 200, good(body))) as (other, stolen),
        hostile(lambda handler, _: send(handler, status, Location=f"{other}/embeddings")) as (url, received),
    ):
        result = embedder(url).embed(canaries(2))

    assert ([], 1) == (stolen, len(received))
    assert "redirects are not followed" in str(result.denied)
    quiet(result, logs)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 429, 500])
def test_echoed_errors(canaries, logs, status):
    """A server that quotes text and key in its error is heard by its number alone."""

    def echo(handler, body):
        message = f"{body.decode()} {handler.headers['Authorization']}"
        payload = json.dumps({"error": {"message": message, "code": message}}).encode()
        send(handler, status, payload, x_request_id="req-7")

    with hostile(echo) as (url, received):
        result = embedder(url, max_attempts=2).embed(canaries(1))

    (error,) = result.failed.values()
    assert f"127.0.0.1 answered {status}, request req-7" in str(error)
    assert CANARY in received[0][2].decode()
    quiet(result, logs)


def test_headers_are_ours(canaries):
    """The request carries our key and nothing from ``OPENAI_*`` variables or the SDK."""
    with hostile(lambda handler, body: send(handler, 200, good(body))) as (url, received):
        embedder(url).embed(canaries(1))

    ((path, headers, body),) = received
    names = {name.lower() for name in headers}
    assert "/v1/embeddings" == path
    assert f"Bearer {KEY}" == headers["Authorization"]
    assert {"host", "content-type", "content-length", "accept", "accept-encoding", "user-agent"} >= names - {
        "authorization"
    }
    assert {"model", "input", "encoding_format", "dimensions"} == set(json.loads(body))


def test_slow_drip(canaries, logs):
    """A body that drips a byte at a time is cut off at the time-out of the whole request."""

    def drip(handler, body):
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        for _ in range(40):
            handler.wfile.write(b" ")
            time.sleep(0.05)

    with hostile(drip) as (url, _):
        start = time.monotonic()
        result = embedder(url, timeout_seconds=0.3, max_attempts=1).embed(canaries(1))
        seconds = time.monotonic() - start

    assert seconds < 1.5
    assert "did not answer within 0.3 s" in str(next(iter(result.failed.values())))
    quiet(result, logs)


def test_slow_headers(canaries):
    """Headers that drip are cut off as well."""

    def drip(handler, body):
        for _ in range(40):
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n" if not _ else b"X-A: b\r\n")
            handler.wfile.flush()
            time.sleep(0.05)

    with hostile(drip) as (url, _):
        start = time.monotonic()
        result = embedder(url, timeout_seconds=0.3, max_attempts=1).embed(canaries(1))
        seconds = time.monotonic() - start

    assert seconds < 1.5
    assert {EmbeddingUnavailable} == {type(error) for error in result.failed.values()}


@pytest.mark.parametrize("framing", ["declared", "chunked"])
def test_huge_body(canaries, logs, framing):
    """Of 200 MB no more than the cap is ever held, whether their number is declared or not."""
    sent = []

    def flood(handler, body):
        handler.send_response(200)
        handler.send_header("Content-Type", "application/json")
        if framing == "declared":
            handler.send_header("Content-Length", str(200 * 2**20))
        else:
            handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        piece = b" " * 2**20
        for _ in range(200):
            handler.wfile.write(piece if framing == "declared" else b"%x\r\n%s\r\n" % (len(piece), piece))
            sent.append(len(piece))

    with hostile(flood) as (url, _):
        opened = embedder(url, max_attempts=1)
        import_module("vault_memory.adapters.embedding_http")  # imports stay out of the count
        tracemalloc.start()
        result = opened.embed(canaries(1))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    assert peak < 10 * 2**20
    assert sum(sent) < 20 * 2**20
    assert "answered more than" in str(next(iter(result.failed.values())))
    quiet(result, logs)


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("html", {EmbeddingAnswerError}),
        ("empty", {EmbeddingAnswerError}),
        ("gzip", {EmbeddingAnswerError}),
        ("promises more", {EmbeddingUnavailable}),
        # Cut-off JSON, or surplus bytes where they arrived together: the network decides.
        ("promises less", {EmbeddingAnswerError, EmbeddingUnavailable}),
        ("no http", {EmbeddingUnavailable}),
        ("error with 200", {EmbeddingUnavailable}),
    ],
)
def test_lies(canaries, logs, name, kinds):
    """A wrong type, compression, length or protocol is a failure with a name; nothing of the answer is used."""

    def lie(handler, body):
        answer = good(body)
        if name == "html":
            send(handler, 200, b"<html>log in</html>", "text/html")
        elif name == "empty":
            send(handler, 200, b"")
        elif name == "gzip":
            send(handler, 200, answer, Content_Encoding="gzip")
        elif name == "promises more":
            send(handler, 200, answer, Content_Length=str(len(answer) + 10))
            handler.close_connection = True
        elif name == "promises less":
            send(handler, 200, answer, Content_Length=str(len(answer) - 10))
            handler.close_connection = True
        elif name == "no http":
            handler.wfile.write(b"SSH-2.0-OpenSSH_9.9\r\n")
            handler.close_connection = True
        else:
            send(handler, 200, json.dumps({"error": {"code": 502, "message": body.decode()}}).encode())

    with hostile(lie) as (url, received):
        result = embedder(url, max_attempts=2).embed(canaries(1))

    assert {type(error) for error in result.failed.values()} <= kinds
    assert (1, 0) == (len(result.failed), result.embedded)
    assert (2, {}) == (len(received), result.vectors)
    quiet(result, logs)


def test_provider_with_a_small_cap(canaries):
    """A batch that is refused for its size is halved until it fits, and the size is remembered."""
    sizes = []

    def cap(handler, body):
        size = len(json.loads(body)["input"])
        sizes.append(size)
        if size > 10:
            send(handler, 400, b"{}")
        else:
            send(handler, 200, good(body))

    with hostile(cap) as (url, _):
        result = embedder(url, max_batch_texts=32, concurrency=1).embed(canaries(128))

    assert (128, {}) == (len(result.vectors), result.failed)
    assert [32, 16] == [size for size in sizes if size > 10][:2]
    # Both workers may meet the cap before the first one's pieces are through; nobody does afterwards.
    assert 3 <= len([size for size in sizes if size > 10]) <= 6
    assert all(size <= 10 for size in sizes[12:])


def test_provider_that_refuses_everything(canaries):
    """If every text is refused, it is not the texts: few requests, and an error that names the settings."""
    with hostile(lambda handler, _: send(handler, 400, b"{}")) as (url, received):
        result = embedder(url, max_batch_texts=64).embed(canaries(640))

    assert 640 == len(result.failed)
    assert "embedding.dimensions" in str(result.denied)
    assert len(received) <= 16


def test_nobody_listens(canaries, logs):
    """A closed port is an outage, with one line that says so."""
    with hostile(lambda *_: None) as (url, _):
        pass

    result = embedder(url, max_attempts=2).embed(canaries(20))

    assert {EmbeddingUnavailable} == {type(error) for error in result.failed.values()}
    assert (20, 2) == (len(result.failed), result.requests)
    assert "no connection to 127.0.0.1" in str(next(iter(result.failed.values())))
    quiet(result, logs)


def test_interrupt_ends_waiting(canaries, embedding_server):
    """Ctrl-C during a back-off of minutes ends it at once."""
    import signal  # noqa: PLC0415 - this test alone sends one

    embedding_server.control(faults={"503": 1.0})
    timer = threading.Timer(0.5, signal.raise_signal, [signal.SIGINT])
    timer.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        embedder(embedding_server.url, max_backoff_seconds=60, max_attempts=50).embed(canaries(1))
    timer.join()

    assert time.monotonic() - start < 3
