"""Numbers on a grid: nearest points, clipping, refusals by row, and nothing left behind."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.algorithms.continual.grid import MAX_STEPS, Grid
from panstream.errors import InvalidBatch, InvalidParameter


@settings(deadline=None)
@given(st.lists(st.floats(-20, 20), max_size=20), st.integers(1, 1000))
def test_rows_go_to_the_nearest_point(values: list[float], steps: int) -> None:
    grid = Grid.spanning(-3.0, 7.0, None, steps, "clip")
    for value, step in zip(values, grid.read(values).rows.tolist(), strict=True):
        clipped = min(max(Fraction(value), Fraction(-3)), Fraction(7))
        off = abs(clipped - (Fraction(-3) + step * Fraction(10, steps)))
        assert 0 <= step <= steps
        assert off <= Fraction(5, steps) + Fraction(1, 10**9)


def test_a_resolution_that_divides_the_range_is_exact() -> None:
    grid = Grid.spanning(0.0, 100.0, 0.01, 7, "clip")
    assert grid.high == 10_000
    assert grid.read([0.01, 0.29, 99.99, 100.0]).rows.tolist() == [1, 29, 9999, 10_000]
    around = Grid.around_zero(-5.0, 10.0, 0.1, 7, "clip")
    assert (around.low, around.high) == (-50, 100)
    assert around.read([-0.3, 0.7, -99, 99]).rows.tolist() == [-3, 7, -50, 100]


def test_default_steps() -> None:
    assert Grid.spanning(0.0, 1.0, None, 1024, "clip").step == 1 / 1024
    around = Grid.around_zero(-1.0, 4.0, None, 1024, "clip")
    assert (around.low, around.high) == (-256, 1024)


@pytest.mark.parametrize(
    ("values", "row"), [([1.0, None], 1), ([float("nan")], 0), ([0.0, 1.0, float("inf")], 2), ([0.0, "x"], 1)]
)
def test_rows_that_are_no_numbers_are_refused(values: list[Any], row: int) -> None:
    with pytest.raises(InvalidBatch) as refused:
        Grid.spanning(0.0, 1.0, None, 10, "clip").read(values)
    assert refused.value.row == row


def test_values_outside_are_refused_by_row_if_asked() -> None:
    grid = Grid.spanning(0.0, 1.0, None, 10, "refuse")
    with pytest.raises(InvalidBatch, match=r"row 2: values must be between 0.0 and 1.0") as refused:
        grid.read([0.0, 1.0, 1.0000001])
    assert "1.0000001" not in str(refused.value)
    assert grid.read([0.0, 1.0]).rows.tolist() == [0, 10]


def test_steps_are_ours_to_wipe() -> None:
    given_values = np.array([0.25, 0.5])
    steps = Grid.spanning(0.0, 1.0, None, 4, "clip").read(given_values)
    assert steps.rows.tolist() == [1, 2]
    steps.wipe()
    assert not steps.rows.any()
    assert given_values.tolist() == [0.25, 0.5]


@pytest.mark.parametrize(
    ("lower", "upper", "resolution", "outside"),
    [
        (1.0, 1.0, None, "clip"),
        (0.0, float("inf"), None, "clip"),
        (0.0, 1.0, 0.0, "clip"),
        (0.0, 1.0, 0.1 / MAX_STEPS, "clip"),
        (0.0, 1.0, None, "drop"),
    ],
)
def test_parameters_are_checked(lower: float, upper: float, resolution: float | None, outside: Any) -> None:
    for make in (Grid.spanning, Grid.around_zero):
        with pytest.raises(InvalidParameter):
            make(lower, upper, resolution, 10, outside)
    with pytest.raises(InvalidParameter, match="leave a step"):
        Grid.around_zero(0.2, 0.4, 1.0, 10, "clip")
