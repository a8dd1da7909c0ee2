"""Layer B's frame, and the bound that both layers share."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vault_memory.agent.block import handed_over, holds_our_block, memory_block, without_our_blocks
from vault_memory.agent.memory_files import MemoryFile, MemoryFiles


def files(*texts: str) -> MemoryFiles:
    """Return memory files with these texts."""
    return MemoryFiles(tuple(MemoryFile(f"m{number}.md", "project", text) for number, text in enumerate(texts)))


def opened(block: str) -> list[dict[str, object]]:
    """Return the objects in a block; fail where its frame is not whole."""
    lines = block.splitlines()
    assert lines[0].startswith("<memory_files ")
    assert "</memory_files>" == lines[-1]
    assert 1 == len(re.findall(r"</\s*memory_files", block, re.IGNORECASE))
    return [json.loads(line) for line in lines[2:-1]]


@pytest.mark.needs_data
def test_injection_payloads_stay_data(test_data: Path) -> None:
    """Every payload stands in one line of JSON, within the frame and the bound."""
    for row in map(json.loads, (test_data / "cases/injection_payloads.jsonl").read_text().splitlines()):
        payload = row["payload"] * (row["repeat"] or 1)
        block = memory_block(files(payload, f"- a fact\n{payload}"), 1_000)
        if not block:
            continue
        items = opened(block)
        assert 1_000 >= len(block)
        assert all({"source", "scope", "flags", "text"} == set(item) for item in items)
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]", block)


@given(st.lists(st.text(max_size=400), max_size=5), st.integers(300, 3_000))
def test_no_text_breaks_the_frame_or_the_bound(texts: list[str], max_chars: int) -> None:
    """Whatever stands in the files, the block is whole and no longer than it may be."""
    block = memory_block(files(*texts), max_chars)
    assert max_chars >= len(block)
    if block:
        opened(block)


def test_a_long_file_is_cut_and_all_get_a_share() -> None:
    """The first file does not take it all."""
    items = opened(memory_block(files("long " * 500, "second file", "third file"), 1_000))
    assert ["m0.md", "m1.md", "m2.md"] == [item["source"] for item in items]
    assert str(items[0]["text"]).endswith("…")


def test_without_notes_the_files_may_take_the_whole_bound() -> None:
    """Layer B's own bound is there for layer A's sake."""
    long = files("word " * 1_000)
    assert 2_000 < len(handed_over(None, long, max_chars=2_500, memory_max_chars=500)) <= 2_500


def test_our_blocks_are_recognised() -> None:
    """Both kinds, closed or cut off; other tags stay."""
    assert "a   b" == without_our_blocks("a <memory_files id='x'>\n{}\n</memory_files> b")
    assert "a  " == without_our_blocks("a <retrieved_context>\nno end")
    assert holds_our_block("x <retrieved_context id='1'>")
    assert not holds_our_block("what is a retrieved_context? <b>")
