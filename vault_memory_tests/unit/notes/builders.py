"""Makes clean notes for tests without a scanner."""

import hashlib

from vault_memory.notes.markdown import parse
from vault_memory.notes.model import SCANNER_SEAL, CleanNote
from vault_memory.notes.paths import NotePath


def make_clean_note(text: str, path: str = "01_Projects/x.md") -> CleanNote:
    """Vouch for a text as the scanner would, byte-order mark and line ends treated alike."""
    data = text.encode("utf-8", "surrogatepass")
    note_path = NotePath.from_text(path)
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return CleanNote(
        path=note_path,
        blob_id=hashlib.sha1(data, usedforsecurity=False).hexdigest(),
        text=text,
        content_hash=hashlib.sha256(data).hexdigest(),
        document=parse(text, fallback_title=note_path.stem),
        seal=SCANNER_SEAL,
    )
