"""The logarithmic mechanism: a new answer whenever the time is a power of two, for streams without end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from panstream.algorithms.continual.noise_sum_tails import NoiseParts
from panstream.algorithms.continual.partial_sum_counter import Shape, SlotBatch, TickState
from panstream.papers.counters.intrusion_transform import AccumulatorClosing, AccumulatorOpening, PartialSums
from panstream.primitives.noise import NoiseSource


@dataclass(frozen=True, slots=True, kw_only=True)
class LogarithmicMechanism(PartialSums):
    """The sum up to the last power of two, for a stream of any length.

    The answer changes at slots 1, 2, 4, 8, ... only. See `HybridMechanism` for a new answer at every slot.

    Privacy:
        Unit: one event added or removed, or with ``unit="slot"`` a slot's content replaced. An event is in one sum;
        its accumulator starts as noise of rate epsilon/sensitivity and closes with fresh noise of that rate. One copy
        at any time and all outputs lose exactly ``epsilon``; any number of announced copies with a refresh too.
        Proof: docs/proofs/continual-papers.md, Theorem 5.

    Error:
        The answer after slot 2**k has 2(k+1) draws: variance 4(k+1)(sensitivity/epsilon)².

    Args:
        horizon: Maximum number of ticks; None for a stream without end.

    Examples:
        >>> monitor = LogarithmicMechanism(epsilon=1.0).start()
        >>> answers = monitor.tick_many([1] * 8)
        >>> bool(answers.value[4] == answers.value[3])
        True

    Reference: Chan, Shi, Song 2011, Mechanism L, as used in Budaeva et al. 2013, §4.1.
    """

    theorem: ClassVar[str] = "Theorem 5"

    memberships: ClassVar[int] = 1  # an event is in one sum
    shape: ClassVar[Shape] = (1, 1, 0)  # one sum from each power of two to the next, and their total
    label: ClassVar[str] = "sum up to the last power of two"

    def opens(self, slot: int) -> Iterator[AccumulatorOpening]:
        """Return the sum up to the next power of two, after each power of two."""
        previous_slot = slot - 1
        if previous_slot & (previous_slot - 1) == 0:
            yield AccumulatorOpening(0, max(1, previous_slot))

    def closes(self, slot: int) -> Iterator[AccumulatorClosing]:
        """Return the sum at each power of two, added to the total."""
        if slot & (slot - 1) == 0:
            yield AccumulatorClosing(0, 0, adds=True)

    def answer_parts(self, time: int) -> NoiseParts:
        """Return two draws for each sum, but one for the first two sums if ticks are one step."""
        sums = time.bit_length()
        return ((2 * sums - (min(sums, 2) if self.one_step_ticks else 0), self.law),)

    def close(self, state: TickState, slots: SlotBatch, rng: NoiseSource) -> None:
        """Close the slots as `PartialSums.transform` does, with the slots between powers of two added in one call."""
        done = 0
        size = slots.totals.size
        while done < size:
            time = state.time + done
            unchanged = (1 << time.bit_length()) - 1 - time if time else 0  # slots before the next power of two
            piece = slots.piece(done, done + unchanged)
            if piece.totals.size:
                total = rng.scratch.array(1, np.int64)
                np.sum(piece.totals, keepdims=True, out=total)
                state.add(total)
                piece.answers[:] = state.closed
                piece.draws[:] = state.closed_draws
            done += unchanged
            if done < size:
                self.transform(state, time + unchanged, slots.piece(done, done + 1), rng)
                done += 1
