import base64
import json
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vault_memory.adapters.egress import (
    PROVIDERS,
    STORED_DIMENSIONS,
    check_answer,
    check_base_url,
    check_key,
    error_class,
    failure_of_status,
    max_answer_bytes,
    read_answer,
    unit_vector,
)
from vault_memory.errors import (
    ConfigError,
    EmbeddingAnswerError,
    EmbeddingDenied,
    EmbeddingError,
    EmbeddingRejected,
    EmbeddingUnavailable,
    Retryable,
)

OPENROUTER = check_base_url("https://openrouter.ai/api/v1")


@pytest.mark.parametrize(
    ("url", "canonical", "provider"),
    [
        ("https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1", "openrouter"),
        ("HTTPS://OpenRouter.AI:443/api/v1/", "https://openrouter.ai/api/v1", "openrouter"),
        ("https://api.openai.com/v1", "https://api.openai.com/v1", "openai"),
        ("https://dashscope.aliyuncs.com/compatible-mode/v1", None, "dashscope"),
    ],
)
def test_known_providers(url, canonical, provider):
    """A known provider is allowed in any spelling of its URL, and known by it."""
    endpoint = check_base_url(url)

    assert (canonical or url) == endpoint.base_url
    assert provider == endpoint.provider.name


@pytest.mark.parametrize(
    ("url", "provider"),
    [
        ("http://127.0.0.1:11434/v1", "ollama"),
        ("http://localhost:8000/v1", "vllm"),
        ("http://[::1]:9/v1", "local"),
        ("http://127.8.9.10/v1", "local"),
        ("https://localhost/v1", "local"),
    ],
)
def test_loopback_needs_the_flag(url, provider):
    """A server on this machine is allowed with the flag, and only with it."""
    assert provider == check_base_url(url, allow_http_loopback=True).provider.name
    with pytest.raises(ConfigError):
        check_base_url(url)


@pytest.mark.parametrize("entry", ["llm.example.org", " LLM.example.org ", "llm.example.org:443"])
def test_allowed_host(entry):
    """A host the user names is allowed, as itself or with its port, and gets no provider's extra fields."""
    endpoint = check_base_url("https://llm.example.org/v1", allow_hosts=[entry])

    assert "custom" == endpoint.provider.name
    assert not endpoint.provider.extra_body


@pytest.mark.parametrize(
    "url",
    [
        "",
        "openrouter.ai/api/v1",
        "//openrouter.ai/api/v1",
        "ftp://openrouter.ai",
        "file:///etc/passwd",
        "http://openrouter.ai/api/v1",
        "https://",
        "https://openrouter.ai.evil.example/api/v1",
        "https://evil.example/openrouter.ai",
        "https://notopenrouter.ai/api/v1",
        "https://openrouter.ai:8443/api/v1",
        "https://openrouter.ai./api/v1",
        "https://user:hunter2@openrouter.ai/api/v1",
        "https://openrouter.ai@evil.example/",
        "https://openrouter.ai/api/v1?key=hunter2",
        "https://openrouter.ai/api/v1#hunter2",
        "https://openrouter.ai/api/v1?",
        "https://openrouter.ai/../v1",
        "https://openrouter.ai/api//v1",
        "https://openrouter.ai/%2e%2e/v1",
        "https://openrouter.ai\\@evil.example/",
        "https://openrouter.ai\n/api/v1",
        "https://open\trouter.ai/api/v1",
        "https://openrouter.ai /api/v1",
        "https://оpenrouter.ai/api/v1",  # a Cyrillic letter
        "https://openrouter。ai/api/v1",
        "https://xn--penrouter-d8d.ai/api/v1",
        "https://openrouter.ai%2eevil.example/",
        "https://openrouter.ai:99999/api/v1",
        "https://openrouter.ai:0/api/v1",
        "https://[::1/api",
        "http://127.0.0.1.evil.example/v1",
        "http://localhost.evil.example/v1",
        "http://10.0.0.5:8000/v1",
    ],
)
def test_refused(url):
    """Everything else is refused in one line that repeats neither the URL nor a password in it."""
    with pytest.raises(ConfigError) as caught:
        check_base_url(url, allow_http_loopback=True)

    message = str(caught.value)
    assert "hunter2" not in message
    assert message.isprintable()
    assert 1 == len(message.splitlines())


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "169.254.1.1",
        "[fe80::1]",
        "[fe80::1%eth0]",
        "[fd00:ec2::254]",
        "[::ffff:169.254.169.254]",
        "[::ffff:127.0.0.1]",
        "[2002:a9fe:a9fe::1]",
        "100.100.100.200",
        "192.0.0.192",
        "0.0.0.0",
        "[::]",
        "224.0.0.1",
        "255.255.255.255",
        "metadata.google.internal",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "127.1",
        "0251.0376.0251.0376",
    ],
)
def test_no_setting_allows_these(host):
    """Link-local, metadata, unspecified and disguised addresses are refused even where they are listed."""
    with pytest.raises(ConfigError):
        check_base_url(f"https://{host}/v1", allow_hosts=[host, host.strip("[]")], allow_http_loopback=True)


@given(st.text(max_size=80))
def test_any_text_is_decided(text):
    """No text at all makes the check fail in any other way than by its own error, which does not repeat it."""
    try:
        endpoint = check_base_url(f"https://{text}")
    except ConfigError as error:
        assert len(str(error)) < 300  # noqa: PT017 - only the message of a refusal is in question
    else:
        assert endpoint.host in {host for provider in PROVIDERS.values() for host in provider.hosts}


def test_zero_retention_for_openrouter_only():
    """OpenRouter is asked to keep nothing, nobody else is sent that field, and floats are asked for by name."""
    body = OPENROUTER.request_body("m", 1536, ["a"])
    others = [
        check_base_url("https://api.openai.com/v1"),
        check_base_url("http://localhost:11434/v1", allow_http_loopback=True),
    ]

    assert {"data_collection": "deny", "zdr": True} == body["provider"]
    assert ("float", 1536, ["a"]) == (body["encoding_format"], body["dimensions"], body["input"])
    assert all("provider" not in other.request_body("m", 1536, ["a"]) for other in others)
    assert "dimensions" not in others[1].request_body("m", 768, ["a"])


def test_presets():
    """Every preset has usable limits, and DashScope is never sent more than ten texts."""
    assert 10 == PROVIDERS["dashscope"].max_texts
    assert all(p.max_texts > 0 and p.max_request_tokens > 0 and p.max_request_bytes > 0 for p in PROVIDERS.values())


@pytest.mark.parametrize("key", ["sk-or-v1-CANARY\n", "sk CANARY", "sk-CANARY-é", "sk-CANARY\r\nX-Evil: 1"])
def test_key_that_is_no_header(key):
    """A key that cannot stand in a header is refused without being quoted."""
    with pytest.raises(ConfigError) as caught:
        check_key(key)

    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, EmbeddingRejected),
        (413, EmbeddingRejected),
        (422, EmbeddingRejected),
        (401, EmbeddingDenied),
        (402, EmbeddingDenied),
        (403, EmbeddingDenied),
        (404, EmbeddingDenied),
        (418, EmbeddingDenied),
        (307, EmbeddingDenied),
        (301, EmbeddingDenied),
        (408, EmbeddingUnavailable),
        (429, EmbeddingUnavailable),
        (500, EmbeddingUnavailable),
        (503, EmbeddingUnavailable),
        (529, EmbeddingUnavailable),
    ],
)
def test_meaning_of_a_status(status, kind):
    """A status is a refusal of the input, of the user, or a wait; the host and the number are shown."""
    error = failure_of_status(status, OPENROUTER, "req-1")

    assert kind is type(error)
    assert f"openrouter.ai answered {status}, request req-1" in str(error)
    assert (kind is EmbeddingUnavailable) == isinstance(error, Retryable)
    assert (kind is EmbeddingDenied) == isinstance(error, ConfigError)


def test_request_id_that_is_none():
    """A request id is shown only if it looks like one: a header can hold anything."""
    assert "the note's text" not in str(failure_of_status(500, OPENROUTER, "the note's text"))


def test_error_classes():
    """The names under which failures are stored are stable."""
    assert [
        "embedding_rejected",
        "embedding_denied",
        "embedding_answer",
        "embedding_unavailable",
        "config",
        "ValueError",
    ] == [
        error_class(kind("x"))
        for kind in (
            EmbeddingRejected,
            EmbeddingDenied,
            EmbeddingAnswerError,
            EmbeddingUnavailable,
            ConfigError,
            ValueError,
        )
    ]


def item(index, values):
    """Make one item of an answer."""
    return {"object": "embedding", "index": index, "embedding": values}


finite = st.floats(min_value=-1e3, max_value=1e3, allow_nan=False).filter(lambda x: x == 0 or abs(x) > 1e-3)
vector = st.lists(finite, min_size=4, max_size=4).filter(any)


@given(st.lists(vector, min_size=1, max_size=6), st.randoms())
def test_order_is_by_index(vectors, random):
    """Shuffled answers come back in the order of the texts, at unit length and padded."""
    data = [item(index, values) for index, values in enumerate(vectors)]
    random.shuffle(data)

    answer = read_answer(json.dumps({"data": data}).encode(), len(vectors), 4, OPENROUTER)

    assert vectors == check_answer({"data": data}, len(vectors), 4)
    for given_values, stored in zip(vectors, answer.vectors, strict=True):
        assert STORED_DIMENSIONS == len(stored)
        assert 1 == pytest.approx(math.hypot(*stored))
        assert given_values == pytest.approx([value * math.hypot(*given_values) for value in stored[:4]])
        assert not any(stored[4:])


GOOD = [1.0, 0.0, 0.0, 2.0]


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        [],
        [item(0, GOOD)],
        [item(0, GOOD), item(1, GOOD), item(2, GOOD)],
        [item(0, GOOD), item(0, GOOD)],
        [item(0, GOOD), item(2, GOOD)],
        [item(0, GOOD), item(-1, GOOD)],
        [item(0, GOOD), item(None, GOOD)],
        [item(0, GOOD), item("1", GOOD)],
        [item(0, GOOD), item(bool(1), GOOD)],
        [item(0, GOOD), item(1, GOOD[:3])],
        [item(0, GOOD), item(1, [*GOOD, 1.0])],
        [item(0, GOOD), item(1, None)],
        [item(0, GOOD), item(1, [1.0, None, 1.0, 1.0])],
        [item(0, GOOD), item(1, [1.0, "1", 1.0, 1.0])],
        [item(0, GOOD), item(1, [1.0, True, 1.0, 1.0])],
        [item(0, GOOD), item(1, [math.nan, 1.0, 1.0, 1.0])],
        [item(0, GOOD), item(1, [math.inf, 1.0, 1.0, 1.0])],
        [item(0, GOOD), item(1, [10**400, 1.0, 1.0, 1.0])],
        [item(0, GOOD), item(1, [0, 0.0, -0.0, 0.0])],
        [item(0, GOOD), item(1, "AAAA")],
        [item(0, GOOD), item(1, "not base64!")],
        [item(0, GOOD), "CANARY"],
    ],
)
def test_wrong_answers(data):
    """An answer that is short, long, doubled, mis-sized, not finite, zero or no vectors is refused as a whole."""
    with pytest.raises(EmbeddingAnswerError) as caught:
        check_answer({"data": data}, 2, 4)

    assert "CANARY" not in str(caught.value)


def test_base64_is_accepted():
    """A proxy that answers base64 although floats were asked for is understood."""
    text = base64.b64encode(struct.pack("<4f", *GOOD)).decode()

    assert [GOOD] == check_answer({"data": [item(0, text)]}, 1, 4)


def test_answers_without_indexes():
    """Where no item has an index, the order of the list counts."""
    data = [{"embedding": GOOD}, {"embedding": GOOD[::-1]}]

    assert [GOOD, GOOD[::-1]] == check_answer({"data": data}, 2, 4)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"<html>", b"\xff\xfe", b"[" * 100_000, b'{"data":' + b"9" * 5000])
def test_no_json(body):
    """A body that is no JSON object is a wrong answer, whatever the parser thinks of it."""
    with pytest.raises(EmbeddingAnswerError):
        read_answer(body, 1, 4, OPENROUTER)


@pytest.mark.parametrize(
    ("code", "kind"), [(429, EmbeddingUnavailable), (400, EmbeddingRejected), ("CANARY", EmbeddingUnavailable)]
)
def test_error_with_status_200(code, kind):
    """An error in the clothes of a success is read by its code, and its words are not used."""
    body = json.dumps({"error": {"code": code, "message": "CANARY"}}).encode()
    with pytest.raises(EmbeddingError) as caught:
        read_answer(body, 1, 4, OPENROUTER)

    assert kind is type(caught.value)
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize(
    ("usage", "tokens", "price"),
    [
        ({"total_tokens": 7, "cost": 0.5}, 7, 0.5),
        ({"prompt_tokens": 7}, 7, None),
        ({"total_tokens": "7", "cost": "0.5"}, None, None),
        ({"total_tokens": -7, "cost": -1}, None, None),
        ({"total_tokens": True, "cost": True}, None, None),
        ([], None, None),
        (None, None, None),
    ],
)
def test_usage(usage, tokens, price):
    """Tokens and price are taken where they make sense."""
    answer = read_answer(json.dumps({"data": [item(0, GOOD)], "usage": usage}).encode(), 1, 4, OPENROUTER)

    assert (tokens, price) == (answer.tokens, answer.price_usd)


@given(st.integers(1, 64), st.integers(1, 32))
def test_size_cap_lets_every_valid_answer_through(count, dimensions):
    """The longest floats JSON can hold, pretty-printed, are below the size cap."""
    data = [item(index, [-2.2250738585072014e-308] * dimensions) for index in range(count)]

    assert max_answer_bytes(count, dimensions) > len(json.dumps({"data": data}, indent=2))


@given(vector)
def test_unit_vectors_stay(values):
    """A vector that has unit length already is hardly changed by a second pass."""
    once = unit_vector(values)

    assert once == pytest.approx(unit_vector(once))
