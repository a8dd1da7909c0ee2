"""One call of an embedder: a queue of batches, workers that empty it, one retry layer.

Belongs here: pacing, splitting, retries and giving up. Does not: one request (``embedding_http``), which embedder there
is (``embedding``).
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

from vault_memory.adapters.batching import Limits, backoff_seconds, estimated_tokens, halves, pack
from vault_memory.adapters.egress import (
    Answer,
    read_answer,
)
from vault_memory.errors import (
    EmbeddingAnswerError,
    EmbeddingDenied,
    EmbeddingError,
    EmbeddingRejected,
    EmbeddingUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from vault_memory.adapters.embed_text import EmbedText
    from vault_memory.adapters.embedding import OpenAIEmbedder
    from vault_memory.adapters.embedding_http import EmbeddingClient

logger = logging.getLogger(__name__)

Vectors = Mapping[str, tuple[float, ...]]
"""By text hash: 1,536 floats of unit length (narrower models padded with zeros)."""

OnVectors = Callable[[Vectors], None]
"""Called in the caller's thread with each batch as it arrives, so that paid vectors outlive a crash."""

_DECODE_DELAY_SECONDS: Final = 0.005
_MAX_ANSWER_TRIES: Final = 3
_MAX_TRIES_OF_A_PIECE: Final = 2
_MAX_BARREN_TEXTS: Final = 5  # this many in a row refused alone with nothing accepted: it is not the texts


@dataclass(slots=True)
class EmbedResult:
    """What came of a call.

    Attributes:
        vectors: By text hash; empty where the caller asked not to keep them.
        failed: By text hash, why it has no vector.
        embedded: Texts that were embedded.
        tokens: As the provider counted them, else an estimate.
        requests: Sent, failed ones included.
        price_usd: Charged, or computed from the price known; None where none is.
    """

    vectors: dict[str, tuple[float, ...]] = field(default_factory=dict, repr=False)
    failed: dict[str, EmbeddingError] = field(default_factory=dict)
    embedded: int = 0
    tokens: int = 0
    requests: int = 0
    price_usd: float | None = 0.0

    @property
    def denied(self) -> EmbeddingDenied | None:
        """Why the provider serves us no more; then nothing but a changed setting helps, and exit status is 3."""
        return next((error for error in self.failed.values() if isinstance(error, EmbeddingDenied)), None)


@dataclass(frozen=True, slots=True)
class Pace:
    """What waiting depends on."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = random.random


def _may_be_the_texts(error: EmbeddingError) -> bool:
    return isinstance(error, EmbeddingUnavailable) and error.may_be_the_texts


def distinct(texts: Sequence[EmbedText]) -> Sequence[EmbedText]:
    """Return each text once."""
    return tuple({text.text_hash: text for text in texts}.values())


@dataclass(slots=True)
class _Family:
    """The pieces of one refused batch: if all of them pass, its size was at fault, and is not tried again."""

    size_may_be_at_fault: bool
    open_pieces: int = 1
    largest_accepted: int = 0


@dataclass(frozen=True, slots=True)
class _Job:
    texts: Sequence[EmbedText]
    family: _Family | None = None


class EmbedRun:
    """One call of ``embed``: a queue of batches, workers that empty it, and what has been learnt."""

    def __init__(self, embedder: OpenAIEmbedder, on_vectors: OnVectors | None, *, keep_vectors: bool) -> None:
        self._embedder = embedder
        self._settings = embedder.settings
        self._on_vectors = on_vectors
        self._keep_vectors = keep_vectors
        self.result = EmbedResult()
        self._jobs: deque[_Job] = deque()
        self._learnt_max_texts = embedder.max_texts_per_request
        self._successes = 0
        self._barren = 0
        self._down: EmbeddingError | None = None
        self._pause_until = 0.0
        self._first = asyncio.Lock()
        self._slots = asyncio.Semaphore(max(1, self._settings.concurrency))
        # The SDK's own parser takes a fifth of the time of json.loads, which would cap the rate at 2,400 texts/s.
        self._read_answer = partial(read_answer, loads=import_module("jiter").from_json)
        self._decoding = asyncio.Lock()

    async def all(self, client: EmbeddingClient, texts: Sequence[EmbedText]) -> None:
        """Embed all texts.

        Twice as many workers as requests in flight: while one reads an answer, another one sends.
        """
        provider = self._embedder.endpoint.provider
        limits = Limits(self._learnt_max_texts, provider.max_request_tokens, provider.max_request_bytes)
        self._jobs.extend(_Job(batch) for batch in pack(texts, limits))
        count = min(len(self._jobs), 2 * max(1, self._settings.concurrency))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(count):
                    group.create_task(self._work(client))
        except BaseExceptionGroup as errors:
            first = errors.exceptions[0]  # the caller's own callback failed; the other workers were cancelled
        else:
            return
        raise first

    async def _work(self, client: EmbeddingClient) -> None:
        while self._jobs:
            if self._embedder.proven or self._down is not None:
                await self._advance(client, self._jobs.popleft())
                continue
            # One at a time until something has worked: a wrong key or an outage is met once, not by all workers.
            async with self._first:
                if self._jobs and not self._embedder.proven and self._down is None:
                    await self._advance(client, self._jobs.popleft())

    async def _advance(self, client: EmbeddingClient, job: _Job) -> None:
        if self._down is not None:
            self._fail(job, self._down)
        elif len(job.texts) > self._learnt_max_texts:
            self._split(job, job.family)
        else:
            await self._settle(client, job)

    async def _settle(self, client: EmbeddingClient, job: _Job) -> None:
        """Send a batch until it is accepted, split or given up."""
        successes_before = self._successes
        attempt = 0
        while True:
            attempt += 1
            outcome, retry_after = await self._send(client, job.texts)
            if isinstance(outcome, Answer):
                self._accept(job, outcome)
                return
            if outcome is self._down:
                self._fail(job, outcome)
                return
            logger.debug("a request for %d texts failed: %s", len(job.texts), outcome)
            if isinstance(outcome, EmbeddingDenied):
                self._give_up(job, outcome, stop=True)
                return
            if isinstance(outcome, EmbeddingRejected):
                self._refuse(job, outcome)
                return
            if attempt >= self._tries(job, outcome):
                await self._after_all_tries(client, job, outcome, others_pass=self._successes > successes_before)
                return
            await self._wait(attempt, outcome, retry_after)

    async def _after_all_tries(
        self, client: EmbeddingClient, job: _Job, error: EmbeddingError, *, others_pass: bool
    ) -> None:
        if isinstance(error, EmbeddingAnswerError):
            self._refuse(job, error)
        elif not _may_be_the_texts(error) or self._embedder.waited:
            # Nothing else got through meanwhile: the rest would wait as long for the same.
            self._give_up(job, error, stop=not others_pass)
        elif not await self._set_apart(client, job, others_pass=others_pass):
            self._give_up(job, error, stop=True)
        elif len(job.texts) == 1:
            self._give_up(job, error, stop=False)

    async def _set_apart(self, client: EmbeddingClient, job: _Job, *, others_pass: bool) -> bool:
        """Split a batch at which the provider fails, if it is not down: whether it is, other texts tell.

        A text that it cannot digest would otherwise fail its neighbours in the batch at every retry.
        """
        if others_pass or (job.family is not None and job.family.largest_accepted):
            if len(job.texts) > 1:
                self._split(job, job.family or _Family(size_may_be_at_fault=False))
            return True
        if len(job.texts) == 1:
            return bool(self._jobs) and await self._passes(client, self._jobs.popleft())
        first, second = halves(job.texts)
        family = job.family or _Family(size_may_be_at_fault=False)
        for half, rest in ((first, second), (second, first)):
            if await self._passes(client, _Job(half), keep=False):
                family.largest_accepted = max(family.largest_accepted, len(half))
                self._jobs.appendleft(_Job(rest, family))
                return True
        return False

    async def _passes(self, client: EmbeddingClient, job: _Job, *, keep: bool = True) -> bool:
        """Send a batch once; ``keep``: if it fails, it stays in the queue."""
        outcome, _ = await self._send(client, job.texts)
        if isinstance(outcome, Answer):
            self._accept(job, outcome)
            return True
        if keep:
            self._jobs.appendleft(job)
        return False

    def _tries(self, job: _Job, error: EmbeddingError) -> int:
        most = self._settings.max_attempts
        if self._embedder.waited:
            # A sync of thirty runs waits out its patience once, and not thirty times.
            return 1
        if isinstance(error, EmbeddingAnswerError):
            # It was paid for: do not buy it six times.
            most = min(most, _MAX_ANSWER_TRIES if job.family is None else _MAX_TRIES_OF_A_PIECE)
        elif _may_be_the_texts(error) and job.family is not None and job.family.largest_accepted:
            most = min(most, _MAX_TRIES_OF_A_PIECE)  # its neighbours passed: waiting does not help
        return most

    async def _send(
        self, client: EmbeddingClient, texts: Sequence[EmbedText]
    ) -> tuple[Answer | EmbeddingError, float | None]:
        pace = self._embedder.pace
        async with self._slots:
            while (pause := self._pause_until - pace.now()) > 0:
                await pace.sleep(pause)
            if self._down is not None:
                return self._down, None
            self.result.requests += 1
            body = await client.post(self._embedder.model, self._embedder.dimensions, [text.text for text in texts])
        if not isinstance(body, bytes):
            return body.error, body.retry_after
        # Not in a thread: it would hold the interpreter's lock for 5 ms at each turn of the loop, and four answers
        # of a megabyte are eighty turns. One at a time, and only once the loop has sent what it can send.
        async with self._decoding:
            await asyncio.sleep(_DECODE_DELAY_SECONDS)
            return self._decode(body, len(texts)), None

    def _decode(self, body: bytes, count: int) -> Answer | EmbeddingError:
        try:
            return self._read_answer(body, count, self._embedder.dimensions, self._embedder.endpoint)
        except EmbeddingError as error:
            return error.with_traceback(None)

    async def _wait(self, attempt: int, error: EmbeddingError, retry_after: float | None) -> None:
        pace = self._embedder.pace
        seconds = backoff_seconds(
            attempt, retry_after, maximum=self._settings.max_backoff_seconds, chance=pace.chance()
        )
        if isinstance(error, EmbeddingUnavailable) and retry_after is not None:
            # The server speaks to all of us: nobody sends before that.
            self._pause_until = max(self._pause_until, pace.now() + seconds)
        await pace.sleep(seconds)

    def _accept(self, job: _Job, answer: Answer) -> None:
        self._embedder.proven = True
        self._embedder.waited = False
        self._successes += 1
        self._barren = 0
        vectors = dict(zip((text.text_hash for text in job.texts), answer.vectors, strict=True))
        tokens = answer.tokens
        if tokens is None:
            tokens = sum(estimated_tokens(text.text) for text in job.texts)
        result = self.result
        result.embedded += len(vectors)
        result.tokens += tokens
        price = self._embedder.price_usd(tokens)
        if answer.price_usd is not None and self._settings.price_usd_per_million_tokens is None:
            price = answer.price_usd
        result.price_usd = None if price is None or result.price_usd is None else result.price_usd + price
        if self._keep_vectors:
            result.vectors.update(vectors)
        if job.family is not None:
            job.family.largest_accepted = max(job.family.largest_accepted, len(job.texts))
            self._close_piece(job.family)
        if self._on_vectors is not None:
            self._on_vectors(vectors)

    def _refuse(self, job: _Job, error: EmbeddingError) -> None:
        """Split a batch whose content or size is at fault; a text that is refused alone has failed."""
        wrong_answer = isinstance(error, EmbeddingAnswerError)
        if len(job.texts) > 1:
            self._split(job, job.family or _Family(size_may_be_at_fault=not wrong_answer))
            return
        self._barren += 1
        if self._barren < _MAX_BARREN_TEXTS or not (wrong_answer or not (self._successes or self._embedder.proven)):
            self._give_up(job, error, stop=False)
        elif wrong_answer:
            self._give_up(job, error, stop=True)
        else:
            hint = "every text so far was refused, check embedding.model and embedding.dimensions"
            denied = EmbeddingDenied(f"{error}: {hint}")
            # Nor was it the texts before: they are tried again once the setting is mended.
            rejected = [text for text, reason in self.result.failed.items() if isinstance(reason, EmbeddingRejected)]
            self.result.failed.update(dict.fromkeys(rejected, denied))
            self._give_up(job, denied, stop=True)

    def _split(self, job: _Job, family: _Family | None) -> None:
        first, second = halves(job.texts)
        self._jobs.extendleft((_Job(second, family), _Job(first, family)))
        if family is not None:
            family.open_pieces += 1

    def _close_piece(self, family: _Family) -> None:
        family.open_pieces -= 1
        if not family.open_pieces and family.size_may_be_at_fault:
            self._learnt_max_texts = max(1, min(self._learnt_max_texts, family.largest_accepted))

    def _give_up(self, job: _Job, error: EmbeddingError, *, stop: bool) -> None:
        """Fail a batch for good in this call; ``stop``: and with it everything that was not sent yet."""
        self._fail(job, error)
        if job.family is not None:
            job.family.size_may_be_at_fault = False
            self._close_piece(job.family)
        if stop:
            self._down = error
            self._embedder.proven = False
            self._embedder.waited = isinstance(error, EmbeddingUnavailable)

    def _fail(self, job: _Job, error: EmbeddingError) -> None:
        self.result.failed.update(dict.fromkeys((text.text_hash for text in job.texts), error))
