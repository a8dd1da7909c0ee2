"""What a query may import."""

import json
import subprocess
import sys

import pytest

HEAVY = {"dagster", "openai", "numpy", "pydantic", "sqlalchemy", "rich", "markdown_it"}
ON_USE = {"psycopg", "http.client", "httpx2", "vault_memory.adapters.git", "vault_memory.adapters.server"}


def loaded_after(statement):
    """Return the modules of a fresh interpreter after a statement."""
    code = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_the_command_loads_nothing_heavy():
    """An agent waits for this import: no pipeline library, and driver and network only where they are used."""
    modules = loaded_after("import vault_memory.query.cli")
    assert set() == modules & HEAVY
    assert set() == modules & ON_USE


def test_search_is_callable_as_documented():
    """``vault_memory.query.search`` is the function, also after its module was imported by name."""
    loaded_after(
        "import vault_memory.query.search\nimport vault_memory.query.search as again\n"
        "from vault_memory.query import search\nfrom vault_memory.query.search import SearchResult\n"
        "assert callable(search) and vault_memory.query.search is search is again"
    )


@pytest.mark.parametrize("module", ["hooks", "launcher", "worker", "journal", "chat", "plugin_files"])
def test_what_a_session_waits_for_loads_nothing_heavy(module):
    """Hooks and the launcher are processes of their own, and a session waits for each."""
    modules = loaded_after(f"import vault_memory.agent.{module}")
    assert set() == modules & (HEAVY | {"vault_memory.ingest"})
    if module in ("hooks", "worker"):
        assert set() == modules & (ON_USE | {"click"})


def test_the_operators_command_reaches_the_agent_without_the_pipeline():
    """``vault-memory agent`` goes through the operator's command, which imports its heavy parts on use."""
    assert set() == loaded_after("import vault_memory.cli, vault_memory.agent.launcher") & HEAVY
