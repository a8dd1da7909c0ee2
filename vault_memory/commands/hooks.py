"""``vault-memory install-hook`` and ``uninstall-hook``: git's hooks that nudge a sync.

Belongs here: our lines in the hook files of the vault's repository. Does not: what a nudge does (``nudge``).

This is the one thing that is ever written inside the repository, and only on the user's command. In a hook that is
there already our lines go right below its first line, not at its end: a hook may end early, and its own last command
decides its exit status. Ours start a process in the background and read nothing, so they neither fail nor wait.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from vault_memory.adapters.git import GitVault
from vault_memory.commands.launching import launch, refuse_without_database
from vault_memory.errors import VaultError

if TYPE_CHECKING:
    from vault_memory.commands.launching import Launch
    from vault_memory.settings import Settings

HOOKS: Final = ("post-commit", "post-merge", "post-rewrite", "post-checkout")
Action = Literal["installed", "updated", "unchanged", "removed", "absent", "left alone"]

_BEGIN: Final = b"# >>> vault-memory: brings memory to HEAD, in the background (vault-memory uninstall-hook) >>>\n"
_END: Final = b"# <<< vault-memory <<<\n"
_BLOCK: Final = re.compile(rb"^# >>> vault-memory\b.*?^# <<< vault-memory <<<\n?", re.DOTALL | re.MULTILINE)
_MADE_HERE: Final = b"# This file was made by vault-memory.\n"
_SHELLS: Final = frozenset({b"sh", b"bash", b"dash", b"ash", b"ksh", b"zsh"})


@dataclass(frozen=True, slots=True)
class HookResult:
    """What became of one hook.

    Attributes:
        name: The hook.
        path: Its file.
        action: What was done.
        problem: Why it will not run, or was left alone; None if all is well.
    """

    name: str
    path: Path
    action: Action
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Installed:
    """What ``install`` did.

    Attributes:
        hooks: One result a hook.
        missing: Secret settings that the hooks will not see, because only this shell has them.
    """

    hooks: tuple[HookResult, ...]
    missing: tuple[str, ...]


def install(settings: Settings, *, force: bool = False) -> Installed:
    """Write our lines into the repository's hooks; again is safe.

    Args:
        settings: Whose vault.
        force: Also where the hooks' folder lies outside the repository's own, or a hook is a link to elsewhere.

    Raises:
        VaultError: The folder is not one that may be written to without ``force``, or cannot be written to.
        ConfigError: The hooks would not find the database.
    """
    folder = hooks_folder(settings, force=force)
    started = launch(settings, "vault_memory.commands.nudge")
    refuse_without_database(started.missing)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        hooks = tuple(_install_one(folder / name, started, force=force) for name in HOOKS)
    except OSError as error:
        raise VaultError(f"{folder}: the hooks cannot be written ({type(error).__name__})") from None
    return Installed(hooks, started.missing)


def uninstall(settings: Settings, *, force: bool = False) -> tuple[HookResult, ...]:
    """Remove our lines, and the files that hold nothing else and were made by us.

    Raises:
        VaultError: The folder is not one that may be written to without ``force``, or cannot be written to.
    """
    folder = hooks_folder(settings, force=force)
    try:
        return tuple(_remove_one(folder / name) for name in HOOKS)
    except OSError as error:
        raise VaultError(f"{folder}: the hooks cannot be changed ({type(error).__name__})") from None


def hooks_folder(settings: Settings, *, force: bool) -> Path:
    """Return the folder that git runs hooks from, if it may be written to.

    ``core.hooksPath`` is configuration that came with the vault, or that holds for every repository of the user. So
    it is followed into the repository's own folder alone, unless the user insists.

    Raises:
        VaultError: It lies elsewhere, or hooks are switched off.
    """
    vault = GitVault.open(settings.require_vault())
    folder = vault.hooks_directory(Path.home())
    if (folder.exists() and not folder.is_dir()) or folder == Path(os.devnull):
        raise VaultError(f"hooks are switched off here: core.hooksPath is {folder}, which is not a folder")
    if not force and not folder.resolve().is_relative_to(vault.common_directory()):
        where = "in the work tree" if folder.is_relative_to(vault.repository) else "outside this repository"
        raise VaultError(f"core.hooksPath is {folder}, {where}: to write there all the same, add --force")
    return folder


def _install_one(path: Path, started: Launch, *, force: bool) -> HookResult:
    block = _block(path.name, started)
    if path.is_symlink() and not force:
        return HookResult(path.name, path, "left alone", f"a link to {path.readlink()}: to write there, add --force")
    if not path.exists():
        _write(path, b"#!/bin/sh\n" + _MADE_HERE + block, mode=0o755)
        return HookResult(path.name, path, "installed")
    old = path.read_bytes()
    problem = _unusable(old)
    if problem:
        return HookResult(path.name, path, "left alone", f"{problem}: call from it: {shlex.join(started.command)}")
    first, rest = _first_line(_BLOCK.sub(b"", old, count=1))
    new = first + (_MADE_HERE if rest.startswith(_MADE_HERE) else b"") + block + rest.removeprefix(_MADE_HERE)
    mode = stat.S_IMODE(path.stat().st_mode)
    problem = None if mode & 0o111 else f"it is not executable, so git does not run it: chmod +x {path}"
    if new == old:
        return HookResult(path.name, path, "unchanged", problem)
    _write(path, new, mode=mode)
    return HookResult(path.name, path, "updated" if _BLOCK.search(old) else "installed", problem)


def _remove_one(path: Path) -> HookResult:
    if not path.is_file():
        return HookResult(path.name, path, "absent")
    old = path.read_bytes()
    new = _BLOCK.sub(b"", old)
    if new == old:
        return HookResult(path.name, path, "absent")
    if new == b"#!/bin/sh\n" + _MADE_HERE:
        path.unlink()
    else:
        _write(path, new.replace(_MADE_HERE, b"", 1), mode=stat.S_IMODE(path.stat().st_mode))
    return HookResult(path.name, path, "removed")


def _block(name: str, started: Launch) -> bytes:
    variables = " ".join(f"{key}={shlex.quote(value)}" for key, value in sorted(started.environment.items()))
    # One fork in the background: nothing of the hook waits for it, and its exit status is nobody's.
    # It waits a moment, so that its start does not compete with the commit that is just ending.
    line = f"( sleep 1; {variables} exec {shlex.join(started.command)} ) </dev/null >/dev/null 2>&1 &"
    if name == "post-checkout":
        # The third argument is 0 where single files were checked out, which does not move HEAD.
        line = f'if [ "${{3-1}}" = 1 ]; then {line} fi'
    return _BEGIN + line.encode() + b"\n" + _END


def _unusable(content: bytes) -> str | None:
    """Say why shell lines cannot be put into a hook; None if they can."""
    if b"\0" in content:
        return "a program, not a script"
    if not content.startswith(b"#!"):
        return None  # git hands such a script to sh
    words = content.partition(b"\n")[0][2:].split()
    programs = [word.rpartition(b"/")[2] for word in words if not word.startswith(b"-")]
    if programs[:1] == [b"env"]:
        programs = programs[1:]
    if programs and programs[0] in _SHELLS:
        return None
    return f"written for {(programs or [b'nothing'])[0].decode('utf-8', 'replace')}, not for a shell"


def _first_line(content: bytes) -> tuple[bytes, bytes]:
    """Split off the line that names the interpreter."""
    if not content.startswith(b"#!"):
        return b"", content
    line, _, rest = content.partition(b"\n")
    return line + b"\n", rest


def _write(path: Path, content: bytes, *, mode: int) -> None:
    """Replace a file at once, so that git never runs half a hook."""
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.vault-memory.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        temporary.chmod(mode)
        temporary.replace(target)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
