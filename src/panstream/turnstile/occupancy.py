"""How many users made this many cells busy: maximum likelihood over the noisy counts of every level.

Cell (l, b) is empty with chance z_l = (1 - rho_l)**n after n users, rho_l the chance that a user falls into it. Its
counter is plus with chance w + (P - w)·z_l, so the released count of level l has mean B·pi_l and variance
B·pi_l(1-pi_l) + Var DLap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Occupancy"]

Floats = NDArray[np.float64]

_GRID = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """The law of released counts as a function of n, for ``buckets`` cells in each of ``levels`` rows."""

    buckets: int
    levels: int
    at_zero: float
    elsewhere: float
    noise_variance: float

    @property
    def capacity(self) -> float:
        """Return the number of users at which each cell of the last level has been hit once on average."""
        return self.buckets * 2.0 ** (self.levels - 1)

    @property
    def shares(self) -> Floats:
        """Return for every level the chance that a user falls into it."""
        levels = np.arange(1, self.levels + 1, dtype=np.float64)
        levels[-1] = self.levels - 1
        return np.exp2(-levels)

    def mean(self, users: ArrayLike) -> Floats:
        """Return the expected count of every level, one row for each number of users."""
        hit = np.minimum(self.shares / self.buckets, 1 - 1e-12)
        empty = np.exp(np.asarray(users, np.float64)[..., np.newaxis] * np.log1p(-hit))
        return np.asarray(self.buckets * (self.elsewhere + (self.at_zero - self.elsewhere) * empty))

    def variance(self, users: ArrayLike) -> Floats:
        """Return the variance of every level's count, cells taken as independent (an upper bound)."""
        chance = np.clip(self.mean(users) / self.buckets, 0.0, 1.0)
        return self.buckets * chance * (1 - chance) + self.noise_variance + 1.0 / 12

    def log_likelihood(self, counts: Sequence[int], users: ArrayLike) -> Floats:
        """Return the normal log-likelihood of the counts for each number of users, up to a constant."""
        variance = self.variance(users)
        deviation = np.asarray(counts, np.float64) - self.mean(users)
        return np.asarray(-0.5 * np.sum(deviation**2 / variance + np.log(variance), axis=-1))

    def estimate(self, counts: Sequence[int]) -> float:
        """Return the n with the largest likelihood, from 0 to 32 times the capacity."""
        grid = self._grid()
        for _ in range(12):  # each round narrows the bracket by a factor of 20
            best = int(np.argmax(self.log_likelihood(counts, grid)))
            around = grid[max(best - 1, 0)], grid[min(best + 1, grid.size - 1)]
            if around[1] - around[0] < 1e-6 * max(1.0, around[0]):
                break
            grid = np.linspace(*around, 41)
        return float(grid[best])

    def standard_error(self, users: float) -> float:
        """Return the inverse square root of the Fisher information about n."""
        at = max(users, 0.5)
        step = max(0.25, 1e-4 * at)
        ends = np.array([at - step, at + step])
        slope = np.diff(self.mean(ends), axis=0)[0] / (2 * step)
        bend = np.diff(self.variance(ends), axis=0)[0] / (2 * step)
        spread = self.variance(at)
        information = float(np.sum(slope**2 / spread + 0.5 * (bend / spread) ** 2))
        return 1.0 / math.sqrt(information)

    def interval(self, counts: Sequence[int], level: float) -> tuple[float, float]:
        """Return the n whose likelihood ratio the counts do not reject at ``level`` (Wilks)."""
        best = self.estimate(counts)
        drop = NormalDist().inv_cdf((1 + level) / 2) ** 2 / 2
        floor = float(self.log_likelihood(counts, best)) - drop
        grid = self._grid()
        rejected = grid[self.log_likelihood(counts, grid) < floor]
        below, above = rejected[rejected < best], rejected[rejected > best]
        low = self._cross(counts, floor, float(below[-1]), best) if below.size else 0.0
        high = self._cross(counts, floor, float(above[0]), best) if above.size else float(grid[-1])
        return low, high

    def _grid(self) -> Floats:
        return np.concatenate([[0.0], np.geomspace(0.5, 32.0 * self.capacity, _GRID)])

    def _cross(self, counts: Sequence[int], floor: float, outer: float, inner: float) -> float:
        """Return where the likelihood falls below ``floor`` between ``inner`` and ``outer``."""
        for _ in range(50):
            middle = (inner + outer) / 2
            keeps = float(self.log_likelihood(counts, middle)) >= floor
            inner, outer = (middle, outer) if keeps else (inner, middle)
        return outer
