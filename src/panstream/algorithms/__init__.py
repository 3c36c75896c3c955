"""One module per algorithm, grouped by the question it answers; every name can be imported from here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from panstream.core.catalogue import ALGORITHMS
from panstream.primitives.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from panstream.algorithms.auto import DistinctCount as DistinctCount
    from panstream.algorithms.auto import TopItems as TopItems
    from panstream.algorithms.continual import *  # noqa: F403
    from panstream.algorithms.continual_users import *  # noqa: F403
    from panstream.algorithms.density import *  # noqa: F403
    from panstream.algorithms.distinct import *  # noqa: F403
    from panstream.algorithms.heavy_hitters import *  # noqa: F403
    from panstream.algorithms.turnstile import *  # noqa: F403

_MODULES = {name: module for name, module in ALGORITHMS.items() if module.startswith(__name__)} | {
    "ContinualDistinct": "panstream.algorithms.continual_users.continual_distinct",
    "DistinctCount": "panstream.algorithms.auto",
    "RandomizedResponse": "panstream.algorithms.density.randomized_response",
    "Sketch": "panstream.algorithms.distinct.sketch",
    "Statistic": "panstream.algorithms.turnstile.statistic",
    "TopItems": "panstream.algorithms.auto",
    "register_duckdb": "panstream.algorithms.distinct.sketch_functions",
    "register_spark": "panstream.algorithms.distinct.sketch_functions",
    "sketch_count": "panstream.algorithms.distinct.sketch_functions",
    "sketch_overlap": "panstream.algorithms.distinct.sketch_functions",
    "sketch_union": "panstream.algorithms.distinct.sketch_functions",
}

__all__ = sorted(_MODULES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES)
