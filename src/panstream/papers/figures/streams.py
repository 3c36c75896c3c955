"""The papers' streams: users drawn uniformly, or from Zipf's law with exponent 1."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from panstream.papers.figures.plan import FigureOptions, generator

__all__ = ["StreamKind", "distinct_counts", "draw_stream"]

StreamKind = Literal["uniform", "zipf"]


def draw_stream(kind: StreamKind, options: FigureOptions, run: int) -> NDArray[np.int64]:
    """Return the stream of repetition ``run``: the same for every estimator and every privacy budget."""
    rng = generator(options, "stream", kind, options.universe, options.length, run)
    if kind == "uniform":
        return rng.integers(0, options.universe, options.length)
    keep, other = _zipf_alias(options.universe)
    spot = rng.random(options.length) * options.universe
    column = np.minimum(spot.astype(np.int64), options.universe - 1)
    return np.where(spot - column < keep[column], column, other[column])


@lru_cache(maxsize=8)
def distinct_counts(kind: StreamKind, options: FigureOptions, runs: int) -> NDArray[np.int64]:
    """Return how many users appear in each of the streams 0..runs-1."""
    counts = np.empty(runs, np.int64)
    for run in range(runs):
        seen = np.zeros(options.universe, np.bool_)
        seen[draw_stream(kind, options, run)] = True
        counts[run] = np.count_nonzero(seen)
    counts.flags.writeable = False
    return counts


@lru_cache(maxsize=4)
def _zipf_alias(universe: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return Walker's alias table of P(user u) ∝ 1/(u+1): column u is u with chance ``keep[u]``, else ``other[u]``."""
    weights = 1.0 / np.arange(1, universe + 1)
    keep = weights * (universe / weights.sum())
    other = np.arange(universe)
    rich = int(np.count_nonzero(keep > 1.0)) - 1  # users are sorted by weight: the rich come first
    for poor in range(universe - 1, -1, -1):
        if rich < 0 or poor <= rich:
            break
        other[poor] = rich
        keep[rich] -= 1.0 - keep[poor]
        if keep[rich] <= 1.0:
            rich -= 1
    return keep, other
