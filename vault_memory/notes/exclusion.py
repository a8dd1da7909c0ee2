"""Which notes stay out of memory because their owner wants it so.

Belongs here: roots, folders, name keywords, patterns, front-matter keys and tags, and the digest of everything
that can change what becomes of a note. Does not: secrets (``secrets``), reading front matter (``frontmatter``).

Rules of thumb: names are compared after Unicode normalisation (NFC) and case folding, folders as exact path
parts and never as substrings, and where an owner's wish can be read in two ways the note stays out.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, cast

from vault_memory.errors import ConfigError
from vault_memory.notes.chunking import CHUNKER_VERSION
from vault_memory.notes.model import ExclusionReason
from vault_memory.notes.patterns import IGNORE_FILE, RuleProblem, as_literal, compile_patterns, ignore_lines
from vault_memory.notes.secrets import RULES_VERSION
from vault_memory.notes.tokens import TOKENIZER_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from vault_memory.notes.frontmatter import FrontMatter
    from vault_memory.notes.paths import NotePath
    from vault_memory.settings import ScanSettings

EXCLUSION_VERSION: Final = "2"
"""Raised by hand when this module or the scanner judges the same note otherwise than before."""

PRIVACY_KEYS: Final = frozenset(
    {"private", "is-private", "confidential", "sensitive", "secret"}
    | {"私密", "私人", "机密", "機密", "保密", "隐私", "隱私"}
)
"""Front-matter keys that keep a note out with any value but a clear no."""

MEMORY_KEYS: Final = frozenset({"vault-memory", "vaultmemory", "memory"})
"""Front-matter keys that keep a note out with a clear no (``vault-memory: false``)."""

_PATH_SETTINGS: Final = ("roots", "exclude_directories", "exclude_keywords", "exclude_patterns")
_TAG_KEYS: Final = frozenset({"tags", "tag"})
_NO_WORDS: Final = frozenset({"", "false", "f", "no", "n", "off", "0", "none", "null", "~", "否", "不", "不是", "无"})
_OUT_WORDS: Final = (_NO_WORDS - {"", "null", "~"}) | frozenset(
    {"exclude", "excluded", "ignore", "ignored", "skip", "never", "forget", "private", "排除", "忽略"}
)

# Scripts that put no spaces between words: there a keyword counts wherever it stands.
_UNSPACED: Final = (
    r"\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    r"\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff"
)
_SPACED_LETTER: Final = re.compile(rf"[^\W\d_{_UNSPACED}]")
_KEYWORD_GAP: Final = r"[\s_-]+"
_TAG_GAP: Final = re.compile(r"[\s,，、;；]+")


def fold(text: str) -> str:
    """Return the form in which names, keys and tags are compared: case folded, in NFC."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())


@dataclass(frozen=True, slots=True)
class Ruleset:
    """The compiled rules of one run; made by :func:`compile_ruleset`, and pickled as what it was made from.

    Attributes:
        id: Digest over everything that can change an outcome. A note judged under another id is judged anew.
        scan: The settings.
        ignore_lines: Lines of the ignore file that count, in order.
        unread: Why the ignore file, or its end, could not be read; None: it was, or there is none.
        problems: Rules that are not as their author meant them.
    """

    id: str
    scan: ScanSettings = field(repr=False)
    ignore_lines: tuple[str, ...] = field(repr=False)
    unread: str | None = field(repr=False)
    problems: tuple[RuleProblem, ...] = field(repr=False, compare=False)
    _roots: tuple[tuple[str, ...], ...] = field(repr=False, compare=False)
    _directories: frozenset[str] = field(repr=False, compare=False)
    _keywords: re.Pattern[str] | None = field(repr=False, compare=False)
    _patterns: tuple[Any, ...] = field(repr=False, compare=False)  # google-re2 has no types
    _tags: frozenset[str] = field(repr=False, compare=False)

    def __reduce__(self) -> tuple[object, ...]:
        """Travel as settings and lines: the engine's objects cannot cross a process border."""
        return compile_ruleset, (self.scan, "\n".join(self.ignore_lines), self.unread)

    @property
    def holding(self) -> tuple[RuleProblem, ...]:
        """The rules that cannot be read and could mean any note: until they are mended, new and changed notes wait."""
        return tuple(problem for problem in self.problems if problem.holds)

    def path_exclusion(self, path: NotePath) -> ExclusionReason | None:
        """Judge a note by where it lies and what it is called; None: it may be read.

        A folder rule looks at folders alone (``private.md`` is no folder); a keyword at the file name alone,
        without its Markdown suffix.
        """
        text = _storable(path.id)
        folded = fold(text)
        parts = folded.split("/")
        if not any(tuple(parts[: len(root)]) == root for root in self._roots):
            return ExclusionReason.OUTSIDE_ROOTS
        if not self._directories.isdisjoint(parts[:-1]):
            return ExclusionReason.DIRECTORY
        if self._keywords is not None and self._keywords.search(fold(path.stem)):
            return ExclusionReason.KEYWORD
        # Both spellings, since folding could part a pattern such as [[:upper:]] from what it means.
        if any(pattern.search(text) or pattern.search(folded) for pattern in self._patterns):
            return ExclusionReason.PATTERN
        return None

    def document_exclusion(self, front_matter: FrontMatter, tags: Sequence[str]) -> ExclusionReason | None:
        """Judge a note by what its owner wrote into it; any single sign is enough.

        Every occurrence of a key counts: YAML readers keep the last of two, which would let a stray
        ``private: false`` undo ``private: true``.
        """
        pairs = [(_key(key), value) for key, value in front_matter.pairs]
        if any(_is_private(key, value) for key, value in pairs):
            return ExclusionReason.FRONT_MATTER
        own = [tag for key, value in pairs if key in _TAG_KEYS for tag in _tag_names(value)]
        if any(self._is_private_tag(tag) for tag in (*own, *tags)):
            return ExclusionReason.TAG
        return None

    @property
    def privacy_words(self) -> frozenset[str]:
        """What front matter that cannot be read must not mention, or its note is quarantined."""
        keys = PRIVACY_KEYS | MEMORY_KEYS
        return keys | {key.replace("-", gap) for key in keys for gap in ("_", " ")} | self._tags

    def _is_private_tag(self, tag: str) -> bool:
        parts = fold(tag).strip().lstrip("#").split("/")
        return any("/".join(parts[:count]) in self._tags for count in range(1, len(parts) + 1))


def compile_ruleset(scan: ScanSettings, ignore_text: str | None, unread: str | None = None) -> Ruleset:
    """Compile the settings and the vault's ignore file, which can only add exclusions.

    A rule to exclude that cannot be read stops nothing: the others hold, and it stands in ``problems``.

    Args:
        scan: The settings.
        ignore_text: Text of ``.vaultmemoryignore``; None where the vault has none.
        unread: Why it could not be read, if it is there.

    Raises:
        ConfigError: A root is malformed. The message names the setting.
    """
    ignored, cut = ignore_lines(ignore_text or "")
    unread = unread or cut
    roots = tuple(sorted({_root(root) for root in scan.roots}))
    if not roots:
        raise ConfigError("scan.roots: name at least one folder, or '.' for the whole vault")
    problems = [] if unread is None else [RuleProblem(IGNORE_FILE, unread)]
    directories, paths = _directories(scan.exclude_directories, problems)
    keywords = _compile_keywords(scan.exclude_keywords, problems)
    patterns, refused = compile_patterns(
        [
            *((f"scan.exclude_patterns, entry {number}", line) for number, line in enumerate(scan.exclude_patterns, 1)),
            *((f"{IGNORE_FILE}, line {number}", line) for number, line in ignored),
            *(("scan.exclude_directories", line) for line in paths),
        ]
    )
    lines = tuple(line for _, line in ignored)
    return Ruleset(
        id=_digest(scan, lines, unread),
        scan=scan,
        ignore_lines=lines,
        unread=unread,
        problems=(*problems, *refused),
        _roots=roots,
        _directories=directories,
        _keywords=keywords,
        _patterns=patterns,
        _tags=frozenset(filter(None, (fold(tag).strip().strip("#/") for tag in scan.private_tags))),
    )


def same_but_for_paths(one: str, other: str) -> bool:
    """Whether two rulesets, by their ids, judge and cut a note alike unless its path alone keeps it out."""
    return one.partition("-")[0] == other.partition("-")[0]


def _digest(scan: ScanSettings, lines: tuple[str, ...], unread: str | None) -> str:
    versions = (EXCLUSION_VERSION, RULES_VERSION, CHUNKER_VERSION, TOKENIZER_VERSION)
    settings = {item.name: getattr(scan, item.name) for item in fields(scan)}
    of_paths = {name: settings.pop(name) for name in _PATH_SETTINGS}
    # Two halves, since a new line in the ignore file must not cost a new look into ten thousand notes.
    halves = ([versions, settings], [of_paths, lines, *([] if unread is None else [unread])])
    return "-".join(hashlib.sha256(json.dumps(half, sort_keys=True).encode()).hexdigest()[:16] for half in halves)


def _root(root: str) -> tuple[str, ...]:
    text = fold(root).strip()
    if text.startswith("/") or not text or "\\" in text:
        raise ConfigError("scan.roots: want folders relative to the vault, with / between names")
    parts = tuple(part for part in text.split("/") if part not in {"", "."})
    if ".." in parts:
        raise ConfigError("scan.roots: '..' leads out of the vault")
    return parts


def _directories(names: Iterable[str], problems: list[RuleProblem]) -> tuple[frozenset[str], list[str]]:
    """Return the names of folders, and a pattern for each path that somebody wrote where one name was wanted."""
    found: set[str] = set()
    paths: list[str] = []
    for number, name in enumerate(names, 1):
        text = fold(name).strip().strip("/")
        if text and "/" not in text:
            found.add(text)
            continue
        where = f"scan.exclude_directories, entry {number}"
        problems.append(RuleProblem(where, "want the name of one folder each; exclude_patterns takes paths"))
        if text:
            paths.append(f"**/{as_literal(text)}/")
    return frozenset(found), paths


def _compile_keywords(keywords: Iterable[str], problems: list[RuleProblem]) -> re.Pattern[str] | None:
    sources: list[str] = []
    for number, keyword in enumerate(keywords, 1):
        if keyword.strip():
            sources.append(_keyword_source(keyword))
        else:
            problems.append(RuleProblem(f"scan.exclude_keywords, entry {number}", "an empty keyword"))
    return re.compile("|".join(sources)) if sources else None


def _keyword_source(keyword: str) -> str:
    """Write a keyword as an expression that matches it as a whole word.

    A neighbour parts or joins words by its kind: after a letter another letter goes on with the word, while a
    digit, ``_`` or a Chinese character ends it (``salary2026``, ``my_salary``, ``salary表``).
    """
    text = fold(keyword).strip()
    words = [re.escape(word) for word in re.split(_KEYWORD_GAP, text) if word] or [re.escape(text)]
    return _border(text[0], behind=True) + _KEYWORD_GAP.join(words) + _border(text[-1], behind=False)


def _border(edge: str, *, behind: bool) -> str:
    sign = "?<!" if behind else "?!"
    if _SPACED_LETTER.match(edge):
        return f"({sign}{_SPACED_LETTER.pattern})"
    return rf"({sign}\d)" if edge.isdecimal() else ""


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _key(key: object) -> str:
    return re.sub(r"[\s_]+", "-", fold(str(key)).strip())


def _is_private(key: str, value: object) -> bool:
    if key in PRIVACY_KEYS:
        return _any_value(value, lambda item: item is not None and not _says(item, _NO_WORDS))
    return key in MEMORY_KEYS and _any_value(value, lambda item: item is not None and _says(item, _OUT_WORDS))


def _any_value(value: object, test: Callable[[object], bool]) -> bool:
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(_any_value(item, test) for item in cast("Iterable[object]", value))
    if isinstance(value, dict):
        items = cast("dict[object, object]", value)
        return any(_any_value(item, test) for item in (*items.keys(), *items.values()))
    return test(value)


def _says(value: object, words: frozenset[str]) -> bool:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return fold(str(value)).strip() in words


def _tag_names(value: object) -> list[str]:
    if isinstance(value, (list, tuple, set, frozenset)):
        return [name for item in cast("Iterable[object]", value) for name in _tag_names(item)]
    if isinstance(value, dict):
        return [name for item in cast("dict[object, object]", value) for name in _tag_names(item)]
    return [name for name in _TAG_GAP.split(str(value)) if name]
