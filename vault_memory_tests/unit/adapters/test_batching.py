from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vault_memory.adapters.batching import Limits, backoff_seconds, halves, pack, retry_after_seconds


@dataclass(frozen=True)
class Size:
    """A text as the limits see it."""

    token_bound: int
    wire_bytes: int


sizes = st.lists(st.builds(Size, st.integers(1, 50), st.integers(1, 50)), max_size=40)
limits = st.builds(Limits, st.integers(1, 10), st.integers(1, 100), st.integers(1, 100))


@given(sizes, limits)
def test_pack_keeps_order_and_limits(texts, bounds):
    """Batches hold all texts in order, within every limit, unless a text is over one by itself."""
    batches = list(pack(texts, bounds))

    assert texts == [text for batch in batches for text in batch]
    for batch in batches:
        assert 0 < len(batch) <= bounds.max_texts
        if len(batch) > 1:
            assert sum(text.token_bound for text in batch) <= bounds.max_tokens
            assert sum(text.wire_bytes for text in batch) <= bounds.max_bytes


@given(st.lists(st.integers(), min_size=2, max_size=99))
def test_halves_are_strictly_smaller(batch):
    """Both halves are smaller than the whole, none is empty, nothing is lost."""
    first, second = halves(batch)

    assert batch == [*first, *second]
    assert 0 < len(first) < len(batch)
    assert 0 < len(second) < len(batch)


def test_single_text_is_not_split():
    """One text is the end of splitting."""
    with pytest.raises(ValueError, match="cannot be split"):
        halves([1])


def test_backoff_reaches_minutes():
    """Waits double from a second to the maximum: six tries span more than half a minute."""
    waits = [backoff_seconds(attempt, None, maximum=60, chance=1) for attempt in range(1, 8)]

    assert [1, 2, 4, 8, 16, 32, 60] == waits


@given(st.integers(1, 10_000), st.none() | st.floats(0, 1e9), st.floats(0, 100), st.floats(0, 1))
def test_backoff_is_bounded(attempt, asked, maximum, chance):
    """A wait is never negative or above the maximum, and never below what the server asks for within it."""
    wait = backoff_seconds(attempt, asked, maximum=maximum, chance=chance)

    assert 0 <= wait <= maximum
    assert wait >= min(asked or 0, maximum)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("", None),
        ("7", 7),
        ("0.25", 0.25),
        ("-3", 0),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("Wed, 21 Oct 2026 07:28:30 GMT", 30),
        ("Wed, 21 Oct 2026 07:28:30 -0000", 30),
        ("Wed, 21 Oct 2026 07:27:00 GMT", 0),
        ("Wed, 99 Oct 2026 07:27:00 GMT", None),
    ],
)
def test_retry_after(header, seconds):
    """Both forms of the header are read, and nonsense counts as absent."""
    now = datetime(2026, 10, 21, 7, 28, tzinfo=UTC)

    assert seconds == retry_after_seconds(header, now)
