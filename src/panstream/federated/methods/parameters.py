"""Distributed parameter learning for a structure that is already known (002, Algorithm 3.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from panstream.federated.analyst import Federation
from panstream.federated.mechanisms import needed_tables
from panstream.federated.methods.checks import check_common
from panstream.federated.methods.result import FederatedModel, finish
from panstream.federated.questions import Table
from panstream.networks.baselines import Parents, fit_tables, tables_from
from panstream.networks.network import BayesianNetwork, topological_order

__all__ = ["DistributedParameters", "learn_parameters"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedParameters:
    """Learn the tables of a given structure: one question for all families, Laplace noise, negatives cut after summing.

    **Privacy.** Pure epsilon towards every record, replace-one. Families that lie within another one are summed from it, so
    fewer than N tables share the budget (N - k of them for a structure of the greedy kind).
    """

    epsilon: float
    parents: Parents

    def __post_init__(self) -> None:
        check_common(self.epsilon, 1)
        topological_order(self.parents)

    def run(self, federation: Federation) -> FederatedModel:
        """Ask once."""
        families = [(*family, child) for child, family in enumerate(self.parents)]
        network = _learn(federation, self.parents, self.epsilon, _largest(families))
        return finish(federation, network, "distributed parameters", epsilon=self.epsilon)


def learn_parameters(
    federation: Federation, placed: Sequence[int], parents: Parents, degree: int, epsilon: float
) -> BayesianNetwork:
    """Learn the tables of a greedy structure whose attributes were placed in this order: N - k tables suffice."""
    return _learn(federation, parents, epsilon, needed_tables(placed, parents, degree))


def _learn(
    federation: Federation, parents: Parents, epsilon: float, families: Sequence[tuple[int, ...]]
) -> BayesianNetwork:
    sets = [tuple(sorted(family)) for family in families]
    sums = federation.sums("laplace", [Table(attributes=each, budget=epsilon / len(sets)) for each in sets])
    return fit_tables(federation.domain, parents, tables_from(dict(zip(sets, sums.tables, strict=True))))


def _largest(families: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the families that lie within no other."""
    found: list[tuple[int, ...]] = []
    for family in sorted(families, key=len, reverse=True):
        if not any(set(family) <= set(other) for other in found):
            found.append(family)
    return found
