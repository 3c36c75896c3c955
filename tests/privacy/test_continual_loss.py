"""Closed forms of the tree counters: inverse pairs, and sensitivities by brute force."""

import math
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panstream.errors import InvalidParameter
from panstream.privacy.composition import zcdp_rho
from panstream.privacy.continual_loss import moment_sensitivity, tables_laws, tree_kappa
from tests.privacy.zcdp import tables_rho


@given(st.floats(1e-6, 100), st.integers(1, 24), st.integers(1, 1 << 40), st.integers(1, 1000))
def test_kappa_is_the_inverse_of_the_loss(epsilon: float, levels: int, sensitivity: int, contributions: int) -> None:
    kappa = tree_kappa(epsilon, levels, sensitivity, contributions)
    assert isinstance(kappa, Fraction)
    assert levels * sensitivity * contributions * kappa == Fraction(epsilon)


def test_tables_count_one_record_unless_more_are_allowed() -> None:
    assert [law.kappa for law in tables_laws(1.0, 0.0, 2, [Fraction(1, 4), Fraction(3, 4)])] == [0.125, 0.375]
    assert [law.kappa for law in tables_laws(1.0, 0.0, 2, [Fraction(1)], 4)] == [0.125]


@pytest.mark.parametrize(("levels", "contributions"), [(1, 1), (3, 1), (3, 2)])
def test_gaussian_noise_of_tables_spends_all_of_rho(levels: int, contributions: int) -> None:
    shares = [Fraction(1, 4), Fraction(3, 4)]
    rho = zcdp_rho(1.0, 1e-9)
    laws: Any = tables_laws(1.0, 1e-9, levels, shares, contributions)
    for share, law in zip(shares, laws, strict=True):
        assert law.sigma**2 == pytest.approx(contributions**2 * levels / (2 * float(share) * rho), rel=1e-6)
    spent = tables_rho(laws, levels, contributions)
    assert spent == pytest.approx(rho, rel=1e-6)
    assert spent <= rho


def test_no_noise_and_bad_parameters() -> None:
    assert tree_kappa(math.inf, 3) == math.inf
    for wrong in ({"epsilon": 0.0}, {"epsilon": math.nan}, {"contributions": 0}):
        with pytest.raises(InvalidParameter):
            tree_kappa(**{"epsilon": 1.0, "levels": 2, **wrong})


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 8, 20])
def test_sensitivities_are_the_largest_moves(steps: int) -> None:
    grid = range(steps + 1)
    assert {i + (steps - i) for i in grid} == {moment_sensitivity(steps, 1, replaces=False)}
    assert {i * i + 2 * i * (steps - i) + (steps - i) ** 2 for i in grid} == {
        moment_sensitivity(steps, 2, replaces=False)
    }
    assert max(abs(i - j) for i, j in product(grid, grid)) == moment_sensitivity(steps, 1, replaces=True)

    def move(i: int, j: int) -> int:
        y = 2 * i - steps
        z = 2 * j - steps
        return steps * abs(y - z) + abs(y * y - z * z)

    largest = max(move(i, j) for i, j in product(grid, grid))
    assert largest <= moment_sensitivity(steps, 2, replaces=True)
    if steps % 4 == 0:
        assert largest == moment_sensitivity(steps, 2, replaces=True)


def test_one_value_of_one_step_unless_more_is_said() -> None:
    assert tree_kappa(1.5, 3) == tree_kappa(1.5, 3, 1, 1) == Fraction(1, 2)
