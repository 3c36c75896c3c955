"""The exact tails against enumeration with rationals, scipy's laws, and a direct convolution at large sizes."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import signal, stats

from panstream.algorithms.planning._noisy_count_tails import NoisyCount

TENTH = Fraction(1, 10)


def binomial(n: int, p: Fraction) -> list[Fraction]:
    return [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]


def rational_tail(law: dict[str, int], p0: Fraction, p1: Fraction, q: Fraction, threshold: int) -> Fraction:
    """P(N > threshold) by full enumeration; P(L > k) = q^(k+1)/(1+q) for k >= 0."""
    present = law["present"]
    sampled = law["sampled"]
    universe = law["universe"]
    total = Fraction(0)
    for x in range(max(0, sampled + present - universe), min(sampled, present) + 1):
        chosen = Fraction(
            math.comb(present, x) * math.comb(universe - present, sampled - x), math.comb(universe, sampled)
        )
        for ones, a in enumerate(binomial(x, p1)):
            for others, b in enumerate(binomial(sampled - x, p0)):
                k = threshold - ones - others
                noise = q ** (k + 1) / (1 + q) if k >= 0 else 1 - q ** (-k) / (1 + q)
                total += chosen * a * b * noise
    return total


def bit_sum(law: NoisyCount) -> NDArray[np.float64]:
    """The law of S from scipy's hypergeometric and binomial laws."""
    sums = np.zeros(law.sampled + 1)
    for x in range(law.sampled + 1):
        weight = stats.hypergeom.pmf(x, law.universe, law.present, law.sampled)
        if weight > 1e-60:
            ones = stats.binom.pmf(np.arange(x + 1), x, law.p1)
            others = stats.binom.pmf(np.arange(law.sampled - x + 1), law.sampled - x, law.p0)
            sums += weight * np.convolve(ones, others)
    return sums


def noise_tail(k: NDArray[np.int64], kappa: float) -> NDArray[np.float64]:
    q = math.exp(-kappa)
    return np.where(k >= 0, q ** (np.maximum(k, 0) + 1.0), 1 + q - q ** np.maximum(-k, 0.0)) / (1 + q)


@pytest.mark.parametrize(
    ("present", "sampled", "universe"),
    [(0, 1, 1), (1, 1, 1), (1, 1, 2), (3, 5, 5), (0, 4, 7), (7, 4, 7), (3, 4, 7), (9, 6, 11), (2, 7, 30)],
)
@pytest.mark.parametrize(("p1", "q"), [(7 * TENTH, Fraction(1, 2)), (Fraction(99, 100), 9 * TENTH), (6 * TENTH, TENTH)])
def test_equals_rational_enumeration(present: int, sampled: int, universe: int, p1: Fraction, q: Fraction) -> None:
    sizes = {"present": present, "sampled": sampled, "universe": universe}
    kappa = -math.log(float(q))
    for p0 in (1 - p1, p1 / 2):
        law = NoisyCount(**sizes, p0=float(p0), p1=float(p1), kappa=kappa)
        for threshold in (-40, -3, -1, 0, 1, sampled // 2, sampled, sampled + 3, sampled + 60):
            exact = float(rational_tail(sizes, p0, p1, q, threshold))
            assert law.upper_tail(threshold).beyond(threshold) == pytest.approx(exact, rel=1e-11)


@pytest.mark.parametrize(
    ("present", "sampled", "universe", "p1", "kappa"),
    [
        (10, 20, 20, 0.6, 0.05),
        (300, 500, 1000, 0.7, 0.2),
        (500, 500, 1000, 0.9999, 0.2),
        (100, 300, 1000, 0.7, 3.0),
        (7, 300, 1000, 0.52, 0.005),
        (1000, 900, 4000, 0.73, 0.1),
        (4000, 900, 4000, 0.73, 0.1),
        (140, 300, 290 + 20, 0.999999, 12.0),
    ],
)
def test_equals_scipy(present: int, sampled: int, universe: int, p1: float, kappa: float) -> None:
    law = NoisyCount(present=present, sampled=sampled, universe=universe, p0=1 - p1, p1=p1, kappa=kappa)
    spread = math.sqrt(law.bits_variance + 2 / kappa**2)
    sums = bit_sum(law)
    for z in (-3, -1, 0, 1, 2, 4, 6, 8, 10):
        threshold = math.floor(law.mean + z * spread)
        expected = float(sums @ noise_tail(threshold - np.arange(law.sampled + 1), law.kappa))
        assert law.upper_tail(threshold).beyond(threshold) == pytest.approx(expected, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("z", [-1, 0, 1.5, 3, 5])
def test_equals_direct_convolution_without_sampling(z: float) -> None:
    law = NoisyCount(present=70_000, sampled=200_000, universe=200_000, p0=0.3, p1=0.7, kappa=0.04)
    ones = stats.binom.pmf(np.arange(70_001), 70_000, 0.7)
    others = stats.binom.pmf(np.arange(130_001), 130_000, 0.3)
    first = np.flatnonzero(ones > 1e-30)
    second = np.flatnonzero(others > 1e-30)
    sums = np.convolve(ones[first], others[second])
    threshold = math.floor(law.mean + z * math.sqrt(law.bits_variance + 2 / 0.04**2))
    expected = float(sums @ noise_tail(threshold - first[0] - second[0] - np.arange(sums.size), 0.04))
    assert law.upper_tail(threshold).beyond(threshold) == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_equals_direct_convolution_with_sampling() -> None:
    law = NoisyCount(present=4_000, sampled=5_000, universe=9_000, p0=0.25, p1=0.75, kappa=0.1)
    values = np.arange(5_001)
    sums = np.zeros(5_001)
    for x in range(2_000, 2_450):  # eleven standard deviations
        ones = stats.binom.pmf(values[: x + 1], x, 0.75)
        others = stats.binom.pmf(values[: 5_001 - x], 5_000 - x, 0.25)
        sums += stats.hypergeom.pmf(x, 9_000, 4_000, 5_000) * signal.fftconvolve(ones, others)
    for z in (0, 1, 3):
        threshold = math.floor(law.mean + z * math.sqrt(law.bits_variance + 200))
        expected = float(sums @ noise_tail(threshold - values, 0.1))
        assert law.upper_tail(threshold).beyond(threshold) == pytest.approx(expected, rel=1e-8)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_both_tails_make_one(data: st.DataObject) -> None:
    universe = data.draw(st.integers(1, 100_000))
    law = NoisyCount(
        present=data.draw(st.integers(0, universe)),
        sampled=data.draw(st.integers(1, universe)),
        universe=universe,
        p0=0.5 - (half := data.draw(st.floats(1e-4, 0.49999))),
        p1=0.5 + half,
        kappa=data.draw(st.floats(1e-3, 20.0)),
    )
    threshold = data.draw(st.integers(-50, law.sampled + 50))
    above = law.upper_tail(threshold).beyond(threshold)
    below = law.mirrored().upper_tail(law.sampled - threshold - 1).beyond(law.sampled - threshold - 1)
    assert above + below == pytest.approx(1.0, abs=1e-11)
    assert law.upper_tail(threshold + 1).beyond(threshold + 1) <= above * (1 + 1e-10)


def test_the_tilt_only_moves_the_precision() -> None:
    law = NoisyCount(present=3_000, sampled=8_000, universe=10_000, p0=0.3, p1=0.7, kappa=0.1)
    threshold = math.floor(law.mean + 100)
    values = [law.upper_tail(target).beyond(threshold) for target in (law.mean, law.mean + 60, law.mean + 150)]
    assert values == pytest.approx([values[0]] * 3, rel=1e-10)
