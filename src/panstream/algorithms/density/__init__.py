"""Statistics of a known population, from one noisy bit per sampled user.

Which fraction appeared, how often on average, and which fraction at least k times. ``presence`` has the state and the
steps that all of them share; ``universe`` maps an id to its cell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from panstream.primitives.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from panstream.algorithms.density.cropped_mean import CroppedMean as CroppedMean
    from panstream.algorithms.density.dwork_pair import DworkPair as DworkPair
    from panstream.algorithms.density.fixed_level import FixedLevel as FixedLevel
    from panstream.algorithms.density.graph_density import GraphDensity as GraphDensity
    from panstream.algorithms.density.heavy_fraction import HeavyFraction as HeavyFraction
    from panstream.algorithms.density.optbern import OptBern as OptBern
    from panstream.algorithms.density.quantised_laplace import QuantisedLaplace as QuantisedLaplace
    from panstream.algorithms.density.randomized_response import RandomizedResponse as RandomizedResponse
    from panstream.algorithms.density.refreshable_cropped_mean import RefreshableCroppedMean as RefreshableCroppedMean

_MODULES = {
    "CroppedMean": "panstream.algorithms.density.cropped_mean",
    "DworkPair": "panstream.algorithms.density.dwork_pair",
    "FixedLevel": "panstream.algorithms.density.fixed_level",
    "GraphDensity": "panstream.algorithms.density.graph_density",
    "HeavyFraction": "panstream.algorithms.density.heavy_fraction",
    "OptBern": "panstream.algorithms.density.optbern",
    "QuantisedLaplace": "panstream.algorithms.density.quantised_laplace",
    "RandomizedResponse": "panstream.algorithms.density.randomized_response",
    "RefreshableCroppedMean": "panstream.algorithms.density.refreshable_cropped_mean",
}

__all__ = sorted(_MODULES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES)
