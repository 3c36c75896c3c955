"""PrivBayes at pure epsilon: parents chosen privately, noisy tables of their families, a network fitted to them.

Zhang, Cormode, Procopiuc, Srivastava, Xiao (2017), with the scores of that paper, and by default ``score="gain"``: a
forest grown as in `panstream.models.networks.tree_network`, under Laplace noise and permute-and-flip.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.models.networks.budget import Budget, BudgetSplit, split_proportionally
from panstream.models.networks.contingency import contingency
from panstream.models.networks.domain import Domain
from panstream.models.networks.forest_fit import fit_forest
from panstream.models.networks.information import mutual_information
from panstream.models.networks.learner import Learned, Progress, PureLearner
from panstream.models.networks.network import BayesianNetwork
from panstream.models.networks.noisy_tables import NoisyTable, posterior_mean_counts, project_to_simplex
from panstream.models.networks.records import Records
from panstream.models.networks.structure_search import largest_families, marginal_tables
from panstream.models.networks.tree_network import grow_forest
from panstream.primitives import validation as checks
from panstream.primitives.noise import NoiseSource
from panstream.privacy.table_loss import f_sensitivity, mutual_information_sensitivity, r_sensitivity

_PSEUDOCOUNT = 0.3  # noise standard deviations a cell; add-one smoothing misleads where noise is hundreds


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivBayes(PureLearner):
    """Learn a Bayesian network with pure epsilon-differential privacy.

    Args:
        epsilon: The claimed epsilon.
        degree: Largest number of parents; None lets the noise decide.
        score: How parents are chosen.
        theta: How many times its noise an average cell must be, where ``degree`` is None.
        split: Shares of the budget; by default they follow from public figures.

    **Privacy**: record level, replace-one, epsilon. The number of records and the domain are public.

    ``score``: "gain" grows a forest and stops where an edge is not worth its noise; "R", "mi" (mutual information) and
    "F" (attributes with two values) choose parents greedily: ``degree`` of them, or, with ``degree=None``, as many as
    leave the table theta-useful. ``split`` shares the budget between one-way tables, structure and families' tables;
    without it, "gain" divides the budget by the public number of records and sizes of the domain: with too few records
    for any edge, or with ``degree=0``, one-way tables get the full budget and the attributes are independent.

    >>> domain = Domain({"rain": ["no", "yes"], "wet": ["no", "yes"]})
    >>> records = Records.read({"rain": ["no", "yes"] * 400, "wet": ["no", "yes"] * 400}, domain)
    >>> learned = PrivBayes(epsilon=1.0).fit(records)
    >>> learned.network.edges, learned.claim.epsilon, learned.claim.delta
    (((0, 1),), 1.0, 0.0)
    """

    degree: int | None = None
    score: Literal["gain", "R", "mi", "F"] = "gain"
    theta: float = 4.0
    split: BudgetSplit | None = None

    def __post_init__(self) -> None:
        PureLearner.__post_init__(self)
        if self.score not in ("gain", *_SCORES):
            raise InvalidParameter(f"score must be one of gain, R, mi, F, got score={self.score!r}")
        if self.degree is not None:
            checks.require_at_least(0, degree=self.degree)
        if self.score == "gain" and self.degree not in (None, 0, 1):
            raise InvalidParameter(f"score gain makes a forest, so degree must be 0 or 1, got degree={self.degree}")
        checks.require_positive(theta=self.theta)

    def _obstacle(self, domain: Domain) -> str | None:
        if self.score == "F" and any(size != 2 for size in domain.sizes):
            return "score F needs attributes with two values each; use R"
        return None

    def _learn(self, records: Records, budget: Budget, rng: NoiseSource, progress: Progress) -> Learned:
        if self.score != "gain":
            return self._greedy(records, budget, rng, progress)
        tables = grow_forest(records, budget, rng, self.split, self.degree, progress)
        return tables, fit_forest(records.domain, len(records), tables)

    def _greedy(
        self, records: Records, budget: Budget, rng: NoiseSource, progress: Progress
    ) -> tuple[list[NoisyTable], BayesianNetwork]:
        domain = records.domain
        split = self.split or BudgetSplit()
        marginals, structure, rest = split.fractions()
        tables = []
        if marginals:
            counts = [contingency(records, (attribute,)) for attribute in range(len(domain))]
            tables += budget.measure_all("marginals", counts, marginals, rng)
        limit = _useful_cells(len(records), len(domain), self.epsilon * split.tables, self.theta)
        families = _ParentSets(degree=self.degree, cells=limit)
        parents: tuple[tuple[int, ...], ...] = ((),) * len(domain)
        if self.degree != 0 and len(domain) > 1 and structure:
            parents = _greedy_families(records, _SCORES[self.score], families, budget, structure, rng, progress)
        needed = sorted(largest_families(parents))  # the N - k tables that need noise
        for family in needed:
            domain.shape(family)  # raises for a table that is too large, before anything is charged
        sizes = [math.sqrt(math.prod(domain.sizes[attribute] for attribute in family)) for family in needed]
        progress("noisy tables", 0.9)
        for family, share in zip(needed, split_proportionally(rest, sizes), strict=True):
            tables.append(budget.measure("tables", family, contingency(records, family), share, rng))
        if all(len(family) <= 2 for family in needed):
            return tables, fit_forest(domain, len(records), tables)
        return tables, _fit_families(domain, len(records), parents, tables)


def _fit_families(
    domain: Domain, records: int, parents: Sequence[tuple[int, ...]], tables: Sequence[NoisyTable]
) -> BayesianNetwork:
    """Return the network of ``parents`` from noisy tables that hold every family; post-processing.

    Each table is projected onto nonnegative counts that add up to ``records``. A row of the child given its parents
    gets a pseudo-count of 0.3 noise standard deviations per cell, distributed as the child's own distribution.
    """
    projected = {table.attributes: project_to_simplex(np.asarray(table.counts), records) for table in tables}
    spreads = {frozenset(table.attributes): table.sigma for table in tables}
    lookup = marginal_tables(projected)
    margins = [_margin(records, attribute, tables, lookup((attribute,))) for attribute in range(len(domain))]
    conditionals: list[NDArray[np.float64]] = []
    for child, above in enumerate(parents):
        if not above:
            conditionals.append(margins[child])
            continue
        counts = lookup((*above, child))
        spread = min(sigma for key, sigma in spreads.items() if key >= {*above, child})
        pseudo = _PSEUDOCOUNT * max(spread, 0.5) * domain.sizes[child]
        weights = counts + pseudo * margins[child]
        conditionals.append(weights / weights.sum(axis=-1, keepdims=True))
    return BayesianNetwork(domain, tuple(parents), tuple(conditionals))


def _margin(
    records: int, attribute: int, tables: Sequence[NoisyTable], otherwise: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return an attribute's distribution from its one-way table, or else from the margin of a larger table."""
    for table in tables:
        if table.attributes == (attribute,):
            return posterior_mean_counts(np.asarray(table.counts) / records, max(table.sigma, 0.5) / records)
    weights = otherwise + 0.5
    return np.asarray(weights / weights.sum())


_LARGEST_DEGREE = 4


def _useful_cells(records: int, attributes: int, epsilon: float, theta: float) -> float:
    """Return the largest useful number of cells of a family's table: n·epsilon/(2·d·theta).

    >>> _useful_cells(39_073, 13, 0.6, 4.0)
    225.42...
    """
    return records * epsilon / (2.0 * attributes * theta)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ParentSets:
    """The allowed parent sets of a child: of size ``degree``, or as large as ``cells`` allows.

    The latter is theta-usefulness: an average cell of a family's table must exceed its noise by a factor of theta
    (Zhang et al. 2017, section 4.5).
    """

    degree: int | None = None
    cells: float = math.inf

    def parents(self, domain: Domain, child: int, placed: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield the allowed parent sets that contain the attribute placed last; earlier rounds yielded the others."""
        *others, newest = placed
        sizes = range(min(_LARGEST_DEGREE, len(placed))) if self.degree is None else [min(self.degree, len(placed)) - 1]
        for size in sizes:
            for rest in itertools.combinations(others, size):
                family = tuple(sorted((*rest, newest)))
                cells = math.prod(domain.sizes[attribute] for attribute in (*family, child))
                if self.degree is not None or cells <= self.cells:
                    yield family


def _greedy_families(
    records: Records,
    score: _Score,
    families: _ParentSets,
    budget: Budget,
    share: Fraction,
    rng: NoiseSource,
    progress: Progress,
) -> tuple[tuple[int, ...], ...]:
    """Return the parents of every attribute: d - 1 private choices that cost ``share`` in all.

    The first attribute is the one with the most values (public), so that it is never a child with a large table.
    """
    domain = records.domain
    first = int(np.argmax(domain.sizes))
    placed = [first]
    parents: list[tuple[int, ...]] = [()] * len(domain)
    rest = [attribute for attribute in range(len(domain)) if attribute != first]
    sensitivity = score.sensitivity(len(records), all(size == 2 for size in domain.sizes))
    parent_shares = split_proportionally(share, [1.0] * max(len(rest), 1))
    scores: dict[int, dict[tuple[int, ...], int]] = {child: {} for child in rest}
    if families.degree is None:
        scores = {child: {(): score.units(contingency(records, (child,))[None, :])} for child in rest}
    while rest:
        progress("choosing parents", 0.9 * (len(placed) - 1) / len(domain))
        for child in rest:
            if families.degree is not None and len(placed) <= families.degree:
                scores[child].clear()  # all placed attributes are parents, so the last round's families are too small
            for family in families.parents(domain, child, placed):
                scores[child][family] = score.units(contingency(records, (*family, child)))
        candidates = [(child, family) for child in rest for family in scores[child]]
        utilities = np.array([scores[child][family] for child, family in candidates], np.int64)
        chosen = budget.choose("structure", utilities, sensitivity, parent_shares[len(placed) - 1], rng)
        child, family = candidates[chosen]
        parents[child] = family
        placed.append(child)
        rest.remove(child)
    return tuple(parents)


# Scores of the dependence between an attribute and its parents, as integers with a known sensitivity, so that a private
# choice needs no rounding. A score reads the exact table of counts [parents' cells..., child]. The sensitivities are
# theorems of docs/proofs/networks.md and are checked by brute force on all small tables.
_INFORMATION_GRID = 1 << 40  # units in a bit


def _r_units(table: NDArray[Any]) -> int:
    """Return R = ½·‖P(X, Π) - P(X)·P(Π)‖₁ in units of 1/n²: an integer, exactly.

    >>> _r_units(np.array([[5, 0], [0, 5]])) / 10**2
    0.5
    """
    flat, rows, columns, n = _margins(table)
    row, child = np.nonzero(flat)  # Σ|nc - rq| over empty cells is Σrq minus that over the others
    product = rows[row] * columns[child]
    gaps = np.abs(n * flat[row, child] - product) - product
    return (int(gaps.sum()) + n * n) // 2


def _f_units(table: NDArray[Any]) -> int:
    """Return F in units of 1/(2n), at most 0, for a child with two values (Zhang et al. 2017, section 4.3).

    Every parent cell gives its count of child value 0 to K0 or that of value 1 to K1; the best sum of
    min(K0, n/2) + min(K1, n/2) is found by keeping the largest K1 for every K0 up to n/2.

    >>> _f_units(np.array([[5, 0], [0, 5]])), _f_units(np.array([[5, 5], [5, 5]]))
    (0, -20)
    """
    flat, _, _, n = _margins(table)
    if flat.shape[1] != 2:
        raise InvalidParameter(f"the score F needs a child with two values, got {flat.shape[1]}")
    cap = (n + 1) // 2
    best = np.full(cap + 1, -1, np.int64)
    best[0] = 0
    for zeros, ones in flat.tolist():
        next_best = np.where(best >= 0, best + ones, -1)
        if zeros:
            shift = min(zeros, cap)
            next_best[shift:] = np.maximum(next_best[shift:], best[: cap + 1 - shift])
            next_best[cap] = max(next_best[cap], int(best[cap - shift :].max()))
        else:
            next_best = np.maximum(next_best, best)
        best = next_best
    reachable = np.flatnonzero(best >= 0)
    return int((np.minimum(2 * reachable, n) + np.minimum(2 * best[reachable], n)).max()) - 2 * n


def _information_units(table: NDArray[Any]) -> int:
    """Return the mutual information of child and parents in units of 2^-40 bits, rounded down."""
    return math.floor(mutual_information(np.asarray(table)) * _INFORMATION_GRID)


def _information_sensitivity(records: int, binary: bool) -> int:
    # One unit for rounding down, and what floating point loses: far below 2^-32 bits for any table that fits in memory.
    return math.ceil(mutual_information_sensitivity(records, binary=binary) * _INFORMATION_GRID) + 1 + (1 << 8)


def _margins(table: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]:
    values = np.asarray(table, np.int64)
    flat = values.reshape(-1, values.shape[-1])
    return flat, flat.sum(axis=1), flat.sum(axis=0), int(flat.sum())


class _Score(NamedTuple):
    """An integer utility of a family, and its sensitivity to one replaced record, by (records, all binary)."""

    units: Callable[[NDArray[Any]], int]
    sensitivity: Callable[[int, bool], int]


_SCORES = {
    "R": _Score(_r_units, lambda n, binary: math.ceil(r_sensitivity(n) * n * n)),
    "mi": _Score(_information_units, _information_sensitivity),
    "F": _Score(_f_units, lambda n, binary: math.ceil(f_sensitivity(n) * 2 * n)),
}
