"""A forest network from one table: noisy one-way tables, edges chosen privately, noisy two-way tables, one joint fit.

The recipe is that of MST (McKenna, Miklau, Sheldon 2021) with five changes, each paid for in the claim: the budget is
divided by what it can buy (`panstream.models.networks.budget`); an edge's utility is what it would teach beyond
the
released one-way tables *minus* the noise its table would bring; "no further edge" is a candidate too, and what is then
left over goes to the tables; larger tables get more budget; an edge fades into independence where noise hides it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.models.networks.budget import RESIDUAL_SENSITIVITY, Budget, BudgetSplit, split_proportionally
from panstream.models.networks.contingency import contingency, pairwise
from panstream.models.networks.domain import Domain
from panstream.models.networks.forest_fit import fit_forest
from panstream.models.networks.learner import GaussianLearner, Learned, Progress
from panstream.models.networks.noisy_tables import NoisyTable, Views, pair_views, project_to_simplex, smooth
from panstream.models.networks.records import Records
from panstream.primitives.noise import NoiseSource

_NOISE_PRICE = 0.6  # of the noise's expected L1 norm: projection removes part of it


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeNetwork(GaussianLearner):
    """Learn a forest network at (epsilon, delta).

    **Privacy**: record level, replace-one, (epsilon, delta)-DP by zCDP composition of discrete Gaussian tables and
    exponential mechanisms. The number of records and the domain are public. The holder keeps the rows.

    **Error**: a cell of a two-way table has noise sigma = 1/sqrt(rho·share).

    The shares follow from the number of records, the domain and the budget unless ``split`` fixes them; with too few
    records for any edge, or with ``degree=0``, all is spent on one-way tables and the attributes are independent.

    >>> domain = Domain({"rain": ["no", "yes"], "wet": ["no", "yes"]})
    >>> records = Records.read({"rain": ["no", "yes"] * 400, "wet": ["no", "yes"] * 400}, domain)
    >>> learned = TreeNetwork(epsilon=1.0, delta=1e-6).fit(records)
    >>> learned.network.edges, learned.claim.epsilon
    (((0, 1),), 1.0)
    """

    degree: int | None = None
    split: BudgetSplit | None = None

    def __post_init__(self) -> None:
        GaussianLearner.__post_init__(self)
        if self.degree not in (None, 0, 1):
            raise InvalidParameter(f"degree must be 0 or 1, got degree={self.degree}")

    def _learn(self, records: Records, budget: Budget, rng: NoiseSource, progress: Progress) -> Learned:
        tables = grow_forest(records, budget, rng, self.split, self.degree, progress)
        return tables, fit_forest(records.domain, len(records), tables)


def grow_forest(
    records: Records,
    budget: Budget,
    rng: NoiseSource,
    split: BudgetSplit | None = None,
    degree: int | None = None,
    progress: Progress = lambda what, done: None,
) -> list[NoisyTable]:
    """Spend the whole budget on one-way tables, private choices of edges, and the tables of the chosen edges."""
    domain = records.domain
    plan = budget.plan(len(records), domain.sizes, split, degree)
    progress("one-way tables", 0.0)
    counts = [contingency(records, (attribute,)) for attribute in range(len(domain))]
    ones = budget.measure_all("marginals", counts, plan.marginals, rng)
    if not plan.rounds:
        progress("fitting the network", 0.6)
        return ones
    progress("counting all pairs", 0.1)
    pairs = pairwise(records)
    progress("choosing edges", 0.4)
    share = plan.tables / plan.rounds
    seen = _candidates(domain, len(records), ones, pairs, budget, share)
    edges, remaining = _choose_edges(domain, seen, budget, plan.structure, plan.rounds, rng)
    progress("two-way tables", 0.5)
    remaining += plan.tables
    if edges:
        shares = split_proportionally(remaining, [budget.weight(seen[edge].cells) for edge in edges])
        more = [
            budget.measure("tables", edge, _seen(pairs[edge], seen[edge].views), share, rng, seen[edge].views)
            for edge, share in zip(edges, shares, strict=True)
        ]
    else:  # nothing is worth its noise: a second look at the one-way tables, which the fit averages
        more = budget.measure_all("tables", counts, remaining, rng)
    progress("fitting the network", 0.6)
    return ones + more


def choose_forest(
    domain: Domain,
    records: int,
    ones: Sequence[NoisyTable],
    pairs: Mapping[tuple[int, int], NDArray[np.int64]],
    budget: Budget,
    shares: tuple[Fraction, Fraction],
    rng: NoiseSource,
) -> tuple[list[tuple[int, int]], Fraction]:
    """Return edges chosen at the cost of the first of two shares, and what is left of it.

    The second is what the tables of all edges will get.
    """
    structure, tables = shares
    rounds = budget.rounds(records, len(domain), structure)
    if not rounds:
        return [], structure
    seen = _candidates(domain, records, ones, pairs, budget, tables / rounds)
    return _choose_edges(domain, seen, budget, structure, rounds, rng)


class _Candidate(NamedTuple):
    """How a pair would be seen as an edge, in how many cells, and what it is worth."""

    views: Views | None
    cells: float
    utility: int


def _candidates(
    domain: Domain,
    records: int,
    ones: Sequence[NoisyTable],
    pairs: Mapping[tuple[int, int], NDArray[np.int64]],
    budget: Budget,
    share: Fraction,
) -> dict[tuple[int, int], _Candidate]:
    """Return all pairs as edges whose tables get ``share`` each."""
    curves = [smooth(domain, table.attributes, np.asarray(table.counts), table.sigma) for table in ones]
    visible = [sigma / table.sigma if table.sigma else 1.0 for table, (_, sigma) in zip(ones, curves, strict=True)]
    shapes = [project_to_simplex(curve / records) for curve, _ in curves]
    useful = budget.useful(share, records)
    candidates = {}
    for pair, table in pairs.items():
        views = None if math.isinf(useful) else pair_views(domain, pair, shapes, useful)
        cells = _cells(table.shape, views, pair, visible)
        noise = cells * budget.size(share, _seen(table, views).size)
        expectation = np.rint(records * np.outer(shapes[pair[0]], shapes[pair[1]])).astype(np.int64)
        candidates[pair] = _Candidate(views, cells, _gain(table, expectation, views, noise))
    return candidates


def _seen(table: NDArray[np.int64], views: Views | None) -> NDArray[np.int64]:
    return table if views is None else views[0].matrix @ table @ views[1].matrix.T


def _cells(shape: tuple[int, ...], views: Views | None, pair: tuple[int, int], visible: Sequence[float]) -> float:
    """Return how many cells need noise, bins that the one-way tables show to be smooth counted as fewer."""
    if views is None:
        return math.prod(shape) * visible[pair[0]] * visible[pair[1]]
    parts = zip(shape, views, pair, strict=True)
    return math.prod(
        view.cells * (visible[attribute] if view.cells == size else 1.0) for size, view, attribute in parts
    )


def _gain(table: NDArray[np.int64], expectation: NDArray[np.int64], views: Views | None, noise: float) -> int:
    """Return what an edge would teach, ‖counts - independent‖₁, minus what its noise would cost (released)."""
    if views is not None:
        table, expectation = (views[1].joined(views[0].joined(counts, 0), 1) for counts in (table, expectation))
    return _residual(table, expectation) - round(_NOISE_PRICE * noise)


def _residual(table: NDArray[np.int64], expectation: NDArray[np.int64]) -> int:
    """Return ‖counts - expectation‖₁ for a whole, already public ``expectation``."""
    return int(np.abs(table - expectation).sum())


def _choose_edges(
    domain: Domain,
    seen: Mapping[tuple[int, int], _Candidate],
    budget: Budget,
    share: Fraction,
    rounds: int,
    rng: NoiseSource,
) -> tuple[list[tuple[int, int]], Fraction]:
    """Join components one by one; the last candidate of each round, of utility 0, ends the search.

    Return the edges and what rounds that were not needed leave of the share.
    """
    shares = split_proportionally(share, [1.0] * rounds)
    component = list(range(len(domain)))
    edges: list[tuple[int, int]] = []
    for round_share in shares:
        open_pairs = [
            edge for edge in itertools.combinations(range(len(domain)), 2) if component[edge[0]] != component[edge[1]]
        ]
        values = np.array([*(seen[edge].utility for edge in open_pairs), 0], np.int64)
        chosen = budget.choose("structure", values, RESIDUAL_SENSITIVITY, round_share, rng)
        if chosen == len(open_pairs):
            break
        edge = open_pairs[chosen]
        edges.append(edge)
        surviving = component[edge[0]]
        gone = component[edge[1]]
        component = [surviving if label == gone else label for label in component]
    return edges, sum(shares[min(len(edges) + 1, rounds) :], Fraction(0))
