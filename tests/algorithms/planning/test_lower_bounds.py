"""Lower bounds against brute force, and against the errors of what is shipped."""

import math

import numpy as np
import pytest

from panstream.algorithms.auto import DistinctCount, TopItems
from panstream.algorithms.continual.sums import ContinualCount
from panstream.algorithms.density import DworkPair, OptBern, QuantisedLaplace
from panstream.algorithms.planning.lower_bounds import (
    continual_count_bound,
    independent_parts_bound,
    listed_names_bound,
)
from panstream.algorithms.turnstile import LegendreCounter
from panstream.errors import InvalidParameter


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_no_law_of_a_part_has_more_information(epsilon: float) -> None:
    """Random pairs of laws on five outcomes with likelihood ratios within e**epsilon: their chi-square is below."""
    rng = np.random.default_rng(1)
    best = 1.0 / independent_parts_bound(epsilon, 1).value ** 2
    assert best == pytest.approx((math.exp(epsilon) - 1) ** 2 / math.exp(epsilon))
    for _ in range(2_000):
        absent = rng.dirichlet(np.ones(5) * rng.choice([0.2, 1.0, 5.0]))
        low = -1.0
        high = 1.0
        wanted = rng.normal(size=5)
        for _ in range(60):  # ratios clipped to the allowed range, scaled so that they make a law
            shift = (low + high) / 2
            ratio = np.exp(np.clip(wanted + shift * (10 + epsilon), -epsilon, epsilon))
            low, high = (shift, high) if absent @ ratio < 1 else (low, shift)
        if abs(absent @ ratio - 1) < 1e-9:
            assert absent @ (ratio - 1) ** 2 <= best * (1 + 1e-9)


def test_what_is_shipped_lies_above() -> None:
    for epsilon in (0.5, 1.0, 2.0):
        floor = independent_parts_bound(epsilon, 20_000).value
        for kind in (OptBern, DworkPair, QuantisedLaplace):
            bits = kind(universe=20_000, epsilon=epsilon)
            assert 20_000 * bits.expected_estimate(20_000).standard_error > floor
        assert OptBern(universe=20_000, epsilon=epsilon, count=True).standard_error(20_000) < 1.25 * floor
        assert LegendreCounter(universe=20_000, epsilon=epsilon).error_bound(beta=0.3) > floor
        for expected in (1_000, 100_000):
            question = DistinctCount(epsilon, expected=expected, at_most=16 * expected)
            assert question.choice.error > independent_parts_bound(epsilon, expected).value
        for ticks in (1, 100, 1 << 20):
            count = ContinualCount(epsilon=epsilon, horizon=ticks)
            assert count.error_bound(beta=0.05) > continual_count_bound(epsilon, ticks).value
        for delta in (0.0, 1e-6):
            for size in (8, 64):
                names = TopItems(epsilon, delta=delta, max_item_bytes=size)
                assert names.listing_threshold > listed_names_bound(epsilon, delta, size).value


def test_the_packing_of_ticks_by_hand() -> None:
    """k events in one of T ticks: the bound is the k at which the probabilities of T disjoint answers reach beta."""
    for ticks, beta in ((10, 0.05), (1 << 20, 0.01)):
        k = 2 * continual_count_bound(0.7, ticks, beta).value
        assert ticks * (1 - beta) * math.exp(-0.7 * k) == pytest.approx(beta)


def test_the_packing_of_names_by_hand() -> None:
    """X events move the probability of a list by group privacy from w/D to 1 - beta."""
    for delta in (0.0, 1e-6, 1e-3):
        events = listed_names_bound(1.3, delta, 3, beta=0.1, wrong_names=0.2).value
        slack = delta / math.expm1(1.3)
        moved = math.exp(1.3 * events) * 0.2 / 256**3 + slack * math.expm1(1.3 * events)
        assert moved == pytest.approx(0.9)
    assert listed_names_bound(1.0, 0.0, 4096).value > 20_000


def test_wrong_numbers_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="epsilon"):
        independent_parts_bound(0.0, 10)
    with pytest.raises(InvalidParameter, match="ticks"):
        continual_count_bound(1.0, 0)
    with pytest.raises(InvalidParameter, match="max_item_bytes"):
        listed_names_bound(1.0, 0.0, 0)
