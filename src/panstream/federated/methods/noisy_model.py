"""Sharing the noisy model (002, Algorithm 3.7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from panstream.errors import InvalidParameter
from panstream.federated.analyst import Federation
from panstream.federated.answers import Model
from panstream.federated.methods.checks import check_common, check_split
from panstream.federated.methods.result import FederatedModel, finish
from panstream.federated.questions import LocalModel
from panstream.networks.baselines import fit_tables, greedy, tables_of
from panstream.networks.domain import Domain
from panstream.networks.network import BayesianNetwork
from panstream.networks.records import Records
from panstream.networks.sampling import sample
from panstream.randomness import Source

__all__ = ["NoisyModel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyModel:
    """Every holder learns a network alone and sends it; the analyst samples from all of them and learns from the samples.

    **Privacy.** Pure epsilon towards every record, replace-one; sampling and learning from samples cost nothing.
    """

    epsilon: float
    degree: int = 1
    root: int = 0
    split: float = 0.5
    source: Callable[[], Source] = field(default=Source, compare=False)

    def __post_init__(self) -> None:
        check_common(self.epsilon, self.degree)
        check_split(self.split)

    def run(self, federation: Federation) -> FederatedModel:
        """Ask once."""
        domain = federation.domain
        question = LocalModel(
            run=federation.run,
            domain=federation.schema,
            degree=self.degree,
            root=self.root,
            structure=self.split * self.epsilon,
            parameters=(1 - self.split) * self.epsilon,
        )
        answers = federation.ask(question, Model, lambda found, _: _check(found, domain))
        pieces = []
        for who, model in answers:
            with self.source() as source:
                pieces.append(sample(_network(model, domain), who.records, source).codes)
        pooled = Records(domain, np.concatenate(pieces, axis=1))
        tables = tables_of(pooled)
        parents = greedy(domain, tables, self.degree, root=self.root)
        network = fit_tables(domain, parents, tables)
        return finish(federation, network, "noisy model", epsilon=self.epsilon)


def _network(model: Model, domain: Domain) -> BayesianNetwork:
    return fit_tables(domain, model.parents, lambda family: model.tables[family[-1]])


def _check(model: Model, domain: Domain) -> None:
    families = [(*family, child) for child, family in enumerate(model.parents)]
    inside = all(0 <= each < len(domain) for family in families for each in family)
    if len(model.parents) != len(domain) or not inside:
        raise InvalidParameter("its model is not over the domain that was agreed on")
    shapes = [tuple(domain.sizes[each] for each in family) for family in families]
    if [table.shape for table in model.tables] != shapes:
        raise InvalidParameter("the tables of its model have wrong shapes")
    _network(model, domain)
