"""Methods with Gaussian noise. Sums are not clipped; the estimates use the known distribution of the noise instead."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.models.federated._questions import Noise, Table
from panstream.models.federated.analyst import FederatedModel, Federation
from panstream.models.federated.estimates import posterior_pair, posterior_shares
from panstream.models.federated.summed_tables import SummedTables
from panstream.models.networks.domain import Domain
from panstream.models.networks.forest_fit import forest_from_edges
from panstream.models.networks.information import entropy
from panstream.models.networks.network import BayesianNetwork
from panstream.models.networks.structure_search import fit_tables, greedy
from panstream.primitives import validation as checks
from panstream.privacy.composition import zcdp_rho
from panstream.privacy.table_loss import table_sigma

Floats: TypeAlias = NDArray[np.float64]
Groups: TypeAlias = list[NDArray[np.int64]]
Pairs: TypeAlias = list[tuple[int, int]]
_MeasuredEdge: TypeAlias = "tuple[_Edge, NDArray[np.int64], float]"  # an edge, its sums, and their noise

_PSEUDOCOUNT = 0.3  # per cell, in standard deviations of the noise
_INFORMATIVE = 0.2  # mutual information that a pair worth asking about is expected to have, over the smaller entropy
_MIN_SIGNAL = 3.0  # standard deviations by which such a pair must exceed the noise
_CELL = 3.0  # a cell of a pair table should hold this many standard deviations on average
# Noise of all margins together, over the number of records. Beyond this, a question about pairs takes more accuracy
# from the margins than its edges add.
_MAX_MARGIN_NOISE = 14.0
_MIN_EVIDENCE = 1.0  # log likelihood that a pair must gain over independence


@dataclass(frozen=True, slots=True, kw_only=True)
class IndependentMarginals:
    """Only the N tables of single attributes, at equal shares: Laplace noise at delta = 0, Gaussian noise otherwise.

    ``by_size`` gives larger tables more of the budget, as `FederatedTree` does.

    Args:
        epsilon: Loss of every record.
        delta: The claimed delta; 0 for Laplace noise.
        by_size: Whether larger tables get more of the budget.
    """

    epsilon: float
    delta: float = 0.0
    by_size: bool = False

    def __post_init__(self) -> None:
        checks.require_finite(epsilon=self.epsilon)

    def run(self, federation: Federation) -> FederatedModel:
        """Ask one question for all margins and return the product of their posterior means.

        Args:
            federation: The holders.
        """
        domain = federation.domain
        budget = zcdp_rho(self.epsilon, self.delta) if self.delta else self.epsilon
        shares = _size_shares(domain.sizes) if self.by_size else [1 / len(domain)] * len(domain)
        margins = _ask_margins(
            federation, "gaussian" if self.delta else "laplace", [budget * share for share in shares]
        )
        network = BayesianNetwork(domain, ((),) * len(domain), tuple(margins))
        return federation.finish(network, "independent marginals", epsilon=self.epsilon, delta=self.delta)


def _ask_margins(federation: Federation, noise: Noise, budgets: Sequence[float], part: str = "") -> list[Floats]:
    """Return the estimated distribution of each attribute from its noisy sums."""
    tables = [Table(attributes=(attribute,), budget=budget) for attribute, budget in enumerate(budgets)]
    sums = federation.sums(noise, tables, part=part)
    noisy = zip(sums.tables, sums.deviations, strict=True)
    return [posterior_shares(table, deviation, sums.records) for table, deviation in noisy]


def _size_shares(sizes: tuple[int, ...]) -> list[float]:
    """Return shares of rho proportional to size^(2/3): they minimise the sum of size·deviation over the tables."""
    weights = [size ** (2 / 3) for size in sizes]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianSums:
    """One question: all tables of ``degree + 1`` attributes with Gaussian noise; everything else is post-processing.

    Args:
        epsilon: Loss of every record.
        delta: The claimed delta.
        degree: Largest number of parents; tables have one attribute more.
        root: Position of the attribute without parents.

    **Privacy.** (epsilon, delta) towards every record, replace-one. T tables at rho/T each need noise of
    ``sqrt(T/rho)`` per cell where Laplace noise grows with T itself.

    Sums are not clipped; the estimates use the known noise (`panstream.models.federated.estimates`).
    """

    epsilon: float
    delta: float = 1e-6
    degree: int = 1
    root: int = 0

    def __post_init__(self) -> None:
        checks.require_finite(epsilon=self.epsilon)
        checks.require_integer_in_range(1, 8, degree=self.degree)
        checks.require_probability(delta=self.delta)

    def run(self, federation: Federation) -> FederatedModel:
        """Ask one question; with ``degree=1`` fit a forest to posterior pairs, else smooth and search greedily.

        Args:
            federation: The holders.
        """
        domain = federation.domain
        tables = federation.all_tables(self.degree, zcdp_rho(self.epsilon, self.delta))
        sums = federation.sums("gaussian", tables)
        if self.degree == 1 and len(domain) > 1:
            network = _pair_forest(domain, sums)
        else:
            lookup = sums.lookup()
            parents = greedy(domain, lookup, self.degree, root=self.root)
            network = fit_tables(domain, parents, lookup, pseudocount=_PSEUDOCOUNT * sums.deviations[0])
        return federation.finish(
            network, "Gaussian sums", epsilon=self.epsilon, delta=self.delta, tables=len(sums.tables)
        )


def _pair_forest(domain: Domain, sums: SummedTables) -> BayesianNetwork:
    deviation = sums.deviations[0]
    margins = [_margin(attribute, size, sums) for attribute, size in enumerate(domain.sizes)]
    edges = []
    for (one, two), table in zip(sums.attributes, sums.tables, strict=True):
        pair = posterior_pair(table, deviation, margins[one], margins[two], sums.records)
        edges.append(_Edge(one=one, two=two, weight=pair.information, joint=pair.joint))
    return _forest_network(domain, margins, _heaviest_forest(len(domain), edges))


def _margin(attribute: int, size: int, sums: SummedTables) -> Floats:
    """Average one attribute's counts over the pair tables that hold it, by precision."""
    total = np.zeros(size)
    precision = 0.0
    for (one, two), table in zip(sums.attributes, sums.tables, strict=True):
        if attribute in (one, two):
            axis = 1 if attribute == one else 0
            weight = 1.0 / table.shape[axis]
            total += weight * table.sum(axis=axis)
            precision += weight
    return posterior_shares(total / precision, sums.deviations[0] / math.sqrt(precision), sums.records)


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedTree:
    """A tree network (a forest where noise hides further edges) from three questions with Gaussian noise.

    1. All margins; larger tables get more of the budget.
    2. Tables of pairs. From the noisy margins and the known noise the analyst decides which pairs could exceed the
       noise, and merges neighbouring codes into groups so that an average cell exceeds its noise.
    3. The edges of the heaviest forest a second time, both answers combined.

    Args:
        epsilon: Loss of every record.
        delta: The claimed delta.
        margins: Share of rho of the first question; by default it follows from the noise.
        pairs: Share of rho of the second question; by default it follows from the noise.

    **Privacy.** (epsilon, delta) towards every record, replace-one: the three questions share rho. The later questions
    depend on earlier *answers* only, so no selection mechanism is needed.

    ``margins`` and ``pairs`` are the shares of rho of the first two questions; by default the noisier the run, the
    larger the share of the margins, up to all of it.
    """

    epsilon: float
    delta: float = 1e-6
    margins: float | None = None
    pairs: float | None = None

    def __post_init__(self) -> None:
        checks.require_finite(epsilon=self.epsilon)
        checks.require_probability(delta=self.delta)
        for name, share in (("margins", self.margins), ("pairs", self.pairs)):
            if share is not None:
                checks.require_probability(**{name: share})
        if (self.margins or 0) + (self.pairs or 0) >= 1:
            raise InvalidParameter("margins and pairs together must leave something for the edges")

    def run(self, federation: Federation) -> FederatedModel:
        """Ask three questions; only the first if there is one attribute, or if no pair could exceed the noise.

        Args:
            federation: The holders.
        """
        domain = federation.domain
        rho = zcdp_rho(self.epsilon, self.delta)
        first = self._first_share(domain, federation.records, len(federation.holders), rho)
        second = self.pairs if self.pairs is not None else (1.0 - first) / 2.0
        budgets = [first * rho * share for share in _size_shares(domain.sizes)]
        margins = _ask_margins(federation, "gaussian", budgets, "margins")
        pair_count = 0
        edges: list[_Edge] = []
        if first < 1.0:
            pairs, groups = _plan(domain, margins, federation.records, len(federation.holders), second * rho)
            pair_count = len(pairs)
            federation.report(f"asking about {pair_count} of {math.comb(len(domain), 2)} pairs")
            measured_edges = _ask_pairs(federation, margins, pairs, groups, second * rho)
            federation.report(f"{len(measured_edges)} edges found")
            third = (1.0 - first - second) * rho
            # Finer groups pay off only if a table now gets more budget than in the second question.
            better = len(measured_edges) * second * rho < third * pair_count
            if measured_edges:
                edges = _remeasure(federation, margins, None if better else groups, measured_edges, third)
        network = _forest_network(domain, margins, edges)
        return federation.finish(network, "federated tree", epsilon=self.epsilon, delta=self.delta, pairs=pair_count)

    def _first_share(self, domain: Domain, records: int, holders: int, rho: float) -> float:
        if len(domain) == 1:
            return 1.0
        if self.margins is not None:
            return self.margins
        noise = sum(domain.sizes) * table_sigma(rho / len(domain)) * math.sqrt(holders) / records
        if noise > _MAX_MARGIN_NOISE:
            return 1.0
        return 0.4 + 0.55 * noise**2 / (noise**2 + 45.0)


def _plan(domain: Domain, margins: Sequence[Floats], records: int, holders: int, rho: float) -> tuple[Pairs, Groups]:
    """Choose the largest number of pairs that would all exceed the noise if that many tables share ``rho``."""
    pairs = list(itertools.combinations(range(len(domain)), 2))
    one, two = np.array(pairs).T
    sizes = sorted({round(float(size)) for size in np.geomspace(1, len(pairs), 25)}, reverse=True)
    for size in sizes:
        deviation = table_sigma(rho / size) * math.sqrt(holders)
        groups = _groups(margins, deviation, records)
        shares = [_grouped_sums(margin, group) for margin, group in zip(margins, groups, strict=True)]
        entropies = np.array([entropy(share) for share in shares])
        heights = np.array([float((share**2).sum()) for share in shares])
        cells = np.array([share.size for share in shares], np.float64)
        signal = 2.0 * records**2 * math.log(2) * _INFORMATIVE * np.minimum(entropies[one], entropies[two])
        visible = signal * heights[one] * heights[two] / (deviation**2 * np.sqrt(2.0 * cells[one] * cells[two]))
        best = np.argsort(-visible, kind="stable")[:size]
        if visible[best[-1]] >= _MIN_SIGNAL or size == sizes[-1]:
            break
    return [pairs[index] for index in sorted(best)], groups


def _groups(margins: Sequence[Floats], deviation: float, records: int) -> Groups:
    count = max(2, int(math.sqrt(records / (_CELL * deviation))))
    return [_equal_groups(margin, count) for margin in margins]


def _table(pair: tuple[int, int], groups: Groups, budget: float) -> Table:
    chosen = tuple(tuple(int(code) for code in groups[attribute]) for attribute in pair)
    plain = all(group == tuple(range(len(group))) for group in chosen)
    return Table(attributes=pair, budget=budget, groups=() if plain else chosen)


def _ask_pairs(
    federation: Federation, margins: Sequence[Floats], pairs: Pairs, groups: Groups, rho: float
) -> list[_MeasuredEdge]:
    sums = federation.sums("gaussian", [_table(pair, groups, rho / len(pairs)) for pair in pairs], part="pairs")
    measured_edges = {}
    for (one, two), table, deviation in zip(pairs, sums.tables, sums.deviations, strict=True):
        edge, evidence = _edge(one, two, table, deviation, margins, groups, sums.records)
        if evidence > _MIN_EVIDENCE:
            measured_edges[one, two] = edge, table, deviation
    chosen = _heaviest_forest(len(margins), [edge for edge, _, _ in measured_edges.values()])
    return [measured_edges[edge.one, edge.two] for edge in chosen]


def _remeasure(
    federation: Federation,
    margins: Sequence[Floats],
    groups: Groups | None,
    measured_edges: list[_MeasuredEdge],
    rho: float,
) -> list[_Edge]:
    if groups is None:
        deviation = table_sigma(rho / len(measured_edges)) * math.sqrt(len(federation.holders))
        groups = _groups(margins, deviation, federation.records)
    tables = [_table((edge.one, edge.two), groups, rho / len(measured_edges)) for edge, _, _ in measured_edges]
    sums = federation.sums("gaussian", tables, part="edges")
    edges = []
    for (first, previous_table, deviation), table, noise in zip(
        measured_edges, sums.tables, sums.deviations, strict=True
    ):
        combined = table.astype(np.float64)
        spread = noise
        if table.shape == previous_table.shape:
            precision = noise**-2
            earlier = deviation**-2
            combined = (precision * table + earlier * previous_table) / (precision + earlier)
            spread = (precision + earlier) ** -0.5
        edge, evidence = _edge(first.one, first.two, combined, spread, margins, groups, sums.records)
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
) -> tuple[_Edge, float]:
    rows = _grouped_sums(margins[one], groups[one])
    columns = _grouped_sums(margins[two], groups[two])
    pair = posterior_pair(table, deviation, rows, columns, records)
    edge = _Edge(one=one, two=two, weight=pair.information, joint=pair.joint, groups=(groups[one], groups[two]))
    return edge, pair.evidence


def _equal_groups(shares: Floats, groups: int) -> NDArray[np.int64]:
    """Return the group of each code: at most ``groups`` groups of neighbours with about equal shares, from 0."""
    if groups >= shares.size:
        return np.arange(shares.size)
    middles = np.cumsum(shares) - shares / 2.0
    labels = np.floor(middles * groups).astype(np.int64).clip(0, groups - 1)
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def _grouped_sums(shares: Floats, group: NDArray[np.int64]) -> Floats:
    return np.bincount(group, shares).astype(np.float64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Edge:
    """Two attributes, their mutual information in bits, and their joint distribution.

    ``groups`` has the group of each code, along both axes of ``joint``; ``None`` if the axes are the codes themselves.
    """

    one: int
    two: int
    weight: float
    joint: NDArray[np.float64]
    groups: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def ratios(self) -> NDArray[np.float64]:
        """Return the joint distribution over the product of its margins, for every pair of codes."""
        ratio = self.joint / np.outer(self.joint.sum(axis=1), self.joint.sum(axis=0))
        return ratio if self.groups is None else ratio[np.ix_(*self.groups)]


def _heaviest_forest(count: int, edges: Iterable[_Edge]) -> list[_Edge]:
    """Return the forest with the largest total weight among edges of positive weight (Kruskal)."""
    tree = list(range(count))
    chosen = []
    for edge in sorted(edges, key=lambda candidate: (-candidate.weight, candidate.one, candidate.two)):
        surviving = tree[edge.one]
        merged = tree[edge.two]
        if edge.weight > 0 and surviving != merged:
            tree = [surviving if label == merged else label for label in tree]
            chosen.append(edge)
    return chosen


def _forest_network(domain: Domain, margins: Sequence[NDArray[np.float64]], edges: Sequence[_Edge]) -> BayesianNetwork:
    """Return the network with these margins whose edges multiply in their ratios; roots are the smallest positions."""
    forest = forest_from_edges(domain.sizes, [(edge.one, edge.two) for edge in edges])
    parents: list[tuple[int, ...]] = [()] * len(domain)
    tables: list[NDArray[np.float64]] = [np.asarray(margin) for margin in margins]
    for child, above in enumerate(forest.parents):
        if above is not None:
            parent, number = above
            ratios = edges[number].ratios()
            table = (ratios if edges[number].one == parent else ratios.T) * margins[child]
            parents[child] = (parent,)
            tables[child] = table / table.sum(axis=1, keepdims=True)
    return BayesianNetwork(domain, tuple(parents), tuple(tables))
