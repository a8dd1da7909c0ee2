"""Settings of a query on the test's own database."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from vault_memory import settings as settings_module
from vault_memory.settings import Settings


@pytest.fixture
def query_settings(database: str, reader_dsn: str, tmp_path: Path) -> Settings:
    """The read-only role, no vault at hand."""
    settings = settings_module.load(
        {"HOME": str(tmp_path), "VAULT_MEMORY_QUERY_DSN": reader_dsn, "VAULT_MEMORY_EMBEDDER": "hashing"}
    )
    return replace(settings, dsn=None)


@pytest.fixture
def with_vault(query_settings: Settings) -> Callable[[Path], Settings]:
    """The same settings with a vault at hand."""
    return lambda vault: replace(query_settings, vault=vault)
