"""What a known population does, from one noisy bit per sampled user.

Fractions that appeared, how often, and how many came at least k times. ``presence`` is the state and the steps that
they share, ``universe`` finds an id's cell.
"""

from panstream.algorithms.density.cropped_mean import CroppedMean
from panstream.algorithms.density.dwork_pair import DworkPair
from panstream.algorithms.density.fixed_level import FixedLevel
from panstream.algorithms.density.graph_density import GraphDensity
from panstream.algorithms.density.heavy_fraction import HeavyFraction
from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.density.quantised_laplace import QuantisedLaplace
from panstream.algorithms.density.refreshable_cropped_mean import RefreshableCroppedMean

__all__ = [
    "CroppedMean",
    "DworkPair",
    "FixedLevel",
    "GraphDensity",
    "HeavyFraction",
    "OptBern",
    "QuantisedLaplace",
    "RefreshableCroppedMean",
]
