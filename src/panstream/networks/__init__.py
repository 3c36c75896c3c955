"""Bayesian networks over declared domains: models of a whole table that can be learned privately and sampled.

Nothing here imports the compiler, Arrow or a data-frame library before it is needed.
"""

from __future__ import annotations

from panstream.networks.balanced import balanced_sample
from panstream.networks.baselines import chow_liu, fit_tables, greedy, independent, naive_bayes, tables_from, tables_of
from panstream.networks.bif import from_bif, to_bif
from panstream.networks.comparison import compare
from panstream.networks.counting import contingency, pairwise
from panstream.networks.domain import Attribute, Bins, Domain, propose_domain
from panstream.networks.entropy_error import noisy_entropy_bias, noisy_entropy_error
from panstream.networks.files import from_json, load, save, to_json
from panstream.networks.forest import NoisyTable, fit_forest
from panstream.networks.hill_climbing import local_search
from panstream.networks.inference import Explanation, log_probability, most_probable, posterior, probability
from panstream.networks.information import conditional_entropy, entropy, mutual_information
from panstream.networks.learned import LearnedNetwork
from panstream.networks.network import BayesianNetwork, conditional
from panstream.networks.picture import to_svg
from panstream.networks.plan import Split
from panstream.networks.privbayes import PrivBayes
from panstream.networks.records import Records
from panstream.networks.sampling import sample
from panstream.networks.seven import seven_attributes
from panstream.networks.tree import TreeNetwork

__all__ = [
    "Attribute",
    "BayesianNetwork",
    "Bins",
    "Domain",
    "Explanation",
    "LearnedNetwork",
    "NoisyTable",
    "PrivBayes",
    "Records",
    "Split",
    "TreeNetwork",
    "balanced_sample",
    "chow_liu",
    "compare",
    "conditional",
    "conditional_entropy",
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
    "log_probability",
    "most_probable",
    "mutual_information",
    "naive_bayes",
    "noisy_entropy_bias",
    "noisy_entropy_error",
    "pairwise",
    "posterior",
    "probability",
    "propose_domain",
    "sample",
    "save",
    "seven_attributes",
    "tables_from",
    "tables_of",
    "to_bif",
    "to_json",
    "to_svg",
]
