"""The rules in force at a commit: the settings, and what the vault's ``.vaultmemoryignore`` adds.

Belongs here: reading that file and saying what is wrong with it. Does not: what a rule means
(``vault_memory.notes.exclusion``), or what a sync does about it (``sync``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vault_memory.errors import IgnoreFileError, Retryable, ScanError
from vault_memory.notes.exclusion import Ruleset, compile_ruleset
from vault_memory.notes.patterns import read_ignore_file

if TYPE_CHECKING:
    from vault_memory.ingest.source import Source
    from vault_memory.settings import ScanSettings


class HeldByRules(ScanError, Retryable):
    """A note is clean, but a rule that cannot be read may have meant it: it waits until the rule is mended."""

    def __init__(self, rules: Ruleset) -> None:
        super().__init__(f"waits until a rule that cannot be read is mended: {'; '.join(map(str, rules.holding))}")


def rules_at(vault: Source, commit: str | None, scan: ScanSettings) -> Ruleset:
    """Compile the rules of a commit; what is wrong with them stands in their ``problems``.

    Raises:
        ConfigError: A root is malformed.
        CommitGoneError: The commit is not in the repository.
    """
    try:
        data = vault.ignore_file(commit) if commit else None
    except IgnoreFileError as error:
        return compile_ruleset(scan, None, str(error))
    return compile_ruleset(scan, None if data is None else read_ignore_file(data))


def problem_lines(rules: Ruleset) -> list[str]:
    """Say of each rule that is not as its author meant it where it stands, what is wrong and how to mend it."""
    found = [f"{problem}: mend that line and commit" for problem in rules.problems]
    if rules.holding:
        found.append("until that is done, new and changed notes are not indexed; what the other rules hide is hidden")
    return found
