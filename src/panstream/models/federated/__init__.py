"""One network from records that several holders keep to themselves.

Holders answer questions within their own budgets; the analyst is not trusted. Here belong the questions with their
answers and costs, holders and their ledgers, the ways between both sides, and the methods that learn from the answers.
"""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "AverageScores": "thesis_methods",
    "DistributedParameters": "thesis_methods",
    "FederatedModel": "analyst",
    "FederatedPairs": "federated_pairs",
    "FederatedTree": "gaussian_methods",
    "Federation": "analyst",
    "GaussianSums": "gaussian_methods",
    "Holder": "holder",
    "HolderLedger": "ledger",
    "IndependentMarginals": "gaussian_methods",
    "MajorityVoting": "thesis_methods",
    "NoisyModel": "thesis_methods",
    "NoisyStatistics": "thesis_methods",
    "Roster": "secure_sums",
}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    module = _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module 'panstream.models.federated' has no attribute {name!r}")
    return getattr(importlib.import_module(f"panstream.models.federated.{module}"), name)


def __dir__() -> list[str]:
    return list(__all__)
