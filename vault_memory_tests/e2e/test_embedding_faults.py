"""A sync and a provider that fails in every way: nothing is lost, nothing is wrong, and everybody is told."""

import json
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler

import pytest

from vault_memory import settings as settings_module
from vault_memory.commands.status import status
from vault_memory.commands.sync import SyncResult, plan_only, sync
from vault_memory.ingest.sync import Synchronizer
from vault_memory.query.search import search
from vault_memory_tests.e2e.test_commands import command
from vault_memory_tests.fixtures.embedding_server import EmbeddingServer
from vault_memory_tests.fixtures.installation import Installation
from vault_memory_tests.fixtures.online import (
    CANARY,
    KEY,
    QUICK,
    SLOW,
    Answer,
    drip,
    echo,
    fill,
    flood,
    forget,
    good,
    hours_pass,
    paid,
    quiet,
    reply,
    rows,
    served,
    states,
    vectors,
)

# ---------------------------------------------------------------- the real server's faults


def test_shuffled_answers_end_at_the_right_texts(
    make_online: Callable[..., Installation], embedding_server: EmbeddingServer
) -> None:
    """An answer in another order is put in ours: each text has the vector that a clean run gives it."""
    installation = make_online(embedding_server.url)
    fill(installation)
    embedding_server.control(faults={"shuffle": 1.0})
    installation.steps()
    shuffled = vectors(installation)
    embedding_server.control(faults={})
    forget(installation)
    installation.steps()

    assert 8 == len(shuffled)
    assert shuffled == vectors(installation)


def test_faults_by_chance_end_like_a_clean_run(
    make_online: Callable[..., Installation], embedding_server: EmbeddingServer
) -> None:
    """A provider that fails half of the time in all ways costs syncs, not notes."""
    installation = make_online(embedding_server.url, VAULT_MEMORY_EMBEDDING_MAX_BATCH_TEXTS="2")
    fill(installation, 12)
    kinds = ("429", "500", "503", "reset", "badjson", "short", "wrongdim", "nan", "shuffle")
    embedding_server.control(faults=dict.fromkeys(kinds, 0.06), retry_after=0)
    for _ in range(30):
        if {("indexed", None, None)} == states(installation):
            break
        installation.steps()
    assert {("indexed", None, None)} == states(installation)
    found = vectors(installation)
    embedding_server.control(faults={})
    forget(installation)
    installation.steps()

    assert 24 == len(found)
    assert found == vectors(installation)


def test_an_answer_in_part_is_kept(make_online: Callable[..., Installation], embedding_server: EmbeddingServer) -> None:
    """What was answered before an outage is not paid for again: each text is bought once."""
    installation = make_online(embedding_server.url, VAULT_MEMORY_EMBEDDING_CONCURRENCY="1")
    fill(installation, 8)
    embedding_server.control(script=["ok", "ok", *["503"] * 40])

    outcomes = installation.steps()

    assert 4 == sum(outcome.action == "added" for outcome in outcomes.values())
    assert 8 == sum(outcome.texts_embedded for outcome in outcomes.values())
    embedding_server.control(script=[])
    installation.steps()
    assert {("indexed", None, None)} == states(installation)
    assert (16, 16) == (len(paid(embedding_server)), len(set(paid(embedding_server))))


# ---------------------------------------------------------------- hostile servers


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(echo, "127.0.0.1 answered 500", id="echoing"),
        pytest.param(drip, "did not answer within", id="slow"),
        pytest.param(flood, "answered more than", id="huge"),
    ],
)
def test_a_hostile_server_costs_a_message(
    make_online: Callable[..., Installation], caplog: pytest.LogCaptureFixture, answer: Answer, said: str
) -> None:
    """A server that quotes, drips or floods fails the notes by name, in bounded time, and is not quoted."""
    mood: list[Answer] = [answer]
    config = QUICK.replace("timeout_seconds = 0.6", "timeout_seconds = 0.3")

    def moody(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        mood[-1](handler, body)

    with served(moody) as (url, received):
        installation = make_online(url, config)
        fill(installation, 2)
        started = time.monotonic()
        failed = installation.steps()
        seconds = time.monotonic() - started

        assert all(said in (outcome.error or "") for outcome in failed.values())
        assert CANARY in received[0].decode()
        assert seconds < 20
        quiet(caplog.text, *(str(outcome) for outcome in failed.values()))
        mood.append(lambda handler, body: reply(handler, 200, good(body)))
        installation.steps()
    assert {("indexed", None, None)} == states(installation)
    assert {(1536,)} == set(rows(installation, "SELECT vector_dims(embedding) FROM memory_chunk"))


def test_a_redirect_is_a_matter_of_settings(make_online: Callable[..., Installation]) -> None:
    """The other host is sent nothing, the command exits 3 with one line, and after one request."""
    with (
        served(lambda handler, body: reply(handler, 200, good(body))) as (other, stolen),
        served(lambda handler, _: reply(handler, 307, headers={"Location": f"{other}/embeddings"})) as (url, received),
    ):
        installation = make_online(url)
        fill(installation)
        done = command(installation.environment, "sync")

    assert (3, 1, []) == (done.returncode, len(received), stolen)
    (line,) = done.stderr.splitlines()
    assert "redirects are not followed, check embedding.base_url (4 notes wait for it)" in line
    quiet(done.stdout, done.stderr)


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize(("fault", "exit_status"), [("500", 1), ("401", 3)])
def test_the_command_says_what_failed(
    make_online: Callable[..., Installation], embedding_server: EmbeddingServer, fault: str, exit_status: int
) -> None:
    """Exit 1 with a line a note where some failed, 3 with one line where a setting is wrong; then 0 and all is there."""
    installation = make_online(embedding_server.url)
    head = fill(installation, 2)
    embedding_server.control(faults={fault: 1.0})
    done = command(installation.environment, "sync", "--json")

    lines = done.stderr.splitlines()
    assert exit_status == done.returncode, done.stderr
    assert (1 if exit_status == 3 else 2) == len(lines)
    assert f"127.0.0.1 answered {fault}" in lines[0]
    result = json.loads(done.stdout)
    assert (2, 0, 2) == (result["failed"], result["texts_embedded"], len(result["failures"]))
    found = status(installation.settings).to_json()
    assert {"step": "embed", "attempts": 1}.items() <= found["failed"][0].items()
    quiet(done.stdout, done.stderr, str(found))

    embedding_server.control(faults={})
    again = sync(installation.settings)

    assert (0, head, 4) == (again.exit_status, again.end, again.texts_embedded)
    assert again.requests >= 1
    assert again.tokens > 0
    assert again.price_usd


@pytest.mark.parametrize(
    "change",
    [
        {"OPENROUTER_API_KEY": "", "VAULT_MEMORY_EMBEDDING_BASE_URL": "https://openrouter.ai/api/v1"},
        {"VAULT_MEMORY_EMBEDDING_BASE_URL": "https://example.com/v1"},
        {"VAULT_MEMORY_EMBEDDING_ALLOW_HTTP_LOOPBACK": "0"},
        {"VAULT_MEMORY_EMBEDDING_MODEL": "another-model"},
    ],
    ids=["no key", "unlisted host", "plain http", "another model"],
)
def test_a_blocked_setting_still_takes_notes_out(
    make_online: Callable[..., Installation], embedding_server: EmbeddingServer, change: dict[str, str]
) -> None:
    """With settings that allow no embedding, deletions and quarantines run, nothing is sent, and the exit is 3."""
    installation = make_online(embedding_server.url)
    fill(installation)
    installation.steps()
    token = "ghp" + "_" + "Ab3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3bC6"
    installation.vault.delete("01_Projects/n0.md")
    installation.vault.write("01_Projects/n1.md", f"token {token}\n")
    installation.vault.write("01_Projects/n2.md", "# Note 2\n\nFresh words.\n")
    installation.vault.commit()
    before = len(embedding_server.requests())
    environment = {**installation.environment, **change}
    changed = Installation(installation.vault, settings_module.load(environment), environment)

    if "OPENROUTER_API_KEY" in change:  # one of them as a process, since each costs seconds
        done = command(environment, "sync", "--json")
        rotate, problem = done.stderr.splitlines()
        assert 3 == done.returncode
        assert "quarantined: 01_Projects/n1.md" in rotate
        assert "no API key" in problem
        assert (1, 1, 1) == tuple(json.loads(done.stdout)[name] for name in ("deleted", "quarantined", "failed"))
    else:
        actions = {name.removeprefix("01_Projects/"): one.action for name, one in changed.steps().items()}
        assert {"n0.md": "deleted", "n1.md": "quarantined", "n2.md": "failed"} == actions
    assert before == len(embedding_server.requests())
    assert [("01_Projects/n2.md",), ("01_Projects/n3.md",)] == rows(
        installation, "SELECT id FROM memory_primary ORDER BY id"
    )
    assert [(True, "127.0.0.1")] == rows(installation, "SELECT was_embedded, embedded_by FROM memory_secure_audit")
    assert 1 == len(set(rows(installation, "SELECT model, dimensions FROM memory_chunk")))
    answer = search("caches", settings=changed.settings)
    assert {"01_Projects/n2.md", "01_Projects/n3.md"} == {hit.source for hit in answer.items}
    if "VAULT_MEMORY_EMBEDDING_MODEL" not in change:
        assert any("answered by keywords alone" in notice for notice in answer.notices)


# ---------------------------------------------------------------- identity


def test_without_a_key_the_offline_embedder_is_chosen_and_named(
    make_installation: Callable[..., Installation], embedding_server: EmbeddingServer
) -> None:
    """The first sync says so, a query says so, and a key that comes later changes nothing in silence."""
    installation = make_installation(VAULT_MEMORY_EMBEDDER="")
    fill(installation, 1)
    first = command(installation.environment, "sync")
    asked = search("caches", settings=installation.settings)
    with_key = {**installation.environment, "OPENROUTER_API_KEY": KEY}
    installation.vault.write("01_Projects/later.md", "# Later\n\nwords\n")
    installation.vault.commit()
    later = sync(settings_module.load(with_key))

    assert (0, 1) == (first.returncode, len(first.stderr.splitlines()))
    assert "offline embedder" in first.stderr
    assert (0, 1) == (later.exit_status, later.counts["added"])
    assert "offline embedder" in str(later.notice)
    assert any("offline embedder" in notice for notice in asked.notices)
    assert [("hashing",)] == rows(installation, "SELECT embedder FROM sync_state")
    assert 1 == len(set(rows(installation, "SELECT model, dimensions FROM memory_chunk")))


def test_a_look_binds_nobody(make_online: Callable[..., Installation], embedding_server: EmbeddingServer) -> None:
    """A dry run before the key is set does not bind the memory to the offline embedder."""
    installation = make_online(embedding_server.url, VAULT_MEMORY_EMBEDDER="")
    fill(installation, 1)
    keyless = {
        **installation.environment,
        "OPENROUTER_API_KEY": "",
        "VAULT_MEMORY_EMBEDDING_BASE_URL": "https://openrouter.ai/api/v1",
    }
    _, estimate = plan_only(settings_module.load(keyless))

    assert 2 == estimate.texts
    assert [(None, None, None)] == rows(installation, "SELECT embedder, model, vault FROM sync_state")
    installation.steps()
    assert [("openai",)] == rows(installation, "SELECT embedder FROM sync_state")


# ---------------------------------------------------------------- failures by note, outages


def _refuse_poison(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    if "poison" in body.decode():
        reply(handler, 400, b'{"error": {}}')
    else:
        reply(handler, 200, good(body))


def test_a_note_that_always_fails_blocks_no_other(make_online: Callable[..., Installation]) -> None:
    """One refused text fails its note alone and for good; the commit moves on, and nobody asks again by himself."""
    with served(_refuse_poison) as (url, received):
        installation = make_online(url)
        fill(installation, 3)
        installation.vault.write("01_Projects/poison.md", "# Note\n\nThis poison is refused.\n")
        head = installation.vault.commit()
        outcomes = installation.steps()

        assert {"01_Projects/poison.md"} == {name for name, one in outcomes.items() if one.action == "failed"}
        assert [("failed", "embed", "EmbeddingRejected", 1, None)] == rows(
            installation,
            "SELECT status, step, error_class, attempts, next_retry_at FROM note_state WHERE id LIKE '%poison.md'",
        )
        assert [(head,)] == rows(installation, "SELECT commit FROM sync_state")
        asked = len(received)
        with Synchronizer.open(installation.settings) as synchronizer:
            assert synchronizer.plan().is_empty
            assert synchronizer.is_current()
        assert asked == len(received)

        installation.vault.write("01_Projects/poison.md", "# Note\n\nHarmless now.\n")
        installation.vault.commit()
        assert {"added", "changed"} >= {one.action for one in installation.steps().values()}
    assert {("indexed", None, None)} == states(installation)


def test_an_outage_is_waited_out_by_retries(
    make_online: Callable[..., Installation], embedding_server: EmbeddingServer
) -> None:
    """An hour in small: due notes are tried with growing pauses without a commit, then all is there, paid for once."""
    installation = make_online(embedding_server.url, SLOW, VAULT_MEMORY_EMBEDDING_CONCURRENCY="2")
    head = fill(installation, 20)
    embedding_server.control(script=["ok", "ok"], faults={"503": 1.0})
    installation.steps()
    pauses = []
    with Synchronizer.open(installation.settings) as synchronizer:
        for _ in range(3):  # what the sensor does: wait until a retry is due, plan, run
            assert synchronizer.is_current()
            hours_pass(installation)
            assert not synchronizer.is_current()
            walk_due(synchronizer)
            pauses += rows(
                installation,
                "SELECT round(extract(epoch FROM max(next_retry_at - updated_at)))::int, max(attempts) FROM note_state"
                " WHERE status = 'failed'",
            )
        assert [(120, 2), (200, 3), (200, 4)] == pauses
        embedding_server.control(faults={})
        hours_pass(installation)
        walk_due(synchronizer)

    assert {("indexed", None, None)} == states(installation)
    assert [(head,)] == rows(installation, "SELECT commit FROM sync_state")
    bought = paid(embedding_server)
    assert (40, 40) == (len(bought), len(set(bought)))
    assert [(0,)] == rows(installation, "SELECT count(*) FROM embedding_stage")


def walk_due(synchronizer: Synchronizer) -> None:
    """Carry out what is due now, as a run of the sensor does."""
    plan = synchronizer.plan()
    with synchronizer.writer(5, holder="test"):
        batch = synchronizer.embed(synchronizer.scan(synchronizer.begin(plan.note_ids, follow_plan=True, run_id="r")))
        assert len(plan.note_ids) == len(list(synchronizer.persist(batch)))
        synchronizer.finish()


@pytest.mark.parametrize(
    ("outage", "bought_again"),
    [({"faults": {"503": 1.0}}, 0), ({"latency_ms": 1500}, 4)],
    ids=["refused", "answered too late"],
)
def test_an_outage_costs_syncs_and_no_text(
    make_online: Callable[..., Installation],
    embedding_server: EmbeddingServer,
    outage: dict[str, object],
    bought_again: int,
) -> None:
    """Syncs and a commit in the outage, then one after it: all is there; only the batch in flight was bought again."""
    installation = make_online(embedding_server.url, VAULT_MEMORY_EMBEDDING_CONCURRENCY="1")
    fill(installation, 4)
    embedding_server.control(script=["ok"])
    assert 0 == sync(installation.settings).exit_status
    fill(installation, 6, words="queues")
    embedding_server.control(**outage)
    results = [sync(installation.settings) for _ in range(2)]
    installation.vault.write("01_Projects/later.md", "# Later\n\nWritten in the outage.\n")
    head = installation.vault.commit()
    results.append(sync(installation.settings))
    assert [(1, 6), (1, 6), (1, 7)] == [(one.exit_status, len(one.failures)) for one in results]
    assert 4 == len({hit.source for hit in search("caches", settings=installation.settings, mode="keyword").items})

    embedding_server.control(faults={}, latency_ms=0)
    last = sync(installation.settings)

    assert (0, head, 13) == (last.exit_status, last.end, last.texts_embedded)
    assert {("indexed", None, None)} == states(installation)
    assert [] == status(installation.settings).failures
    assert [(0,)] == rows(installation, "SELECT count(*) FROM embedding_stage")
    bought = paid(embedding_server)
    assert 8 + 13 == len(set(bought))
    assert bought_again >= len({text for text in bought if bought.count(text) > 1})


def test_an_outage_is_met_once_by_a_sync_of_many_runs(
    make_online: Callable[..., Installation], embedding_server: EmbeddingServer
) -> None:
    """The first run of a sync waits out its tries; the others knock once each and fail their notes at once."""
    installation = make_online(embedding_server.url, QUICK.replace("[sync]", "[sync]\nmax_notes_per_run = 2"))
    fill(installation, 8)
    embedding_server.control(faults={"503": 1.0})

    result: SyncResult = sync(installation.settings)

    assert (1, 8) == (result.exit_status, len(result.failures))
    assert 2 + 3 == result.requests


def test_a_denied_key_is_asked_about_once(
    make_online: Callable[..., Installation], embedding_server: EmbeddingServer
) -> None:
    """However many runs a sync has, a wrong key is met by one request."""
    installation = make_online(embedding_server.url, QUICK.replace("[sync]", "[sync]\nmax_notes_per_run = 2"))
    fill(installation, 6)
    embedding_server.control(faults={"401": 1.0})

    result = sync(installation.settings)

    assert (3, 6, 1) == (result.exit_status, len(result.failures), result.requests)


# ---------------------------------------------------------------- cost


def test_cost_is_told_before_and_after(
    make_online: Callable[..., Installation], embedding_server: EmbeddingServer
) -> None:
    """The dry run's estimate is near what is charged and below the bound; above the limit it takes --yes."""
    config = QUICK + "\n[scan]\nmax_note_bytes = 100000\n"
    dear = config.replace(
        "price_usd_per_million_tokens = 0.02", "price_usd_per_million_tokens = 1000000\nconfirm_above_usd = 5.0"
    )
    installation = make_online(embedding_server.url, dear)
    fill(installation, 3)

    told = json.loads(command(installation.environment, "sync", "--dry-run", "--json").stdout)
    refused = command(installation.environment, "sync")
    assert [] == embedding_server.requests()
    done = sync(installation.settings, confirmed=True).to_json()
    found = status(installation.settings).to_json()

    assert (3, 1) == (refused.returncode, len(refused.stderr.splitlines()))
    assert "--yes" in refused.stderr
    assert done["tokens"] == embedding_server.stats()["tokens"]
    assert told["estimated_tokens"] == told["price_usd"]
    assert 0.7 <= told["estimated_tokens"] / done["tokens"] <= 1.3
    assert done["tokens"] < told["tokens"]
    assert done["tokens"] == done["price_usd"] == found["cost_this_month_usd"]
    assert (6, 0) == (done["texts_embedded"], done["texts_reused"])
    assert found["embedding_this_month"] == {name: done[name] for name in found["embedding_this_month"]}
    assert 0 == plan_only(installation.settings)[1].estimated_tokens
