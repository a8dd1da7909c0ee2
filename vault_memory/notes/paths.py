"""Vault-relative paths: identity, original bytes and the partition key.

Belongs here: what makes two names the same note, and how a name is written as a Dagster partition key.
Does not: which notes are wanted (``exclusion``).

A name that holds a secret is part of no identity: identities stand in logs, tables and on Dagster's page. A stand-in
takes its place there, and the scanner quarantines the note for it (:attr:`NotePath.findings`).

Identity is Unicode normalisation form C: macOS writes ``é`` as two code points, Linux as one, and both are
the same note. The original bytes are kept because git knows the file by them.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from vault_memory.notes.model import Finding

MARKDOWN_SUFFIXES: Final = (".md", ".markdown")

# What the UI's and the command line's selection syntax reads in its own way, and what is not one line.
_RESERVED = re.compile(r'[%\x00-\x1f\x7f-\x9f"\[\]{},*|\\\u2028\u2029\ufeff]|\.\.+|^\s+|\s+$|^[-~]')
# What a name must have at least to be worth a scan, which takes 0.1 ms: a vault has ten thousand names.
_LONG_RUN = re.compile(r"[a-z]{0,11}[0-9][a-z0-9]{5}|[0-9](?:[ -]?[0-9]){11}|://")
_DISGUISE = re.compile("[\u00ad\u0300-\u036f\u180e\u200b-\u206f\ufeff\uff01-\uff5e\U000e0000-\U000e0fff]")
_LABEL_STEMS: Final = (
    *("pass", "pwd", "pw", "pin", "wort", "contrase", "senha", "clave", "парол", "パスワード", "비밀번호", "암호"),
    *("码", "碼", "令", "钥", "鑰", "匙", "密", "secret", "key", "token", "cred", "login", "auth"),
)
_PHRASE_WORDS: Final = 12
_WORD_GAP = re.compile("[ _.-]+")
_ESCAPE = re.compile(r"(?:%[0-9A-F]{2})+")


@dataclass(frozen=True, slots=True, order=True)
class NotePath:
    """A note's path relative to the vault, with ``/`` between parts.

    Two paths are equal if their identities are: the bytes do not take part in comparisons.

    Attributes:
        id: The identity: NFC text. Bytes that are no UTF-8 are replaced and told apart by a digest.
        raw: The bytes by which git or the file system knows the file.
    """

    id: str
    raw: bytes = field(compare=False, repr=False)

    @classmethod
    def from_bytes(cls, raw: bytes) -> NotePath:
        """Make a path from the bytes that git prints."""
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            digest = hashlib.sha256(raw).hexdigest()[:8]
            stem, dot, suffix = raw.decode("utf-8", "replace").rpartition(".")
            text = f"{stem} [{digest}]{dot}{suffix}" if dot else f"{suffix} [{digest}]"
        return cls(unicodedata.normalize("NFC", _shown(text)), raw)

    @classmethod
    def from_text(cls, text: str) -> NotePath:
        """Make a path from text, as a user types it."""
        return cls(unicodedata.normalize("NFC", text), text.encode("utf-8", "surrogateescape"))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What the name itself gives away: secrets, on line 1 and in the view ``name``."""
        from vault_memory.notes.model import Finding  # noqa: PLC0415 - only for a name with a secret

        text = self.raw.decode("utf-8", "replace")
        rules = {rule for part in text.split("/") for rule in _rules_of(part)}
        return tuple(Finding(rule, 1, "name") for rule in sorted(rules))

    @property
    def parts(self) -> tuple[str, ...]:
        """The names between the slashes, outermost first."""
        return tuple(self.id.split("/"))

    @property
    def name(self) -> str:
        """The last part."""
        return self.id.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """The last part without a Markdown suffix."""
        suffix = _suffix(self.name)
        return self.name[: -len(suffix)] if suffix else self.name

    @property
    def is_markdown(self) -> bool:
        """Whether the name ends in ``.md`` or ``.markdown``, in any case."""
        return self.id.lower().endswith(MARKDOWN_SUFFIXES)


@lru_cache(maxsize=1024)  # folders come again and again
def _rules_of(part: str) -> tuple[str, ...]:
    """Return the rules that find a secret in a folder's or a file's name."""
    if not _may_hold_a_secret(part):
        return ()
    from vault_memory.notes.secrets import scan  # noqa: PLC0415 - few names need it, and a query starts without

    suffix = _suffix(part)
    return tuple(finding.rule for finding in scan(part[: -len(suffix)] if suffix else part))


def _may_hold_a_secret(part: str) -> bool:
    low = part.lower()
    return (
        _LONG_RUN.search(low) is not None
        or (not part.isascii() and _DISGUISE.search(part) is not None)
        or any(stem in low for stem in _LABEL_STEMS)
        or len(_WORD_GAP.split(part)) >= _PHRASE_WORDS
    )


def _suffix(name: str) -> str:
    return next((suffix for suffix in MARKDOWN_SUFFIXES if name.lower().endswith(suffix)), "")


def _shown(text: str) -> str:
    """Write a stand-in for each name with a secret in it: four digits tell two of them apart and give nothing away."""
    parts = text.split("/")
    for number, part in enumerate(parts):
        if _rules_of(part):
            digest = hashlib.sha256(part.encode("utf-8", "surrogatepass")).hexdigest()[:4]
            parts[number] = f"withheld-{digest}{_suffix(part)}"
    return "/".join(parts)


def distinct(path: NotePath) -> NotePath:
    """Return the path under its own spelling instead of NFC, for the loser of a name collision."""
    return NotePath(_shown(path.raw.decode("utf-8", "replace")), path.raw)


def spelling_order(path: NotePath) -> tuple[bool, bytes]:
    """Sort key of files that share an identity: the first is the note (the NFC spelling, else the lowest bytes)."""
    return (path.raw != path.id.encode("utf-8", "surrogateescape"), path.raw)


def partition_key(note_id: str) -> str:
    """Write a note's identity as a Dagster partition key.

    Most keys are the path itself, since people read them in the UI. Control characters, whitespace at the
    ends, runs of dots and the signs of Dagster's selection syntax are percent-encoded (RFC 3986 style).

    Raises:
        ValueError: The identity is empty.
    """
    if not note_id:
        message = "an empty path has no partition key"
        raise ValueError(message)
    return _RESERVED.sub(
        lambda match: "".join(f"%{byte:02X}" for byte in match.group().encode("utf-8", "surrogatepass")), note_id
    )


def note_id(key: str) -> str:
    """Read a partition key back; ``note_id(partition_key(x)) == x`` for every ``x``.

    Raises:
        ValueError: The key was not written by ``partition_key``.
    """
    text = _ESCAPE.sub(
        lambda match: bytes.fromhex(match.group().replace("%", "")).decode("utf-8", "surrogatepass"), key
    )
    if partition_key(text) != key:
        message = "not a partition key of this vault"
        raise ValueError(message)
    return text


def one_line(note_id: str) -> str:
    """Show a path in a log line: control characters escaped, so that one event stays one line."""
    return note_id.encode("unicode_escape").decode() if not note_id.isprintable() else note_id
