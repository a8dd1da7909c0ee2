"""A git repository of our own making: the demo's example vault.

Belongs here: writing and committing in a folder that this program made. Does not: a user's vault, which is only
ever read, by ``git``.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Final

from vault_memory.errors import VaultError

if TYPE_CHECKING:
    from pathlib import Path

_TIMEOUT_SECONDS: Final = 60
_PERSON: Final = {"NAME": "vault-memory demo", "EMAIL": "demo@example.invalid"}


class OwnRepository:
    """A work tree that nobody else uses.

    Attributes:
        path: Its top folder.
    """

    def __init__(self, path: Path) -> None:
        """Make the folder and the repository in it.

        Raises:
            VaultError: git is missing or refused.
        """
        self.path = path
        path.mkdir(parents=True)
        self._git("init", "--quiet", "--initial-branch=main")

    def write(self, name: str, content: bytes) -> None:
        """Write a file, with its folders."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    def rename(self, old: str, new: str) -> None:
        """Move a note."""
        target = self.path / new
        target.parent.mkdir(parents=True, exist_ok=True)
        (self.path / old).rename(target)

    def delete(self, name: str) -> None:
        """Delete a note."""
        (self.path / name).unlink()

    def commit(self, subject: str) -> None:
        """Commit everything as it is in the folder.

        Raises:
            VaultError: git refused.
        """
        self._git("add", "--all")
        self._git("commit", "--quiet", "--no-verify", f"--message={subject}")

    def _git(self, *arguments: str) -> None:
        people = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in _PERSON.items()}
        try:
            done = subprocess.run(
                ["git", "-c", "commit.gpgSign=false", *arguments],
                cwd=self.path,
                env={
                    "PATH": os.environ.get("PATH", os.defpath),
                    "LC_ALL": "C.UTF-8",
                    "HOME": "/nonexistent",
                    "GIT_CONFIG_NOSYSTEM": "1",
                    "GIT_CONFIG_GLOBAL": os.devnull,
                    **people,
                },
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_SECONDS,
                check=False,
            )
        except FileNotFoundError:
            raise VaultError("git is not installed, or not on PATH") from None
        except subprocess.TimeoutExpired:
            raise VaultError(f"git did not answer for {_TIMEOUT_SECONDS} s") from None
        if done.returncode != 0:
            raise VaultError(f"git {arguments[0]} failed in {self.path} (exit status {done.returncode})")
