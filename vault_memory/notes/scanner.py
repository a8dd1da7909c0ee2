"""The gate: bytes in, a clean note out, or the reason why not.

Belongs here: decoding, the order of the checks, and the one place that makes a ``CleanNote``. Does not: the
rules themselves (``secrets``, ``exclusion``, ``frontmatter``), the time limit (``vault_memory.ingest.screening``).

The gate fails closed. What it cannot decode, store, read or finish is quarantined, and nothing written inside
a note can vouch for the note: an allow-list lives outside the vault and comes in as a function.
"""

from __future__ import annotations

import codecs
import hashlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from vault_memory.notes import frontmatter, markdown, secrets
from vault_memory.notes.frontmatter import FrontMatterState
from vault_memory.notes.model import (
    SCANNER_SEAL,
    CleanNote,
    Document,
    Excluded,
    ExclusionReason,
    Finding,
    Quarantined,
    QuarantineReason,
    RawNote,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from vault_memory.notes.exclusion import Ruleset

_log = logging.getLogger(__name__)

# UTF-32 first: its little-endian mark starts with that of UTF-16.
_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# What may stand unseen before a front-matter fence, so that the owner sees a fence and a parser does not.
_UNSEEN: Final = "\ufeff\u200b\u200c\u200d\u2060\u00ad \t\n"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an examination found, without the note's bytes, so that a worker process can hand it over.

    Attributes:
        content_hash: SHA-256 of the bytes that were examined; the verdict holds for no others.
        outcome: The parsed note, or why there is none.
        findings: Secrets, whatever the outcome; the allow-list is applied by :func:`conclude`.
        error: Class of the exception behind ``scan_error``.
    """

    content_hash: str
    outcome: Document | QuarantineReason | ExclusionReason = field(repr=False)
    findings: tuple[Finding, ...] = ()
    error: str | None = None


def nobody(_raw: RawNote, _finding: Finding) -> bool:
    """Allow no finding; the default allow-list."""
    return False


def scan_note(
    raw: RawNote, rules: Ruleset, *, allowed: Callable[[RawNote, Finding], bool] = nobody
) -> CleanNote | Quarantined | Excluded:
    """Judge a note; never raises for anything a note may hold.

    Args:
        raw: The bytes as they were read.
        rules: The compiled rules.
        allowed: Whether an operator released this finding, by path, rule and the exact bytes.
    """
    return conclude(raw, examine(raw, rules), allowed=allowed)


def examine(raw: RawNote, rules: Ruleset) -> Verdict:
    """Run every check on a note; pure, and safe to run in a process that may be killed."""
    content_hash = hashlib.sha256(raw.data).hexdigest()
    findings: tuple[Finding, ...] = ()
    try:
        excluded = rules.path_exclusion(raw.path)
        if excluded is not None:
            return Verdict(content_hash, excluded)
        if len(raw.data) > rules.scan.max_note_bytes:
            return Verdict(content_hash, QuarantineReason.TOO_LARGE)
        text = _decode(raw.data)
        if isinstance(text, QuarantineReason):
            return Verdict(content_hash, text)
        findings = (*raw.path.findings, *secrets.scan(text))
        return Verdict(content_hash, _read(raw, text, rules), findings)
    except Exception as error:  # noqa: BLE001 - fails closed, and the message may quote the note
        return Verdict(content_hash, QuarantineReason.SCAN_ERROR, findings, type(error).__name__)


def conclude(
    raw: RawNote, verdict: Verdict, *, allowed: Callable[[RawNote, Finding], bool] = nobody
) -> CleanNote | Quarantined | Excluded:
    """Turn a verdict into the note's fate; the only place that makes a ``CleanNote``.

    A verdict on other bytes than these is a scan error. Only :mod:`vault_memory.ingest.screening` may call this
    with a verdict that was not made in this process.
    """
    if verdict.error is not None:
        _log.error("scan failed: %s at %s", verdict.error, ascii(raw.path.id))
    try:
        if hashlib.sha256(raw.data).hexdigest() != verdict.content_hash:
            return Quarantined(raw.path, raw.blob_id, QuarantineReason.SCAN_ERROR)
        kept = tuple(finding for finding in verdict.findings if not allowed(raw, finding))
        if kept:
            return Quarantined(raw.path, raw.blob_id, QuarantineReason.SECRET, kept)
        if isinstance(verdict.outcome, QuarantineReason):
            return Quarantined(raw.path, raw.blob_id, verdict.outcome)
        if isinstance(verdict.outcome, ExclusionReason):
            return Excluded(raw.path, raw.blob_id, verdict.outcome)
        text = _decode(raw.data)
        if not isinstance(text, QuarantineReason):
            return CleanNote(raw.path, raw.blob_id, text, verdict.content_hash, verdict.outcome, SCANNER_SEAL)
    except Exception as error:  # noqa: BLE001 - an allow-list that fails allows nothing
        _log.error("scan failed: %s at %s", type(error).__name__, ascii(raw.path.id))
    return Quarantined(raw.path, raw.blob_id, QuarantineReason.SCAN_ERROR)


def _decode(data: bytes) -> str | QuarantineReason:
    """Decode by byte-order mark, else as UTF-8; strictly, since a dropped byte could hide half a secret."""
    mark, encoding = next((pair for pair in _BYTE_ORDER_MARKS if data.startswith(pair[0])), (b"", "utf-8"))
    body = data[len(mark) :]
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError:
        return _why_undecodable(body, encoding)
    if "\x00" in text:
        return QuarantineReason.UNSTORABLE_TEXT  # PostgreSQL stores no NUL
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _why_undecodable(body: bytes, encoding: str) -> QuarantineReason:
    try:
        body.decode(encoding, "surrogatepass")
    except UnicodeDecodeError:
        return QuarantineReason.UNDECODABLE
    return QuarantineReason.UNSTORABLE_TEXT  # lone surrogates


def _read(raw: RawNote, text: str, rules: Ruleset) -> Document | QuarantineReason | ExclusionReason:
    """Parse a decoded note and look for its owner's wish to keep it out."""
    front_matter = frontmatter.split_front_matter(text)
    words = sorted(rules.privacy_words)
    if not front_matter.readable and frontmatter.might_mention(front_matter.raw_lines, words):
        return QuarantineReason.FRONTMATTER_UNREADABLE
    if front_matter.state is FrontMatterState.ABSENT and _has_misplaced_wish(text, rules, words):
        return QuarantineReason.FRONTMATTER_UNREADABLE
    document = markdown.parse(text, fallback_title=raw.path.stem)
    return rules.document_exclusion(front_matter, document.tags) or document


def _has_misplaced_wish(text: str, rules: Ruleset, words: list[str]) -> bool:
    """Tell whether what looks like front matter asks for privacy but does not stand on line 1.

    A blank line or an unseen character before the fence makes it plain text by the book. Whoever wrote
    ``private: true`` into it meant it all the same.
    """
    shown = text.lstrip(_UNSEEN)
    if len(shown) == len(text) or not shown.startswith("---"):
        return False
    meant = frontmatter.split_front_matter(shown)
    if meant.state in {FrontMatterState.INVALID, FrontMatterState.REFUSED}:
        return frontmatter.might_mention(meant.raw_lines, words)
    return rules.document_exclusion(meant, ()) is not None
