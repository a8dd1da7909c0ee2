"""Entries of the journal: what is in them, and that each is there once."""

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from vault_memory import settings as settings_module
from vault_memory.agent import journal, sessions, summary, transcript, worker
from vault_memory.agent.transcript import Turn
from vault_memory.notes.markdown import parse
from vault_memory.settings import Settings
from vault_memory_tests.fixtures.sessions import SECRET, SESSION, assistant, tool_use, user, write

NOW = datetime.fromisoformat("2026-11-30T10:05:00+01:00")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return settings with a home of the test's own."""
    (tmp_path / "home").mkdir()
    return settings_module.load({"HOME": str(tmp_path), "VAULT_MEMORY_HOME": str(tmp_path / "home")})


def day(settings: Settings) -> str:
    """Return the text of the day's file."""
    return (settings.journal_folder / "2026-11-30.md").read_text()


def test_an_entry_says_what_was_asked_answered_and_changed(settings: Settings, tmp_path: Path) -> None:
    """Session, time, project and the words; the file is a note with one section for each entry."""
    path = write(
        tmp_path / "t.jsonl", user("Which queue?"), assistant("We took NATS.", tool_use("Write", file_path="/p/q.md"))
    )

    written = journal.write_down(settings, SESSION, path, directory="/home/me/app", now=NOW)

    assert settings.journal_folder / "2026-11-30.md" == written
    assert day(settings) == (
        "# Journal 2026-11-30\n\n## 10:05 session 0b1c2d3e in app\n\n"
        f"<!-- vault-memory session={SESSION} end={path.stat().st_size} -->\n"
        "- Asked: Which queue?\n- Answered: We took NATS.\n- Changed: /p/q.md\n"
    )
    assert 0o600 == written.stat().st_mode & 0o777


def test_a_part_of_a_session_is_written_down_once(settings: Settings, tmp_path: Path) -> None:
    """Nothing new, no entry; something new, an entry of that alone; also when the position was lost."""
    path = write(tmp_path / "t.jsonl", user("One?"), assistant("First."))
    journal.write_down(settings, SESSION, path, now=NOW)
    assert journal.write_down(settings, SESSION, path, now=NOW) is None
    for file in (settings.home / "agent" / "sessions").iterdir():
        file.unlink()
    assert journal.write_down(settings, SESSION, path, now=NOW) is None

    write(path, user("Two?"), assistant("Second."))
    journal.write_down(settings, SESSION, path, now=NOW)

    assert (2, 1, 1) == (day(settings).count("## "), day(settings).count("One?"), day(settings).count("Two?"))


def test_what_a_person_wrote_stays(settings: Settings, tmp_path: Path) -> None:
    """The day's file is appended to, whatever is in it."""
    settings.journal_folder.mkdir()
    (settings.journal_folder / "2026-11-30.md").write_text("my own line")
    journal.write_down(settings, SESSION, write(tmp_path / "t.jsonl", user("One?"), assistant("First.")), now=NOW)
    assert day(settings).startswith("my own line\n## 10:05")


def test_a_link_in_the_days_place_is_not_followed(settings: Settings, tmp_path: Path) -> None:
    """A shared folder must not choose which file is written to."""
    settings.journal_folder.mkdir()
    (tmp_path / "victim").write_text("mine")
    (settings.journal_folder / "2026-11-30.md").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic"):
        journal.write_down(settings, SESSION, write(tmp_path / "t.jsonl", user("One?"), assistant("First.")), now=NOW)
    assert "mine" == (tmp_path / "victim").read_text()


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "", "x" * 500, "--> <b>", "会"])
def test_a_sessions_name_is_a_plain_word(name: str) -> None:
    """It names a file and stands in a comment."""
    assert sessions._SESSION.fullmatch(sessions.session_name(name))


@pytest.mark.parametrize("place", ["asked", "answered", "file", "directory", "split"])
def test_a_secret_never_reaches_the_journal(settings: Settings, tmp_path: Path, place: str) -> None:
    """Wherever it stands in a session, its turn is left out whole and the entry says so."""
    records = {
        "asked": [user(f"Use {SECRET} for it"), assistant("Fine.")],
        "answered": [user("Which key?"), assistant("It is\n\n" + "long " * 300 + SECRET + " indeed")],
        "file": [user("Save it."), assistant(tool_use("Write", file_path=f"/p/{SECRET}.md"))],
        "directory": [user("Hello?"), assistant("Yes.")],
        "split": [user(f"Half {SECRET[:8]}\u200b{SECRET[8:]}"), assistant("Fine.")],
    }[place]
    path = write(tmp_path / "t.jsonl", *records, user("And the harmless one?"), assistant("It stays."))

    journal.write_down(settings, SESSION, path, directory=f"/p/{SECRET}" if place == "directory" else "/p", now=NOW)

    assert SECRET not in day(settings)
    assert SECRET[8:] not in day(settings)
    assert "It stays." in day(settings)
    assert (place != "directory") == (summary.WITHHELD in day(settings))
    assert not any(SECRET in file.read_text() for file in (settings.home / "agent").rglob("*") if file.is_file())


def test_a_secret_never_reaches_a_summariser(settings: Settings, tmp_path: Path) -> None:
    """The command is given the extract without it; and what it prints is scanned as well."""
    got = tmp_path / "got"
    command = f"cat > {got}; echo '- decided on NATS'; printf 'AK''IA%s\\n' Q7ZX5NL2WMB4TRKD"
    settings = replace(settings, journal=replace(settings.journal, summariser_command=command))
    path = write(
        tmp_path / "t.jsonl", user(f"Use {SECRET}"), assistant("Fine."), user("Queue?"), assistant("NATS it is.")
    )

    journal.write_down(settings, SESSION, path, now=NOW)

    assert SECRET not in got.read_text()
    assert "NATS it is." in got.read_text()
    assert SECRET not in day(settings)
    assert "Answered: NATS it is." in day(settings)


@pytest.mark.parametrize(("command", "expected"), [
    ("echo '* One fact'; echo; echo '## Not a heading'", "- One fact\n- \\#\\# Not a heading\n"),
    ("exit 3", "- Answered: NATS."), ("true", "- Answered: NATS."), ("sleep 60", "- Answered: NATS."),
])  # fmt: skip
def test_a_summariser_writes_plain_lines_or_the_extract_does(
    settings: Settings, tmp_path: Path, command: str, expected: str
) -> None:
    """One that fails, says nothing or is late costs its words, not the entry."""
    settings = replace(settings, journal=replace(settings.journal, summariser_command=command, timeout_seconds=1.0))
    journal.write_down(settings, SESSION, write(tmp_path / "t.jsonl", user("Queue?"), assistant("NATS.")), now=NOW)
    assert expected in day(settings)


def test_a_chat_model_is_held_to_the_embeddings_rules(settings: Settings, tmp_path: Path) -> None:
    """A host that is not allowed is not asked; the extract is the entry."""
    told = replace(settings.journal, model="any", base_url="https://models.example.org/v1")
    settings = replace(settings, journal=told)
    journal.write_down(settings, SESSION, write(tmp_path / "t.jsonl", user("Queue?"), assistant("NATS.")), now=NOW)
    assert "- Answered: NATS." in day(settings)


@pytest.mark.needs_data
def test_injection_payloads_stay_lines_of_a_list(settings: Settings, test_data: Path) -> None:
    """No payload makes a heading, tag, comment, link or front matter in the day's file."""
    for row in map(json.loads, (test_data / "cases/injection_payloads.jsonl").read_text().splitlines()):
        payload = row["payload"] * (row["repeat"] or 1)
        lines = summary.summarise([Turn(payload, [payload]), Turn(f"#private {payload}", ["Fine."])], settings)
        assert not any("\n" in line or ("<!--" in line.replace("\\", "") and "\\<" not in line) for line in lines)
        text = "# Journal 2026-11-30\n" + journal._entry(lines, SESSION, 1, NOW, "/p/app")
        document = parse(text, fallback_title="x")
        assert ["Journal 2026-11-30", "10:05 session 0b1c2d3e in app"] == [
            section.heading_path[-1] for section in document.sections if section.heading_path
        ]
        assert () == tuple(document.tags)


def test_requests_are_carried_out_by_one_worker(settings: Settings, tmp_path: Path) -> None:
    """A worker takes every request, writes one entry for each session and lets go."""
    for number in range(3):
        path = write(tmp_path / f"t{number}.jsonl", user(f"Question {number}?"), assistant("Yes."))
        folder = settings.home / "agent" / "requests"
        folder.mkdir(parents=True, exist_ok=True)
        body = {"session": f"s{number}", "transcript": str(path), "directory": ""}
        (folder / f"s{number}.json").write_text(json.dumps(body))
    (folder / "broken.json").write_text("{")

    assert 3 == worker.carry_out(settings)
    assert 0 == worker.carry_out(settings)
    assert [] == list(folder.iterdir())


def test_long_sessions_make_bounded_entries(settings: Settings) -> None:
    """First and last turns stand for a session of hundreds."""
    lines = summary.summarise([Turn(f"Question {n}? " + "w " * 300, ["a " * 900]) for n in range(300)], settings)
    assert summary.MAX_CHARACTERS >= sum(map(len, lines))
    assert lines[0].startswith("Asked: Question 0?")
    assert any("turns between" in line for line in lines)


def test_a_reading_without_words_makes_no_entry(settings: Settings, tmp_path: Path) -> None:
    """A session of tool output alone is nothing to remember."""
    path = write(tmp_path / "t.jsonl", {"type": "progress"})
    assert journal.write_down(settings, SESSION, path, now=NOW) is None
    assert not settings.journal_folder.exists()
    assert () == transcript.read(path).turns
