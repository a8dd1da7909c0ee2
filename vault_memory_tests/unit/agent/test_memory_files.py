"""Which memory files belong to a session."""

import os
from pathlib import Path

import pytest

from vault_memory.agent import memory_files
from vault_memory_tests.fixtures.sessions import SECRET


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a user's home with an empty project beside it."""
    (tmp_path / "work" / "app" / ".git").mkdir(parents=True)
    (tmp_path / "home" / ".claude").mkdir(parents=True)
    return tmp_path / "home"


def put(path: Path, text: str) -> Path:
    """Write a file, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def memory_of(home: Path, project: Path) -> Path:
    """Return where Claude Code keeps a project's memory."""
    return home / ".claude" / "projects" / str(project).replace("/", "-").replace("_", "-").replace(".", "-") / "memory"


def names(found: memory_files.MemoryFiles) -> list[tuple[str, str, str]]:
    """Return what was read."""
    return [(file.name.rpartition("/")[2], file.scope, file.text) for file in found.files]


def test_the_folders_of_claude_code_are_found(home: Path, tmp_path: Path) -> None:
    """Project memory, the repository's own file and the user's, in this order; from a folder below, too."""
    project = tmp_path / "work" / "app"
    put(memory_of(home, project) / "MEMORY.md", "auto")
    put(project / "MEMORY.md", "in the repository")
    put(home / ".claude" / "MEMORY.md", "of the user")
    below = project / "src"
    below.mkdir()

    found = memory_files.read(below, {"HOME": str(home)})

    assert [("MEMORY.md", "project", "auto"), ("MEMORY.md", "project", "in the repository"), ("MEMORY.md", "user", "of the user")] == names(found)  # fmt: skip


def test_another_work_tree_shares_the_memory(home: Path, tmp_path: Path) -> None:
    """A further work tree of a repository has the memory of its main one."""
    project = tmp_path / "work" / "app"
    put(memory_of(home, project) / "MEMORY.md", "shared")
    put(tmp_path / "tree" / ".git", f"gitdir: {project}/.git/worktrees/tree\n")

    assert [("MEMORY.md", "project", "shared")] == names(memory_files.read(tmp_path / "tree", {"HOME": str(home)}))


def test_claude_md_is_quoted_only_when_asked_for(home: Path, tmp_path: Path) -> None:
    """Claude Code reads these as instructions by itself; other agents may want them quoted."""
    project = tmp_path / "work" / "app"
    put(project / "CLAUDE.md", "rules")
    put(home / ".claude" / "CLAUDE.md", "habits")

    assert [] == names(memory_files.read(project, {"HOME": str(home)}))
    assert [("CLAUDE.md", "project", "rules"), ("CLAUDE.md", "user", "habits")] == names(
        memory_files.read(project, {"HOME": str(home)}, claude_md=True)
    )


def test_imports_stay_within_bounds(home: Path, tmp_path: Path) -> None:
    """Imports of imports are read once each, never out of the project and the configuration, never in a circle."""
    project = tmp_path / "work" / "app"
    put(tmp_path / "outside.md", "outside")
    (project / "link.md").symlink_to(tmp_path / "outside.md")
    put(project / "key.pem", "no text file")
    put(project / "MEMORY.md", "start @docs/a.md. @../../outside.md @/etc/passwd @link.md @key.pem @gone.md a@b.md")
    put(project / "docs" / "a.md", "second @../MEMORY.md @~/.claude/own.md\n```\n@c.md\n```\n`@c.md`")
    put(project / "docs" / "c.md", "only named in code")
    put(home / ".claude" / "own.md", "third")

    found = memory_files.read(project, {"HOME": str(home)})

    assert ["MEMORY.md", "a.md", "own.md"] == [name for name, _, _ in names(found)]
    assert 5 == found.refused


def test_depth_size_and_number_are_bounded(home: Path, tmp_path: Path) -> None:
    """A chain ends after five imports, a file after 200 lines."""
    project = tmp_path / "work" / "app"
    put(project / "MEMORY.md", "\n".join(["@f0.md", *map(str, range(500))]))
    for number in range(20):
        put(project / f"f{number}.md", f"@f{number + 1}.md")

    found = memory_files.read(project, {"HOME": str(home)})

    assert 1 + memory_files.MAX_IMPORT_DEPTH == len(found.files)
    assert memory_files.MAX_LINES == len(found.files[0].text.splitlines())


def test_a_file_with_a_secret_is_withheld_whole(home: Path, tmp_path: Path) -> None:
    """Its name is told, and nothing of it; also when the secret stands beyond the lines that would be shown."""
    project = tmp_path / "work" / "app"
    put(project / "MEMORY.md", "fine\n" * 300 + f"aws key {SECRET}\n")

    found = memory_files.read(project, {"HOME": str(home)})

    assert ((), ("MEMORY.md",)) == (found.files, found.withheld)


def test_notes_of_the_vault_are_left_to_the_search(home: Path, tmp_path: Path) -> None:
    """A memory file inside the vault is indexed as a note, so it is not handed over twice."""
    project = tmp_path / "work" / "app"
    put(project / "MEMORY.md", "a note")

    assert [] == names(memory_files.read(project, {"HOME": str(home)}, vaults=[project]))


def test_a_pipe_in_a_memory_files_place_is_not_waited_for(home: Path, tmp_path: Path) -> None:
    """A hook must not hang on a file that never ends."""
    os.mkfifo(tmp_path / "work" / "app" / "MEMORY.md")

    assert [] == names(memory_files.read(tmp_path / "work" / "app", {"HOME": str(home)}))
