"""Statistics of a known population, from one noisy bit per sampled user.

Which fraction appeared, how often on average, and which fraction at least k times. ``presence`` has the state and the
steps that all of them share; ``universe`` maps an id to its cell.
"""

from panstream.algorithms.density.cropped_mean import CroppedMean
from panstream.algorithms.density.dwork_pair import DworkPair
from panstream.algorithms.density.fixed_level import FixedLevel
from panstream.algorithms.density.graph_density import GraphDensity
from panstream.algorithms.density.heavy_fraction import HeavyFraction
from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.density.quantised_laplace import QuantisedLaplace
from panstream.algorithms.density.randomized_response import RandomizedResponse
from panstream.algorithms.density.refreshable_cropped_mean import RefreshableCroppedMean

__all__ = [
    "CroppedMean",
    "DworkPair",
    "FixedLevel",
    "GraphDensity",
    "HeavyFraction",
    "OptBern",
    "QuantisedLaplace",
    "RandomizedResponse",
    "RefreshableCroppedMean",
]
