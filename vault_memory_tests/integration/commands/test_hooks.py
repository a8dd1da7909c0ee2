"""Our lines in git's hooks: beside those of others, and out again without a trace."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from vault_memory.commands import hooks
from vault_memory.errors import VaultError
from vault_memory.settings import Settings, load
from vault_memory_tests.fixtures.vault import MakeVault, VaultRepo


@pytest.fixture
def vault(make_vault: MakeVault) -> VaultRepo:
    """A vault with one commit."""
    return make_vault(files={"01_Projects/a.md": "# A\n"})


@pytest.fixture
def settings(vault: VaultRepo, tmp_path: Path) -> Settings:
    """Settings of that vault."""
    return load({
        "HOME": str(tmp_path / "user"),
        "VAULT_MEMORY_VAULT": str(vault.path),
        "VAULT_MEMORY_HOME": str(tmp_path / "it's home"),
    })  # fmt: skip


@pytest.fixture
def idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let hooks start a program that does nothing: the real one would make a database, and leave its server running."""
    monkeypatch.setattr(sys, "executable", str(put(tmp_path / "python", "#!/bin/sh\nexit 0\n")))


def folder(vault: VaultRepo) -> Path:
    """Return where the hooks of a plain repository lie."""
    return vault.path / ".git" / "hooks"


def put(path: Path, text: str, mode: int = 0o755) -> Path:
    """Write a hook."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a hook as git does, with its variables."""
    environment = {"PATH": os.environ["PATH"], "GIT_DIR": ".git", "HOME": "/nonexistent"}
    return subprocess.run([path, *arguments], env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_install_and_uninstall_leave_no_trace(vault: VaultRepo, settings: Settings) -> None:
    """Four hooks come, run and go; a second install changes nothing."""
    before = sorted(path.name for path in folder(vault).glob("*")) if folder(vault).exists() else []

    first = hooks.install(settings).hooks
    second = hooks.install(settings).hooks

    assert [("installed", None)] * 4 == [(hook.action, hook.problem) for hook in first]
    assert ["unchanged"] * 4 == [hook.action for hook in second]
    assert [0o755] * 4 == [stat.S_IMODE(hook.path.stat().st_mode) for hook in first]
    assert ["removed"] * 4 == [hook.action for hook in hooks.uninstall(settings)]
    assert before == sorted(path.name for path in folder(vault).glob("*"))


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/sh\necho mine\nexit 3\n",
        "#!/usr/bin/env bash\nset -euo pipefail\necho mine\nexit 3",
        "#!/bin/sh\n# >>> somebody else >>>\necho mine; exit 3\n",
    ],
)
@pytest.mark.usefixtures("idle")
def test_a_hook_that_is_there_keeps_its_ways(vault: VaultRepo, settings: Settings, text: str) -> None:
    """Output, exit status, interpreter and mode stay; ours runs although the hook ends early; its bytes come back."""
    path = put(folder(vault) / "post-commit", text, 0o744)

    hooks.install(settings)
    done = run(path)

    assert ("mine\n", "", 3) == (done.stdout, done.stderr, done.returncode)
    assert text.partition("\n")[0] == path.read_text().partition("\n")[0]
    assert 0o744 == stat.S_IMODE(path.stat().st_mode)
    assert "vault_memory.commands.nudge" in path.read_text()
    hooks.uninstall(settings)
    assert text == path.read_text()


def test_the_line_finds_its_way_without_the_shell(
    vault: VaultRepo, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths with quotes and blanks arrive, and the nudge gets no part of the hook's input or output."""
    told = tmp_path / "told"
    fake = put(
        tmp_path / "py thon", f'#!/bin/sh\necho "$VAULT_MEMORY_HOME|$*" > "{told}.new"; mv "{told}.new" "{told}"\n'
    )
    monkeypatch.setattr(sys, "executable", str(fake))
    hooks.install(settings)

    done = run(folder(vault) / "post-commit")

    for _ in range(300):
        if told.exists():
            break
        subprocess.run(["sleep", "0.1"], check=True)
    assert f"{settings.home}|-P -m vault_memory.commands.nudge\n" == told.read_text()
    assert ("", "", 0) == (done.stdout, done.stderr, done.returncode)


def test_checking_out_files_is_no_news(vault: VaultRepo, settings: Settings) -> None:
    """post-checkout looks at its third argument: 0 means single files."""
    hooks.install(settings)

    text = (folder(vault) / "post-checkout").read_text()

    assert 'if [ "${3-1}" = 1 ]' in text
    assert 0 == run(folder(vault) / "post-checkout", "a", "b", "0").returncode


@pytest.mark.parametrize("text", ["#!/usr/bin/env python3\nprint(1)\n", "\x7fELF\0\0"])
def test_hooks_that_are_no_shell_scripts_are_left_alone(vault: VaultRepo, settings: Settings, text: str) -> None:
    """Their bytes stay, and the user is told what to call."""
    path = put(folder(vault) / "post-merge", text)

    found = {hook.name: hook for hook in hooks.install(settings).hooks}

    assert "left alone" == found["post-merge"].action
    assert "vault_memory.commands.nudge" in (found["post-merge"].problem or "")
    assert text == path.read_text()


def test_a_hook_that_git_does_not_run_stays_off(vault: VaultRepo, settings: Settings) -> None:
    """A file without the executable bit was switched off by its owner; it is not switched on."""
    path = put(folder(vault) / "post-commit", "#!/bin/sh\nrm -rf /nonexistent\n", 0o644)

    found = {hook.name: hook for hook in hooks.install(settings).hooks}

    assert "not executable" in (found["post-commit"].problem or "")
    assert 0o644 == stat.S_IMODE(path.stat().st_mode)


def test_hooks_path_outside_the_repository_is_refused(vault: VaultRepo, settings: Settings, tmp_path: Path) -> None:
    """``core.hooksPath`` came with the vault: it leads nowhere else unless the user insists."""
    elsewhere = tmp_path / "all hooks"
    for place, words in ((str(elsewhere), "outside this repository"), (".githooks", "in the work tree")):
        vault.git("config", "core.hooksPath", place)
        with pytest.raises(VaultError, match=words):
            hooks.install(settings)
    assert not elsewhere.exists()

    vault.git("config", "core.hooksPath", ".githooks")
    found = hooks.install(settings, force=True).hooks

    assert {vault.path / ".githooks" / name for name in hooks.HOOKS} == {hook.path for hook in found}


def test_hooks_that_are_switched_off_are_named(vault: VaultRepo, settings: Settings) -> None:
    """A path that is no folder means that git runs no hook at all."""
    vault.git("config", "core.hooksPath", os.devnull)

    with pytest.raises(VaultError, match="switched off"):
        hooks.install(settings, force=True)


def test_asking_for_the_folder_runs_nothing(vault: VaultRepo, settings: Settings, tmp_path: Path) -> None:
    """The one call that may read ``core.hooksPath`` still runs no command that the vault's configuration names."""
    sentinel = tmp_path / "ran"
    for name in ("core.fsmonitor", "diff.external", "core.sshCommand", "core.pager", "alias.rev-parse"):
        vault.git("config", name, f"!touch {sentinel}" if name.startswith("alias") else f"touch {sentinel}")

    hooks.install(settings)

    assert not sentinel.exists()
