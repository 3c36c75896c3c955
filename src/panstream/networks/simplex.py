"""From noisy counts to probabilities: projection onto the simplex, and an expectation that knows the noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter

__all__ = ["expected", "project"]

_DEEP = -30.0  # below this many standard deviations the tail's series is exact to 1e-5
_ERFC = np.frompyfunc(math.erfc, 1, 1)


def project(counts: NDArray[Any], total: float = 1.0) -> NDArray[np.float64]:
    """Return the nonnegative table with sum ``total`` nearest to ``counts`` in least squares.

    >>> project(np.array([0.9, 0.4, -0.5])).round(6).tolist()
    [0.75, 0.25, 0.0]
    """
    values = np.asarray(counts, np.float64)
    falling = np.sort(values, axis=None)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, falling.size + 1)
    kept = int(np.flatnonzero(falling > excess)[-1])
    return np.asarray(np.maximum(values - excess[kept], 0.0))


def expected(counts: NDArray[Any], sigma: float, total: float = 1.0) -> NDArray[np.float64]:
    """Return what noisy ``counts`` mean on average, given noise of standard deviation ``sigma`` and the ``total``.

    Each cell becomes its posterior mean under normal noise and an exponential prior whose rate makes the sum right: the
    projection's smooth twin. Nothing is 0, so no cross entropy is infinite; with ``sigma = 0`` it is the projection.

    >>> expected(np.array([0.9, 0.4, -0.5]), 0.1).round(3).tolist()
    [0.742, 0.244, 0.015]
    """
    if not sigma >= 0:
        raise InvalidParameter(f"sigma must be at least 0, got sigma={sigma}")
    values = np.asarray(counts, np.float64)
    if sigma == 0:
        return project(values, total)
    low = float(values.min()) - 2.0 * total - sigma
    high = float(values.max()) + sigma * sigma * values.size / total  # every cell is then below sigma²/(high - value)
    for _ in range(100):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _above_zero(values - middle, sigma).sum() > total else (low, middle)
    found = _above_zero(values - high, sigma)
    return np.asarray(found * (total / found.sum()))


def _above_zero(means: NDArray[np.float64], sigma: float) -> NDArray[np.float64]:
    """Return the means of normal variables conditioned on being positive."""
    z = means / sigma
    near = np.maximum(z, _DEEP)
    upper = np.asarray(_ERFC(-near / math.sqrt(2.0)), np.float64) / 2.0
    hazard = np.exp(-near * near / 2.0) / math.sqrt(2.0 * math.pi) / upper
    deep = np.maximum(-z, 1.0)
    return np.asarray(sigma * np.where(z > _DEEP, np.maximum(z + hazard, 0.0), 1.0 / deep - 2.0 / deep**3))
