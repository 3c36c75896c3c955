"""The discrete Gaussian has exactly its law, at every scale, and is rounded towards more noise."""

import math
from fractions import Fraction

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panstream.errors import InvalidParameter
from panstream.primitives.noise import DiscreteGaussian, NoiseSource
from tests.statistical import assert_fits, assert_mean, assert_same_law

N = 100_000


def drawn(sigma: float, size: int) -> np.ndarray:
    values = np.zeros(size, np.int64)
    with NoiseSource() as rng:
        rng.add_discrete_gaussian(values, DiscreteGaussian.at_least(sigma))
    return values


@pytest.mark.parametrize("sigma", [0.1, 0.3, 0.75, 1.0, 2.5, 11.0, 40.0])
def test_fits_its_pmf(sigma: float) -> None:
    values = drawn(sigma, N)
    reach = math.ceil(12 * sigma) + 2
    k = np.arange(-reach, reach + 1)
    pmf = np.exp(-(k**2) / (2 * sigma**2))
    counts = np.bincount(np.clip(values, -reach, reach) + reach, minlength=k.size)
    assert_fits(counts, pmf / pmf.sum() * N, f"discrete Gaussian {sigma}")


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.8, 3.0])
def test_agrees_with_opendp(sigma: float) -> None:
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=dp.i64)), dp.l2_distance(T=dp.f64)
    theirs = np.array(dp.m.make_gaussian(*space, sigma)([0] * 20_000))
    assert_same_law(drawn(sigma, 20_000), theirs, "OpenDP")


@pytest.mark.parametrize("sigma", [3e3, 1e5, 2.0**20])
def test_large_scales_have_the_normal_law(sigma: float) -> None:
    from scipy import stats

    values = drawn(sigma, 50_000)
    cells = np.floor(stats.norm.cdf(values / sigma) * 20).astype(int)
    assert_fits(np.bincount(cells, minlength=20), np.full(20, 2500.0), f"twentieths at {sigma}")
    assert_mean(values.astype(float) ** 2, sigma**2, "second moment", sd=math.sqrt(2.0) * sigma**2)


@given(st.floats(min_value=0.04, max_value=1e6))
def test_sigma_is_rounded_towards_more_noise(sigma: float) -> None:
    law = DiscreteGaussian.at_least(sigma)
    assert law.numerator is not None
    exact = Fraction(1 << 51, law.numerator)  # sigma², exactly
    assert Fraction(sigma) ** 2 <= exact <= Fraction(sigma) ** 2 * Fraction(1026, 1024)


@pytest.mark.parametrize("sigma", [0.05, 0.2, 0.5, 1.0, 2.9, 3.1, 7.0])
def test_variance_is_that_of_the_series(sigma: float) -> None:
    k = np.arange(-200, 201)
    pmf = np.exp(-(k**2) / (2 * sigma**2))
    assert DiscreteGaussian.at_least(sigma).variance == pytest.approx(float((k**2 * pmf).sum() / pmf.sum()), rel=1e-9)


def test_no_noise_and_bad_scales() -> None:
    assert not drawn(0.0, 100).any()
    assert DiscreteGaussian.at_least(0.0).sigma == DiscreteGaussian.at_least(0.0).variance == 0.0
    for bad in (-1.0, math.nan, math.inf, 1e-3, 1e9):
        with pytest.raises(InvalidParameter, match="sigma must be"):
            DiscreteGaussian.at_least(bad)
