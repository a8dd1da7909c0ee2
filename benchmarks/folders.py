"""What it costs to watch a plain folder: ``python benchmarks/folders.py [NOTES]``.

Makes a folder of NOTES Markdown files of 4 KiB in 100 folders (10,000 if not told) and measures in seconds: the first
look, which reads all of them; the next one by the same process and by another one, which read nothing, for what the files
held is kept; and a look after one file changed. Printed are medians of five, and the bytes that are kept in ``home``.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from vault_memory.adapters.directory import DirectorySource

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 5
KEY = bytes(32)


def fill(folder: Path, notes: int) -> None:
    """Write the notes, as if an hour ago: what was changed a moment ago is read again at each look."""
    then = time.time() - 3600
    for number in range(notes):
        path = folder / f"{number % 100:02}" / f"note {number}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# Note {number}\n\n" + f"Words of note {number}. " * 200)
        os.utime(path, (then, then))


def seconds(look: Callable[[], object]) -> float:
    """Return the median time of a look."""
    taken: list[float] = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        look()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def main() -> None:
    """Measure and print."""
    notes = int(sys.argv[1]) if sys.argv[1:] else 10_000
    with tempfile.TemporaryDirectory() as made:
        folder, cache = Path(made) / "notes", Path(made) / "cache"
        folder.mkdir()
        fill(folder, notes)
        time.sleep(2.5)  # the time of change of a file itself cannot be set

        def opened() -> DirectorySource:
            return DirectorySource.open(folder, secret=lambda: KEY, cache_file=cache)

        def first() -> None:
            cache.unlink(missing_ok=True)
            opened().head()

        print(f"{notes} notes")
        print(f"first look            {seconds(first):7.3f} s")
        watching = opened()
        print(f"again, same process   {seconds(watching.head):7.3f} s")
        print(f"again, another one    {seconds(lambda: opened().head()):7.3f} s")

        def after_an_edit() -> None:
            (folder / "00" / "note 0.md").write_text(f"# Note 0\n\nNew words at {time.perf_counter_ns()}.")
            watching.head()

        print(f"after one edit        {seconds(after_an_edit):7.3f} s")
        names = [f"{number % 100:02}/note {number}.md" for number in range(20)]
        print(f"20 hits of a query    {seconds(lambda: opened().blobs_now(names)):7.4f} s")
        print(f"kept in home          {cache.stat().st_size / notes:7.1f} bytes a note")


if __name__ == "__main__":
    main()
