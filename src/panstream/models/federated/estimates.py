"""Estimate probabilities from noisy sums. Post-processing only.

The counts are nonnegative and add up to a public total, and the noise's standard deviation is public too. A table of
one attribute is estimated by its posterior mean under a sparse prior, Gamma(1/4) for every count. A table of two keeps
its margins, and its deviation from independence is shrunk as far as the noise suggests (empirical Bayes).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.privacy.numeric_search import bisect

_SPARSE = 0.25
_FLAT = 1.0
Floats = NDArray[np.float64]


@functools.lru_cache(maxsize=4)
def _posterior_means(shape: float) -> tuple[Floats, Floats]:
    """Return t and E[c | noisy c = t] for unit noise and a prior density proportional to c**(shape - 1) on c > 0."""
    grid = np.concatenate([np.linspace(-40.0, -6.0, 120), np.linspace(-5.95, 12.0, 600)])
    logs = np.linspace(-30.0, np.log(60.0), 2400)
    counts = np.exp(logs)
    exponents = -0.5 * (counts - grid[:, None]) ** 2
    weights = np.exp(exponents - exponents.max(axis=1, keepdims=True) + shape * logs)
    return grid, (weights * counts).sum(axis=1) / weights.sum(axis=1)


def _positive_part(t: Floats, shape: float) -> Floats:
    grid, means = _posterior_means(shape)
    inner = np.interp(t, grid, means)
    outer = np.where(t > 0, t + (shape - 1.0) / np.maximum(t, 1.0), shape / np.maximum(-t, 1.0))
    return np.where((t > grid[-1]) | (t < grid[0]), outer, inner)


def posterior_shares(noisy: NDArray[Any], deviation: float, total: float, shape: float = _SPARSE) -> Floats:
    """Return the posterior mean of the shares of one table whose counts add up to ``total``; all are positive.

    >>> posterior_shares(np.array([900, 130, -30]), 50.0, 1000).round(2).tolist()
    [0.89, 0.1, 0.01]
    """
    scaled = np.asarray(noisy, np.float64).ravel() / deviation
    target = total / deviation
    low = scaled.min() - target - 64.0
    high = scaled.max() + 64.0
    _, high = bisect(lambda centre: bool(_positive_part(scaled - centre, shape).sum() > target), low, high, 60)
    shares: Floats = _positive_part(scaled - high, shape)
    shares /= shares.sum()
    return shares


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _PairPosterior:
    """A joint distribution of two attributes; ``evidence`` is its gain in log likelihood over independence."""

    joint: Floats
    information: float
    evidence: float


_STRENGTHS = np.concatenate([[0.0], np.geomspace(1e-4, 4.0, 28)])


def posterior_pair(
    noisy: NDArray[Any], deviation: float, rows: Floats, columns: Floats, total: float
) -> _PairPosterior:
    """Return the joint distribution with margins ``rows`` and ``columns``, shrunk towards independence.

    The deviation from independence is modelled as Gaussian, with a variance that is a multiple of one of two shapes
    (the square of the expected count, or the expected count); the multiple with the largest likelihood is taken, and 0
    means independent.
    """
    expected = total * np.outer(rows, columns)
    residual = np.asarray(noisy, np.float64) - expected
    noise = deviation**2
    best = (0.0, np.zeros_like(expected))
    for scale in (expected**2, expected * (total / np.sqrt(expected.size))):
        variances = noise + _STRENGTHS[:, None, None] * scale
        gains = -0.5 * (np.log(variances / noise) + residual**2 * (1.0 / variances - 1.0 / noise)).sum(axis=(1, 2))
        index = int(gains.argmax())
        if gains[index] > best[0]:
            best = (float(gains[index]), _STRENGTHS[index] * scale / variances[index])
    evidence, keep = best
    independent = np.outer(rows, columns)
    if evidence <= 0.0:
        return _PairPosterior(joint=independent, information=0.0, evidence=0.0)
    spread = np.maximum(deviation * np.sqrt(keep), 1e-9 * total)
    means = (expected + keep * residual) / spread
    joint = np.maximum(np.where(means > 4.0, means, _positive_part(means, _FLAT)) * spread, 1e-9 * total)
    joint = _with_margins(joint, rows, columns)
    information = float((joint * np.log2(joint / independent)).sum())
    return _PairPosterior(joint=joint, information=max(information, 0.0), evidence=evidence)


def _with_margins(table: Floats, rows: Floats, columns: Floats) -> Floats:
    """Scale rows and columns in turn until both margins fit (iterative proportional fitting)."""
    for _ in range(200):
        table = table * (rows / table.sum(axis=1))[:, None]
        table = table * (columns / table.sum(axis=0))
        if np.abs(table.sum(axis=1) - rows).max() < 1e-12:
            break
    table /= table.sum()
    return table
