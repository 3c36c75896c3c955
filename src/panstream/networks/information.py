"""Entropy and mutual information, in bits, of tables of counts or of probabilities (any nonnegative numbers)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter

__all__ = ["conditional_entropy", "entropy", "mutual_information"]


def entropy(table: NDArray[Any]) -> float:
    """Return the entropy in bits of the distribution proportional to ``table``; 0 for an empty table.

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


def conditional_entropy(table: NDArray[Any]) -> float:
    """Return H(last axis | all other axes) in bits."""
    table = np.asarray(table)
    return max(0.0, entropy(table) - entropy(table.sum(axis=-1)))


def mutual_information(table: NDArray[Any]) -> float:
    """Return I(last axis; all other axes together) in bits, never below 0.

    >>> mutual_information(np.array([[5, 0], [0, 5]]))
    1.0
    """
    table = np.asarray(table)
    rest = tuple(range(table.ndim - 1))
    return max(0.0, entropy(table.sum(axis=-1)) + entropy(table.sum(axis=rest)) - entropy(table))
