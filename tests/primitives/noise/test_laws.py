"""Rounded distributions never lose more than the given parameter: exact rationals."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panstream.errors import InvalidParameter
from panstream.primitives.noise import Coin, DiscreteGaussian, DiscreteLaplace, symmetric_coins
from panstream.primitives.noise.distributions import exp_fraction
from panstream.privacy.budget_split import laplace_variance

EPSILONS = st.floats(min_value=1e-6, max_value=60.0)


@given(EPSILONS)
def test_ratio_of_the_rounded_pair_never_exceeds_e_to_the_epsilon(epsilon: float) -> None:
    absent, present = symmetric_coins(epsilon)
    bound = exp_fraction(Fraction(epsilon)) * (1 + Fraction(1, 10**60))  # 60 digits: beyond any rounding of ours
    assert present.probability / absent.probability <= bound
    assert (1 - absent.probability) / (1 - present.probability) <= bound


@given(EPSILONS)
def test_rounding_error_is_below_two_to_the_minus_60(epsilon: float) -> None:
    _, present = symmetric_coins(epsilon)
    growth = exp_fraction(Fraction(epsilon))
    assert 0 <= growth / (1 + growth) - present.probability < Fraction(1, 2**60)


@given(st.floats(min_value=0.0, max_value=1.0))
def test_coin_keeps_floats_exactly_down_to_2_to_the_minus_64(p: float) -> None:
    gap = Fraction(p) - Coin.at_most(p).probability
    assert 0 <= gap < Fraction(1, 2**64)


@given(st.floats(min_value=1e-6, max_value=500.0))
def test_kappa_is_rounded_towards_more_noise(kappa: float) -> None:
    law = DiscreteLaplace.at_most(kappa)
    assert 0 <= Fraction(kappa) - Fraction(law.kappa) < Fraction(1, 2**51)


def test_variance_is_that_of_the_series() -> None:
    for kappa in (0.01, 0.3, 2.0, 9.0):
        law = DiscreteLaplace.at_most(kappa)
        k = np.arange(-4000, 4001)
        pmf = np.exp(-law.kappa * np.abs(k))
        assert law.variance == pytest.approx(float((k**2 * pmf).sum() / pmf.sum()), rel=1e-9)


def test_no_noise_is_epsilon_infinity() -> None:
    assert symmetric_coins(math.inf) == (Coin(0), Coin(1 << 64))
    assert DiscreteLaplace.at_most(math.inf).variance == 0.0


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan])
def test_bad_parameters_are_named(bad: float) -> None:
    with pytest.raises(InvalidParameter, match="epsilon must be positive"):
        symmetric_coins(bad)
    with pytest.raises(InvalidParameter, match="kappa must be positive"):
        DiscreteLaplace.at_most(bad)
    with pytest.raises(InvalidParameter, match="probability must be in"):
        Coin.at_most(-0.5)


def test_variance_does_not_overflow_at_any_kappa() -> None:
    for kappa in (600.0, 699.0, 700.0, 1000.0):
        assert 0.0 <= DiscreteLaplace.at_most(kappa).variance < 1e-200


def test_the_slowest_decay_that_can_be_drawn_is_accepted_and_no_slower() -> None:
    assert DiscreteLaplace.at_most(2.0**-52).numerator == 1
    with pytest.raises(InvalidParameter, match="kappa must be in"):
        DiscreteLaplace.at_most(2.0**-53)
    assert DiscreteLaplace.at_most(1023.0).numerator == 1023 << 52
    with pytest.raises(InvalidParameter, match="kappa must be in"):
        DiscreteLaplace.at_most(1024.0)


@pytest.mark.parametrize("probability", [-0.5, 1.5, 2.0, 3.0])
def test_a_coin_refuses_what_is_no_probability(probability: float) -> None:
    with pytest.raises(InvalidParameter, match="probability must be in"):
        Coin.at_most(probability)


@pytest.mark.parametrize(("sigma", "fits"), [(1.4e6, True), (1.5e6, False), (0.0222, True), (0.022, False)])
def test_the_range_of_the_discrete_gaussian(sigma: float, fits: bool) -> None:
    """Numerators of 2**51/sigma**2 from 2**10 to 2**62: sigma from 2**-5.5 to 2**20.5."""
    if fits:
        assert DiscreteGaussian.at_least(sigma).sigma == pytest.approx(sigma, rel=1e-3)
    else:
        with pytest.raises(InvalidParameter, match="sigma must be in"):
            DiscreteGaussian.at_least(sigma)


def test_no_noise_has_no_decay_and_little_noise_has_a_variance() -> None:
    assert DiscreteLaplace(None).decay() == 0
    for kappa in (699.9, 700.0, 701.0):
        assert DiscreteLaplace.at_most(kappa).variance == pytest.approx(2 * math.exp(-kappa), rel=1e-6, abs=0.0)
        assert laplace_variance(kappa) == pytest.approx(2 * math.exp(-kappa), rel=1e-6, abs=0.0)


def test_thresholds_of_coins_end_at_certainty() -> None:
    assert Coin(0).probability == 0
    assert Coin(1 << 64).probability == 1
    for threshold in (-1, (1 << 64) + 1, 1 << 65):
        with pytest.raises(InvalidParameter, match="threshold must be in"):
            Coin(threshold)
