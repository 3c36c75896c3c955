"""Decayed sums: weights as exponentials against the weights themselves, variances against brute force."""

import math

import numpy as np
import pytest

from panstream.algorithms.continual.decayed_sum import DecayedSum, _exponential_terms
from panstream.errors import InvalidParameter
from panstream.primitives.noise import SeededSource


@pytest.mark.parametrize("slots", [1 << 10, 1 << 20])
@pytest.mark.parametrize("rate", [0.05, 0.3, 0.5, 1.0, 2.0, 7.5, 20.0])
def test_exponentials_add_up_to_the_polynomial_weights(rate, slots):
    terms = _exponential_terms("polynomial", rate, slots)
    ages = np.unique(np.concatenate([np.arange(1, 60), np.geomspace(60, slots - 1, 80).astype(np.int64)]))
    for weights, exponent in ((terms.weights, rate), (terms.squared, 2 * rate)):
        exact = (1.0 + ages) ** -exponent
        got = np.array([(weights * terms.decays ** float(age)).sum() for age in ages])
        seen = exact > 1e-250
        assert np.abs(got[seen] / exact[seen] - 1).max() < 1e-9


@pytest.mark.parametrize("one_step_ticks", [False, True])
@pytest.mark.parametrize(("decay", "rate"), [("exponential", 0.8), ("polynomial", 0.7), ("polynomial", 0.5)])
def test_variance_is_the_sum_of_squared_weights(decay, rate, one_step_ticks):
    algorithm = DecayedSum(epsilon=1.0, decay=decay, rate=rate, one_step_ticks=one_step_ticks)
    ages = np.arange(200)
    weights = rate**ages if decay == "exponential" else (1.0 + ages) ** -rate
    errors = algorithm.start().tick_many(np.zeros(200, np.int64)).standard_error
    draws = 1 if one_step_ticks else 2
    exact = draws * np.cumsum(weights**2)
    assert np.allclose(errors**2, exact * algorithm.law.variance, rtol=1e-8)
    assert algorithm._powered_weights(np.arange(1, 201), 2) == pytest.approx(exact / draws)
    late, later = algorithm._powered_weights(np.array([5000, 10**6]), 2)
    assert later >= late


@pytest.mark.parametrize(("decay", "rate"), [("exponential", 0.8), ("polynomial", 0.7), ("polynomial", 1.0)])
def test_a_decayed_sum_of_full_slots_is_possible_and_hardly_less_than_the_bound(decay, rate):
    algorithm = DecayedSum(epsilon=math.inf, decay=decay, rate=rate, one_step_ticks=True, upper=3)
    answers = algorithm.start().tick_many(np.full(6000, 3))
    assert np.array_equal(answers.value, answers.unclipped)
    assert answers.support[0].max() == 0.0
    assert answers.support[1] == pytest.approx(answers.value, rel=2e-4)


def test_a_refresh_is_forgotten_like_everything_else():
    quiet, seen = (DecayedSum(epsilon=1.0, decay="exponential", rate=0.5).start() for _ in range(2))
    seen.refresh()
    first, later = (m.tick_many(np.zeros(30, np.int64)).standard_error for m in (quiet, seen))
    law = quiet.algorithm.law
    assert later[0] ** 2 - first[0] ** 2 == pytest.approx(law.variance)
    assert later[29] == pytest.approx(first[29], rel=1e-6)


def test_error_over_all_time():
    assert DecayedSum(epsilon=1.0, decay="polynomial", rate=0.5).error_bound(beta=0.1) == math.inf
    assert DecayedSum(epsilon=1.0, decay="polynomial", rate=0.5, horizon=1000).error_bound(beta=0.1) < math.inf
    for decay, rate in (("exponential", 0.9), ("polynomial", 1.0)):
        algorithm = DecayedSum(epsilon=1.0, decay=decay, rate=rate)
        bound = algorithm.error_bound(beta=0.01)
        assert bound >= algorithm.error_bound(beta=0.01, ticks=1000)
        values = algorithm.tick_many(
            algorithm.initial_state(SeededSource(5)), np.zeros(20_000, np.int64), SeededSource(6)
        ).unclipped
        assert float((np.abs(values) > bound).mean()) < 0.01


@pytest.mark.parametrize(
    ("decay", "rate"), [("exponential", 1.0), ("exponential", 0.0), ("polynomial", 0.01), ("linear", 0.5)]
)
def test_rates_out_of_range_are_refused(decay, rate):
    with pytest.raises(InvalidParameter):
        DecayedSum(epsilon=1.0, decay=decay, rate=rate)
