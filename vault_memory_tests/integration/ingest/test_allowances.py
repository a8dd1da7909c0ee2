"""The allow-list: a file outside the vault, and what its entries do to the store."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from vault_memory.adapters.embed_text import texts_of
from vault_memory.commands import quarantine
from vault_memory.commands.status import status
from vault_memory.errors import ConfigError, EgressBlocked, QueryError
from vault_memory.ingest.allowances import AllowList, add_allowances, read_allowances
from vault_memory.ingest.keys import load_key
from vault_memory.ingest.prepare import Preparer
from vault_memory.ingest.sync import Synchronizer
from vault_memory.notes import secrets
from vault_memory.notes.model import Finding, RawNote
from vault_memory.notes.paths import NotePath
from vault_memory.query import search
from vault_memory.query.reading import get
from vault_memory.settings import Settings
from vault_memory_tests.fixtures.installation import Installation, walk
from vault_memory_tests.fixtures.vault import VaultRepo
from vault_memory_tests.integration.ingest.test_sync import NOTE, TOKEN, rows

SECRET = f"# Lookalike\n\nAn example in the manual reads token {TOKEN} and opens nothing.\n"
HELD = "01_Projects/held.md"
OTHERS = ("01_Projects/a.md", "01_Projects/b.md")


@pytest.fixture
def held(installation: Installation) -> Installation:
    """An installation with two clean notes and one that is quarantined."""
    for number, name in enumerate(OTHERS):
        installation.vault.write(name, NOTE.replace("caches", f"topic {number}"))
    installation.vault.write(HELD, SECRET)
    installation.vault.commit()
    assert "quarantined" == installation.steps()[HELD].action
    return installation


def planned(installation: Installation) -> tuple[tuple[str, ...], bool]:
    """Return the notes that a sync would look at, and whether the sensor would find nothing to do."""
    with Synchronizer.open(installation.settings) as synchronizer:
        return synchronizer.plan().note_ids, synchronizer.is_current()


def expire(installation: Installation) -> None:
    """Let every release end a minute ago."""
    path = installation.settings.allow_list_file
    past = datetime.now(UTC) - timedelta(minutes=1)
    add_allowances(path, [replace(entry, expires_at=past) for entry in read_allowances(path)])


def test_a_release_lets_exactly_that_note_in(held: Installation) -> None:
    """Only the released note is looked at again, it is embedded and found, and then there is nothing to do."""
    assert ((), True) == planned(held)
    added = quarantine.allow(held.settings, HELD, days=7)
    assert ((HELD,), False) == planned(held)

    outcomes = held.steps()

    assert {HELD: "released"} == {note: outcome.action for note, outcome in outcomes.items()}
    assert ((), True) == planned(held)
    assert added[0].rule in [entry.rule for entry in added]
    hits = search("lookalike manual opens nothing", settings=held.settings).items
    assert HELD == hits[0].source
    assert TOKEN in hits[0].text
    assert TOKEN in get(HELD, settings=held.settings).items[0].text
    assert ["released"] == [one.line.action for one in quarantine.held(held.settings, source=HELD)]


def test_the_list_costs_no_other_note_a_look(held: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries change the plan of the notes they name, and the other notes' blobs are not read."""
    read: list[str] = []
    prepare = Preparer.prepare

    def spy(self: Preparer, wanted, rules):
        wanted = list(wanted)
        read.extend(path.id for path, _ in wanted)
        return prepare(self, wanted, rules)

    monkeypatch.setattr(Preparer, "prepare", spy)
    quarantine.allow(held.settings, HELD)
    held.steps()
    quarantine.revoke(held.settings, HELD)
    held.steps()
    assert {HELD} == set(read)


def test_an_end_of_the_release_takes_the_note_out(held: Installation) -> None:
    """After its date the rows are hidden where they match, the next sync deletes them, and the audit is open again."""
    quarantine.allow(held.settings, HELD)
    held.steps()
    expire(held)
    assert ((HELD,), False) == planned(held)

    assert "quarantined" == held.steps()[HELD].action

    assert [] == rows(held, f"SELECT id FROM memory_chunk WHERE note_id = '{HELD}'")
    assert [(HELD, "quarantined")] == rows(held, "SELECT id, action FROM memory_secure_audit")
    assert ((), True) == planned(held)


def test_a_query_withholds_at_the_minute_of_the_end(held: Installation) -> None:
    """The end that the store recorded counts at read time, whenever the next sync comes."""
    quarantine.allow(held.settings, HELD)
    held.steps()
    rows(held, "UPDATE memory_allowed SET expires_at = now() - interval '1 second' RETURNING 1")
    result = search("lookalike manual opens nothing", settings=held.settings)
    assert TOKEN not in str(result.to_dict())
    assert any("withheld" in notice for notice in result.notices)
    assert () == get(HELD, settings=held.settings).items


def test_a_revocation_takes_the_rows_out_at_once(held: Installation) -> None:
    """No sync is needed for the rows to go; the next one finds the note quarantined and settles."""
    quarantine.allow(held.settings, HELD)
    held.steps()

    quarantine.revoke(held.settings, HELD)

    assert [] == rows(held, f"SELECT id FROM memory_primary WHERE id = '{HELD}'")
    assert [(HELD, "quarantined")] == rows(held, "SELECT id, action FROM memory_secure_audit")
    assert "quarantined" == held.steps()[HELD].action
    assert ((), True) == planned(held)
    with pytest.raises(QueryError):
        quarantine.revoke(held.settings, HELD)


def test_other_bytes_and_other_places_are_not_released(held: Installation) -> None:
    """An edit of one byte or a move quarantines the note again, and its rows go in the same run."""
    quarantine.allow(held.settings, HELD)
    held.steps()
    held.vault.write(HELD, SECRET + " ")
    held.vault.write("01_Projects/copy.md", SECRET)
    held.vault.commit()

    outcomes = held.steps()

    assert {HELD: "quarantined", "01_Projects/copy.md": "quarantined"} == {
        note: outcome.action for note, outcome in outcomes.items()
    }
    assert [(name,) for name in OTHERS] == rows(held, "SELECT id FROM memory_primary ORDER BY id")
    held.vault.write(HELD, SECRET)
    held.vault.commit()
    assert "released" == held.steps()[HELD].action


def test_a_newer_rule_is_not_released(held: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release names a rule: another rule on the same bytes holds the note back, at egress and at read time too."""
    quarantine.allow(held.settings, HELD)
    held.steps()
    released = [entry.rule for entry in read_allowances(held.settings.allow_list_file)]
    real = secrets.scan

    def newer(text: str):
        return (*real(text), *((Finding("of_tomorrow", 1),) if "opens nothing" in text else ()))

    monkeypatch.setattr(secrets, "scan", newer)
    sys.modules["vault_memory.query.search"]._remembered_rules.cache_clear()  # a newer rule comes with a new process

    assert TOKEN not in str(search("lookalike manual", settings=held.settings).to_dict())
    with Synchronizer.open(held.settings) as synchronizer:
        wanted = [(one.path, one.blob_id) for one in synchronizer.vault.tree(held.vault.head) if one.path.id == HELD]
        prepared = next(iter(synchronizer._preparer.prepare(wanted, synchronizer.rules(held.vault.head))))
    with pytest.raises(EgressBlocked, match="of_tomorrow") as caught:
        texts_of(prepared.note, prepared.chunks, allowed=set(released))
    assert ("of_tomorrow",) == caught.value.rules


def test_a_release_of_one_rule_of_two_is_not_enough(installation: Installation) -> None:
    """What is still held back stays held back, and the audit names what is left; the second release lets it in."""
    both = SECRET + "\npassword: Tr0ub4dor" + "&3xyzQ\n"
    installation.vault.write(HELD, both)
    installation.vault.commit()
    installation.steps()
    rules = quarantine.held(installation.settings, source=HELD)[0].line.rules
    assert 1 < len(rules)

    quarantine.allow(installation.settings, HELD, rules=rules[:1])
    assert ((), True) == planned(installation)
    installation.steps(full=True)
    assert rules[1:] == quarantine.held(installation.settings, source=HELD)[0].line.rules
    quarantine.allow(installation.settings, HELD)

    assert "released" == installation.steps()[HELD].action


def test_only_a_secret_can_be_released(installation: Installation) -> None:
    """Bytes that cannot be read or judged are never let in by a list; nor are notes that are not held back."""
    installation.vault.write("01_Projects/odd.md", b"21\xb0")
    installation.vault.write("01_Projects/a.md", NOTE)
    installation.vault.commit()
    installation.steps()
    for source in ("01_Projects/odd.md", "01_Projects/a.md", "01_Projects/none.md"):
        with pytest.raises(QueryError):
            quarantine.allow(installation.settings, source)
    assert () == read_allowances(installation.settings.allow_list_file)


def test_a_rule_that_did_not_match_cannot_be_released(held: Installation) -> None:
    """A typing mistake is no silent entry."""
    with pytest.raises(QueryError, match="no_such_rule"):
        quarantine.allow(held.settings, HELD, rules=["no_such_rule"])


def test_the_file_is_private_and_holds_no_text(held: Installation) -> None:
    """Mode 0600, path, rule, keyed hash and dates; neither the secret nor a hash that could be guessed against."""
    quarantine.allow(held.settings, HELD)
    path = held.settings.allow_list_file
    text = path.read_text()
    assert 0o600 == path.stat().st_mode & 0o777
    assert {"source", "rule", "content_hmac", "added_at", "expires_at"} == set(json.loads(text)["entries"][0])
    key = load_key(held.settings.hmac_key_file, create=False)
    assert key.tag(SECRET.encode()) == json.loads(text)["entries"][0]["content_hmac"]
    assert TOKEN not in text


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"version": 2, "entries": []}', '{"version": 1, "entries": [{}]}', "[" * 100_000,
     '{"version": 1, "entries": [{"source": "a", "rule": "r", "content_hmac": 1, "added_at": "x", "expires_at": "y"}]}'],
)  # fmt: skip
def test_a_list_that_cannot_be_read_stops_the_run(held: Installation, content: str) -> None:
    """Half a list would release or hold back at random: nothing is planned."""
    held.settings.allow_list_file.write_text(content)
    held.settings.allow_list_file.chmod(0o600)
    with pytest.raises(ConfigError, match="allow-list"):
        planned(held)


@pytest.mark.parametrize("mode", [0o644, 0o620, 0o660])
def test_a_list_that_others_may_touch_is_refused(held: Installation, mode: int) -> None:
    """Who can write the list can let secrets out."""
    quarantine.allow(held.settings, HELD)
    held.settings.allow_list_file.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        planned(held)


def test_a_list_inside_the_vault_is_refused(
    make_installation: Callable[..., Installation], make_vault: Callable[..., VaultRepo]
) -> None:
    """A vault must not vouch for itself, whatever the configuration's place."""
    vault = make_vault()
    vault.write("01_Projects/a.md", NOTE)
    vault.write("config/config.toml", "")
    vault.write("config/vault_memory.allowed.json", '{"version": 1, "entries": []}')
    (vault.path / "config/vault_memory.allowed.json").chmod(0o600)
    vault.commit()
    installation = make_installation(vault, VAULT_MEMORY_CONFIG=str(vault.path / "config/config.toml"))
    with pytest.raises(ConfigError, match="inside the vault"):
        installation.steps()


def test_a_link_in_place_of_the_list_is_refused(held: Installation) -> None:
    """The list is opened without following a link."""
    path = held.settings.allow_list_file
    path.with_name("real").write_text('{"version": 1, "entries": []}')
    path.symlink_to("real")
    with pytest.raises(ConfigError, match="cannot be read"):
        planned(held)


def test_an_entry_answers_for_its_path_rule_and_bytes_alone(held: Installation) -> None:
    """Every part of the entry counts."""
    rule = quarantine.allow(held.settings, HELD)[0].rule
    allowed = AllowList(held.settings.allow_list_file, load_key(held.settings.hmac_key_file, create=False))
    allowed.refresh()
    raw = RawNote(NotePath.from_text(HELD), "b", SECRET.encode())
    assert allowed.allows(raw, Finding(rule, 3))
    assert not allowed.allows(raw, Finding("another", 3))
    assert not allowed.allows(replace(raw, data=SECRET.encode() + b"\n"), Finding(rule, 3))
    assert not allowed.allows(replace(raw, path=NotePath.from_text("01_Projects/x.md")), Finding(rule, 3))


def test_a_release_survives_new_rules(held: Installation) -> None:
    """Another ruleset judges the stored text again, and the release answers for it: nothing is embedded anew."""
    quarantine.allow(held.settings, HELD)
    held.steps()
    held.vault.write(".vaultmemoryignore", "drafts/\n")
    held.vault.commit()

    outcomes = held.steps()

    assert 0 == sum(outcome.texts_embedded for outcome in outcomes.values())
    assert 3 == len(rows(held, "SELECT id FROM memory_primary"))
    assert ((), True) == planned(held)


def remote(settings: Settings, installation: Installation) -> None:
    """Let the database say that its vectors came from a provider."""
    rows(
        installation,
        "UPDATE sync_state SET embedder = 'openai', base_url = 'https://api.example.org/v1' RETURNING 1",
    )


def test_a_note_whose_secret_was_sent_is_to_be_rotated(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule that comes after the embedding: host and time are told by audit and status, also without a key now."""
    installation.vault.write(HELD, "# Words\n\nThe phrase is tangerine otter umbrella.\n")
    installation.vault.write(OTHERS[0], NOTE)
    installation.vault.commit()
    installation.steps()
    written = rows(installation, f"SELECT updated_at FROM memory_primary WHERE id = '{HELD}'")[0][0]
    remote(installation.settings, installation)
    with Synchronizer.open(installation.settings) as synchronizer, synchronizer.writer(5, holder="test"):
        rules = synchronizer.rules(installation.vault.head)
        verdict = Preparer.judge_stored

        def newer(self: Preparer, stored, rules, **options):
            told = ((note_id, text.replace("tangerine otter umbrella", TOKEN)) for note_id, text in stored)
            return verdict(self, told, rules, **options)

        monkeypatch.setattr(Preparer, "judge_stored", newer)
        rows(installation, "UPDATE sync_state SET ruleset_id = 'older' RETURNING 1")
        synchronizer.put_in_force()

    assert rules.id == rows(installation, "SELECT ruleset_id FROM sync_state")[0][0]
    line = quarantine.held(installation.settings, source=HELD)[0].line
    assert (True, True, "api.example.org", written) == (
        line.was_embedded, line.secret_embedded, line.embedded_by, line.embedded_at,
    )  # fmt: skip
    assert f"was embedded: rotate it (sent to api.example.org at {written:%Y-%m-%d %H:%M} UTC)" == line.notice
    assert {HELD: line.notice} == status(installation.settings).rotate


def test_a_note_that_gains_a_secret_later_says_what_was_sent(installation: Installation) -> None:
    """The version that went out was clean: the notice says so, and does not cry wolf about the provider."""
    installation.vault.write(HELD, NOTE)
    installation.vault.commit()
    installation.steps()
    remote(installation.settings, installation)
    installation.vault.write(HELD, SECRET)
    installation.vault.commit()

    with Synchronizer.open(installation.settings) as synchronizer:
        assert "quarantined" == walk(synchronizer)[HELD].action

    line = quarantine.held(installation.settings, source=HELD)[0].line
    assert (True, False, "api.example.org") == (line.was_embedded, line.secret_embedded, line.embedded_by)
    assert "earlier version without it" in (line.notice or "")


def test_a_note_that_was_never_embedded_says_nothing(held: Installation) -> None:
    """No notice for what never left."""
    assert [None] == [one.line.notice for one in quarantine.held(held.settings)]
    assert {} == status(held.settings).rotate


def test_a_change_to_the_offline_embedder_forgets_no_provider(installation: Installation) -> None:
    """Vectors were bought, then the embedder was changed to hashing: what had gone out is still told of."""
    installation.vault.write(HELD, NOTE)
    installation.vault.commit()
    installation.steps()
    rows(installation, """INSERT INTO embedding_usage VALUES (date_trunc('month', now())::date, 'm', 1, 1, 1, 0)
                          RETURNING 1""")  # fmt: skip
    installation.vault.write(HELD, SECRET)
    installation.vault.commit()
    installation.steps()
    line = quarantine.held(installation.settings, source=HELD)[0].line
    assert (True, "an embedding provider used before") == (line.was_embedded, line.embedded_by)
