"""Sharing the noisy sufficient statistics (002, Algorithm 3.5)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from panstream.federated.analyst import Federation
from panstream.federated.methods.checks import check_common
from panstream.federated.methods.result import FederatedModel, finish
from panstream.federated.questions import Table
from panstream.networks.baselines import fit_tables, greedy, tables_from

__all__ = ["NoisyStatistics", "all_tables"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyStatistics:
    """Every holder sends all tables of ``degree + 1`` attributes with Laplace noise; the analyst learns from the sums.

    **Privacy.** Pure epsilon towards every record, replace-one: C(N, k+1) tables at equal shares (Theorem 3.4).

    Negative counts are cut after summing; the thesis cuts them at each holder, which biases every small cell upwards by
    half a noise scale per holder (``clip_at_holder=True`` reproduces that). The cells get 1 added.
    """

    epsilon: float
    degree: int = 1
    root: int = 0
    clip_at_holder: bool = False

    def __post_init__(self) -> None:
        check_common(self.epsilon, self.degree)

    def run(self, federation: Federation) -> FederatedModel:
        """Ask once, then learn structure and parameters without asking again."""
        sets = all_tables(len(federation.domain), self.degree)
        share = self.epsilon / len(sets)
        sums = federation.sums(
            "laplace", [Table(attributes=each, budget=share) for each in sets], clip=self.clip_at_holder
        )
        tables = tables_from(dict(zip(sets, sums.tables, strict=True)))
        parents = greedy(federation.domain, tables, self.degree, root=self.root)
        network = fit_tables(federation.domain, parents, tables)
        return finish(federation, network, "noisy statistics", epsilon=self.epsilon, tables=len(sets))


def all_tables(attributes: int, degree: int) -> list[tuple[int, ...]]:
    """Return all sets of ``degree + 1`` attributes (of all attributes where there are fewer)."""
    size = min(degree + 1, attributes)
    assert math.comb(attributes, size) < 1 << 20, "too many tables"
    return list(itertools.combinations(range(attributes), size))
