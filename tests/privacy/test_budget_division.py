"""Division of a budget between questions: against closed forms and against every division of a grid."""

from __future__ import annotations

import math

import numpy as np
import pytest

from panstream.errors import InvalidParameter
from panstream.privacy.budget_division import Account, Choice, LossTable, Rejected, choose_windows, divide
from panstream.privacy.composition import zcdp_rho

_FINE = np.geomspace(1e-5, 4.0, 600)
_STEP = _FINE[1] / _FINE[0]


def _pure(price: float, losses: np.ndarray = _FINE, *, required: bool = True) -> LossTable:
    """A question whose error falls like 1/loss and is useful from ``price`` on."""
    return LossTable(losses, np.zeros_like(losses), price / losses, required)


def _gaussian(price: float, losses: np.ndarray = _FINE, *, required: bool = True) -> LossTable:
    """A question whose error falls like 1/sqrt(rho) and is useful from ``price`` on."""
    return LossTable(np.zeros_like(losses), losses, np.sqrt(price / losses), required)


def test_pure_losses_are_proportional_to_the_root_of_weight_times_price() -> None:
    prices = np.array([0.01, 0.05, 0.2])
    weights = [1.0, 4.0, 0.5]
    entries = divide([_pure(price) for price in prices], weights, Account(2.0))
    best = np.sqrt(prices * weights)
    assert _FINE[entries] == pytest.approx(2.0 * best / best.sum(), rel=2 * (_STEP - 1))


def test_zcdp_is_proportional_to_the_cube_root_of_squared_weight_times_price() -> None:
    prices = np.array([1e-4, 4e-4, 2e-3])
    weights = np.array([1.0, 3.0, 0.5])
    entries = divide([_gaussian(price) for price in prices], list(weights), Account(1.0, 1e-6))
    best = np.cbrt(weights**2 * prices)
    assert _FINE[entries] == pytest.approx(zcdp_rho(1.0, 1e-6) * best / best.sum(), rel=2 * (_STEP - 1))


def test_no_share_is_below_its_price_and_the_rest_is_divided_again() -> None:
    prices = [0.9, 0.01, 0.01]
    entries = divide([_pure(price) for price in prices], [0.01, 1.0, 1.0], Account(1.0))
    losses = _FINE[entries]
    assert 0.9 <= losses[0] < 0.9 * _STEP
    assert losses[1:] == pytest.approx((1.0 - losses[0]) / 2, rel=2 * (_STEP - 1))


@pytest.mark.parametrize("seed", range(8))
def test_no_division_of_a_grid_is_better(seed: int) -> None:
    """Pure, Gaussian and mixed questions, some with a price, with fixed losses beside them, against all divisions."""
    rng = np.random.default_rng(seed)
    account = Account(float(rng.uniform(0.8, 3.0)), 1e-5, 0.1, 0.001)
    losses = np.geomspace(1e-3, 3.0, 81)
    tables = []
    for kind in rng.permutation(["pure", "gaussian", "bits"]):
        price = float(rng.uniform(0.002, 0.02))
        required = bool(rng.integers(2))
        if kind == "bits":
            tables.append(LossTable(losses, 31 * (0.05 * losses) ** 2 / 2, price / np.tanh(losses / 2), required))
        else:
            tables.append((_pure if kind == "pure" else _gaussian)(price, losses, required=required))
    weights = rng.uniform(0.2, 2.0, 3)

    def all_sums(columns: list[np.ndarray]) -> np.ndarray:
        first, second, third = columns
        return first[:, None, None] + second[:, None] + third

    pure = account.pure + all_sums([table.pure for table in tables])
    rho = account.rho + all_sums([table.rho for table in tables])
    errors = [
        np.where(table.errors > 1.0, np.inf, table.errors) if table.required else table.errors for table in tables
    ]
    values = all_sums([weight * error for weight, error in zip(weights, errors, strict=True)])
    left = np.linspace(1e-3, account.limit, 300)  # zcdp_rho is convex, so the interpolated one is not smaller
    most_rho = np.array([zcdp_rho(float(epsilon), account.delta) for epsilon in left])
    fits = (pure <= account.limit - 1e-3) & (rho <= np.interp(account.limit - pure, left, most_rho))
    best = values[fits].min()
    found = tuple(divide(tables, weights.tolist(), account))
    assert account.total(pure[found] - account.pure, rho[found] - account.rho) <= account.limit * 1.001
    assert best * 0.999 <= values[found] <= best * losses[1] / losses[0]  # but for one step of the grid


def test_a_budget_below_all_prices_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="exceed the budget"):
        divide([_pure(0.6), _pure(0.6)], [1.0, 1.0], Account(1.0))
    assert divide([], [], Account(1.0)) == []


def _windows(*prices: float) -> list:
    return [lambda price=price: _pure(price) for price in prices]


def test_the_dearest_question_takes_its_next_window_or_is_dropped() -> None:
    choices = choose_windows([_windows(0.9, 0.3), _windows(0.5), _windows(3.0, 2.0)], [1.0, 1.0, 1.0], Account(1.0))
    assert [choice.window for choice in choices] == [1, 0, None]
    assert [rejected.window for rejected in choices[2].rejected] == [0, 1]
    assert [rejected.price for rejected in choices[2].rejected] == pytest.approx([3.0, 2.0], rel=0.03)
    assert choices[0].rejected[0].price == pytest.approx(0.9, rel=0.03)


def test_no_question_is_dropped_while_another_can_take_a_longer_window() -> None:
    choices = choose_windows([_windows(0.3, 0.1), _windows(0.8)], [1.0, 1.0], Account(1.0))
    assert [choice.window for choice in choices] == [1, 0]


def test_a_weight_protects_a_question_from_being_dropped() -> None:
    two = [_windows(0.7), _windows(0.6)]
    assert [choice.window for choice in choose_windows(two, [1.0, 1.0], Account(1.0))] == [None, 0]
    assert [choice.window for choice in choose_windows(two, [2.0, 1.0], Account(1.0))] == [0, None]


def test_what_a_dropped_question_leaves_is_used_for_earlier_windows() -> None:
    """Both move, then the second is dropped: the first fits into its earlier window again."""
    choices = choose_windows([_windows(0.9, 0.3), _windows(0.85, 0.8)], [1.0, 1.0], Account(1.0))
    assert [choice.window for choice in choices] == [0, None]
    assert choices[0] == Choice(0)


def test_a_question_without_any_useful_loss_is_dropped_with_an_infinite_price() -> None:
    never = LossTable(_FINE, np.zeros_like(_FINE), np.full_like(_FINE, 7.0))
    (choice,) = choose_windows([[lambda: never]], [1.0], Account(1.0))
    assert choice == Choice(None, (Rejected(0, math.inf),))


def test_tables_are_only_computed_for_windows_that_are_considered() -> None:
    def refuse() -> LossTable:
        raise AssertionError("a later window was computed though the first one fits")

    assert choose_windows([[*_windows(0.5), refuse]], [1.0], Account(1.0)) == [Choice(0)]
