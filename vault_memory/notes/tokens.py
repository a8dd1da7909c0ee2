"""Keyword tokens for mixed Chinese and English text, for ingest and query alike.

Belongs here: how text becomes tokens, and how tokens become the two keyword columns of a chunk. Does not:
inverse document frequencies (the database has them) and the choice between hits (``query.search``).

No dictionary is loaded: a run of Chinese, Japanese or Korean characters becomes its overlapping pairs, which
ties with segmenters on recall and wins on phrases, at no start-up cost. Words and identifiers are kept exact
*and* split, so that ``ERR_X-1`` is found by its whole, and ``pre-edit`` by ``edit``.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKENIZER_VERSION: Final = "1"
"""Changes whenever the same text would give other tokens: the keyword columns must then be rebuilt."""

SPACE_DIMENSIONS: Final = 2**29
"""Width of the ``term_weights`` column."""

MAX_TEXT_CHARACTERS: Final = 100_000
MAX_TOKENS: Final = 50_000
MAX_TOKEN_CHARACTERS: Final = 64
MAX_DISTINCT_TERMS: Final = 8_000  # a sparsevec holds 16,000 non-zeros, a tsvector 1 MB
MAX_QUERY_TERMS: Final = 256

# BM25. b = 0.4 beat 0.75 on chunks; the average length is a constant because a stored weight must not depend
# on what else is in the store (a store kept by increments has to equal one built from scratch).
_K1: Final = 1.2
_B: Final = 0.4
_AVERAGE_LENGTH: Final = 250.0
_TITLE_WEIGHT: Final = 2
_HEADING_WEIGHT: Final = 1

CJK: Final = (
    "\u3005-\u3007\u3021-\u3029\u3040-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Character class (for ``re``) of what is written without spaces and therefore indexed by pairs."""

# Vowel signs and accents that NFKC leaves on their own; ``\\w`` does not hold them and would cut the word.
_MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0dff\u0e31-\u0e4e"
_WORD = rf"[^\W_{CJK}]+(?:[{_MARKS}]+[^\W_{CJK}]*)*"
_RUN = re.compile(rf"(?P<cjk>[{CJK}]+)|(?P<word>{_WORD}(?:[-_.'/:@&+]{{1,2}}{_WORD})*(?:\+\+|#)?)")
_OUTER = re.compile(r"[./:@&+]+")
_INNER = re.compile(r"[-_.'/:@&+#]+")
_HUMP = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_CAMEL = re.compile(r"[^\W\d_]?[^\W\d_A-Z]+|[A-Z]+(?![a-z])|\d+")


def tokenize(text: str) -> list[str]:
    """Split a text into keyword tokens, in order, with repetitions.

    The text is normalised to NFKC and case-folded. Input beyond ``MAX_TEXT_CHARACTERS`` and tokens beyond
    ``MAX_TOKENS`` are left out, so the cost is bounded whatever comes.
    """
    tokens: list[str] = []
    for token in _tokens(text):
        tokens.append(token)
        if len(tokens) == MAX_TOKENS:
            break
    return tokens


def positions(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield each token with the place in ``text`` that it was read from: ``(token, start, end)``.

    A piece of an identifier stands where its whole does. Positions are those of the text as given, although tokens
    are normalised, which may change lengths. Input beyond ``MAX_TEXT_CHARACTERS`` is left out.
    """
    for match in _RUN.finditer(text, 0, MAX_TEXT_CHARACTERS):
        run = match.group()
        start, end = match.span()
        if run.isascii() and run.isalpha() and (run.islower() or run.isupper()):  # most words, and one token each
            yield _cut(run), start, end
            continue
        tokens = list(_tokens(run))
        is_paired = match.lastgroup == "cjk" and len(tokens) == max(1, end - start - 1)
        for number, token in enumerate(tokens):
            if is_paired:
                yield token, start + number, min(start + number + 2, end)
            else:
                yield token, start, end


def dimension(token: str) -> int:
    """Return the place of a token in ``term_weights`` and in ``memory_term``: 0 to 2^29 - 1.

    pgvector writes sparse vectors with indices from 1, so the literal of a vector holds this plus one.
    """
    return zlib.crc32(token.encode("utf-8", "surrogatepass")) % SPACE_DIMENSIONS


@dataclass(frozen=True, slots=True)
class DocumentTerms:
    """The keyword columns of one chunk.

    Attributes:
        keywords: Text of a ``tsvector`` without positions; it selects.
        weights: Text of a ``sparsevec``: the saturated term frequency of each term; it scores.
        dimensions: Where ``weights`` is not zero (from 0, ascending): each counts once in ``memory_term``.
    """

    keywords: str = field(repr=False)
    weights: str = field(repr=False)
    dimensions: tuple[int, ...] = field(repr=False)


def document_terms(body: str, *, title: str, heading: str) -> DocumentTerms:
    """Make the keyword columns of a chunk from its text, its note's title and its heading path.

    The weight of a term is BM25's ``tf (k1 + 1) / (tf + k1 (1 - b + b length / average))`` with occurrences in
    the title and the heading counted several times; the database multiplies it with the inverse document
    frequency.
    """
    body_tokens = tokenize(body)
    frequencies = Counter(body_tokens)
    for text, weight in ((title, _TITLE_WEIGHT), (heading, _HEADING_WEIGHT)):
        for token in tokenize(text):
            frequencies[token] += weight
    norm = _K1 * (1 - _B + _B * len(body_tokens) / _AVERAGE_LENGTH)
    values: dict[int, float] = {}
    for token, frequency in list(frequencies.items())[:MAX_DISTINCT_TERMS]:
        # Two tokens that share a place add up, as they would in the inner product.
        place = dimension(token)
        values[place] = values.get(place, 0.0) + frequency * (_K1 + 1) / (frequency + norm)
    ordered = sorted(values)
    pairs = ",".join(f"{place + 1}:{values[place]:.4g}" for place in ordered)
    lexemes = dict.fromkeys(list(frequencies)[:MAX_DISTINCT_TERMS])
    lexemes |= dict.fromkeys(_run_ends(body, title, heading))
    return DocumentTerms(
        keywords=" ".join(quote_lexeme(token) for token in sorted(lexemes)),
        weights=f"{{{pairs}}}/{SPACE_DIMENSIONS}",
        dimensions=tuple(ordered),
    )


@dataclass(frozen=True, slots=True)
class QueryTerms:
    """What a question looks for.

    Attributes:
        tokens: Distinct tokens in order of appearance.
        dimensions: The place of each token.
        query: Text of a ``tsquery`` that accepts any of them; empty if there are none.
        prefix: The character, where the question is a single Chinese one: it is the start of many pairs.
    """

    tokens: tuple[str, ...] = field(repr=False)
    dimensions: tuple[int, ...] = field(repr=False)
    query: str = field(repr=False)
    prefix: str | None = field(repr=False, default=None)


@lru_cache(maxsize=16)  # a question is read to be asked, to be weighed and once for every excerpt
def query_terms(text: str) -> QueryTerms:
    """Read a question; no text can raise."""
    tokens = tuple(dict.fromkeys(tokenize(text)))[:MAX_QUERY_TERMS]
    query = " | ".join(quote_lexeme(token) for token in tokens)
    prefix = None
    if len(tokens) == 1 and len(tokens[0]) == 1 and re.match(f"[{CJK}]", tokens[0]):
        prefix = tokens[0]
        query += ":*"
    return QueryTerms(tokens, tuple(dimension(token) for token in tokens), query, prefix)


def quote_lexeme(token: str) -> str:
    """Write a token as a quoted lexeme, as ``tsvector`` and ``tsquery`` input read it."""
    return "'" + token.replace("\\", "\\\\").replace("'", "''") + "'"


def _normalise(text: str) -> str:
    return unicodedata.normalize("NFKC", text[:MAX_TEXT_CHARACTERS]).replace("\u2019", "'")


def _tokens(text: str) -> Iterator[str]:
    for match in _RUN.finditer(_normalise(text)):
        run = match.group()
        if match.lastgroup == "cjk":
            if len(run) == 1:
                yield run
            else:
                for i in range(len(run) - 1):
                    yield run[i : i + 2]
        elif run.isalpha() and (run.islower() or run.isupper()):
            yield _cut(run)
        else:
            yield from _word_tokens(run)


def _word_tokens(word: str) -> Iterator[str]:
    """Yield an identifier whole, by its outer parts and by its pieces; a plain word is one of one piece."""
    seen: set[str] = set()
    for candidate in (word, *_OUTER.split(word), *_INNER.split(word), *_camel_pieces(word)):
        token = candidate.casefold()
        # The t of don't and the s of Anna's say nothing.
        if token and token not in seen and not (len(token) == 1 and "'" in word):
            seen.add(token)
            # A link or path of any length is found by its pieces, not by its whole.
            if len(token) <= MAX_TOKEN_CHARACTERS or candidate.isalnum():
                yield _cut(token)


def _camel_pieces(word: str) -> Iterator[str]:
    for piece in _INNER.split(word):
        if _HUMP.search(piece):
            yield from (part for part in _CAMEL.findall(piece) if len(part) > 1)


def _cut(token: str) -> str:
    return token.casefold()[:MAX_TOKEN_CHARACTERS]


def _run_ends(*texts: str) -> Iterator[str]:
    """Yield the last character of each CJK run: a prefix finds every other character, but not this one."""
    for text in texts:
        for match in re.finditer(f"[{CJK}]+", _normalise(text)):
            yield match.group()[-1]
