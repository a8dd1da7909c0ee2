"""Fixtures that every kind of test may use; each lives in the plugin of its subject."""

import os

import pytest

pytest_plugins = [
    "vault_memory_tests.fixtures.data",
    "vault_memory_tests.fixtures.embedding_server",
    "vault_memory_tests.fixtures.postgres",
    "vault_memory_tests.fixtures.vault",
    "vault_memory_tests.fixtures.installation",  # imports the one before
    "vault_memory_tests.fixtures.online",  # as above
    "vault_memory_tests.fixtures.folder",  # as above
]


@pytest.fixture(autouse=True)
def _own_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the developer's own vault, key and configuration out of every test."""
    for name in list(os.environ):
        if name.startswith(("VAULT_MEMORY_", "OPENROUTER_", "OPENAI_", "DAGSTER_", "GIT_")) and name not in _KEPT:
            monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))


_KEPT = {"VAULT_MEMORY_TEST_DATA", "VAULT_MEMORY_REQUIRE_TEST_DATA", "VAULT_MEMORY_TEST_SERVER"}


def pytest_report_header() -> list[str]:
    """Name the labelled cases in use, so that a skipped set is seen."""
    data = os.environ.get("VAULT_MEMORY_TEST_DATA")
    return [f"labelled cases: {data or 'NONE, tests that need them are skipped: set VAULT_MEMORY_TEST_DATA'}"]
