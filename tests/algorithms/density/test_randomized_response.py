"""Randomised response: exact loss of the shipped draws, estimator against the binomial law, refusals."""

import math
from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy import stats

from panstream.algorithms.density import RandomizedResponse
from panstream.errors import InvalidBatch, InvalidParameter
from panstream.primitives.noise import NoiseSource
from panstream.testing.sources import outcomes


def _law(draw, answers):
    law = Counter()
    for weight, responses in outcomes(lambda rng: tuple(int(bit) for bit in draw(answers, rng))):
        law[responses] += weight
    return law


def _loss(draw, count):
    """Return the largest log ratio of any view, over all answers of which one is exchanged."""
    worst = 0.0
    for answers in product((0, 1), repeat=count):
        for row in range(count):
            other = list(answers)
            other[row] = 1 - other[row]
            first = _law(draw, list(answers))
            second = _law(draw, other)
            for view, weight in first.items():
                worst = max(worst, math.inf if not second[view] else float(math.log(weight / second[view])))
    return worst


def _shared_coin(survey):
    def draw(answers, rng):
        flip = rng.bernoulli(survey.coins[0], 1)[0]
        return np.array(answers, np.uint8) ^ flip

    return draw


@pytest.mark.parametrize("epsilon", [math.log(3), 1.0, 0.1])
def test_loss_is_exactly_epsilon(epsilon):
    survey = RandomizedResponse(epsilon=epsilon)
    assert _loss(survey.draw, 2) == pytest.approx(epsilon, abs=1e-12)
    assert _loss(survey.draw, 2) <= survey.claim().epsilon + 1e-15


def test_a_coin_shared_by_two_answers_has_no_finite_loss():
    assert _loss(_shared_coin(RandomizedResponse()), 2) == math.inf


def test_the_default_is_two_fair_coins():
    absent, present = RandomizedResponse().coins
    assert abs(absent.probability - Fraction(1, 4)) < Fraction(1, 1 << 54)
    assert abs(present.probability - Fraction(3, 4)) < Fraction(1, 1 << 54)


@pytest.mark.parametrize("yes", [0, 7, 40, 200])
@pytest.mark.parametrize("epsilon", [math.log(3), 0.4])
def test_intervals_cover_by_the_exact_law(yes, epsilon):
    """Coverage by the convolution of the two binomial laws, not by simulation."""
    survey = RandomizedResponse(epsilon=epsilon)
    absent, present = (float(coin) for coin in survey.coins)
    count = 200
    truth = yes / count
    law = np.convolve(
        stats.binom.pmf(np.arange(yes + 1), yes, present),
        stats.binom.pmf(np.arange(count - yes + 1), count - yes, absent),
    )
    estimates = [survey.estimate_from_count(ones, count) for ones in range(count + 1)]
    mean = sum(p * e.unclipped for p, e in zip(law, estimates, strict=True))
    deviation = math.sqrt(sum(p * (e.unclipped - truth) ** 2 for p, e in zip(law, estimates, strict=True)))
    assert mean == pytest.approx(truth, abs=1e-9)
    assert deviation == pytest.approx(survey.standard_error(count), rel=1e-9)
    for level in (0.5, 0.95, 0.99):
        inside = [e.interval(level)[0] <= truth <= e.interval(level)[1] for e in estimates]
        assert float(law[inside].sum()) >= level - 0.002
    bound = survey.error_bound(count, beta=0.05)
    assert float(law[[abs(e.unclipped - truth) > bound for e in estimates]].sum()) <= 0.052


def test_responses_estimate_the_fraction():
    """Wrong with probability below 1e-6: five standard errors."""
    survey = RandomizedResponse()
    answers = np.repeat([1, 0], [3000, 7000])
    for form in (answers, answers.tolist()):
        responses = survey.randomize(form)
        assert responses.dtype == np.uint8
        assert sum(form) == 3000
        assert abs(survey.estimate(responses).value - 0.3) < 5 * survey.standard_error(10_000)
    exact = RandomizedResponse(epsilon=math.inf)
    assert exact.estimate(exact.randomize(answers)).interval() == (0.3, 0.3)
    assert exact.claim().note


def test_wrong_input_is_refused():
    survey = RandomizedResponse()
    with NoiseSource() as rng, pytest.raises(InvalidBatch, match="row 1: answers must be between 0 and 1"):
        survey.draw([0, 81034821], rng)
    with pytest.raises(InvalidBatch, match="row 0: responses must be"):
        survey.estimate([2])
    with pytest.raises(InvalidParameter, match="count must be at least 1"):
        survey.estimate([])
    with pytest.raises(InvalidParameter, match="epsilon"):
        RandomizedResponse(epsilon=0.0)
