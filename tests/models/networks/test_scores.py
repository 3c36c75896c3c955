"""Scores against their definitions, and their sensitivities against every pair of neighbouring small tables."""

import itertools
import math
from collections.abc import Callable, Iterator
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.models.networks.budget import RESIDUAL_SENSITIVITY
from panstream.models.networks.information import mutual_information
from panstream.models.networks.privbayes import (
    _INFORMATION_GRID,
    _SCORES,
    _f_units,
    _information_units,
    _r_units,
)
from panstream.models.networks.tree_network import _gain
from panstream.privacy.table_loss import f_sensitivity, mutual_information_sensitivity, r_sensitivity

Table = NDArray[np.int64]


def all_tables(n: int, shape: tuple[int, ...]) -> Iterator[Table]:
    """Every table of n records: stars and bars."""
    cells = math.prod(shape)
    for bars in itertools.combinations(range(n + cells - 1), cells - 1):
        ends = (-1, *bars, n + cells - 1)
        yield np.array([b - a - 1 for a, b in itertools.pairwise(ends)], np.int64).reshape(shape)


def neighbours(table: Table) -> Iterator[Table]:
    flat = table.reshape(-1)
    for gone in np.flatnonzero(flat):
        for new in range(flat.size):
            if new != gone:
                other = flat.copy()
                other[gone] -= 1
                other[new] += 1
                yield other.reshape(table.shape)


def largest_move(n: int, shape: tuple[int, ...], units: Callable[[Table], float]) -> float:
    known = {table.tobytes(): units(table) for table in all_tables(n, shape)}
    return max(
        abs(known[table.tobytes()] - known[o.tobytes()]) for table in all_tables(n, shape) for o in neighbours(table)
    )


def f_by_definition(table: Table) -> int:
    """Over all ways to give every parent cell to 0 or 1."""
    n = int(table.sum())
    best = -2 * n
    for sides in itertools.product((0, 1), repeat=table.shape[0]):
        k = [sum(int(row[s]) for row, s in zip(table, sides, strict=True) if s == side) for side in (0, 1)]
        best = max(best, min(2 * k[0], n) + min(2 * k[1], n) - 2 * n)
    return best


def r_by_definition(table: Table) -> Fraction:
    n = int(table.sum())
    rows = table.sum(1)
    columns = table.sum(0)
    cells = itertools.product(range(table.shape[0]), range(table.shape[1]))
    gaps = (abs(Fraction(int(table[i, j]), n) - Fraction(int(rows[i]) * int(columns[j]), n * n)) for i, j in cells)
    return sum(gaps, Fraction(0)) / 2


@pytest.mark.parametrize(("n", "shape"), [(3, (2, 2)), (4, (3, 2)), (5, (2, 3))], ids=str)
def test_scores_are_what_they_are_defined_to_be(n: int, shape: tuple[int, int]) -> None:
    for table in all_tables(n, shape):
        assert Fraction(_r_units(table), n * n) == r_by_definition(table)
        assert 0 <= mutual_information(table) * _INFORMATION_GRID - _information_units(table) < 1
        if shape[1] == 2:
            assert _f_units(table) == f_by_definition(table)


def test_f_of_larger_tables() -> None:
    rng = np.random.default_rng(1)
    for _ in range(60):
        table = rng.integers(0, 9, (int(rng.integers(1, 9)), 2))
        if table.sum():
            assert _f_units(table) == f_by_definition(table)


@pytest.mark.parametrize(("n", "shape"), [(2, (2, 2)), (7, (2, 2)), (5, (3, 2)), (4, (2, 3)), (4, (3, 3))], ids=str)
def test_no_neighbour_moves_a_score_further_than_its_sensitivity(n: int, shape: tuple[int, int]) -> None:
    assert largest_move(n, shape, _r_units) <= _SCORES["R"].sensitivity(n, False) == r_sensitivity(n) * n * n
    binary = 2 in shape
    bound = mutual_information_sensitivity(n, binary=binary)
    assert largest_move(n, shape, mutual_information) <= bound + 1e-12
    assert largest_move(n, shape, _information_units) <= _SCORES["mi"].sensitivity(n, binary)
    if shape[1] == 2:
        assert largest_move(n, shape, _f_units) == _SCORES["F"].sensitivity(n, True) == f_sensitivity(n) * 2 * n


def test_the_bound_of_r_cannot_be_lowered_by_much() -> None:
    """One record in (a, b), about sqrt(n) in (a, j) and (i, b), all others in (i, j); the one moves to a row and
    column of its own.
    """
    n = 10_000
    side = 100
    before = np.array([[1, side, 0], [side, n - 2 * side - 1, 0], [0, 0, 0]])
    after = before + np.array([[-1, 0, 0], [0, 0, 0], [0, 0, 1]])
    assert 0.99 < (_r_units(after) - _r_units(before)) / _SCORES["R"].sensitivity(n, False) <= 1
    assert _SCORES["R"].sensitivity(n, False) == 3 * n - 2


def test_bounds_that_are_attained_cannot_be_lowered() -> None:
    for n in (2, 3, 6):
        found = largest_move(n, (2, 2), mutual_information)
        assert found == pytest.approx(mutual_information_sensitivity(n, binary=True), abs=1e-12)
    for n in (3, 5):  # odd: exact, with an even number of values on both sides
        found = largest_move(n, (3, 3), mutual_information)
        assert found == pytest.approx(mutual_information_sensitivity(n, binary=False), abs=1e-12)
    for expectation in ([[1, 1], [1, 1]], [[4, 0], [0, 0]], [[0, 2], [3, -1]]):
        fixed = np.array(expectation, np.int64)
        assert largest_move(4, (2, 2), lambda table, q=fixed: _gain(table, q, None, 0.0)) == RESIDUAL_SENSITIVITY == 2


def test_the_binary_bound_does_not_hold_for_three_values() -> None:
    """Why ``binary`` may only be said when one side has two values."""
    assert largest_move(5, (3, 3), mutual_information) > mutual_information_sensitivity(5, binary=True)


def test_f_is_for_two_values() -> None:
    with pytest.raises(InvalidParameter, match="two values"):
        _f_units(np.ones((2, 3), np.int64))


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("n", [2, 3, 10, 999, 48_842, 10**9])
def test_the_sensitivity_of_information_leaves_room_for_rounding(n: int, binary: bool) -> None:
    """The published bound to 60 digits, one unit for rounding down, and 2**-32 bits for floating point."""
    with localcontext(prec=60):
        log = {k: Decimal(k).ln() / Decimal(2).ln() for k in (2, n - 1, n, n + 1)}
        if binary:
            bits = log[n] / n + (n - 1) * (log[n] - log[n - 1]) / n
        else:
            bits = 2 * (log[n + 1] - log[2]) / n + (n - 1) * (log[n + 1] - log[n - 1]) / n
        least = bits * _INFORMATION_GRID + 1 + 2**8
        assert least - Decimal("0.01") <= _SCORES["mi"].sensitivity(n, binary) < least + Decimal("1.01")
