"""Tails of sums of Laplace draws against scipy and against exact discrete convolutions."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from panstream.algorithms.continual.noise_sum_tails import _laplace_sum_tail, error_bound, half_width, noise_variance
from panstream.errors import InvalidParameter
from panstream.primitives.noise import DiscreteLaplace


@pytest.mark.parametrize("draws", [1, 2, 3, 7, 20])
def test_tails_are_those_of_a_difference_of_gammas(draws):
    for x in (0.0, 0.3, 2.0, 9.0):
        exact, _ = integrate.quad(
            lambda y, x=x: stats.gamma.pdf(y, draws) * stats.gamma.sf(x + y, draws), 0, math.inf, epsabs=1e-12
        )
        assert _laplace_sum_tail(x, draws) == pytest.approx(exact, rel=1e-7)
    assert _laplace_sum_tail(1e6, draws) == 0.0


def exact_sum(parts):
    """Return (values, probabilities) of a sum of discrete Laplace draws, by convolution on a wide window."""
    law = np.ones(1)
    for draws, one in parts:
        reach = int(60 / one.kappa)
        k = np.arange(-reach, reach + 1)
        pmf = np.exp(-one.kappa * np.abs(k))
        pmf /= pmf.sum()
        for _ in range(draws):
            law = np.convolve(law, pmf)
    return np.arange(law.size) - law.size // 2, law


PARTS = [
    ((1, DiscreteLaplace.at_most(0.5)),),
    ((4, DiscreteLaplace.at_most(0.3)),),
    ((2, DiscreteLaplace.at_most(2.0)),),
    ((2, DiscreteLaplace.at_most(0.5)), (6, DiscreteLaplace.at_most(0.2))),
]


@pytest.mark.parametrize("parts", PARTS)
def test_error_bounds_hold_and_are_not_far_off(parts):
    values, law = exact_sum(parts)
    assert noise_variance(parts) == pytest.approx(float((law * values**2).sum()), rel=1e-6)
    for beta in (0.3, 0.05, 1e-3, 1e-6):
        bound = error_bound(beta, parts)
        assert law[np.abs(values) > bound].sum() <= beta
        exact = next(t for t in range(10_000) if law[np.abs(values) > t].sum() <= beta)
        assert bound < 2.2 * exact + 3


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_intervals_cover(parts, level):
    values, law = exact_sum(parts)
    covered = law[np.abs(values) <= half_width(level, parts)].sum()
    assert covered >= level - 0.01
    assert law[np.abs(values) <= half_width(level, parts) - 2.0].sum() <= level + 0.02


def test_no_noise_has_no_error():
    silent = ((3, DiscreteLaplace.at_most(math.inf)),)
    assert error_bound(0.1, silent) == half_width(0.95, silent) == 0.0
    for beta in (0.0, 1.0, -1.0):
        with pytest.raises(InvalidParameter, match="beta"):
            error_bound(beta, silent)


@pytest.mark.parametrize("parts", PARTS)
def test_intervals_that_hardly_ever_miss(parts):
    """Far out the sum of a few draws has much heavier tails than that of many with the same variance."""
    values, law = exact_sum(parts)
    for missed in (1e-4, 1e-6):
        reach = half_width(1.0 - missed, parts)
        assert law[np.abs(values) > reach].sum() <= 1.5 * missed  # whole numbers are a little heavier than their twin
