"""How far a noisy sum divided by a noisy count is from the truth: exact tails, for checking Conjecture 1 of
"Private Aggregate Computations on Streams".

With S the sum, C the count, X and Y their noises, |(S+X)/(C+Y) - S/C| > error if and only if
|X - Y·S/C| > error·|C + Y|. For Laplace noise both laws are known in closed form and one integral remains.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from panstream import checks
from panstream.errors import InvalidParameter

__all__ = ["average_error_quantile", "average_error_tail"]

Floats = NDArray[np.float64]


def average_error_tail(error: float, *, count: int, mean: float, draws: int, scale: float, bound: float = 1.0) -> float:
    """Return P(|noisy average - mean| > ``error``) for ``count`` values.

    The count holds ``draws`` Laplace draws of ``scale``, the sum as many of scale·bound.
    """
    if count < 1 or draws < 1 or not scale > 0 or not bound > 0 or not error > 0:
        raise InvalidParameter("count and draws must be at least 1, scale, bound and error positive")
    coefficients = _tail_coefficients(draws)
    y = _grid(count / scale, 60.0 + 12.0 * math.sqrt(draws))
    weight = _density(y, coefficients)
    shift = mean * y / bound
    reach = error * np.abs(count / scale + y) / bound
    outside = _tail(shift + reach, coefficients) + _tail(reach - shift, coefficients)
    height = weight * outside
    return float(((height[1:] + height[:-1]) * np.diff(y)).sum() / 2.0)


def average_error_quantile(
    beta: float, *, count: int, mean: float, draws: int, scale: float, bound: float = 1.0
) -> float:
    """Return the error that is exceeded with probability ``beta``."""
    checks.probability(beta=beta)

    def tail(error: float) -> float:
        return average_error_tail(error, count=count, mean=mean, draws=draws, scale=scale, bound=bound)

    low, high = 1e-9, 1.0
    while tail(high) > beta:
        high *= 2.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if tail(middle) > beta else (low, middle)
    return high


def _grid(kink: float, reach: float) -> Floats:
    """Return points from -reach to reach, dense around 0 and around -kink, where the noisy count vanishes."""
    fine = np.concatenate([[0.0], np.geomspace(1e-12, reach, 4000)])
    points = np.concatenate([-fine, fine, -kink - fine, -kink + fine, np.linspace(-reach, reach, 4001)])
    return np.unique(points[np.abs(points) <= reach])


def _tail_coefficients(draws: int) -> Floats:
    """Return a with P(sum of Laplace(1) draws > x) = exp(-x)·sum a_j·x**j for x >= 0."""
    term, partial, sums = 2.0**-draws, 0.0, []
    for r in range(draws):
        partial += term
        sums.append(partial)
        term *= (draws + r) / (2.0 * (r + 1))
    return np.array([weight / math.factorial(power) for power, weight in enumerate(reversed(sums))])


def _tail(x: Floats, coefficients: Floats) -> Floats:
    far = np.minimum(np.abs(x), 700.0)
    upper = np.exp(-far) * np.polynomial.polynomial.polyval(far, coefficients)
    return np.where(x >= 0, upper, 1.0 - upper)


def _density(x: Floats, coefficients: Floats) -> Floats:
    slope = np.append(coefficients[1:] * np.arange(1, coefficients.size), 0.0)
    far = np.minimum(np.abs(x), 700.0)
    return np.asarray(np.exp(-far) * np.polynomial.polynomial.polyval(far, coefficients - slope))
