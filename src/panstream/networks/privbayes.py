"""PrivBayes at pure epsilon: parents chosen privately, noisy tables of their families, a network fitted to them.

Zhang, Cormode, Procopiuc, Srivastava, Xiao (2017), with the scores of that paper, and by default ``score="gain"``: a
forest grown as in :mod:`panstream.networks.tree`, under Laplace noise and permute-and-flip.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.networks.baselines import tables_from
from panstream.networks.counting import contingency, table_shape
from panstream.networks.domain import Domain
from panstream.networks.forest import NoisyTable, fit_forest
from panstream.networks.learned import LearnedNetwork, Progress, record_claim, silent
from panstream.networks.network import BayesianNetwork
from panstream.networks.plan import Split, plan_forest
from panstream.networks.records import Records
from panstream.networks.scores import SCORES
from panstream.networks.simplex import expected, project
from panstream.networks.budget import PurePurse, portions
from panstream.networks.structure import Families, greedy_families, largest_families, useful_cells
from panstream.networks.tree import grow_forest
from panstream.privacy import Claim
from panstream.randomness import Source

__all__ = ["PrivBayes", "fit_families"]

_PSEUDOCOUNT = 0.3  # noise standard deviations a cell; add-one smoothing misleads where noise is hundreds


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivBayes:
    """Learn a Bayesian network with pure epsilon-differential privacy.

    **Privacy**: record level, replace-one, epsilon. The number of records and the domain are public.

    ``score``: "gain" grows a forest and stops where an edge is not worth its noise; "R", "mi" (mutual information) and
    "F" (attributes with two values) choose parents greedily: ``degree`` of them, or, with ``degree=None``, as many as
    leave the table theta-useful. ``split`` shares the budget between one-way tables, structure and families' tables;
    without it, "gain" divides the budget by the public number of records and sizes of the domain: with too few records
    for any edge, or with ``degree=0``, all is spent on one-way tables and the attributes are independent.

    >>> domain = Domain({"rain": ["no", "yes"], "wet": ["no", "yes"]})
    >>> records = Records.read({"rain": ["no", "yes"] * 400, "wet": ["no", "yes"] * 400}, domain)
    >>> learned = PrivBayes(epsilon=1.0).fit(records)
    >>> learned.network.edges, learned.claim.epsilon, learned.claim.delta
    (((0, 1),), 1.0, 0.0)
    """

    epsilon: float
    degree: int | None = None
    score: Literal["gain", "R", "mi", "F"] = "gain"
    theta: float = 4.0
    split: Split | None = None

    def __post_init__(self) -> None:
        if not self.epsilon > 0:
            raise InvalidParameter(f"epsilon must be positive, got epsilon={self.epsilon}")
        if self.score not in ("gain", *SCORES):
            raise InvalidParameter(f"score must be one of gain, R, mi, F, got score={self.score!r}")
        if self.degree is not None and self.degree < 0:
            raise InvalidParameter(f"degree must be at least 0, got degree={self.degree}")
        if self.score == "gain" and self.degree not in (None, 0, 1):
            raise InvalidParameter(f"score gain makes a forest, so degree must be 0 or 1, got degree={self.degree}")
        if not self.theta > 0:
            raise InvalidParameter(f"theta must be positive, got theta={self.theta}")

    def claim(self) -> Claim:
        """Return what is promised before anything is looked at."""
        return record_claim(self.epsilon, 0.0, {})

    def fit(self, records: Records, source: Source | None = None, progress: Progress = silent) -> LearnedNetwork:
        """Learn from the records; all noise is drawn afresh from the operating system unless a test source is given."""
        if source is None:
            with Source() as fresh:
                return self.fit(records, fresh, progress)
        if len(records) < 1:
            raise InvalidParameter("records must not be empty")
        purse = PurePurse(self.epsilon)
        if self.score == "gain":
            plan = plan_forest(len(records), records.domain.sizes, purse, self.split, self.degree)
            tables = grow_forest(records, purse, plan, source, progress)
            progress("fitting the network", 0.6)
            network = fit_forest(records.domain, len(records), tables)
        else:
            tables, network = self._greedy(records, purse, source, progress)
        progress("done", 1.0)
        return LearnedNetwork(
            network, record_claim(self.epsilon, 0.0, purse.parts(), source), len(records), tuple(tables)
        )

    def _greedy(
        self, records: Records, purse: PurePurse, source: Source, progress: Progress
    ) -> tuple[list[NoisyTable], BayesianNetwork]:
        domain = records.domain
        split = self.split or Split()
        marginals, structure, rest = split.fractions()
        tables = []
        if marginals:
            counts = [contingency(records, (at,)) for at in range(len(domain))]
            tables += purse.measure_all("marginals", counts, marginals, source)
        limit = useful_cells(len(records), len(domain), self.epsilon * split.tables, self.theta)
        families = Families(degree=self.degree, cells=limit)
        parents: tuple[tuple[int, ...], ...] = ((),) * len(domain)
        if self.degree != 0 and len(domain) > 1 and structure:
            score = SCORES[self.score]  # type: ignore[index]
            parents = greedy_families(
                records, score, families, purse, structure, source, lambda what, done: progress(what, 0.9 * done)
            )
        needed = largest_families(parents)
        for family in needed:
            table_shape(domain, family)  # refuse what does not fit before paying for it
        sizes = [math.sqrt(math.prod(domain.sizes[each] for each in family)) for family in needed]
        progress("noisy tables", 0.9)
        for family, share in zip(needed, portions(rest, sizes), strict=True):
            tables.append(purse.measure("tables", family, contingency(records, family), share, source))
        if all(len(family) <= 2 for family in needed):
            return tables, fit_forest(domain, len(records), tables)
        return tables, fit_families(domain, len(records), parents, tables)


def fit_families(
    domain: Domain, records: int, parents: Sequence[tuple[int, ...]], tables: Sequence[NoisyTable]
) -> BayesianNetwork:
    """Return the network of ``parents`` from noisy tables that hold every family; post-processing.

    Each table is projected onto counts that are not negative and add up to ``records``. A row of the child given its
    parents gets a pseudo-count of 0.3 noise standard deviations a cell, spread as the child's own distribution.
    """
    projected: dict[Sequence[int], NDArray[np.float64]] = {
        table.attributes: project(np.asarray(table.counts), records) for table in tables
    }
    spreads = {frozenset(table.attributes): table.sigma for table in tables}
    lookup = tables_from(projected)
    margins = [_margin(domain, records, at, tables, lookup((at,))) for at in range(len(domain))]
    found: list[NDArray[np.float64]] = []
    for child, above in enumerate(parents):
        if not above:
            found.append(margins[child])
            continue
        counts = lookup((*above, child))
        spread = min(sigma for key, sigma in spreads.items() if key >= {*above, child})
        pseudo = _PSEUDOCOUNT * max(spread, 0.5) * domain.sizes[child]
        weights = counts + pseudo * margins[child]
        found.append(weights / weights.sum(axis=-1, keepdims=True))
    return BayesianNetwork(domain, tuple(parents), tuple(found))


def _margin(
    domain: Domain, records: int, at: int, tables: Sequence[NoisyTable], otherwise: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return an attribute's own distribution from its one-way table, or from what a larger one gives."""
    for table in tables:
        if table.attributes == (at,):
            return expected(np.asarray(table.counts) / records, max(table.sigma, 0.5) / records)
    weights = otherwise + 0.5
    return np.asarray(weights / weights.sum())
