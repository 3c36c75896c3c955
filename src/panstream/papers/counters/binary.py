"""The binary mechanism: dyadic partial sums, so that an answer has log T noise terms instead of T."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from panstream.algorithms.continual.noise_sum_tails import NoiseParts, add_noise
from panstream.algorithms.continual.partial_sum_counter import Shape, SlotBatch, TickState
from panstream.papers.counters.intrusion_transform import AccumulatorClosing, AccumulatorOpening, PartialSums
from panstream.primitives.kernels.algorithms.partial_sums import binary_slots, binary_starts
from panstream.primitives.noise import NoiseSource
from panstream.privacy.continual_loss import binary_levels


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryMechanism(PartialSums):
    """A running sum over at most ``horizon`` slots from dyadic partial sums, each with its own noisy accumulator.

    Privacy:
        Unit: one event added or removed (a value from ``lower`` to ``upper``), or with ``unit="slot"`` all events of a
        slot replaced by others. An item enters at most floor(log2 T) + 1 sums; each accumulator starts
        as discrete Laplace noise of rate epsilon/(levels·sensitivity), and its release adds fresh noise of the same
        rate. One unannounced copy of the state at any time and all outputs together lose exactly ``epsilon``; so do any
        number of announced copies, each followed by ``refresh``.
        Proof: docs/proofs/continual-papers.md, Theorem 2.

    Error:
        With b = levels·sensitivity/epsilon, the answer after slot t has two draws for each binary digit 1 of t (one
        for the last digit if ticks are one step): variance about 4b²·popcount(t), 2b²·log2(T) on average.

    Args:
        horizon: Number of slots; further ticks raise BudgetExhausted.

    Examples:
        >>> monitor = BinaryMechanism(epsilon=1.0, horizon=1000).start()
        >>> monitor.update([1, 0, 1])
        >>> estimate = monitor.tick()
        >>> later = monitor.tick_many([1, 0, 1, 1])
        >>> len(later)
        4

    Reference: Budaeva et al. 2013, Algorithm 2, with bit_length(T) levels and the single-intrusion transform of
    §2.4.4 corrected; Chan, Shi, Song 2011 for the binary case.
    """

    theorem: ClassVar[str] = "Theorem 2"

    needs_horizon: ClassVar[bool] = True

    @property
    def memberships(self) -> int:
        """Return the number of levels, floor(log2 T) + 1: sums of level i cover 2**i slots."""
        return binary_levels(self.horizon or 1)

    @property
    def shape(self) -> Shape:
        """Return one accumulator and one closed sum per level of the horizon."""
        levels = binary_levels(self.horizon or 1)
        return levels, levels, 0

    def opens(self, slot: int) -> Iterator[AccumulatorOpening]:
        """Return the levels that start a sum at ``slot`` that ends within the horizon and whose release is used."""
        for level in range(self.shape[0]):
            if (slot - 1) % (2 << level) == 0 and slot - 1 + (1 << level) <= (self.horizon or 1):
                yield AccumulatorOpening(level, 1 << level)

    def closes(self, slot: int) -> Iterator[AccumulatorClosing]:
        """Return the level of the largest power of two that divides ``slot``: its sum ends there."""
        level = (slot & -slot).bit_length() - 1
        yield AccumulatorClosing(level, level)

    def answer_indices(self, slot: int) -> Sequence[int]:
        """Return the levels of the binary digits 1 of ``slot``."""
        return [level for level in range(self.shape[0]) if slot >> level & 1]

    def answer_parts(self, time: int) -> NoiseParts:
        """Return two draws per binary digit 1, minus one for the last digit if ticks are one step."""
        return ((2 * time.bit_count() - (time & 1 and self.one_step_ticks), self.law),)

    def worst_times(self) -> list[int]:
        """Return the times up to the horizon with the most binary digits 1.

        They are the horizon, and the horizon with one digit 1 cleared and all lower digits set.
        """
        last = self.horizon or 1
        cleared = [(last >> i << i) - 1 for i in range(last.bit_length()) if last >> i & 1]
        return [time for time in (last, *cleared) if time > 0]

    def close(self, state: TickState, slots: SlotBatch, rng: NoiseSource) -> None:
        """Close the slots as `PartialSums.transform` does, with the noise drawn in two calls and a compiled loop."""
        last = self.horizon or 1
        one_step = self.one_step_ticks
        size = slots.totals.size
        count = binary_starts(state.time, size, last, self.memberships, int(one_step))
        starts = rng.scratch.array(count, np.int64)
        releases = rng.scratch.array(size, np.int64)
        for drawn in (starts, releases):
            drawn.fill(0)
            add_noise(drawn, self.law, rng)
        binary_slots(*state.sums, last, slots.totals, starts, releases, one_step, slots.answers, slots.draws)
