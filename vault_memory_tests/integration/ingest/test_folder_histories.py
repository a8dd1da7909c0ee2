"""Whatever is done to a plain folder, a sync ends in the store that a rebuild of it would make.

A state machine writes, replaces, renames, swaps, deletes and disguises files (same size and time, links, pipes), before
a sync and in the middle of one, and holds the store against one built from nothing, without what was cached. A rename asks
for no embedding. ``make test`` plays a fixed set of histories; ``VAULT_MEMORY_FUZZ=500`` plays as many other ones.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from vault_memory import settings as settings_module
from vault_memory.adapters import migrations, stat_cache
from vault_memory.adapters.directory import DirectorySource
from vault_memory.adapters.store import Store
from vault_memory.ingest.sync import Synchronizer
from vault_memory.notes.paths import NotePath
from vault_memory.settings import Settings
from vault_memory_tests.fixtures.rebuild import (
    Contents,
    ScreenerInProcess,
    SpottyEmbedder,
    contents,
    differences,
    unsound,
    wipe,
)
from vault_memory_tests.integration.ingest.test_histories import FUZZ, KEY, SECTIONS, bring_to_head, identify, texts

EXAMPLES_IN_CI = 15
RACY_SECONDS = 0.05  # more than any kernel's tick; what is older may be taken from the cache
FOLDERS = ("", "a", "a/deep", "b", "Infrastructure")
NAMES = ("x.md", "y.md", "Z.MD", "caf\u00e9.md", "cafe\u0301.md", 'odd "q"\t.md', "n.markdown", "no.txt", ".hidden.md")
IGNORES = (None, "a/deep/\n", "y.md\n", "# nothing\n")
paths = st.builds(lambda folder, name: f"{folder}/{name}".lstrip("/"), st.sampled_from(FOLDERS), st.sampled_from(NAMES))
picks = st.integers(0, 30)


@dataclass
class World:
    """What all histories of a test share, because it takes long to make."""

    settings: Settings
    folder: Path
    watcher: psycopg.Connection
    store: Store
    fresh: Store
    rebuilt: dict[str | None, Contents] = field(default_factory=dict)
    histories: int = 0
    compared: int = 0
    renames: int = 0


class FolderHistories(RuleBasedStateMachine):
    """One history of a folder and its store."""

    world: ClassVar[World]

    @initialize(some=st.lists(st.tuples(paths, texts), min_size=4, max_size=8))
    def start(self, some: list[tuple[str, str]]) -> None:
        """Begin with a folder of some files and an empty store."""
        self.world.histories += 1
        self.top = self.world.folder / f"history{self.world.histories}" / "notes"
        self.top.mkdir(parents=True)
        self.embedder = SpottyEmbedder()
        self.source: DirectorySource | None = None
        wipe(self.world.watcher, "vault_memory")
        identify(self.world.store, self.embedder)
        self.write_many(some=some)

    def teardown(self) -> None:
        """Bring the store in step, whatever came before, and rename one note more."""
        if hasattr(self, "top"):
            try:
                self.sync(new_process=True)
                self.rename_alone(number=self.world.histories, folder=FOLDERS[self.world.histories % 4])
            finally:
                shutil.rmtree(self.top.parent, ignore_errors=True)

    # -- edits -----------------------------------------------------------------------------------------------------

    def files(self) -> list[str]:
        """Every regular file, by path."""
        found = [path for path in self.top.rglob("*") if path.is_file() and not path.is_symlink()]
        return sorted(str(path.relative_to(self.top)) for path in found)

    def pick(self, number: int) -> Path | None:
        """Choose a regular file, if there is one."""
        files = self.files()
        return self.top / files[number % len(files)] if files else None

    def cleared(self, path: str) -> Path:
        """Make room at a path."""
        file = self.top / path
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file)
        else:
            file.unlink(missing_ok=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        return file

    @rule(path=paths, text=texts)
    def write(self, *, path: str, text: str) -> None:
        """Write a file in place."""
        self.cleared(path).write_text(text)

    @rule(some=st.lists(st.tuples(paths, texts), min_size=3, max_size=6))
    def write_many(self, some: list[tuple[str, str]]) -> None:
        """Put several files there."""
        for path, text in some:
            self.cleared(path).write_text(text)

    @rule(number=picks, section=st.sampled_from(SECTIONS))
    def save(self, *, number: int, section: str) -> None:
        """Save a file as editors do: write another one and put it in its place."""
        if (file := self.pick(number)) is not None:
            draft = file.with_name(".draft")
            draft.write_text(f"{file.read_text()}\n{section}\n")
            draft.replace(file)

    @rule(number=picks)
    def disguise(self, *, number: int) -> None:
        """Change a file, and give it its old size and time of modification."""
        if (file := self.pick(number)) is not None:
            about, text = file.stat(), file.read_text()
            file.write_text(text.swapcase())
            os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))

    @rule(number=picks, mode=st.sampled_from((0o600, 0o444, 0o755)))
    def change_mode(self, *, number: int, mode: int) -> None:
        """Change nothing that matters."""
        if (file := self.pick(number)) is not None:
            file.chmod(mode)
            os.utime(file)

    @rule(number=picks)
    def delete(self, *, number: int) -> None:
        """Delete a file."""
        if (file := self.pick(number)) is not None:
            file.unlink()

    @rule(number=picks, path=paths)
    def rename(self, *, number: int, path: str) -> None:
        """Rename a file, perhaps over another one."""
        if (file := self.pick(number)) is not None and file != self.top / path:
            data = file.read_bytes()
            file.unlink()
            self.cleared(path).write_bytes(data)

    @rule(old=st.sampled_from(FOLDERS[1:]), new=st.sampled_from(FOLDERS[1:]))
    def rename_folder(self, *, old: str, new: str) -> None:
        """Move a folder with all that is in it."""
        source, target = self.top / old, self.top / new
        if source.is_dir() and not target.exists() and not target.is_relative_to(source):
            target.parent.mkdir(parents=True, exist_ok=True)
            source.rename(target)

    @rule(one=picks, other=picks)
    def swap(self, *, one: int, other: int) -> None:
        """Let two files change places."""
        first, second = self.pick(one), self.pick(other)
        if first is not None and second is not None and first != second:
            aside = first.with_name(".aside")
            first.rename(aside)
            second.rename(first)
            aside.rename(second)

    @rule(path=paths, kind=st.sampled_from(("link", "dangling", "hard", "pipe", "folder")), number=picks)
    def disturb(self, *, path: str, kind: str, number: int) -> None:
        """Put something there that is no note."""
        other = self.pick(number)
        if other == self.top / path:
            return
        place = self.cleared(path)
        match kind:
            case "link" if other is not None and other.exists():
                place.symlink_to(other)
            case "hard" if other is not None and other.exists():
                os.link(other, place)
            case "pipe":
                os.mkfifo(place)
            case "folder":
                place.mkdir()
            case _:
                place.symlink_to("nowhere.md")

    @rule(text=st.sampled_from(IGNORES))
    def ignore(self, text: str | None) -> None:
        """Change the rules of the folder."""
        file = self.cleared(".vaultmemoryignore")
        if text is not None:
            file.write_text(text)

    @rule()
    def rest(self) -> None:
        """Let what was written grow old enough to be remembered."""
        time.sleep(RACY_SECONDS * 1.5)

    # -- syncs -----------------------------------------------------------------------------------------------------

    def open(self, source: DirectorySource, store: Store, embedder: SpottyEmbedder) -> Synchronizer:
        """Join the parts that do without processes."""
        settings = replace(self.world.settings, vault=self.top)
        made = Synchronizer(settings, store, source, KEY, make_judge=ScreenerInProcess)
        made.provider.embedder = embedder
        made.planner.may_delete_most = True
        return made

    def opened(self, *, new_process: bool) -> Synchronizer:
        """Open the folder as the same daemon does again, or as another process with what was kept in a file."""
        if self.source is None or new_process:
            cache = self.top.parent / "home" / "cache"
            self.source = DirectorySource.open(self.top, secret=lambda: KEY.key, cache_file=cache)
        return self.open(self.source, self.world.store, self.embedder)

    @rule(new_process=st.booleans())
    def sync(self, *, new_process: bool) -> None:
        """Bring the store in step; it equals a rebuild, and there is nothing left to do."""
        synchronizer = self.opened(new_process=new_process)
        actions = bring_to_head(synchronizer)
        world = self.world
        found, expected = contents(world.watcher, "vault_memory"), self.rebuilt()
        problems = differences(expected, found)
        assert not problems, "\n".join([f"after {actions}", *problems[:6]])
        assert [] == unsound(world.watcher, "vault_memory")
        assert synchronizer.plan().is_empty
        assert synchronizer.is_current(), "the sensor would run for ever"
        world.compared += 1

    def rebuilt(self) -> Contents:
        """Build the store from nothing, from files that are all read."""
        source = DirectorySource.open(self.top, secret=lambda: KEY.key)
        head = source.head()
        if head not in self.world.rebuilt:
            wipe(self.world.watcher, "rebuilt")
            embedder = SpottyEmbedder()
            identify(self.world.fresh, embedder)
            bring_to_head(self.open(source, self.world.fresh, embedder))
            self.world.rebuilt[head] = contents(self.world.watcher, "rebuilt")
        return self.world.rebuilt[head]

    @rule(number=picks, new_process=st.booleans())
    def disguise_what_is_known(self, *, number: int, new_process: bool) -> None:
        """Change a file behind the back of whoever remembers its size and time."""
        self.rest()
        self.sync(new_process=new_process)
        self.disguise(number=number)
        self.sync(new_process=new_process)

    @rule(data=st.data(), number=st.integers(0, 7), new_process=st.booleans())
    def sync_while_files_change(self, *, data: st.DataObject, number: int, new_process: bool) -> None:
        """Edit in the middle of a sync: nothing unsound is left, and the next sync has it all."""
        edits = [
            lambda: self.write(path=data.draw(paths), text=data.draw(texts)),
            lambda: self.delete(number=data.draw(picks)),
            lambda: self.rename(number=data.draw(picks), path=data.draw(paths)),
            lambda: self.disguise(number=data.draw(picks)),
        ]
        steps = iter(range(1000))

        def between(_step: str) -> None:
            if next(steps) == number:
                edits[data.draw(st.integers(0, len(edits) - 1))]()

        bring_to_head(self.opened(new_process=new_process), between=between)
        assert [] == unsound(self.world.watcher, "vault_memory")
        self.sync(new_process=False)

    @rule(number=picks, folder=st.sampled_from(FOLDERS[:-1]))
    def rename_alone(self, *, number: int, folder: str) -> None:
        """A rename and nothing else: no text is embedded again."""
        # Where rules name the old or the new place, or two names are one note, a rename lets another note in.
        (self.top / ".vaultmemoryignore").unlink(missing_ok=True)
        self.sync(new_process=False)
        files = [path for path in self.files() if not {".", "Infrastructure"} & {path[0], path.partition("/")[0]}]
        notes = [path for path in files if NotePath.from_text(path).is_markdown and "/." not in path]
        new = f"{folder}/moved.md".lstrip("/")
        if not notes or new in notes or len({NotePath.from_text(path).id for path in notes}) < len(notes):
            return
        file = self.top / notes[number % len(notes)]
        paid = dict(self.embedder.paid)
        self.cleared(new)
        file.rename(self.top / new)
        self.sync(new_process=True)
        assert paid == self.embedder.paid
        self.world.renames += 1


@pytest.fixture
def world(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Two schemas and the settings of a folder."""
    monkeypatch.setattr(stat_cache, "RACY_NANOSECONDS", int(RACY_SECONDS * 1e9))
    migrations.migrate(database, "rebuilt")
    values = {"VAULT_MEMORY_VAULT": str(tmp_path), "VAULT_MEMORY_DSN": database, "HOME": str(tmp_path)}
    loaded = settings_module.load(values)
    loaded = replace(loaded, kind="directory", scan=replace(loaded.scan, roots=(".",)))
    stores = [Store.connect(database, schema) for schema in ("vault_memory", "rebuilt")]
    with psycopg.connect(database, autocommit=True) as watcher:
        yield World(loaded, tmp_path, watcher, *stores)
    for one in stores:
        one.close()


@pytest.mark.timeout(0 if FUZZ else 300)
def test_any_history_of_a_folder_ends_in_a_rebuild(world: World) -> None:
    """Every sync equals a rebuild, and a rename alone pays for nothing."""
    machine: Callable[[], RuleBasedStateMachine] = type("FolderHistories", (FolderHistories,), {"world": world})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=FUZZ or EXAMPLES_IN_CI,
            stateful_step_count=14,
            deadline=None,
            database=None,
            derandomize=not FUZZ,
            suppress_health_check=list(HealthCheck),
            print_blob=False,
        ),
    )
    assert world.compared > 2 * world.histories
    assert world.renames > world.histories / 3
    if FUZZ:
        sys.stderr.write(
            f"{world.histories} histories of folders, {world.compared} syncs held against a rebuild, "
            f"{world.renames} renames without an embedding\n"
        )
