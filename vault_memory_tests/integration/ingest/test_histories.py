"""Any git history ends in the store that a rebuild of its HEAD would make.

A state machine edits a real repository, moves its HEAD in every way git knows, syncs (whole, in part, twice at once, by
a clone or a worktree, with commits coming in between, with an embedder that fails), changes rules, releases and the
model, and holds the store against one built from nothing.
``make test`` plays a fixed set of histories; ``make fuzz N=2000`` plays as many other ones.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ClassVar

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from vault_memory import settings as settings_module
from vault_memory.adapters import migrations
from vault_memory.adapters.git import GitVault
from vault_memory.adapters.store import Store
from vault_memory.ingest.allowances import Allowance, add_allowances, remove_allowances
from vault_memory.ingest.keys import KeyedHash
from vault_memory.ingest.planning import MassDeletionError
from vault_memory.ingest.sync import Synchronizer
from vault_memory.notes import exclusion, secrets
from vault_memory.notes.model import Finding
from vault_memory.settings import ScanSettings, Settings
from vault_memory_tests.fixtures.rebuild import (
    Contents,
    FragileStore,
    Interrupted,
    ScreenerInProcess,
    SpottyEmbedder,
    contents,
    differences,
    unsound,
    wipe,
)
from vault_memory_tests.fixtures.vault import VaultRepo

FUZZ = int(os.environ.get("VAULT_MEMORY_FUZZ", "0"))
EXAMPLES_IN_CI = 30
MOST_FAILURES_SHOWN = 6
KEY = KeyedHash(bytes(range(32)))
TOKEN = "ghp" + "_" + "Ab3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3bC6"
UNLUCKY = {"locked door": True, "broken mirror": False}  # whether a retry may help

FOLDERS = ("01_Projects", "01_Projects/d", "01_Projects/Drafts", "02_Areas", "01_Projects/Infrastructure", "04_Archive")
NAMES = (
    "a.md", "b.md", "c.md", "A.md", "B.MD", "d", "caf\u00e9.md", "cafe\u0301.md", "\u9879\u76ee \u8ba1\u5212.md",
    "...x.md", 'odd "q"\t.md', "n.markdown", "x.txt",
)  # fmt: skip
SECTIONS = (
    "Caches hold what was asked for before.",
    "## Deploy\n\nRoll back with care, \u56de\u6eda\u8981\u5c0f\u5fc3\u3002",
    "## Notes\n\n- one\n- two [[b]]",
    "## Same\n\nThe same words twice.\n\n## Same\n\nThe same words twice.",
    "Behind a locked door #tag",
    "### Deep\n\nA broken mirror.",
    "\u7f13\u5b58\u4fdd\u5b58\u4e4b\u524d\u7684\u7ed3\u679c\u3002",
    f"token {TOKEN}",
    "Filed under #private",
)
HEADS = ("", "", "", "# Title\n\n", "# Other\n\n", "---\ntitle: T\ntags: [x]\n---\n", "---\nprivate: true\n---\n")
IGNORES = (None, "Drafts/\n", "d/\n", "b.md\n", "*.markdown\n02_Areas/\n", "# nothing\n")
NOBODY = ("nobody", "nowhere")

SETTINGS: tuple[Callable[[ScanSettings], ScanSettings], ...] = (
    lambda scan: scan,
    lambda scan: replace(scan, exclude_patterns=("b.md", "02_Areas/")),
    lambda scan: replace(scan, private_tags=("tag",)),
    lambda scan: replace(scan, max_note_bytes=90),
    lambda scan: replace(scan, roots=("01_Projects", "04_Archive")),
)
MODELS = {"spotty-1": 1536, "spotty-2": 768}
NEWER_PACK = "of the fuzzer"
OLDER_PACK, OLDER_SCAN = exclusion.RULES_VERSION, secrets.scan

paths = st.builds(lambda folder, name: f"{folder}/{name}", st.sampled_from(FOLDERS), st.sampled_from(NAMES))
texts = st.builds(
    lambda head, parts: head + "\n\n".join(parts) + "\n",
    st.sampled_from(HEADS),
    st.lists(st.sampled_from(SECTIONS), max_size=3, unique=True),
)
picks = st.integers(0, 30)


def newer_scan(text: str) -> tuple[Finding, ...]:
    """Find what a newer rule pack finds: one more kind of secret."""
    at = text.find("Roll back with care")
    more = () if at < 0 else (Finding("fuzz_rule", text.count("\n", 0, at) + 1, "raw"),)
    return (*OLDER_SCAN(text), *more)


def use_pack(version: str) -> None:
    """Put a rule pack in force in this process."""
    vars(exclusion)["RULES_VERSION"] = version
    vars(secrets)["scan"] = newer_scan if version == NEWER_PACK else OLDER_SCAN


@dataclass
class World:
    """What all histories of a test share, because it takes long to make.

    Attributes:
        folder: For repositories.
        templates: An empty repository to copy, by object format.
        other: A second connection to the first store.
        rebuilt: What rebuilds made, by tree; the same tree always makes the same.
    """

    settings: Settings
    folder: Path
    templates: dict[str, Path]
    watcher: psycopg.Connection
    store: FragileStore
    other: Store
    fresh: Store
    rebuilt: dict[str, Contents] = field(default_factory=dict)
    histories: int = 0
    syncs: int = 0
    compared: int = 0

    def synchronizer(self, path: Path, store: Store, embedder: SpottyEmbedder, settings: Settings) -> Synchronizer:
        """Join the parts that do without processes."""
        path.mkdir(parents=True, exist_ok=True)  # git takes a folder away with its last file
        made = Synchronizer(settings, store, GitVault.open(path), KEY, make_judge=ScreenerInProcess)
        made.provider.embedder = embedder
        made.planner.may_delete_most = True
        return made

    def rebuild(self, repo: VaultRepo, prefix: str, settings: Settings, model: str) -> Contents:
        """Build HEAD's store from nothing, with an embedder that never fails."""
        tree = repo.git("rev-parse", "HEAD^{tree}") if _has_head(repo) else "unborn"
        allowed = settings.allow_list_file.read_text() if settings.allow_list_file.exists() else ""
        key = repr((tree, prefix, settings.scan, exclusion.RULES_VERSION, model, allowed))
        if key not in self.rebuilt:
            wipe(self.watcher, "rebuilt")
            embedder = SpottyEmbedder(model=model, dimensions=MODELS[model])
            identify(self.fresh, embedder)
            bring_to_head(self.synchronizer(repo.path / prefix, self.fresh, embedder, settings))
            self.rebuilt[key] = contents(self.watcher, "rebuilt")
        return self.rebuilt[key]


def identify(store: Store, embedder: SpottyEmbedder) -> None:
    """Record the embedder of a store."""
    store.record_identity(
        vault="x", embedder=embedder.name, model=embedder.model, dimensions=embedder.dimensions, base_url=None,
        key_fingerprint=KEY.fingerprint,
    )  # fmt: skip


def _has_head(repo: VaultRepo) -> bool:
    return GitVault.open(repo.path).head() is not None


def bring_to_head(
    synchronizer: Synchronizer,
    *,
    full: bool = False,
    most_notes: int = 300,
    between: Callable[[str], None] = lambda _step: None,
) -> list[str]:
    """Do what ``vault-memory sync`` does, without Dagster; return what happened to the notes."""
    actions: list[str] = []
    with synchronizer.writer(5, holder="test"):
        plan = synchronizer.plan(full=full, retry_all=True)
        failed: set[str] = set()
        for _ in range(30):
            if not plan.note_ids or set(plan.note_ids) <= failed:
                break
            for note_ids in plan.batches(most_notes):
                between("begin")
                batch = synchronizer.begin(note_ids, follow_plan=not full, run_id="test")
                between("scan")
                batch = synchronizer.scan(batch)
                between("embed")
                batch = synchronizer.embed(batch)
                between("persist")
                for outcome in synchronizer.persist(batch):
                    actions.append(outcome.action)
                    if outcome.action == "failed":
                        failed.add(outcome.note_id)
                    between("note")
                synchronizer.finish()
            full = False
            plan = synchronizer.plan()
        else:
            message = f"sync does not end: {plan.work.actions}"
            raise AssertionError(message)
        synchronizer.finish()
    return actions


class Histories(RuleBasedStateMachine):
    """One history: a repository, its store, and an embedder with moods."""

    world: ClassVar[World]

    @initialize(
        object_format=st.sampled_from(("sha1", "sha1", "sha256")), prefix=st.sampled_from(("", "", "notes/vault"))
    )
    def start(self, *, object_format: str, prefix: str) -> None:
        """Begin with an empty repository and an empty store."""
        world = self.world
        world.histories += 1
        self.folder = world.folder / f"history{world.histories}"
        path = self.folder / "repository"
        shutil.copytree(world.templates[object_format], path)
        self.repo = VaultRepo(path)
        self.prefix = prefix
        self.notes = path / prefix
        self.settings = world.settings
        self.embedder = SpottyEmbedder()
        self.branches = ["main"]
        self.commits: list[str] = []
        self.orphans = self.places = 0
        self.settings.allow_list_file.unlink(missing_ok=True)
        use_pack(OLDER_PACK)
        world.store.countdown = None
        wipe(world.watcher, "vault_memory")
        identify(world.store, self.embedder)
        if world.histories % 25 == 0:
            world.watcher.execute("VACUUM vault_memory.memory_chunk, vault_memory.memory_primary")
            world.watcher.execute("VACUUM rebuilt.memory_chunk, rebuilt.memory_primary")

    def teardown(self) -> None:
        """Bring the store to the last HEAD, whatever came before."""
        if hasattr(self, "repo"):
            try:
                self.heal()
                self.check_after(bring_to_head(self.open()))
            finally:
                use_pack(OLDER_PACK)
                shutil.rmtree(self.folder, ignore_errors=True)

    # -- edits of the work tree ------------------------------------------------------------------------------------

    def files(self) -> list[str]:
        """Everything in the work tree that git would track, by path."""
        top = self.notes
        found: list[str] = []
        for folder, folders, names in os.walk(top):
            folders[:] = [name for name in folders if name != ".git"]
            found += [str(Path(folder, name).relative_to(top)) for name in names if name != ".git"]
            found += [str(Path(folder, name).relative_to(top)) for name in folders if Path(folder, name).is_symlink()]
        return sorted(found)

    def pick(self, number: int) -> str | None:
        """Choose a file, if there is one."""
        files = [file for file in self.files() if file != ".vaultmemoryignore"]
        return files[number % len(files)] if files else None

    def clear(self, path: str) -> Path:
        """Make room at a path, where a file may stand in the way of a folder or a folder in the way of a file."""
        file = self.notes / path
        for parent in reversed(file.parents):
            if self.notes in parent.parents and (parent.is_symlink() or parent.is_file()):
                parent.unlink()
        if file.is_symlink() or file.is_file():
            file.unlink()
        elif file.is_dir():
            shutil.rmtree(file)
        file.parent.mkdir(parents=True, exist_ok=True)
        return file

    def put(self, path: str, data: bytes) -> None:
        """Write a file, whatever was there."""
        self.clear(path).write_bytes(data)

    def take(self, path: str) -> bytes | None:
        """Remove a file and return its content; None where it is a link."""
        file = self.notes / path
        data = None if file.is_symlink() else file.read_bytes()
        file.unlink()
        return data

    def inside(self, path: str) -> str:
        """Name a file as its repository does."""
        return f"{self.prefix}/{path}" if self.prefix else path

    def maybe_commit(self, *, commit: bool) -> None:
        """Commit at once, or let the next commit take the change with others."""
        if commit:
            self.commit()

    @rule(path=paths, text=texts, commit=st.booleans())
    def write(self, *, path: str, text: str, commit: bool) -> None:
        """Add or edit a note."""
        self.put(path, text.encode())
        self.maybe_commit(commit=commit)

    @rule(some=st.lists(st.tuples(paths, texts), min_size=3, max_size=6))
    def write_many(self, some: list[tuple[str, str]]) -> None:
        """Commit several notes."""
        for path, text in some:
            self.put(path, text.encode())
        self.commit()

    @rule(number=picks, section=st.sampled_from(SECTIONS), commit=st.booleans())
    def append(self, *, number: int, section: str, commit: bool) -> None:
        """Add a section to a note; it may hold a secret or a wish for privacy."""
        path = self.pick(number)
        if path is not None and not (self.notes / path).is_symlink():
            self.put(path, (self.notes / path).read_bytes() + f"\n{section}\n".encode())
            self.maybe_commit(commit=commit)

    @rule(number=picks, commit=st.booleans())
    def cut(self, *, number: int, commit: bool) -> None:
        """Remove the last section of a note, and with it perhaps its secret."""
        path = self.pick(number)
        if path is not None and not (self.notes / path).is_symlink():
            self.put(path, (self.notes / path).read_bytes().rpartition(b"\n\n")[0] + b"\n")
            self.maybe_commit(commit=commit)

    @rule(number=picks, commit=st.booleans())
    def delete(self, *, number: int, commit: bool) -> None:
        """Delete a note."""
        path = self.pick(number)
        if path is not None:
            self.take(path)
            self.maybe_commit(commit=commit)

    @rule(number=picks, path=paths, section=st.sampled_from((*SECTIONS, *[""] * 9)), commit=st.booleans())
    def rename(self, *, number: int, path: str, section: str, commit: bool) -> None:
        """Move a note, into or out of an excluded folder too, perhaps with an edit."""
        old = self.pick(number)
        if old is not None:
            data = self.take(old)
            self.put(path, (data or b"was a link") + section.encode())
            self.maybe_commit(commit=commit)

    @rule(number=picks, path=paths)
    def copy(self, number: int, path: str) -> None:
        """Have the same content twice."""
        old = self.pick(number)
        if old is not None and not (self.notes / old).is_symlink():
            self.put(path, (self.notes / old).read_bytes())
            self.commit()

    @rule(numbers=st.lists(picks, min_size=2, max_size=4))
    def rotate(self, numbers: list[int]) -> None:
        """Swap notes, or move them round in a chain, in one commit."""
        chosen = list(dict.fromkeys(path for number in numbers if (path := self.pick(number)) is not None))
        held = [self.take(path) or b"was a link\n" for path in chosen]
        for path, data in zip(chosen, held[1:] + held[:1], strict=True):
            self.put(path, data)
        self.commit()

    @rule(number=picks)
    def change_case(self, number: int) -> None:
        """Rename a note to the same name in other case."""
        old = self.pick(number)
        if old is not None and (data := self.take(old)) is not None:
            folder, _, name = old.rpartition("/")
            self.put(f"{folder}/{name.swapcase()}" if folder else name.swapcase(), data)
            self.commit()

    @rule(old=st.sampled_from(FOLDERS), new=st.sampled_from(FOLDERS))
    def rename_folder(self, old: str, new: str) -> None:
        """Move all notes of a folder."""
        moving = [path for path in self.files() if path.startswith(f"{old}/") and not path.startswith(f"{new}/")]
        for path, data in [(path, self.take(path)) for path in moving]:  # all first: one may be in another's way
            self.put(f"{new}/{path.removeprefix(f'{old}/')}", data or b"was a link\n")
        self.commit()

    @rule(number=picks, kind=st.sampled_from(("symlink", "submodule", "folder")))
    def change_kind(self, number: int, kind: str) -> None:
        """Turn a file into something else of the same name."""
        path = self.pick(number)
        if path is None:
            return
        data = self.take(path) or b"was a link\n"
        if kind == "symlink":
            self.clear(path).symlink_to("a.md")
            self.commit()
        elif kind == "folder":
            self.put(f"{path}/a.md", data)
            self.commit()
        else:
            self.clear(path).mkdir()
            self.repo.git("add", "-A")
            self.repo.git(
                "update-index",
                "--add",
                "--cacheinfo",
                f"160000,{'1' * len(self.commits[-1] if self.commits else '1' * 40)},{self.inside(path)}",
            )
            self.commits.append(self.repo.commit(only_staged=True))

    @rule(text=st.sampled_from(IGNORES))
    def ignore(self, text: str | None) -> None:
        """Change the vault's own rules."""
        if text is not None:
            self.put(".vaultmemoryignore", text.encode())
        elif (self.notes / ".vaultmemoryignore").exists():
            self.take(".vaultmemoryignore")
        self.commit()

    # -- moves of HEAD ---------------------------------------------------------------------------------------------

    def try_git(self, *args: str) -> bool:
        """Run a git command that may well be refused."""
        try:
            self.repo.git(*args)
        except AssertionError:
            return False
        return True

    @rule()
    def commit(self) -> None:
        """Commit what is in the work tree."""
        self.commits.append(self.repo.commit())

    @precondition(lambda self: self.commits)
    @rule()
    def amend(self) -> None:
        """Replace the last commit."""
        if _has_head(self.repo):
            self.commits.append(self.repo.commit(amend=True))

    @precondition(lambda self: len(self.commits) > 1)
    @rule(number=picks)
    def reset(self, number: int) -> None:
        """Go back, or to a commit of another branch, with the branch."""
        self.try_git("reset", "-q", "--hard", self.commits[-1 - number % len(self.commits)])

    @precondition(lambda self: self.commits)
    @rule(number=picks, name=st.sampled_from(("one", "two")))
    def new_branch(self, number: int, name: str) -> None:
        """Start a branch at any commit there was."""
        if self.try_git("checkout", "-q", "-f", "-B", name, self.commits[-1 - number % len(self.commits)]):
            self.branches = [*dict.fromkeys([*self.branches, name])]

    @precondition(lambda self: self.commits)
    @rule(number=picks)
    def switch(self, number: int) -> None:
        """Switch to another branch."""
        self.try_git("checkout", "-q", "-f", self.branches[number % len(self.branches)])

    @precondition(lambda self: self.commits)
    @rule(number=picks)
    def detach(self, number: int) -> None:
        """Check a commit out without a branch."""
        self.try_git("checkout", "-q", "-f", "--detach", self.commits[-1 - number % len(self.commits)])

    @precondition(lambda self: self.commits)
    @rule(text=texts, born=st.booleans())
    def orphan(self, *, text: str, born: bool) -> None:
        """Start a branch without a past; its first commit may be missing yet."""
        self.orphans += 1
        name = f"orphan{self.orphans}"
        self.repo.git("checkout", "-q", "--orphan", name)
        if born:
            self.put("01_Projects/a.md", text.encode())
            self.commit()
            self.branches.append(name)

    @precondition(lambda self: self.commits)
    @rule(numbers=st.lists(picks, min_size=1, max_size=3), strategy=st.sampled_from(("ours", "recursive")))
    def merge(self, numbers: list[int], strategy: str) -> None:
        """Merge one commit or several."""
        others = list(dict.fromkeys(self.commits[-1 - number % len(self.commits)] for number in numbers))
        how = ["-s", "ours"] if strategy == "ours" or len(others) > 1 else ["-X", "theirs"]
        if _has_head(self.repo) and self.try_git("add", "-A"):
            self.repo.commit()
            if self.try_git("merge", "-q", "--no-edit", "--allow-unrelated-histories", *how, *others):
                self.commits.append(self.repo.head)
            else:
                self.try_git("merge", "--abort")
                self.try_git("reset", "-q", "--hard")

    @precondition(lambda self: len(self.commits) > 2)
    @rule(number=picks)
    def rebase(self, number: int) -> None:
        """Play the last commit again on top of another one."""
        onto = self.commits[-1 - number % len(self.commits)]
        self.try_git("reset", "-q", "--hard")
        if self.try_git("rebase", "-q", "-X", "theirs", "--onto", onto, "HEAD~1"):
            self.commits.append(self.repo.head)
        else:
            self.try_git("rebase", "--abort")
            self.try_git("reset", "-q", "--hard")

    @precondition(lambda self: len(self.commits) > 3)
    @rule()
    def forget_the_past(self) -> None:
        """Collect what no branch holds, so that the store's commit may be gone."""
        self.repo.git("reflog", "expire", "--expire=now", "--all")
        self.repo.git("gc", "-q", "--prune=now")

    # -- syncs -----------------------------------------------------------------------------------------------------

    def open(self, path: Path | None = None, store: Store | None = None) -> Synchronizer:
        """Open the vault as a new process would."""
        return self.world.synchronizer(path or self.notes, store or self.world.store, self.embedder, self.settings)

    @rule(most_notes=st.sampled_from((1, 2, 3, 300)), full=st.sampled_from((False, False, False, True)))
    def sync(self, *, most_notes: int, full: bool) -> None:
        """Bring the store to HEAD."""
        synchronizer = self.open()
        idle = synchronizer.is_current() and not self.embedder.unlucky and not full
        actions = bring_to_head(synchronizer, most_notes=most_notes, full=full)
        assert not (idle and [action for action in actions if action != "failed"]), "the sensor would have slept"
        self.check_after(actions)

    @rule(calls=st.integers(0, 25), most_notes=st.sampled_from((1, 300)), full=st.booleans())
    def die(self, *, calls: int, most_notes: int, full: bool) -> None:
        """Begin a sync and die in it."""
        store = self.world.store
        store.countdown = calls
        try:
            bring_to_head(self.open(), most_notes=most_notes, full=full)
        except Interrupted:
            pass
        finally:
            store.countdown = None
        self.check_sound()

    @rule(
        step=st.sampled_from(("begin", "scan", "embed", "persist", "note")),
        change=st.one_of(
            st.tuples(st.just("write"), paths, texts),
            st.tuples(st.just("delete"), picks, st.none()),
            st.tuples(st.just("rename"), picks, paths),
            st.tuples(st.just("ignore"), st.sampled_from(IGNORES), st.none()),
            st.tuples(st.just("reset"), picks, st.none()),
        ),
    )
    def sync_while_committing(self, step: str, change: tuple[str, object, object]) -> None:
        """Bring the store to HEAD while HEAD moves, at a step of the first run."""
        done: list[str] = []

        def between(now: str) -> None:
            if now == step and not done:
                done.append(now)
                self.apply(change)

        self.check_after(bring_to_head(self.open(), between=between))

    def apply(self, change: tuple[str, object, object]) -> None:
        """Move HEAD by one change."""
        match change:
            case ("write", str() as path, str() as text):
                self.put(path, text.encode())
            case ("delete", int() as number, _):
                if (path := self.pick(number)) is not None:
                    self.take(path)
            case ("rename", int() as number, str() as path):
                if (old := self.pick(number)) is not None:
                    self.put(path, self.take(old) or b"was a link\n")
            case ("ignore", str() as text, _):
                self.put(".vaultmemoryignore", text.encode())
            case ("reset", int() as number, _):
                if self.commits:
                    self.try_git("reset", "-q", "--hard", self.commits[-1 - number % len(self.commits)])
                return
            case _:
                return
        self.commit()

    @rule()
    def sync_twice_at_once(self) -> None:
        """Two processes bring the store to HEAD at once: one waits for the other."""
        both = (self.open(), self.open(store=self.world.other))
        with ThreadPoolExecutor(2) as pool:
            done = list(pool.map(bring_to_head, both))
        self.check_after([*done[0], *done[1]])

    @precondition(lambda self: self.commits)
    @rule(kind=st.sampled_from(("worktree", "bare", "shallow")))
    def sync_from_elsewhere(self, kind: str) -> None:
        """Bring the store to the same HEAD, read from a linked worktree, a bare clone or a shallow one."""
        if not _has_head(self.repo) or (kind == "bare" and self.prefix):
            return
        self.places += 1
        place = self.folder / f"{kind}{self.places}"
        if kind == "worktree":
            self.repo.git("worktree", "add", "-q", "--force", "--detach", str(place), "HEAD")
        else:
            how = ["--bare"] if kind == "bare" else ["--depth", "1", "--no-checkout"]
            self.repo.git("clone", "-q", *how, f"file://{self.repo.path}", str(place))
        actions = bring_to_head(self.open(place / self.prefix))
        if kind == "worktree":
            self.repo.git("worktree", "remove", "--force", str(place))
        self.check_after(actions)

    @rule()
    def move_the_git_directory(self) -> None:
        """Put the repository elsewhere, with a file in place of ``.git``."""
        self.places += 1
        self.repo.git("init", "-q", "--separate-git-dir", str(self.folder / f"git{self.places}"))

    @rule(number=picks)
    def sync_guarded(self, number: int) -> None:
        """Sync with the guard against mass deletion on; where it refuses, nothing changes until it is overruled."""
        if number % 2 and self.commits:
            for path in self.files():
                self.take(path)
            self.commit()
        before = contents(self.world.watcher, "vault_memory")
        synchronizer = self.open()
        synchronizer.planner.may_delete_most = False
        try:
            actions = bring_to_head(synchronizer)
        except MassDeletionError:
            assert before == contents(self.world.watcher, "vault_memory")
            synchronizer.planner.may_delete_most = True
            actions = bring_to_head(synchronizer)
        self.check_after(actions)

    # -- rules, releases, models -----------------------------------------------------------------------------------

    @rule(change=st.sampled_from(SETTINGS))
    def configure(self, change: Callable[[ScanSettings], ScanSettings]) -> None:
        """Change the settings of the scan."""
        self.settings = replace(self.world.settings, scan=change(self.world.settings.scan))

    @rule(version=st.sampled_from((OLDER_PACK, NEWER_PACK)))
    def update_the_pack(self, version: str) -> None:
        """Install another release of the rule pack."""
        use_pack(version)

    @rule(number=picks)
    def allow(self, number: int) -> None:
        """Release a note that is quarantined for a secret."""
        held = [line for line in self.world.store.audit() if line.reason == "secret"]
        if held:
            line, now = held[number % len(held)], datetime.now(UTC)
            until = now + timedelta(days=1)
            released = [Allowance(line.source, one, line.content_hmac, now, until) for one in line.rules]
            add_allowances(self.settings.allow_list_file, released)

    @rule(number=picks)
    def end_release(self, number: int) -> None:
        """Take a release back."""
        sources = sorted({one.note_id for one in self.world.store.releases()})
        if sources:
            remove_allowances(self.settings.allow_list_file, sources[number % len(sources)])

    @rule(calls=st.one_of(st.none(), st.integers(0, 40)))
    def change_model(self, calls: int | None) -> None:
        """Change over to another model, or die on the way; the old one answers until all is there."""
        before = self.embedder.model
        model = next(name for name in MODELS if name != before)
        self.embedder.model, self.embedder.dimensions = model, MODELS[model]
        synchronizer = self.open()
        self.world.store.countdown = calls
        try:
            with synchronizer.writer(5, holder="test"):
                rebuilt = synchronizer.rebuild_vectors()
        except Interrupted:
            rebuilt = None
        finally:
            self.world.store.countdown = None
        recorded = self.world.store.sync_state().model or before
        self.embedder.model, self.embedder.dimensions = recorded, MODELS[recorded]
        self.check_sound()
        if rebuilt is not None:
            assert rebuilt.changed_over == (recorded == model)
        if rebuilt is not None and rebuilt.changed_over:
            self.check_after(bring_to_head(self.open(), full=True))

    @rule(word=st.sampled_from(sorted(UNLUCKY)))
    def sour(self, word: str) -> None:
        """Let the embedder fail for texts with a word."""
        self.embedder.unlucky[word] = UNLUCKY[word]

    @rule()
    def heal(self) -> None:
        """Let the embedder work again."""
        self.embedder.unlucky.clear()

    # -- what must hold --------------------------------------------------------------------------------------------

    def check_sound(self) -> None:
        """Whatever happened, nothing is orphaned and no term is miscounted."""
        watcher = self.world.watcher
        assert [] == unsound(watcher, "vault_memory")
        counted = dict(contents(watcher, "vault_memory")["terms"])
        rows = watcher.execute("SELECT term_weights::text FROM memory_chunk").fetchall()
        expected: dict[int, int] = {}
        for (text,) in rows:
            for pair in text.partition("}")[0].strip("{").split(","):
                if pair:
                    dimension = int(pair.partition(":")[0]) - 1
                    expected[dimension] = expected.get(dimension, 0) + 1
        assert expected == counted

    def check_after(self, actions: list[str]) -> None:
        """The store equals a rebuild, but for notes that could not be embedded, and they are named."""
        world = self.world
        world.syncs += 1
        found = contents(world.watcher, "vault_memory")
        expected = world.rebuild(self.repo, self.prefix, self.settings, self.embedder.model)
        failed = {row[0] for row in found["manifest"] if row[1] == "failed"}
        if failed:
            assert self.embedder.unlucky, f"failed for no reason: {failed}"
            self.check_sound()
            # Their old rows answer meanwhile, so the terms are others too, and what was paid for waits.
            key = {"notes": 0, "chunks": 1, "manifest": 0, "audit": 0}
            found = {name: [row for row in found[name] if row[at] not in failed] for name, at in key.items()}
            expected = {name: [row for row in expected[name] if row[at] not in failed] for name, at in key.items()}
        problems = differences(expected, found)
        assert not problems, "\n".join([f"after {actions}", *problems[:MOST_FAILURES_SHOWN]])
        assert [] == unsound(world.watcher, "vault_memory")
        synchronizer = self.open()
        assert synchronizer.plan().is_empty, synchronizer.plan().work.actions
        assert synchronizer.is_current(), "the sensor would run for ever"
        world.compared += 1


@pytest.fixture
def world(make_vault: Callable[..., VaultRepo], database: str, tmp_path: Path) -> Iterator[World]:
    """Two schemas, a repository to copy, and the settings that join them."""
    templates = {name: make_vault(f"template-{name}", object_format=name).path for name in ("sha1", "sha256")}
    for template in templates.values():
        shutil.rmtree(template / ".git/hooks", ignore_errors=True)
    migrations.migrate(database, "rebuilt")
    values = {"VAULT_MEMORY_VAULT": str(templates["sha1"]), "VAULT_MEMORY_DSN": database, "HOME": str(tmp_path)}
    store = FragileStore.connect(database, "vault_memory")
    other = Store.connect(database, "vault_memory")
    fresh = Store.connect(database, "rebuilt")
    with psycopg.connect(database, autocommit=True) as watcher:
        yield World(settings_module.load(values), tmp_path, templates, watcher, store, other, fresh)
    for one in (store, other, fresh):
        one.close()


@pytest.mark.timeout(0 if FUZZ else 300)
def test_any_history_ends_in_a_rebuild(world: World) -> None:
    """Every sync of every history ends in what a rebuild of HEAD makes; a died one leaves nothing unsound."""
    machine = type("Histories", (Histories,), {"world": world})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=FUZZ or EXAMPLES_IN_CI,
            stateful_step_count=16,
            deadline=None,
            database=None,
            derandomize=not FUZZ,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate] if os.environ.get("VAULT_MEMORY_FUZZ_RAW") else [Phase.generate, Phase.shrink],
            print_blob=False,
        ),
    )
    if FUZZ:
        sys.stderr.write(f"{world.histories} histories, {world.compared} syncs held against a rebuild, 0 divergences\n")
