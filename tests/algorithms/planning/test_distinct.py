"""Planning functions are inverses of each other and agree with the algorithms."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.planning.distinct import (
    bitmap_buckets,
    bitmap_epsilon,
    bitmap_error,
    break_even_density,
)
from panstream.errors import InvalidParameter


@settings(max_examples=8, deadline=None)
@given(st.floats(1e2, 1e8), st.floats(0.2, 6.0), st.integers(6, 14))
def test_error_buckets_and_epsilon_are_inverses(users: float, epsilon: float, power: int) -> None:
    buckets = 1 << power
    error = bitmap_error(users, epsilon, buckets)
    assert bitmap_epsilon(users, error, buckets) == pytest.approx(epsilon, rel=1e-4)
    fewest = bitmap_buckets(users, error * (1 + 1e-9), epsilon)
    assert fewest <= buckets
    assert bitmap_error(users, epsilon, fewest) <= error * (1 + 1e-8)
    assert fewest == 1 or bitmap_error(users, epsilon, fewest - 1) > error


def test_error_is_that_of_the_algorithm() -> None:
    assert bitmap_error(10_000, 2.0) == Bitmap(epsilon=2.0).relative_error(10_000)
    assert bitmap_error(10_000, 2.0, releases=5) > bitmap_error(10_000, 2.0)
    assert bitmap_error(10_000, 2.0, announced=1) > bitmap_error(10_000, 2.0)


def test_impossible_targets_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="error must be at least"):
        bitmap_buckets(1000, 0.001, 1.0)
    with pytest.raises(InvalidParameter, match="error must be at least"):
        bitmap_epsilon(1e7, 0.001, 64)
    with pytest.raises(InvalidParameter, match="users must be positive and finite, got users=0"):
        bitmap_error(0, 1.0)


@pytest.mark.parametrize("epsilon", [1.0, 2.0])
def test_break_even_is_where_the_errors_meet(epsilon: float) -> None:
    universe = 100_000
    even = break_even_density(epsilon, universe)
    assert 0.09 < even < 0.15
    users = even * universe
    bits = OptBern(universe=universe, epsilon=epsilon).standard_error(users)
    best = min(users * bitmap_error(users, epsilon, int(users * part)) for part in (0.6, 0.8, 1.0, 1.3, 1.6))
    assert best == pytest.approx(bits, rel=0.02)
