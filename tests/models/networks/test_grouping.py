"""Groups of tables: the best of all divisions of the sorted sizes, variances as drawn, the claim exactly used up."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from panstream.models.networks._joint_noise import group_weight, joint_groups, joint_spread
from panstream.models.networks.budget import PureBudget
from panstream.primitives.noise import DiscreteLaplace, SeededSource


@pytest.mark.parametrize("sizes", [(2,), (2, 2, 2), (5, 2, 42, 16, 15, 9, 2), (64, 64, 3, 2), (1, 1, 4)], ids=str)
def test_no_division_of_the_sorted_sizes_is_cheaper(sizes: tuple[int, ...]) -> None:
    groups = joint_groups(sizes)
    assert sorted(at for group in groups for at in group) == list(range(len(sizes)))
    ordered = sorted(sizes)
    prices = []
    for cuts in itertools.product((False, True), repeat=len(sizes) - 1):
        ends = [at + 1 for at, cut in enumerate(cuts) if cut]
        pieces = [ordered[a:b] for a, b in itertools.pairwise([0, *ends, len(sizes)])]
        prices.append(math.fsum(map(group_weight, pieces)))
    assert math.fsum(group_weight([sizes[at] for at in group]) for group in groups) == pytest.approx(min(prices))


def test_large_tables_stay_alone_and_groups_stay_small() -> None:
    groups = joint_groups([65, 2, 3, 1000])
    assert [0] in groups
    assert [3] in groups
    assert all(9 * len(group) <= 256 for group in joint_groups([10] * 100))


@pytest.mark.parametrize("sizes", [(2, 3), (4, 9, 2)], ids=str)
def test_the_spread_is_that_of_what_is_drawn(sizes: tuple[int, ...]) -> None:
    law = DiscreteLaplace.at_most(0.01)
    squares = []
    with SeededSource(1) as rng:
        for _ in range(400):
            tables = [np.zeros(size, np.int64) for size in sizes]
            rng.add_joint_laplace(tables, law)
            squares.append([float((table.astype(float) ** 2).mean()) for table in tables])
    error = np.std(squares, axis=0) / math.sqrt(len(squares))
    expected = law.variance * np.array(joint_spread(sizes))
    assert (np.abs(np.mean(squares, axis=0) - expected) < 6 * error).all()


class OneRecord(SeededSource):
    """Adds up the exact loss of every draw when one record moves from its cells to others in all tables."""

    __slots__ = ("loss",)

    loss: float

    def add_joint_laplace(self, tables: object, law: DiscreteLaplace) -> None:
        self.loss += 2 * law.kappa

    def add_balanced_laplace(self, values: object, law: DiscreteLaplace) -> None:
        self.loss += 2 * law.kappa

    def add_discrete_laplace(self, values: object, law: DiscreteLaplace) -> None:
        self.loss += 2 * law.kappa


@pytest.mark.parametrize("sizes", [(2, 2), (42, 16, 15, 2, 2), (100, 3, 3)], ids=str)
def test_all_tables_together_cost_their_share(sizes: tuple[int, ...]) -> None:
    budget = PureBudget(0.3)
    counts = [np.arange(size) for size in sizes]
    with OneRecord(0) as rng:
        rng.loss = 0.0
        tables = budget.measure_all("marginals", counts, Fraction(1, 2), rng)
    assert 0.15 * (1 - 1e-9) < rng.loss <= 0.15
    assert budget.spent["marginals"] <= Fraction(1, 2)
    for at, table in enumerate(tables):
        assert table.attributes == (at,)
        assert (table.counts == counts[at]).all()
        assert table.sigma > 0
