"""One network from records that several holders keep to themselves.

Holders answer questions within their own budgets; the analyst is not trusted. See docs/tutorial/three-hospitals.md.
"""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "AverageScores": "methods.local_scores",
    "Budget": "ledger",
    "DistributedParameters": "methods.parameters",
    "FederatedModel": "methods.result",
    "FederatedTree": "methods.tree",
    "Federation": "analyst",
    "GaussianSums": "methods.gaussian_sums",
    "Holder": "holder",
    "HolderLedger": "ledger",
    "IndependentMarginals": "methods.independent",
    "MajorityVoting": "methods.voting",
    "NoisyModel": "methods.noisy_model",
    "NoisyStatistics": "methods.noisy_statistics",
}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    module = _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module 'panstream.federated' has no attribute {name!r}")
    return getattr(importlib.import_module(f"panstream.federated.{module}"), name)


def __dir__() -> list[str]:
    return list(__all__)
