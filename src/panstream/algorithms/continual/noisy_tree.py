"""The tree of noised accumulators behind the tree counters: open and close nodes, add up released sums.

Every level has one open node. Its accumulator starts as noise, receives every item, and when the node is complete it is
released with fresh noise and starts again as fresh noise. A node is then estimated from its own released sum and from
its children's, each weighted by the inverse of its variance (Honaker 2015), and an answer adds up the estimates of the
closed nodes whose parents are still open. The state holds only running totals of those: a few numbers per level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.noise_sum_tails import Law, NoiseParts, add_noise
from panstream.algorithms.continual.tree_shape import EPOCHS, MAX_CAPACITY, TreeShape, epoch_of
from panstream.primitives.codec import FieldLayout, noised, public, published
from panstream.primitives.kernels.algorithms.noisy_tree import advance, count_closings
from panstream.primitives.memory.scratch import Scratch, wipe
from panstream.primitives.noise import DiscreteGaussian, NoiseSource
from panstream.privacy.continual_loss import gaussian_losses, tree_law

_CHUNK = 1 << 12  # numbers of leaves taken in at a time

Leaves = Callable[[int, int, NDArray[np.int64]], None]
"""Writes what the slots from ``start`` to ``stop`` add to their leaves."""


@dataclass(slots=True)
class TreeState:
    """What the machine holds between two steps, and all an intruder can copy. One row per level, leaves first."""

    open: NDArray[np.int64] = noised()  # the accumulators of the open nodes
    draws: NDArray[np.int64] = public()  # how many draws of noise each row of ``open`` holds
    digits: NDArray[np.int64] = public()  # closed nodes whose parent is open
    closed: NDArray[np.int64] = published()  # bits of float64: their estimates and variance; last row: past epochs
    ticks: int = public()
    epoch: int = public()
    events: int = public()  # counted only if the adjacency makes it public

    @property
    def sums(self) -> NDArray[np.float64]:
        """Return ``closed`` as float64: estimates from released sums, and variances in the last column."""
        return self.closed.view(np.float64)


@dataclass(frozen=True, slots=True)
class NoisyTree:
    """A tree of vectors of ``width`` numbers: of the shape ``bounded``, or one tree per epoch without a horizon.

    ``sensitivity`` is the L1 norm of what a row adds, for Laplace noise, and ``norm_square`` the square of its L2 norm,
    for Gaussian noise.
    """

    epsilon: float
    sensitivity: int
    contributions: int
    width: int
    one_step_ticks: bool
    bounded: TreeShape | None
    delta: float = field(default=0.0, kw_only=True)
    norm_square: int = field(default=1, kw_only=True)

    def shape(self, epoch: int) -> TreeShape:
        """Return the tree of an epoch; with a horizon there is only one."""
        return TreeShape.of_epoch(epoch, self.one_step_ticks) if self.bounded is None else self.bounded

    def law(self, epoch: int = 0) -> Law:
        """Return the distribution of every draw in an epoch."""
        rows = self.shape(epoch).rows
        return _law(self.epsilon, self.delta, rows, self.sensitivity, self.norm_square, self.contributions)

    def gaussian_losses(self) -> tuple[float, float]:
        """Return the loss of a copy with all outputs, and that of the outputs alone, as zCDP."""
        losses = []
        for epoch in range(EPOCHS if self.bounded is None else 1):
            law = self.law(epoch)
            assert isinstance(law, DiscreteGaussian)
            rows = self.shape(epoch).rows
            one_level = self.norm_square * self.contributions**2
            cells = rows * self.width * self.contributions
            losses.append(gaussian_losses([(law, rows * one_level)], cells, self.one_step_ticks * one_level))
        return max(joint for joint, _ in losses), max(outputs for _, outputs in losses)

    def variance_of_draw(self, epoch: int) -> float:
        """Return the variance of a draw, in the unit in which ``totals`` and ``close`` report variances."""
        return self.law(epoch).variance

    def add_noise(self, rows: NDArray[np.int64], epoch: int, rng: NoiseSource) -> None:
        """Add one draw to every number of whole rows."""
        add_noise(rows.reshape(-1), self.law(epoch), rng)

    @property
    def rows(self) -> int:
        """Return the number of levels of the state, that of the last epoch's tree."""
        return self.shape(EPOCHS - 1).rows

    def layout(self, slots: int) -> dict[str, FieldLayout]:
        """Return the layout of the state's fields, for at most ``slots`` slots."""
        return {
            "open": FieldLayout("i8", (self.rows, self.width)),
            "draws": FieldLayout("i8", (self.rows,), at_least=0),
            "digits": FieldLayout("i8", (self.rows,), at_least=0, below=MAX_CAPACITY + 2),
            "closed": FieldLayout("i8", (self.rows + 1, self.width + 1)),
            "ticks": FieldLayout("int", at_least=0, below=slots + 1),
            "epoch": FieldLayout("int", at_least=0, below=EPOCHS if self.bounded is None else 1),
            "events": FieldLayout("int", at_least=0),
        }

    def add(self, state: TreeState, total: NDArray[np.int64]) -> None:
        """Add to the open node of every level."""
        state.open[: self.shape(state.epoch).rows] += total

    def refresh(self, state: TreeState, rng: NoiseSource) -> None:
        """Add one draw to every noised accumulator."""
        noisy = self._noisy(state.epoch)
        self.add_noise(state.open[noisy], state.epoch, rng)
        state.draws[noisy] += 1

    def close(
        self, state: TreeState, slots: int, leaves: Leaves | None, rng: NoiseSource
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """Fill and close ``slots`` slots, all or none.

        The scratch memory of ``rng`` is wiped as the slots are closed.

        Returns:
            The estimated sums after each slot, their variances, and the noisy sums that the last slot released.
        """
        # Slots are closed on a copy that replaces the state at the end: an error in between, such as a failing noise
        # source, leaves the state as it was. The copy is wiped in any case.
        sums = np.empty((slots, self.width))
        variances = np.empty(slots)
        released = np.zeros((self.rows, self.width), np.int64)
        work = TreeState(*(_copied(getattr(state, declared.name)) for declared in fields(state)))
        size = max(1, _CHUNK // self.width)
        closed = 0
        try:
            with Scratch() as scratch:
                space = scratch.array(min(size, slots) * self.width, np.int64).reshape(-1, self.width)
                space.fill(0)
                for start in range(0, slots, size):
                    stop = min(start + size, slots)
                    if leaves is not None:
                        leaves(start, stop, space[: stop - start])
                    slot = start
                    while slot < stop:
                        piece = space[slot - start : stop - start]
                        ends = stop == slots and not self.one_step_ticks
                        done, closed = self._run(work, piece, ends, sums[slot:], variances[slot:], released, rng)
                        slot += done
                    rng.scratch.close()
            _commit(work, state)
        finally:
            wipe(work.open)
        return sums, variances, released[:closed].reshape(-1)

    def totals(self, state: TreeState) -> NDArray[np.float64]:
        """Return the sum of all closed nodes, part by part, and its variance last."""
        rows = self.shape(state.epoch).rows
        level = state.sums[:rows].copy()
        level[:, -1] *= self.variance_of_draw(state.epoch)
        above = np.zeros(self.width + 1)
        for row in range(rows - 1, 0, -1):  # from the top down, as in the kernel: the estimates must round alike
            above += level[row]
        total: NDArray[np.float64] = state.sums[-1] + above + level[0]
        return total

    def noise_parts(self, ticks: int) -> list[NoiseParts]:
        """Return the draws in the noisiest answers up to ``ticks``, of the last epoch and of the one before it."""
        # An epoch's root replaces its many nodes, so the noisiest answer may lie before the last epoch began.
        if self.bounded is not None:
            return [((self.bounded.noise(ticks).worst, self.law()),)]
        epoch, slots = epoch_of(ticks, self.one_step_ticks)
        parts: list[NoiseParts] = []
        for number in range(max(0, epoch - 1), epoch + 1):
            previous_epochs = [(self.shape(e).noise().last, self.law(e)) for e in range(number)]
            within = self.shape(number).noise(slots if number == epoch else None)
            parts.append((*previous_epochs, (within.worst, self.law(number))))
        return parts

    def variance_at(self, ticks: int) -> float:
        """Return the variance of one part's sum in the answer after ``ticks`` slots."""
        if self.bounded is not None:
            return self.bounded.noise(ticks).last * self.variance_of_draw(0)
        epoch, slots = epoch_of(ticks, self.one_step_ticks)
        previous_variance = sum(self.shape(e).noise().last * self.law(e).variance for e in range(epoch))
        return previous_variance + self.shape(epoch).noise(slots).last * self.law(epoch).variance

    def _noisy(self, epoch: int) -> slice:
        """Return the rows whose accumulators are noised between steps."""
        return slice(1 if self.one_step_ticks else 0, self.shape(epoch).rows)

    def open_all(self, state: TreeState, rng: NoiseSource) -> None:
        """Start all accumulators of an epoch as noise."""
        noisy = self._noisy(state.epoch)
        state.open[:] = 0
        state.draws[:] = 0
        state.digits[:] = 0
        self.add_noise(state.open[noisy], state.epoch, rng)
        state.draws[noisy] = 1

    def _run(
        self,
        work: TreeState,
        leaves: NDArray[np.int64],
        leaf_starts: bool,
        sums: NDArray[np.float64],
        variances: NDArray[np.float64],
        released: NDArray[np.int64],
        rng: NoiseSource,
    ) -> tuple[int, int]:
        """Close slots up to the end of the epoch; return how many, and how many levels closed in the last one."""
        # The number of draws follows from the public clock, so all noise is drawn before the kernel runs.
        shape = self.shape(work.epoch)
        rows = shape.rows
        weights = shape.weights
        digits = work.digits[:rows]
        done, nodes, ended = count_closings(digits, weights, shape.capacity, shape.rooted, len(leaves))
        # After the root's last slot no level starts again; an open leaf gets its start noise at the end of the call.
        draws = done + 2 * nodes - (rows - 1 if ended else -int(leaf_starts))
        noise = rng.scratch.array(self.width * draws, np.int64)
        noise.fill(0)
        self.add_noise(noise.reshape(draws, self.width), work.epoch, rng)
        closed = advance(
            work.open[:rows],
            work.draws,
            digits,
            work.sums[:rows],
            work.sums[-1],
            weights,
            shape.capacity,
            shape.rooted,
            leaves[:done],
            noise,
            leaf_starts,
            self.variance_of_draw(work.epoch),
            sums,
            variances,
            released,
        )
        work.ticks += done
        if ended:
            work.sums[-1] = self.totals(work)
            work.sums[:-1] = 0.0
            work.epoch += 1
            self.open_all(work, rng)
        return int(done), int(closed)


_law = lru_cache(maxsize=1024)(tree_law)


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def _commit(work: TreeState, state: TreeState) -> None:
    for declared in fields(state):
        value = getattr(work, declared.name)
        if isinstance(value, np.ndarray):
            getattr(state, declared.name)[:] = value
        else:
            setattr(state, declared.name, value)
