"""Counts, sums, means, variances, quantiles, windows and decayed sums, published at every tick.

The papers' own counters are in `panstream.papers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from panstream.primitives.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from panstream.algorithms.continual.decayed_sum import DecayedSum as DecayedSum
    from panstream.algorithms.continual.gauss_markov import GaussMarkovCount as GaussMarkovCount
    from panstream.algorithms.continual.least_squares_tree import LeastSquaresTree as LeastSquaresTree
    from panstream.algorithms.continual.moments import ContinualMean as ContinualMean
    from panstream.algorithms.continual.moments import ContinualVariance as ContinualVariance
    from panstream.algorithms.continual.range_histogram import RangeHistogram as RangeHistogram
    from panstream.algorithms.continual.sums import ContinualCount as ContinualCount
    from panstream.algorithms.continual.sums import ContinualSum as ContinualSum
    from panstream.algorithms.continual.sums import KaryTree as KaryTree
    from panstream.algorithms.continual.windowed_sum import WindowedSum as WindowedSum

_MODULES = {
    "ContinualCount": "panstream.algorithms.continual.sums",
    "ContinualMean": "panstream.algorithms.continual.moments",
    "ContinualSum": "panstream.algorithms.continual.sums",
    "ContinualVariance": "panstream.algorithms.continual.moments",
    "DecayedSum": "panstream.algorithms.continual.decayed_sum",
    "GaussMarkovCount": "panstream.algorithms.continual.gauss_markov",
    "KaryTree": "panstream.algorithms.continual.sums",
    "LeastSquaresTree": "panstream.algorithms.continual.least_squares_tree",
    "RangeHistogram": "panstream.algorithms.continual.range_histogram",
    "WindowedSum": "panstream.algorithms.continual.windowed_sum",
}

__all__ = sorted(_MODULES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES)
