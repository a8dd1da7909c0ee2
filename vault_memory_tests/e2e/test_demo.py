"""The demo as a newcomer runs it: a process in surroundings that it must not touch or be led by."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest

from vault_memory.adapters import server
from vault_memory.commands import demo

CHECKOUT = Path(demo.__file__).parents[2]
# Runs a program and says which processes it left: on Linux, orphans become children of the next "subreaper" above.
WITNESS = """
import ctypes, json, os, pathlib, subprocess, sys, time
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
program = subprocess.Popen(sys.argv[2:], start_new_session=True)
print(program.pid, flush=True)
status = program.wait()
def living():
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state != "Z":
                yield (entry / "cmdline").read_text()
        except OSError:
            continue
deadline = time.monotonic() + 5
while list(living()) and time.monotonic() < deadline:
    time.sleep(0.05)
pathlib.Path(sys.argv[1]).write_text(json.dumps([status, list(living())]))
"""


class Witnessed:
    """A demo that is watched.

    Attributes:
        pid: The demo's process, which leads a group of its own.
        temporary: Its folder for temporary files, of its own.
    """

    def __init__(self, tmp_path: Path, temporary: Path, *arguments: str, **environment: str) -> None:
        self.temporary = temporary
        self._report = tmp_path / "report.json"
        self._errors = tmp_path / "errors.txt"
        demo_command = [sys.executable, "-m", "vault_memory.cli", "demo", *arguments]
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", WITNESS, self._report, *demo_command],
                cwd=CHECKOUT,
                env={"PATH": os.environ["PATH"], "TMPDIR": str(temporary), **environment},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self.process.stdout is not None
        self.lines = self.process.stdout
        self.pid = int(self.lines.readline())

    def read_until(self, text: str) -> None:
        """Read lines until one begins with a text."""
        for line in self.lines:
            if line.startswith(text):
                return
        pytest.fail(f"the demo ended before {text!r}: {self.end()}")

    def end(self) -> tuple[int, str, str, list[str]]:
        """Wait; return exit status, what else it said on both streams, and the processes that it left."""
        said, _ = self.process.communicate(timeout=240)
        status, left = json.loads(self._report.read_text(encoding="utf-8"))
        return status, said, self._errors.read_text(encoding="utf-8"), left


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder with a long name that other users may pass, as /tmp; pytest's own lets nobody in."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    long = folder / ("long" * 40)
    long.mkdir()
    yield long
    shutil.rmtree(folder)


def test_the_demo_shows_what_every_commit_costs(tmp_path: Path, temporary: Path) -> None:
    """It needs no key, no server, no vault and no home, follows none of the caller's settings and leaves nothing."""
    caller = tmp_path / "caller"
    caller.mkdir()
    witnessed = Witnessed(
        tmp_path,
        temporary,
        VAULT_MEMORY_VAULT="/nonexistent/vault",
        VAULT_MEMORY_DSN="postgresql://nobody@127.0.0.1:9/none",
        VAULT_MEMORY_HOME=str(caller / "home"),
        VAULT_MEMORY_CONFIG="/nonexistent/config.toml",
        VAULT_MEMORY_EMBEDDER="openai",
        OPENROUTER_API_KEY="not a key",
        DAGSTER_HOME=str(caller / "dagster"),
        GIT_DIR="/nonexistent/git",
    )

    status, said, errors, left = witnessed.end()

    assert (0, "", []) == (status, errors, left), said
    assert [] == list(temporary.iterdir())
    assert [] == list(caller.iterdir())
    assert demo.FAKE_TOKEN not in said
    table = rows(said)
    for row, wanted in {
        "the vault as it is": {"changed": 0, "deleted": 0, "quarantined": 0, "unchanged": 0, "reused": 0},
        "change one line": {"added": 0, "changed": 1},
        "rename a note": {"added": 0, "renamed": 1, "deleted": 0, "embedded": 0},
        "delete a note": {"deleted": 1, "embedded": 0, "reused": 0},
        "paste a (fake) token": {"changed": 0, "quarantined": 1, "embedded": 0},
        "(no new commit)": {"added": 0, "changed": 0, "deleted": 0, "quarantined": 0, "embedded": 0, "reused": 0},
    }.items():
        assert wanted == {name: table[row][name] for name in wanted}, row
    assert 25 < table["the vault as it is"]["added"] < table["the vault as it is"]["embedded"]
    assert 1 <= table["change one line"]["embedded"] <= 2
    assert 1 <= table["rename a note"]["reused"]
    for_people, _, block = said.partition("What an agent is handed")
    assert 100 >= max(columns(line) for line in for_people.splitlines())
    assert re.search(r'^{"n":1,"source":"01_Projects/memory-search/latency budget.md".* 120 ms ', block, re.MULTILINE)


def test_the_demo_answers_three_questions_and_keeps_four_notes_out(tmp_path: Path, temporary: Path) -> None:
    """Answers name file and lines; the printed lines lead on in a shell, and the last one removes everything."""
    witnessed = Witnessed(tmp_path, temporary, "--keep", HOME=str(tmp_path))
    status, said, errors, left = witnessed.end()
    shell = [line.strip() for line in said.partition("Kept.")[2].splitlines() if line.startswith("  ")]
    removal = said.rpartition("To remove it: ")[2]
    info = server.locate(next(temporary.glob("*/home")))

    try:
        assert (0, "", []) == (status, errors, left), said
        answers = re.findall(r"^\? (.+)\n  (.+?):\d+-\d+\n", said, re.MULTILINE)
        assert 3 == len(answers)
        assert [(question.query, True) for question in demo.shown_questions()] == [
            (query, source in question.sources)
            for (query, source), question in zip(answers, demo.shown_questions(), strict=True)
        ]
        assert sorted(demo.KEPT_OUT) == sorted(re.findall(r"^  0 hits  (.+\.md): ", said, re.MULTILINE))
        assert 5 == len(shell)
        found = in_shell(tmp_path, *shell)
        assert (0, "") == (found.returncode, found.stderr)
        assert "up to date" in found.stdout
        assert demo.shown_questions()[1].sources[0] in found.stdout
    finally:
        removed = in_shell(tmp_path, *shell[:3], removal)
    assert 0 == removed.returncode, removed.stderr
    assert [] == list(temporary.iterdir())
    assert not info.directory.exists()
    assert not info.socket_directory.exists()


@pytest.mark.parametrize(
    ("number", "moment"), [(signal.SIGTERM, "commit "), (signal.SIGINT, "the vault as it is")], ids=["kill", "ctrl-c"]
)
def test_an_interrupted_demo_leaves_nothing(
    tmp_path: Path, temporary: Path, number: signal.Signals, moment: str
) -> None:
    """Ctrl-C, which a terminal sends to all of a group, and a kill of the process alone end in the same clean-up."""
    witnessed = Witnessed(tmp_path, temporary, "--keep")
    witnessed.read_until(moment)

    if number is signal.SIGINT:
        os.killpg(witnessed.pid, number)
    else:
        os.kill(witnessed.pid, number)
    status, said, errors, left = witnessed.end()

    assert 0 != status, said
    assert [] == left
    assert [] == list(temporary.iterdir())
    assert "Traceback" not in errors


def rows(said: str) -> dict[str, dict[str, float | None]]:
    """Read the table: a row's numbers by row and heading."""
    lines = said.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("commit "))
    headings = lines[start].split()[1:]
    table = {}
    for line in lines[start + 1 : lines.index("", start)]:
        cells = line.split()[-len(headings) :]
        numbers = [None if cell == "-" else float(cell) for cell in cells]
        table[re.split(r"\s{2,}", line)[0]] = dict(zip(headings, numbers, strict=True))
    return table


def columns(line: str) -> int:
    """Return how many columns a terminal gives a line."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in line)


def in_shell(tmp_path: Path, *lines: str) -> subprocess.CompletedProcess[str]:
    """Run lines in a shell that has ``vault-memory`` on its path, and a setting of the caller's in the way."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir(exist_ok=True)
    command = bin_folder / "vault-memory"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m vault_memory.cli "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    return subprocess.run(
        ["sh", "-ec", "\n".join(lines)],
        env={
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "PYTHONPATH": str(CHECKOUT),
            "HOME": str(tmp_path),
            "VAULT_MEMORY_DSN": "postgresql://nobody@127.0.0.1:9/none",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
