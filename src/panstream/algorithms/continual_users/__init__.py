"""Statistics of ids in many answers: how many have appeared, and sums of squares and products of their weights.

The state is the cells of a density or distinct-count algorithm, or the counters of a signed sketch. They are released
through the trees of ``panstream.algorithms.continual``; set bits one by one where that has the smaller error
(``release_strategies``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from panstream.primitives.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from panstream.algorithms.continual_users.continual_bitmap import ContinualBitmap as ContinualBitmap
    from panstream.algorithms.continual_users.continual_density import ContinualDensity as ContinualDensity
    from panstream.algorithms.continual_users.continual_distinct import ContinualDistinct as ContinualDistinct
    from panstream.algorithms.continual_users.continual_moments import ContinualInnerProduct as ContinualInnerProduct
    from panstream.algorithms.continual_users.continual_moments import ContinualSecondMoment as ContinualSecondMoment
    from panstream.algorithms.continual_users.retained_bitmap import RetainedBitmap as RetainedBitmap

_MODULES = {
    "ContinualBitmap": "panstream.algorithms.continual_users.continual_bitmap",
    "ContinualDensity": "panstream.algorithms.continual_users.continual_density",
    "ContinualDistinct": "panstream.algorithms.continual_users.continual_distinct",
    "ContinualInnerProduct": "panstream.algorithms.continual_users.continual_moments",
    "ContinualSecondMoment": "panstream.algorithms.continual_users.continual_moments",
    "RetainedBitmap": "panstream.algorithms.continual_users.retained_bitmap",
}

__all__ = sorted(_MODULES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES)
