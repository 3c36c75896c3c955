"""Neighbouring bins of a number have similar counts: how similar, the noisy table itself tells.

Bins are declared in order, so their counts are a curve with noise of known size. Its second differences are taken as
normal with a variance that makes the noisy table most likely; the curve is then replaced by its expectation. A curve with
a spike makes that variance large and stays as it is. Only released tables are read.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.networks.domain import Domain

__all__ = ["ordered_cells", "smoothed"]

_FEWEST, _MOST = 4, 512  # bins
_RATIOS = np.geomspace(1e-4, 1e12, 97)  # variance of second differences over that of the noise


def ordered_cells(domain: Domain, attribute: int) -> int:
    """Return how many cells of the attribute, from the first, are bins in order; 0 where there is no order to use."""
    bins = domain.attributes[attribute].bins
    count = len(bins.edges) - 1 if bins is not None else 0
    return count if _FEWEST <= count <= _MOST else 0


def smoothed(
    domain: Domain, attributes: Sequence[int], counts: NDArray[Any], sigma: float
) -> tuple[NDArray[np.float64], float]:
    """Return a noisy table smoothed along its binned attributes, and what is left of its noise.

    >>> from panstream.networks import Bins
    >>> ages = Domain({"age": Bins(range(0, 100, 10))})
    >>> curve, left = smoothed(ages, (0,), np.array([41, 48, 63, 65, 83, 88, 97, 115, 121]), 6.0)
    >>> curve.round().astype(int).tolist(), round(left, 1)
    ([39, 50, 60, 70, 80, 90, 101, 111, 121], 2.8)
    """
    values = np.array(counts, np.float64)
    left = 1.0
    for axis, attribute in enumerate(attributes):
        cells = ordered_cells(domain, attribute)
        if not cells or sigma == 0 or values.shape[axis] != domain.sizes[attribute]:
            continue
        lines = np.moveaxis(values, axis, 0)
        lines[:cells], kept = _curves(lines[:cells], sigma * math.sqrt(left))
        left *= (kept * cells + values.shape[axis] - cells) / values.shape[axis]
    return values, sigma * math.sqrt(left)


def _curves(lines: NDArray[np.float64], sigma: float) -> tuple[NDArray[np.float64], float]:
    """Return all curves along the first axis smoothed alike, and the part of the noise's variance that is left."""
    roughness, waves = _waves(len(lines))
    parts = waves.T @ lines.reshape(len(lines), -1)
    power = (parts[2:] ** 2).sum(axis=1) / sigma**2
    curves = parts.shape[1]
    spread = 1.0 + _RATIOS[:, None] / roughness  # of each wave, in variances of the noise
    likely = -0.5 * (curves * np.log(spread) + power / spread).sum(axis=1)
    kept = np.ones(len(lines))
    kept[2:] = 1.0 - 1.0 / spread[int(np.argmax(likely))]
    return (waves @ (kept[:, None] * parts)).reshape(lines.shape), float((kept**2).mean())


@functools.lru_cache(maxsize=32)
def _waves(size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the eigenvectors of the squared second difference, straight lines first, and its positive eigenvalues."""
    second = np.diff(np.eye(size), 2, axis=0)
    values, vectors = np.linalg.eigh(second.T @ second)
    return values[2:], vectors
