"""The generated pages are what the program says of itself."""

from pathlib import Path

import pytest

import vault_memory
from vault_memory.commands.reference import pages

CHECKOUT = Path(vault_memory.__file__).resolve().parents[1]


@pytest.mark.parametrize("name", ["docs/configuration.md", "docs/commands.md"])
def test_pages_are_up_to_date(name: str) -> None:
    """After a change of a setting or a help text: python -m vault_memory.commands.reference."""
    assert pages()[name] == (CHECKOUT / name).read_text(encoding="utf-8")


def test_every_setting_is_described() -> None:
    """No row of the tables ends without a word."""
    rows = [line for line in pages()["docs/configuration.md"].splitlines() if line.startswith("| `")]

    assert [] == [row for row in rows if row.endswith("|  |")]
    assert 30 < len(rows)
