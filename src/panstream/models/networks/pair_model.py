"""A model of all pairs from one table: noisy tables of all attributes and pairs, and one mixture fitted to them.

A tree has d - 1 of the d(d - 1)/2 dependences between d attributes. Where the noise allows it, this learner measures
all of them and fits one model (`panstream.models.networks.pair_fit`). The strongest dependences need the tables with
the least noise, so a forest is chosen privately, as in `TreeNetwork`, and its edges get tables of their own. Then all
pairs are screened with the share that makes the screening accurate enough. From these releases the learner decides
where the rest goes: to edges and all pairs, to edges and one-way tables if a forest is nearest, or to one-way tables if
independence is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from panstream.models.networks._mixture_fit import trial_step
from panstream.models.networks.adaptive_model import AdaptiveModel
from panstream.models.networks.budget import Budget, ZcdpBudget, split_proportionally
from panstream.models.networks.contingency import contingency, pairwise
from panstream.models.networks.domain import Domain
from panstream.models.networks.learner import GaussianLearner, Learned, Progress
from panstream.models.networks.noisy_tables import NoisyTable, average_repeats
from panstream.models.networks.pair_fit import ModelKind, fit_pair_model, screen_models
from panstream.models.networks.records import Records
from panstream.models.networks.tree_network import TreeNetwork, choose_forest
from panstream.primitives.noise import NoiseSource

# Shares of the budget; the screening share lies between its two limits, and the rest follows the screening.
_ONES = Fraction(30, 100)
_STRUCTURE = Fraction(8, 100)
_EDGES = Fraction(15, 100)
_MIN_SCREENING_SHARE = Fraction(12, 100)
_MAX_SCREENING_SHARE = Fraction(20, 100)
_SCREENING_NOISE = 0.45  # mean total variation distance of a pair's table by noise at which screening is accurate
_REST = {  # of the rest, the shares of one-way tables and of edges; all pairs get what remains
    ModelKind.INDEPENDENT: (Fraction(1), Fraction(0)),
    ModelKind.FOREST: (Fraction(1, 3), Fraction(2, 3)),
    ModelKind.MIXTURE: (Fraction(0), Fraction(1, 3)),
}
# Of sixteen descents: four tries, three times, and the fit.
_FEW_STEPS = 16 * 25
_MANY_STEPS = 16 * 250
_MAX_CATEGORIES = 4096  # of all attributes together: the fit has tables of this many rows and columns
_SMALL_PAIR = 8  # cells
_MAX_PAIR_NOISE = 0.6  # mean total variation distance of a pair's table by noise


def recommend_learner(
    epsilon: float, delta: float, records: int, domain: Domain
) -> TreeNetwork | PairModel | AdaptiveModel:
    """Return the learner whose model is likely to be closest, chosen by public figures only.

    A tree is learned if noise alone would move one-way tables by more than .06 or pair tables by more than .6 in total
    variation, or if the domain has one attribute or above 4,096 categories in all. Otherwise pairs are chosen; all are
    measured if half of their tables have at most 8 cells, since choosing among such tables gains little.

    Args:
        epsilon: The budget's epsilon.
        delta: The budget's delta.
        records: Number of records, which is public.
        domain: The attributes.

    >>> domain = Domain({name: ["no", "yes"] for name in "abcdefgh"})
    >>> [type(recommend_learner(1.0, 1e-9, records, domain)).__name__ for records in (100, 10_000)]
    ['TreeNetwork', 'PairModel']
    >>> wards = Domain({name: list("abcde") for name in "abcdefgh"})
    >>> type(recommend_learner(1.0, 1e-9, 10_000, wards)).__name__
    'AdaptiveModel'
    """
    budget = ZcdpBudget(epsilon, delta)
    has_useful_margins = budget.noise_distance(records, domain.sizes) <= budget.min_useful_share
    if not (has_useful_margins and _fits(domain) and _pair_noise(budget, records, domain.sizes) <= _MAX_PAIR_NOISE):
        return TreeNetwork(epsilon=epsilon, delta=delta)
    cells = np.median([one * other for one, other in itertools.combinations(domain.sizes, 2)])
    return (PairModel if cells <= _SMALL_PAIR else AdaptiveModel)(epsilon=epsilon, delta=delta)


def steps_of_fit(domain: Domain, rng: NoiseSource) -> tuple[Callable[[], object], int, int]:
    """Return a function that takes a step like those of a fit, and how many of them a fit takes: a few, and many.

    So its time can be estimated before it starts. The number of records hardly matters.
    """
    return trial_step(domain.sizes, rng), _FEW_STEPS, _MANY_STEPS


def _fits(domain: Domain) -> bool:
    return len(domain) > 1 and sum(domain.sizes) <= _MAX_CATEGORIES


def _pair_noise(budget: Budget, records: int, sizes: tuple[int, ...]) -> float:
    """Return the mean total variation distance by which noise moves a pair's table at the full budget."""
    return budget.noise_distance(records, [one * other for one, other in itertools.combinations(sizes, 2)])


@dataclass(frozen=True, slots=True, kw_only=True)
class PairModel(GaussianLearner):
    """Learn a mixture, or a forest, from the noisy tables of all attributes and pairs, at (epsilon, delta).

    Args:
        epsilon: The claimed epsilon.
        delta: The claimed delta.

    **Privacy**: record level, replace-one, (epsilon, delta)-DP by zCDP composition of discrete Gaussian tables and
    exponential mechanisms. The number of records and the domain are public. The holder keeps the rows.

    **Error**: a cell of a two-way table has noise sigma = 1/sqrt(rho·share); the shares grow like cells^(2/3).

    Close two- and three-way tables; see `recommend_learner` for when a tree does better.

    >>> domain = Domain({"rain": ["no", "yes"], "wet": ["no", "yes"]})
    >>> records = Records.read({"rain": ["no", "yes"] * 400, "wet": ["no", "yes"] * 400}, domain)
    >>> learned = PairModel(epsilon=1.0, delta=1e-6).fit(records)
    >>> bool(learned.network.posterior(["wet"], {"rain": "yes"})[1] > 0.9), learned.claim.epsilon
    (True, 1.0)
    """

    def _obstacle(self, domain: Domain) -> str | None:
        if _fits(domain):
            return None
        return (
            f"all pairs need 2 attributes or more and at most {_MAX_CATEGORIES:,} categories in all; "
            "TreeNetwork takes any number"
        )

    def _learn(self, records: Records, budget: Budget, rng: NoiseSource, progress: Progress) -> Learned:
        tables, chosen = _measure(records, budget, rng, progress)
        return tables, fit_pair_model(records.domain, len(records), tables, rng, progress, chosen=chosen)


def _measure(
    records: Records, budget: Budget, rng: NoiseSource, progress: Progress
) -> tuple[list[NoisyTable], list[tuple[int, int]]]:
    """Spend the budget; return the tables, with repeated measurements averaged, and the privately chosen edges."""
    domain = records.domain
    screening = _screening_share(budget, len(records), domain)
    remaining = 1 - _ONES - _STRUCTURE - _EDGES - screening
    progress("one-way tables", 0.0)
    counts = [contingency(records, (attribute,)) for attribute in range(len(domain))]
    tables = budget.measure_all("marginals", counts, _ONES, rng)
    progress("counting all pairs", 0.05)
    pairs = pairwise(records)
    progress("choosing edges", 0.1)
    expected_shares = _STRUCTURE, _EDGES + remaining / 2
    chosen, unspent = choose_forest(domain, len(records), tables, pairs, budget, expected_shares, rng)
    remaining += unspent
    if chosen:
        tables += _measured(budget, pairs, chosen, _EDGES, rng)
    else:
        remaining += _EDGES
    tables = average_repeats(tables + _measured(budget, pairs, list(pairs), screening, rng))
    progress("a first look", 0.15)
    nearest, edges = screen_models(domain, len(records), tables, chosen, rng)
    to_ones, to_edges = _REST[nearest]
    to_edges *= Fraction(len(edges), len(domain) - 1) if nearest is ModelKind.MIXTURE else 1
    if to_ones:
        tables += budget.measure_all("marginals", counts, remaining * to_ones, rng)
    if to_edges:
        tables += _measured(budget, pairs, edges, remaining * to_edges, rng)
    if to_ones + to_edges < 1:
        tables += _measured(budget, pairs, list(pairs), remaining * (1 - to_ones - to_edges), rng)
    return average_repeats(tables), chosen


def _screening_share(budget: Budget, records: int, domain: Domain) -> Fraction:
    """Return the share for screening all pairs: the one whose noise distance is 0.45, within its limits.

    Gaussian noise falls with the square root of the share.
    """
    enough = (_pair_noise(budget, records, domain.sizes) / _SCREENING_NOISE) ** 2
    return Fraction(min(max(enough, float(_MIN_SCREENING_SHARE)), float(_MAX_SCREENING_SHARE))).limit_denominator(1000)


def _measured(
    budget: Budget,
    pairs: Mapping[tuple[int, int], NDArray[np.int64]],
    which: Sequence[tuple[int, int]],
    share: Fraction,
    rng: NoiseSource,
) -> list[NoisyTable]:
    shares = split_proportionally(share, [budget.weight(pairs[pair].size) for pair in which])
    return [budget.measure("tables", pair, pairs[pair], part, rng) for pair, part in zip(which, shares, strict=True)]
