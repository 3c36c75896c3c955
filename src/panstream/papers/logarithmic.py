"""The logarithmic mechanism: an answer whenever the time is a power of two, for streams without end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from panstream.continual.counter_state import TickState
from panstream.continual.noise_sum import NoiseParts
from panstream.papers.intrusion_transform import Closing, Opening, PartialSums
from panstream.randomness import Source

__all__ = ["DoublingPlan", "LogarithmicMechanism"]


@dataclass(frozen=True, slots=True)
class DoublingPlan:
    """One sum from each power of two to the next; the answer is the total of those that closed."""

    accumulators: int = 1
    places: int = 1

    def opens(self, slot: int) -> Iterator[Opening]:
        """Return the sum up to the next power of two, after each power of two."""
        before = slot - 1
        if before & (before - 1) == 0:
            yield Opening(0, max(1, before))

    def closes(self, slot: int) -> Iterator[Closing]:
        """Return the sum at each power of two, added to the total."""
        if slot & (slot - 1) == 0:
            yield Closing(0, 0, adds=True)

    def answer(self, slot: int) -> Sequence[int]:
        """Return the total."""
        return (0,)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogarithmicMechanism(PartialSums):
    """The sum up to the last power of two, for a stream of any length.

    An answer changes at slots 1, 2, 4, 8, ...; in between the last one stands. See :class:`HybridMechanism` for
    answers at every slot.

    Privacy
        Unit: one event added or removed, or with ``unit="slot"`` a slot's content exchanged. An event lies in one sum;
        its accumulator starts as noise of rate epsilon/sensitivity and closes with fresh noise of that rate. One look at
        any time and all outputs lose exactly ``epsilon``; any number of announced looks with a refresh too.

    Error
        The answer after slot 2**k holds 2(k+1) draws: variance 4(k+1)(sensitivity/epsilon)².

    Parameters
        As in :class:`SlotCounter`; ``horizon`` may stay None.

    Example
        >>> monitor = LogarithmicMechanism(epsilon=1.0).start()
        >>> answers = monitor.ticks([1] * 8)
        >>> bool(answers.value[4] == answers.value[3])
        True

    Reference: Chan, Shi, Song (2011), Mechanism L, as used in "Private Aggregate Computations on Streams", 4.1.
    """

    @property
    def memberships(self) -> int:
        """Return 1: an event lies in one sum."""
        return 1

    @property
    def plan(self) -> DoublingPlan:
        """Return sums of doubling length."""
        return DoublingPlan()

    @property
    def label(self) -> str:
        """Return what the estimate is called."""
        return "sum up to the last power of two"

    def answer_parts(self, time: int) -> NoiseParts:
        """Return two draws for each sum, but one for the first two where a tick is one step."""
        sums = time.bit_length()
        return ((2 * sums - (min(sums, 2) if self.one_step_ticks else 0), self.law),)

    def advance(
        self, state: TickState, totals: NDArray[np.int64], source: Source
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Do what the transform does with doubling sums, from one power of two to the next at a time."""
        answers, variances = np.empty(totals.size), np.empty(totals.size)
        done = 0
        while done < totals.size:
            standing = (1 << state.time.bit_length()) - 1 - state.time if state.time else 0
            piece = slice(done, done + min(standing, totals.size - done))
            quiet = piece.stop - piece.start
            if quiet:
                total = source.scratch.array(1, np.int64)
                np.sum(totals[piece], keepdims=True, out=total)
                self.add(state, total)
                answers[piece] = state.closed[0]
                variances[piece] = float(state.closed_draws[0]) * self.law.variance
                state.time += quiet
            done = piece.stop
            if done < totals.size:
                last = slice(done, done + 1)
                answers[last], variances[last] = self.transform.advance(state, totals[last], source)
                done += 1
        return answers, variances
