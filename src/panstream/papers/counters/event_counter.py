"""The event-level counter: a noisy count, plus noise for every dyadic segment of time that contains the present."""

from __future__ import annotations

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
from panstream.primitives.kernels.algorithms.partial_sums import segment_slots, segment_starts
from panstream.primitives.noise import NoiseSource
from panstream.privacy.continual_loss import event_counter_memberships, segment_levels


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCounter(PartialSumCounter):
    """A running sum that starts as noise; an output adds the noise of the dyadic segments that contain its time.

    Privacy:
        Unit: one event added or removed, or with ``unit="slot"`` a slot's content replaced. The noise of running
        segments is in the state by design, and the proof counts it in the view. An event moves at most c draws,
        where c is ceil(log2 T), or one more if T is a power of two (with one-step ticks only if T is 2, 4 or 8); all
        draws have rate epsilon/(c·sensitivity), so one copy at any time and all outputs lose exactly ``epsilon``. A
        refresh adds noise to the count and to every running segment, and any number of announced copies costs no more.
        Proof: docs/proofs/continual-papers.md, Theorem 4.

    Error:
        Every answer has 1 + ceil(log2 T) draws: variance 2(1 + ceil(log2 T))(c·sensitivity/epsilon)².

    Args:
        horizon: Number of slots.

    Examples:
        >>> monitor = EventCounter(epsilon=1.0, horizon=1000).start()
        >>> monitor.update([1, 1])
        >>> monitor.tick().claim.horizon
        1000

    Reference: Budaeva et al. 2013, Algorithm 1 (Dwork, Naor, Pitassi, Rothblum 2010), with the exact number of
    draws that an event moves.
    """

    theorem: ClassVar[str] = "Theorem 4"

    needs_horizon: ClassVar[bool] = True

    @property
    def memberships(self) -> int:
        """Return c, the number of draws that an event moves at worst."""
        return event_counter_memberships(self.horizon or 1, one_step_ticks=self.one_step_ticks)

    @property
    def shape(self) -> Shape:
        """Return one accumulator (the count), one closed sum (the last output) and one noise per segment length."""
        return 1, 1, segment_levels(self.horizon or 1)

    def answer_parts(self, time: int) -> NoiseParts:
        """Return the count's draw and one for each running segment."""
        return ((1 + self.shape[2], self.law),)

    def initialize(self, state: TickState, rng: NoiseSource) -> None:
        """Draw the initial noise of the count."""
        add_noise(state.open, self.law, rng)
        state.open_draws[0] = 1

    def close(self, state: TickState, slots: SlotBatch, rng: NoiseSource) -> None:
        """Add up the slots and publish each sum; draw the noise of new segments and erase that of ended ones."""
        size = slots.totals.size
        starts = rng.scratch.array(segment_starts(state.time, size, state.kept.size), np.int64)
        starts.fill(0)
        add_noise(starts, self.law, rng)
        outputs = rng.scratch.array(size, np.int64)
        running = rng.scratch.array(size, np.int64)
        counts = np.empty(size, np.int64)
        segment_slots(state.kept, state.kept_draws, state.time, starts, outputs, counts)
        np.cumsum(slots.totals, out=running)
        running += state.open
        state.open[:] = running[-1:]
        outputs += running
        counts += state.open_draws
        state.closed[0] = outputs[-1]
        state.closed_draws[0] = counts[-1]
        slots.answers[:] = outputs
        slots.draws[:] = counts

    def answer(self, state: TickState) -> CounterAnswer:
        """Return the last output."""
        return self.total(state, [0])
