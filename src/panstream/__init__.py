"""Statistics over streams that stay private even if someone copies the machine's memory.

Names are loaded when first used, so that ``import panstream`` is quick and needs no compiler.
"""

from __future__ import annotations

import importlib
from typing import Any

from panstream.catalogue import ALGORITHMS

__version__ = "0.1.0"

_OTHERS = {
    "AsyncClient": "panstream.client_async",
    "Claim": "panstream.privacy.claim",
    "Client": "panstream.client",
    "DistinctCount": "panstream.statistics",
    "Estimate": "panstream.estimate",
    "Ledger": "panstream.privacy.ledger",
    "Monitor": "panstream.algorithm",
    "PanstreamError": "panstream.errors",
    "register": "panstream.algorithm",
}

__all__ = sorted([*ALGORITHMS, *_OTHERS, "__version__"])


def __getattr__(name: str) -> Any:
    module = ALGORITHMS.get(name) or _OTHERS.get(name)
    if module is None:
        raise AttributeError(f"module 'panstream' has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return list(__all__)
