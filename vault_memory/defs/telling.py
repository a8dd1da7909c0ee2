"""Tells Dagster of written notes, some at a time.

Belongs here: when events of a step are handed over. Does not: what they say (``assets``), how they are stored
(``storage``).

A materialization that an op yields is stored at once and alone, in five statements: 15 ms of the 70 ms that a note
took in a first sync of 1,000 notes. Dagster stores events of one batch together, but makes batches only of what it
yields itself for an ``Output``, and an ``Output`` would mark every partition of the run.
"""

import time
from typing import Final, Self

import dagster as dg
from dagster._core.events import DagsterEventBatchMetadata, generate_event_batch_id

MOST_EVENTS: Final = 50
# A process that is killed takes the events with it that it held back: so few of them, and not for long.
MOST_SECONDS: Final = 0.5


class Telling:
    """Holds materializations back for a moment, and tells of them together; at its end of all that are left."""

    def __init__(self, context: dg.OpExecutionContext) -> None:
        """Take the op that tells of them."""
        self._step = context.get_step_execution_context()
        self._held: list[dg.AssetMaterialization] = []
        self._since = 0.0

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Tell of what is left, also where the op fails: those notes are written."""
        self.flush()

    def add(self, materialization: dg.AssetMaterialization) -> None:
        """Tell of a note, now or soon."""
        if not self._held:
            self._since = time.monotonic()
        self._held.append(materialization)
        if len(self._held) >= MOST_EVENTS or time.monotonic() - self._since >= MOST_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Tell of all that is held back."""
        held, self._held = self._held, []
        batch = generate_event_batch_id()
        for position, materialization in enumerate(held, 1):
            ends = DagsterEventBatchMetadata(batch, is_end=position == len(held))
            dg.DagsterEvent.asset_materialization(self._step, materialization, ends)
