"""Drawn distributions lose at most the claimed loss, to the last digit: computed with 90 digits, independently."""

import math
import random
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest

from panstream import (
    ContinualCount,
    ContinualMean,
    ContinualSum,
    CroppedMean,
    DecayedSum,
    HeavyFraction,
    HeavyHitterCount,
    WindowedSum,
)
from panstream.algorithms.density import DworkPair, OptBern, QuantisedLaplace
from panstream.algorithms.distinct import Bitmap, TogglingBitmap
from panstream.algorithms.turnstile import BlockCounter, LegendreCounter, ProfileSketch
from panstream.papers.counters.binary import BinaryMechanism
from panstream.papers.counters.event_counter import EventCounter
from panstream.papers.counters.hybrid import HybridMechanism
from panstream.papers.counters.logarithmic import LogarithmicMechanism
from panstream.papers.counters.simple_counters import SimpleCounterI
from panstream.privacy import rounding

random_ = random.Random(20_260_418)
EPSILONS = [0.1, 0.2, 0.3, 0.7, 1 / 3, math.log(2), math.log(3), 1.0, 2.0, 7.0] + [
    math.exp(random_.uniform(math.log(0.02), math.log(12.0))) for _ in range(240)
]


def decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def kappa_of(law: Any) -> Fraction:
    return Fraction(law.numerator, 1 << 52)


def bits_loss(law: Any, releases: int, announced: int) -> Decimal:
    """k·ln(p1/p0) + ln(p1/p0) + ln(1 - p1 + p1·e**(n·kappa)) of the coins that are tossed."""
    p1 = law.present.probability
    p0 = law.absent.probability
    output = decimal(1 - p1) + decimal(p1) * decimal(releases * kappa_of(law.noise)).exp()
    return (announced + 1) * decimal(p1 / p0).ln() + output.ln()


def pair_loss(law: Any, releases: int, announced: int) -> Decimal:
    """Every history of one bit, every sign of the outputs, in either order."""
    p0 = decimal(law.absent.probability)
    p1 = decimal(law.present.probability)
    worst = Decimal(1)
    for sign in (1, -1):
        growth = (sign * decimal(releases * kappa_of(law.noise))).exp()
        for seen in (0, 1):
            weights = []
            for first in (p0, p1):
                shown = first if seen else 1 - first
                weights += [shown * (growth if seen else 1), *(shown * (1 - q + q * growth) for q in (p0, p1))]
            worst = max(worst, max(weights) / min(weights))
    return worst.ln() + announced * max(p1 / p0, (1 - p0) / (1 - p1)).ln()


def counter_loss(counter: Any) -> Decimal:
    users = 2 if counter.adjacency == "replace" else 1
    moved = counter.releases * counter.sensitivity * kappa_of(counter.law.noise)
    return users * (decimal(counter.law.start.ratio).ln() + decimal(moved))


def toggled_loss(bitmap: Any) -> Decimal:
    law = bitmap.law
    state = decimal(law.present.probability / law.absent.probability).ln()
    return (bitmap.announced + 1) * state + decimal(bitmap.releases * kappa_of(law.noise))


def tree_loss(tree: Any, epoch: int = 0) -> Decimal:
    rows = tree.engine.shape(epoch).rows
    contributions = tree.contributions or 1
    return decimal(rows * tree.sensitivity * contributions * kappa_of(tree.engine.law(epoch)))


def slots_loss(counter: Any) -> Decimal:
    return decimal(counter.memberships * counter.sensitivity * kappa_of(counter.law))


FAMILIES: dict[str, Any] = {
    "OptBern": lambda e: (OptBern(universe=1000, epsilon=e), lambda a: bits_loss(a.law, 1, 0)),
    "OptBern, 5 releases, 2 announced": lambda e: (
        OptBern(universe=77, epsilon=e, releases=5, announced=2),
        lambda a: bits_loss(a.law, 5, 2),
    ),
    "QuantisedLaplace": lambda e: (
        QuantisedLaplace(universe=50, epsilon=e, releases=3, announced=1),
        lambda a: bits_loss(a.law, 3, 1),
    ),
    "DworkPair": lambda e: (
        DworkPair(universe=50, epsilon=min(e, 3.9), releases=2),
        lambda a: pair_loss(a.law, 2, 0),
    ),
    "CroppedMean": lambda e: (
        CroppedMean(universe=50, epsilon=e, crop=3),
        lambda a: bits_loss(a.presence.law, 1, 0),
    ),
    "HeavyFraction": lambda e: (
        HeavyFraction(universe=50, epsilon=e, threshold=4),
        lambda a: bits_loss(a.high.presence.law, 1, 0) + bits_loss(a.low.presence.law, 1, 0),
    ),
    "HeavyFraction, bracket": lambda e: (
        HeavyFraction(universe=50, epsilon=e, threshold=20),
        lambda a: sum(bits_loss(each.presence.law, 1, 0) for each in (a.low, a.high, a.beyond)),
    ),
    "Bitmap": lambda e: (Bitmap(epsilon=e, buckets=64, levels=4, releases=7), lambda a: bits_loss(a.law, 7, 0)),
    "Bitmap, 1 announced": lambda e: (
        Bitmap(epsilon=e, epsilon_state=0.3 * e, buckets=64, levels=4, announced=1),
        lambda a: bits_loss(a.law, 1, 1),
    ),
    "TogglingBitmap": lambda e: (
        TogglingBitmap(epsilon=e, epsilon_state=0.3 * e, buckets=64, levels=4, releases=3, announced=1),
        toggled_loss,
    ),
    "LegendreCounter": lambda e: (LegendreCounter(epsilon=e, universe=100, releases=3), counter_loss),
    "LegendreCounter, replace": lambda e: (
        LegendreCounter(epsilon=e, universe=100, releases=3, adjacency="replace"),
        counter_loss,
    ),
    "BlockCounter": lambda e: (BlockCounter(epsilon=e, universe=100, crop=3, releases=7), counter_loss),
    "HeavyHitterCount": lambda e: (HeavyHitterCount(epsilon=e, universe=100, threshold=4), counter_loss),
    "ProfileSketch": lambda e: (ProfileSketch(epsilon=e, universe=100, largest=5), counter_loss),
    "ContinualCount": lambda e: (ContinualCount(epsilon=e, horizon=365), tree_loss),
    "ContinualSum": lambda e: (ContinualSum(epsilon=e, horizon=30, lower=0.0, upper=1.0, contributions=7), tree_loss),
    "ContinualMean": lambda e: (ContinualMean(epsilon=e, horizon=30, lower=0.0, upper=1.0), tree_loss),
    "ContinualCount for ever": lambda e: (ContinualCount(epsilon=e, horizon=None), lambda a: tree_loss(a, 5)),
    "BinaryMechanism": lambda e: (BinaryMechanism(epsilon=e, horizon=1000), slots_loss),
    "EventCounter": lambda e: (EventCounter(epsilon=e, horizon=1000), slots_loss),
    "SimpleCounterI": lambda e: (SimpleCounterI(epsilon=e, horizon=7), slots_loss),
    "WindowedSum": lambda e: (WindowedSum(epsilon=e, window=24), slots_loss),
    "LogarithmicMechanism": lambda e: (LogarithmicMechanism(epsilon=e), slots_loss),
    "DecayedSum": lambda e: (DecayedSum(epsilon=e, decay="exponential", rate=0.9), slots_loss),
}


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_drawn_loses_at_most_what_is_claimed(family: str) -> None:
    with localcontext(Context(prec=90)):
        for epsilon in EPSILONS:
            algorithm, loss = FAMILIES[family](epsilon)
            claimed = Decimal(algorithm.claim().epsilon)
            drawn = loss(algorithm)
            assert drawn <= claimed, f"epsilon {epsilon!r}: drawn above claimed by {float(drawn - claimed):.2g}"
            assert drawn > claimed * (1 - Decimal("1e-6"))  # and nothing is given away, rates being multiples of 2**-52


@pytest.mark.parametrize("sites", [2, 3])
def test_a_merged_bitmap_claims_more_than_its_closed_form(sites: int) -> None:
    with localcontext(Context(prec=90)):
        for epsilon in EPSILONS[:120]:
            each = Bitmap(epsilon=epsilon, buckets=16, levels=2)
            merged = each.start()
            for _ in range(sites - 1):
                merged = merged.merge(each.start())
            law = merged.algorithm.law
            states = merged.algorithm.sites
            odds = [(-Decimal(state)).exp() for state in states]
            high = 1 / (2 - math.prod(1 - each for each in odds))
            low = high * odds[0]
            output = low + (1 - low) * decimal(kappa_of(law.noise)).exp()
            true = (sites - 1) * Decimal(states[0]) + (output / odds[0]).ln()
            claimed = Decimal(merged.claim().epsilon)
            assert true < claimed < true + Decimal("1e-9")


def test_parts_add_up_to_no_less_than_the_claim() -> None:
    for epsilon in EPSILONS:
        for algorithm in (OptBern(universe=100, epsilon=epsilon), LegendreCounter(epsilon=epsilon, universe=100)):
            claim = algorithm.claim()
            assert claim.epsilon == epsilon
            assert sum(map(Fraction, claim.parts.values())) >= Fraction(epsilon)


def test_hybrid_halves_are_exact() -> None:
    for epsilon in EPSILONS:
        assert sum(HybridMechanism(epsilon=epsilon).claim().parts.values()) == epsilon


def test_rounding_goes_to_the_side_it_says() -> None:
    third = Fraction(1, 3)
    assert Fraction(rounding.round_down(third)) < third < Fraction(rounding.round_up(third))
    assert math.nextafter(rounding.round_down(third), 1.0) == rounding.round_up(third)
    assert rounding.round_up(Fraction(1, 4)) == rounding.round_down(Fraction(1, 4)) == 0.25
    assert rounding.times_rounded_up(0.1, 3) > 0.3 == rounding.round_down(Fraction(3, 10))
    assert (
        rounding.sum_rounded_up([1.0, math.inf])
        == rounding.times_rounded_up(math.inf, 2)
        == rounding.remainder(math.inf, 1.0)
        == math.inf
    )
    assert rounding.log_up(Fraction(1)) > 0.0
    assert rounding.log_down(Fraction(1)) == 0


@pytest.mark.parametrize("ratio", [Fraction(1 + 10**20, 10**20), Fraction(3, 2), Fraction(20, 7), Fraction(10**9)])
def test_a_logarithm_rounded_down_is_within_two_hairs(ratio: Fraction) -> None:
    with localcontext(prec=120):
        exact = Fraction((Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln())
    assert 0 < exact - rounding.log_down(ratio) < 2 * rounding.HAIR * max(exact, Fraction(1))
    assert 0 < Fraction(rounding.log_up(ratio)) - exact < exact * Fraction(1, 1 << 52)
