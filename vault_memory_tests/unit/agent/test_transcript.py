"""What counts in a session's record."""

import os
import time
from pathlib import Path

import pytest

from vault_memory.agent import transcript
from vault_memory_tests.fixtures.sessions import assistant, tool_result, tool_use, user, write


def test_words_answers_and_changed_files_make_turns(tmp_path: Path) -> None:
    """A turn is what was asked, every text of the answer and the files that were changed."""
    path = write(
        tmp_path / "t.jsonl",
        user("Rename the cache."),
        assistant({"type": "thinking", "thinking": "hidden"}, "Looking.", tool_use("Read", file_path="/p/a.py")),
        tool_result("a thousand lines"),
        assistant(tool_use("Edit", file_path="/p/a.py")),
        assistant(tool_use("Edit", file_path="/p/a.py"), "Done: it is called store now."),
        user([{"type": "text", "text": "And the docs?"}]),
        assistant("Those too."),
    )

    turns = transcript.read(path).turns

    assert [("Rename the cache.", ["Looking.", "Done: it is called store now."], ["/p/a.py"]), ("And the docs?", ["Those too."], [])] == [
        (turn.asked, turn.answers, turn.files) for turn in turns
    ]  # fmt: skip


def test_unknown_and_broken_records_are_passed_over(tmp_path: Path) -> None:
    """Records of other kinds, of wrong types, of no JSON at all and deep nesting cost nothing but themselves."""
    path = write(
        tmp_path / "t.jsonl",
        {"type": "file-history-snapshot", "snapshot": {}},
        {"type": "progress", "data": {"message": {"type": "user"}}},
        '{"type":"user","message":',
        "not json",
        '["user"]',
        '"user"',
        '{"type":"user","message":null}',
        '{"type":"user","message":{"content":7}}',
        '{"type":"user","message":{"content":[null,3,"x",{"type":"text","text":null}]}}',
        '{"type":"user","message":' + "[" * 100_000,
        user("What holds?"),
        {"type": "assistant", "message": {"content": "as a bare text"}},
        {"type": "assistant", "message": {"content": [{"type": "tool_use", "name": "Edit", "input": None}]}},
        "\x00\x00",
    )

    assert [("What holds?", ["as a bare text"])] == [(turn.asked, turn.answers) for turn in transcript.read(path).turns]


@pytest.mark.parametrize("flag", ["isSidechain", "isMeta", "isCompactSummary"])
def test_what_nobody_said_is_left_out(tmp_path: Path, flag: str) -> None:
    """Sub-agents, injected messages and compaction summaries are no words of this session."""
    path = write(
        tmp_path / "t.jsonl", user("Mine."), user("Not mine.", **{flag: True}), assistant("No.", **{flag: True})
    )

    assert [("Mine.", [])] == [(turn.asked, turn.answers) for turn in transcript.read(path).turns]


def test_our_own_blocks_and_the_hosts_reminders_are_taken_out(tmp_path: Path) -> None:
    """What was handed over is not captured again: closed, cut off, in another case, quoted by the agent."""
    block = '<retrieved_context id="0" type="quoted-notes">\n{"text":"an old fact"}\n</retrieved_context>'
    path = write(
        tmp_path / "t.jsonl",
        user(f"{block}\n<memory_files id='1'>\nold\n</memory_files>\nNew question?"),
        assistant(f"It says {block.upper()} so yes. <system-reminder>old</system-reminder>"),
        user("<command-name>/clear</command-name>"),
        user("Again? <retrieved_context>an old fact that was cut"),
    )

    turns = transcript.read(path).turns

    assert ["New question?", "Again?"] == [turn.asked for turn in turns]
    assert "old" not in repr([(turn.asked, turn.answers) for turn in turns]).lower()


def test_megabytes_of_tool_output_are_read_over_quickly(tmp_path: Path) -> None:
    """A 5 MB line is skipped, ten of results take seconds at most, and what follows is found."""
    big = tool_result("x" * 900_000)
    path = write(tmp_path / "t.jsonl", user("Before."), tool_result("y" * 5_000_000), *[big] * 12, assistant("After."))

    began = time.perf_counter()
    reading = transcript.read(path)

    assert [("Before.", ["After."])] == [(turn.asked, turn.answers) for turn in reading.turns]
    assert path.stat().st_size == reading.end
    assert 5 > time.perf_counter() - began


def test_reading_goes_on_behind_the_last_whole_line(tmp_path: Path) -> None:
    """A line that is still being written is left for the next time, and nothing is read twice."""
    path = write(tmp_path / "t.jsonl", user("One."), assistant("First."))
    with path.open("a") as file:
        file.write('{"type":"user","message":{"content":"Tw')
    first = transcript.read(path)
    with path.open("a") as file:
        file.write('o."}}\n')

    second = transcript.read(path, first.end)

    assert (["One."], ["Two."]) == ([turn.asked for turn in first.turns], [turn.asked for turn in second.turns])
    assert () == transcript.read(path, second.end).turns


def test_a_pipe_is_no_transcript(tmp_path: Path) -> None:
    """Nothing waits for a writer that never comes."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="regular"):
        transcript.read(tmp_path / "pipe")
