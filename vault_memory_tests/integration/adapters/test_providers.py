"""Each preset of the provider registry against a real server with faults, and one that enforces the provider's caps."""

import json
from dataclasses import replace
from http.server import BaseHTTPRequestHandler

import pytest

from vault_memory.adapters.egress import PROVIDERS, check_base_url
from vault_memory.adapters.embedding import OpenAIEmbedder
from vault_memory.settings import EmbeddingSettings
from vault_memory_tests.fixtures.embedding_server import EmbeddingServer
from vault_memory_tests.fixtures.online import good, reply, served

PRESETS = {
    "openrouter": ("https://openrouter.ai/api/v1", "openai/text-embedding-3-small"),
    "openai": ("https://api.openai.com/v1", "text-embedding-3-small"),
    "dashscope": ("https://dashscope.aliyuncs.com/compatible-mode/v1", "text-embedding-v4"),
    "ollama": ("http://127.0.0.1:11434/v1", "bge-m3"),
    "vllm": ("http://127.0.0.1:8000/v1", "bge-m3"),
}
CAPS = {"openrouter": 64, "openai": 64, "dashscope": 10, "ollama": 32, "vllm": 64}
FAULTS = ("429", "500", "503", "reset", "badjson", "short", "wrongdim", "nan", "shuffle")
TEXTS = 150

pytestmark = pytest.mark.parametrize("name", PRESETS)


def embedder(name: str, url: str) -> OpenAIEmbedder:
    """Open an embedder that treats a server on this machine as the provider of a preset."""
    known, model = PRESETS[name]
    preset = check_base_url(known, allow_http_loopback=True).provider
    assert (name, PROVIDERS[name]) == (preset.name, preset)
    settings = EmbeddingSettings(
        model=model, base_url=url, max_attempts=30, max_backoff_seconds=0.01, timeout_seconds=10, concurrency=2
    )
    endpoint = replace(check_base_url(url, allow_http_loopback=True), provider=preset)
    return OpenAIEmbedder(endpoint, settings, "key-1" if preset.needs_key else None)


def test_a_preset_stays_within_its_caps_under_faults(name, embedding_server: EmbeddingServer, make_texts):
    """With a server that fails in all ways, every text gets its vector; no request is larger than the provider takes."""
    texts = make_texts(*(f"text {number} 笔记" for number in range(TEXTS)))
    expected = embedder(name, embedding_server.url).embed(texts).vectors
    clean = embedding_server.requests()
    embedding_server.control(script=[*FAULTS, "ok"] * 3, retry_after=0)

    made = embedder(name, embedding_server.url)
    results = [made.embed(texts)]
    while results[-1].failed and len(results) < 5:  # an answer that is wrong again and again is not bought for ever
        left = [text for text in texts if text.text_hash in results[-1].failed]
        results.append(made.embed(left))

    vectors = {text: vector for result in results for text, vector in result.vectors.items()}
    assert TEXTS == len(expected)
    assert expected == vectors
    cap = PROVIDERS[name].max_texts
    assert CAPS[name] == cap == made.max_texts_per_request
    assert -(-TEXTS // cap) == len(clean)
    assert all(len(one["texts"]) <= cap for one in embedding_server.requests())


def test_a_preset_asks_in_the_provider_s_own_way(name, make_texts):
    """Width, routing fields and key are sent to those who want them; a server that refuses more is never told more."""
    preset = PROVIDERS[name]
    bodies: list[dict[str, object]] = []
    keys: list[str | None] = []

    def strict(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        asked = json.loads(body)
        bodies.append(asked)
        keys.append(handler.headers["Authorization"])
        wanted = {"model", "input", "encoding_format"}
        wanted |= {"dimensions"} if name in {"openrouter", "openai", "dashscope"} else set()
        wanted |= {"provider"} if name == "openrouter" else set()
        fits = len(asked["input"]) <= CAPS[name] and len(body) <= preset.max_request_bytes + 1000
        reply(handler, 200 if asked.keys() == wanted and fits else 400, good(body))

    with served(strict) as (url, _):
        made = embedder(name, url)
        result = made.embed(make_texts(*(f"text {number}" for number in range(TEXTS))))

    assert (TEXTS, {}) == (result.embedded, result.failed)
    assert {made.model} == {body["model"] for body in bodies}
    assert {"Bearer key-1" if preset.needs_key else None} == set(keys)
    if name == "openrouter":
        assert all({"data_collection": "deny", "zdr": True} == body["provider"] for body in bodies)


def test_a_provider_that_takes_less_than_its_preset_is_learnt(name, make_texts):
    """Caps change: a batch that is refused for its size is split until it fits, and no text is lost or sent in vain."""
    sizes: list[int] = []

    def shrunk(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        sizes.append(len(json.loads(body)["input"]))
        reply(handler, 200 if sizes[-1] <= 4 else 400, good(body))

    with served(shrunk) as (url, _):
        result = embedder(name, url).embed(make_texts(*(f"text {number}" for number in range(TEXTS))))

    assert (TEXTS, TEXTS, {}) == (result.embedded, len(result.vectors), result.failed)
    assert TEXTS == sum(size for size in sizes if size <= 4)
