"""LeastSquaresTree: continual sums with the least noise, for trusted machines. NOT pan-private."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.grid import MAX_STEPS, Bounds, Grid, GridBatch
from panstream.algorithms.continual.noise_sum_tails import error_bound
from panstream.algorithms.continual.ticker import Ticker
from panstream.algorithms.continual.tree_shape import node_draws
from panstream.core.estimate import Estimate, Estimates
from panstream.errors import InvalidParameter, NotSupported
from panstream.primitives.codec import FieldLayout, noise, noised, public, published
from panstream.primitives.kernels.algorithms.least_squares_tree import advance, draws_needed, open_below, sampled_noise
from panstream.primitives.noise import DiscreteLaplace, NoiseSource
from panstream.privacy.claim import Claim, Intrusions
from panstream.privacy.continual_loss import tree_kappa

_CHUNK = 1 << 13  # slots closed at a time: bounds the noise that is in scratch memory
_MAX_LEVELS = 12
_MAX_RADIX = 1 << 12
_COVARIANCE_STEP = 2.0**-9  # in draws, to which covariances are rounded in the search for the largest variance


@dataclass(slots=True)
class _LeastSquaresState:
    """An exact running total and the noise of the nodes around the current slot: a copy reveals everything."""

    total: NDArray[np.int64] = noised()  # exact: the claim covers no intrusion
    siblings: NDArray[np.int64] = noise()  # the children of every open node, and the open node at the top
    complete: NDArray[np.int64] = noise()  # sum of the estimates of the closed children
    to_come: NDArray[np.int64] = noise()  # sum of the noise of the children that are not open yet
    last: NDArray[np.int64] = published()  # the output of the last tick, and its variance in draws (bits of float64)
    digits: NDArray[np.int64] = public()
    ticks: int = public()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastSquaresTree(Ticker[_LeastSquaresState]):
    """Running sums with the least noise, for users who need continual release but no protection of the state.

    **Not pan-private**: the state holds the exact sum. Use KaryTree unless no attacker can ever read the machine's
    memory.

    The answer is the exact sum plus noise. The noise of an answer is the least-squares estimate, from the noises of
    the nodes of a tree over time, of the noise of all slots so far; it may use nodes that are not complete yet, since
    noise is not data. The state holds the noises of the nodes around the current slot: radix numbers per level.

    Privacy:
        Unit: one event added or removed, anywhere in time. All outputs together lose exactly ``epsilon``; the claim
        states "intrusions: none". A copy of the state has no finite loss.
        Proof: docs/proofs/continual-tree.md, Theorem 8.

    Error:
        With b² the variance of a draw, about 2(h·sensitivity/epsilon)²: mean squared error times epsilon² over
        2**10, 2**14, 2**16, 2**20 slots 120, 290, 422, 776: 22 to 25 times less than the event-level counter.

    Args:
        epsilon: Total loss; ``math.inf`` switches all noise off, for tests.
        horizon: Number of ticks.
        lower: Lower end of the range of one event; values outside are moved to the nearer end.
        upper: Upper end of the range of one event.
        radices: Children per node from the leaves up; by default chosen for the horizon. They are
            stored with the state.

    Examples:
        >>> monitor = LeastSquaresTree(epsilon=1.0, horizon=1000).start()
        >>> len(monitor.tick_many([1, 0] * 500))
        1000
        >>> str(monitor.claim().intrusions)
        'none'

    Reference: least squares on a tree of counts after Hay et al. 2010 and Honaker 2015, made online.
    """

    theorem: ClassVar[str] = "Theorem 8"

    state_type: ClassVar[type[Any]] = _LeastSquaresState
    proof: ClassVar[str] = "continual-tree.md"
    max_slots: ClassVar[int] = 1 << 40

    horizon: int
    lower: int = 0
    upper: int = 1
    radices: tuple[int, ...] = ()

    def check(self) -> None:
        """Check the range, and choose the radices if none are given."""
        _ = self.grid
        radices = tuple(self.radices) or _choose_radices(self.horizon)
        object.__setattr__(self, "radices", radices)
        fits = len(radices) <= _MAX_LEVELS and all(1 <= radix <= _MAX_RADIX for radix in radices)
        if not fits or math.prod(radices) < self.horizon:
            raise InvalidParameter(
                f"radices must be in 1..{_MAX_RADIX} and multiply to horizon={self.horizon} or more, got {radices}"
            )
        _ = self.law

    @property
    def grid(self) -> Grid:
        """Return the integers within the range."""
        return Grid.whole_numbers(self.lower, self.upper, self.outside)

    @property
    def sensitivity(self) -> int:
        """Return by how much one event changes a sum at most."""
        return self.grid.sensitivity("event")

    @property
    def law(self) -> DiscreteLaplace:
        """Return the distribution of every draw."""
        return DiscreteLaplace.at_most(tree_kappa(self.epsilon, len(self.radices), self.sensitivity))

    def claim(self) -> Claim:
        """Return the loss of all outputs; no intrusion is covered."""
        claim = Ticker.claim(self)
        return replace(
            claim,
            intrusions=Intrusions(unannounced=0, announced=0),
            public=("how many slots were closed",),
            note=claim.note or "not pan-private: the state holds the exact sum",
        )

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return the layout of the total, the noises around the current slot, and the clock."""
        levels = len(self.radices)
        max_radix = max(self.radices)
        return {
            "total": FieldLayout("i8", (1,)),
            "siblings": FieldLayout("i8", (levels, max_radix)),
            "complete": FieldLayout("i8", (levels,)),
            "to_come": FieldLayout("i8", (levels,)),
            "last": FieldLayout("i8", (2,)),
            "digits": FieldLayout("i8", (levels,), at_least=0, below=max_radix + 1),
            "ticks": FieldLayout("int", at_least=0, below=self.horizon + 1),
        }

    def initial_state(self, rng: NoiseSource) -> _LeastSquaresState:
        """Return an empty sum and the noises of the first nodes."""
        state = self.empty_state()
        levels = len(self.radices)
        drawn = self._draw(1 + sum(self.radices[:-1]), rng)
        open_below(levels - 1, state.siblings, state.to_come, np.array(self.radices), drawn, 0)
        return state

    def batch(self, values: Any) -> GridBatch:
        """Check events of the open slot, one per row.

        Args:
            values: The values, one per row.
        """
        return self.grid.read(values)

    def update(self, state: _LeastSquaresState, batch: GridBatch, rng: NoiseSource) -> None:
        """Add the events to the sum."""
        self.require_slots(state.ticks, 1)
        np.add(state.total, batch.rows.sum(), out=state.total)

    def tick(self, state: _LeastSquaresState, rng: NoiseSource) -> Estimate:
        """Close the slot and return the estimate so far."""
        self.require_slots(state.ticks, 1)
        self._close(state, np.zeros(1, np.int64), rng)
        return self.release(state, rng)

    def tick_many(self, state: _LeastSquaresState, values: Any, rng: NoiseSource) -> Estimates:
        """Take the total of every slot, close each, and return all estimates.

        Args:
            state: The state, which is changed.
            values: The total of every slot.
            rng: Source of the noise.
        """
        totals = self.grid.read_totals(values, MAX_STEPS)
        try:
            self.require_slots(state.ticks, len(totals))
            outputs, draws = self._close(state, totals.rows, rng)
        finally:
            totals.wipe()
        error = np.sqrt(draws * self.law.variance)
        support = self.grid.bounds(None)
        return Estimates(
            unclipped=outputs.astype(np.float64), standard_error=error, claim=self.claim(), name="sum", support=support
        )

    def bounds(self, slots: NDArray[np.int64]) -> Bounds:
        """Return the bound that values of one sign give."""
        return self.grid.bounds(None)

    def release(self, state: _LeastSquaresState, rng: NoiseSource) -> Estimate:
        """Return the estimate of the last tick again."""
        self.require_tick(state.ticks)
        value = int(state.last[0])
        draws = float(state.last.view(np.float64)[1])
        return self.make_estimate(
            float(value), math.sqrt(draws * self.law.variance), ((draws, self.law),), (value,), state.ticks
        )

    def refresh(self, state: _LeastSquaresState, rng: NoiseSource) -> None:
        """Raise NotSupported: a copy of the state has revealed the exact sum."""
        raise NotSupported("LeastSquaresTree is not pan-private: it cannot recover from an intrusion")

    def error_bound(self, *, beta: float) -> float:
        """Return the error that any single answer exceeds with probability at most ``beta``."""
        if math.isinf(self.epsilon):
            return 0.0
        # Rounding adds half a unit at the output, and 2**-11 for every node in it: less than 1 together.
        return 1.0 + error_bound(beta, ((_max_noise(self.radices, self.horizon), self.law),))

    def noise(self, slots: int = 1 << 12) -> tuple[float, float]:
        """Return the mean and the largest variance, in draws, among ``slots`` evenly spaced answers."""
        return _noise(self.radices, self.horizon, slots)

    def _draw(self, count: int, rng: NoiseSource) -> NDArray[np.int64]:
        drawn: NDArray[np.int64] = rng.scratch.array(count, np.int64)
        drawn.fill(0)
        rng.add_discrete_laplace(drawn, self.law)
        return drawn

    def _close(
        self, state: _LeastSquaresState, rows: NDArray[np.int64], rng: NoiseSource
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        # The kernel works on copies, which replace the state's arrays once all slots are closed: a failing noise source
        # leaves the state as it was.
        outputs = np.cumsum(rows)
        draws = np.empty(rows.size)
        outputs += state.total
        total = outputs[-1:].copy()
        radices = np.array(self.radices)
        state_fields = (state.siblings, state.complete, state.to_come, state.digits)
        siblings, complete, to_come, digits = work = tuple(field.copy() for field in state_fields)
        for start in range(0, rows.size, _CHUNK):
            piece = slice(start, min(start + _CHUNK, rows.size))
            noise = self._draw(draws_needed(digits, radices, piece.stop - start), rng)
            below = np.array(node_draws(self.radices))
            advance(siblings, complete, to_come, digits, radices, below, noise, outputs[piece], draws[piece])
            rng.scratch.close()
        if rows.size:
            state.total[:] = total
            for field, new in zip(state_fields, work, strict=True):
                field[:] = new
            state.last[0] = outputs[-1]
            state.last.view(np.float64)[1] = draws[-1]
            state.ticks += rows.size
        return outputs, draws


@lru_cache(maxsize=256)
def _noise(radices: tuple[int, ...], horizon: int, slots: int) -> tuple[float, float]:
    sampled_slots = np.unique(np.linspace(1, horizon, min(slots, horizon)).astype(np.int64))
    mean, worst = sampled_noise(np.array(radices), np.array(node_draws(radices)), sampled_slots)
    return float(mean), float(worst)


@lru_cache(maxsize=256)
def _max_noise(radices: tuple[int, ...], horizon: int) -> float:
    """Return an upper bound of every answer's variance in draws, less than a hundredth above the largest.

    For an open node let v be the variance of the noise of its complete part, c the covariance of this with the noise of
    the whole node, and t the variance of the latter. With the node's own draw, v becomes v - c²/(t + 1), and c and t
    are divided by t + 1. The answer's variance grows with v and t and falls with c, so c may be rounded down and t up,
    which leaves few distinct cases.

    >>> _max_noise((5,), 4)
    4.0
    """
    free = tied = np.array([[0.0], [0.0], [1.0]])  # v, c, t of an open leaf; tied: by the last digits of the horizon
    for level, (radix, draws) in enumerate(zip(radices, node_draws(radices), strict=True)):
        if level:
            free = _after_climbing(free)
            tied = _after_climbing(tied)
        horizon, last = divmod(horizon, radix) if level < len(radices) - 1 else (0, horizon)
        tied = np.hstack(
            [_after_closing(tied, radix, draws, range(last, last + 1)), _after_closing(free, radix, draws, range(last))]
        )
        free = _after_closing(free, radix, draws, range(radix))
    return float(tied[0].max())


def _after_climbing(cases: NDArray[np.float64]) -> NDArray[np.float64]:
    v, c, t = cases
    grid_points = np.stack([np.floor(c / (t + 1.0) / _COVARIANCE_STEP), np.ceil(t / (t + 1.0) / _COVARIANCE_STEP)])
    distinct_points, inverse = np.unique(grid_points, axis=1, return_inverse=True)
    largest = np.zeros(distinct_points.shape[1])
    np.maximum.at(largest, inverse.reshape(-1), v - c**2 / (t + 1.0))
    return np.vstack([largest, distinct_points * _COVARIANCE_STEP])


def _after_closing(cases: NDArray[np.float64], radix: int, draws: float, digits: range) -> NDArray[np.float64]:
    """Return the cases with ``digits`` complete children of ``draws`` draws each, one open child, the rest to come."""
    complete = np.array(digits, np.float64)[:, np.newaxis]
    v, c, t = cases
    rest = t + complete * draws + (radix - 1.0 - complete)
    return np.stack([v + complete * draws, c + complete * draws, rest]).reshape(3, -1)


@lru_cache(maxsize=256)
def _choose_radices(horizon: int) -> tuple[int, ...]:
    """Return the radices with the least mean noise over ``horizon`` slots; all but the first and last are equal.

    >>> len(_choose_radices(1 << 10))
    3
    """
    noise_by_radices: dict[tuple[int, ...], float] = {}
    for levels in range(1, _MAX_LEVELS + 1):
        for tenths in range(9, 20):
            middle = max(2, round(horizon ** (1 / levels) * tenths / 10))
            for first in {round(middle * part / 20) for part in range(14, 27, 2)} if levels > 1 else {horizon}:
                below = (max(first, 2), *[middle] * (levels - 2)) if levels > 1 else ()
                radices = (*below, -(-horizon // math.prod(below)))
                if max(radices) <= _MAX_RADIX:
                    noise_by_radices[radices] = levels**2 * _noise.__wrapped__(radices, horizon, 256)[0]
    closest = sorted(noise_by_radices, key=lambda radices: (noise_by_radices[radices], radices))[:12]
    return min(closest, key=lambda radices: (len(radices) ** 2 * _noise(radices, horizon, 1 << 12)[0], radices))
