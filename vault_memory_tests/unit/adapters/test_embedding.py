import logging
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import ModuleType

import pytest

import vault_memory.notes
from vault_memory.adapters.embed_text import EmbedText, texts_of
from vault_memory.adapters.embedding import (
    HashingEmbedder,
    OpenAIEmbedder,
    RecordedIdentity,
    identity_of,
    open_embedder,
)
from vault_memory.errors import ConfigError, EgressBlocked, ScanError
from vault_memory.notes import hashing
from vault_memory.notes.model import SCANNER_SEAL, Chunk, CleanNote, Document, Finding, Script
from vault_memory.notes.paths import NotePath
from vault_memory.settings import EmbeddingSettings, Settings

HASHING = RecordedIdentity("hashing", hashing.MODEL, 1536)
OPENROUTER = RecordedIdentity("openai", "openai/text-embedding-3-small", 1536, "https://openrouter.ai/api/v1")


def settings(**embedding):
    """Make settings that differ from the defaults in these."""
    return Settings(
        vault=None,
        home=Path("/nowhere"),
        config_file=Path("/nowhere/config.toml"),
        hmac_key_file=Path("/nowhere/hmac.key"),
        embedding=EmbeddingSettings(**embedding),
    )


def chunk(text, ordinal=0):
    """Make a chunk that sends this text."""
    return Chunk(ordinal, (), 0, 3 + ordinal, 4 + ordinal, text, text, len(text.encode()), Script.LATIN)


@pytest.fixture
def note():
    """A clean note."""
    document = Document("t", bool(1), {}, (), (), ())
    return CleanNote(NotePath.from_text("01_Projects/a.md"), "0" * 40, "text", "0" * 64, document, SCANNER_SEAL)


@pytest.fixture
def scanned(monkeypatch):
    """The texts that were scanned, by rules that know one secret."""
    texts = []

    def scan(text):
        texts.append(text)
        return (Finding("canary_rule", 1),) if "CANARY" in text else ()

    module = ModuleType("vault_memory.notes.secrets")
    module.scan = scan
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(vault_memory.notes, "secrets", module, raising=False)
    return texts


def test_texts_are_scanned_again(note, scanned):
    """The exact texts that would leave are scanned; blanks and repetitions are left out."""
    texts = texts_of(note, [chunk("one"), chunk(" \n\t　"), chunk("二", 1), chunk("one", 2), chunk("")])

    assert ["one", "二"] == scanned
    assert ["one", "二"] == [text.text for text in texts]
    assert [sha256(b"one").hexdigest(), sha256("二".encode()).hexdigest()] == [text.text_hash for text in texts]
    assert all(text.wire_bytes >= len(text.text.encode()) for text in texts)


def test_secret_at_egress(note, scanned):
    """A secret that only the joined text shows stops the note; path, lines and rule are named, the text is not."""
    with pytest.raises(EgressBlocked, match=r"01_Projects/a\.md: lines 4-5 match canary_rule") as caught:
        texts_of(note, [chunk("fine"), chunk("key CANARY-1", 1)])

    assert "CANARY" not in str(caught.value)
    assert isinstance(caught.value, ScanError)


def test_real_rules_at_egress(note):
    """The rules that judge notes judge the joined text too."""
    key = f"sk-or-v1-{sha256(b'fake').hexdigest()}"

    with pytest.raises(EgressBlocked) as caught:
        texts_of(note, [chunk("fine"), chunk(f"Keys > OpenRouter\n\n{key}", 1)])

    assert "01_Projects/a.md: lines 4-5 match" in str(caught.value)
    assert key not in str(caught.value)


def test_only_clean_notes(note, scanned):
    """Nothing but a clean note has texts, and nothing but ``texts_of`` makes one."""
    with pytest.raises(TypeError, match="CleanNote"):
        texts_of(object(), [chunk("one")])
    with pytest.raises(TypeError, match="texts_of alone"):
        EmbedText("one", "0", 1, 1, object())
    with pytest.raises(TypeError, match="texts_of alone"):
        replace(texts_of(note, [chunk("one")])[0], text="two", seal=None)


def test_texts_do_not_print(note, scanned):
    """A text's representation does not show it."""
    assert "one" not in repr(texts_of(note, [chunk("one")]))


def test_hashing_embedder(make_texts):
    """The offline embedder answers the vectors of ``notes.hashing``, for nothing, and hands them over in batches."""
    texts = make_texts(*(f"text {number}" for number in range(70)), "text 0")
    seen = []

    result = HashingEmbedder().embed(texts, on_vectors=seen.append)

    assert (70, 0, 0, 0.0) == (result.embedded, result.tokens, result.requests, result.price_usd)
    assert hashing.embed("text 7") == result.vectors[texts[7].text_hash]
    assert [64, 6] == [len(batch) for batch in seen]
    assert result.vectors == {key: vector for batch in seen for key, vector in batch.items()}


def test_vectors_need_not_be_kept(make_texts):
    """Who takes vectors as they come need not have them twice."""
    seen = []

    result = HashingEmbedder().embed(make_texts("a", "b"), on_vectors=seen.append, keep_vectors=False)

    assert (2, {}, 2) == (result.embedded, result.vectors, len(seen[0]))


@pytest.mark.parametrize(
    ("recorded", "embedding", "wanted"),
    [
        (None, {}, HASHING),
        (None, {"api_key": "k"}, OPENROUTER),
        (None, {"embedder": "hashing", "api_key": "k"}, HASHING),
        (None, {"embedder": "openai", "api_key": "k"}, OPENROUTER),
        (HASHING, {}, HASHING),
        (HASHING, {"api_key": "k"}, HASHING),
        (OPENROUTER, {"api_key": "k"}, OPENROUTER),
        (OPENROUTER, {"api_key": "k", "base_url": "https://OPENROUTER.ai:443/api/v1/"}, OPENROUTER),
        (
            None,
            {"base_url": "http://localhost:11434/v1", "allow_http_loopback": True, "model": "m", "dimensions": 768},
            RecordedIdentity("openai", "m", 768, "http://localhost:11434/v1"),
        ),
    ],
)
def test_which_embedder(recorded, embedding, wanted):
    """What is recorded wins; with nothing recorded, a key or a local server decides for the API."""
    assert wanted == identity_of(open_embedder(settings(**embedding), recorded))


@pytest.mark.parametrize(
    ("recorded", "embedding", "message"),
    [
        (OPENROUTER, {}, "no API key"),
        (None, {"embedder": "openai"}, "no API key"),
        (OPENROUTER, {"embedder": "hashing"}, "sync --full --accept-model"),
        (HASHING, {"embedder": "openai", "api_key": "k"}, "sync --full --accept-model"),
        (OPENROUTER, {"api_key": "k", "model": "other"}, "sync --full --accept-model"),
        (OPENROUTER, {"api_key": "k", "dimensions": 1024}, "sync --full --accept-model"),
        (OPENROUTER, {"api_key": "k", "base_url": "https://api.openai.com/v1"}, "sync --full --accept-model"),
        (replace(HASHING, model="hashing-0"), {}, "sync --full --accept-model"),
        (OPENROUTER, {"api_key": "k", "base_url": "http://openrouter.ai/api/v1"}, "http is accepted"),
        (None, {"api_key": "k\n"}, "API key holds"),
    ],
)
def test_no_silent_change(recorded, embedding, message):
    """No key, another model, width or host: an error that says what to do, never other vectors."""
    with pytest.raises(ConfigError, match=message):
        open_embedder(settings(**embedding), recorded)


def test_change_that_was_asked_for():
    """``--accept-model`` lets the settings decide, but does not make up a key."""
    changed = settings(api_key="k", model="other")

    assert "other" == open_embedder(changed, OPENROUTER, accept_change=True).model
    with pytest.raises(ConfigError, match="no API key"):
        open_embedder(settings(model="other"), OPENROUTER, accept_change=True)


def test_price():
    """A price comes from the setting, else from the provider's list; a local server costs nothing."""
    local = {"base_url": "http://127.0.0.1:1/v1", "allow_http_loopback": True}
    opened = [
        open_embedder(settings(**embedding), None)
        for embedding in (
            {"api_key": "k"},
            {"api_key": "k", "price_usd_per_million_tokens": 3.0},
            {"api_key": "k", "model": "nobody/knows"},
            local,
            {"embedder": "hashing"},
        )
    ]

    assert [0.02, 3.0, None, 0.0, 0.0] == [embedder.price_usd(1_000_000) for embedder in opened]


def test_key_is_not_shown():
    """Neither the embedder nor its settings print the key."""
    embedder = open_embedder(settings(api_key="sk-CANARY"), None)

    assert isinstance(embedder, OpenAIEmbedder)
    assert "CANARY" not in repr(embedder) + repr(embedder.settings)


def test_opening_imports_no_sdk():
    """Deciding about the embedder costs no heavy import: the SDK is loaded with the first request."""
    import subprocess  # noqa: PLC0415 - this test alone needs a fresh interpreter

    code = "import sys, vault_memory.adapters.embedding; print(*{'openai','httpx2','pydantic'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)

    assert "" == shown.stdout.strip()


ROOT = Path(vault_memory.notes.__file__).parents[2]


def test_nothing_to_embed(caplog):
    """No text, no request."""
    with caplog.at_level(logging.DEBUG):
        result = open_embedder(settings(api_key="k"), None).embed(())

    assert (0, 0, {}) == (result.requests, result.embedded, result.failed)
