"""How fast notes are parsed and cut, beside a plain split into lines of the same notes in the same run.

Ratios say more than milliseconds: machines differ, and other work may be running.
"""

import random
import time

from vault_memory.notes.chunking import chunk
from vault_memory.notes.markdown import parse
from vault_memory_tests.unit.notes.builders import make_clean_note

_WORDS = ("index", "vector", "memory", "agent", "deploy", "rollback", "cache", "schema", "review", "invoice", "garden")
_CHARACTERS = "数据库向量记忆智能体会话检索嵌入分块标题延迟预算部署回滚缓存迁移分区评审会议"


def make_note(rnd: random.Random, number: int) -> str:
    """Write a note of a few sections in one of two languages, with a fence, a table, links and tags."""
    chinese = number % 2 == 1

    def sentence() -> str:
        if chinese:
            return "".join(rnd.choices(_CHARACTERS, k=30)) + "。"
        return " ".join(rnd.choices(_WORDS, k=14)).capitalize() + "."

    lines = ["---", f"title: Note {number}", "tags: [a, b]", "created: 2026-03-15", "---", "", f"# Note {number}", ""]
    for section in range(rnd.randint(3, 8)):
        lines += [f"## Section {section} {rnd.choice(_WORDS)}", ""]
        for _ in range(rnd.randint(1, 3)):
            lines += [" ".join(sentence() for _ in range(3)), ""]
        if section == 1:
            lines += ["```bash", "# not a heading", "echo 1", "```", ""]
        if section == 2:
            lines += ["| key | value |", "|---|---|", *["| a | b |"] * 4, ""]
        lines += [f"See [[note-{rnd.randrange(1000)}]] #{rnd.choice(_WORDS)}", ""]
    return "\n".join(lines)


def measure(texts: list[str]) -> tuple[float, float, float, int]:
    """Return CPU seconds for a split into lines, for parsing and for chunking, and the number of chunks."""
    start = time.process_time()
    for text in texts:
        text.split("\n")
    split = time.process_time()
    for text in texts:
        parse(text, fallback_title="x")
    parsed = time.process_time()
    notes = [make_clean_note(text) for text in texts]
    made = time.process_time()
    chunks = sum(len(chunk(note)) for note in notes)
    return split - start, parsed - split, time.process_time() - made, chunks


def main() -> None:
    rnd = random.Random(7)
    texts = [make_note(rnd, number) for number in range(500)]
    large = "\n".join(texts)[: 1024 * 1024].replace("\n---\n", "\n\n")
    print(f"{'notes':>10} {'MB':>6} {'chunks':>7} {'parse ms':>9} {'chunk ms':>9} {'MB/s':>6} {'x line split':>13}")
    for name, batch in (("500 notes", texts), ("one note", [large])):
        size = sum(len(text.encode()) for text in batch) / 1e6
        split, parsing, chunking, chunks = min(
            (measure(batch) for _ in range(3)), key=lambda found: found[1] + found[2]
        )
        total = parsing + chunking
        per_note = 1e3 / len(batch)
        print(
            f"{name:>10} {size:6.2f} {chunks:7} {parsing * per_note:9.2f} {chunking * per_note:9.2f}"
            f" {size / total:6.2f} {total / max(split, 1e-6):13.0f}"
        )


if __name__ == "__main__":
    main()
