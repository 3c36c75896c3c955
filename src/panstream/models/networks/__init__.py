"""Bayesian networks over declared domains: models of a table that can be learned privately and sampled.

The package has domains and records, networks with their file formats and pictures, the private learners with their
budgets, and the post-processing of noisy tables. numba, Arrow and data-frame libraries are imported on first use.
"""

from __future__ import annotations

from typing import Any

from panstream.models.networks.adaptive_model import AdaptiveModel
from panstream.models.networks.bins import Bins
from panstream.models.networks.budget import BudgetSplit, PureBudget
from panstream.models.networks.category_names import frequent_categories
from panstream.models.networks.conditioning import ConditionedModel, condition
from panstream.models.networks.contingency import compare, contingency, pairwise
from panstream.models.networks.domain import Attribute, Domain, propose_domain
from panstream.models.networks.forest_fit import fit_forest
from panstream.models.networks.information import entropy, mutual_information, noisy_entropy_bias, noisy_entropy_error
from panstream.models.networks.learner import LearnedNetwork
from panstream.models.networks.mixture import Mixture
from panstream.models.networks.network import BayesianNetwork, Explanation
from panstream.models.networks.noisy_tables import NoisyTable
from panstream.models.networks.pair_model import PairModel, recommend_learner
from panstream.models.networks.person_rows import rows_of_persons
from panstream.models.networks.privbayes import PrivBayes
from panstream.models.networks.records import Records
from panstream.models.networks.sampling import balanced_sample, sample
from panstream.models.networks.serialization import (
    from_bif,
    from_json,
    load,
    read_metadata,
    save,
    seven_attributes,
    to_bif,
    to_json,
)
from panstream.models.networks.structure_search import (
    chow_liu,
    exact_tables,
    fit_tables,
    greedy,
    independent,
    local_search,
    marginal_tables,
    naive_bayes,
)
from panstream.models.networks.svg import to_svg
from panstream.models.networks.tree_network import TreeNetwork

__all__ = [
    "AdaptiveModel",
    "Attribute",
    "BayesianNetwork",
    "Bins",
    "BudgetSplit",
    "ConditionedModel",
    "Domain",
    "Explanation",
    "LearnedNetwork",
    "Mixture",
    "NoisyTable",
    "PairModel",
    "PrivBayes",
    "PureBudget",
    "Records",
    "StreamingTables",
    "TreeNetwork",
    "balanced_sample",
    "chow_liu",
    "compare",
    "condition",
    "contingency",
    "entropy",
    "exact_tables",
    "fit_forest",
    "fit_tables",
    "frequent_categories",
    "from_bif",
    "from_json",
    "greedy",
    "independent",
    "load",
    "local_search",
    "marginal_tables",
    "mutual_information",
    "naive_bayes",
    "noisy_entropy_bias",
    "noisy_entropy_error",
    "pairwise",
    "propose_domain",
    "read_metadata",
    "recommend_learner",
    "rows_of_persons",
    "sample",
    "save",
    "seven_attributes",
    "to_bif",
    "to_json",
    "to_svg",
]


def __getattr__(name: str) -> Any:
    if name != "StreamingTables":  # imports numba, so it is loaded on first use
        raise AttributeError(f"module 'panstream.models.networks' has no attribute {name!r}")
    from panstream.models.networks.streaming_tables import StreamingTables

    return StreamingTables
