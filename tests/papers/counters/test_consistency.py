"""Consistent answers: the rule of 3.1.1 against a literal twin, and the drift that its documentation admits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.errors import InvalidParameter
from panstream.papers.counters.binary import BinaryMechanism
from panstream.papers.counters.consistency import ConsistentCount, _consistent


def literal(values, most):
    out = []
    last = 0
    for value in values:
        rounded = round(value)
        if rounded > last:
            last += min(most, rounded - last)
        out.append(last)
    return out


@settings(deadline=None)
@given(st.lists(st.integers(-50, 50).map(lambda n: n + 0.25)), st.integers(1, 9))
def test_it_does_what_the_paper_says(values, most):
    got = _consistent(np.array(values, float), most)
    assert got.tolist() == literal(values, most)
    steps = np.diff(got, prepend=0)
    assert ((steps >= 0) & (steps <= most)).all()


def test_answers_are_followed_one_by_one():
    monitor = BinaryMechanism(epsilon=0.5, horizon=64, max_events=3).start()
    noisy = monitor.tick_many([3, 0, 1] * 21)
    single = ConsistentCount(max_increase=3)
    one_by_one = [single.follow(noisy[i]) for i in range(len(noisy))]
    assert [e.value for e in one_by_one] == _consistent(noisy.unclipped, 3).tolist()
    assert one_by_one[5].unbiased == noisy.unclipped[5]
    low, high = noisy[5].interval(0.9)
    value = one_by_one[5].value  # the interval reaches as far as the value, where that lies outside
    assert one_by_one[5].interval(0.9) == pytest.approx((min(low, value), max(high, value)))
    assert one_by_one[5].claim == noisy.claim  # post-processing is free


def test_it_ratchets_upwards_on_an_empty_stream():
    """Noise of standard deviation 8.5 on 512 empty slots of up to 3 ends near 28, not near 0: the documented figure."""
    noise = np.random.default_rng(0).laplace(0, 8.5 / np.sqrt(2), (4000, 512))
    ends = np.array([_consistent(row, 3)[-1] for row in noise])
    assert 27.9 < ends.mean() < 29.1


def test_the_increase_must_be_positive():
    for call in (lambda: _consistent(np.zeros(1), 0), lambda: ConsistentCount(max_increase=0)):
        with pytest.raises(InvalidParameter, match="max_increase must be at least 1"):
            call()
