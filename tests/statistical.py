"""Helpers for statistical tests, with a documented false-alarm rate of the whole suite.

ALPHA is the probability that one comparison fails although the code is correct. Tests draw from the operating system's
entropy, so a false alarm is possible: with about 1,000 comparisons per run, less than one run in 1,000.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

ALPHA = 1e-6


def assert_fits(counts: NDArray[Any], expected: NDArray[Any], what: str) -> None:
    """Chi-square goodness of fit; cells with fewer than 10 expected are pooled."""
    counts = np.asarray(counts, float)
    expected = np.asarray(expected, float)
    order = np.argsort(expected)
    counts = counts[order]
    expected = expected[order]
    rare = max(int((expected < 10.0).sum()), int(np.searchsorted(np.cumsum(expected), 10.0)) + 1)
    counts = np.concatenate([[counts[:rare].sum()], counts[rare:]])
    expected = np.concatenate([[expected[:rare].sum()], expected[rare:]])
    if counts.size == 1:
        assert counts[0] == expected[0], f"{what}: {counts[0]:.0f} in the only cell, expected {expected[0]:.0f}"
        return
    chi = float(((counts - expected) ** 2 / expected).sum())
    p = float(stats.chi2.sf(chi, counts.size - 1))
    assert p > ALPHA, f"{what}: chi-square {chi:.1f} with {counts.size - 1} degrees of freedom, p = {p:.2e}"


def assert_mean(samples: NDArray[Any], truth: float, what: str, sd: float | None = None) -> None:
    """Two-sided z-test of the mean."""
    samples = np.asarray(samples, float)
    error = (sd if sd is not None else samples.std(ddof=1)) / math.sqrt(samples.size)
    z = abs(samples.mean() - truth) / error
    assert z < stats.norm.isf(ALPHA / 2), f"{what}: mean {samples.mean():.6g}, truth {truth:.6g}, z = {z:.2f}"


def assert_rate(hits: int, trials: int, truth: float, what: str) -> None:
    """Exact two-sided binomial test of a probability."""
    p = stats.binomtest(hits, trials, truth).pvalue
    assert p > ALPHA, f"{what}: {hits} of {trials}, expected rate {truth:.6g}, p = {p:.2e}"


def assert_same_law(a: Sequence[Any] | NDArray[Any], b: Sequence[Any] | NDArray[Any], what: str) -> None:
    """Two-sample chi-square on the values (pooled where rare)."""
    values = np.unique(np.concatenate([a, b]))
    first = np.array([(np.asarray(a) == value).sum() for value in values], float)
    second = np.array([(np.asarray(b) == value).sum() for value in values], float)
    order = np.argsort(first + second)
    both = (first + second)[order]
    rare = max(int((both < 40.0).sum()), int(np.searchsorted(np.cumsum(both), 40.0)) + 1)
    keep = order[rare:]
    table = np.array([[x[order[:rare]].sum(), *x[keep]] for x in (first, second)])
    p = float(stats.chi2_contingency(table).pvalue) if table.shape[1] > 1 else 1.0
    assert p > ALPHA, f"{what}: the two samples differ, p = {p:.2e}"
