"""Intervals of the density: the truths whose law does not reject what was released, by integrals and convolutions."""

import math
from functools import cache

import numpy as np
import pytest
from scipy import integrate, stats

from panstream import Monitor
from panstream.algorithms.density.optbern import OptBern
from panstream.core.estimate import Estimate
from tests.exact_law import ReleaseLaw, bits


def tail(deviation: float, sigma: float, kappa: float) -> float:
    """Return P(Normal(0, sigma) + Laplace(1/kappa) > deviation)."""

    def part(x: float) -> float:
        return float(stats.norm.pdf(x, 0, sigma) * stats.laplace.sf(deviation - x, 0, 1 / kappa))

    found, _ = integrate.quad(part, -9 * sigma, 9 * sigma, points=[deviation], limit=200)
    return float(found)


def spread(counter: OptBern, density: float, phases: int = 0) -> tuple[float, float]:
    """Return sigma of the decoded bits and kappa of the decoded noise at a density, bit by bit."""
    p0 = counter.law.p0
    p1 = counter.law.p1
    gap = p1 - p0

    def second(p: float) -> float:  # of a decoded bit that is 1 with chance p
        return (p * (p1 - 1) ** 2 + (1 - p) * p1**2) / gap**2

    absent = second(p0) ** (phases + 1) - 1  # decoded, somebody absent is 1
    present = second(p1) * second(p0) ** phases
    weights = ((p1**2 + (p1 - 1) ** 2) / gap**2) ** phases
    sigma = math.sqrt((density * present + (1 - density) * absent) / counter.cells)
    return sigma, counter.law.noise.kappa * gap * counter.cells / math.sqrt(weights)


@pytest.mark.parametrize("announced", [0, 1])
def test_an_end_of_the_interval_rejects_half_of_what_is_left(announced: int) -> None:
    counter = OptBern(universe=4000, epsilon=3.0, announced=announced)
    p0 = counter.law.p0
    p1 = counter.law.p1
    sizes = np.array([4000 - round(4000 * p0), round(4000 * p0)]) if announced else np.array([4000])
    said = counter._decode(tuple(round(size * (p0 + p1) / 2) for size in sizes), sizes, announced)
    step = 0.5 / (counter.cells * (p1 - p0))
    for level in (0.5, 0.95):
        for end in said.interval(level):
            sigma, kappa = spread(counter, end, announced)
            assert 2 * math.hypot(sigma, math.sqrt(2) / kappa) < min(end, 1 - end)
            assert tail(abs(end - said.unbiased) - step, sigma, kappa) == pytest.approx((1 - level) / 2, rel=1e-3)


@pytest.mark.parametrize("side", ["low", "high"])
def test_sides_are_alike_until_two_standard_deviations_from_an_end(side: str) -> None:
    """With few users much of the spread is the noise's, which counts with its own standard deviation."""
    counter = OptBern(universe=24, epsilon=3.0)
    alike = 0
    nearer = 0
    _, kappa = spread(counter, 0.5)
    for inwards in np.linspace(0.2, 0.7, 161):
        density = float(inwards if side == "low" else 1 - inwards)
        low, high = counter._interval(density, 0, kappa, 0.8)
        end = low if side == "low" else high
        room = end if side == "low" else 1 - end
        sigma, _ = spread(counter, end)
        off = abs(end - density) - 0.5 / (counter.cells * (counter.law.p1 - counter.law.p0))
        apart = room / math.hypot(sigma, math.sqrt(2) / kappa)
        if 2.0 < apart < 2.1:
            assert tail(off, sigma, kappa) == pytest.approx(0.1, rel=2e-3)
            alike += 1
        elif 1.7 < apart < 1.9:  # this end gets a part of what the other, outside of 0 to 1, would reject
            assert 0.101 < tail(off, sigma, kappa) < 0.2
            nearer += 1
    assert min(alike, nearer) >= 3


def test_no_side_misses_more_often_than_it_may() -> None:
    """Releases are whole numbers; half a step of the estimate keeps both sides safe, wherever the truth lies."""
    counter = OptBern(universe=40, epsilon=2.0)
    p0 = counter.law.p0
    p1 = counter.law.p1

    @cache
    def said(ones: int) -> Estimate:
        return counter._decode((ones,), np.array([40]), 0)

    for present in (17, 20, 22):
        law = ReleaseLaw.of(bits({p1: present, p0: 40 - present}), counter.law.noise.kappa, said, present / 40)
        for level in (0.5, 0.8):
            assert max(law.misses(level)) <= (1 - level) / 2


def test_without_noise_an_interval_is_its_value() -> None:
    monitor = Monitor(OptBern(universe=8, epsilon=math.inf))
    monitor.update([1, 2, 5])
    assert monitor.release().interval(0.99) == pytest.approx((3 / 8, 3 / 8), abs=1e-6)
