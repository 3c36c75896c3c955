"""The order of batches: those of a producer are applied by sequence number, on whatever connections they come.

Parsing is parallel, so batches can overtake each other. One that comes before its predecessor waits here until that
one is applied. Waiting batches hold memory and requests of their token's quota, of which the missing batch needs some
as well, so their number and size are bounded. A batch that would exceed the bounds, or that waited too long, is
refused, and its sender sends it again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.producers import Sender
from panstream.errors import ProducerFenced
from panstream.server.auth import Limits
from panstream.server.errors import HttpError
from panstream.server.ingest.jobs import Job

_MEMORY_SHARE = 4  # waiting batches may use a fourth of the memory for bodies


@dataclass(slots=True)
class _Waiting:
    job: Job
    deadline: float


class ReorderBuffer:
    """Puts batches in order. Not thread-safe: for the engine's thread."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._waiting: dict[Sender, dict[int, _Waiting]] = {}
        self._stopping = False

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def seconds_left(self) -> float:
        """The seconds until a batch has waited too long; infinity if none waits."""
        deadlines = (batch.deadline for batches in self._waiting.values() for batch in batches.values())
        first = min(deadlines, default=math.inf)
        return 0.0 if self._stopping and self._waiting else max(0.0, first - self._clock())

    def stop(self) -> None:
        """Refuse waiting batches from now on: nothing is received any more, so what they wait for will not come."""
        self._stopping = True

    def arrange(self, jobs: Iterable[Job], engine: Engine) -> list[Job]:
        """Return the jobs that need not wait, each producer's in the order of their numbers, and hold the others.

        Returns:
            Jobs to be applied, and jobs that are refused here. Batches of a producer that is not open are among the
            former: the engine refuses them.
        """
        ready: list[Job] = []
        reached = {sender: _last(engine, sender) for sender in self._waiting}
        for waiting in list(reached):
            ready += self._successors(waiting, reached)
        for job in jobs:
            sender = job.sender
            if sender is None:
                ready.append(job)
                continue
            last = reached.setdefault(sender, _last(engine, sender))
            if job.sequence > last + 1:
                ready += self._hold(job, sender, reached)
            else:
                reached[sender] = max(last, job.sequence)
                ready += [job, *self._successors(sender, reached)]
        return [*ready, *self._overdue(reached)]

    def _successors(self, sender: Sender, reached: dict[Sender, float]) -> Iterator[Job]:
        """Yield waiting batches that follow what a producer has ``reached``, and advance that."""
        batches = self._waiting.get(sender, {})
        for number in sorted(batches):
            if number > reached[sender] + 1:
                return
            reached[sender] = max(reached[sender], number)
            yield self._take(sender, number)

    def _take(self, sender: Sender, number: int) -> Job:
        job = self._waiting[sender].pop(number).job
        if not self._waiting[sender]:
            del self._waiting[sender]
        return job

    def _hold(self, job: Job, sender: Sender, reached: dict[Sender, float]) -> Iterator[Job]:
        """Hold a batch; yield those that are refused because of it, which may be itself."""
        if job.sequence > reached[sender] + self._limits.window:
            yield _refuse_gap(job, reached[sender])
            return
        batches = self._waiting.setdefault(sender, {})
        if job.sequence in batches:  # the sender has sent it again
            earlier = batches[job.sequence].job
            earlier.refusal = HttpError("unavailable", "the same batch was sent again", retry_after=1)
            yield earlier
        batches[job.sequence] = _Waiting(job, self._clock() + self._limits.order_time)
        while self._exceeds_bounds(sender.token):
            held = [producer for producer in self._waiting if producer.token == sender.token]
            farthest = max(held, key=lambda producer: max(self._waiting[producer]) - reached[producer])
            refused = self._take(farthest, max(self._waiting[farthest]))
            refused.refusal = HttpError(
                "rate_limited", "too many batches wait for earlier ones of their producers; try again", retry_after=1
            )
            yield refused

    def _exceeds_bounds(self, token: str) -> bool:
        """Return whether a token's batches hold too many requests, or more than half of what others leave."""
        count = size = others = 0
        for sender, batches in self._waiting.items():
            held = sum(batch.job.body.reserved for batch in batches.values() if batch.job.body is not None)
            if sender.token == token:
                count += len(batches)
                size += held
            else:
                others += held
        return count >= self._limits.window or 2 * size > self._limits.memory // _MEMORY_SHARE - others

    def _overdue(self, reached: dict[Sender, float]) -> Iterator[Job]:
        now = self._clock()
        for sender, batches in list(self._waiting.items()):
            for number, waiting in list(batches.items()):
                if self._stopping:
                    job = self._take(sender, number)
                    job.refusal = HttpError("unavailable", "the server is stopping", retry_after=5)
                    yield job
                elif waiting.deadline <= now:
                    yield _refuse_gap(self._take(sender, number), reached[sender])


def _last(engine: Engine, sender: Sender) -> float:
    """Return the number of a producer's last applied batch; infinity if it is not open."""
    try:
        return max(0, engine.last_sequence(engine.producers.position_key(sender)))
    except ProducerFenced:
        return math.inf


def _refuse_gap(job: Job, last: float) -> Job:
    job.refusal = HttpError(
        "sequence_gap",
        f"batch {last + 1} of this producer has not come, and this one was not counted: send that one, then this one",
    )
    return job
