"""Statistics over streams that stay private even if someone copies the machine's memory.

Here are the front doors; algorithms by their papers' names are in ``density``, ``distinct``, ``turnstile``,
``continual`` and ``frequent``. Names are loaded when first used, so that ``import panstream`` is quick and needs no
compiler.
"""

from __future__ import annotations

import importlib
from typing import Any

from panstream.catalogue import ALGORITHMS

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
_DOORS = {name: ALGORITHMS[name] for name in _STATISTICS} | {
    "AsyncClient": "panstream.client_async",
    "Claim": "panstream.privacy.claim",
    "Client": "panstream.client",
    "ContinualDistinct": "panstream.continual_users.distinct",
    "DistinctCount": "panstream.statistics",
    "Estimate": "panstream.estimate",
    "Ledger": "panstream.privacy.ledger",
    "Monitor": "panstream.algorithm",
    "PanstreamError": "panstream.errors",
    "TopItems": "panstream.statistics",
    "query": "panstream.engine.query",
    "register": "panstream.algorithm",
}

__all__ = sorted([*_DOORS, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _DOORS:
        raise AttributeError(f"module 'panstream' has no attribute {name!r}")
    return getattr(importlib.import_module(_DOORS[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
