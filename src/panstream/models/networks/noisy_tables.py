"""Noisy tables and their post-processing. Reads released tables and public figures only.

*Views*: where noise is large compared with the cells of a pair's table, a table of fewer cells has more information.
Rare categories are merged, neighbouring bins are merged, and of two groups only the difference of their counts is
measured: their sum has less noise in the other attribute's own table. Groups are made from released one-way tables.

*Smoothing*: bins are declared in order, so their counts are a curve with noise of known size. Its second differences
are modelled as normal with the variance of maximum likelihood; the curve is then replaced by its expectation. A curve
with a spike makes that variance large and remains unchanged.

*Probabilities*: projection onto the simplex, and the posterior mean under the known noise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.models.networks.domain import Domain
from panstream.primitives import validation as checks
from panstream.privacy.numeric_search import bisect

_EXACT = 0.5  # exact counts are no better than to half a record


def merge_categories(counts: NDArray[np.int64], groups: NDArray[np.int64], axis: int) -> NDArray[np.int64]:
    """Return counts with the codes of one axis merged into groups, which are numbered from 0 without gaps."""
    lines = np.moveaxis(counts, axis, 0)
    sums = np.zeros((int(groups.max()) + 1, *lines.shape[1:]), np.int64)
    np.add.at(sums, groups, lines)
    return np.moveaxis(sums, 0, axis)


@dataclass(frozen=True, slots=True, eq=False)
class _Grouping:
    """A grouping of an attribute's categories: the group of each category, and the number of groups."""

    groups: NDArray[np.int64]
    count: int

    @property
    def cells(self) -> int:
        """Return the number of measured cells: one, a difference, for two groups."""
        return _cells(self.count)

    @property
    def matrix(self) -> NDArray[np.int64]:
        """Return the matrix that maps counts of categories to counts of groups, or to the difference of two groups."""
        if self.count == 2:
            return 1 - 2 * self.groups[None, :]
        return np.asarray(self.groups[None, :] == np.arange(self.count)[:, None], np.int64)


Views = tuple[_Grouping, _Grouping]


@dataclass(frozen=True, slots=True, eq=False)
class NoisyTable:
    """Released counts: the positions of the attributes, one axis each, and the standard deviation of a cell's noise.

    ``laplace`` marks Laplace noise, whose heavy tails make a fit give less weight to outlying cells. With ``views`` the
    counts are those of groups of categories.

    Args:
        attributes: Positions of the attributes.
        counts: Noisy counts, with an axis per attribute.
        sigma: Standard deviation of the noise of a cell.
        laplace: Whether the noise is Laplace noise.
        views: Which categories are counted together; None if each has a cell of its own.
    """

    attributes: tuple[int, ...]
    counts: NDArray[Any]
    sigma: float
    laplace: bool = False
    views: Views | None = None

    def __post_init__(self) -> None:
        if not (self.sigma >= 0 and math.isfinite(self.sigma)):
            raise InvalidParameter(f"sigma must be finite and at least 0, got sigma={self.sigma}")
        if np.asarray(self.counts).ndim != len(self.attributes):
            raise InvalidParameter("a noisy table must have one axis for each of its attributes")


def average_repeats(tables: Sequence[NoisyTable]) -> list[NoisyTable]:
    """Return one table per set of attributes: repeated measurements are averaged with weights 1/sigma²."""
    by_attributes: dict[tuple[int, ...], NoisyTable] = {}
    for table in tables:
        if (first := by_attributes.get(table.attributes)) is not None:
            if first.sigma == 0:  # exact: nothing is gained by another one
                continue
            weight = first.sigma**2 / (first.sigma**2 + table.sigma**2)
            counts = weight * table.counts + (1 - weight) * first.counts
            sigma = first.sigma * table.sigma / math.hypot(first.sigma, table.sigma)
            table = NoisyTable(table.attributes, counts, sigma, table.laplace)
        by_attributes[table.attributes] = table
    return list(by_attributes.values())


def one_way(tables: Sequence[NoisyTable], without: Collection[tuple[int, ...]] = ()) -> list[NoisyTable]:
    """Return the one-way tables, averaged with the margins of pair tables except those in ``without``.

    Weights are 1/variance; a margin over r categories has r times the variance of a cell.
    """
    by_attribute: dict[int, list[tuple[NDArray[np.float64], float]]] = {}
    for table in tables:
        if table.attributes in without:
            continue
        counts = np.asarray(table.counts, np.float64)
        precision = max(table.sigma, _EXACT) ** -2
        if counts.ndim == 1:
            by_attribute.setdefault(table.attributes[0], []).append((counts, precision))
            continue
        for axis, attribute in enumerate(table.attributes):
            margin = counts.sum(axis=1 - axis), precision / counts.shape[1 - axis]
            by_attribute.setdefault(attribute, []).append(margin)
    result = []
    for attribute, parts in sorted(by_attribute.items()):
        total = math.fsum(weight for _, weight in parts)
        mean = np.sum([counts * (weight / total) for counts, weight in parts], axis=0)
        result.append(NoisyTable((attribute,), mean, total**-0.5))
    return result


def pair_views(domain: Domain, pair: tuple[int, int], shapes: Sequence[NDArray[np.float64]], cells: float) -> Views:
    """Return the finest views of two attributes whose table has at most ``cells`` cells, or the coarsest views."""
    counts = [domain.sizes[attribute] for attribute in pair]
    while _cells(counts[0]) * _cells(counts[1]) > cells and max(counts) > 2:
        counts[int(counts[1] > counts[0])] -= 1
    one, other = (
        _view(domain, attribute, shapes[attribute], count) for attribute, count in zip(pair, counts, strict=True)
    )
    return one, other


def _cells(count: int) -> int:
    return 1 if count == 2 else count


def _view(domain: Domain, attribute: int, shape: NDArray[np.float64], count: int) -> _Grouping:
    size = domain.sizes[attribute]
    if count >= size:
        return _Grouping(np.arange(size), size)
    bins = _ordered_cells(domain, attribute)
    if not bins:
        groups = np.full(size, count - 1)
        groups[np.argsort(-shape, kind="stable")[: count - 1]] = np.arange(count - 1)
        return _Grouping(groups, count)
    return _Grouping(_neighbours(shape, bins, count), count)


def _neighbours(shape: NDArray[np.float64], bins: int, count: int) -> NDArray[np.int64]:
    """Return the group of each category: neighbouring bins of about equal weight; other categories join the last."""
    groups = np.full(shape.size, count - 1)
    weights = np.cumsum(shape[:bins])
    start = 0
    for group in range(count - 1):
        previous_weight = weights[start - 1] if start else 0.0
        goal = previous_weight + (weights[-1] - previous_weight) / (count - group)
        last = bins - (count - group - 1)  # at least one bin for every group that follows
        end = start + 1
        while end < last and abs(weights[end] - goal) <= abs(weights[end - 1] - goal):
            end += 1
        groups[start:end] = group
        start = end
    return groups


_MIN_BINS = 4
_MAX_BINS = 512
_RATIOS = np.geomspace(1e-4, 1e12, 97)  # variance of second differences over that of the noise


def _ordered_cells(domain: Domain, attribute: int) -> int:
    """Return the number of leading cells that are bins in order; 0 if there are too few or too many to smooth."""
    bins = domain.attributes[attribute].bins
    count = len(bins.edges) - 1 if bins is not None else 0
    return count if _MIN_BINS <= count <= _MAX_BINS else 0


def smooth(
    domain: Domain, attributes: Sequence[int], counts: NDArray[Any], sigma: float
) -> tuple[NDArray[np.float64], float]:
    """Return a noisy table smoothed along its binned attributes, and the standard deviation of its remaining noise.

    >>> from panstream.models.networks import Bins
    >>> ages = Domain({"age": Bins(range(0, 100, 10))})
    >>> curve, remaining = smooth(ages, (0,), np.array([41, 48, 63, 65, 83, 88, 97, 115, 121]), 6.0)
    >>> curve.round().astype(int).tolist(), round(remaining, 1)
    ([39, 50, 60, 70, 80, 90, 101, 111, 121], 2.8)
    """
    values = np.array(counts, np.float64)
    remaining = 1.0
    for axis, attribute in enumerate(attributes):
        cells = _ordered_cells(domain, attribute)
        if not cells or sigma == 0 or values.shape[axis] != domain.sizes[attribute]:
            continue
        lines = np.moveaxis(values, axis, 0)
        lines[:cells], retained = _curves(lines[:cells], sigma * math.sqrt(remaining))
        remaining *= (retained * cells + values.shape[axis] - cells) / values.shape[axis]
    return values, sigma * math.sqrt(remaining)


def _curves(lines: NDArray[np.float64], sigma: float) -> tuple[NDArray[np.float64], float]:
    """Return all curves along the first axis smoothed alike, and the remaining fraction of the noise's variance."""
    roughness, waves = _smoothing_basis(len(lines))
    parts = waves.T @ lines.reshape(len(lines), -1)
    power = (parts[2:] ** 2).sum(axis=1) / sigma**2
    curves = parts.shape[1]
    spread = 1.0 + _RATIOS[:, None] / roughness  # of each wave, in variances of the noise
    likely = -0.5 * (curves * np.log(spread) + power / spread).sum(axis=1)
    shrinkage = np.ones(len(lines))
    shrinkage[2:] = 1.0 - 1.0 / spread[int(np.argmax(likely))]
    return (waves @ (shrinkage[:, None] * parts)).reshape(lines.shape), float((shrinkage**2).mean())


@functools.lru_cache(maxsize=32)
def _smoothing_basis(size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the positive eigenvalues of the squared second difference, and its eigenvectors, straight lines first."""
    second = np.diff(np.eye(size), 2, axis=0)
    values, vectors = np.linalg.eigh(second.T @ second)
    return values[2:], vectors


_DEEP = -30.0  # below this many standard deviations the tail's series is exact to 1e-5
_ERFC = np.frompyfunc(math.erfc, 1, 1)


def project_to_simplex(counts: NDArray[Any], total: float = 1.0) -> NDArray[np.float64]:
    """Return the nonnegative table with sum ``total`` nearest to ``counts`` in least squares.

    >>> project_to_simplex(np.array([0.9, 0.4, -0.5])).round(6).tolist()
    [0.75, 0.25, 0.0]
    """
    values = np.asarray(counts, np.float64)
    falling = np.sort(values, axis=None)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, falling.size + 1)
    last_positive = int(np.flatnonzero(falling > excess)[-1])
    return np.asarray(np.maximum(values - excess[last_positive], 0.0))


def posterior_mean_counts(counts: NDArray[Any], sigma: float, total: float = 1.0) -> NDArray[np.float64]:
    """Return the posterior mean of noisy ``counts``, given noise of standard deviation ``sigma`` and the ``total``.

    Each cell becomes its posterior mean under normal noise and an exponential prior whose rate makes the sum right: a
    smooth version of the projection, which it equals at ``sigma = 0``. No cell is 0, so no cross entropy is infinite.

    >>> posterior_mean_counts(np.array([0.9, 0.4, -0.5]), 0.1).round(3).tolist()
    [0.742, 0.244, 0.015]
    """
    checks.require_at_least(0, sigma=sigma)
    values = np.asarray(counts, np.float64)
    if sigma == 0:
        return project_to_simplex(values, total)
    low = float(values.min()) - 2.0 * total - sigma
    high = float(values.max()) + sigma * sigma * values.size / total  # every cell is then below sigma²/(high - value)
    _, high = bisect(lambda centre: bool(_above_zero(values - centre, sigma).sum() > total), low, high, 100)
    means = _above_zero(values - high, sigma)
    return np.asarray(means * (total / means.sum()))


def _above_zero(means: NDArray[np.float64], sigma: float) -> NDArray[np.float64]:
    """Return the means of normal variables truncated to positive values."""
    z = means / sigma
    near = np.maximum(z, _DEEP)
    upper = np.asarray(_ERFC(-near / math.sqrt(2.0)), np.float64) / 2.0
    hazard = np.exp(-near * near / 2.0) / math.sqrt(2.0 * math.pi) / upper
    deep = np.maximum(-z, 1.0)
    return np.asarray(sigma * np.where(z > _DEEP, np.maximum(z + hazard, 0.0), 1.0 / deep - 2.0 / deep**3))
