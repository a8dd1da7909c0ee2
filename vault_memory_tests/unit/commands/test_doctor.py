"""What ``doctor`` makes of versions."""

import pytest

from vault_memory.commands.doctor import _pgvector


@pytest.mark.parametrize(
    ("version", "level", "words"),
    [
        (None, "problem", "CREATE EXTENSION vector"),
        ("0.6.2", "problem", "ALTER EXTENSION vector UPDATE"),
        ("0.8.3", "warning", "install 0.8.4"),
        ("0.8.4", "ok", ""),
        ("0.10.0", "ok", ""),
    ],
)
def test_pgvector_needs_084_for_hnsw(version: str | None, level: str, words: str) -> None:
    """Missing or ancient is a problem, older than 0.8.4 a warning; each says how to mend it."""
    found = _pgvector(version)

    assert level == found.verdict
    assert words in found.mend
