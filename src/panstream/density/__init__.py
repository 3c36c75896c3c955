"""What a known population does, from one noisy bit per sampled user.

Fractions that appeared, how often, and how many came at least k times. ``presence`` is the state and the steps that
they share, ``universe`` finds an id's cell.
"""

from panstream.density.cropped_mean import CroppedMean
from panstream.density.dwork_pair import DworkPair
from panstream.density.fixed_level import FixedLevel
from panstream.density.graph import GraphDensity
from panstream.density.heavy_fraction import HeavyFraction
from panstream.density.optbern import OptBern
from panstream.density.quantised_laplace import QuantisedLaplace
from panstream.density.refreshable_cropped_mean import RefreshableCroppedMean

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
