"""A plain folder as a source: what is read, what is refused, and that nothing is taken for deleted."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from vault_memory.adapters import beneath, directory
from vault_memory.adapters.directory import DirectorySource, blob_id
from vault_memory.errors import BlobError, CommitGoneError, IgnoreFileError, VaultError
from vault_memory.notes.model import EntryKind
from vault_memory_tests.fixtures.sessions import SECRET
from vault_memory_tests.fixtures.vault import VaultRepo

NOBODY = 65534
KEY = b"k" * 32


def source(path: Path, **values: object) -> DirectorySource:
    """Open a folder with a key, as an installation does."""
    return DirectorySource.open(path, secret=lambda: KEY, **values)  # type: ignore[arg-type]


def files(found: DirectorySource) -> dict[str, str]:
    """Return the regular files of the folder as it is now."""
    head = found.head()
    entries = found.tree(head) if head else ()
    return {entry.path.id: entry.blob_id for entry in entries if entry.kind is EntryKind.FILE}


def content(found: DirectorySource, wanted: str) -> bytes | BlobError | None:
    """Read one content."""
    ((_, data),) = found.read([wanted], 1_000_000)
    return data


def write(path: Path, text: str, *, age_seconds: float = 0) -> Path:
    """Write a file, perhaps with an old time of modification."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    if age_seconds:
        then = time.time() - age_seconds
        os.utime(path, (then, then))
    return path


@contextmanager
def an_ordinary_user() -> Iterator[None]:
    """Give up root's rights for a block: permissions mean nothing to root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return an empty folder that an ordinary user may look into, as pytest's own may be root's alone."""
    with TemporaryDirectory(prefix="vault-memory-test-") as made:
        Path(made).chmod(0o755)
        path = Path(made) / "folder"
        path.mkdir()
        yield path


def test_contents_are_called_as_git_calls_them(folder: Path, make_vault: Callable[..., VaultRepo]) -> None:
    """The same note has the same id in a repository and in a folder."""
    vault = make_vault(files={"a.md": "# Ä\n\nText.\n"})
    write(folder / "a.md", "# Ä\n\nText.\n")
    assert vault.git("rev-parse", "HEAD:a.md").strip() == files(source(folder))["a.md"]


def test_only_markdown_in_folders_that_are_not_hidden(folder: Path) -> None:
    """Hidden names, other files and what file systems keep for themselves are left out."""
    for name in ("a.md", "b/c.MARKDOWN", "b/d.txt", ".git/e.md", ".obsidian/f.md", ".trash/g.md", ".h.md",
                 "lost+found/i.md", "ö/ü.md"):  # fmt: skip
        write(folder / name, name)
    assert ["a.md", "b/c.MARKDOWN", "ö/ü.md"] == sorted(files(source(folder)))


def test_the_state_has_a_name_that_only_changes_with_the_folder(folder: Path) -> None:
    """Equal states have equal names, for every object; another content, name, kind or ignore file gives another."""
    write(folder / "a.md", "one")
    names = [source(folder).head(), source(folder).head()]
    assert names[0] == names[1]
    assert len(names[0] or "") == 40
    write(folder / "a.md", "two")
    names.append(source(folder).head())
    (folder / "a.md").rename(folder / "b.md")
    names.append(source(folder).head())
    write(folder / ".vaultmemoryignore", "x/")
    names.append(source(folder).head())
    (folder / "link.md").symlink_to("b.md")
    names.append(source(folder).head())
    assert 5 == len(set(names))


def test_the_name_of_a_state_depends_on_the_key(folder: Path) -> None:
    """Nobody without the key can test a guess of a note by the state that the database records."""
    write(folder / "a.md", "one")
    assert source(folder).head() != DirectorySource.open(folder, secret=lambda: b"another").head()


def test_an_empty_folder_has_no_state(folder: Path) -> None:
    """What a drive that is not mounted leaves behind is no state in which every note was deleted."""
    found = source(folder)
    assert found.head() is None
    write(folder / "a.txt", "no note")
    assert found.head() is None


def test_a_state_that_is_gone_is_said_to_be(folder: Path) -> None:
    """A name that this object has not seen gives an error, not an empty tree."""
    write(folder / "a.md", "one")
    with pytest.raises(CommitGoneError):
        source(folder).tree("0" * 40)
    assert not source(folder).exists("0" * 40)


def test_an_older_state_is_remembered_for_the_steps_of_a_run(folder: Path) -> None:
    """The tree of the state that a run began with is still known after the folder changed."""
    write(folder / "a.md", "one")
    found = source(folder)
    first = found.head() or ""
    write(folder / "b.md", "two")
    second = found.head() or ""
    assert ["a.md"] == [entry.path.id for entry in found.tree(first)]
    assert {"a.md", "b.md"} == found.tracked_blobs(second, ["a.md", "b.md", "c.md"]).keys()
    assert found.exists(first)


def test_content_is_given_if_it_still_has_its_hash(folder: Path) -> None:
    """A file that changed since it was listed is an error, under either content; a copy elsewhere serves."""
    write(folder / "a.md", "one")
    found = source(folder)
    wanted = files(found)["a.md"]
    assert b"one" == content(found, wanted)
    write(folder / "a.md", "two")
    assert isinstance(content(found, wanted), BlobError)
    write(folder / "b.md", "one")
    assert {"a.md": blob_id(b"two"), "b.md": wanted} == files(found)
    assert b"one" == content(found, wanted)


def test_a_large_file_is_listed_and_never_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sparse file of a terabyte costs a stat; it is quarantined as too large."""
    with (folder / "a.md").open("wb") as file:
        file.truncate(2**40)
    found = source(folder, max_bytes=1000)
    monkeypatch.setattr(beneath, "_read", lambda *_: pytest.fail("it was read"))
    assert content(found, files(found)["a.md"]) is None


def test_the_ignore_file_is_read_from_the_top(folder: Path) -> None:
    """The bytes of the state; a link or a folder in its place is an error, since its rules are not known."""
    write(folder / "a.md", "one")
    found = source(folder)
    assert found.ignore_file(found.head() or "") is None
    write(folder / ".vaultmemoryignore", "x/\n")
    assert b"x/\n" == found.ignore_file(found.head() or "")
    for make in (lambda path: path.symlink_to("/etc/hostname"), Path.mkdir, os.mkfifo):
        (folder / ".vaultmemoryignore").unlink()
        make(folder / ".vaultmemoryignore")
        with pytest.raises(IgnoreFileError):
            found.ignore_file(found.head() or "")
        if (folder / ".vaultmemoryignore").is_dir() and not (folder / ".vaultmemoryignore").is_symlink():
            (folder / ".vaultmemoryignore").rmdir()
            (folder / ".vaultmemoryignore").touch()


@pytest.mark.parametrize("case", ["missing", "file", "unreadable", "subfolder"])
def test_a_folder_that_cannot_be_read_is_an_error_in_one_line(folder: Path, case: str) -> None:
    """Nothing is listed without it: that would look as if its notes had been deleted."""
    write(folder / "a.md", "one")
    write(folder / "deep/er/b.md", "two")
    with an_ordinary_user():
        found = source(folder)
    if case in ("missing", "file"):
        folder.rename(folder.with_name("elsewhere"))
        if case == "file":
            folder.write_text("no folder")
    else:
        (folder if case == "unreadable" else folder / "deep/er").chmod(0)
    with an_ordinary_user(), pytest.raises(VaultError, match="nothing was changed") as raised:
        found.head()
    with suppress(OSError):
        (folder if case == "unreadable" else folder / "deep/er").chmod(0o755)
    assert "\n" not in str(raised.value)


def test_a_file_that_cannot_be_read_is_not_taken_for_deleted(folder: Path) -> None:
    """It stays listed, under an id whose content is an error: its note fails, and its rows stay."""
    write(folder / "a.md", "one").chmod(0)
    write(folder / "b.md", "two")
    with an_ordinary_user():
        found = source(folder)
        listed = files(found)
        assert isinstance(content(found, listed["a.md"]), BlobError)
        assert b"two" == content(found, listed["b.md"])


def test_names_of_every_kind_stay_one_line_in_errors(folder: Path) -> None:
    """A folder's name is shown escaped, and not at all where it holds a secret."""
    for name in ("line\nbreak\x1b[31m", SECRET):
        (folder / name).mkdir()
        (folder / name).chmod(0)
        with an_ordinary_user(), pytest.raises(VaultError) as raised:
            source(folder).head()
        (folder / name).chmod(0o755)
        (folder / name).rmdir()
        assert str(raised.value).isprintable()
        assert SECRET not in str(raised.value)


def test_another_file_system_inside_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is mounted inside would seem deleted in a moment when it is not mounted."""
    write(folder / "mounted/a.md", "one")
    real = os.fstat
    mounted = (folder / "mounted").stat().st_ino

    def fstat(descriptor: int) -> os.stat_result:
        about = real(descriptor)
        if about.st_ino != mounted:
            return about
        values = list(about)
        values[2] += 1
        return os.stat_result(values)

    found = source(folder)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fstat", fstat)
        with pytest.raises(VaultError, match="another file system"):
            found.head()


def test_links_pipes_and_sockets_are_listed_as_what_they_are(folder: Path) -> None:
    """None is opened: a pipe would block, a link would lead out."""
    outside = write(folder.parent / "outside.md", "outside")
    (folder / "link.md").symlink_to(outside)
    (folder / "loop.md").symlink_to("loop.md")
    (folder / "folder.md").symlink_to(folder.parent)
    (folder / "hidden way").symlink_to(folder.parent)
    os.link(outside, folder / "hard.md")
    os.mkfifo(folder / "pipe.md")
    here = Path.cwd()
    with socket.socket(socket.AF_UNIX) as bound:
        os.chdir(folder)  # a socket's name may have 107 bytes
        try:
            bound.bind("socket.md")
        finally:
            os.chdir(here)
    found = source(folder)
    kinds = {entry.path.id: entry.kind.value for entry in found.tree(found.head() or "")}
    links = dict.fromkeys(("link.md", "loop.md", "folder.md"), "symlink")
    assert {**links, "hard.md": "hard_link", "pipe.md": "special", "socket.md": "special"} == kinds


def test_a_folder_that_never_rests_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listings that differ every time are not believed: a folder on the move can be missed in both places."""
    write(folder / "a.md", "one")
    real = directory.markdown_files
    count = iter(range(100))

    def restless(root: int, extra: bytes) -> tuple[beneath.Found, ...]:
        write(folder / f"new{next(count)}.md", "new")
        return real(root, extra)

    monkeypatch.setattr(directory, "markdown_files", restless)
    with pytest.raises(VaultError, match="keeps changing"):
        source(folder).head()


def test_a_folder_moved_while_another_is_read_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It went from a place that was not read yet to one that had been: the second listing finds it."""
    for name in ("a/1.md", "m/2.md", "z/3.md"):
        write(folder / name, name)
    real = beneath._opened_folder
    moved: list[int] = []

    @contextmanager
    def opened(parent: int, name: bytes, path: bytes) -> Iterator[int]:
        with real(parent, name, path) as descriptor:
            yield descriptor
        if name == b"a" and not moved:
            moved.append(1)
            (folder / "z").rename(folder / "a" / "z")
            (folder / "z").mkdir()

    monkeypatch.setattr(beneath, "_opened_folder", opened)
    assert ["a/1.md", "a/z/3.md", "m/2.md"] == sorted(files(source(folder)))
    assert moved


class TestCache:
    """What is kept so that unchanged files need not be read."""

    @pytest.fixture
    def reads(self, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
        """Return the paths that are read from now on."""
        seen: list[bytes] = []
        real = directory.read_file

        def read(root: int, raw: bytes, max_bytes: int) -> object:
            seen.append(raw)
            return real(root, raw, max_bytes)

        monkeypatch.setattr(directory, "read_file", read)
        return seen

    @pytest.fixture
    def later(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the clock say that everything was written long ago."""
        real = time.time_ns
        monkeypatch.setattr(directory.time, "time_ns", lambda: real() + 60_000_000_000)

    def test_an_unchanged_folder_is_not_read_again(
        self, folder: Path, tmp_path: Path, reads: list[bytes], later: None
    ) -> None:
        """Not by this object, and not by the next one, which takes what the file kept."""
        write(folder / "a.md", "one")
        file = tmp_path / "home" / "cache"
        found = source(folder, cache_file=file)
        heads = [found.head(), found.head(), source(folder, cache_file=file).head()]
        assert 1 == len(set(heads))
        assert [b"a.md"] == reads
        assert 0o600 == file.stat().st_mode & 0o777

    def test_a_file_changed_a_moment_ago_is_read_again(self, folder: Path, reads: list[bytes]) -> None:
        """Within a tick of the file system's clock it could change again unseen."""
        write(folder / "a.md", "one")
        found = source(folder)
        found.head()
        found.head()
        assert [b"a.md", b"a.md"] == reads

    def test_same_size_and_time_of_modification_do_not_hide_a_change(self, folder: Path, later: None) -> None:
        """The time of change of the file itself cannot be set by anybody."""
        write(folder / "a.md", "one", age_seconds=100)
        found = source(folder)
        before = files(found)["a.md"]
        about = (folder / "a.md").stat()
        time.sleep(0.02)
        write(folder / "a.md", "two")
        os.utime(folder / "a.md", ns=(about.st_atime_ns, about.st_mtime_ns))
        assert about.st_mtime_ns == (folder / "a.md").stat().st_mtime_ns
        assert before != files(found)["a.md"]

    @pytest.mark.parametrize("damage", [b"", b"garbage", None])
    def test_a_damaged_file_or_another_key_counts_as_none(
        self, folder: Path, tmp_path: Path, reads: list[bytes], later: None, damage: bytes | None
    ) -> None:
        """A wrong hash would be believed for good."""
        write(folder / "a.md", "one")
        file = tmp_path / "cache"
        head = source(folder, cache_file=file).head()
        data = file.read_bytes()
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]) if damage is None else damage)
        assert head == source(folder, cache_file=file).head()
        DirectorySource.open(folder, secret=lambda: b"another key", cache_file=file).head()
        assert [b"a.md"] * 3 == reads

    def test_its_file_gives_nothing_away(self, folder: Path, tmp_path: Path, later: None) -> None:
        """Neither names nor hashes nor text."""
        write(folder / "secretive name.md", "one")
        file = tmp_path / "cache"
        (wanted,) = files(source(folder, cache_file=file)).values()
        data = file.read_bytes()
        assert len(data) > 50
        for canary in (b"secretive", b"one", bytes.fromhex(wanted), wanted.encode()):
            assert canary not in data

    def test_what_is_gone_is_forgotten(self, folder: Path, tmp_path: Path, later: None) -> None:
        """The file does not grow with the history of the folder."""
        write(folder / "a.md", "one")
        write(folder / "b.md", "two")
        file = tmp_path / "cache"
        found = source(folder, cache_file=file)
        found.head()
        size = file.stat().st_size
        (folder / "b.md").unlink()
        found.head()
        assert size > file.stat().st_size

    def test_without_a_key_nothing_is_kept(self, folder: Path, tmp_path: Path, later: None) -> None:
        """A first look before there is an installation leaves nothing behind."""
        write(folder / "a.md", "one")
        DirectorySource.open(folder, cache_file=tmp_path / "cache").head()
        assert not (tmp_path / "cache").exists()


class TestBlobsNow:
    """What a query asks: a few notes, as they are at this moment."""

    def test_only_the_notes_asked_for_are_read(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """No listing of the folder."""
        write(folder / "a/b.md", "one")
        write(folder / "c.md", "two")
        monkeypatch.setattr(directory, "markdown_files", lambda *_: pytest.fail("it was listed"))
        assert {"a/b.md": blob_id(b"one")} == source(folder).blobs_now(["a/b.md", "gone.md", "../c.md", "/c.md"])

    def test_either_form_of_an_accent_is_found(self, folder: Path) -> None:
        """MacOS writes two code points; bytes that are no UTF-8 are found by a listing."""
        write(folder / "Cafe\u0301.md", "one")
        (folder / os.fsdecode(b"caf\xe9.md")).write_text("two")
        listed = files(source(folder))
        assert listed == source(folder).blobs_now(listed)

    def test_links_and_pipes_are_no_notes(self, folder: Path) -> None:
        """They count as gone."""
        write(folder / "real/a.md", "one")
        (folder / "a.md").symlink_to("real/a.md")
        (folder / "way").symlink_to("real")
        os.mkfifo(folder / "b.md")
        assert {} == source(folder).blobs_now(["a.md", "way/a.md", "b.md"])


def test_a_file_swapped_for_a_link_never_leaks(folder: Path) -> None:
    """Somebody swaps a note for a link to a file outside while it is read: each read gives the note, or nothing."""
    outside = write(folder.parent / "outside.md", "OUTSIDE")
    write(folder / "in/a.md", "inside")
    spare = write(folder / "spare", "inside")
    (folder.parent / "out").mkdir()
    write(folder.parent / "out/a.md", "OUTSIDE")
    found = source(folder)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            link = folder / "link"
            link.symlink_to(outside)
            os.replace(link, folder / "in/a.md")  # noqa: PTH105 - as quick as it gets
            os.link(spare, folder / "copy")
            (folder / "copy").unlink()
            (folder / "copy").write_text("inside")
            os.replace(folder / "copy", folder / "in/a.md")  # noqa: PTH105 - as above
            (folder / "in").rename(folder / "was")
            (folder / "in").symlink_to(folder.parent / "out")
            (folder / "in").unlink()
            (folder / "was").rename(folder / "in")

    thread = threading.Thread(target=swap)
    thread.start()
    seen: set[str | None] = set()
    try:
        for _ in range(1500):
            seen.add(found.blobs_now(["in/a.md"]).get("in/a.md"))
    finally:
        stop.set()
        thread.join()
    assert {blob_id(b"inside"), None} >= seen
