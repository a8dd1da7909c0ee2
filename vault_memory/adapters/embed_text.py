"""The only type that may leave the machine: a text of a clean note, scanned once more.

Belongs here: making it. Does not: where it may go (``egress``) and how it is sent (``embedding_run``).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from vault_memory.errors import EgressBlocked

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from vault_memory.notes.model import Chunk, CleanNote


class _EgressSeal:
    __slots__ = ()


_SEAL: Final = _EgressSeal()


@dataclass(frozen=True, slots=True)
class EmbedText:
    """A text that may leave the machine; made by :func:`texts_of` alone.

    Attributes:
        text: The exact text.
        text_hash: SHA-256 (hexadecimal) of it.
        token_bound: An upper bound of its tokens.
        wire_bytes: An upper bound of its bytes in a request.
    """

    text: str = field(repr=False)
    text_hash: str
    token_bound: int
    wire_bytes: int
    seal: _EgressSeal = field(repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse to exist without the seal.

        Raises:
            TypeError: Somebody other than :func:`texts_of` tried to make one.
        """
        if self.seal is not _SEAL:
            message = "an EmbedText is made by vault_memory.adapters.embed_text.texts_of alone"
            raise TypeError(message)


def texts_of(note: CleanNote, chunks: Iterable[Chunk], *, allowed: Collection[str] = ()) -> tuple[EmbedText, ...]:
    """Return what is to be sent for a note: each distinct text once, no blank one.

    The exact text is scanned again: a chunk joins title, headings and body, and what was harmless on its own
    lines can be a secret side by side.

    Args:
        note: The note.
        chunks: Those of its chunks that have to be embedded.
        allowed: Rules whose findings the operator released for exactly this note.

    Raises:
        EgressBlocked: A text matches a rule; nothing of the note may be sent.
        TypeError: The note was not scanned.
    """
    from vault_memory.notes import model, secrets  # noqa: PLC0415 - the rules are compiled on first use

    if not isinstance(note, model.CleanNote):  # pyright: ignore[reportUnnecessaryIsInstance] - not every caller is typed
        message = "only a CleanNote has texts to embed"
        raise TypeError(message)
    texts: dict[str, EmbedText] = {}
    for chunk in chunks:
        text = chunk.embed_text
        if not text.strip() or chunk.text_hash in texts:
            continue
        rules = tuple(sorted({finding.rule for finding in secrets.scan(text)}.difference(allowed)))
        if rules:
            raise EgressBlocked(
                f"{note.path.id}: lines {chunk.start_line}-{chunk.end_line} match {', '.join(rules)}",
                rules=rules,
                line=chunk.start_line,
            )
        texts[chunk.text_hash] = EmbedText(text, chunk.text_hash, chunk.token_bound, len(json.dumps(text)) + 2, _SEAL)
    return tuple(texts.values())
