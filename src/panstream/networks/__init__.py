"""Bayesian networks over declared domains: models of a whole table that can be learned privately and sampled."""

from __future__ import annotations

import importlib
from typing import Any

_NAMES = {
    "Attribute": "domain",
    "BayesianNetwork": "network",
    "Bins": "domain",
    "Domain": "domain",
    "Explanation": "inference",
    "LearnedNetwork": "learned",
    "PrivBayes": "privbayes",
    "Records": "records",
    "Split": "tree",
    "TreeNetwork": "tree",
    "balanced_sample": "balanced",
    "chow_liu": "baselines",
    "compare": "comparison",
    "conditional": "network",
    "conditional_entropy": "information",
    "contingency": "counting",
    "entropy": "information",
    "NoisyTable": "forest",
    "fit_forest": "forest",
    "fit_tables": "baselines",
    "from_bif": "bif",
    "from_json": "files",
    "greedy": "baselines",
    "independent": "baselines",
    "load": "files",
    "local_search": "hill_climbing",
    "log_probability": "inference",
    "most_probable": "inference",
    "mutual_information": "information",
    "naive_bayes": "baselines",
    "noisy_entropy_bias": "entropy_error",
    "noisy_entropy_error": "entropy_error",
    "pairwise": "counting",
    "posterior": "inference",
    "probability": "inference",
    "propose_domain": "domain",
    "sample": "sampling",
    "save": "files",
    "seven_attributes": "seven",
    "tables_from": "baselines",
    "tables_of": "baselines",
    "to_bif": "bif",
    "to_json": "files",
    "to_svg": "picture",
}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    module = _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module 'panstream.networks' has no attribute {name!r}")
    return getattr(importlib.import_module(f"panstream.networks.{module}"), name)


def __dir__() -> list[str]:
    return list(__all__)
