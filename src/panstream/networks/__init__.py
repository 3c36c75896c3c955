"""Bayesian networks over declared domains: models of a whole table that can be learned privately and sampled.

Here belong domains and records, networks with their files and pictures, the private learners with their budgets, and
what is made of noisy tables afterwards. Nothing here imports the compiler, Arrow or a data-frame library before it is
needed.
"""

from __future__ import annotations

from typing import Any

from panstream.networks.baselines import (
    chow_liu,
    fit_tables,
    greedy,
    independent,
    local_search,
    naive_bayes,
    tables_from,
    tables_of,
)
from panstream.networks.bins import Bins
from panstream.networks.budget import Split
from panstream.networks.conditioning import Conditioned, conditioned
from panstream.networks.counting import compare, contingency, pairwise
from panstream.networks.domain import Attribute, Domain, propose_domain
from panstream.networks.files import from_bif, from_json, load, save, seven_attributes, to_bif, to_json
from panstream.networks.forest import fit_forest
from panstream.networks.information import entropy, mutual_information, noisy_entropy_bias, noisy_entropy_error
from panstream.networks.learner import LearnedNetwork
from panstream.networks.mixture import Mixture
from panstream.networks.network import BayesianNetwork, Explanation
from panstream.networks.noisy_tables import NoisyTable
from panstream.networks.pairs import PairModel, recommended
from panstream.networks.picture import to_svg
from panstream.networks.privbayes import PrivBayes
from panstream.networks.records import Records
from panstream.networks.sampling import balanced_sample, sample
from panstream.networks.tree import TreeNetwork

__all__ = [
    "Attribute",
    "BayesianNetwork",
    "Bins",
    "Conditioned",
    "Domain",
    "Explanation",
    "LearnedNetwork",
    "Mixture",
    "NoisyTable",
    "PairModel",
    "PrivBayes",
    "Records",
    "Split",
    "StreamingTables",
    "TreeNetwork",
    "balanced_sample",
    "chow_liu",
    "compare",
    "conditioned",
    "contingency",
    "entropy",
    "fit_forest",
    "fit_tables",
    "from_bif",
    "from_json",
    "greedy",
    "independent",
    "load",
    "local_search",
    "mutual_information",
    "naive_bayes",
    "noisy_entropy_bias",
    "noisy_entropy_error",
    "pairwise",
    "propose_domain",
    "recommended",
    "sample",
    "save",
    "seven_attributes",
    "tables_from",
    "tables_of",
    "to_bif",
    "to_json",
    "to_svg",
]


def __getattr__(name: str) -> Any:
    if name != "StreamingTables":  # it brings the compiler, so it is loaded when it is asked for
        raise AttributeError(f"module 'panstream.networks' has no attribute {name!r}")
    from panstream.networks.streaming import StreamingTables

    return StreamingTables
