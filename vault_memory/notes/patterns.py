"""Patterns in git's notation, and what becomes of a rule that cannot be read.

Belongs here: lines of ``.vaultmemoryignore`` and entries of ``scan.exclude_patterns`` as one linear matcher. Does not:
the other ways to keep a note out (``exclusion``).

A rule that cannot be read must not count as no rule, and must not undo its neighbours either. So every rule that can
be read holds at once; of one that cannot, the widest reading of its beginning holds, and whoever indexes is told to
hold new notes back until it is mended (:class:`RuleProblem`). A refused ``!`` alone holds nothing back, since it could
only have let notes in.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from vault_memory.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

IGNORE_FILE: Final = ".vaultmemoryignore"
MAX_IGNORE_BYTES: Final = 64 * 1024
MAX_PATTERNS: Final = 1_000
MAX_PATTERN_CHARACTERS: Final = 1_000
_RE2_MAX_BYTES: Final = 64 * 1024 * 1024
_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")
_PLAIN_START: Final = re.compile("[^*?\\[\\\\\ud800-\udfff]*")
_SPECIAL: Final = re.compile(r"([*?\[\]\\!#])")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class RuleProblem:
    """A rule that is not as its author meant it, by its place and never by its text.

    Attributes:
        where: Setting and entry, or file and line.
        why: What is wrong with it.
        holds: Whether notes that are new or changed must wait until it is mended, since it could have meant them.
    """

    where: str
    why: str
    holds: bool = True

    def __str__(self) -> str:
        """Return one line for people."""
        return f"{self.where}: {self.why}"


def read_ignore_file(data: bytes) -> str:
    """Decode a ``.vaultmemoryignore``: UTF-8, or UTF-16 by its mark; bytes that are neither stay visible as such."""
    if data.startswith(_UTF16_MARKS):
        return data.decode("utf-16", "surrogatepass") if len(data) % 2 == 0 else data.decode("utf-8", "surrogateescape")
    return data.decode("utf-8-sig", "surrogateescape")


def ignore_lines(text: str) -> tuple[list[tuple[int, str]], str | None]:
    """Return the lines that count with their numbers (no blank ones, no comments), and why they are not all."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    unread = None
    if len(text.encode("utf-8", "surrogatepass")) > MAX_IGNORE_BYTES:
        cut = text.encode("utf-8", "surrogatepass")[:MAX_IGNORE_BYTES].rpartition(b"\n")[0]
        text, unread = cut.decode("utf-8", "surrogatepass"), f"larger than {MAX_IGNORE_BYTES // 1024} KiB"
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    return [(number, line) for number, line in lines if not line.startswith("#")], unread


def compile_patterns(sources: Sequence[tuple[str, str]]) -> tuple[tuple[Any, ...], tuple[RuleProblem, ...]]:
    """Compile patterns to expressions of the RE2 engine, which is linear in the path.

    Python's own engine took minutes on ``*a*a*a*a*a*a*a*a*b``. The expressions are compiled here rather than by
    pathspec's matcher, because that one uses a set, and a set that runs out of memory matches nothing.

    Args:
        sources: Pairs of place and line.

    Returns:
        Matchers, any of which keeps a path out (most often one), and the lines that could not be taken as they are.
    """
    sources = [(where, line) for where, line in sources if line.strip() and not line.startswith("#")]
    if not sources:
        return (), ()
    read, engine = _reader()
    expressions: list[str] = []
    problems: list[RuleProblem] = []
    if len(sources) > MAX_PATTERNS:
        where = sources[MAX_PATTERNS][0]
        problems.append(RuleProblem(where, f"this pattern and those after it are not read: more than {MAX_PATTERNS}"))
    for where, line in sources[:MAX_PATTERNS]:
        if line.startswith("!"):
            problems.append(RuleProblem(where, "'!' is refused, a rule can only exclude", holds=False))
            continue
        why = _why_refused(line)
        found = [read(spelling) for spelling in _spellings(line)] if why is None else []
        if not found or None in found:
            problems.append(RuleProblem(where, why or "not a valid pattern"))
            found = [read(spelling) for meant in _widest(line) for spelling in _spellings(meant)]
        expressions += [expression for expression in found if expression]
    return tuple(_joined(expressions, engine)), tuple(problems)


def as_literal(name: str) -> str:
    """Write a name as a pattern that matches that name alone."""
    return _SPECIAL.sub(r"\\\1", name)


def _why_refused(line: str) -> str | None:
    if len(line) > MAX_PATTERN_CHARACTERS:
        return f"longer than {MAX_PATTERN_CHARACTERS} characters"
    return "not UTF-8" if _SURROGATE.search(line) else None


def _widest(line: str) -> Iterator[str]:
    """Give what a broken pattern may have meant: its own letters, and all that begins as it does.

    A pattern that is broken from its first sign on gives only the former: its author is told, and new notes wait.
    """
    line = line[:MAX_PATTERN_CHARACTERS]
    if not _SURROGATE.search(line) and line.strip("/ "):
        yield as_literal(line.rstrip("\\"))
    start = _PLAIN_START.match(line)
    beginning = start.group() if start else ""
    if beginning.strip("/ "):
        yield f"{beginning.removesuffix('/')}*"


def _spellings(line: str) -> Iterable[str]:
    """Return a pattern as written and folded, both in NFC."""
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFD", line).casefold())
    return dict.fromkeys((unicodedata.normalize("NFC", line), folded))


def _reader() -> tuple[Callable[[str], str | None], Callable[[str], Any]]:
    """Load the engine; return what turns a pattern into an expression (None: malformed), and what compiles one."""
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

    def read(pattern: str) -> str | None:
        try:
            expression, _ = GitIgnoreSpecPattern.pattern_to_regex(pattern)
            engine.compile(expression or "", options)
        except (ValueError, engine.error):  # both quote the line
            return None
        # git drops what could match nothing without a word. A name can stand for one group only; with the slash it
        # cannot be part of a name's own pattern.
        return f"(?:{expression.replace('(?P<ps_d>/)', '/')})" if expression else None

    def build(expression: str) -> Any:
        try:
            return engine.compile(expression, options)
        except engine.error:
            return None

    return read, build


def _joined(expressions: list[str], build: Callable[[str], Any]) -> Iterator[Any]:
    """Compile expressions to one, or to several where one would be too large; each compiles by itself."""
    whole = build("|".join(expressions)) if expressions else None
    if whole is not None:
        yield whole
    elif len(expressions) > 1:
        middle = len(expressions) // 2
        yield from _joined(expressions[:middle], build)
        yield from _joined(expressions[middle:], build)
