"""Base of the algorithms on trees of noisy sums: parameters, input, answers and errors.

With ``contributions=K`` a tree counter protects a whole user: K rows move every level by K times as much, so the noise
is K times as large and the loss stays epsilon (group privacy, which is exact here). A user who contributes m > K rows
loses m·epsilon/K, no more.

Within one batch the bound is enforced exactly: with the ids in ``users=``, a user's rows after the first K of the batch
are left out. Across batches it cannot be: to reject a user's next row the state would have to record that the user was
there, and a copy of the state would show it; a noisy record would reject the wrong users. So across batches the sender
of the data must guarantee K: one reading per meter and hour, one vote per ballot paper. ``users`` is not stored.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.first_contributions import first_contributions
from panstream.algorithms.continual.grid import Grid, GridBatch
from panstream.algorithms.continual.noise_sum_tails import Law, error_bound
from panstream.algorithms.continual.noisy_tree import NoisyTree, TreeState
from panstream.algorithms.continual.ticker import LARGEST_SIGMA, Ticker
from panstream.algorithms.continual.tree_shape import EPOCHS, MAX_CAPACITY, MAX_LEVELS, TreeShape
from panstream.core.estimate import Estimate, Estimates
from panstream.errors import InvalidBatch, InvalidParameter
from panstream.primitives import validation as checks
from panstream.primitives.codec import FieldLayout
from panstream.primitives.memory.scratch import Scratch, wipe
from panstream.primitives.noise import NoiseSource
from panstream.privacy.continual_loss import tree_kappa, tree_sigma

__all__ = ["SLOT_TOTAL", "Arrays", "GridTree", "Tree", "TreeBatch", "TreeState"]

_CHUNK = 1 << 12  # numbers of leaves that are added up at a time
_SMALLEST_RATE = 2.0**-42  # rates are multiples of 2**-52: a smaller one would be rounded by more than a thousandth
_LARGEST_RATE = 1 << 10  # from which on DiscreteLaplace.at_most raises
SLOT_TOTAL = 1 << 40  # largest total of a slot

Arrays = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True, slots=True, eq=False)
class TreeBatch:
    """What one batch adds to every open accumulator, and how many events it holds."""

    total: NDArray[np.int64]
    events: int

    def __len__(self) -> int:
        return self.events

    def wipe(self) -> None:
        """Overwrite the totals."""
        wipe(self.total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree(Ticker[TreeState]):
    """Base of the tree algorithms. Subclasses give what an event adds to a leaf, and how sums are decoded.

    Args:
        delta: 0 for discrete Laplace noise, whose loss is at most ``epsilon``; above 0 for discrete Gaussian noise,
            which grows with the square root of the levels: one copy and all outputs lose (epsilon, delta).
        horizon: How many ticks there will be at most; without one the error is about 1.6 times as large.
        one_step_ticks: Every slot is filled and closed in one step by ``tick_many``; ``update`` and
            ``tick`` are refused, and an open slot needs no noise.
        levels: Levels of the tree; chosen for the smallest mean squared error, and stored with
            the state.
        capacity: Leaves of the tree; chosen as the levels are.
    """

    state_type: ClassVar[type[Any]] = TreeState
    proof: ClassVar[str] = "continual-tree.md"

    delta: float = 0.0
    one_step_ticks: bool = False
    contributions: int | None = None
    levels: int | None = None
    capacity: int | None = None

    def __post_init__(self) -> None:
        self._check_numbers()
        self._choose_shape()
        Ticker.__post_init__(self)
        if self.delta:
            norm = math.sqrt(self.norm_square)
            smallest, largest = (self.gaussian_scale(epoch) * norm for epoch in (0, EPOCHS - 1))
            self.require_drawable(smallest, largest, self.sensitivity)
        else:
            self._check_rates()

    def gaussian_scale(self, epoch: int) -> float:
        """Return sigma for items of length 1, which follows from the levels of an epoch and the budget."""
        rows = self.shape(epoch).rows
        return tree_sigma(self.epsilon, self.delta, rows, contributions=self.contributions or 1)

    def _check_rates(self) -> None:
        rows = self.engine.shape(EPOCHS - 1).rows
        if tree_kappa(self.epsilon, rows, self.sensitivity, self.contributions or 1) < _SMALLEST_RATE:
            raise InvalidParameter(
                f"epsilon must be larger for items of {self.sensitivity} steps, or the resolution coarser, "
                f"got epsilon={self.epsilon}"
            )
        first = self.engine.shape(0).rows
        if _LARGEST_RATE <= tree_kappa(self.epsilon, first, self.sensitivity, self.contributions or 1) < math.inf:
            upper = _LARGEST_RATE * first * self.sensitivity * (self.contributions or 1)
            raise InvalidParameter(
                f"epsilon must be below {upper:,} here: less noise cannot be drawn exactly, got epsilon={self.epsilon}"
            )

    def _choose_shape(self) -> None:
        if self.horizon is None:
            if self.levels is not None or self.capacity is not None:
                raise InvalidParameter("levels and capacity must not be given where horizon is None")
            return
        if self.levels is not None:
            checks.require_integer_in_range(1, MAX_LEVELS, levels=self.levels)
        if self.capacity is None:
            shape = TreeShape.best(self.horizon, self.one_step_ticks, self.levels, gaussian=self.delta > 0)
            object.__setattr__(self, "levels", shape.levels)
            object.__setattr__(self, "capacity", shape.capacity)
            return
        if self.levels is None or not 1 <= self.capacity <= MAX_CAPACITY:
            raise InvalidParameter(f"capacity must be in 1..{MAX_CAPACITY} and needs levels=, got {self.capacity}")
        if self.shape(0).slots < self.horizon:
            raise InvalidParameter(f"capacity must leave room for horizon={self.horizon}, got capacity={self.capacity}")

    @property
    @abstractmethod
    def sensitivity(self) -> int:
        """Return the L1 norm of what one protected unit changes in a leaf."""

    @property
    def norm_square(self) -> int:
        """Return the square of the L2 norm of the same."""
        return self.sensitivity**2

    @property
    def width(self) -> int:
        """Return how many numbers a leaf holds."""
        return 1

    @abstractmethod
    def read(self, values: Any) -> GridBatch:
        """Return the checked rows of a batch, one event each.

        Args:
            values: The values of the batch, as `batch` takes them.
        """

    def read_slots(self, values: Any) -> GridBatch:
        """Return the checked values of whole slots, one per slot.

        Args:
            values: A value per slot.
        """
        return self.read(values)

    def spread(self, rows: NDArray[np.int64], leaves: NDArray[np.int64]) -> None:
        """Write what each row adds to a leaf.

        Args:
            rows: The checked rows.
            leaves: Where to write.
        """
        leaves[:, 0] = rows

    def add_up(self, rows: NDArray[np.int64], total: NDArray[np.int64]) -> None:
        """Add the leaves of all ``rows`` to ``total``, in scratch memory that is wiped."""
        size = max(1, _CHUNK // self.width)
        with Scratch() as scratch:
            leaves = scratch.array(size * self.width, np.int64).reshape(size, self.width)
            part = scratch.array(self.width, np.int64)
            for start in range(0, rows.size, size):
                piece = rows[start : start + size]
                self.spread(piece, leaves[: piece.size])
                np.sum(leaves[: piece.size], axis=0, out=part)
                total += part

    @property
    def engine(self) -> NoisyTree:
        """Return the tree of accumulators that holds the sums."""
        return _engine(
            self.epsilon,
            self.sensitivity,
            self.contributions or 1,
            self.width,
            self.one_step_ticks,
            None if self.horizon is None else self.shape(0),
            delta=self.delta,
            norm_square=self.norm_square if self.delta else 1,
        )

    def shape(self, epoch: int) -> TreeShape:
        """Return the tree of an epoch; with a horizon there is only one."""
        if self.horizon is None:
            return TreeShape.of_epoch(epoch, self.one_step_ticks)
        return TreeShape(self.levels or 1, self.capacity or 1, self.one_step_ticks)

    def gaussian_losses(self) -> tuple[float, float]:
        """Return what a copy with all outputs loses, as zCDP, and what the outputs alone lose."""
        return self.engine.gaussian_losses()

    def overshoot(self, rho: float) -> float:
        """Return how far lattice noise can take the log-odds beyond those of normal noise of the zCDP ``rho``."""
        if self.gaussian_scale(0) * math.sqrt(self.norm_square) < 1.0:
            return math.inf
        return 2.0 * rho * self.sensitivity / (self.norm_square * (self.contributions or 1))

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return the layout of the levels' accumulators, the released sums and the public clock."""
        return self.engine.layout(self.last_slot)

    def initial_state(self, rng: NoiseSource) -> TreeState:
        """Return a tree whose accumulators all start as noise."""
        state = self.empty_state()
        self.engine.open_all(state, rng)
        return state

    def batch(self, values: Any, *, users: Any = None) -> TreeBatch:
        """Check events of the open slot, one per row; with ``users=`` use each user's first ``contributions`` only."""
        self.require_multi_step()
        if users is not None and self.contributions is None:
            raise InvalidBatch("users= needs an algorithm built with contributions=")
        steps = self.read(values)
        total = np.zeros(self.width, np.int64)
        try:
            if users is None:
                self.add_up(steps.rows, total)
                return TreeBatch(total, len(steps))
            keep = first_contributions(users, len(steps), self.contributions or 1)
            retained = GridBatch(steps.rows[keep.view(bool)], (keep,))
            try:
                self.add_up(retained.rows, total)
            finally:
                retained.wipe()
                wipe(retained.rows)
            return TreeBatch(total, len(retained))
        finally:
            steps.wipe()

    def update(self, state: TreeState, batch: TreeBatch, rng: NoiseSource) -> None:
        """Add the batch to the open node of every level."""
        self.require_slots(state.ticks, 1)
        self.engine.add(state, batch.total)
        state.events += batch.events if self.counts_events else 0

    def tick(self, state: TreeState, rng: NoiseSource) -> Estimate:
        """Close the slot and return the estimate so far."""
        self.require_multi_step()
        self.require_slots(state.ticks, 1)
        _, _, released = self.engine.close(state, 1, None, rng)
        return self._answer(state, tuple(int(number) for number in released))

    def tick_many(self, state: TreeState, values: Any, rng: NoiseSource) -> Estimates:
        """Take one value per slot, close each, and return all estimates. What ``update`` left open is in the first.

        Each slot is filled and closed in one step, so its leaf needs no noise of its own at the start.
        """
        steps = self.read_slots(values)
        try:
            self.require_slots(state.ticks, len(steps))
            previous_events = state.events

            def leaves(start: int, stop: int, out: NDArray[np.int64]) -> None:
                self.spread(steps.rows[start:stop], out)

            sums, variances, _ = self.engine.close(state, len(steps), leaves, rng)
        finally:
            steps.wipe()
        state.events += len(steps) if self.counts_events else 0
        closed = np.arange(1, len(steps) + 1)
        value, error = self.decode(sums, variances, previous_events + closed)
        support = self.bounds(state.ticks - len(steps) + closed)
        return Estimates(
            unclipped=value, standard_error=error, claim=self.claim(), name=self.slot_label, support=support
        )

    def release(self, state: TreeState, rng: NoiseSource) -> Estimate:
        """Return the estimate of the last tick again; it uses only numbers that are public already."""
        self.require_tick(state.ticks)
        return self._answer(state, ())

    def refresh(self, state: TreeState, rng: NoiseSource) -> None:
        """Add fresh noise to every open accumulator after an announced intrusion; any number of them is covered.

        Between any two copies there must be a refresh: an unannounced copy is covered only in the last phase, or in
        every phase that no announced copy ends.
        """
        self.engine.refresh(state, rng)

    def _answer(self, state: TreeState, released: tuple[int, ...]) -> Estimate:
        total = self.engine.totals(state)
        value, error = self.decode(total[np.newaxis, :-1], total[-1:], np.array([state.events]))
        return self.describe(float(value[0]), float(error[0]), self.engine.law(state.epoch), released, state.ticks)

    def expected_estimate(self, ticks: int, rows: float = 0.0) -> Estimate:
        """Return the answer after ``ticks`` slots if ``rows`` values were uniform in the range and all draws were 0."""
        total = self.expected_totals(ticks, rows)
        value, error = self.decode(total[np.newaxis, :-1], total[-1:], np.array([round(rows)]))
        return self.describe(float(value[0]), float(error[0]), self.engine.law(), (), ticks)

    def expected_totals(self, ticks: int, rows: float) -> NDArray[np.float64]:
        """Return the sums of all parts for that case, and their variance last."""
        return np.append(rows * self.uniform_totals(), self.engine.variance_at(ticks))

    def uniform_totals(self) -> NDArray[np.float64]:
        """Return the mean of a row's leaf if values are uniform in the range."""
        return np.zeros(self.width)

    def decode(self, sums: NDArray[np.float64], variances: NDArray[np.float64], events: NDArray[np.int64]) -> Arrays:
        """Return values and standard errors, slot by slot, from the estimated sums of all parts.

        Args:
            sums: The estimated sum of every part; the last axis is that of the slots.
            variances: Their variances.
            events: The estimated number of events.
        """
        return sums[:, 0] * self.scale, np.sqrt(variances) * self.scale

    def describe(self, value: float, error: float, law: Law, released: tuple[int, ...], slots: int) -> Estimate:
        """Return the estimate after ``slots`` slots with its interval."""
        draws = (error / self.scale) ** 2 / law.variance if law.variance else 0.0
        return self.make_estimate(value, error, ((draws, law),), released, slots)

    def error_bound(self, *, beta: float, ticks: int | None = None) -> float:
        """Return the error that any single answer up to ``ticks`` exceeds with probability at most ``beta``.

        ``ticks`` is the horizon by default; without both the noise grows without end and the bound is infinite.
        """
        return self.scale * self.error_in_steps(beta, ticks)

    def error_in_steps(self, beta: float, ticks: int | None, parts: float = 1.0) -> float:
        """Return the same in steps, for a combination of sums with weights up to 1 whose squares sum to ``parts``."""
        noiseless_error = self.error_without_noise(ticks)
        if noiseless_error is not None:
            return noiseless_error
        return max(
            error_bound(beta, [(parts * draws, law) for draws, law in noise])
            for noise in self.engine.noise_parts(ticks or self.last_slot)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GridTree(Tree):
    """Base of the tree algorithms whose rows are numbers on a grid."""

    @property
    @abstractmethod
    def grid(self) -> Grid:
        """Return the grid to which values are rounded; raise InvalidParameter if its parameters are out of range."""

    @property
    def sensitivity(self) -> int:
        """Return by how many steps one unit changes a leaf at most."""
        return self.grid.sensitivity("slot" if self.unit == "slot" else "event")

    def check(self) -> None:
        """Raise InvalidParameter if range or resolution are out of range."""
        _ = self.grid

    def gaussian_steps(self, most: int, degree: int = 1) -> int:
        """Return how many steps a range may have for Gaussian noise that is drawn exactly: a power of two."""
        scale = 2.0 * self.gaussian_scale(EPOCHS - 1)  # the L2 norm is at most twice the number of steps, to a power
        if scale == 0.0:
            return most
        return min(most, 1 << max(0, math.floor(math.log2(LARGEST_SIGMA / scale) / degree)))

    def read(self, values: Any) -> GridBatch:
        """Return the checked rows of a batch as steps of the grid."""
        return self.grid.read(values)


_engine = lru_cache(maxsize=256)(NoisyTree)
