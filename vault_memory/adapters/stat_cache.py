"""What files held when they were last read, so that a look at a folder reads only what may have changed.

Belongs here: the cache in memory and its file. Does not: looking at files.

The file is of no use without the key: an entry's name is a keyed hash of path, inode, size and times, and the content's
hash in it is masked with another part of the same hash. A bare hash of a quarantined note would let anyone test guesses
of its secret, and its name or size are nobody's business either.

A file that was changed just before it was read may be changed again within the same tick of the file system's clock:
nothing would show it. Such a file is not remembered (git's rule for "racy" entries), so that the next look reads it.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

# Ticks of 10 ms are usual, of 1 s and 2 s (HFS+, FAT) are known.
RACY_NANOSECONDS: Final = 2_000_000_000
_MAGIC: Final = b"vault-memory stat cache 1\n"
_TAG_BYTES: Final = 16
_ID_BYTES: Final = 20
_MAX_FILE_BYTES: Final = 256 * 1024 * 1024

Stat = tuple[int, int, int, int]


class StatCache:
    """Content hashes by path and state of the file.

    Args:
        file: Where it lasts; None: in memory only.
        key: Of the hashes; secret.
    """

    def __init__(self, file: Path | None, key: bytes) -> None:
        self._file = file
        self._key = hashlib.blake2b(key, digest_size=32, person=b"vm-folder-cache").digest()
        self._entries = self._load()
        self._used: dict[bytes, bytes] = {}
        self._is_dirty = False

    def get(self, raw: bytes, stat: Stat) -> str | None:
        """Return the hash of a file's content if the file is as it was when that was known."""
        name, mask = self._digest(raw, stat)
        masked = self._entries.get(name)
        if masked is None:
            return None
        self._used[name] = masked
        return _xor(masked, mask).hex()

    def put(self, raw: bytes, stat: Stat, blob_id: str, *, read_at: int) -> None:
        """Remember the hash of a file's content.

        Args:
            raw: Path of the file.
            stat: Its state before it was read.
            blob_id: Hash of the content.
            read_at: The clock (``time.time_ns``) before it was read.
        """
        _, _, modified, changed = stat
        if max(modified, changed) > read_at - RACY_NANOSECONDS:
            return
        name, mask = self._digest(raw, stat)
        self._entries[name] = self._used[name] = _xor(bytes.fromhex(blob_id), mask)
        self._is_dirty = True

    def finish(self) -> None:
        """End a look at the whole folder: forget what was not asked for, and write the file if there is news."""
        if len(self._used) != len(self._entries):
            self._is_dirty = True
        self._entries, self._used = self._used, {}
        if self._is_dirty and self._file is not None:
            with suppress(OSError):  # it only saves work
                self._save(self._file)
        self._is_dirty = False

    def _digest(self, raw: bytes, stat: Stat) -> tuple[bytes, bytes]:
        text = b"%d %d %d %d " % stat
        digest = hashlib.blake2b(text + raw, key=self._key, digest_size=_TAG_BYTES + _ID_BYTES).digest()
        return digest[:_TAG_BYTES], digest[_TAG_BYTES:]

    def _load(self) -> dict[bytes, bytes]:
        if self._file is None:
            return {}
        try:
            with self._file.open("rb") as file:
                data = file.read(_MAX_FILE_BYTES)
        except OSError:
            return {}
        head = len(_MAGIC) + _TAG_BYTES
        body = data[head:]
        # Damaged, of another key, or of another version: begin anew.
        if data[:head] != _MAGIC + self._seal(body) or len(body) % (_TAG_BYTES + _ID_BYTES):
            return {}
        step = _TAG_BYTES + _ID_BYTES
        return {body[at : at + _TAG_BYTES]: body[at + _TAG_BYTES : at + step] for at in range(0, len(body), step)}

    def _save(self, file: Path) -> None:
        body = b"".join(name + masked for name, masked in self._entries.items())
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = file.with_name(f"{file.name}.{os.getpid()}.{time.monotonic_ns()}.new")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(_MAGIC + self._seal(body) + body)
            draft.replace(file)
        finally:
            draft.unlink(missing_ok=True)

    def _seal(self, body: bytes) -> bytes:
        return hashlib.blake2b(body, key=self._key, digest_size=_TAG_BYTES).digest()


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one) ^ int.from_bytes(other)).to_bytes(_ID_BYTES)
