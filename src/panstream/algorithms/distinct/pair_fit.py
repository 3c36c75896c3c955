"""Users of two published bitmaps, of either and of both: the fit of three numbers to noisy patterns of cells.

A cell is empty in A, in B, and in both with chances e^(-rate·n) for n = |A|, |B| and |A or B|. Decoded bits and their
product have these means, so three sums per level are fitted by Fisher scoring, with the covariance of the model. Users
are fixed, not Poisson: the variance of a Poisson number of users in each of A only, B only and both is subtracted
(docs/proofs/bitmap.md, Theorem 3).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.distinct.likelihood import critical_value
from panstream.core.estimate import bisect_decreasing
from panstream.privacy.bitmap_loss import Decoder, level_rates

Floats = NDArray[np.float64]
_MAX_STEPS = 60
_TOLERANCE = 1e-3  # of a standard error
_START_POINTS = 400
_ATOMS = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 1.0]])  # A only, B only, both -> A, B, A or B
_FROM_DIFFERING = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, -0.5]])  # both = (first + second - differ)/2
_MIN_VARIANCE = 0.25  # a count of whole users


@dataclass(frozen=True, slots=True)
class PairFit:
    """Estimates of |A|, |B| and |A or B|, their covariance, and what they are to first order.

    Attributes:
        users: The three estimates.
        covariance: Of their errors.
        gains: By how much each of them moves (first axis) with the mean decoded value of A, of B and of their product
            (last axis) on every level.
    """

    users: Floats
    covariance: Floats
    gains: Floats

    def of(self, weights: tuple[float, float, float]) -> tuple[float, float]:
        """Return a linear combination and its standard error."""
        vector = np.array(weights)
        return float(vector @ self.users), math.sqrt(max(float(vector @ self.covariance @ vector), _MIN_VARIANCE))


@dataclass(frozen=True, slots=True)
class PairModel:
    """The law of the decoded bits of two bitmaps, and of release noise in the counts of their patterns.

    Attributes:
        buckets: Cells of a level.
        levels: Number of levels.
        first: Decoder of the first bitmap's bits.
        second: Decoder of the second one's.
        noise: Variances of the noise in the number of ones of the first and of the second bitmap, and in the number of
            cells that are 1 in both.
        differing: Whether the third is the number of cells in which they differ; those that are 1 in both are half of
            what it leaves of the two others.
    """

    buckets: int
    levels: int
    first: Decoder
    second: Decoder
    noise: tuple[float, float, float] = (0.0, 0.0, 0.0)
    differing: bool = False

    def fit(self, patterns: NDArray[Any]) -> PairFit:
        """Fit the number of users to the counts of bit patterns.

        Args:
            patterns: For each level, how many cells have the bits (0, 0), (0, 1), (1, 0) and (1, 1).
        """
        observed = patterns @ self._decoded.T / self.buckets  # mean decoded value per level: of A, of B, of the product
        rates = level_rates(self.buckets, self.levels)
        users = self._start(observed, rates)
        for _ in range(_MAX_STEPS):
            information, scores, empty = self._scoring(users)
            step = np.linalg.solve(information, np.einsum("knl,nl->k", scores, observed - empty))
            users = users + step
            if np.abs(step).max() < _TOLERANCE * np.sqrt(np.diag(np.linalg.inv(information))).max():
                break
        inverse = np.linalg.inv(information)
        return PairFit(users, inverse - _poisson(users), np.einsum("jk,knl->jnl", inverse, scores))

    def covariance(self, users: Floats) -> Floats:
        """Return the covariance of the three estimates, where the numbers of users are ``users``."""
        return np.asarray(np.linalg.inv(self._scoring(users)[0]) - _poisson(users))

    def noise_response(self) -> Floats:
        """Return by how much a count moves the mean decoded values: rows are the values, columns the counts."""
        first = self.first.one - self.first.zero
        second = self.second.one - self.second.zero
        rows = [[first, 0.0, 0.0], [0.0, second, 0.0]]
        rows.append([self.second.zero * first, self.first.zero * second, first * second])
        response = np.array(rows) / self.buckets
        return response @ _FROM_DIFFERING if self.differing else response

    @property
    def _added(self) -> Floats:
        """Return the covariance that the noise adds to the mean decoded values."""
        response = self.noise_response()
        return np.asarray(response @ np.diag(self.noise) @ response.T)

    @property
    def _decoded(self) -> Floats:
        """Return the value of A, of B and of the product (rows) for every pattern (columns)."""
        in_first = np.array([self.first.zero, self.first.one])
        in_second = np.array([self.second.zero, self.second.one])
        return np.stack([np.repeat(in_first, 2), np.tile(in_second, 2), np.outer(in_first, in_second).ravel()])

    def _scoring(self, users: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the information about the three numbers, the weights of the decoded means, and their expectations."""
        rates = level_rates(self.buckets, self.levels)
        decoded = self._decoded
        empty = np.exp(-np.outer(rates, np.maximum(users, 0.0)))
        only = np.stack(
            [
                empty[:, 2],
                empty[:, 0] - empty[:, 2],
                empty[:, 1] - empty[:, 2],
                1 - empty[:, 0] - empty[:, 1] + empty[:, 2],
            ],
            axis=1,
        )
        only = np.maximum(only, 0.0)
        only /= only.sum(axis=1, keepdims=True)
        chances = only @ np.kron(_channel(self.first), _channel(self.second)).T
        mean = chances @ decoded.T
        covariance = np.einsum("kp,lp,np->nkl", decoded, decoded, chances) - mean[:, :, None] * mean[:, None, :]
        weights = np.linalg.inv(covariance / self.buckets + self._added + 1e-15 * np.eye(3))
        scores = np.einsum("nk,nkl->knl", -rates[:, None] * empty, weights)
        information = np.einsum("knl,nl->kl", scores, -rates[:, None] * empty)
        return information, scores, empty

    def _start(self, observed: Floats, rates: Floats) -> Floats:
        """Return a start on a grid, separately for A, B, and A or B."""
        grid = np.exp(np.linspace(0.0, math.log(8.0 / float(rates.min())), _START_POINTS))
        empty = np.exp(-np.outer(grid, rates))
        of_bit = [decoder.p1 * decoder.p0 / (decoder.p1 - decoder.p0) ** 2 for decoder in (self.first, self.second)]
        variances = (*of_bit, (1 + of_bit[0]) * (1 + of_bit[1]) - 1)
        added = np.diag(self._added) * self.buckets + 1e-9  # where bits are exact, full or empty levels say little
        misfits = [
            ((observed[:, k] - empty) ** 2 / (variances[k] + added[k] + empty * (1 - empty))).sum(axis=1)
            for k in range(3)
        ]
        return np.array([grid[int(np.argmin(misfit))] for misfit in misfits])


def _poisson(users: Floats) -> Floats:
    """Return the covariance of Poisson numbers of users in A only, B only and both, as it appears in the estimates."""
    of_first, of_second, of_either = users
    atoms = np.maximum([of_either - of_second, of_either - of_first, of_first + of_second - of_either], 0.0)
    return np.asarray(_ATOMS @ np.diag(atoms) @ _ATOMS.T)


def _channel(decoder: Decoder) -> Floats:
    """Return the chances of a bit 0 and 1 (rows) for an empty and an occupied cell (columns)."""
    return np.array([[1 - decoder.p0, 1 - decoder.p1], [decoder.p0, decoder.p1]])


def bounded_interval(value: float, error: float, highest: float, level: float) -> tuple[float, float]:
    """Return the numbers in 0..highest that a normal estimate does not reject (Feldman and Cousins 1998)."""
    inside = min(max(value, 0.0), highest)
    best = ((value - max(value, 0.0)) / error) ** 2

    def allowed(truth: float) -> float:
        return critical_value(level, truth / error) - (((value - truth) / error) ** 2 - best)

    return _end(allowed, inside, 0.0), _end(allowed, inside, highest)


def _end(allowed: Callable[[float], float], inside: float, limit: float) -> float:
    """Return the last allowed number on the way from ``inside`` to ``limit``."""
    if allowed(limit) >= 0.0 or inside == limit:
        return limit
    if allowed(inside) <= 0.0:
        return inside
    way = limit - inside
    return inside + math.copysign(
        bisect_decreasing(lambda gap: allowed(inside + math.copysign(gap, way)), 0.0, abs(way), 1e-6), way
    )


def upper_end(value: float, error: float) -> float:
    """Return the number below which the truth lies with probability 99.5%."""
    return max(value + NormalDist().inv_cdf(0.995) * error, 0.0)
