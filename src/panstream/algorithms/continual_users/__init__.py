"""Statistics of ids in many answers: how many have appeared, and sums of squares and products of their weights.

The state is the cells of a density or distinct-count algorithm, or the counters of a signed sketch. They are released
through the trees of ``panstream.algorithms.continual``; set bits one by one where that has the smaller error
(``release_strategies``).
"""

from panstream.algorithms.continual_users.continual_bitmap import ContinualBitmap
from panstream.algorithms.continual_users.continual_density import ContinualDensity
from panstream.algorithms.continual_users.continual_distinct import ContinualDistinct
from panstream.algorithms.continual_users.continual_moments import ContinualInnerProduct, ContinualSecondMoment
from panstream.algorithms.continual_users.retained_bitmap import RetainedBitmap

__all__ = [
    "ContinualBitmap",
    "ContinualDensity",
    "ContinualDistinct",
    "ContinualInnerProduct",
    "ContinualSecondMoment",
    "RetainedBitmap",
]
