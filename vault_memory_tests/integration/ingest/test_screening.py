"""Rows 12 to 14 of the bad inputs with a real worker process: late, dead and lying ones."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from vault_memory.errors import ScanError
from vault_memory.ingest import screening
from vault_memory.ingest.prepare import MakeJudge
from vault_memory.ingest.screening import WALL_FACTOR, Screener
from vault_memory.ingest.sync import Synchronizer
from vault_memory.notes.exclusion import compile_ruleset
from vault_memory.notes.model import (
    CleanNote,
    Excluded,
    ExclusionReason,
    Finding,
    Quarantined,
    QuarantineReason,
    RawNote,
)
from vault_memory.notes.paths import NotePath
from vault_memory.notes.scanner import scan_note
from vault_memory.settings import ScanSettings
from vault_memory_tests.fixtures.installation import Installation, walk
from vault_memory_tests.integration.ingest.test_sync import rows

RULES = compile_ruleset(ScanSettings(roots=(".",)), "drafts/\n")
BROKEN = "vault_memory_tests.integration.ingest.broken_worker"
TOKEN = "ghp_" + "x9Kq2LmZ7vTb4RwY1nCd8HsJ5gFp3AeU6iQo"
BUDGET = 1.0
PATIENCE = 20.0  # where a time-out is not the point: other tests may want the processor


def raw(text: str | bytes, path: str = "a/note.md") -> RawNote:
    """Make a note of a text."""
    return RawNote(NotePath.from_text(path), "blob", text if isinstance(text, bytes) else text.encode())


def pid_of(screener: Screener) -> int:
    """Return the process id of the screener's first worker."""
    process = screener._all[0]._process
    assert process is not None
    return process.pid


def is_gone(pid: int) -> bool:
    """Tell whether a process has ended, reaped or not."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return state.strip().startswith(("Z", "X")) or not state.strip()


def wait_until_gone(pid: int, seconds: float) -> bool:
    """Tell whether a process ends in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if is_gone(pid):
            return True
        time.sleep(0.02)
    return False


_GREEDY = pytest.param("GREEDY", marks=pytest.mark.skipif(sys.platform == "darwin", reason="macOS limits no memory"))


@pytest.fixture
def broken():
    """Return a screener whose worker obeys words in the notes."""
    with Screener(RULES, time_budget_seconds=PATIENCE, worker_module=BROKEN) as screener:
        yield screener


def test_the_worker_judges_as_the_scanner_does():
    """Clean, secret, private, excluded, undecodable and unstorable notes fare alike on both sides of the pipe."""
    notes = [
        raw("---\ntitle: x\ntags: [a, b]\ncreated: 2026-03-15\n---\n# H\r\n\r\n正文 [[link]]\r\n"),
        raw(""),
        raw(f"{TOKEN}\n"),
        raw("---\nprivate: true\n---\n"),
        raw("x", "drafts/a.md"),
        raw(b"\xff"),
        raw(b"a\x00"),
        raw("---\nprivate: [\n---\n"),
        raw(b"x" * (1024 * 1024 + 1)),
        raw("text", "a/\udcff\n.md"),
        RawNote(NotePath.from_bytes(b"a/\xff.md"), "blob", b"text"),
    ]
    expected = [scan_note(note, RULES) for note in notes]
    with Screener(RULES, time_budget_seconds=PATIENCE) as screener:
        assert expected == [screener.screen(note) for note in notes]
        assert expected == list(screener.screen_all(notes))
    with Screener(RULES, time_budget_seconds=PATIENCE, max_workers=3) as screener:
        assert expected == list(screener.screen_all(iter(notes)))
        assert [] == list(screener.screen_all([]))


def test_the_worker_is_started_once_and_with_the_first_note():
    """A plan without notes pays for no process, a plan with many pays once."""
    with Screener(RULES, time_budget_seconds=PATIENCE) as screener:
        assert [] == screener._all
        screener.screen(raw("a"))
        pid = pid_of(screener)
        for _ in range(20):
            screener.screen(raw("a"))
        assert pid == pid_of(screener)
    assert is_gone(pid)


@pytest.mark.parametrize("word", ["REGEX", "SLEEP", "STOP"])
def test_row_12_a_late_scan_is_killed_at_the_budget(word):
    """An expression that does not end, a hang and a stopped process are quarantined, and the next note is not."""
    with Screener(RULES, time_budget_seconds=BUDGET, worker_module=BROKEN) as screener:
        screener.screen(raw("warm up"))
        pid = pid_of(screener)
        start = time.monotonic()
        note = screener.screen(raw(f"{word} please"))
        # What uses the processor ends by the processor's time, what does not run by the clock.
        least = BUDGET if word == "REGEX" else WALL_FACTOR * BUDGET
        assert least <= time.monotonic() - start < WALL_FACTOR * BUDGET + 2
        assert Quarantined(raw("").path, "blob", QuarantineReason.SCAN_TIMEOUT) == note
        assert ("scan_timeout",) == note.rules
        assert is_gone(pid)
        assert isinstance(screener.screen(raw("next")), CleanNote)


def test_a_busy_machine_makes_no_note_late():
    """The budget is one of the worker's own time: a note that waits for the processor longer than that is not late."""
    with Screener(RULES, time_budget_seconds=BUDGET, worker_module=BROKEN) as screener:
        screener.screen(raw("warm up"))
        start = time.monotonic()
        note = screener.screen(raw("NAP please"))
        assert time.monotonic() - start > BUDGET
    assert isinstance(note, CleanNote)


@pytest.mark.parametrize("unit", ["password=", "eyJ", "https://a:", "[", "| a "])
def test_row_12_a_crafted_line_of_100_kb_ends_in_time(unit):
    """Done or quarantined: no text holds the run up for longer than the budget."""
    with Screener(RULES, time_budget_seconds=1.0) as screener:
        screener.screen(raw("warm up"))
        start = time.monotonic()
        note = screener.screen(raw((unit * 100_000)[:100_000]))
        assert time.monotonic() - start < 3
    assert isinstance(note, CleanNote) or {"scan_error"}.isdisjoint(note.rules)


@pytest.mark.parametrize("word", ["CRASH", "EXIT", "RAISE", _GREEDY, "LIAR"])
def test_row_13_a_worker_that_dies_raises_or_lies_quarantines_its_note_alone(broken, word, caplog):
    """Whatever ends the worker, its note is a scan error, and the others go on."""
    texts = ["one", f"{word} CANARY-77", "two", TOKEN]
    first, bad, second, secret = broken.screen_all([raw(text, f"{text[:3]}.md") for text in texts])
    assert isinstance(first, CleanNote)
    assert isinstance(bad, Quarantined)
    assert QuarantineReason.SCAN_ERROR is bad.reason
    assert isinstance(second, CleanNote)
    assert isinstance(secret, Quarantined)
    assert QuarantineReason.SECRET is secret.reason
    assert "CANARY" not in caplog.text
    assert f"{word[:3]}.md" in caplog.text


def test_row_13_a_worker_that_died_while_idle_costs_no_note(broken):
    """The next note gets a new worker: its predecessor's death is not its fault."""
    broken.screen(raw("a"))
    pid = pid_of(broken)
    os.kill(pid, signal.SIGKILL)
    wait_until_gone(pid, 5)
    assert isinstance(broken.screen(raw("b")), CleanNote)
    assert pid != pid_of(broken)


def test_row_13_many_bad_notes_in_a_row_do_not_stop_the_run(broken):
    """Notes that kill their workers are quarantined, however many there are."""
    notes = list(broken.screen_all([raw("CRASH")] * 4 + [raw("fine")]))
    assert [QuarantineReason.SCAN_ERROR] * 4 == [note.reason for note in notes[:4]]
    assert isinstance(notes[4], CleanNote)


def test_row_13_a_scanner_that_fails_at_anything_stops_the_run(broken, monkeypatch):
    """A broken installation must not quarantine the vault note by note: every worker rehearses first."""
    assert isinstance(broken.screen(raw("fine")), CleanNote)
    monkeypatch.setenv("TEST_REHEARSAL_FAILS", "1")
    broken.screen(raw("CRASH"))
    with pytest.raises(ScanError, match="does not start"):
        broken.screen(raw("fine"))


def test_row_13_without_a_worker_nothing_is_indexed():
    """A worker that cannot be started stops the run instead of skipping the scan."""
    with (
        Screener(RULES, worker_module="vault_memory_tests.integration.ingest.dead_worker") as screener,
        pytest.raises(ScanError, match="does not start"),
    ):
        screener.screen(raw("a"))


def test_row_13_a_worker_with_other_rules_is_refused(monkeypatch):
    """After an upgrade under a running process the two sides could judge by different rules."""
    other = compile_ruleset(ScanSettings(roots=(".",)), None)
    with Screener(RULES, time_budget_seconds=PATIENCE) as screener:
        monkeypatch.setattr(type(RULES), "__reduce__", lambda _rules: (compile_ruleset, (other.scan, None)))
        with pytest.raises(ScanError, match="another version"):
            screener.screen(raw("a"))


def test_the_allow_list_is_asked_in_this_process():
    """The operator's list needs a key and a file that the worker never gets."""
    asked: list[Finding] = []

    def allowed(_raw: RawNote, finding: Finding) -> bool:
        asked.append(finding)
        return True

    with Screener(RULES, allowed=allowed, time_budget_seconds=PATIENCE) as screener:
        assert isinstance(screener.screen(raw(TOKEN)), CleanNote)
    assert asked


def test_large_answers_wait_in_the_pipe_while_the_caller_is_busy():
    """A result that was ready in time is no time-out because its reader came late."""
    notes = [raw("LARGE\n\n" + "word " * 30_000, f"{number}.md") for number in range(3)]
    with Screener(RULES, time_budget_seconds=2.0, max_workers=2, worker_module=BROKEN) as screener:
        results = []
        for note in screener.screen_all(notes):
            results.append(note)
            if len(results) == 1:
                time.sleep(2.2)
    assert [note.data.decode() for note in notes] == [note.text for note in results]


def test_a_caller_that_stops_early_leaves_no_stale_answer():
    """The answer on an abandoned note is never taken for another note's."""
    with Screener(RULES, time_budget_seconds=PATIENCE, max_workers=2) as screener:
        results = screener.screen_all([raw(TOKEN), raw(TOKEN), raw(TOKEN), raw(TOKEN)])
        next(results)
        assert isinstance(screener.screen(raw("in between")), CleanNote)
        results.close()
        assert isinstance(screener.screen(raw("clean")), CleanNote)
        assert isinstance(screener.screen(raw("---\nprivate: true\n---\n")), Excluded)


def test_an_interrupt_leaves_no_stale_answer(broken, monkeypatch):
    """Ctrl-C between a note and its verdict must not hand the verdict to the next note."""

    def interrupt(*_: object) -> bytes:
        raise KeyboardInterrupt

    broken.screen(raw("a"))
    with monkeypatch.context() as patch:
        patch.setattr(screening, "_read_exactly", interrupt)
        with pytest.raises(KeyboardInterrupt):
            broken.screen(raw(TOKEN))
    assert isinstance(broken.screen(raw("clean")), CleanNote)


def test_threads_may_share_a_screener():
    """Calls from several threads get their own notes' verdicts."""
    wrong: list[object] = []

    def work(number: int) -> None:
        for _ in range(20):
            note = screener.screen(raw(f"note {number}\n" + (TOKEN if number % 2 else ""), f"{number}.md"))
            if note.path.id != f"{number}.md" or isinstance(note, CleanNote) == bool(number % 2):
                wrong.append(note)

    with Screener(RULES, time_budget_seconds=PATIENCE) as screener:
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [] == wrong


def test_a_forgotten_screener_ends_its_worker():
    """Without close the worker ends with the object."""
    screener = Screener(RULES, time_budget_seconds=PATIENCE)
    screener.screen(raw("a"))
    pid = pid_of(screener)
    del screener
    gc.collect()
    assert wait_until_gone(pid, 5)


@pytest.mark.parametrize("word", ["idle", "REGEX", "SLEEP"])
def test_the_worker_dies_with_its_parent(word):
    """A parent that is killed leaves no process behind, not even one inside an endless expression."""
    program = textwrap.dedent(f"""
        import sys, threading, time
        from vault_memory_tests.integration.ingest.test_screening import RULES, Screener, BROKEN, raw, pid_of
        screener = Screener(RULES, time_budget_seconds={BUDGET}, worker_module=BROKEN)
        screener.screen(raw("a"))
        print(pid_of(screener), flush=True)
        screener._all[0]._budget = 60
        screener.screen(raw({word!r}))
        time.sleep(60)
    """)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(0.2)
        assert not is_gone(pid)
        parent.kill()
    assert wait_until_gone(pid, 2 * BUDGET + 1 + 3)


def test_an_interrupt_of_the_group_does_not_reach_the_worker(broken):
    """A terminal's Ctrl-C must not turn the note under examination into a scan error."""
    broken.screen(raw("a"))
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(pid_of(broken), number)
    time.sleep(0.1)
    pid = pid_of(broken)
    assert isinstance(broken.screen(raw("b")), CleanNote)
    assert pid == pid_of(broken)


def test_row_20_the_owner_s_wish_crosses_the_pipe():
    """A private tag in the text is found by the worker as well."""
    with Screener(RULES, time_budget_seconds=PATIENCE) as screener:
        note = screener.screen(raw("text #private/sub\n"))
    assert Excluded(raw("").path, "blob", ExclusionReason.TAG) == note


def test_a_note_that_was_not_scanned_in_time_is_looked_at_again(installation: Installation) -> None:
    """By a sync that somebody runs at once, by the daemon when it is due; until then and if it is late again it is out."""
    installation.vault.write("01_Projects/a.md", "# A\n\nSLEEP well.\n")
    installation.vault.commit()
    usual = Synchronizer.__init__.__kwdefaults__["make_judge"]
    slow = partial(usual, worker_module=BROKEN, time_budget_seconds=0.1)

    def judged(make_judge: MakeJudge, *, due: bool = False) -> str | None:
        with Synchronizer.open(installation.settings) as synchronizer:
            synchronizer._preparer._make_judge = make_judge
            if due and not synchronizer.plan().note_ids:
                return None
            return walk(synchronizer)["01_Projects/a.md"].action

    assert "quarantined" == judged(slow)
    assert [("quarantined", "scan_timeout", 1)] == rows(installation, "SELECT status, reason, attempts FROM note_state")
    assert judged(slow, due=True) is None
    assert "quarantined" == judged(slow)
    rows(installation, "UPDATE note_state SET next_retry_at = now() RETURNING 1")
    with Synchronizer.open(installation.settings) as synchronizer:
        assert not synchronizer.is_current()
    assert "released" == judged(usual, due=True)
    assert [("indexed", None)] == rows(installation, "SELECT status, next_retry_at FROM note_state")
