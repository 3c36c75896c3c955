"""Closed forms of p-sum losses: inverse pairs, monotone, and the figures that the design states."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panstream.errors import InvalidParameter
from panstream.papers.as_printed.counters import (
    PublishedAverage,
    PublishedBinary,
    PublishedPointNoise,
    PublishedSimpleCounterI,
    PublishedVariance,
)
from panstream.privacy.continual_loss import (
    binary_levels,
    event_counter_memberships,
    segment_levels,
    tree_kappa,
)


@given(st.floats(1e-3, 50), st.integers(1, 64), st.integers(1, 1 << 30))
def test_loss_and_rate_are_inverse(epsilon, memberships, sensitivity):
    assert tree_kappa(epsilon, memberships, sensitivity) * memberships * sensitivity == pytest.approx(epsilon)


@given(st.integers(1, 1 << 50))
def test_levels(horizon):
    assert binary_levels(horizon) == math.floor(math.log2(horizon)) + 1 or horizon > 1 << 48
    assert 2 ** (binary_levels(horizon) - 1) <= horizon < 2 ** binary_levels(horizon)
    assert 2 ** segment_levels(horizon) >= horizon
    assert segment_levels(horizon) == 1 or 2 ** (segment_levels(horizon) - 1) < horizon
    one, several = (event_counter_memberships(horizon, one_step_ticks=flag) for flag in (True, False))
    assert segment_levels(horizon) <= one <= several <= 1 + segment_levels(horizon)
    assert event_counter_memberships(horizon + 1, one_step_ticks=False) >= several


def covers(horizon, one_step):
    """Return the largest number of moves by the two explicit constructions of the proof."""
    levels = segment_levels(horizon)
    top = 1 << (levels - 1)

    def pieces(number):  # dyadic segments that make up 0..number-1, none longer than half of all
        return number // top + (number % top).bit_count()

    before = max(1 + min(pieces(t), 1 + pieces(t + 1) if one_step else math.inf) for t in range(horizon))

    def suffix(t):  # segments that start at or after t and cover t..horizon-1
        count = 0
        while t < horizon:
            t += min(t & -t if t else top, top)
            count += 1
        return count

    return max(before, *(suffix(t) for t in range(horizon)))


@pytest.mark.parametrize("one_step", [False, True])
@pytest.mark.parametrize("horizon", [*range(1, 70), 127, 128, 129, 1000, 1024])
def test_event_counter_memberships_are_those_of_the_proof(horizon, one_step):
    assert event_counter_memberships(horizon, one_step_ticks=one_step) == covers(horizon, one_step)


def test_published_losses_as_designed():
    shared = {"horizon": 1024, "bound": 100}
    assert [PublishedBinary(epsilon=1.0, horizon=t).output_loss for t in (2, 8, 64)] == pytest.approx(
        [2.0, 4 / 3, 7 / 6]
    )
    assert PublishedAverage(epsilon=0.5, **shared).output_loss == pytest.approx(55.55 * 0.5)
    assert PublishedVariance(epsilon=1.0, **shared).output_loss == pytest.approx(5557.2)
    assert PublishedPointNoise(epsilon=0.1, **shared).output_loss == pytest.approx(10.0)
    assert PublishedSimpleCounterI(epsilon=0.1, horizon=50).output_loss == pytest.approx(5.0)


def test_bad_parameters_are_named():
    for call in (lambda: binary_levels(0), lambda: segment_levels(-1)):
        with pytest.raises(InvalidParameter, match="must be at least 1"):
            call()
    with pytest.raises(InvalidParameter, match="epsilon must be positive"):
        tree_kappa(0.0, 1)


@pytest.mark.parametrize("kind", [PublishedBinary, PublishedAverage, PublishedVariance])
def test_one_step_has_no_logarithm_to_divide_by(kind):
    for horizon in (1, 0):
        with pytest.raises(InvalidParameter, match="horizon must be in 2"):
            kind(epsilon=1.0, horizon=horizon)


def test_one_unit_unless_more_is_said() -> None:
    assert tree_kappa(1.5, 3) == tree_kappa(1.5, 3, 1) == 0.5
