"""``vault-memory demo``: the whole walk on an example vault, in a folder of its own.

Belongs here: the story that the demo tells, and its clean-up. Does not: anything that only the demo could do; every
step is what the real commands call.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vault_memory import settings as settings_module
from vault_memory.adapters import server
from vault_memory.adapters.own_repository import OwnRepository
from vault_memory.commands.sync import sync
from vault_memory.query import search
from vault_memory.query.context import render

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from importlib.resources.abc import Traversable

    from vault_memory.commands.sync import SyncResult
    from vault_memory.settings import Settings

_EXAMPLE: Final = "example"
_SHOWN_CHARACTERS: Final = 96
_COLUMNS: Final = ("added", "changed", "renamed", "deleted", "quarantined")

EDITED: Final = "01_Projects/memory-search/latency budget.md"
RENAMED: Final = ("02_Areas/工程/数据库 备份.md", "02_Areas/工程/PostgreSQL 备份与恢复.md")
DELETED: Final = "01_Projects/garden shed/materials.md"
LEAKED: Final = "02_Areas/工程/deploy checklist.md"
# Joined here so that the source holds nothing that a scanner of source code would take for a token.
FAKE_TOKEN: Final = "ghp" + "_" + "d3m0" * 9


@dataclass(frozen=True, slots=True)
class Question:
    """A question about the example vault and the note that answers it."""

    query: str
    sources: tuple[str, ...]
    lang: str


def example_files() -> Mapping[str, str]:
    """Return the notes of the example vault, by vault-relative path."""
    root = resources.files("vault_memory") / _EXAMPLE / "vault"
    return {name: file.read_text(encoding="utf-8") for name, file in sorted(_walk(root, ""))}


def example_questions() -> list[Question]:
    """Return the questions that belong to the example vault, each with the notes that answer it."""
    text = (resources.files("vault_memory") / _EXAMPLE / "questions.jsonl").read_text(encoding="utf-8")
    records = [json.loads(line) for line in text.splitlines() if line.strip()]
    return [Question(record["query"], tuple(record["sources"]), record["lang"]) for record in records]


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for item in folder.iterdir():
        name = f"{prefix}{item.name}"
        if item.is_dir():
            yield from _walk(item, f"{name}/")
        else:
            yield name, item


def run(*, keep: bool, write: Callable[[str], None]) -> None:
    """Play the demo.

    Args:
        keep: Leave the vault, the database and Dagster's history, and say where they are.
        write: Takes the lines to show.

    Raises:
        VaultMemoryError: A step failed; what was made is cleaned up all the same.
    """
    folder = Path(tempfile.mkdtemp(prefix="vault-memory-demo-"))
    settings = _settings(folder)
    try:
        _play(settings, write)
        if keep:
            _tell_where(settings, write)
    finally:
        if keep:
            server.stop(settings.home, settings.pg_user)
        else:
            server.remove(settings.home, settings.pg_user)
            shutil.rmtree(folder, ignore_errors=True)


def _settings(folder: Path) -> Settings:
    base = settings_module.load({"HOME": str(folder)})
    return replace(
        base,
        vault=folder / "vault",
        home=folder / "home",
        hmac_key_file=folder / "hmac.key",
        embedding=replace(base.embedding, embedder="hashing"),
    )


def _play(settings: Settings, write: Callable[[str], None]) -> None:
    repository = OwnRepository(settings.require_vault())
    files = example_files()
    write(f"An example vault of {len(files)} notes in Chinese and English, embedded by hashing (no key, no network).\n")
    write(f"{'commit':<34}" + "".join(f"{name:>12}" for name in (*_COLUMNS, "unchanged", "texts", "reused", "ms/note")))
    for subject, change in _story(repository, files):
        change()
        repository.commit(subject)
        write(_row(subject, sync(settings)))
    write(_row("(no new commit)", sync(settings)))
    write("")
    for question in _shown_questions():
        _answer(settings, question, write)
    _show_leak(settings, write)
    write("What an agent is handed, for the first question:\n")
    write(render(search(_shown_questions()[0].query, k=2, settings=settings), max_chars=1200))


def _story(repository: OwnRepository, files: Mapping[str, str]) -> Iterator[tuple[str, Callable[[], None]]]:
    def first() -> None:
        for name, text in files.items():
            repository.write(name, text)

    def edit() -> None:
        text = files[EDITED].replace("150 ms", "120 ms", 1)
        repository.write(EDITED, text)

    def leak() -> None:
        repository.write(LEAKED, f"{files[LEAKED]}\nToken for the release job: {FAKE_TOKEN}\n")

    yield "the vault as it is", first
    yield "edit one line", edit
    yield "rename a note", lambda: repository.rename(*RENAMED)
    yield "delete a note", lambda: repository.delete(DELETED)
    yield "paste a (fake) token into a note", leak


def _row(subject: str, result: SyncResult) -> str:
    counts = result.counts
    times = [outcome.milliseconds for outcome in result.outcomes.values()]
    mean = f"{sum(times) / len(times):.1f}" if times else "-"
    numbers = [*(counts[name] for name in _COLUMNS), result.unchanged, result.texts_embedded, result.texts_reused]
    return f"{subject:<34}" + "".join(f"{number:>12}" for number in numbers) + f"{mean:>12}"


def _shown_questions() -> list[Question]:
    """Pick three questions: the first in each language, and one more."""
    questions = example_questions()
    english = next(question for question in questions if question.lang == "en")
    chinese = next(question for question in questions if question.lang == "zh")
    rest = next(question for question in questions if question not in (english, chinese))
    return [english, chinese, rest]


def _answer(settings: Settings, question: Question, write: Callable[[str], None]) -> None:
    write(f"? {question.query}")
    for hit in search(question.query, k=2, settings=settings).items:
        text = " ".join(hit.text.split())
        shown = text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
        write(f"  {hit.source}:{hit.start_line}-{hit.end_line}  {shown}")
    write("")


def _show_leak(settings: Settings, write: Callable[[str], None]) -> None:
    found = [
        hit
        for hit in search("deploy checklist release job token", k=10, settings=settings).items
        if hit.source == LEAKED
    ]
    write(f"The note with the token: {len(found)} hits. It is quarantined, and was not sent, stored or logged.\n")


def _tell_where(settings: Settings, write: Callable[[str], None]) -> None:
    write("")
    write(f"Kept: VAULT_MEMORY_VAULT={settings.vault} VAULT_MEMORY_HOME={settings.home}")
    write(f"      VAULT_MEMORY_HMAC_KEY_FILE={settings.hmac_key_file} VAULT_MEMORY_EMBEDDER=hashing")
