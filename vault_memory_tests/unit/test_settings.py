"""Settings: several vaults in one file, and what a file may not say."""

from pathlib import Path

import pytest

from vault_memory import settings as settings_module
from vault_memory.errors import ConfigError
from vault_memory.settings import EvalSettings


@pytest.fixture
def read(tmp_path: Path):
    """Return a function that loads all vaults of a configuration file, and of variables."""

    def load(text: str, **variables: str) -> tuple[settings_module.Settings, ...]:
        file = tmp_path / "config.toml"
        file.write_text(text, encoding="utf-8")
        return settings_module.load_all({"HOME": str(tmp_path), "VAULT_MEMORY_CONFIG": str(file), **variables})

    return load


TWO = """
vault = "/notes"
[scan]
roots = ["A", "B"]
private_tags = ["mine"]
[vaults.work]
path = "/work-notes"
[vaults.work.scan]
private_tags = []
[vaults.papers]
path = "/papers"
kind = "directory"
schema = "papers"
eval = { questions = "papers.jsonl", min_recall = 0.5 }
"""


def test_one_vault_needs_no_name(read):
    """Without tables there is the unnamed vault alone, also where none is set yet."""
    assert [(one.name, one.vault, one.schema) for one in read('vault = "/notes"')] == [
        ("default", Path("/notes"), "vault_memory")
    ]
    assert [(one.name, one.vault) for one in read("")] == [("default", None)]


def test_each_table_is_a_vault_that_shares_what_it_does_not_set(read, tmp_path):
    """Path, kind, schema, scan and questions are a vault's own; everything else is shared."""
    default, work, papers = read(TWO, VAULT_MEMORY_HOME="/home-of-all")
    assert [one.name for one in (default, work, papers)] == ["default", "work", "papers"]
    assert [one.vault for one in (default, work, papers)] == [Path("/notes"), Path("/work-notes"), Path("/papers")]
    assert [one.kind for one in (default, work, papers)] == ["git", "git", "directory"]
    assert [one.schema for one in (default, work, papers)] == ["vault_memory", "vault_memory_work", "papers"]
    assert [one.scan.roots for one in (default, work, papers)] == [("A", "B"), ("A", "B"), (".",)]
    assert [one.scan.private_tags for one in (default, work, papers)] == [("mine",), (), ("mine",)]
    assert (work.eval, papers.eval) == (EvalSettings(), EvalSettings(tmp_path / "papers.jsonl", 0.5))
    assert {one.home for one in (default, work, papers)} == {Path("/home-of-all")}
    assert len({one.allow_list_file for one in (default, work, papers)}) == 3


def test_without_an_unnamed_vault_the_first_table_comes_first(read):
    """A file may name all its vaults; a variable adds the unnamed one in front of them."""
    tables = '[vaults.b]\npath = "/b"\n[vaults.a]\npath = "/a"\n'
    assert [one.name for one in read(tables)] == ["b", "a"]
    assert [one.name for one in read(tables, VAULT_MEMORY_VAULT="/notes")] == ["default", "b", "a"]


def test_a_vault_is_found_by_its_name(tmp_path):
    """``load`` takes a name, and names the known ones where there is no such vault."""
    file = tmp_path / "config.toml"
    file.write_text(TWO, encoding="utf-8")
    environ = {"HOME": str(tmp_path), "VAULT_MEMORY_CONFIG": str(file)}
    assert settings_module.load(environ).name == "default"
    assert settings_module.load(environ, name="work").vault == Path("/work-notes")
    with pytest.raises(ConfigError, match=r"^no vault is called 'home'; known: default, work, papers$"):
        settings_module.load(environ, name="home")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('vaults = "x"', "vaults: want a table for each vault"),
        ('[vaults]\nwork = "/w"', "vaults: want a table for each vault"),
        ("[vaults.work]", r"vaults\.work\.path is missing"),
        ("[vaults.work]\npath = 3", r"vaults\.work\.path: want text in quotes"),
        ('[vaults.work]\npath = "/w"\nkind = "svn"', r"vaults\.work\.kind: want git or directory"),
        ('[vaults.work]\npath = "/w"\nschema = "Public; drop"', r"vaults\.work\.schema: want lower-case letters"),
        ('[vaults.work]\npath = "/w"\nhome = "/h"', r"unknown setting 'vaults\.work\.home'; known: eval, kind, path"),
        ('[vaults.work]\npath = "/w"\n[vaults.work.scan]\nroot = ["a"]', r"unknown setting vaults\.work\.scan\.root"),
        ('[vaults.work]\npath = "/w"\n[vaults.work.eval]\nmin_recall = 2', r"min_recall: want a number from 0 to 1"),
        ('[vaults.Work]\npath = "/w"', "want a name of lower-case letters"),
        ('[vaults.default]\npath = "/w"', "want a name of lower-case letters"),
        ('[vaults."ein\\nname"]\npath = "/w"', "want a name of lower-case letters"),
        (
            'vault = "/n"\nschema = "work"\n[vaults.work]\npath = "/w"',
            r"the vaults default and work would share the schema vault_memory_work: set another vaults\.work\.schema",
        ),
        (
            '[vaults.a]\npath = "/a"\n[vaults.b]\npath = "/b"\nschema = "vault_memory_a"',
            "the vaults a and b would share the schema",
        ),
    ],
)
def test_what_cannot_be_meant_is_one_line(read, text, message):
    """A wrong table is named, with what it should be; two vaults never share a schema or a name in Dagster."""
    with pytest.raises(ConfigError, match=message) as caught:
        read(text)
    assert "\n" not in str(caught.value)
