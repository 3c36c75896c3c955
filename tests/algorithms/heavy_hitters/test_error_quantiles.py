"""The noise of a prefix sketch loses what is said: delta by brute force, kappas by their sum."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from panstream.algorithms.heavy_hitters.prefix_sketch import FrequentItems
from panstream.errors import InvalidParameter
from panstream.primitives.noise import DiscreteGaussian, DiscreteLaplace
from panstream.privacy.heavy_hitter_loss import _scale, names_delta, names_laws, names_tail


def summed(sigma: float, count: int) -> np.ndarray:
    """Return the law of a sum of discrete Gaussians, convolved one by one."""
    reach = math.ceil(14 * sigma) + 2
    one = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    found = np.ones(1)
    for _ in range(count):
        found = np.convolve(found, one / one.sum())
    return found


def brute(epsilon: float, level: DiscreteGaussian, row: DiscreteGaussian, levels: int, rows: int) -> float:
    """Return sum(max(P - e^epsilon·Q, 0)) over sums of the touched cells."""
    outer = summed(level.sigma, levels)
    inner = summed(row.sigma, rows)
    j, k = (np.arange(each.size) - each.size // 2 for each in (outer, inner))
    a = level.sigma**-2
    b = row.sigma**-2
    loss = 0.5 * (levels * a + rows * b) + a * j[:, None] + b * k[None, :]
    return float(outer @ -np.expm1(-np.maximum(loss - epsilon, 0.0)) @ inner)


@pytest.mark.parametrize(
    ("epsilon", "delta", "levels", "rows"), [(1.0, 1e-3, 2, 1), (2.0, 1e-6, 6, 3), (8.0, 1e-6, 4, 2), (0.5, 1e-9, 2, 2)]
)
def test_delta_is_exact(epsilon: float, delta: float, levels: int, rows: int) -> None:
    level, row = names_laws(epsilon, delta, levels, rows)
    assert isinstance(level, DiscreteGaussian) and isinstance(row, DiscreteGaussian)
    exact = brute(epsilon, level, row, levels, rows)
    assert 0.99 * delta < exact <= delta
    assert exact < names_delta(epsilon, level, row, levels, rows) < exact * (1 + 1e-7)  # rounded up
    assert brute(epsilon, *(DiscreteGaussian.at_least(law.sigma / 2) for law in (level, row)), levels, rows) > delta


@pytest.mark.parametrize("contributions", [1, 3])
@pytest.mark.parametrize(
    ("epsilon", "delta", "levels", "rows"), [(1.0, 1e-3, 2, 1), (2.0, 1e-6, 6, 3), (0.5, 1e-6, 2, 2)]
)
def test_the_chance_of_a_larger_loss_is_exact(
    epsilon: float, delta: float, levels: int, rows: int, contributions: int
) -> None:
    """By brute force over all sums of noise in the cells of a unit, all of whose events fall into the same ones."""
    level, row = names_laws(epsilon, delta, levels, rows, contributions)
    assert isinstance(level, DiscreteGaussian) and isinstance(row, DiscreteGaussian)
    outer = summed(level.sigma, levels)
    inner = summed(row.sigma, rows)
    j, k = (np.arange(each.size) - each.size // 2 for each in (outer, inner))
    a, b = (contributions / law.sigma**2 for law in (level, row))
    change = 0.5 * contributions * (levels * a + rows * b) + a * j[:, None] + b * k[None, :]
    for times in (0.5, 1.0, 2.0):
        exact = float(outer @ (np.abs(change) > times * epsilon) @ inner)
        found = names_tail(times * epsilon, level, row, levels, rows, contributions)
        assert exact <= found
        assert contributions > 1 or found < exact * (1 + 1e-7) + 1e-15  # several: a bound for adaptive inputs
    assert names_tail(epsilon, level, row, levels, rows, contributions) > delta
    assert names_tail(0.0, level, row, levels, rows, contributions) == pytest.approx(1.0)


def test_the_chance_of_a_larger_loss_is_told_in_the_claim() -> None:
    """Close to that of a normal loss: at (1, 1e-6) twenty times delta."""
    sketch = FrequentItems(epsilon=1.0, delta=1e-6, max_item_bytes=8, step=8, width=256, row_width=16)
    level, row = sketch.laws
    mu = math.sqrt(sketch.levels / level.variance + sketch.rows / row.variance)
    normal = stats.norm.sf(1 / mu - mu / 2) + stats.norm.sf(1 / mu + mu / 2)
    assert sketch.loss_exceeds() == pytest.approx(normal, rel=0.05)
    assert 1e-5 < sketch.loss_exceeds() < 4e-5
    assert sketch.claim().inputs == "adaptive"
    told = float(sketch.claim().note.partition("at most ")[2])
    assert sketch.loss_exceeds() <= told < 1.01 * sketch.loss_exceeds()
    several = replace(sketch, contributions=3).claim().note
    assert several.startswith("two streams differ in at most 3 rows") and "e^epsilon" in several
    pure = replace(sketch, delta=0.0)
    assert pure.loss_exceeds() == 0.0 and pure.claim().note == ""


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-3), (1.0, 1e-6), (20.0, 1e-9), (3000.0, 1e-6)])
def test_the_normal_scale_loses_delta(epsilon: float, delta: float) -> None:
    """Balle and Wang's equation with logarithms; at 3,000 their second tail is below any float and not subtracted."""
    sigma = _scale(epsilon, delta)
    first, second = (stats.norm.logcdf(sign * 0.5 / sigma - epsilon * sigma) for sign in (1, -1))
    lost = math.exp(first) - math.exp(epsilon + second)
    assert (0.9 if epsilon == 3000.0 else 1 - 1e-6) * delta < lost <= delta * (1 + 1e-6)


def test_delta_under_much_noise_is_next_to_nothing_but_never_none() -> None:
    wide = DiscreteGaussian.at_least(60.0)
    assert 0.0 < names_delta(1.0, wide, wide, 2, 1) < 1e-16


def test_delta_of_the_default_shape_is_that_of_the_design() -> None:
    level, row = names_laws(1.0, 1e-6, 128, 5)
    assert level.variance**0.5 == pytest.approx(55.19, abs=0.01)
    assert row.variance**0.5 == pytest.approx(18.89, abs=0.01)
    assert names_delta(1.0, level, row, 128, 5) <= 1e-6


def test_kappas_add_up_to_epsilon() -> None:
    for contributions in (1, 3):
        level, row = names_laws(1.5, 0.0, 32, 5, contributions)
        assert isinstance(level, DiscreteLaplace) and isinstance(row, DiscreteLaplace)
        total = contributions * (32 * level.kappa + 5 * row.kappa)
        assert 1.5 - 1e-9 < total <= 1.5


def test_users_are_protected_by_zcdp() -> None:
    level, row = names_laws(1.0, 1e-6, 8, 2, 4)
    single, _ = names_laws(1.0, 1e-6, 8, 2, 1)
    assert 4 * 1.0 < level.variance**0.5 / single.variance**0.5 < 4 * 1.15
    assert isinstance(row, DiscreteGaussian)


def test_the_least_delta_is_allowed() -> None:
    level, row = names_laws(1.0, 1e-12, 8, 2)
    assert 0.0 < names_delta(1.0, level, row, 8, 2) <= 1e-12
    with pytest.raises(InvalidParameter, match="delta must be 0 or in"):
        names_laws(1.0, 0.9e-12, 8, 2)
