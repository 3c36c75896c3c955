"""Sums over a sliding window, from nodes that are released once and used by the windows of two blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.noise_sum_tails import NoiseParts, add_noise, error_bound
from panstream.algorithms.continual.partial_sum_counter import (
    CounterAnswer,
    PartialSumCounter,
    Shape,
    SlotBatch,
    TickState,
)
from panstream.primitives import validation as checks
from panstream.primitives.kernels.algorithms.partial_sums import (
    max_window_nodes,
    window_draws,
    window_node,
    window_slots,
)
from panstream.primitives.noise import NoiseSource
from panstream.privacy.continual_loss import segment_levels


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowedSum(PartialSumCounter):
    """The sum over the last ``window`` slots, for a stream of any length.

    Slots are grouped into blocks of ``window``. Each block is a binary tree without its root; every node is released
    when its last slot closes. An answer adds nodes that cover the end of the last block and the beginning of the
    current one. Both blocks' answers use the same released nodes, so no node is paid for twice.

    Privacy:
        Unit: one event added or removed, or with ``unit="slot"`` a slot's content exchanged. A slot lies in
        h = max(1, ceil(log2 W)) nodes, whose accumulators start as noise of rate epsilon/(h·sensitivity) and close with
        fresh noise of that rate. One copy at any time and all outputs lose exactly ``epsilon``; any number of announced
        copies with a refresh too. With ``delta`` the noise is Gaussian, and they lose (epsilon, delta).
        Proof: docs/proofs/continual-papers.md, Theorem 6.

    Error:
        An answer is made of at most h + 1 nodes of two draws each if W is a power of two (at most 2h otherwise):
        variance at most 4(h+1)(h·sensitivity/epsilon)², at any time; with ``delta`` h instead of h².

    Args:
        horizon: How many ticks there will be at most; None for a stream without end.
        window: Number of slots, 1 to 2**26; the state holds about four integers per slot, and
            as many public counts.
        delta: 0 for discrete Laplace noise; above 0 for discrete Gaussian noise, which grows with the square root of
            the levels: alone, it is smaller for windows of more than about 1,000 slots; where many questions share
            one budget, zCDP adds up to less.

    Examples:
        >>> monitor = WindowedSum(epsilon=1.0, window=24).start()
        >>> len(monitor.tick_many([1, 0] * 50))
        100

    Reference: Budaeva et al. 2013, §4.1 (WindowSum of Bolot, Fawaz, Muthukrishnan, Nikolov, Taft 2013), with the
    block's root left out and the single-intrusion transform.
    """

    theorem: ClassVar[str] = "Theorem 6"

    window: int
    delta: float = 0.0

    def check(self) -> None:
        """Raise InvalidParameter unless the window is in 1..2**26, whose state fits into memory."""
        checks.require_integer_in_range(1, 1 << 26, window=self.window)

    @property
    def memberships(self) -> int:
        """Return h, the number of levels of a block."""
        return segment_levels(self.window)

    @property
    def lone_slots(self) -> int:
        """Return how many nodes hold nothing but the last slot of a block, which may be cut off; at least one."""
        return sum((self.window - 1) % (1 << level) == 0 for level in range(self.memberships))

    @property
    def shape(self) -> Shape:
        """Return one accumulator per level, and the nodes of two blocks."""
        nodes = sum(-(-self.window >> level) for level in range(self.memberships))
        return self.memberships, 2 * nodes, 0

    def answer_parts(self, time: int) -> NoiseParts:
        """Return the draws of the nodes that cover the window after ``time`` slots."""
        lengths = [stop - start for _, start, stop in _cover(time, self.window)]
        without_start = sum(length == 1 for length in lengths) if self.one_step_ticks else 0
        return ((2 * len(lengths) - without_start, self.law),)

    def weight_of(self, slots: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the number of slots in the window."""
        return np.minimum(slots, self.window).astype(np.float64)

    def error_bound(self, *, beta: float, ticks: int | None = None) -> float:
        """Return the error that is exceeded with probability at most ``beta``, at slot ``ticks`` or at any slot."""
        if ticks is not None or math.isinf(self.epsilon):
            return PartialSumCounter.error_bound(self, beta=beta, ticks=ticks)
        return error_bound(beta, ((2 * _max_nodes(self.window), self.law),)) * self.scale

    def initialize(self, state: TickState, rng: NoiseSource) -> None:
        """Open the first node of every level."""
        for level in range(self.memberships):
            has_start_noise = not self.one_step_ticks or (level > 0 and self.window > 1)
            if has_start_noise:
                add_noise(state.open[level : level + 1], self.law, rng)
            state.open_draws[level] = int(has_start_noise)

    def close(self, state: TickState, slots: SlotBatch, rng: NoiseSource) -> None:
        """Close the slots one after the other."""
        # How many nodes close and open follows from the public time, so all noise is drawn before the kernel runs.
        totals = slots.totals
        one_step = self.one_step_ticks
        draws = window_draws(state.time, totals.size, self.window, self.memberships, one_step)
        noise = rng.scratch.array(draws, np.int64)
        noise.fill(0)
        add_noise(noise, self.law, rng)
        window_slots(*state.sums, self.window, totals, noise, one_step, slots.answers, slots.draws)

    def answer(self, state: TickState) -> CounterAnswer:
        """Return the sum of the nodes that cover the window."""
        return self.total(state, [node for node, _, _ in _cover(state.time, self.window)])

    @property
    def label(self) -> str:
        """Return what the estimate is called."""
        return f"sum over the last {self.window} slots"


def _cover(time: int, window: int) -> list[tuple[int, int, int]]:
    """Return (index, first offset, offset after the last) of the nodes that cover the window after ``time`` slots."""
    levels = segment_levels(window)
    nodes = sum(-(-window >> level) for level in range(levels))
    block, offset = divmod(time - 1, window)
    cover = []
    for covered_block, start, stop in ((block, 0, offset + 1), (block - 1, offset + 1, window if block else 0)):
        while start < stop:
            level = next(
                n for n in range(levels - 1, -1, -1) if start % (1 << n) == 0 and min(start + (1 << n), window) <= stop
            )
            end = min(start + (1 << level), window)
            cover.append(((covered_block & 1) * nodes + int(window_node(level, start, window)), start, end))
            start = end
    return cover


@lru_cache(maxsize=64)
def _max_nodes(window: int) -> int:
    return int(max_window_nodes(window, segment_levels(window)))
