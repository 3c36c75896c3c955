"""Bayesian networks over declared domains: models of a whole table that can be learned privately and sampled."""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "Attribute": "domain",
    "BayesianNetwork": "network",
    "Bins": "domain",
    "Domain": "domain",
    "Records": "records",
    "conditional": "network",
    "conditional_entropy": "information",
    "contingency": "counting",
    "entropy": "information",
    "mutual_information": "information",
    "pairwise": "counting",
    "propose_domain": "domain",
}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    module = _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module 'panstream.networks' has no attribute {name!r}")
    return getattr(importlib.import_module(f"panstream.networks.{module}"), name)


def __dir__() -> list[str]:
    return list(__all__)
