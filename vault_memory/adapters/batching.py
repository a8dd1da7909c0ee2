"""How texts are counted and packed into requests, how a refused one is split, how long to wait for the next try.

Belongs here: arithmetic. Does not: sending, sleeping or knowing what a text says.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

FIRST_BACKOFF_SECONDS: Final = 1.0


class Sized(Protocol):
    """A text as the limits see it."""

    @property
    def token_bound(self) -> int:
        """An upper bound of its tokens."""
        ...

    @property
    def wire_bytes(self) -> int:
        """An upper bound of its bytes in a request."""
        ...


_Text = TypeVar("_Text", bound=Sized)
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may hold. A text that is over a limit by itself travels alone."""

    max_texts: int
    max_tokens: int
    max_bytes: int


def estimated_tokens(text: str) -> int:
    """Return about how many tokens a text has, for prices; what must hold is bounded by its bytes instead.

    Four ASCII characters, or one character of any other script, count as a token.
    """
    ascii_characters = len(text.encode("ascii", "ignore"))
    return -(-ascii_characters // 4) + len(text) - ascii_characters


def pack(texts: Iterable[_Text], limits: Limits) -> Iterator[tuple[_Text, ...]]:
    """Yield the texts in order, in batches within the limits."""
    batch: list[_Text] = []
    tokens = size = 0
    for text in texts:
        if batch and (
            len(batch) >= limits.max_texts
            or tokens + text.token_bound > limits.max_tokens
            or size + text.wire_bytes > limits.max_bytes
        ):
            yield tuple(batch)
            batch, tokens, size = [], 0, 0
        batch.append(text)
        tokens += text.token_bound
        size += text.wire_bytes
    if batch:
        yield tuple(batch)


def halves(batch: Sequence[_Item]) -> tuple[Sequence[_Item], Sequence[_Item]]:
    """Split a batch of two or more into two that are strictly smaller.

    Raises:
        ValueError: There is nothing to split.
    """
    middle = len(batch) // 2
    if middle == 0:
        message = "a single text cannot be split"
        raise ValueError(message)
    return batch[:middle], batch[middle:]


def backoff_seconds(attempt: int, retry_after: float | None, *, maximum: float, chance: float) -> float:
    """Return how long to wait after a failed try.

    Doubles from one second, takes at least half of that (so that clients that failed together do not come
    back together), and no less than the server asks for; never more than ``maximum``.

    Args:
        attempt: Tries so far, from 1.
        retry_after: Seconds that the server asked for.
        maximum: Upper bound.
        chance: A random number from 0 to 1.
    """
    doubled = min(maximum, FIRST_BACKOFF_SECONDS * 2.0 ** min(attempt - 1, 30))
    return min(maximum, max(doubled * (0.5 + chance / 2), retry_after or 0.0))


def retry_after_seconds(header: str | None, now: datetime | None = None) -> float | None:
    """Read ``Retry-After`` in both of its forms, seconds and an HTTP date; None if it is absent or makes no sense."""
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            moment = parsedate_to_datetime(header)
        except ValueError:
            return None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        seconds = (moment - (now or datetime.now(UTC))).total_seconds()
    return max(0.0, seconds) if seconds < float("inf") else None
