"""The single-intrusion transform: any mechanism made of partial sums, made safe against a stolen state.

A mechanism in the p-sum framework is a *plan*: which sums are kept, when each opens and closes, and which closed ones
add up to the answer. The transform gives every sum its own accumulator that starts as noise, and releases it with fresh
noise. A unit of data that came before the look is hidden by the noise the accumulator started with; one that came after
by the noise of its release. So one copy and all outputs together lose what the outputs alone lose: memberships·kappa.
Initial noise alone would not do: release minus state shows what came in between. A sum of a single slot that is filled
and closed in one step never meets an intruder and needs no initial noise.

To make a mechanism of your own pan-private, subclass `PartialSums` and say what it ``opens`` and ``closes`` at
every slot, from which ``places`` it answers, its ``shape`` and its ``memberships``.

Reference: Budaeva et al. 2013, §2.4.4, Theorem 2, with the fresh noise at release.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from panstream.algorithms.continual.partial_sum_counter import (
    IDLE,
    CounterAnswer,
    PartialSumCounter,
    SlotBatch,
    TickState,
)
from panstream.primitives.noise import NoiseSource


@dataclass(frozen=True, slots=True)
class AccumulatorOpening:
    """An accumulator that starts empty, for the next ``slots`` slots."""

    accumulator: int
    slots: int


@dataclass(frozen=True, slots=True)
class AccumulatorClosing:
    """An accumulator that is released into ``slot``, where it replaces what was there or is added to it."""

    accumulator: int
    slot: int
    adds: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialSums(PartialSumCounter):
    """Base of the counters that are a plan of partial sums over slots 1, 2, 3, ..., with the transform applied."""

    @abstractmethod
    def opens(self, slot: int) -> Iterable[AccumulatorOpening]:
        """Return the sums whose first slot is ``slot``."""

    @abstractmethod
    def closes(self, slot: int) -> Iterable[AccumulatorClosing]:
        """Return the sums whose last slot is ``slot``."""

    def places(self, slot: int) -> Sequence[int]:
        """Return the places that add up to the answer after ``slot``: the first, unless a mechanism has more."""
        return (0,)

    def initialize(self, state: TickState, rng: NoiseSource) -> None:
        """Open the first sums of an empty state."""
        self._open(state, 1, rng)

    def close(self, state: TickState, slots: SlotBatch, rng: NoiseSource) -> None:
        """Close the slots one by one."""
        self.transform(state, state.time, slots, rng)

    def transform(self, state: TickState, time: int, slots: SlotBatch, rng: NoiseSource) -> None:
        """Fill and close the slots that come after the first ``time`` ones: noise at every start and every release."""
        for row in range(slots.totals.size):
            slot = time + row + 1
            state.add(slots.totals[row : row + 1])
            for closing in self.closes(slot):
                self._close(state, closing, rng)
            self._open(state, slot + 1, rng)
            indices = list(self.places(slot))
            slots.answers[row] = state.closed[indices].sum()
            slots.draws[row] = state.closed_draws[indices].sum()

    def _open(self, state: TickState, slot: int, rng: NoiseSource) -> None:
        for opening in self.opens(slot):
            accumulator = opening.accumulator
            bare = self.one_step_ticks and opening.slots == 1
            state.open[accumulator] = 0
            if not bare:
                rng.add_discrete_laplace(state.open[accumulator : accumulator + 1], self.law)
            state.open_draws[accumulator] = 0 if bare else 1

    def _close(self, state: TickState, closing: AccumulatorClosing, rng: NoiseSource) -> None:
        accumulator = closing.accumulator
        index = closing.slot
        rng.add_discrete_laplace(state.open[accumulator : accumulator + 1], self.law)
        if not closing.adds:
            state.closed[index] = state.closed_draws[index] = 0
        state.closed[index] += state.open[accumulator]
        state.closed_draws[index] += state.open_draws[accumulator] + 1
        state.open[accumulator] = 0
        state.open_draws[accumulator] = IDLE

    def answer(self, state: TickState) -> CounterAnswer:
        """Add up the places that the plan names."""
        return self.total(state, list(self.places(state.time)))
