"""``vault-memory demo``: the whole walk on an example vault, in a folder of its own.

Belongs here: the story that the demo tells, and its clean-up. Does not: anything that only the demo could do; every
step is what the real commands call.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import signal
import tempfile
import threading
import unicodedata
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vault_memory import settings as settings_module
from vault_memory.adapters import server
from vault_memory.adapters.own_repository import OwnRepository
from vault_memory.commands.status import status
from vault_memory.commands.sync import sync
from vault_memory.errors import ConfigError, VaultMemoryError
from vault_memory.notes.model import NoteStatus
from vault_memory.notes.tokens import tokenize
from vault_memory.query.context import render
from vault_memory.query.search import MAX_K, search

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from importlib.resources.abc import Traversable
    from types import FrameType

    from vault_memory.commands.sync import SyncResult
    from vault_memory.query.search import Hit
    from vault_memory.settings import Settings

_EXAMPLE: Final = "example"
_COLUMNS: Final = 100
_COUNTED: Final = ("added", "changed", "renamed", "deleted", "quarantined")
_HEADINGS: Final = (*_COUNTED, "unchanged", "embedded", "reused", "ms/note")
_SUBJECT_COLUMNS: Final = 22
_CONTEXT_CHARACTERS: Final = 1_200
_CLEANING_ATTEMPTS: Final = 3
# A terminal that closes, and a polite kill: the demo cleans up as after Ctrl-C.
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
# Nobody keeps what the demo writes, and waiting for the disk was a third of a fresh server's start.
_THROWN_AWAY: Final = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}

EDITED: Final = "01_Projects/memory-search/latency budget.md"
EDIT: Final = ("within 150 ms", "within 120 ms")
RENAMED: Final = ("02_Areas/工程/数据库 备份.md", "02_Areas/工程/PostgreSQL 备份与恢复.md")
DELETED: Final = "01_Projects/garden shed/materials.md"
LEAKED: Final = "02_Areas/工程/deploy checklist.md"
# Made when it is needed, so that no source or package holds what a scanner would take for a token.
FAKE_TOKEN: Final = "_".join(("ghp", hashlib.sha256(b"vault-memory demo").hexdigest()[:36]))
KEPT_OUT: Final = {
    "04_Archive/2024 阳台番茄.md": "its folder is excluded",
    "02_Areas/健康/体检 2026.md": "its front matter says 'private: true'",
    "02_Areas/家庭/礼物清单.md": "a pattern in .vaultmemoryignore",
    LEAKED: "quarantined: the scan found a token",
}


@dataclass(frozen=True, slots=True)
class Question:
    """A question about the example vault and the notes that answer it.

    Attributes:
        sources: Any of them answers it.
        lang: ``en``, ``zh`` or ``mixed``.
        kind: What is asked for: ``fact``, ``decision``, ``procedure``, ``cause``, ``table`` or ``diary``.
    """

    id: str
    query: str
    sources: tuple[str, ...]
    lang: str
    kind: str


def example_files() -> Mapping[str, bytes]:
    """Return the files of the example vault, by vault-relative path."""
    root = resources.files("vault_memory") / _EXAMPLE / "vault"
    # Bytes: reading as text would turn the note with Windows line ends into another one.
    return {name: file.read_bytes() for name, file in sorted(_walk(root, ""))}


def example_questions() -> list[Question]:
    """Return the questions that belong to the example vault, each with the notes that answer it."""
    text = (resources.files("vault_memory") / _EXAMPLE / "questions.jsonl").read_text(encoding="utf-8")
    records = [json.loads(line) for line in text.splitlines() if line.strip()]
    return [
        Question(record["id"], record["query"], tuple(record["sources"]), record["lang"], record["kind"])
        for record in records
    ]


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
        keep: Leave the vault, the database and Dagster's history, and say how to go on with them. A demo that
            breaks off leaves nothing all the same.
        write: Takes the lines to show.

    Raises:
        VaultMemoryError: A step failed; what was made is cleaned up.
    """
    with _endings_as_interrupts(), _stage(keep=keep) as settings:
        _play(settings, write)
        if keep:
            _tell_how_to_go_on(settings, write)


# --- the stage: a folder, a database server, and nothing of the caller's ------------------------------------------


@contextmanager
def _stage(*, keep: bool) -> Generator[Settings]:
    try:
        folder = Path(tempfile.mkdtemp(prefix="vault-memory-demo-"))
    except OSError as error:
        raise ConfigError(f"no folder for temporary files ({error.strerror}): set TMPDIR") from None
    # Root's server runs as another user, who has to pass; nobody can list the folder.
    folder.chmod(0o711 if os.geteuid() == 0 else 0o700)
    settings = _settings(folder)
    try:
        # A server in the middle of its start cannot be found yet, so that an interrupt has to wait for it.
        with _interrupts_held():
            server.ensure_running(settings.home, settings.pg_user, settings={} if keep else _THROWN_AWAY)
        yield settings
    except BaseException:
        keep = False
        raise
    finally:
        with _interrupts_held():
            if keep:
                server.stop(settings.home, settings.pg_user)
            else:
                _clear(settings, folder)


def _settings(folder: Path) -> Settings:
    """Return settings that take nothing from the caller's environment or configuration."""
    base = settings_module.load({"HOME": str(folder)})
    return replace(
        base,
        vault=folder / "vault",
        home=folder / "home",
        hmac_key_file=folder / "hmac.key",
        embedding=replace(base.embedding, embedder="hashing"),
    )


def _clear(settings: Settings, folder: Path) -> None:
    try:
        for attempt in range(1, _CLEANING_ATTEMPTS + 1):
            try:
                server.remove(settings.home, settings.pg_user)
                break
            except VaultMemoryError:  # a program that was interrupted may have written its last file just now
                if attempt == _CLEANING_ATTEMPTS:
                    raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _endings_as_interrupts() -> Generator[None]:
    """Let SIGTERM and SIGHUP end the demo as Ctrl-C does: through the clean-up."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are handled elsewhere
        return
    previous = {number: signal.getsignal(number) for number in _ENDING}
    for number, handler in previous.items():
        if handler is not signal.SIG_IGN:  # nohup
            signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@contextmanager
def _interrupts_held() -> Generator[None]:
    """Put Ctrl-C and its likes off to the end of the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        caught.append(number)

    previous = {number: signal.signal(number, note) for number in (signal.SIGINT, *_ENDING)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        if caught and previous[signal.Signals(caught[0])] is not signal.SIG_IGN:
            raise KeyboardInterrupt


# --- the story ----------------------------------------------------------------------------------------------------


def _play(settings: Settings, write: Callable[[str], None]) -> None:
    repository = OwnRepository(settings.require_vault())
    files = example_files()
    notes = sum(name.endswith(".md") for name in files)
    write(f"An example vault of {notes} notes in Chinese and English, in a git repository of its own.")
    write("The embedder is hashing (no key, no network): it knows spellings, not meanings.\n")
    write(_line("commit", _HEADINGS))
    for subject, change in _story(repository, files):
        change()
        repository.commit(subject)
        write(_row(subject, _synced(settings)))
    write(_row("(no new commit)", _synced(settings)))
    write(f"\n'embedded' and 'reused' count texts; 'ms/note' includes starting the scanner.\n{_totals(settings)}\n")
    for question in shown_questions():
        _answer(settings, question, write)
    _show_kept_out(settings, files, write)
    write("What an agent is handed for the first question:\n")
    write(render(search(shown_questions()[0].query, k=2, settings=settings), max_chars=_CONTEXT_CHARACTERS))


def _story(repository: OwnRepository, files: Mapping[str, bytes]) -> Iterator[tuple[str, Callable[[], None]]]:
    def first() -> None:
        for name, content in files.items():
            repository.write(name, content)

    def edit() -> None:
        repository.write(EDITED, files[EDITED].decode().replace(*EDIT).encode())

    def leak() -> None:
        repository.write(LEAKED, files[LEAKED] + f"\nToken for the release job: {FAKE_TOKEN}\n".encode())

    yield "the vault as it is", first
    yield "change one line", edit
    yield "rename a note", lambda: repository.rename(*RENAMED)
    yield "delete a note", lambda: repository.delete(DELETED)
    yield "paste a (fake) token", leak


def _synced(settings: Settings) -> SyncResult:
    result = sync(settings)
    if result.exit_status:
        failures = [f"{source}: {reason}" for source, reason in sorted(result.failures.items())]
        raise VaultMemoryError("; ".join(filter(None, [result.problem, result.blocked, *failures])))
    return result


def _line(subject: str, cells: tuple[object, ...]) -> str:
    widths = [len(heading) + 1 for heading in _HEADINGS]
    return f"{subject:<{_SUBJECT_COLUMNS}}" + "".join(
        f"{cell!s:>{width}}" for cell, width in zip(cells, widths, strict=True)
    )


def _row(subject: str, result: SyncResult) -> str:
    counts = result.counts
    times = [outcome.milliseconds for outcome in result.outcomes.values()]
    mean = f"{sum(times) / len(times):.1f}" if times else "-"
    numbers = [*(counts[name] for name in _COUNTED), result.unchanged, result.texts_embedded, result.texts_reused]
    return _line(subject, (*numbers, mean))


def _totals(settings: Settings) -> str:
    found = status(settings)
    wanted = (NoteStatus.INDEXED, NoteStatus.EXCLUDED, NoteStatus.QUARANTINED)
    parts = ", ".join(f"{found.number(kind)} {kind.value}" for kind in wanted)
    return f"Of {found.tracked} notes now: {parts}."


def shown_questions() -> list[Question]:
    """Return the three questions that the demo asks: the first of each language."""
    questions = example_questions()
    return [next(question for question in questions if question.lang == lang) for lang in ("en", "zh", "mixed")]


def _answer(settings: Settings, question: Question, write: Callable[[str], None]) -> None:
    write(f"? {question.query}")
    for hit in search(question.query, k=2, settings=settings).items:
        write(f"  {hit.citation}")
        write(f"      {_fitted(_best_line(hit, question.query), _COLUMNS - 6)}")
    write("")


def _best_line(hit: Hit, query: str) -> str:
    """Return the line of a hit that has most in common with the question; a heading only where there is no other."""
    wanted = frozenset(tokenize(query))
    lines = [" ".join(line.split()) for line in hit.text.splitlines() if line.strip()]
    return max(
        [line for line in lines if not line.startswith("#")] or lines,
        key=lambda line: len(wanted.intersection(tokenize(line))),
        default="",
    )


def _fitted(text: str, columns: int) -> str:
    """Cut a text to what a terminal shows in so many columns; Chinese characters take two."""
    width = shown = 0
    for position, character in enumerate(text):
        width += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if width > columns:
            return text[:shown] + "…"
        if width < columns:
            shown = position + 1
    return text


def _show_kept_out(settings: Settings, files: Mapping[str, bytes], write: Callable[[str], None]) -> None:
    write("Kept out, though asked for in their own words:")
    for source, why in KEPT_OUT.items():
        hits = search(files[source].decode(), k=MAX_K, settings=settings).items
        write(f"  {sum(hit.source == source for hit in hits)} hits  {source}: {why}")
    write("")


def _tell_how_to_go_on(settings: Settings, write: Callable[[str], None]) -> None:
    home, key = settings.home, settings.hmac_key_file
    info = server.locate(home, settings.pg_user)
    places = [home.parent]
    for place in (info.directory, info.socket_directory):  # both may have had to be put elsewhere
        if not any(place.is_relative_to(other) for other in places):
            places.append(place)
    write("Kept. To go on, in a shell:\n")
    # The caller's own settings would come first otherwise.
    write("  unset VAULT_MEMORY_DSN VAULT_MEMORY_QUERY_DSN VAULT_MEMORY_DAGSTER_DSN")
    write(f"  export VAULT_MEMORY_CONFIG=/dev/null VAULT_MEMORY_EMBEDDER=hashing VAULT_MEMORY_HOME={_quoted(home)}")
    write(f"  export VAULT_MEMORY_VAULT={_quoted(settings.require_vault())} VAULT_MEMORY_HMAC_KEY_FILE={_quoted(key)}")
    write("  vault-memory status")
    write(f"  vault-memory query {shlex.quote(shown_questions()[1].query)}")
    write(f"\nTo remove it: vault-memory down; rm -rf {shlex.join(map(str, places))}")


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
