"""What a budget buys: the spread of the tables as their laws have it, by enumeration, and how blurred a choice is."""

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from panstream.models.networks.budget import PureBudget, ZcdpBudget
from panstream.primitives.noise import NoiseSource, SeededSource, SelectionRate

WHOLE = Fraction(1)


def balanced_law(cells: int, kappa: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return all tables that add up to 0, as columns, and their chances: exp(-kappa) for each unit of L1 norm."""
    reach = np.arange(-math.ceil(20 / kappa), math.ceil(20 / kappa) + 1)
    free = np.array(np.meshgrid(*[reach] * (cells - 1))).reshape(cells - 1, -1)
    tables = np.vstack([free, -free.sum(axis=0)])
    chances = np.exp(-kappa * np.abs(tables).sum(axis=0))
    return tables, chances / chances.sum()


def pair_law(kappa: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the first cell of either of two tables with two cells, and the chances: the larger L1 norm counts."""
    reach = np.arange(-math.ceil(20 / kappa), math.ceil(20 / kappa) + 1)
    cells = np.array(np.meshgrid(reach, reach)).reshape(2, -1)
    chances = np.exp(-2 * kappa * np.abs(cells).max(axis=0))
    return cells, chances / chances.sum()


@pytest.mark.parametrize(("cells", "share"), [(2, Fraction(1, 2)), (2, Fraction(1, 8)), (3, Fraction(1, 2))])
def test_the_spread_of_a_small_table_is_that_of_all_tables_with_its_sum(cells: int, share: Fraction) -> None:
    budget = PureBudget(0.4)
    tables, chances = balanced_law(cells, 0.4 * float(share) / 2)
    with SeededSource(1) as rng:
        table = budget.measure("tables", (0,), np.zeros(cells, np.int64), share, rng)
    assert table.sigma == pytest.approx(math.sqrt(float(chances @ tables[0] ** 2)), rel=0.01)
    assert budget.size(share, cells) == pytest.approx(float(chances @ np.abs(tables[0])), rel=0.01)
    assert table.counts.sum() == 0


def test_the_spread_of_two_tables_drawn_together_is_that_of_all_pairs() -> None:
    cells, chances = pair_law(0.1)
    with SeededSource(1) as rng:
        tables = PureBudget(0.2).measure_all("marginals", [np.zeros(2, np.int64)] * 2, WHOLE, rng)
    for at in (0, 1):
        assert tables[at].sigma == pytest.approx(math.sqrt(float(chances @ cells[at] ** 2)), rel=0.01)
    moved = float(chances @ np.abs(cells).sum(axis=0))  # half the L1 norm of a table is the size of its first cell
    assert PureBudget(0.2).expected_noise_shift([2, 2]) == pytest.approx(moved, rel=0.01)


class Noted(NoiseSource):
    """Keeps how strongly a choice prefers."""

    __slots__ = ("rate",)

    rate: float

    def permute_and_flip(self, utilities: NDArray[np.int64], preference: SelectionRate) -> int:
        self.rate = preference.rate
        return 0

    exponential = permute_and_flip


@pytest.mark.parametrize("share", [Fraction(1), Fraction(1, 5)])
@pytest.mark.parametrize("sensitivity", [1, 6])
def test_a_choice_is_blurred_by_as_much_utility_as_makes_a_candidate_e_times_as_likely(
    share: Fraction, sensitivity: int
) -> None:
    for budget in (PureBudget(0.7), ZcdpBudget(0.7, 1e-6)):
        with Noted() as rng:
            budget.choose("structure", np.zeros(3, np.int64), sensitivity, share, rng)
        assert budget.choice_noise(share, sensitivity) * rng.rate == pytest.approx(1.0, rel=1e-9)
    assert PureBudget(0.7).choice_noise(share, sensitivity) == pytest.approx(2 * sensitivity / (0.7 * share))


@pytest.mark.parametrize("epsilon", [0.3, 5.0])
def test_what_was_spent_adds_up_to_the_budget(epsilon: float) -> None:
    for budget, whole in ((PureBudget(epsilon), epsilon), (loose := ZcdpBudget(epsilon, 1e-6), loose.rho)):
        with SeededSource(1) as rng:
            budget.measure("tables", (0,), np.zeros(3, np.int64), Fraction(1, 4), rng)
            budget.measure("tables", (1,), np.zeros(3, np.int64), Fraction(1, 4), rng)
            budget.choose("structure", np.zeros(3, np.int64), 1, Fraction(1, 2), rng)
        assert list(budget.parts().values()) == pytest.approx([whole / 2, whole / 2])
