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

from vault_memory.errors import ConfigError, MissingExtraError
from vault_memory.notes.chunking import CHUNKER_VERSION
from vault_memory.notes.model import ExclusionReason
from vault_memory.notes.secrets import RULES_VERSION
from vault_memory.notes.tokens import TOKENIZER_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from vault_memory.notes.frontmatter import FrontMatter
    from vault_memory.notes.paths import NotePath
    from vault_memory.settings import ScanSettings

EXCLUSION_VERSION: Final = "1"
"""Raised by hand when this module or the scanner judges the same note otherwise than before."""

IGNORE_FILE: Final = ".vaultmemoryignore"
MAX_IGNORE_BYTES: Final = 64 * 1024
MAX_PATTERNS: Final = 1_000
MAX_PATTERN_CHARACTERS: Final = 1_000
_RE2_MAX_BYTES: Final = 64 * 1024 * 1024

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


def read_ignore_file(data: bytes) -> str:
    """Decode a ``.vaultmemoryignore``.

    Raises:
        ConfigError: It is too large or no UTF-8: rules that cannot be read must not count as no rules.
    """
    if len(data) > MAX_IGNORE_BYTES:
        raise ConfigError(f"{IGNORE_FILE}: larger than {MAX_IGNORE_BYTES // 1024} KiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{IGNORE_FILE}: not UTF-8") from None


@dataclass(frozen=True, slots=True)
class Ruleset:
    """The compiled rules of one run; made by :func:`compile_ruleset`, and pickled as what it was made from.

    Attributes:
        id: Digest over everything that can change an outcome. A note judged under another id is judged anew.
        scan: The settings.
        ignore_lines: Lines of the ignore file that count, in order.
    """

    id: str
    scan: ScanSettings = field(repr=False)
    ignore_lines: tuple[str, ...] = field(repr=False)
    _roots: tuple[tuple[str, ...], ...] = field(repr=False, compare=False)
    _directories: frozenset[str] = field(repr=False, compare=False)
    _keywords: re.Pattern[str] | None = field(repr=False, compare=False)
    _patterns: Any = field(repr=False, compare=False)  # google-re2 has no types
    _tags: frozenset[str] = field(repr=False, compare=False)

    def __reduce__(self) -> tuple[object, ...]:
        """Travel as settings and lines: the engine's objects cannot cross a process border."""
        return compile_ruleset, (self.scan, "\n".join(self.ignore_lines))

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
        if self._patterns is not None and (self._patterns.search(text) or self._patterns.search(folded)):
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


def compile_ruleset(scan: ScanSettings, ignore_text: str | None) -> Ruleset:
    """Compile the settings and the vault's ignore file, which can only add exclusions.

    Args:
        scan: The settings.
        ignore_text: Text of ``.vaultmemoryignore``; None where the vault has none.

    Raises:
        ConfigError: A rule is malformed. The message names setting and line, not the line's text. A run must
            not start then: a rule that was dropped would index what its owner wants out.
    """
    ignore_lines = _ignore_lines(ignore_text or "")
    roots = tuple(sorted({_root(root) for root in scan.roots}))
    if not roots:
        raise ConfigError("scan.roots: name at least one folder, or '.' for the whole vault")
    directories = frozenset(_directory(name) for name in scan.exclude_directories)
    tags = frozenset(filter(None, (fold(tag).strip().strip("#/") for tag in scan.private_tags)))
    sources = [
        *((f"scan.exclude_patterns, entry {number}", line) for number, line in enumerate(scan.exclude_patterns, 1)),
        *((f"{IGNORE_FILE}, line {number}", line) for number, line in ignore_lines),
    ]
    lines = tuple(line for _, line in ignore_lines)
    return Ruleset(
        id=_digest(scan, lines),
        scan=scan,
        ignore_lines=lines,
        _roots=roots,
        _directories=directories,
        _keywords=_compile_keywords(scan.exclude_keywords),
        _patterns=_compile_patterns(sources),
        _tags=tags,
    )


def same_but_for_paths(one: str, other: str) -> bool:
    """Whether two rulesets, by their ids, judge and cut a note alike unless its path alone keeps it out."""
    return one.partition("-")[0] == other.partition("-")[0]


def _digest(scan: ScanSettings, ignore_lines: tuple[str, ...]) -> str:
    versions = (EXCLUSION_VERSION, RULES_VERSION, CHUNKER_VERSION, TOKENIZER_VERSION)
    settings = {item.name: getattr(scan, item.name) for item in fields(scan)}
    of_paths = {name: settings.pop(name) for name in _PATH_SETTINGS}
    # Two halves, since a new line in the ignore file must not cost a new look into ten thousand notes.
    halves = ([versions, settings], [of_paths, ignore_lines])
    return "-".join(hashlib.sha256(json.dumps(half, sort_keys=True).encode()).hexdigest()[:16] for half in halves)


def _ignore_lines(text: str) -> list[tuple[int, str]]:
    """Return the lines that count with their numbers: no blank ones, no comments."""
    if len(text.encode("utf-8", "replace")) > MAX_IGNORE_BYTES:
        raise ConfigError(f"{IGNORE_FILE}: larger than {MAX_IGNORE_BYTES // 1024} KiB")
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return [(number, line) for number, line in enumerate(lines, 1) if line.strip() and not line.startswith("#")]


def _root(root: str) -> tuple[str, ...]:
    text = fold(root).strip()
    if text.startswith("/") or not text or "\\" in text:
        raise ConfigError("scan.roots: want folders relative to the vault, with / between names")
    parts = tuple(part for part in text.split("/") if part not in {"", "."})
    if ".." in parts:
        raise ConfigError("scan.roots: '..' leads out of the vault")
    return parts


def _directory(name: str) -> str:
    text = fold(name).strip().strip("/")
    if not text or "/" in text:
        raise ConfigError("scan.exclude_directories: want the name of one folder each; exclude_patterns takes paths")
    return text


def _compile_keywords(keywords: Iterable[str]) -> re.Pattern[str] | None:
    sources = [_keyword_source(keyword) for keyword in keywords]
    return re.compile("|".join(sources)) if sources else None


def _keyword_source(keyword: str) -> str:
    """Write a keyword as an expression that matches it as a whole word.

    A neighbour parts or joins words by its kind: after a letter another letter goes on with the word, while a
    digit, ``_`` or a Chinese character ends it (``salary2026``, ``my_salary``, ``salary表``).
    """
    text = fold(keyword).strip()
    if not text:
        raise ConfigError("scan.exclude_keywords: an empty keyword")
    words = [re.escape(word) for word in re.split(_KEYWORD_GAP, text) if word] or [re.escape(text)]
    return _border(text[0], behind=True) + _KEYWORD_GAP.join(words) + _border(text[-1], behind=False)


def _border(edge: str, *, behind: bool) -> str:
    sign = "?<!" if behind else "?!"
    if _SPACED_LETTER.match(edge):
        return f"({sign}{_SPACED_LETTER.pattern})"
    return rf"({sign}\d)" if edge.isdecimal() else ""


def _compile_patterns(sources: Sequence[tuple[str, str]]) -> Any:
    """Compile patterns in git's notation to one expression of the RE2 engine, which is linear in the path.

    Python's own engine took minutes on ``*a*a*a*a*a*a*a*a*b``. The expressions are compiled here rather than by
    pathspec's matcher, because that one uses a set, and a set that runs out of memory matches nothing.
    """
    sources = [(where, line) for where, line in sources if line.strip() and not line.startswith("#")]
    if not sources:
        return None
    if len(sources) > MAX_PATTERNS:
        raise ConfigError(f"exclusion patterns: more than {MAX_PATTERNS}")
    try:  # 40 ms of imports that most vaults never need
        import re2  # noqa: PLC0415
        from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern  # noqa: PLC0415
    except ModuleNotFoundError:
        raise MissingExtraError("exclusion by patterns", "pipeline") from None
    engine = cast("Any", re2)
    options = engine.Options()
    options.dot_nl = True  # a folder's name may hold a line break
    options.log_errors = False  # they would print the pattern
    options.max_mem = _RE2_MAX_BYTES
    compiled: list[str] = []
    for where, line in sources:
        for spelling in _spellings(where, line):
            try:
                expression, _ = GitIgnoreSpecPattern.pattern_to_regex(spelling)
                engine.compile(expression or "", options)
            except (ValueError, engine.error):  # both quote the line
                raise ConfigError(f"{where}: not a valid pattern") from None
            if expression is None:  # git drops such a line without a word
                raise ConfigError(f"{where}: not a pattern that could match anything")
            # A name can stand for one group only; with the slash it cannot be part of a name's own pattern.
            compiled.append(f"(?:{expression.replace('(?P<ps_d>/)', '/')})")
    try:
        return engine.compile("|".join(compiled), options)
    except engine.error:
        raise ConfigError("exclusion patterns: too many or too large together") from None


def _spellings(where: str, line: str) -> Iterable[str]:
    """Return a pattern as written and folded, both in NFC."""
    if line.startswith("!"):
        raise ConfigError(f"{where}: '!' is refused, a rule can only exclude")
    if len(line) > MAX_PATTERN_CHARACTERS:
        raise ConfigError(f"{where}: longer than {MAX_PATTERN_CHARACTERS} characters")
    return dict.fromkeys((unicodedata.normalize("NFC", line), fold(line)))


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
