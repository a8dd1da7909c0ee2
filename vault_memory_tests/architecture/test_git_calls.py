"""Git is started in one module, so that its environment and flags are in one place."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import vault_memory

PACKAGE = Path(vault_memory.__file__).parent
ADAPTER = PACKAGE / "adapters" / "git.py"
# Writes the repository that `demo` makes for itself; it never sees a user's vault.
OWN_REPOSITORY = PACKAGE / "adapters" / "own_repository.py"
ALLOWED = {ADAPTER, OWN_REPOSITORY}
STARTERS = {"run", "Popen", "call", "check_call", "check_output", "getoutput", "getstatusoutput", "system", "popen"}
PREFIXES = ("exec", "spawn", "posix_spawn", "create_subprocess")
LIBRARIES = {"git", "pygit2", "dulwich"}


def git_calls(source: str) -> Iterator[int]:
    """Yield the lines that start git, or import a library that does."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call() if _starts(node.func) and any(_is_git(argument) for argument in node.args[:2]):
                yield node.lineno
            case ast.List() if _is_git(node):  # an argument list, whoever starts it
                yield node.lineno
            case ast.Import() if any(name.name.partition(".")[0] in LIBRARIES for name in node.names):
                yield node.lineno
            case ast.ImportFrom(module=str(module), level=0) if module.partition(".")[0] in LIBRARIES:
                yield node.lineno
            case _:
                pass


def _starts(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in STARTERS or name.startswith(PREFIXES)


def _is_git(argument: ast.expr) -> bool:
    if isinstance(argument, ast.List | ast.Tuple) and argument.elts:
        return _is_git(argument.elts[0])
    if isinstance(argument, ast.BinOp):
        return _is_git(argument.left)
    if isinstance(argument, ast.JoinedStr) and argument.values:
        return _is_git(argument.values[0])
    if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str | bytes):
        return False
    text = argument.value.decode() if isinstance(argument.value, bytes) else argument.value
    return text == "git" or text.startswith("git ") or text.endswith("/git")


def test_only_the_adapter_starts_git() -> None:
    """No other module of the package spawns git, but for the demo's own repository."""
    found = [
        f"{file.relative_to(PACKAGE)}:{line}"
        for file in sorted(PACKAGE.rglob("*.py"))
        if file not in ALLOWED
        for line in git_calls(file.read_text(encoding="utf-8"))
    ]

    assert [] == found


def test_the_adapter_is_seen() -> None:
    """The scan recognises the adapter's own call, so an empty answer elsewhere means something."""
    assert list(git_calls(ADAPTER.read_text(encoding="utf-8")))


def test_only_the_demo_writes_a_repository() -> None:
    """The module that commits is out of reach of everything that handles a user's vault."""
    importers = {
        file.relative_to(PACKAGE).as_posix()
        for file in PACKAGE.rglob("*.py")
        if re.search(r"^\s*(from|import)\b.*\bown_repository\b", file.read_text(encoding="utf-8"), re.MULTILINE)
    }

    assert {"commands/demo.py"} == importers


@pytest.mark.parametrize(
    "line",
    [
        'subprocess.run(["git", "status"])',
        'subprocess.Popen(("/usr/bin/git", "status"))',
        'subprocess.check_output(["git", *args], cwd=x)',
        'subprocess.run(["git"] + args)',
        'start(["git", "log"])',
        'subprocess.run("git status", shell=True)',
        'run([b"git"])',
        'os.system(f"git log {x}")',
        'os.execvp("git", ["git"])',
        'os.posix_spawn("/usr/bin/git", ["git"], {})',
        'await asyncio.create_subprocess_exec("git", "log")',
        "import git",
        "from pygit2 import Repository",
    ],
)
def test_ways_to_start_git_are_recognised(line: str) -> None:
    """Control: the usual ways to start git are found."""
    source = f"async def f():\n    {line}\n"

    assert {2} == set(git_calls(source))


@pytest.mark.parametrize(
    "line", ['subprocess.run(["gitk"])', 'log("git is missing")', "from vault_memory.adapters import git"]
)
def test_other_lines_are_not(line: str) -> None:
    """Control: messages and other programs are not taken for git."""
    assert [] == list(git_calls(line))
