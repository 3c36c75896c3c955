"""Independent attributes under the same budget: the baseline that every structure has to beat."""

from __future__ import annotations

import math
from dataclasses import dataclass

from panstream.federated.analyst import Federation
from panstream.federated.estimates import posterior_shares
from panstream.federated.methods.checks import check_common
from panstream.federated.methods.result import FederatedModel, finish
from panstream.federated.questions import Table
from panstream.networks.network import BayesianNetwork
from panstream.privacy.composition import zcdp_rho

__all__ = ["IndependentMarginals"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndependentMarginals:
    """Only the N tables of single attributes, at equal shares: Laplace noise at delta = 0, Gaussian noise otherwise.

    ``by_size`` gives larger tables more of the budget, as :class:`FederatedTree` does.
    """

    epsilon: float
    delta: float = 0.0
    by_size: bool = False

    def __post_init__(self) -> None:
        check_common(self.epsilon, 1)

    def run(self, federation: Federation) -> FederatedModel:
        """Ask once."""
        domain = federation.domain
        noise = "gaussian" if self.delta else "laplace"
        budget = zcdp_rho(self.epsilon, self.delta) if self.delta else self.epsilon
        shares = size_shares(domain.sizes) if self.by_size else [1 / len(domain)] * len(domain)
        tables = [Table(attributes=(at,), budget=budget * share) for at, share in enumerate(shares)]
        sums = federation.sums(noise, tables)
        estimated = [
            posterior_shares(table, deviation, sums.records)
            for table, deviation in zip(sums.tables, sums.deviations, strict=True)
        ]
        network = BayesianNetwork(domain, ((),) * len(domain), tuple(estimated))
        return finish(federation, network, "independent marginals", epsilon=self.epsilon, delta=self.delta)


def size_shares(sizes: tuple[int, ...]) -> list[float]:
    """Return shares of rho proportional to size^(2/3): they minimise the sum of size·deviation over the tables."""
    weights = [size ** (2 / 3) for size in sizes]
    total = math.fsum(weights)
    return [weight / total for weight in weights]
