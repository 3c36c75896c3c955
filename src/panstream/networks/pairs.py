"""A model of all pairs from one table: noisy one- and two-way tables of everything, and one mixture fitted to them.

A tree keeps d - 1 of the d(d - 1)/2 dependences between d attributes. Where the noise allows it, this learner measures
all of them and fits one model to them all (:mod:`panstream.networks.pair_fit`). Half of what pairs get is spent on a
first look; by what that released, the other half goes to all pairs again, to the edges of a forest where that alone is
nearest, or to one-way tables where independence is. Nothing else is chosen, so no private choice is paid for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.networks.budget import Budget, ZcdpBudget, portions
from panstream.networks.counting import contingency, pairwise
from panstream.networks.domain import Domain
from panstream.networks.learner import GaussianLearner, Learned, Progress
from panstream.networks.noisy_tables import NoisyTable, averaged
from panstream.networks.pair_fit import first_look, model_of_pairs
from panstream.networks.records import Records
from panstream.networks.tree import TreeNetwork
from panstream.randomness import Source

_ONES, _FIRST, _SECOND = Fraction(6, 20), Fraction(7, 20), Fraction(7, 20)
_MOST_CATEGORIES = 4096  # of all attributes together: the fit holds tables of this many rows and columns
_MOST_NOISE = 0.6  # mean total variation of a pair's table by noise alone


def recommended(epsilon: float, delta: float, records: int, domain: Domain) -> TreeNetwork | PairModel:
    """Return the learner whose table is likely to be closest; only public figures decide.

    All pairs are measured unless noise alone would move one-way tables by more than .06 or pair tables by more than .6
    in total variation, or the domain has one attribute or above 4,096 categories in all.

    >>> domain = Domain({name: ["no", "yes"] for name in "abcdefgh"})
    >>> [type(recommended(1.0, 1e-9, records, domain)).__name__ for records in (100, 10_000)]
    ['TreeNetwork', 'PairModel']
    """
    budget = ZcdpBudget(epsilon, delta)
    hopeful = budget.blurring(records, domain.sizes) <= budget.hopeless
    if hopeful and _fits(domain) and pair_noise(budget, records, domain.sizes) <= _MOST_NOISE:
        return PairModel(epsilon=epsilon, delta=delta)
    return TreeNetwork(epsilon=epsilon, delta=delta)


def _fits(domain: Domain) -> bool:
    return len(domain) > 1 and sum(domain.sizes) <= _MOST_CATEGORIES


def pair_noise(budget: ZcdpBudget, records: int, sizes: tuple[int, ...]) -> float:
    """Return how far noise alone moves a pair's table on average, in total variation, if all is spent on pairs."""
    cells = [one * other for one, other in itertools.combinations(sizes, 2)]
    shares = portions(Fraction(1), [budget.weight(each) for each in cells])
    moved = [each * budget.size(share, each) / 2 for each, share in zip(cells, shares, strict=True)]
    return math.fsum(moved) / (len(cells) * records)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairModel(GaussianLearner):
    """Learn a mixture, or a forest, from the noisy tables of all attributes and pairs, at (epsilon, delta).

    **Privacy**: record level, replace-one, (epsilon, delta)-DP by zCDP composition of discrete Gaussian tables. The
    number of records and the domain are public. The holder keeps the rows.

    **Error**: a cell of a two-way table has noise sigma = 1/sqrt(rho·share); the shares grow like cells^(2/3).

    Close two- and three-way tables; see :func:`recommended` for when a tree does better.

    >>> domain = Domain({"rain": ["no", "yes"], "wet": ["no", "yes"]})
    >>> records = Records.read({"rain": ["no", "yes"] * 400, "wet": ["no", "yes"] * 400}, domain)
    >>> learned = PairModel(epsilon=1.0, delta=1e-6).fit(records)
    >>> bool(learned.network.posterior(["wet"], {"rain": "yes"})[1] > 0.9), learned.claim.epsilon
    (True, 1.0)
    """

    def _learn(self, records: Records, budget: Budget, source: Source, progress: Progress) -> Learned:
        if not _fits(records.domain):
            raise InvalidParameter(
                f"all pairs need 2 attributes or more and at most {_MOST_CATEGORIES:,} categories in all; "
                "TreeNetwork takes any number"
            )
        tables = _measure(records, budget, source, progress)
        return tables, model_of_pairs(records.domain, len(records), tables, source, progress)


def _measure(records: Records, budget: Budget, source: Source, progress: Progress) -> list[NoisyTable]:
    """Spend the whole budget on tables of attributes and pairs; those measured twice come averaged."""
    progress("one-way tables", 0.0)
    counts = [contingency(records, (at,)) for at in range(len(records.domain))]
    tables = budget.measure_all("marginals", counts, _ONES, source)
    progress("counting all pairs", 0.05)
    pairs = pairwise(records)
    progress("two-way tables", 0.1)
    tables += _measured(budget, pairs, _FIRST, source)
    progress("a first look", 0.15)
    edges = first_look(records.domain, len(records), tables, source)
    if edges is None:
        return averaged(tables + _measured(budget, pairs, _SECOND, source))
    if edges:
        return averaged(tables + _measured(budget, {edge: pairs[edge] for edge in edges}, _SECOND, source))
    return averaged(tables + budget.measure_all("marginals", counts, _SECOND, source))


def _measured(
    budget: Budget, pairs: Mapping[tuple[int, int], NDArray[np.int64]], share: Fraction, source: Source
) -> list[NoisyTable]:
    shares = portions(share, [budget.weight(table.size) for table in pairs.values()])
    each = zip(pairs.items(), shares, strict=True)
    return [budget.measure("tables", pair, table, part, source) for (pair, table), part in each]
