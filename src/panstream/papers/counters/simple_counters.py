"""The two simple counting mechanisms: noise on every answer, or noise on every slot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from panstream.algorithms.continual.noise_sum_tails import NoiseParts, add_noise
from panstream.algorithms.continual.partial_sum_counter import (
    CounterAnswer,
    PartialSumCounter,
    Shape,
    SlotBatch,
    TickState,
)
from panstream.papers.counters.intrusion_transform import AccumulatorClosing, AccumulatorOpening, PartialSums
from panstream.primitives.noise import NoiseSource


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleCounterI(PartialSumCounter):
    """A running sum that starts as noise, published with fresh noise after every slot.

    Privacy:
        Unit: one event added or removed, or with ``unit="slot"`` a slot's content replaced. All draws have rate
        epsilon/(T·sensitivity). An event of slot t before the intrusion moves the initial noise and the t - 1 outputs
        before it; one after it moves the outputs from t on: at most T draws, so one copy at any time and all outputs
        lose exactly ``epsilon``, and any number of announced copies with a refresh too.
        Proof: docs/proofs/continual-papers.md, Theorem 3.

    Error:
        Two draws in every answer: variance 4(T·sensitivity/epsilon)². Useful for a few slots only.

    Args:
        horizon: Number of slots.

    Examples:
        >>> monitor = SimpleCounterI(epsilon=1.0, horizon=3).start()
        >>> monitor.update([1, 1, 0])
        >>> monitor.tick().claim.epsilon
        1.0

    Reference: Budaeva et al. 2013, §2.3.2, with the count noised from the start.
    """

    theorem: ClassVar[str] = "Theorem 3"

    needs_horizon: ClassVar[bool] = True
    shape: ClassVar[Shape] = (1, 1, 0)  # one accumulator and the last output

    @property
    def memberships(self) -> int:
        """Return T: an event is in every later output."""
        return self.horizon or 1

    def answer_parts(self, time: int) -> NoiseParts:
        """Return two draws: the initial noise and the output's own."""
        return ((2, self.law),)

    def initialize(self, state: TickState, rng: NoiseSource) -> None:
        """Draw the initial noise of the sum."""
        add_noise(state.open, self.law, rng)
        state.open_draws[0] = 1

    def close(self, state: TickState, slots: SlotBatch, rng: NoiseSource) -> None:
        """Add up the slots and publish each sum with fresh noise."""
        outputs = rng.scratch.array(slots.totals.size, np.int64)
        np.cumsum(slots.totals, out=outputs)
        outputs += state.open
        state.open[:] = outputs[-1:]
        add_noise(outputs, self.law, rng)
        state.closed[0] = outputs[-1]
        state.closed_draws[0] = state.open_draws[0] + 1
        slots.answers[:] = outputs
        slots.draws[:] = state.closed_draws

    def answer(self, state: TickState) -> CounterAnswer:
        """Return the last output."""
        return self.total(state, [0])


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleCounterII(PartialSums):
    """A running sum of noisy slots.

    Privacy:
        Unit: one event added or removed, or with ``unit="slot"`` a slot's content replaced. Every slot starts as noise
        of rate epsilon/sensitivity (unless a tick is one step) and closes with fresh noise of that rate: one copy
        at any time and all outputs lose exactly ``epsilon``. Only published numbers remain in the state, so one copy in
        every slot loses no more, nor do announced copies with a refresh.
        Proof: docs/proofs/continual-papers.md, Theorem 3.

    Error:
        The answer after slot t has 2t draws (t if ticks are one step): variance 4t(sensitivity/epsilon)².

    Args:
        horizon: Number of slots, or None for a stream without end.

    Examples:
        >>> monitor = SimpleCounterII(epsilon=1.0).start()
        >>> len(monitor.tick_many([1, 0, 1]))
        3

    Reference: Budaeva et al. 2013, §2.3.3.
    """

    theorem: ClassVar[str] = "Theorem 3"

    memberships: ClassVar[int] = 1  # an event is in one slot
    shape: ClassVar[Shape] = (1, 1, 0)  # every slot is a separate sum, and the answer is their total

    def opens(self, slot: int) -> Iterator[AccumulatorOpening]:
        """Return a sum of this slot only."""
        yield AccumulatorOpening(0, 1)

    def closes(self, slot: int) -> Iterator[AccumulatorClosing]:
        """Return the slot's sum, which is added to the total."""
        yield AccumulatorClosing(0, 0, adds=True)

    def answer_parts(self, time: int) -> NoiseParts:
        """Return the draws of ``time`` slots."""
        return ((self.slot_draws * time, self.law),)

    def close(self, state: TickState, slots: SlotBatch, rng: NoiseSource) -> None:
        """Close the slots as `PartialSums.transform` does, all in one call."""
        released, draws = self.noisy_slots(state, slots.totals, rng)
        np.cumsum(released, out=released)
        released += state.closed
        np.cumsum(draws, out=draws)
        draws += float(state.closed_draws[0])
        state.closed[0] = released[-1]
        state.closed_draws[0] = int(draws[-1])
        slots.answers[:] = released
        slots.draws[:] = draws
