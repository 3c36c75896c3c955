"""Coarser views of a table: categories in groups, two groups as one difference, so that fewer numbers need noise.

Where noise is strong against the cells of a pair's table, a table of fewer cells teaches more. Rare categories are
joined, neighbouring bins are joined, and two groups are told apart by the difference of their counts: their sum is known
better from the other attribute's own table. Groups are made from released one-way tables and public figures only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from panstream.networks.domain import Domain
from panstream.networks.smoothing import ordered_cells

__all__ = ["View", "Views", "pair_views"]


@dataclass(frozen=True, slots=True, eq=False)
class View:
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
        lines = np.moveaxis(counts, axis, 0)
        found = np.zeros((self.count, *lines.shape[1:]), np.int64)
        np.add.at(found, self.groups, lines)
        return np.moveaxis(found, 0, axis)


Views = tuple[View, View]


def pair_views(domain: Domain, pair: tuple[int, int], shapes: Sequence[NDArray[np.float64]], cells: float) -> Views:
    """Return the finest views of two attributes whose table has at most ``cells`` numbers, or as few as possible."""
    counts = [domain.sizes[each] for each in pair]
    while _cells(counts[0]) * _cells(counts[1]) > cells and max(counts) > 2:
        counts[int(counts[1] > counts[0])] -= 1
    one, other = (_view(domain, at, shapes[at], count) for at, count in zip(pair, counts, strict=True))
    return one, other


def _cells(count: int) -> int:
    return 1 if count == 2 else count


def _view(domain: Domain, attribute: int, shape: NDArray[np.float64], count: int) -> View:
    size = domain.sizes[attribute]
    if count >= size:
        return View(np.arange(size), size)
    bins = ordered_cells(domain, attribute)
    if not bins:
        groups = np.full(size, count - 1)
        groups[np.argsort(-shape, kind="stable")[: count - 1]] = np.arange(count - 1)
        return View(groups, count)
    return View(_neighbours(shape, bins, count), count)


def _neighbours(shape: NDArray[np.float64], bins: int, count: int) -> NDArray[np.int64]:
    """Return groups of neighbouring bins of about equal weight; what is no bin is with the last."""
    groups = np.full(shape.size, count - 1)
    weights = np.cumsum(shape[:bins])
    start = 0
    for group in range(count - 1):
        before = weights[start - 1] if start else 0.0
        goal = before + (weights[-1] - before) / (count - group)
        last = bins - (count - group - 1)  # at least one bin for every group that follows
        end = start + 1
        while end < last and abs(weights[end] - goal) <= abs(weights[end - 1] - goal):
            end += 1
        groups[start:end] = group
        start = end
    return groups
