"""Gaussian sums: all small tables once, with Gaussian noise, never cut."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from panstream.federated.analyst import Federation, Sums
from panstream.federated.estimates import Pair, posterior_pair, posterior_shares
from panstream.federated.methods.checks import check_common, check_gaussian
from panstream.federated.methods.forest import Edge, forest_network, heaviest_forest
from panstream.federated.methods.noisy_statistics import all_tables
from panstream.federated.methods.result import FederatedModel, finish
from panstream.federated.questions import Table
from panstream.networks.baselines import fit_tables, greedy, tables_from
from panstream.networks.network import BayesianNetwork
from panstream.privacy.composition import zcdp_rho

__all__ = ["GaussianSums"]

_PSEUDOCOUNT = 0.3  # of the noise's standard deviation: what an empty cell looks like


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianSums:
    """One question: all tables of ``degree + 1`` attributes with Gaussian noise; everything else is post-processing.

    **Privacy.** (epsilon, delta) towards every record, replace-one. T tables at rho/T each need noise of
    ``sqrt(T/rho)`` per cell where Laplace noise grows with T itself.

    Sums are left unclipped; what is known about the noise goes into the estimates (:mod:`panstream.federated.estimates`).
    """

    epsilon: float
    delta: float = 1e-6
    degree: int = 1
    root: int = 0

    def __post_init__(self) -> None:
        check_common(self.epsilon, self.degree)
        check_gaussian(self.epsilon, self.delta)

    def run(self, federation: Federation) -> FederatedModel:
        """Ask once."""
        domain = federation.domain
        sets = all_tables(len(domain), self.degree)
        share = zcdp_rho(self.epsilon, self.delta) / len(sets)
        sums = federation.sums("gaussian", [Table(attributes=each, budget=share) for each in sets])
        pairs = self.degree == 1 and len(domain) > 1
        network = _forest(federation, sets, sums) if pairs else self._greedy(federation, sets, sums)
        return finish(federation, network, "Gaussian sums", epsilon=self.epsilon, delta=self.delta, tables=len(sets))

    def _greedy(self, federation: Federation, sets: list[tuple[int, ...]], sums: Sums) -> BayesianNetwork:
        tables = tables_from(dict(zip(sets, sums.tables, strict=True)))
        parents = greedy(federation.domain, tables, self.degree, root=self.root)
        pseudocount = _PSEUDOCOUNT * sums.deviations[0]
        return fit_tables(federation.domain, parents, tables, pseudocount=pseudocount)


def _forest(federation: Federation, sets: list[tuple[int, ...]], sums: Sums) -> BayesianNetwork:
    domain = federation.domain
    deviation = sums.deviations[0]
    margins = [_margin(at, size, sets, sums.tables, deviation, sums.records) for at, size in enumerate(domain.sizes)]
    edges = []
    for (one, two), table in zip(sets, sums.tables, strict=True):
        pair: Pair = posterior_pair(table, deviation, margins[one], margins[two], sums.records)
        edges.append(Edge(one=one, two=two, weight=pair.information, joint=pair.joint))
    return forest_network(domain, margins, heaviest_forest(len(domain), edges))


def _margin(
    at: int,
    size: int,
    sets: list[tuple[int, ...]],
    tables: tuple[NDArray[np.int64], ...],
    deviation: float,
    records: int,
) -> NDArray[np.float64]:
    """Average one attribute's counts over the pair tables that hold it, by precision."""
    total, precision = np.zeros(size), 0.0
    for (one, two), table in zip(sets, tables, strict=True):
        if at in (one, two):
            axis = 1 if at == one else 0
            weight = 1.0 / table.shape[axis]
            total += weight * table.sum(axis=axis)
            precision += weight
    return posterior_shares(total / precision, deviation / math.sqrt(precision), records)
