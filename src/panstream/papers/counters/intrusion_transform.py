"""The single-intrusion transform: makes any mechanism of partial sums private against one copy of its state.

A mechanism in the p-sum framework is a *plan*: when each sum opens and closes, and which closed sums add up to the
answer. The transform gives every sum its own accumulator that starts as noise, and releases it with fresh noise. Data
that arrived before the intrusion is hidden by the accumulator's initial noise, data after it by the noise of the
release. So one copy and all outputs together lose what the outputs lose: memberships·kappa. Initial noise is not
enough: the release minus the copied state would be what arrived in between. A sum of a single slot that is filled and
closed in one step is never in a copy and needs no initial noise.

To make another mechanism pan-private, subclass `PartialSums` and define what it ``opens`` and ``closes`` at every slot,
the ``answer_indices`` of the closed sums in an answer, its ``shape`` and its ``memberships``.

Reference: Budaeva et al. 2013, §2.4.4, Theorem 2, with the fresh noise at release.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from panstream.algorithms.continual.noise_sum_tails import add_noise
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
    """An accumulator whose release replaces the closed sum ``slot``, or is added to it if ``adds``."""

    accumulator: int
    slot: int
    adds: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialSums(PartialSumCounter):
    """Base class of counters defined by a plan of partial sums over slots 1, 2, 3, ..., with the transform applied."""

    @abstractmethod
    def opens(self, slot: int) -> Iterable[AccumulatorOpening]:
        """Return the sums whose first slot is ``slot``."""

    @abstractmethod
    def closes(self, slot: int) -> Iterable[AccumulatorClosing]:
        """Return the sums whose last slot is ``slot``."""

    def answer_indices(self, slot: int) -> Sequence[int]:
        """Return the indices of the closed sums that add up to the answer after ``slot``; the first by default."""
        return (0,)

    def initialize(self, state: TickState, rng: NoiseSource) -> None:
        """Open the sums of the first slot with their initial noise."""
        self._open(state, 1, rng)

    def close(self, state: TickState, slots: SlotBatch, rng: NoiseSource) -> None:
        """Close the slots one by one; subclasses override it with a faster equivalent."""
        self.transform(state, state.time, slots, rng)

    def transform(self, state: TickState, time: int, slots: SlotBatch, rng: NoiseSource) -> None:
        """Fill and close the slots after the first ``time`` ones, with noise at every start and every release."""
        for row in range(slots.totals.size):
            slot = time + row + 1
            state.add(slots.totals[row : row + 1])
            for closing in self.closes(slot):
                self._close(state, closing, rng)
            self._open(state, slot + 1, rng)
            indices = list(self.answer_indices(slot))
            slots.answers[row] = state.closed[indices].sum()
            slots.draws[row] = state.closed_draws[indices].sum()

    def _open(self, state: TickState, slot: int, rng: NoiseSource) -> None:
        for opening in self.opens(slot):
            accumulator = opening.accumulator
            needs_noise = not (self.one_step_ticks and opening.slots == 1)
            state.open[accumulator] = 0
            if needs_noise:
                add_noise(state.open[accumulator : accumulator + 1], self.law, rng)
            state.open_draws[accumulator] = int(needs_noise)

    def _close(self, state: TickState, closing: AccumulatorClosing, rng: NoiseSource) -> None:
        accumulator = closing.accumulator
        index = closing.slot
        add_noise(state.open[accumulator : accumulator + 1], self.law, rng)
        if not closing.adds:
            state.closed[index] = state.closed_draws[index] = 0
        state.closed[index] += state.open[accumulator]
        state.closed_draws[index] += state.open_draws[accumulator] + 1
        state.open[accumulator] = 0
        state.open_draws[accumulator] = IDLE

    def answer(self, state: TickState) -> CounterAnswer:
        """Return the total of the closed sums in the current answer."""
        return self.total(state, list(self.answer_indices(state.time)))
