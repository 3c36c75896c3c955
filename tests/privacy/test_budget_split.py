"""The optimal split against the reference values and against a brute-force grid."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from panstream.privacy.budget_split import density_split, laplace_variance
from panstream.privacy.joint_loss import kappa_for, present_probability, symmetric_loss
from panstream.privacy.numeric_search import minimise


def mse(epsilon_state: float, kappa: float, cells: int) -> float:
    p1 = present_probability(epsilon_state)
    return (p1 * (1 - p1) / cells + laplace_variance(kappa) / cells**2) / (2 * p1 - 1) ** 2


@pytest.mark.parametrize(
    ("cells", "state", "kappa"),
    [(100, 0.7215, 0.3901), (1000, 0.8495, 0.2085), (10_000, 0.9251, 0.1031), (100_000, 0.9641, 0.0492)],
)
def test_reference_values(cells: int, state: float, kappa: float) -> None:
    assert density_split(1.0, cells) == (pytest.approx(state, abs=5e-5), pytest.approx(kappa, abs=5e-5))


GAINS = {
    0.1: (3.39, 2.56, 2.21, 2.77),
    0.5: (1.94, 2.21, 2.94, 3.48),
    1.0: (1.79, 2.55, 3.31, 3.78),
    2.0: (1.98, 3.07, 3.97, 4.52),
}


@pytest.mark.parametrize("epsilon", GAINS)
def test_gain_over_the_equal_split(epsilon: float) -> None:
    for cells, gain in zip((100, 1000, 10_000, 100_000), GAINS[epsilon], strict=True):
        ours = mse(*density_split(epsilon, cells), cells)
        assert mse(epsilon / 2, epsilon / 2, cells) / ours == pytest.approx(gain, abs=0.006)


@pytest.mark.slow
@settings(max_examples=40)
@given(st.floats(0.02, 8.0), st.integers(1, 10**8), st.integers(1, 20))
def test_no_grid_point_is_better_and_the_budget_is_used_up(epsilon: float, cells: int, releases: int) -> None:
    state, kappa = density_split(epsilon, cells, releases)
    assert symmetric_loss(state, kappa, releases) == pytest.approx(epsilon, rel=1e-9)
    ours = mse(state, kappa, cells)
    for candidate in np.linspace(0.001, 0.999, 97) * epsilon:
        other = mse(float(candidate), kappa_for(epsilon, float(candidate), releases), cells)
        assert ours <= other * (1 + 1e-9)


@pytest.mark.parametrize("announced", [1, 2, 3])
def test_announced_intrusions_are_paid_for(announced: int) -> None:
    state, kappa = density_split(1.0, 10_000, 1, announced)
    assert announced * state + symmetric_loss(state, kappa) == pytest.approx(1.0, rel=1e-9)


def announced_mse(state: float, kappa: float, cells: int, announced: int) -> float:
    """Return the mean squared error per cell by going through all patterns of the frozen bits and the last one.

    The estimate of "no arrival" is the product of (p1 - bit)/gap over all patterns; each frozen pattern is
    counted, with noise of its own.
    """
    p1 = present_probability(state)
    chance = {0: p1, 1: 1 - p1}
    decoded = {0: p1 / (2 * p1 - 1), 1: (p1 - 1) / (2 * p1 - 1)}
    patterns = list(itertools.product((0, 1), repeat=announced + 1))
    second = sum(math.prod(chance[bit] * decoded[bit] ** 2 for bit in bits) for bits in patterns)
    frozen = itertools.product((0, 1), repeat=announced)
    noise = sum((math.prod(decoded[bit] for bit in bits) / (2 * p1 - 1)) ** 2 for bits in frozen)
    return (second - 1) / cells + laplace_variance(kappa) * noise / cells**2


@pytest.mark.parametrize("announced", [0, 1, 2])
@pytest.mark.parametrize(("epsilon", "cells", "releases"), [(1.0, 50, 1), (3.0, 1000, 2), (0.5, 10_000, 1)])
def test_with_announced_looks_no_split_is_better(epsilon: float, cells: int, releases: int, announced: int) -> None:
    state, kappa = density_split(epsilon, cells, releases, announced)
    ours = announced_mse(state, kappa, cells, announced)
    for share in np.linspace(0.02, 0.98, 97) / (announced + 1):
        other = float(share) * epsilon
        left = kappa_for(epsilon - announced * other, other, releases)
        assert ours <= announced_mse(other, left, cells, announced) * (1 + 1e-9)
    for nearby in (0.998, 1.002):  # a neighbour of the best is hardly worse, and never better
        left = kappa_for(epsilon - announced * state * nearby, state * nearby, releases)
        assert ours < announced_mse(state * nearby, left, cells, announced)


def test_minimise_agrees_with_scipy() -> None:
    for centre in (0.1, 0.5, 0.77):
        ours = minimise(lambda x, c=centre: (x - c) ** 2 + 0.1 * x, 0.0, 1.0)
        theirs = optimize.minimize_scalar(
            lambda x, c=centre: (x - c) ** 2 + 0.1 * x, bounds=(0, 1), method="bounded", options={"xatol": 1e-10}
        ).x
        assert ours == pytest.approx(theirs, abs=1e-6)


def test_no_noise_splits_into_infinities() -> None:
    assert density_split(math.inf, 10) == (math.inf, math.inf)


@pytest.mark.parametrize(("lower", "upper", "best"), [(5.0, 8.0, 7.0), (-3.0, -1.0, -2.5), (100.0, 101.0, 100.9)])
def test_minimise_asks_only_within_its_interval(lower: float, upper: float, best: float) -> None:
    def function(x: float) -> float:
        assert lower < x < upper
        return (x - best) ** 2

    assert minimise(function, lower, upper) == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("kappa", [0.3, 5.0, 690.0, 710.0, 740.0])
def test_the_variance_is_the_sum_over_all_values(kappa: float) -> None:
    """Term by term; far out one of them is all there is: 2·e**-kappa."""
    terms = [2.0 * k**2 * math.exp(-kappa * k) for k in range(1, 400)]
    weight = 1.0 + 2.0 * math.fsum(math.exp(-kappa * k) for k in range(1, 400))
    assert laplace_variance(kappa) == pytest.approx(math.fsum(terms) / weight, rel=1e-9, abs=0.0)
