"""Statistics over streams that stay private even if an attacker copies the machine's memory.

The most used names are exported here; the algorithms under their papers' names are in ``panstream.algorithms``. Names
are imported on first use, so that ``import panstream`` is fast and compiles nothing.
"""

from __future__ import annotations

from panstream.core.catalogue import ALGORITHMS
from panstream.primitives.lazy_exports import lazy_exports

__version__ = "0.1.0"

_STATISTICS = (
    "ContinualCount",
    "ContinualDensity",
    "ContinualMean",
    "ContinualSum",
    "ContinualVariance",
    "CroppedMean",
    "DecayedSum",
    "GraphDensity",
    "HeavyFraction",
    "HeavyHitterCount",
    "RangeHistogram",
    "WindowedSum",
)
_EXPORTS = {name: ALGORITHMS[name] for name in _STATISTICS} | {
    "AsyncClient": "panstream.client.async_client",
    "Claim": "panstream.privacy.claim",
    "Client": "panstream.client.client",
    "ContinualDistinct": "panstream.algorithms.continual_users.continual_distinct",
    "DistinctCount": "panstream.algorithms.auto",
    "Estimate": "panstream.core.estimate",
    "Ledger": "panstream.privacy.ledger",
    "Monitor": "panstream.core.monitor",
    "PanstreamError": "panstream.errors",
    "Sketch": "panstream.algorithms.distinct.sketch",
    "TopItems": "panstream.algorithms.auto",
    "query": "panstream.engine.adhoc",
    "register": "panstream.core.registry",
}

__all__ = sorted([*_EXPORTS, "__version__"])


__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
