"""The table of faults in the page on operations names tests that exist."""

import re
from pathlib import Path

from vault_memory_tests.bad_inputs.test_rows import names_in

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = CHECKOUT / "docs" / "operations.md"
COMMAND = re.compile(r"`pytest -s (vault_memory_tests/\S+?\.py)::(test_\w+)(?: -k \w+)?`")


def rows() -> list[str]:
    """Return the rows of the table."""
    section = PAGE.read_text(encoding="utf-8").partition("### Faults that were tried")[2].partition("\n### ")[0]
    return [line for line in section.splitlines() if line.startswith("|")][2:]


def test_every_command_names_a_test() -> None:
    """Renaming a test away would leave its row without a way to repeat it."""
    for row in rows():
        commands = COMMAND.findall(row)
        assert commands, row
        assert row.count("`pytest") == len(commands), row
        for file, name in commands:
            assert name in names_in(CHECKOUT / file), row


def test_the_table_has_every_fault() -> None:
    """One row at least for each kind of fault that was promised."""
    table = "\n".join(rows()).lower()
    for word in (
        "`sync` killed", "run killed", "daemon killed", "webserver killed", "code server killed", "postgresql killed",
        "backend", "restarted", "tick", "deadlock", "serialization", "full disk", "read-only file system", "clock",
        "out of memory", "deleted while", "queued run", "200 commits", "5,000 files", "5 mb", "50,000", "model",
    ):  # fmt: skip
        assert word in table, word
