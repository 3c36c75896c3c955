"""Noisy tables: released counts and what they say. Only released tables and public figures are read here.

*Views*: where noise is strong against the cells of a pair's table, a table of fewer cells teaches more. Rare categories
are joined, neighbouring bins are joined, and two groups are told apart by the difference of their counts: their sum is
known better from the other attribute's own table. Groups are made from released one-way tables.

*Smoothing*: bins are declared in order, so their counts are a curve with noise of known size. Its second differences
are taken as normal with a variance that makes the noisy table most likely; the curve is then replaced by its
expectation. A curve with a spike makes that variance large and stays as it is.

*Probabilities*: projection onto the simplex, and an expectation that knows the noise.
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
    """Return counts with the codes of one axis joined into groups, which are numbered from 0 without gaps."""
    lines = np.moveaxis(counts, axis, 0)
    sums = np.zeros((int(groups.max()) + 1, *lines.shape[1:]), np.int64)
    np.add.at(sums, groups, lines)
    return np.moveaxis(sums, 0, axis)


@dataclass(frozen=True, slots=True, eq=False)
class _Grouping:
    """Groups of an attribute's categories: the group of each, and their number."""

    groups: NDArray[np.int64]
    count: int

    @property
    def cells(self) -> int:
        """Return how many numbers the view has: one, a difference, for two groups."""
        return 1 if self.count == 2 else self.count

    @property
    def matrix(self) -> NDArray[np.int64]:
        """Return what takes counts of categories to counts of groups, or to the difference of two groups."""
        if self.count == 2:
            return 1 - 2 * self.groups[None, :]
        return np.asarray(self.groups[None, :] == np.arange(self.count)[:, None], np.int64)

    def joined(self, counts: NDArray[np.int64], axis: int) -> NDArray[np.int64]:
        """Return counts of groups along one axis."""
        return merge_categories(counts, self.groups, axis)


Views = tuple[_Grouping, _Grouping]


@dataclass(frozen=True, slots=True, eq=False)
class NoisyTable:
    """Released counts: the positions of its attributes, one axis each, and the standard deviation of a cell's noise.

    ``laplace`` says that the noise has Laplace's heavy tails: single wild cells then pull less. With ``views`` the
    counts are those of groups of categories.
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
    """Return one table for each set of attributes: those measured twice are averaged with weights 1/sigma²."""
    by_attributes: dict[tuple[int, ...], NoisyTable] = {}
    for table in tables:
        if (first := by_attributes.get(table.attributes)) is not None:
            weight = first.sigma**2 / (first.sigma**2 + table.sigma**2)
            counts = weight * table.counts + (1 - weight) * first.counts
            sigma = first.sigma * table.sigma / math.hypot(first.sigma, table.sigma)
            table = NoisyTable(table.attributes, counts, sigma, table.laplace)
        by_attributes[table.attributes] = table
    return list(by_attributes.values())


def one_way(tables: Sequence[NoisyTable], without: Collection[tuple[int, ...]] = ()) -> list[NoisyTable]:
    """Return the one-way tables, each averaged with the margins of all pairs' tables but some, weights 1/sigma².

    A margin over r categories has r times the variance of a cell.
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
    """Return the finest views of two attributes whose table has at most ``cells`` numbers, or as few as possible."""
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
    """Return groups of neighbouring bins of about equal weight; what is no bin is with the last."""
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


# bins
_FEWEST = 4
_MOST = 512
_RATIOS = np.geomspace(1e-4, 1e12, 97)  # variance of second differences over that of the noise


def _ordered_cells(domain: Domain, attribute: int) -> int:
    """Return how many cells of the attribute, from the first, are bins in order; 0 where there is no order to use."""
    bins = domain.attributes[attribute].bins
    count = len(bins.edges) - 1 if bins is not None else 0
    return count if _FEWEST <= count <= _MOST else 0


def smooth(
    domain: Domain, attributes: Sequence[int], counts: NDArray[Any], sigma: float
) -> tuple[NDArray[np.float64], float]:
    """Return a noisy table smoothed along its binned attributes, and what is left of its noise.

    >>> from panstream.models.networks import Bins
    >>> ages = Domain({"age": Bins(range(0, 100, 10))})
    >>> curve, left = smooth(ages, (0,), np.array([41, 48, 63, 65, 83, 88, 97, 115, 121]), 6.0)
    >>> curve.round().astype(int).tolist(), round(left, 1)
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
    """Return all curves along the first axis smoothed alike, and the part of the noise's variance that is left."""
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
    """Return the eigenvectors of the squared second difference, straight lines first, and its positive eigenvalues."""
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
    """Return what noisy ``counts`` mean on average, given noise of standard deviation ``sigma`` and the ``total``.

    Each cell becomes its posterior mean under normal noise and an exponential prior whose rate makes the sum right: the
    projection's smooth twin. Nothing is 0, so no cross entropy is infinite; with ``sigma = 0`` it is the projection.

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
    """Return the means of normal variables conditioned on being positive."""
    z = means / sigma
    near = np.maximum(z, _DEEP)
    upper = np.asarray(_ERFC(-near / math.sqrt(2.0)), np.float64) / 2.0
    hazard = np.exp(-near * near / 2.0) / math.sqrt(2.0 * math.pi) / upper
    deep = np.maximum(-z, 1.0)
    return np.asarray(sigma * np.where(z > _DEEP, np.maximum(z + hazard, 0.0), 1.0 / deep - 2.0 / deep**3))
