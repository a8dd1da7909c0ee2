"""The question's vector over HTTP, against a server that misbehaves."""

import json
import math
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from vault_memory import settings as settings_module
from vault_memory.errors import ConfigError, EmbeddingError
from vault_memory.notes import hashing
from vault_memory.query.embed import Kept, RecordedEmbedder, embed_query

RECORDED = RecordedEmbedder("openai", "some-model", 4)
GOOD = json.dumps({"data": [{"index": 0, "embedding": [3.0, 0.0, 4.0, 0.0]}]}).encode()


class Provider(ThreadingHTTPServer):
    """Answers as it is told, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = (200, GOOD, {})
        self.drips = 0
        self.released = threading.Event()
        self.released.set()
        self.answered = threading.Event()
        self.requests = []
        self.connections = 0

    def finish_request(self, request, client_address):
        """Count."""
        self.connections += 1
        super().finish_request(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    def do_POST(self):
        """Answer."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, dict(self.headers), json.loads(body)))
        status, answer, headers = self.server.answer
        try:
            if not self.server.drips:
                self.server.released.wait(30)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            for _ in range(self.server.drips):
                self.wfile.write(b" ")
                if self.server.released.wait(0.02):
                    break
            self.wfile.write(answer)
        except OSError:
            self.close_connection = True
        self.server.answered.set()

    def log_message(self, *_):
        """Stay silent."""


@pytest.fixture
def provider():
    """A provider on this machine."""
    with Provider() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def provider_settings(provider, tmp_path):
    """Settings that allow it."""
    return settings_module.load(
        {
            "HOME": str(tmp_path),
            "OPENROUTER_API_KEY": "key-1",
            "VAULT_MEMORY_EMBEDDING_BASE_URL": f"http://127.0.0.1:{provider.server_port}/v1",
            "VAULT_MEMORY_EMBEDDING_ALLOW_HTTP_LOOPBACK": "true",
        }
    )


def test_a_good_answer_is_a_padded_unit_vector(provider, provider_settings):
    """The recorded model is asked for, and a narrow vector is brought to the stored width."""
    vector = embed_query("question", RECORDED, provider_settings)
    assert (1536, [0.6, 0.0, 0.8, 0.0]) == (len(vector), list(vector[:4]))
    ((path, headers, body),) = provider.requests
    assert ("/v1/embeddings", "Bearer key-1") == (path, headers["Authorization"])
    assert ("some-model", ["question"], "float") == (body["model"], body["input"], body["encoding_format"])


@pytest.mark.parametrize(
    "answer",
    [
        (500, b"question", {}),
        (429, b"", {"Retry-After": "60"}),
        (401, b"question", {}),
        (307, b"", {"Location": "http://127.0.0.2:1/"}),
        (200, b"not json", {}),
        (200, b"{}", {}),
        (200, GOOD.replace(b", 0.0]", b"]"), {}),
        (200, GOOD.replace(b"3.0", b"NaN"), {}),
        (200, GOOD.replace(b"3.0", b"1e999"), {}),
        (200, b" " * 200_000 + GOOD, {}),
    ],
)
def test_anything_else_is_an_error_without_the_question(provider, provider_settings, answer):
    """Failures, redirects, and answers that are short, not finite, no JSON or too large."""
    provider.answer = answer
    with pytest.raises(EmbeddingError) as caught:
        embed_query("question", RECORDED, provider_settings)
    assert "question" not in str(caught.value)
    assert 1 == len(provider.requests)


@pytest.mark.parametrize("drips", [0, 1500], ids=["silent", "dripping"])
def test_a_slow_provider_is_not_waited_for(provider, provider_settings, drips):
    """The time limit is for all of it, not for each byte: the question ends while the provider has not answered.

    No clock is read: a question that waited for the answer would find it given, since nothing else releases it.
    """
    provider.drips = drips
    provider.released.clear()
    try:
        with pytest.raises(EmbeddingError, match=r"did not answer within 0\.2 s"):
            embed_query("question", RECORDED, provider_settings, timeout_seconds=0.2)
        assert not provider.answered.is_set()
    finally:
        provider.released.set()


def test_a_time_out_of_the_socket_is_told_as_one(provider, provider_settings, monkeypatch):
    """The socket's own limit may be noticed before the caller's: both are told in the same words."""
    provider.released.clear()
    monkeypatch.setattr(threading.Thread, "join", lambda thread, _=None, join=threading.Thread.join: join(thread, 30))
    try:
        with pytest.raises(EmbeddingError, match=r"did not answer within 0\.2 s"):
            embed_query("question", RECORDED, provider_settings, timeout_seconds=0.2)
        assert not provider.answered.is_set()
    finally:
        monkeypatch.undo()
        provider.released.set()


def test_proxies_of_the_environment_are_ignored(provider, provider_settings, monkeypatch):
    """The question goes where the settings say."""
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    embed_query("question", RECORDED, provider_settings)
    assert 1 == len(provider.requests)


def test_a_host_that_is_not_allowed_gets_nothing(provider, provider_settings):
    """Without the loopback flag this server is out of bounds."""
    strict = replace(provider_settings, embedding=replace(provider_settings.embedding, allow_http_loopback=False))
    with pytest.raises(ConfigError):
        embed_query("question", RECORDED, strict)
    assert [] == provider.requests


def test_a_provider_that_is_down_is_an_embedding_error(provider_settings, tmp_path):
    """No connection is no crash."""
    gone = replace(provider_settings.embedding, base_url="http://127.0.0.1:1/v1")
    with pytest.raises(EmbeddingError):
        embed_query("question", RECORDED, replace(provider_settings, embedding=gone))


def test_the_recorded_hashing_embedder_needs_no_network(provider, provider_settings):
    """What made the vectors embeds the question; another version is not compared with them."""
    vector = embed_query("question", RecordedEmbedder("hashing", hashing.MODEL, 1536), provider_settings)
    assert math.isclose(1.0, math.fsum(value * value for value in vector))
    assert [] == provider.requests
    with pytest.raises(EmbeddingError, match="version"):
        embed_query("question", RecordedEmbedder("hashing", "hashing-0", 1536), provider_settings)


class Lasting(Handler):
    """One connection for many requests, as providers serve them; ``hang_up`` ends it after an answer, unannounced."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        """Answer with a length, so that the connection can go on."""
        status, answer, headers = self.server.answer
        self.server.answer = (status, answer, {**headers, "Content-Length": str(len(answer))})
        super().do_POST()
        self.close_connection = getattr(self.server, "hang_up", False)


@pytest.fixture
def kept(provider):
    """What a process that asks often keeps, and a provider that keeps connections open."""
    provider.RequestHandlerClass = Lasting
    keeper = Kept(2)
    yield keeper
    keeper.close()


def ask(settings, kept, *questions):
    """Embed questions one after the other."""
    return [embed_query(question, RECORDED, settings, timeout_seconds=10, kept=kept) for question in questions]


def test_one_connection_serves_many_questions(provider, provider_settings, kept):
    """A process that asks often pays for one handshake."""
    ask(provider_settings, kept, "a", "b", "c")
    assert (3, 1) == (len(provider.requests), provider.connections)


def test_a_question_of_late_is_not_sent_again(provider, provider_settings, kept):
    """The last two questions are remembered, for their model and address alone."""
    (first, again) = ask(provider_settings, kept, "a", "a")
    assert first == again
    assert 1 == len(provider.requests)
    ask(provider_settings, kept, "b", "a", "c", "a", "b")
    assert ["a", "b", "c", "b"] == [body["input"][0] for _, _, body in provider.requests]
    embed_query("b", RecordedEmbedder("openai", "another-model", 4), provider_settings, kept=kept)
    assert 5 == len(provider.requests)


def test_nothing_is_remembered_where_that_is_not_wanted(provider, provider_settings, kept):
    """``remembered_questions = 0``."""
    kept.questions = 0
    ask(provider_settings, kept, "a", "a")
    assert 2 == len(provider.requests)


def test_a_connection_that_was_closed_meanwhile_is_opened_again(provider, provider_settings, kept):
    """Providers hang up on the idle: the next question notices, and is asked once more over a new connection."""
    provider.hang_up = True
    ask(provider_settings, kept, "a", "b", "c")
    assert (3, 3) == (len(provider.requests), provider.connections)


def test_an_error_is_not_remembered_and_not_asked_twice(provider, provider_settings, kept):
    """Over a kept connection a refusal is one request, and the next question is answered."""
    ask(provider_settings, kept, "a")
    good, provider.answer = provider.answer, (500, b"", {})
    with pytest.raises(EmbeddingError, match="500"):
        ask(provider_settings, kept, "b")
    assert 2 == len(provider.requests)
    provider.answer = good
    ask(provider_settings, kept, "b")
    assert 3 == len(provider.requests)
