"""The shape of the default tree: variances against least squares, optimality against brute force, the targets."""

import itertools
from collections import Counter

import numpy as np
import pytest

from panstream.algorithms.continual.tree_shape import MAX_LEVELS, TreeShape, _tree_weights
from panstream.errors import InvalidParameter

SHAPES = [
    TreeShape(1, 9, False),
    TreeShape(2, 5, False),
    TreeShape(3, 3, False),
    TreeShape(4, 2, False),
    TreeShape(1, 15, True),
    TreeShape(2, 17, True),
    TreeShape(3, 14, True),
]


def walk(shape: TreeShape, slots: int) -> list[tuple[list[int], list[tuple[int, int, int]]]]:
    """Return after each slot the digits, and all nodes closed so far as (first slot, last slot, level)."""
    weights = shape.weights.tolist()
    digits = [0] * shape.levels
    opened = [0] * shape.levels
    closed = []
    after = []
    for slot in range(slots):
        for level in range(shape.levels):
            closed.append((opened[level], slot, level))
            opened[level] = slot + 1
            digits[level] += 1
            spent = sum(weight * digit for weight, digit in zip(weights, digits, strict=True))
            if spent <= shape.capacity or level == shape.levels - 1:
                break
            digits[level] = 0
        after.append((digits.copy(), closed.copy()))
    return after


def best_variance(closed: list[tuple[int, int, int]], slots: int, one_step_ticks: bool) -> float:
    """The least variance of any unbiased combination of the released sums (generalised least squares)."""
    rows = np.zeros((len(closed), slots))
    draws = np.array([1.0 if one_step_ticks and level == 0 else 2.0 for _, _, level in closed])
    for row, (first, last, _) in zip(rows, closed, strict=True):
        row[first : last + 1] = 1.0
    information = rows.T @ (rows / draws[:, None])
    return float(np.linalg.solve(information, np.ones(slots)).sum())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_variances_are_those_of_least_squares(shape: TreeShape) -> None:
    slots = shape.slots
    oracle = [
        best_variance(closed, slot + 1, shape.one_step_ticks) for slot, (_, closed) in enumerate(walk(shape, slots))
    ]
    for seen in range(1, slots + 1):
        noise = shape.noise(seen)
        assert noise.mean == pytest.approx(np.mean(oracle[:seen]))
        assert noise.worst == pytest.approx(max(oracle[:seen]))
        assert noise.last == pytest.approx(oracle[seen - 1])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_answers_are_the_cheapest_digit_vectors(shape: TreeShape) -> None:
    weights = _tree_weights(shape.levels, shape.one_step_ticks)
    ranges = [range(shape.capacity // weight + 1) for weight in weights]
    within = {
        v for v in itertools.product(*ranges) if sum(w * d for w, d in zip(weights, v, strict=True)) <= shape.capacity
    }
    answers = [tuple(digits) for digits, _ in walk(shape, shape.slots)]
    assert shape.slots == len(within)
    assert set(answers[:-1]) == within - {(0,) * shape.levels}
    assert max(Counter(answers).values()) == 1


def fixed_radices(radices: tuple[int, ...], horizon: int, leaf: float) -> float:
    """Mean squared error times epsilon² of the tree with fixed radices, by its formula."""
    variance = [leaf]
    for radix in radices[:-1]:
        variance.append(1 / (1 / 4 + 1 / (radix * variance[-1])))
    slots = np.arange(1, horizon + 1)
    total = np.zeros(horizon)
    for level, radix in enumerate(radices):
        digit = slots if level == len(radices) - 1 else slots % radix
        total += variance[level] * digit
        slots = slots // radix
    return float(total.mean()) * len(radices) ** 2


TARGETS = {True: {10: 349, 14: 1033, 16: 1553, 20: 3131}, False: {10: 457, 14: 1229, 16: 1832, 20: 3565}}


@pytest.mark.parametrize("one_step_ticks", [True, False])
@pytest.mark.parametrize("log_horizon", [10, 14, 16, 20])
def test_mean_squared_error_is_below_the_target(log_horizon: int, one_step_ticks: bool) -> None:
    shape = TreeShape.best(1 << log_horizon, one_step_ticks)
    error = 2 * shape.levels**2 * shape.noise(1 << log_horizon).mean
    assert error < 0.95 * TARGETS[one_step_ticks][log_horizon]


@pytest.mark.parametrize("one_step_ticks", [True, False])
def test_no_fixed_radices_do_better(one_step_ticks: bool) -> None:
    horizon = 1 << 10
    leaf = 2.0 if one_step_ticks else 4.0
    found = TreeShape.best(horizon, one_step_ticks)
    two = [(k, -(-horizon // k)) for k in range(2, 200)]
    three = [(a, b, -(-horizon // (a * b))) for a in range(2, 40, 2) for b in range(2, 40, 2)]
    best = min(fixed_radices(radices, horizon, leaf) for radices in two + three)
    assert 0.95 * TARGETS[one_step_ticks][10] < best <= TARGETS[one_step_ticks][10]
    assert 2 * found.levels**2 * found.noise(horizon).mean < 0.95 * best


@pytest.mark.parametrize("one_step_ticks", [True, False])
def test_choice_is_the_best_number_of_levels(one_step_ticks: bool) -> None:
    for horizon in (1, 2, 7, 40, 300, 5000):
        chosen = TreeShape.best(horizon, one_step_ticks)
        error = chosen.levels**2 * chosen.noise(horizon).mean
        for levels in range(1, 7):
            try:
                other = TreeShape.best(horizon, one_step_ticks, levels)
            except InvalidParameter:
                continue  # so few levels would need a tree wider than is allowed
            assert error <= levels**2 * other.noise(horizon).mean * (1 + 1e-12)


def test_bounds_are_checked() -> None:
    with pytest.raises(InvalidParameter, match="levels must be larger for horizon=1048576"):
        TreeShape.best(1 << 20, True, 1)
    with pytest.raises(InvalidParameter, match=r"slots must be in 1\.\.10"):
        TreeShape(1, 9, False).noise(11)
    assert TreeShape.best(1 << 56, True).levels < MAX_LEVELS
