"""The federated tree: margins first, then the pairs worth asking about, then the edges that were found, once more."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.federated.analyst import Federation
from panstream.federated.estimates import equal_groups, grouped_sums, posterior_pair, posterior_shares
from panstream.federated.methods.checks import check_gaussian
from panstream.federated.methods.forest import Edge, forest_network, heaviest_forest
from panstream.federated.methods.independent import size_shares
from panstream.federated.methods.result import FederatedModel, finish
from panstream.federated.questions import Table
from panstream.networks.domain import Domain
from panstream.networks.information import entropy
from panstream.privacy.composition import zcdp_rho
from panstream.privacy.tables import table_sigma

__all__ = ["FederatedTree"]

Floats: TypeAlias = NDArray[np.float64]
Groups: TypeAlias = list[NDArray[np.int64]]

_INFORMATIVE = (
    0.2  # share of the smaller entropy that a pair is expected to have in common when it is worth asking about
)
_VISIBLE = 3.0  # how many standard deviations such a pair must stand out by
_CELL = 3.0  # a cell of a pair table should hold this many standard deviations on average
_HOPELESS = 14.0  # noise of all margins together, in records: beyond this, asking about pairs costs more than it brings
_EVIDENCE = 1.0  # log likelihood that a pair must gain over independence


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedTree:
    """A tree network (a forest, where the noise hides what is left) from three questions with Gaussian noise.

    1. All margins; larger tables get more of the budget.
    2. Tables of pairs. From the noisy margins and the known noise the analyst decides which pairs could stand out at all, and
       joins neighbouring codes into groups so that a cell is worth its noise.
    3. The edges of the heaviest forest once more, both answers combined.

    **Privacy.** (epsilon, delta) towards every record, replace-one: the three questions share rho. The later questions depend
    on earlier *answers* only, so no selection mechanism is needed.

    ``margins`` and ``pairs`` are the shares of rho of the first two questions; by default the noisier the run, the larger the
    share of the margins, up to all of it.
    """

    epsilon: float
    delta: float = 1e-6
    margins: float | None = None
    pairs: float | None = None

    def __post_init__(self) -> None:
        check_gaussian(self.epsilon, self.delta)
        for name, share in (("margins", self.margins), ("pairs", self.pairs)):
            if share is not None and not 0 < share < 1:
                raise InvalidParameter(f"{name} must be in (0, 1), got {name}={share}")
        if (self.margins or 0) + (self.pairs or 0) >= 1:
            raise InvalidParameter("margins and pairs together must leave something for the edges")

    def run(self, federation: Federation) -> FederatedModel:
        """Ask three times; once where there is one attribute only, or where no pair could stand out of the noise."""
        domain, rho = federation.domain, zcdp_rho(self.epsilon, self.delta)
        first = self._first_share(domain, federation.records, len(federation.holders), rho)
        second = self.pairs if self.pairs is not None else (1.0 - first) / 2.0
        margins = _ask_margins(federation, first * rho)
        asked, edges = 0, []
        if first < 1.0:
            plan = _plan(domain, margins, federation.records, len(federation.holders), second * rho)
            asked = len(plan.pairs)
            federation.report(f"asking about {asked} of {math.comb(len(domain), 2)} pairs")
            found = _ask_pairs(federation, margins, plan, second * rho)
            federation.report(f"{len(found)} edges found")
            edges = _ask_again(federation, margins, plan, found, second * rho, (1.0 - first - second) * rho)
        network = forest_network(domain, margins, edges)
        return finish(federation, network, "federated tree", epsilon=self.epsilon, delta=self.delta, pairs=asked)

    def _first_share(self, domain: Domain, records: int, holders: int, rho: float) -> float:
        if len(domain) == 1:
            return 1.0
        if self.margins is not None:
            return self.margins
        noise = sum(domain.sizes) * table_sigma(rho / len(domain)) * math.sqrt(holders) / records
        if noise > _HOPELESS:
            return 1.0
        return 0.4 + 0.55 * noise**2 / (noise**2 + 45.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Plan:
    pairs: list[tuple[int, int]]
    groups: Groups


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Found:
    edge: Edge
    table: NDArray[np.int64]
    deviation: float


def _ask_margins(federation: Federation, rho: float) -> list[Floats]:
    shares = size_shares(federation.domain.sizes)
    sums = federation.sums(
        "gaussian", [Table(attributes=(at,), budget=rho * share) for at, share in enumerate(shares)], part="margins"
    )
    return [
        posterior_shares(table, deviation, sums.records)
        for table, deviation in zip(sums.tables, sums.deviations, strict=True)
    ]


def _plan(domain: Domain, margins: Sequence[Floats], records: int, holders: int, rho: float) -> _Plan:
    """Choose how many pairs to ask about: as many as would still stand out at the noise that so many tables get."""
    pairs = list(itertools.combinations(range(len(domain)), 2))
    one, two = np.array(pairs).T
    sizes = sorted({round(float(each)) for each in np.geomspace(1, len(pairs), 25)}, reverse=True)
    for size in sizes:
        deviation = table_sigma(rho / size) * math.sqrt(holders)
        groups = _groups(margins, deviation, records)
        shares = [grouped_sums(margin, group) for margin, group in zip(margins, groups, strict=True)]
        entropies = np.array([entropy(each) for each in shares])
        heights = np.array([float((each**2).sum()) for each in shares])
        cells = np.array([each.size for each in shares], np.float64)
        signal = 2.0 * records**2 * math.log(2) * _INFORMATIVE * np.minimum(entropies[one], entropies[two])
        visible = signal * heights[one] * heights[two] / (deviation**2 * np.sqrt(2.0 * cells[one] * cells[two]))
        best = np.argsort(-visible, kind="stable")[:size]
        if visible[best[-1]] >= _VISIBLE or size == sizes[-1]:
            break
    return _Plan(pairs=[pairs[each] for each in sorted(best)], groups=groups)


def _groups(margins: Sequence[Floats], deviation: float, records: int) -> Groups:
    count = max(2, int(math.sqrt(records / (_CELL * deviation))))
    return [equal_groups(margin, count) for margin in margins]


def _table(pair: tuple[int, int], groups: Groups, budget: float) -> Table:
    chosen = tuple(tuple(int(code) for code in groups[each]) for each in pair)
    plain = all(group == tuple(range(len(group))) for group in chosen)
    return Table(attributes=pair, budget=budget, groups=() if plain else chosen)


def _ask_pairs(federation: Federation, margins: Sequence[Floats], plan: _Plan, rho: float) -> list[_Found]:
    sums = federation.sums(
        "gaussian", [_table(pair, plan.groups, rho / len(plan.pairs)) for pair in plan.pairs], part="pairs"
    )
    found = {}
    for (one, two), table, deviation in zip(plan.pairs, sums.tables, sums.deviations, strict=True):
        edge, evidence = _edge(one, two, table, deviation, margins, plan.groups, sums.records)
        if evidence > _EVIDENCE:
            found[one, two] = _Found(edge=edge, table=table, deviation=deviation)
    chosen = heaviest_forest(len(margins), [each.edge for each in found.values()])
    return [found[edge.one, edge.two] for edge in chosen]


def _ask_again(
    federation: Federation, margins: Sequence[Floats], plan: _Plan, found: list[_Found], before: float, rho: float
) -> list[Edge]:
    if not found:
        return []
    deviation = table_sigma(rho / len(found)) * math.sqrt(len(federation.holders))
    finer = _groups(margins, deviation, federation.records)
    better = len(found) * before < rho * len(plan.pairs)  # finer groups only where the noise is smaller than before
    groups = finer if better else plan.groups
    pairs = [(each.edge.one, each.edge.two) for each in found]
    sums = federation.sums("gaussian", [_table(pair, groups, rho / len(found)) for pair in pairs], part="edges")
    edges = []
    for each, table, noise in zip(found, sums.tables, sums.deviations, strict=True):
        combined, spread = table.astype(np.float64), noise
        if table.shape == each.table.shape:
            precision, earlier = noise**-2, each.deviation**-2
            combined = (precision * table + earlier * each.table) / (precision + earlier)
            spread = (precision + earlier) ** -0.5
        edge, evidence = _edge(each.edge.one, each.edge.two, combined, spread, margins, groups, sums.records)
        if evidence > 0.0:
            edges.append(edge)
    return edges


def _edge(
    one: int,
    two: int,
    table: NDArray[np.int64] | Floats,
    deviation: float,
    margins: Sequence[Floats],
    groups: Groups,
    records: int,
) -> tuple[Edge, float]:
    rows, columns = grouped_sums(margins[one], groups[one]), grouped_sums(margins[two], groups[two])
    pair = posterior_pair(table, deviation, rows, columns, records)
    edge = Edge(one=one, two=two, weight=pair.information, joint=pair.joint, groups=(groups[one], groups[two]))
    return edge, pair.evidence
