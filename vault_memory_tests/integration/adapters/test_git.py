"""The git adapter against real repositories."""

import os
import shutil
import subprocess
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from vault_memory.adapters import git as adapter
from vault_memory.adapters.git import GitVault
from vault_memory.errors import BlobError, CommitGoneError, VaultError
from vault_memory.notes.model import EntryKind
from vault_memory_tests.fixtures.vault import FIRST_COMMIT_SECONDS, MakeVault, VaultRepo

NAMES = [
    "笔记/项目 计划.md".encode(),
    b"tab\there.md",
    b'quo"te.md',
    b"back\\slash.md",
    b"new\nline.md",
    b"-leading-dash.md",
    b"--output=x.md",
    b":(glob)**.md",
    b"*.md",
    b"trailing space.md ",
    b"space in folder /x.md",
    "emoji 🧠.md".encode(),
    "précis-nfc.md".encode(),
    unicodedata.normalize("NFD", "résumé-nfd.md").encode(),
    b"broken-\xff\xfe.md",
    b"U.MARKDOWN",
    b"x" * 252 + b".md",
]
MARKDOWN_NAMES = [name for name in NAMES if not name.endswith(b" ")]


def blobs(vault: GitVault, commit: str) -> dict[bytes, bytes | None]:
    """Read a whole tree: name to content."""
    tree = [entry for entry in vault.tree(commit) if entry.kind is EntryKind.FILE]
    contents = vault.read((entry.blob_id for entry in tree), 1 << 20)
    return {entry.path.raw: data for entry, (_, data) in zip(tree, contents, strict=True)}


def names(vault: GitVault) -> list[bytes]:
    """List the tree of HEAD."""
    head = vault.head()
    assert head is not None
    return [entry.path.raw for entry in vault.tree(head)]


class TestNames:
    """Names that other tools lost."""

    def test_every_name_is_listed_and_read(self, make_vault: MakeVault) -> None:
        """Names with quotes, controls, dashes, emoji or broken UTF-8 come through byte by byte (B25)."""
        repo = make_vault()
        for name in NAMES:
            repo.write_bytes_name(name, b"# " + name)
        commit = repo.commit()
        vault = GitVault.open(repo.path)

        assert {name: b"# " + name for name in MARKDOWN_NAMES} == blobs(vault, commit)

    def test_every_name_is_found_by_its_identity(self, make_vault: MakeVault) -> None:
        """The ghost check finds each note by its id, as literal path, whatever the spelling on disk."""
        repo = make_vault()
        for name in NAMES:
            repo.write_bytes_name(name, b"# " + name)
        commit = repo.commit()
        vault = GitVault.open(repo.path)
        tree = {entry.path.id: entry.blob_id for entry in vault.tree(commit)}

        assert len(MARKDOWN_NAMES) == len(tree)
        assert tree == vault.tracked_blobs(commit, list(tree))
        for note_id, blob_id in tree.items():
            assert {note_id: blob_id} == vault.tracked_blobs(commit, [note_id])

    def test_of_twins_the_nfc_spelling_is_found(self, make_vault: MakeVault) -> None:
        """Where NFC and NFD files stand side by side, the ghost check looks at the one that is the note (B26)."""
        repo = make_vault()
        nfc = "é.md"
        repo.write_bytes_name(unicodedata.normalize("NFD", nfc).encode(), b"nfd")
        repo.write_bytes_name(nfc.encode(), b"nfc")
        commit = repo.commit()
        vault = GitVault.open(repo.path)

        found = vault.tracked_blobs(commit, [nfc])

        assert [b"nfc"] == [data for _, data in vault.read(found.values(), 100)]

    def test_a_spelling_neither_nfc_nor_nfd_is_found(self, make_vault: MakeVault) -> None:
        """A name that mixes composed and decomposed letters is found by the second look over the tree."""
        repo = make_vault()
        mixed = "é" + unicodedata.normalize("NFD", "ü") + ".md"
        repo.write_bytes_name(mixed.encode(), b"x")
        commit = repo.commit()

        assert {"éü.md"} == GitVault.open(repo.path).tracked_blobs(commit, ["éü.md"]).keys()

    def test_what_is_no_file_is_not_found(self, make_vault: MakeVault) -> None:
        """Folders, links, vanished notes and impossible ids are left out, and ask git nothing it refuses."""
        repo = make_vault(files={"folder.md/a.md": "a", "b.md": "b"})
        (repo.path / "link.md").symlink_to("b.md")
        commit = repo.commit()
        ids = ["folder.md", "link.md", "gone.md", "", "/b.md", "../b.md", "./b.md", "a\0b.md", "b.md/", "b.md"]

        assert {"b.md"} == GitVault.open(repo.path).tracked_blobs(commit, ids).keys()

    def test_many_ids_are_answered(self, make_vault: MakeVault) -> None:
        """More ids than fit one command line are answered from the tree."""
        repo = make_vault(files={f"{number}.md": "x" for number in range(300)})
        ids = [f"{number}.md" for number in range(300)]

        assert set(ids) == GitVault.open(repo.path).tracked_blobs(repo.head, ids).keys()


class TestTree:
    """What a tree holds."""

    def test_kinds_and_other_files(self, make_vault: MakeVault) -> None:
        """Links and submodules with Markdown names are reported as such; other files are not reported at all."""
        inner = make_vault("inner", {"x.md": "x"})
        repo = make_vault(files={"a.md": "a", "b.MarkDown": "b", "c.txt": "c", "md": "d", "run.md": "e"})
        (repo.path / "run.md").chmod(0o755)
        (repo.path / "link.md").symlink_to("/etc/passwd")
        repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.path), "sub.md")
        commit = repo.commit()

        kinds = {entry.path.id: entry.kind for entry in GitVault.open(repo.path).tree(commit)}

        assert {
            "a.md": EntryKind.FILE,
            "b.MarkDown": EntryKind.FILE,
            "run.md": EntryKind.FILE,
            "link.md": EntryKind.SYMLINK,
            "sub.md": EntryKind.SUBMODULE,
        } == kinds

    def test_content_is_the_commit_s_not_the_work_tree_s(self, make_vault: MakeVault) -> None:
        """What is edited or staged but not committed does not count."""
        repo = make_vault(files={"a.md": "committed"})
        repo.write("a.md", "edited")
        repo.write("b.md", "staged")
        repo.git("add", "b.md")
        vault = GitVault.open(repo.path)

        assert {b"a.md": b"committed"} == blobs(vault, repo.head)

    def test_replaced_objects_are_ignored(self, make_vault: MakeVault) -> None:
        """A blob id means its own bytes, even if the repository says otherwise."""
        repo = make_vault(files={"a.md": "original", "b.md": "other"})
        vault = GitVault.open(repo.path)
        ids = {entry.path.id: entry.blob_id for entry in vault.tree(repo.head)}
        repo.git("replace", ids["a.md"], ids["b.md"])

        assert [(ids["a.md"], b"original")] == list(vault.read([ids["a.md"]], 100))

    def test_ignore_file(self, make_vault: MakeVault) -> None:
        """The ignore file is read from the commit at the vault's root, and refused where it is odd."""
        repo = make_vault(files={"a.md": "a"})
        none = repo.head
        repo.write(".vaultmemoryignore", "private/\n")
        some = repo.commit()
        repo.write(".vaultmemoryignore", b"x" * (adapter.MAX_IGNORE_FILE_BYTES + 1))
        large = repo.commit()
        repo.delete(".vaultmemoryignore")
        (repo.path / ".vaultmemoryignore").symlink_to("a.md")
        link = repo.commit()
        vault = GitVault.open(repo.path)

        assert vault.ignore_file(none) is None
        assert b"private/\n" == vault.ignore_file(some)
        with pytest.raises(VaultError, match="larger than"):
            vault.ignore_file(large)
        with pytest.raises(VaultError, match="not a regular file"):
            vault.ignore_file(link)


class TestRepositories:
    """Every kind of repository a vault may live in."""

    def test_a_folder_of_a_repository(self, make_vault: MakeVault) -> None:
        """Only the folder counts, and paths are relative to it."""
        repo = make_vault(
            files={"out.md": "1", "my notes/in.md": "2", "my notes 2/no.md": "3", ".vaultmemoryignore": "x"}
        )
        first = repo.head
        repo.rename("my notes/in.md", "my notes/deep/in.md")
        repo.rename("out.md", "out2.md")
        repo.write("my notes/.vaultmemoryignore", "y")
        second = repo.commit()
        vault = GitVault.open(repo.path / "my notes")

        assert [b"in.md"] == [entry.path.raw for entry in vault.tree(first)]
        assert [b"deep/in.md"] == names(vault)
        assert {"deep/in.md"} == vault.tracked_blobs(second, ["deep/in.md", "out2.md", "in.md"]).keys()
        assert {b"deep/in.md": b"in.md"} == vault.renames(first, second)
        assert (None, b"y") == (vault.ignore_file(first), vault.ignore_file(second))

    def test_a_folder_through_a_link(self, make_vault: MakeVault, tmp_path: Path) -> None:
        """A vault that is named through a symbolic link is the folder the link names."""
        repo = make_vault(files={"notes/a.md": "a"})
        (tmp_path / "link").symlink_to(repo.path / "notes")

        assert [b"a.md"] == names(GitVault.open(tmp_path / "link"))

    def test_bare(self, make_vault: MakeVault, tmp_path: Path) -> None:
        """A bare repository is a vault."""
        repo = make_vault(files={"a.md": "a"})
        repo.git("clone", "-q", "--bare", str(repo.path), str(tmp_path / "bare"))

        assert {b"a.md": b"a"} == blobs(GitVault.open(tmp_path / "bare"), repo.head)

    def test_a_bare_repository_inside_a_work_tree_is_refused(self, make_vault: MakeVault) -> None:
        """Notes cannot make their folder a repository of its own by being named HEAD, objects and refs."""
        repo = make_vault(files={"notes/HEAD": "ref: refs/heads/x", "notes/objects/x": "", "notes/refs/x": ""})

        with pytest.raises(VaultError, match="bare repository inside"):
            GitVault.open(repo.path / "notes")
        with pytest.raises(VaultError, match="bare repository inside"):
            GitVault.open(repo.path / ".git")
        with pytest.raises(VaultError, match="part of git's own folder"):
            GitVault.open(repo.path / ".git/refs")

    def test_worktree_and_git_file(self, make_vault: MakeVault, tmp_path: Path) -> None:
        """A linked worktree has its own HEAD; a separate git directory is found through the ``.git`` file."""
        repo = make_vault(files={"a.md": "a"})
        repo.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
        (tmp_path / "side/b.md").write_text("b")
        side = VaultRepo(tmp_path / "side", commits=1)
        side.commit()
        repo.git("clone", "-q", "--separate-git-dir", str(tmp_path / "elsewhere"), str(repo.path), str(tmp_path / "c"))

        assert [b"a.md"] == names(GitVault.open(repo.path))
        assert [b"a.md", b"b.md"] == names(GitVault.open(side.path))
        assert [b"a.md"] == names(GitVault.open(tmp_path / "c"))

    def test_submodule_checkout(self, make_vault: MakeVault) -> None:
        """A vault that is a submodule of something (``core.worktree`` is set there) is read."""
        inner = make_vault("inner", {"x.md": "x"})
        outer = make_vault("outer", {"a.md": "a"})
        outer.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner.path), "vault")

        assert [b"x.md"] == names(GitVault.open(outer.path / "vault"))

    def test_detached_head(self, make_vault: MakeVault) -> None:
        """A detached HEAD is a commit like another."""
        repo = make_vault(files={"a.md": "a"})
        first = repo.head
        repo.write("b.md", "b")
        repo.commit()
        repo.git("checkout", "-q", "--detach", first)

        assert first == GitVault.open(repo.path).head()

    def test_unborn_branch(self, make_vault: MakeVault) -> None:
        """A branch without a commit has no HEAD, in a new repository and after ``checkout --orphan``."""
        repo = make_vault()
        assert GitVault.open(repo.path).head() is None

        repo.write("a.md", "a")
        repo.commit()
        repo.git("checkout", "-q", "--orphan", "other")
        assert GitVault.open(repo.path).head() is None

    @pytest.mark.parametrize("content", [b"", b"garbage\n", b"0" * 40 + b"\n", b"12" * 20 + b"\n"])
    def test_damaged_branch_is_no_empty_vault(self, make_vault: MakeVault, content: bytes) -> None:
        """A branch file that a power cut emptied or that names nothing is an error, not "all notes deleted" (B37)."""
        repo = make_vault(files={"a.md": "a"})
        vault = GitVault.open(repo.path)
        (repo.path / ".git/refs/heads/main").write_bytes(content)

        with pytest.raises(VaultError):
            vault.head()

    def test_damaged_head_is_no_empty_vault(self, make_vault: MakeVault) -> None:
        """A HEAD file with garbage is an error as well."""
        repo = make_vault(files={"a.md": "a"})
        vault = GitVault.open(repo.path)
        (repo.path / ".git/HEAD").write_bytes(b"")

        with pytest.raises(VaultError):
            vault.head()

    def test_sha256(self, make_vault: MakeVault) -> None:
        """A SHA-256 repository works, with ids of 64 digits."""
        repo = make_vault(object_format="sha256")
        repo.write("a.md", "a")
        first = repo.commit()
        repo.rename("a.md", "b.md")
        second = repo.commit()
        vault = GitVault.open(repo.path)

        assert 64 == len(second)
        assert second == vault.head()
        assert {b"b.md": b"a"} == blobs(vault, second)
        assert {b"b.md": b"a.md"} == vault.renames(first, second)

    def test_shallow_clone_without_its_base(self, make_vault: MakeVault, tmp_path: Path) -> None:
        """In a shallow clone the older commit is gone, and said to be gone (B43)."""
        repo = make_vault(files={"a.md": "a"})
        first = repo.head
        repo.write("b.md", "b")
        second = repo.commit()
        repo.git("clone", "-q", "--depth=1", f"file://{repo.path}", str(tmp_path / "shallow"))
        vault = GitVault.open(tmp_path / "shallow")

        assert second == vault.head()
        assert (False, True) == (vault.exists(first), vault.exists(second))
        assert vault.count_between(first, second) is None
        for ask in (
            vault.tree,
            vault.commit_time,
            vault.author_time,
            vault.ignore_file,
            lambda gone: vault.renames(gone, second),
        ):
            with pytest.raises(CommitGoneError, match=first):
                ask(first)

    def test_amended_and_collected_base(self, make_vault: MakeVault) -> None:
        """After amend and gc the base is gone, and nothing else breaks (B43)."""
        repo = make_vault(files={"a.md": "a"})
        first = repo.head
        repo.write("a.md", "b")
        second = repo.commit(amend=True)
        repo.git("reflog", "expire", "--expire=now", "--all")
        repo.git("gc", "-q", "--prune=now")
        vault = GitVault.open(repo.path)

        with pytest.raises(CommitGoneError):
            vault.renames(first, second)
        assert {b"a.md": b"b"} == blobs(vault, second)

    def test_partial_clone_fetches_nothing(self, make_vault: MakeVault, tmp_path: Path) -> None:
        """A blob that a partial clone left out is an error; it is not fetched behind the user's back."""
        repo = make_vault(files={"a.md": "a"})
        repo.git("config", "uploadpack.allowFilter", "true")
        clone = tmp_path / "partial"
        repo.git("clone", "-q", "--no-checkout", "--filter=blob:none", f"file://{repo.path}", str(clone))
        vault = GitVault.open(clone)
        (entry,) = vault.tree(repo.head)

        ((_, answer),) = vault.read([entry.blob_id], 100)

        assert isinstance(answer, BlobError)
        assert "partial clone" in str(answer)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a repository away")
    def test_a_repository_of_somebody_else(self, make_vault: MakeVault) -> None:
        """A vault that another user owns is read, since its owner here named it."""
        repo = make_vault(files={"notes/a.md": "a"})
        for file in (repo.path, *repo.path.rglob("*")):
            os.chown(file, 12345, 12345)

        assert {b"notes/a.md": b"a"} == blobs(GitVault.open(repo.path), GitVault.open(repo.path).head() or "")
        assert [b"a.md"] == names(GitVault.open(repo.path / "notes"))


class TestRefusals:
    """One line that says what is wrong."""

    def test_no_such_folder(self, tmp_path: Path) -> None:
        """A folder that does not exist is named."""
        with pytest.raises(VaultError, match=r"nowhere does not exist$"):
            GitVault.open(tmp_path / "nowhere")

    def test_a_file(self, tmp_path: Path) -> None:
        """A file is no vault."""
        (tmp_path / "file").touch()
        with pytest.raises(VaultError, match="is not a folder"):
            GitVault.open(tmp_path / "file")

    def test_no_repository(self, tmp_path: Path) -> None:
        """A folder outside any repository gets the commands that make one."""
        with pytest.raises(VaultError, match="not in a git repository; run: git init"):
            GitVault.open(tmp_path)

    def test_a_broken_repository_is_not_walked_past(self, make_vault: MakeVault) -> None:
        """With a damaged ``.git`` the repository further up is not taken in its place."""
        repo = make_vault(files={"vault/a.md": "a"})
        (repo.path / "vault/.git").mkdir()

        with pytest.raises(VaultError, match="not a git repository that this git can read"):
            GitVault.open(repo.path / "vault")

    def test_git_missing(self, make_vault: MakeVault, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Without git on PATH the message says so, also when git vanishes later."""
        repo = make_vault(files={"a.md": "a"})
        vault = GitVault.open(repo.path)
        monkeypatch.setenv("PATH", str(tmp_path))

        with pytest.raises(VaultError, match="git is not installed"):
            GitVault.open(repo.path)
        with pytest.raises(VaultError, match="git is not installed"):
            list(vault.read(["0" * 40], 10))

    def test_git_too_old(self, make_vault: MakeVault, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """An old git is refused with both versions."""
        repo = make_vault(files={"a.md": "a"})
        script = tmp_path / "git"
        script.write_text("#!/bin/sh\necho 'git version 2.37.9 (Somebody Git-1)'\n")
        script.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))

        with pytest.raises(VaultError, match=r"git 2\.38 or newer is needed; this one is 2\.37"):
            GitVault.open(repo.path)

    def test_git_in_the_vault_is_not_run(
        self, make_vault: MakeVault, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """A relative entry in PATH does not make a program called ``git`` among the notes run."""
        repo = make_vault(files={"a.md": "a", "git": f"#!/bin/sh\ntouch {tmp_path}/ran\n"})
        (repo.path / "git").chmod(0o755)
        head = repo.head
        monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
        monkeypatch.chdir(repo.path)

        assert head == GitVault.open(Path()).head()
        assert not (tmp_path / "ran").exists()

    def test_a_hanging_git_is_ended(
        self, make_vault: MakeVault, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """A git that does not answer is killed and reaped, in single calls and in the middle of reading."""
        repo = make_vault(files={"a.md": "a"})
        vault = GitVault.open(repo.path)
        script = tmp_path / "git"
        script.write_text(f"#!/bin/sh\necho $$ >> {tmp_path}/pids\nexec sleep 100\n")
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setattr(adapter, "_TIMEOUT_SECONDS", 0.3)

        with pytest.raises(VaultError, match="did not answer"):
            vault.head()
        with pytest.raises(VaultError, match="did not answer"):
            list(vault.read(["0" * 40], 10))
        pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
        assert 2 == len(pids)
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)

    @pytest.mark.parametrize("commit", ["HEAD", "--all", "", "main", "0" * 39, "A" * 40, "0" * 40 + "\n"])
    def test_only_full_ids_are_taken(self, make_vault: MakeVault, commit: str) -> None:
        """Names, options and abbreviations are not commits."""
        vault = GitVault.open(make_vault(files={"a.md": "a"}).path)

        assert vault.exists(commit) is False
        with pytest.raises(VaultError, match="full hexadecimal id"):
            vault.tree(commit)
        with pytest.raises(VaultError, match="full hexadecimal id"):
            list(vault.read([commit], 10))


class TestRead:
    """Many blobs through one process."""

    def test_order_duplicates_and_sizes(self, make_vault: MakeVault) -> None:
        """Answers come in the order of the questions; too large ones are None and leave the rest in step."""
        sizes = [0, 1, 99, 100, 101, 65_535, 65_536, 65_537, 3_000_000]
        repo = make_vault(files={f"{size:08d}.md": b"\n" * size for size in sizes})
        vault = GitVault.open(repo.path)
        ids = [entry.blob_id for entry in vault.tree(repo.head)]

        assert [(i, None if s > 100 else b"\n" * s) for i, s in zip(ids, sizes, strict=True)] * 3 == list(
            vault.read(ids * 3, 100)
        )
        assert sizes == [len(data or b"") for _, data in vault.read(ids, 3_000_000)]

    def test_a_large_blob_is_not_held(self, make_vault: MakeVault) -> None:
        """A blob of 64 MB is passed over without growing this process by more than a few."""
        import tracemalloc  # noqa: PLC0415 - slows every other test

        repo = make_vault(files={"a.md": b"\0" * (64 << 20), "b.md": "b"})
        vault = GitVault.open(repo.path)
        ids = [entry.blob_id for entry in vault.tree(repo.head)]
        tracemalloc.start()
        try:
            assert [None, b"b"] == [data for _, data in vault.read(ids, 1 << 20)]
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
        finally:
            tracemalloc.stop()

    def test_5000_blobs_through_one_process(self, make_vault: MakeVault, monkeypatch: pytest.MonkeyPatch) -> None:
        """Five thousand blobs, some larger than a pipe, take one process."""
        repo = make_vault(files={f"{n}.md": f"{n} " * (1 + (n % 50 == 0) * 30_000) for n in range(5000)})
        vault = GitVault.open(repo.path)
        tree = vault.tree(repo.head)
        started: list[object] = []
        popen = subprocess.Popen

        def count(*args, **kwargs):
            started.append(args)
            return popen(*args, **kwargs)

        monkeypatch.setattr(subprocess, "Popen", count)
        contents = [data for _, data in vault.read((entry.blob_id for entry in tree), 1 << 20)]

        assert 1 == len(started)
        assert [entry.path.stem for entry in tree] == [(data or b"").split()[0].decode() for data in contents]

    def test_a_caller_that_stops_early_leaves_no_process(
        self, make_vault: MakeVault, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Closing the iterator in the middle ends git."""
        repo = make_vault(files={f"{number}.md": b"x" * 200_000 + b"%d" % number for number in range(40)})
        vault = GitVault.open(repo.path)
        tree = vault.tree(repo.head)
        started: list[subprocess.Popen[bytes]] = []
        popen = subprocess.Popen

        def remember(*args: Any, **kwargs: Any) -> Any:
            started.append(popen(*args, **kwargs))
            return started[-1]

        monkeypatch.setattr(subprocess, "Popen", remember)
        reading = vault.read((entry.blob_id for entry in tree), 1 << 20)
        next(reading)
        reading.close()

        # Other tests of this process may have children of their own; this one's was waited for.
        assert [True] == [process.returncode is not None for process in started]

    def test_nothing_to_read_starts_nothing(self, make_vault: MakeVault, monkeypatch: pytest.MonkeyPatch) -> None:
        """No blobs, no process."""
        vault = GitVault.open(make_vault(files={"a.md": "a"}).path)
        monkeypatch.setenv("PATH", "/nonexistent")

        assert [] == list(vault.read([], 10))

    def test_missing_and_wrong_objects(self, make_vault: MakeVault) -> None:
        """A missing object and a commit in a blob's place are errors that stand beside the id, and hide no other."""
        repo = make_vault(files={"a.md": "a"})
        vault = GitVault.open(repo.path)
        (good,) = (entry.blob_id for entry in vault.tree(repo.head))

        answers = list(vault.read(["0" * 40, good, repo.head, good], 10))

        assert [(good, b"a"), (good, b"a")] == answers[1::2]
        assert ["0" * 40, repo.head] == [blob_id for blob_id, _ in answers[::2]]
        assert [
            "its content is not in the repository (a partial clone?); run: git fsck",
            "its content is not a blob; run: git fsck",
        ] == [str(error) for _, error in answers[::2]]
        assert all(isinstance(error, BlobError) for _, error in answers[::2])

    def test_damaged_blob(self, make_vault: MakeVault) -> None:
        """A blob whose object file is damaged is an error, not half a note."""
        repo = make_vault(files={"a.md": os.urandom(5000), "b.md": "b"})
        vault = GitVault.open(repo.path)
        damaged, good = (entry.blob_id for entry in vault.tree(repo.head))
        file = repo.path / ".git/objects" / damaged[:2] / damaged[2:]
        file.chmod(0o644)
        file.write_bytes(file.read_bytes()[:2000])

        answers = list(vault.read([good, damaged, good, damaged, good], 1 << 20))

        assert [(good, b"b")] * 3 == answers[::2]
        assert [damaged] * 2 == [blob_id for blob_id, _ in answers[1::2]]
        assert all(isinstance(error, BlobError) for _, error in answers[1::2])
        assert {"git cannot read its content: damaged, or left out by a partial clone; run: git fsck"} == {
            str(error) for _, error in answers[1::2]
        }


class TestHistory:
    """Commits and what lies between them."""

    def test_renames(self, make_vault: MakeVault) -> None:
        """A moved note is recognised with an edit, and with any name."""
        text = "".join(f"line {number}\n" for number in range(50))
        repo = make_vault(files={"笔记 一.md": text, "b.md": "other", "same.md": "same"})
        first = repo.head
        repo.delete("笔记 一.md")
        repo.write("new\nname.md", text + "one more\n")
        repo.rename("b.md", "c.md")
        second = repo.commit()

        expected = {b"new\nname.md": "笔记 一.md".encode(), b"c.md": b"b.md"}
        assert expected == GitVault.open(repo.path).renames(first, second)

    def test_renames_need_no_sound_index(self, make_vault: MakeVault) -> None:
        """Git's index, which an editor may be writing, plays no part."""
        repo = make_vault(files={"a.md": "some text"})
        first = repo.head
        repo.rename("a.md", "b.md")
        second = repo.commit()
        (repo.path / ".git/index").write_bytes(b"broken")

        assert {b"b.md": b"a.md"} == GitVault.open(repo.path).renames(first, second)

    def test_configuration_does_not_change_answers(self, make_vault: MakeVault) -> None:
        """Settings about colour, order, quoting and renames do not reach us."""
        repo = make_vault(files={"é.md": "some text", "z.md": "z"})
        first = repo.head
        repo.rename("é.md", "ü.md")
        second = repo.commit()
        for name, value in {
            "color.ui": "always",
            "diff.orderFile": "/nonexistent",
            "diff.renames": "false",
            "diff.relative": "true",
            "diff.noprefix": "true",
            "core.quotePath": "true",
            "core.abbrev": "4",
            "log.date": "relative",
            "log.decorate": "full",
            "log.showRoot": "false",
            "format.pretty": "oneline",
        }.items():
            repo.git("config", name, value)
        vault = GitVault.open(repo.path)

        assert {"ü.md".encode(): "é.md".encode()} == vault.renames(first, second)
        assert {b"z.md": b"z", "ü.md".encode(): b"some text"} == blobs(vault, second)
        assert 1 == vault.count_between(first, second)
        assert datetime.fromtimestamp(FIRST_COMMIT_SECONDS, UTC) == vault.commit_time(first)

    def test_author_time(self, make_vault: MakeVault) -> None:
        """The author's date is not the committer's: an amend leaves it as it was."""
        repo = make_vault(files={"a.md": "a"})
        text = repo.git("cat-file", "commit", "HEAD").replace(f"{FIRST_COMMIT_SECONDS} +0000", "1700000000 +0000", 1)
        amended = repo.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=text.encode() + b"\n")
        vault = GitVault.open(repo.path)
        assert 1700000000 == vault.author_time(amended).timestamp()
        assert FIRST_COMMIT_SECONDS == vault.commit_time(amended).timestamp()

    def test_count_between(self, make_vault: MakeVault) -> None:
        """Commits are counted forwards, over merges; unrelated histories have no count."""
        repo = make_vault(files={"a.md": "a"})
        first = repo.head
        repo.git("checkout", "-q", "-b", "side")
        repo.write("b.md", "b")
        side = repo.commit()
        repo.git("checkout", "-q", "main")
        repo.write("c.md", "c")
        second = repo.commit()
        repo.git("merge", "-q", "--no-ff", "-m", "m", "side")
        merged = repo.head
        repo.git("checkout", "-q", "--orphan", "other")
        orphan = repo.commit("other")
        vault = GitVault.open(repo.path)

        assert 0 == vault.count_between(first, first)
        assert 1 == vault.count_between(first, second)
        assert 3 == vault.count_between(first, merged)
        assert 0 == vault.count_between(merged, first)
        assert 1 == vault.count_between(side, second)
        assert vault.count_between(first, orphan) is None
        assert vault.count_between("1" * 40, first) is None

    def test_absurd_commit_time(self, make_vault: MakeVault) -> None:
        """A commit from the year 300,000 does not stop anything."""
        repo = make_vault(files={"a.md": "a"})
        text = repo.git("cat-file", "commit", "HEAD").replace(f"{FIRST_COMMIT_SECONDS} +0000", "9999999999999 +0000")
        odd = repo.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=text.encode() + b"\n")

        assert GitVault.open(repo.path).commit_time(odd).year in {1970, 9999}


def exercise(repo: VaultRepo, vault_path: Path, commits: tuple[str, str]) -> None:
    """Call every public method once, with arguments that make each do its work."""
    vault = GitVault.open(vault_path)
    assert commits[1] == vault.head()
    tree = vault.tree(commits[1])
    assert {entry.path.id for entry in tree} == vault.tracked_blobs(commits[1], [e.path.id for e in tree]).keys()
    assert {} == vault.tracked_blobs(commits[1], ["gone.md"])
    assert {b"renamed.md": b"old.md"} == vault.renames(*commits)
    assert b"x/\n" == vault.ignore_file(commits[1])
    assert len(tree) == len(list(vault.read([entry.blob_id for entry in tree], 1000)))
    assert vault.commit_time(commits[1]) > vault.commit_time(commits[0])
    assert vault.author_time(commits[1]) > vault.author_time(commits[0])
    assert vault.exists(commits[0])
    assert 1 == vault.count_between(*commits)


# One driver a file: a filter process or a diff command hides the other ways to run something.
ATTRIBUTES = """\
*.md diff=evil filter=evil merge=evil
piped.md filter=piped
driven.md diff=driven
plain.md -diff -filter
"""
TEXT = "".join(f"line {number}\n" for number in range(20))


def two_commits(repo: VaultRepo) -> tuple[str, str]:
    """Make the history that ``exercise`` wants."""
    repo.write("old.md", TEXT)
    for name in ("edited", "piped", "driven", "plain"):
        repo.write(f"{name}.md", TEXT)
    repo.write(".vaultmemoryignore", "x/\n")
    repo.write(".gitattributes", ATTRIBUTES)
    first = repo.commit()
    repo.delete("old.md")
    repo.write("renamed.md", TEXT + "more\n")
    for name in ("edited", "piped", "driven", "plain"):
        repo.write(f"{name}.md", TEXT + "edit\n")
    return first, repo.commit()


def sign(repo: VaultRepo, commit: str) -> str:
    """Give a commit a signature header, so that git has something to check, and move the branch there."""
    header, _, message = repo.git("cat-file", "commit", commit).partition("\n\n")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n iQ==\n -----END PGP SIGNATURE-----"
    text = f"{header}\n{signature}\n\n{message}\n"
    signed = repo.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=text.encode())
    repo.git("reset", "-q", "--soft", signed)
    return signed


class TestHostileConfiguration:
    """A vault's own configuration must not run anything."""

    @pytest.fixture
    def trap(self, make_vault: MakeVault, tmp_path: Path) -> tuple[VaultRepo, tuple[str, str], Path]:
        """A repository in which every setting that runs a command leaves a file in a folder."""
        repo = make_vault()
        first, second = two_commits(repo)
        commits = (first, sign(repo, second))
        sentinels = tmp_path / "sentinels"
        sentinels.mkdir()

        def command(name: str) -> str:
            script = tmp_path / f"{name}.sh"
            script.write_text(f"#!/bin/sh\ntouch '{sentinels}/{name}'\nexit 1\n")
            script.chmod(0o755)
            return str(script)

        hooks = tmp_path / "hooks"
        hooks.mkdir()
        for hook in ("post-checkout", "pre-commit", "post-index-change", "reference-transaction", "fsmonitor-watchman"):
            Path(command(f"hook-{hook}")).rename(hooks / hook)
            shutil.copy(hooks / hook, repo.path / ".git/hooks" / hook)
        included = tmp_path / "included"
        included.write_text(
            f"[core]\n\tfsmonitor = {command('included-fsmonitor')}\n"
            f'[diff "evil"]\n\ttextconv = {command("textconv")}\n'
            f"[gpg]\n\tprogram = {command('gpg')}\n[log]\n\tshowSignature = true\n"
        )
        for name, value in {
            "core.hooksPath": str(hooks),
            "diff.external": command("external"),
            "diff.driven.command": command("driver"),
            "filter.evil.clean": command("clean"),
            "filter.evil.smudge": command("smudge"),
            "filter.piped.process": command("process"),
            "merge.evil.driver": command("merge"),
            "core.sshCommand": command("ssh"),
            "core.gitProxy": command("proxy"),
            "core.askPass": command("askpass"),
            "core.pager": command("pager"),
            "pager.log": "true",
            "pager.rev-parse": "true",
            "core.editor": command("editor"),
            "credential.helper": command("credential"),
            "core.alternateRefsCommand": command("alternate-refs"),
            "uploadpack.packObjectsHook": command("pack-objects"),
            "interactive.diffFilter": command("diff-filter"),
            "gpg.ssh.program": command("ssh-sign"),
            "gpg.x509.program": command("x509"),
            "trailer.x.command": command("trailer"),
            "sequence.editor": command("sequence"),
            # A partial clone whose remote is a command.
            "core.repositoryFormatVersion": "1",
            "extensions.partialClone": "origin",
            "remote.origin.promisor": "true",
            "remote.origin.url": f"ext::{command('remote')}",
            "protocol.ext.allow": "always",
            "protocol.allow": "always",
        }.items():
            repo.git("config", name, value)
        for name in ("rev-parse", "ls-tree", "diff-tree", "cat-file", "log", "merge-base"):
            repo.git("config", f"alias.{name}", f"!{command(f'alias-{name}')}")
        # Last, since they run under `git config`'s successors already.
        repo.git("config", "include.path", str(included))
        with (repo.path / ".git/config").open("a") as config:
            config.write(f"[core]\n\tfsmonitor = {command('fsmonitor')}\n")
        for file in sentinels.iterdir():
            file.unlink()
        return repo, commits, sentinels

    def test_no_method_runs_anything(self, trap: tuple[VaultRepo, tuple[str, str], Path]) -> None:
        """No sentinel appears under any public method, and the repository is not written."""
        repo, commits, sentinels = trap
        before = {file: file.lstat().st_mtime_ns for file in repo.path.rglob("*")}

        exercise(repo, repo.path, commits)

        assert [] == [file.name for file in sentinels.iterdir()]
        assert before == {file: file.lstat().st_mtime_ns for file in repo.path.rglob("*")}

    def test_a_missing_blob_runs_no_remote(self, trap: tuple[VaultRepo, tuple[str, str], Path]) -> None:
        """In a partial clone whose remote is a command, a missing blob or commit runs nothing."""
        repo, commits, sentinels = trap
        vault = GitVault.open(repo.path)
        (blob_id,) = vault.tracked_blobs(commits[0], ["old.md"]).values()
        (repo.path / ".git/objects" / blob_id[:2] / blob_id[2:]).unlink()

        ((_, answer),) = vault.read([blob_id], 1000)
        assert isinstance(answer, BlobError)
        with pytest.raises(VaultError):
            vault.renames(*commits)
        assert vault.exists("1" * 40) is False
        assert [] == [file.name for file in sentinels.iterdir()]

    @pytest.mark.parametrize(
        ("command", "sentinel"),
        [
            (["status"], "fsmonitor"),
            (["diff", "HEAD~1", "HEAD", "--", "plain.md"], "external"),
            (["diff", "HEAD~1", "HEAD", "--", "driven.md"], "driver"),
            (["diff", "--no-ext-diff", "HEAD~1", "HEAD", "--", "edited.md"], "textconv"),
            (["log", "-1"], "gpg"),
            (["cat-file", "-e", "1" * 40], "remote"),
            (["add", "--renormalize", "edited.md"], "clean"),
            (["add", "--renormalize", "piped.md"], "process"),
            (["cat-file", "--filters", "HEAD:edited.md"], "smudge"),
            (["update-ref", "refs/heads/other", "HEAD"], "hook-reference-transaction"),
        ],
    )
    def test_the_trap_works(
        self, trap: tuple[VaultRepo, tuple[str, str], Path], command: list[str], sentinel: str
    ) -> None:
        """Control: plain git does run what the configuration names, so an empty folder means something."""
        repo, _, sentinels = trap
        subprocess.run(
            ["git", *command],
            cwd=repo.path,
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull},
            timeout=30,
        )

        assert sentinel in {file.name for file in sentinels.iterdir()}


class TestSurroundings:
    """The caller's environment plays no part."""

    @pytest.mark.parametrize("relative", [True, False])
    def test_called_from_a_hook_of_another_repository(
        self, make_vault: MakeVault, monkeypatch: pytest.MonkeyPatch, *, relative: bool
    ) -> None:
        """With GIT_DIR and its kin exported by an outer git, the vault is read and the outer one untouched (B44)."""
        outer = make_vault("outer", {"outer.md": "outer"})
        repo = make_vault()
        commits = two_commits(repo)
        git_dir = ".git" if relative else str(outer.path / ".git")
        monkeypatch.chdir(outer.path)
        for name, value in {
            "GIT_DIR": git_dir,
            "GIT_INDEX_FILE": f"{git_dir}/index",
            "GIT_WORK_TREE": str(outer.path),
            "GIT_OBJECT_DIRECTORY": f"{git_dir}/objects",
            "GIT_COMMON_DIR": git_dir,
            "GIT_PREFIX": "x/",
            "GIT_NAMESPACE": "other",
            "GIT_CONFIG_PARAMETERS": "'core.bare=true'",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "core.quotePath",
            "GIT_CONFIG_VALUE_0": "true",
            "GIT_EXTERNAL_DIFF": "false",
            "GIT_ICASE_PATHSPECS": "1",
            "GIT_TRACE": str(outer.path / "trace"),
            "GIT_TRACE2_EVENT": str(outer.path / "trace2"),
        }.items():
            monkeypatch.setenv(name, value)
        before = (outer.path / ".git/index").read_bytes()

        exercise(repo, repo.path, commits)

        assert before == (outer.path / ".git/index").read_bytes()
        assert {".git", "outer.md"} == {file.name for file in outer.path.iterdir()}


@pytest.mark.parametrize("make", [lambda repo: repo.path, lambda repo: repo.path / ".git/.."], ids=["plain", "dots"])
def test_ids_are_deterministic(make_vault: MakeVault, make: Callable[[VaultRepo], Path]) -> None:
    """The fixture's commits have the same ids on every machine, and a path with dots names the same vault."""
    repo = make_vault(files={"a.md": "a"})

    assert GitVault.open(make(repo)).head() == repo.head
    assert "8f21e3cb8ae7a63d9eb7c8abfadf5a656a3bcff5" == repo.head
