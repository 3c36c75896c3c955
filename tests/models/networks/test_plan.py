"""How a budget is divided: only public figures decide, and with too few records nothing is spent on edges."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from panstream.models.networks import BudgetSplit, Domain, PrivBayes, Records, TreeNetwork
from panstream.models.networks.budget import Budget, PureBudget, ZcdpBudget
from panstream.primitives.noise import SeededSource

SIZES = (15, 9, 16, 7, 15, 6, 5, 2, 5, 4, 10, 42, 2)  # of Adult
BUDGETS: dict[str, Callable[[float], Budget]] = {"pure": PureBudget, "zcdp": lambda epsilon: ZcdpBudget(epsilon, 1e-9)}


@pytest.mark.parametrize("kind", BUDGETS)
@pytest.mark.parametrize("records", [1, 500, 5_000, 50_000, 10**7])
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 10.0])
def test_shares_never_exceed_the_budget(kind: str, records: int, epsilon: float) -> None:
    plan = BUDGETS[kind](epsilon).plan(records, SIZES)
    assert 1 - Fraction(1, 2**40) < plan.marginals + plan.structure + plan.tables <= 1
    assert min(plan.marginals, plan.structure, plan.tables) >= 0
    assert 0 <= plan.rounds < len(SIZES)
    assert (plan.rounds == 0) == (plan.structure == 0) == (plan.tables == 0)


@pytest.mark.parametrize("kind", BUDGETS)
def test_more_records_buy_more_edges(kind: str) -> None:
    plans = [BUDGETS[kind](0.1).plan(records, SIZES) for records in (1_000, 40_000, 400_000, 4_000_000)]
    assert plans[0].rounds == 0
    assert [plan.rounds for plan in plans] == sorted(plan.rounds for plan in plans)
    assert [plan.tables for plan in plans] == sorted(plan.tables for plan in plans)
    assert plans[-1].rounds == len(SIZES) - 1


@pytest.mark.parametrize("kind", BUDGETS)
def test_noise_distance_is_how_far_noise_moves_one_way_tables(kind: str) -> None:
    budget: Budget = BUDGETS[kind](1.0)
    sizes = (2, 3, 7, 20)
    records = 2_000
    runs = 100
    flat = [np.full(size, 10**6) for size in sizes]  # far from 0, so that nothing but the noise moves them
    moved = []
    with SeededSource(1) as rng:
        for _ in range(runs):
            tables = BUDGETS[kind](1.0).measure_all("x", flat, Fraction(1), rng)
            for table, counts in zip(tables, flat, strict=True):
                gap = np.asarray(table.counts) - counts
                moved.append(0.5 * np.abs(gap - gap.mean()).sum() / records)
    assert np.mean(moved) == pytest.approx(budget.noise_distance(records, sizes), rel=0.08)


def small(n: int) -> Records:
    rng = np.random.default_rng(n)
    a = rng.integers(0, 12, n)
    domain = Domain({name: [str(value) for value in range(12)] for name in "abcd"})
    return Records(domain, np.array([a, a, (a + 1) % 12, rng.integers(0, 12, n)], np.uint16))


@pytest.mark.parametrize("learner", [PrivBayes, TreeNetwork])
def test_with_too_few_records_the_learner_is_the_independent_one(learner: type[PrivBayes] | type[TreeNetwork]) -> None:
    records = small(400)
    planned = learner(epsilon=0.1).fit(records, SeededSource(5))
    independent = learner(epsilon=0.1, degree=0).fit(records, SeededSource(5))
    for one, other in zip(planned.tables, independent.tables, strict=True):
        np.testing.assert_array_equal(one.counts, other.counts)
    assert planned.network.edges == independent.network.edges == ()
    assert [part for part in planned.claim.parts if "structure" in part] == []


@pytest.mark.parametrize("learner", [PrivBayes, TreeNetwork])
def test_a_split_that_is_given_is_kept(learner: type[PrivBayes] | type[TreeNetwork]) -> None:
    parts = (
        learner(epsilon=0.1, split=BudgetSplit(marginals=0.2, structure=0.3, tables=0.5)).fit(small(400)).claim.parts
    )
    total = sum(parts.values())
    assert parts[next(iter(parts))] / total == pytest.approx(0.2, abs=1e-9)
    assert learner(epsilon=20.0).fit(small(4000)).network.edges
    assert learner(epsilon=20.0, degree=0).fit(small(4000)).network.edges == ()
