"""The interface of sources of events, with defaults."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypedDict

from panstream.engine.rows.row_batch import RowBatch, RowSchema


class SourceSettings(TypedDict, total=False):
    """Options of every source."""

    batch_rows: int
    batch_time: float
    poll: float
    clock: Callable[[], float]
    sleep: Callable[[float], None]


class EventSource(ABC):
    """A source of rows in micro-batches.

    Args:
        schema: The columns to read.
        batch_rows: Most rows of a micro-batch.
        batch_time: Seconds after which a live source yields an incomplete micro-batch.
        poll: Seconds between two checks of a live source that has no rows.
        clock: The monotonic clock, for tests.
        sleep: The function that waits, for tests.
    """

    def __init__(
        self,
        schema: RowSchema,
        *,
        batch_rows: int = 50_000,
        batch_time: float = 0.020,
        poll: float = 0.2,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._schema = schema
        self._rows = batch_rows
        self._seconds = batch_time
        self._poll = poll
        self._clock = clock
        self._sleep = sleep
        self.name: str | None = None  # of a broker's stream or topic
        self._applied: dict[str, int] = {}
        self._ahead: dict[str, list[int]] | None = None
        self._stopped = False

    def resume(self, applied: Mapping[str, int], ahead: Mapping[str, Collection[int]] | None = None) -> None:
        """Set the last applied sequence of every producer; rows up to it are not yielded again.

        Args:
            applied: The sequences.
            ahead: Later sequences that some shards of a cluster had reached: batches end there again. None if there are
                no shards, so that batches that come again may differ.
        """
        self._applied = dict(applied)
        self._ahead = None if ahead is None else {producer: sorted(after) for producer, after in ahead.items()}

    @abstractmethod
    def batches(self) -> Iterator[RowBatch | None]:
        """Yield batches in order, and ``None`` at least every ``poll`` seconds while there is nothing to read.

        The caller wipes each batch.
        """

    def acknowledge(self, token: object) -> None:  # noqa: B027
        """Record that the batch with this token is part of a durable state: the origin may delete it."""

    def progress(self) -> float | None:
        """Return the fraction that has been read, from 0 to 1; ``None`` for a source without end."""
        return None

    def close(self) -> None:
        """Let ``batches`` end after its current step; rows that were not yielded are read again in the next run."""
        self._stopped = True
