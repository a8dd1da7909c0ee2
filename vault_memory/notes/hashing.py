"""The offline embedder: vectors from the letters of a text, with no model, no key and no network.

Belongs here: features, their hashing and the rotation. Does not: anything that knows what words mean.

Words, pairs and triples of CJK characters and the character n-grams of words are hashed with a sign into
1,536 places (signed feature hashing, Weinberger et al. 2009). Texts that share spellings become neighbours;
paraphrases and translations do not, and whoever uses these vectors is told so.

The last step is a fixed rotation. Hashed features fill few places, so that their signs alone (which the
binary-quantised index keeps) say little: recall@10 of that index was .14 without the rotation, .98 with it.
"""

from __future__ import annotations

import math
import re
import unicodedata
import zlib
from collections import Counter
from functools import lru_cache
from typing import Final

from vault_memory.notes.tokens import CJK

MODEL: Final = "hashing-1"
"""The recorded name; changes whenever the same text would give another vector."""

DIMENSIONS: Final = 1536
MAX_TEXT_CHARACTERS: Final = 100_000

_WORD_WEIGHT: Final = 1.0
_NGRAM_WEIGHT: Final = 0.12
_PAIR_WEIGHT: Final = 1.0
_TRIPLE_WEIGHT: Final = 0.5
_CHARACTER_WEIGHT: Final = 0.1
_COMMON_WEIGHT: Final = 0.2
_MAX_WORD_CHARACTERS: Final = 64

_COMMON_WORDS: Final = frozenset(
    [
        "a",
        "about",
        "all",
        "also",
        "am",
        "an",
        "and",
        "any",
        "are",
        "as",
        "at",
        "be",
        "been",
        "but",
        "by",
        "can",
        "could",
        "did",
        "do",
        "does",
        "for",
        "from",
        "had",
        "has",
        "have",
        "he",
        "her",
        "his",
        "how",
        "i",
        "if",
        "in",
        "into",
        "is",
        "it",
        "its",
        "me",
        "more",
        "most",
        "my",
        "no",
        "not",
        "of",
        "on",
        "or",
        "our",
        "over",
        "she",
        "should",
        "so",
        "some",
        "such",
        "than",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "to",
        "up",
        "was",
        "we",
        "were",
        "what",
        "when",
        "where",
        "which",
        "who",
        "whom",
        "whose",
        "why",
        "will",
        "with",
        "would",
        "you",
        "your",
    ]
)
_COMMON_CHARACTERS: Final = frozenset("的了是在和与及或也都就而于之其以为被把对从到着过吗呢吧啊么什哪谁怎多少几个这那")

_RUN = re.compile(rf"(?P<cjk>[{CJK}]+)|(?P<word>[^\W_{CJK}]+)")
# Each stage below adds and subtracts neighbours and then deals the halves apart. One output sees 2^k inputs
# after k stages: 11 stages reach all 1,536.
_STAGES: Final = 11


def embed(text: str) -> tuple[float, ...]:
    """Embed a text: 1,536 floats of unit length, the same in every process and on every machine.

    Raises:
        ValueError: The text is blank.
    """
    if not text.strip():
        message = "a blank text has no vector"
        raise ValueError(message)
    vector = [0.0] * DIMENSIONS
    for feature, count in _features(text).items():
        for place, weight in feature:
            vector[place] += weight * (1.0 + math.log(count))
    if not any(vector):
        # Only signs or emoji: the text itself is its one feature.
        place, sign = _place("s" + text[:MAX_TEXT_CHARACTERS])
        vector[place] = sign
    rotated = _rotate(vector)
    length = math.sqrt(math.fsum(value * value for value in rotated))
    return tuple(value / length for value in rotated)


_Feature = tuple[tuple[int, float], ...]


def _features(text: str) -> Counter[_Feature]:
    counts: Counter[_Feature] = Counter()
    normal = unicodedata.normalize("NFKC", text[:MAX_TEXT_CHARACTERS]).casefold()
    words: list[str] = []
    for match in _RUN.finditer(normal):
        run = match["cjk"]
        if run is None:
            words.append(match["word"][:_MAX_WORD_CHARACTERS])
        else:
            words += [f"\0{run[i : i + width]}" for width in (1, 2, 3) for i in range(len(run) - width + 1)]
    for word, count in Counter(words).items():
        counts[_characters_feature(word[1:]) if word[0] == "\0" else _word_feature(word)] += count
    return counts


@lru_cache(maxsize=16_384)
def _word_feature(word: str) -> _Feature:
    if word in _COMMON_WORDS:
        place, sign = _place("w" + word)
        return ((place, sign * _COMMON_WEIGHT),)
    weights: dict[int, float] = {}
    framed = f"<{word}>"
    pieces = [("w" + word, _WORD_WEIGHT)]
    pieces += [("n" + framed[i : i + width], _NGRAM_WEIGHT) for width in (3, 4) for i in range(len(framed) - width + 1)]
    for name, weight in pieces:
        place, sign = _place(name)
        weights[place] = weights.get(place, 0.0) + sign * weight
    return tuple(weights.items())


@lru_cache(maxsize=16_384)
def _characters_feature(characters: str) -> _Feature:
    weight = (_CHARACTER_WEIGHT, _PAIR_WEIGHT, _TRIPLE_WEIGHT)[len(characters) - 1]
    if any(character in _COMMON_CHARACTERS for character in characters):
        weight *= _COMMON_WEIGHT
    place, sign = _place("c" + characters)
    return ((place, sign * weight),)


def _place(name: str) -> tuple[int, float]:
    # crc32 is linear; the multiplication (Knuth's golden ratio) spreads names that differ in one letter.
    mixed = zlib.crc32(name.encode("utf-8", "surrogatepass")) * 0x9E3779B1 & 0xFFFFFFFF
    return (mixed >> 8) % DIMENSIONS, 1.0 if mixed & 0x80 else -1.0


def _rotate(vector: list[float]) -> list[float]:
    """Turn a vector by a fixed orthogonal map (lengths and angles stay), up to a constant factor."""
    for signs in _SIGNS:
        vector = [value * sign for value, sign in zip(vector, signs, strict=True)]
        for _ in range(_STAGES):
            even, odd = vector[::2], vector[1::2]
            vector = [a + b for a, b in zip(even, odd, strict=True)]
            vector += [a - b for a, b in zip(even, odd, strict=True)]
    return vector


_SIGNS: Final = tuple(
    tuple(1.0 if zlib.crc32(f"{turn}:{i}".encode()) * 0x9E3779B1 & 0x80000 else -1.0 for i in range(DIMENSIONS))
    for turn in range(2)
)
