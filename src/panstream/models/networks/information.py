"""Entropy and mutual information in bits, of tables of counts or of probabilities, and the error of noisy counts.

Bias and mean squared error of the entropy of noisy counts (Digalakis 2018, Theorems 3.5 and 3.6).

M holders add discrete Laplace noise of scale b to each of the d counts, the analyst sums and divides by the public n,
and takes the entropy H(p̃). With δ = p̃ - p the expansion around the true entropy is

    H̃ - H = -Σ (1 + ln p)·δ - ½ Σ δ²/p + ⅙ Σ δ³/p² - 1/12 Σ δ⁴/p³ + …   (natural logarithm)

The theorems give the leading terms and the order of the rest. Here all terms up to δ⁴ are evaluated with the exact
moments of a multinomial count plus M noises, so that the figures can be compared with an experiment. Two of the
thesis's intermediate moments are misprinted (the covariance of two cells is -p_i·p_j/n, and the sixth moment of M
noises is 120M³ + 360M² + 240M times b⁶); neither enters the theorems' statements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from panstream.errors import InvalidParameter


def entropy(table: NDArray[Any]) -> float:
    """Return the entropy in bits of the distribution proportional to ``table``; 0 for an empty table.

    Args:
        table: Counts or probabilities, of any shape.

    >>> entropy(np.array([1, 1, 2]))
    1.5
    """
    values = np.asarray(table, np.float64).ravel()
    if values.size and not (values.min() >= 0 and np.isfinite(values.max())):
        raise InvalidParameter("a table must hold finite nonnegative numbers; clamp noisy counts first")
    values = values[values > 0]
    total = values.sum()
    if total == 0:
        return 0.0
    shares = values / total
    return max(0.0, float(-(shares * np.log2(shares)).sum()))


def mutual_information(table: NDArray[Any]) -> float:
    """Return I(last axis; all other axes together) in bits, never below 0.

    Args:
        table: Counts or probabilities, with an axis per attribute.

    >>> mutual_information(np.array([[5, 0], [0, 5]]))
    1.0
    """
    table = np.asarray(table)
    rest = tuple(range(table.ndim - 1))
    return max(0.0, entropy(table.sum(axis=-1)) + entropy(table.sum(axis=rest)) - entropy(table))


_BITS = 1.0 / math.log(2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ErrorTerms:
    """An error in parts: the leading terms of sampling and of noise, and the terms of the next order."""

    sampling: float
    noise: float
    higher: float

    @property
    def total(self) -> float:
        return self.sampling + self.noise + self.higher


def noisy_entropy_bias(probabilities: ArrayLike, *, records: int, holders: int = 1, scale: float = 0.0) -> _ErrorTerms:
    """Return E[H̃ - H] in bits: -(d-1)/(2n) from sampling and -(M·b²/n²)·Σ 1/p from the noise, then δ³ and δ⁴ terms.

    ``probabilities`` is the true distribution, all positive; ``scale`` is b, the noise of one holder having
    P(k) ∝ exp(-|k|/b). Theorem 3.5. Good while M·b² is small against (n·p)² for every cell.

    Args:
        probabilities: The true distribution, without zeros.
        records: Number of records.
        holders: Number of holders, each of which adds noise.
        scale: Scale of the noise of one holder; 0 for none.

    >>> round(noisy_entropy_bias([0.25] * 4, records=1000).sampling * math.log(2), 6)
    -0.0015
    """
    p, n, v, fourth = _checked(probabilities, records, holders, scale)
    binomial = p * (1 - p)
    third = binomial * (1 - 2 * p) / n**2
    fourth_moment = (3 * n**2 * binomial**2 + n * binomial * (1 - 6 * binomial)) / n**4  # of the count alone
    with_noise = fourth_moment + (6 * n * binomial * v + fourth + 3 * v * v) / n**4
    higher = float((third / p**2).sum() / 6 - (with_noise / p**3).sum() / 12)
    return _ErrorTerms(
        sampling=-(p.size - 1) / (2 * n) * _BITS,
        noise=-float((v / p).sum()) / (2 * n**2) * _BITS,
        higher=higher * _BITS,
    )


def noisy_entropy_error(probabilities: ArrayLike, *, records: int, holders: int = 1, scale: float = 0.0) -> _ErrorTerms:
    """Return E[(H̃ - H)²] in bits²: σ²/n from sampling and (2M·b²/n²)·Σ (1 + ln p)² from the noise, then δ³ and δ⁴.

    σ² = Σ p·ln² p - H². Theorem 3.6, whose statement is the first term.

    Args:
        probabilities: The true distribution, without zeros.
        records: Number of records.
        holders: Number of holders, each of which adds noise.
        scale: Scale of the noise of one holder; 0 for none.
    """
    p, n, v, fourth = _checked(probabilities, records, holders, scale)
    slope = 1 + np.log(p)
    variance = float((p * np.log(p) ** 2).sum() - (p * np.log(p)).sum() ** 2)
    one_two, two_two, one_three = _pair_moments(p, n, v, fourth)
    cubic = float((slope[:, None] * one_two / p[None, :]).sum())  # E[Σ(1 + ln p)δ · Σ δ²/p]
    square = float((two_two / (p[:, None] * p[None, :])).sum())
    quartic = float((slope[:, None] * one_three / p[None, :] ** 2).sum())
    return _ErrorTerms(
        sampling=variance / n * _BITS**2,
        noise=v / n**2 * float((slope**2).sum()) * _BITS**2,
        higher=(cubic + square / 4 - quartic / 3) * _BITS**2,
    )


def _pair_moments(p: NDArray[np.float64], n: int, v: float, fourth: float) -> tuple[NDArray[np.float64], ...]:
    """Return E[δ_i·δ_j²], E[δ_i²·δ_j²] and E[δ_i·δ_j³] for all i and j.

    By cumulants: those of a multinomial are n times those of one draw, and the noise adds its own.
    """
    a = p[:, None]
    b = p[None, :]
    variances = p * (1 - p)
    rest = np.clip(1 - a - b, 0, None)
    cross = -a * b
    single_22 = a * (1 - a) ** 2 * b**2 + b * a**2 * (1 - b) ** 2 + rest * a**2 * b**2
    single_13 = -a * (1 - a) * b**3 - b * a * (1 - b) ** 3 + rest * a * b**3
    cumulant_22 = single_22 - variances[:, None] * variances[None, :] - 2 * cross**2
    cumulant_13 = single_13 - 3 * cross * variances[None, :]
    total = n * variances + v  # variance of one noisy count
    two_two = n * cumulant_22 + total[:, None] * total[None, :] + 2 * (n * cross) ** 2
    one_three = n * cumulant_13 + 3 * n * cross * total[None, :]
    one_two = n * (2 * a * b**2 - a * b)
    same = np.arange(p.size)
    fourth_moment = n * variances * (1 - 6 * variances) + fourth + 3 * total**2
    two_two[same, same] = fourth_moment
    one_three[same, same] = fourth_moment
    one_two[same, same] = n * variances * (1 - 2 * p)
    return one_two / n**3, two_two / n**4, one_three / n**4


def _checked(
    probabilities: ArrayLike, records: int, holders: int, scale: float
) -> tuple[NDArray[np.float64], int, float, float]:
    """Return the distribution, n, and variance and fourth cumulant of the summed noise of one cell."""
    p = np.asarray(probabilities, np.float64).ravel()
    if not (p.size and p.min() > 0 and abs(p.sum() - 1) < 1e-9):
        raise InvalidParameter("probabilities must be positive and sum to 1")
    if records < 1 or holders < 1:
        raise InvalidParameter(f"records and holders must be at least 1, got {records} and {holders}")
    if not (0 <= scale < math.inf):
        raise InvalidParameter(f"scale must be finite and not negative, got scale={scale}")
    if scale == 0:
        return p, records, 0.0, 0.0
    q = math.exp(-1 / scale)
    s = -math.expm1(-1 / scale)
    # discrete Laplace is the difference of two geometric variables, whose cumulants are known
    return p, records, holders * 2 * q / s**2, holders * 2 * q * (1 + 4 * q + q * q) / s**4
