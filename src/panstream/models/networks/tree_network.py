"""A forest network from one table: noisy one-way tables, edges chosen privately, noisy two-way tables, one joint fit.

The method is MST (McKenna, Miklau, Sheldon 2021) with five changes, all covered by the claim: the budget is planned
from public figures (`panstream.models.networks.budget`); an edge's utility is its distance from the released one-way
tables *minus* the noise of its table; "no further edge" is a candidate too, and the unspent share then goes to the
tables; larger tables get more budget; an edge below the noise shrinks to independence.
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
from panstream.models.networks.noisy_tables import (
    NoisyTable,
    Views,
    merge_categories,
    pair_views,
    project_to_simplex,
    smooth,
)
from panstream.models.networks.records import Records
from panstream.primitives.noise import NoiseSource

_NOISE_WEIGHT = 0.6  # of the noise's expected L1 norm: projection removes part of it


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeNetwork(GaussianLearner):
    """Learn a forest network at (epsilon, delta).

    Args:
        epsilon: The claimed epsilon.
        delta: The claimed delta.
        degree: 0 for independent attributes; None lets the noise decide.
        split: Shares of the budget; by default they follow from public figures.

    **Privacy**: record level, replace-one, (epsilon, delta)-DP by zCDP composition of discrete Gaussian tables and
    exponential mechanisms. The number of records and the domain are public. The holder keeps the rows.

    **Error**: a cell of a two-way table has noise sigma = 1/sqrt(rho·share).

    The shares follow from the number of records, the domain and the budget unless ``split`` fixes them; with too few
    records for any edge, or with ``degree=0``, one-way tables get the full budget and the attributes are independent.

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
    progress: Progress = lambda step, done: None,
) -> list[NoisyTable]:
    """Spend the budget on one-way tables, private choices of edges, and the tables of the chosen edges."""
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
    candidates = _candidates(domain, len(records), ones, pairs, budget, share)
    edges, remaining = _choose_edges(domain, candidates, budget, plan.structure, plan.rounds, rng)
    progress("two-way tables", 0.5)
    remaining += plan.tables
    if edges:
        shares = split_proportionally(remaining, [budget.weight(candidates[edge].cells) for edge in edges])
        more = [
            budget.measure(
                "tables", edge, _apply_views(pairs[edge], candidates[edge].views), share, rng, candidates[edge].views
            )
            for edge, share in zip(edges, shares, strict=True)
        ]
    else:  # no edge exceeds its noise: measure the one-way tables again, which the fit averages
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
    """Return edges chosen at the cost of the first of two shares, and the unspent part of that share.

    The second share is the expected budget of all edges' tables, which sets the noise in the edges' utilities.
    """
    structure, tables = shares
    rounds = budget.rounds(records, len(domain), structure)
    if not rounds:
        return [], structure
    candidates = _candidates(domain, records, ones, pairs, budget, tables / rounds)
    return _choose_edges(domain, candidates, budget, structure, rounds, rng)


class _Candidate(NamedTuple):
    """A pair as an edge: the views of its table, the effective number of cells, and the edge's utility."""

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
    """Return all pairs as candidate edges whose tables would get ``share`` each."""
    curves = [smooth(domain, table.attributes, np.asarray(table.counts), table.sigma) for table in ones]
    visible = [sigma / table.sigma if table.sigma else 1.0 for table, (_, sigma) in zip(ones, curves, strict=True)]
    shapes = [project_to_simplex(curve / records) for curve, _ in curves]
    useful = budget.useful(share, records)
    candidates = {}
    for pair, table in pairs.items():
        views = None if math.isinf(useful) else pair_views(domain, pair, shapes, useful)
        cells = _cells(table.shape, views, pair, visible)
        noise = cells * budget.size(share, _apply_views(table, views).size)
        expectation = np.rint(records * np.outer(shapes[pair[0]], shapes[pair[1]])).astype(np.int64)
        candidates[pair] = _Candidate(views, cells, _gain(table, expectation, views, noise))
    return candidates


def _apply_views(table: NDArray[np.int64], views: Views | None) -> NDArray[np.int64]:
    return table if views is None else views[0].matrix @ table @ views[1].matrix.T


def _cells(shape: tuple[int, ...], views: Views | None, pair: tuple[int, int], visible: Sequence[float]) -> float:
    """Return the effective number of noisy cells; bins of a smooth attribute, by its one-way table, count as fewer."""
    if views is None:
        return math.prod(shape) * visible[pair[0]] * visible[pair[1]]
    parts = zip(shape, views, pair, strict=True)
    return math.prod(
        view.cells * (visible[attribute] if view.cells == size else 1.0) for size, view, attribute in parts
    )


def _gain(table: NDArray[np.int64], expectation: NDArray[np.int64], views: Views | None, noise: float) -> int:
    """Return an edge's utility: ‖counts - expectation‖₁ for the public, integer ``expectation``, minus public noise.

    Its sensitivity is that of the norm, `RESIDUAL_SENSITIVITY`: merging categories does not raise it.
    """
    residual = table - expectation
    if views is not None:
        for axis, view in enumerate(views):
            residual = merge_categories(residual, view.groups, axis)
    return int(np.abs(residual).sum()) - round(_NOISE_WEIGHT * noise)


def _choose_edges(
    domain: Domain,
    candidates: Mapping[tuple[int, int], _Candidate],
    budget: Budget,
    share: Fraction,
    rounds: int,
    rng: NoiseSource,
) -> tuple[list[tuple[int, int]], Fraction]:
    """Connect components one by one; the last candidate of each round, of utility 0, ends the search.

    Returns the edges and the part of the share that the remaining rounds would have cost.
    """
    shares = split_proportionally(share, [1.0] * rounds)
    component = list(range(len(domain)))
    edges: list[tuple[int, int]] = []
    for round_share in shares:
        open_pairs = [
            edge for edge in itertools.combinations(range(len(domain)), 2) if component[edge[0]] != component[edge[1]]
        ]
        values = np.array([*(candidates[edge].utility for edge in open_pairs), 0], np.int64)
        chosen = budget.choose("structure", values, RESIDUAL_SENSITIVITY, round_share, rng)
        if chosen == len(open_pairs):
            break
        edge = open_pairs[chosen]
        edges.append(edge)
        surviving = component[edge[0]]
        merged = component[edge[1]]
        component = [surviving if label == merged else label for label in component]
    return edges, sum(shares[min(len(edges) + 1, rounds) :], Fraction(0))
