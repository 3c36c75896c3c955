"""What the engine asks of a feed, and what most of them answer."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import TypedDict

from panstream.engine.rows.row_batch import RowBatch, RowSchema


class SourceSettings(TypedDict, total=False):
    """What every feed may be told."""

    batch_rows: int
    batch_time: float
    poll: float
    clock: Callable[[], float]
    sleep: Callable[[float], None]


class EventSource(ABC):
    """Rows in micro-batches: of at most ``batch_rows`` rows, which wait ``batch_time`` seconds at most if they trickle
    in. ``clock`` and ``sleep`` can be given, so that time is the caller's.
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
        self._applied: dict[str, int] = {}
        self._stopped = False

    def resume(self, applied: Mapping[str, int]) -> None:
        """Tell the last sequence applied of every producer; what lies up to it will not be yielded again."""
        self._applied = dict(applied)

    @abstractmethod
    def batches(self) -> Iterator[RowBatch | None]:
        """Yield batches in order, and ``None`` at least every ``poll`` seconds while there is nothing to read."""

    def acknowledge(self, token: object) -> None:  # noqa: B027
        """Take note that the batch with this token is part of a durable state."""

    def progress(self) -> float | None:
        """Return the share that has been read, from 0 to 1; ``None`` where there is no end."""
        return None

    def close(self) -> None:
        """End ``batches`` after what it is doing; what was not handed out comes again in the next run."""
        self._stopped = True
