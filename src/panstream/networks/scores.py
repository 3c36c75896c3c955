"""How much an attribute has to do with its parents, as integers with a known sensitivity.

A score reads the exact table of counts ``[parents' cells..., child]`` and gives an integer utility; ``unit`` is its worth
and ``sensitivity`` how many units one replaced record can move it, so that a private choice needs no rounding. Theorems:
docs/proofs/networks.md; all are checked by brute force on all small tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.networks.information import mutual_information
from panstream.privacy.tables import (
    f_sensitivity,
    mutual_information_sensitivity,
    r_sensitivity,
    residual_sensitivity,
)

__all__ = ["SCORES", "Score", "ScoreName", "f_units", "information_units", "r_units", "residual_units"]

ScoreName = Literal["R", "mi", "F"]
INFORMATION_GRID = 1 << 40  # units in a bit


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """An integer utility of a family, its sensitivity in units for n records, and what a unit is worth."""

    name: ScoreName
    units: Callable[[NDArray[Any]], int]
    sensitivity: Callable[[int, bool], int]
    unit: Callable[[int], float]


def r_units(table: NDArray[Any]) -> int:
    """Return R = ½·‖P(X, Π) - P(X)·P(Π)‖₁ in units of 1/n²: an integer, exactly.

    >>> r_units(np.array([[5, 0], [0, 5]])) / 10**2
    0.5
    """
    flat, rows, columns, n = _margins(table)
    at, child = np.nonzero(flat)  # Σ|nc - rq| over empty cells is Σrq minus that over the others
    product = rows[at] * columns[child]
    gaps = np.abs(n * flat[at, child] - product) - product
    return (int(gaps.sum()) + n * n) // 2


def residual_units(table: NDArray[Any], expectation: NDArray[np.int64]) -> int:
    """Return ‖counts - expectation‖₁ for whole, already public ``expectation``: units of 1/(2n) of R's scale."""
    return int(np.abs(np.asarray(table, np.int64) - expectation).sum())


def f_units(table: NDArray[Any]) -> int:
    """Return F in units of 1/(2n), at most 0, for a child with two values (Zhang et al. 2017, section 4.3).

    Every parent cell gives its count of child value 0 to K0 or that of value 1 to K1; the best sum of
    min(K0, n/2) + min(K1, n/2) is found by keeping the largest K1 for every K0 up to n/2.

    >>> f_units(np.array([[5, 0], [0, 5]])), f_units(np.array([[5, 5], [5, 5]]))
    (0, -20)
    """
    flat, _, _, n = _margins(table)
    if flat.shape[1] != 2:
        raise InvalidParameter(f"the score F needs a child with two values, got {flat.shape[1]}")
    cap = (n + 1) // 2
    best = np.full(cap + 1, -1, np.int64)
    best[0] = 0
    for zeros, ones in flat.tolist():
        kept = np.where(best >= 0, best + ones, -1)
        if zeros:
            shift = min(zeros, cap)
            kept[shift:] = np.maximum(kept[shift:], best[: cap + 1 - shift])
            kept[cap] = max(kept[cap], int(best[cap - shift :].max()))
        else:
            kept = np.maximum(kept, best)
        best = kept
    reachable = np.flatnonzero(best >= 0)
    return int((np.minimum(2 * reachable, n) + np.minimum(2 * best[reachable], n)).max()) - 2 * n


def information_units(table: NDArray[Any]) -> int:
    """Return the mutual information of child and parents in units of 2^-40 bits, rounded down."""
    return math.floor(mutual_information(np.asarray(table)) * INFORMATION_GRID)


def _information_sensitivity(records: int, binary: bool) -> int:
    # One unit for rounding down, and what floating point loses: far below 2^-32 bits for any table that fits in memory.
    return math.ceil(mutual_information_sensitivity(records, binary=binary) * INFORMATION_GRID) + 1 + (1 << 8)


def _whole(sensitivity: Fraction) -> int:
    return math.ceil(sensitivity)


SCORES: dict[ScoreName, Score] = {
    "R": Score(
        name="R",
        units=r_units,
        sensitivity=lambda n, binary: _whole(r_sensitivity(n) * n * n),
        unit=lambda n: 1.0 / n**2,
    ),
    "mi": Score(
        name="mi",
        units=information_units,
        sensitivity=_information_sensitivity,
        unit=lambda n: 1.0 / INFORMATION_GRID,
    ),
    "F": Score(
        name="F",
        units=f_units,
        sensitivity=lambda n, binary: _whole(f_sensitivity(n) * 2 * n),
        unit=lambda n: 0.5 / n,
    ),
}

RESIDUAL_SENSITIVITY = _whole(residual_sensitivity(1) * 2)


def _margins(table: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]:
    values = np.asarray(table, np.int64)
    flat = values.reshape(-1, values.shape[-1])
    return flat, flat.sum(axis=1), flat.sum(axis=0), int(flat.sum())
