"""Private choices have exactly the law of the exponential mechanism and of permute-and-flip, without overflow."""

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.primitives.kernels.noise.private_selection import accept_uniform, permute_and_flip
from panstream.primitives.noise import NoiseSource, SeededSource, SelectionRate
from tests.statistical import assert_fits

N = 12_000
LOWEST = np.iinfo(np.int64).min
HIGHEST = np.iinfo(np.int64).max


def permute_and_flip_law(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Over all orders of visiting: the first head."""
    law = np.zeros(weights.size)
    for order in itertools.permutations(range(weights.size)):
        going = 1.0
        for index in order:
            law[index] += going * weights[index]
            going *= 1.0 - weights[index]
    return law / math.factorial(weights.size)


@pytest.mark.slow
@pytest.mark.parametrize("utilities", [(0, 1, 2, 3), (5, 5, 5), (-7, 100, 98, 90, 100), (3,)], ids=str)
@pytest.mark.parametrize("rate", [0.0, 0.4, 3.0])
def test_choices_fit_their_law(utilities: tuple[int, ...], rate: float) -> None:
    values = np.array(utilities, np.int64)
    weights = np.exp(rate * (values - values.max()))
    preference = SelectionRate.at_most(rate)
    with NoiseSource() as rng:
        exponential = [rng.exponential(values, preference) for _ in range(N // 4)]
        flipped = [rng.permute_and_flip(values, preference) for _ in range(N // 4)]
    size = values.size
    assert_fits(np.bincount(exponential, minlength=size), weights / weights.sum() * (N // 4), "exponential")
    assert_fits(np.bincount(flipped, minlength=size), permute_and_flip_law(weights) * (N // 4), "permute and flip")


@pytest.mark.parametrize("choose", ["exponential", "permute_and_flip"])
def test_the_whole_range_of_integers_and_rates(choose: str) -> None:
    wide = np.array([LOWEST, 0, HIGHEST, HIGHEST - 1], np.int64)
    with NoiseSource() as rng:
        call = getattr(rng, choose)
        assert {call(wide, SelectionRate.at_most(math.inf)) for _ in range(50)} == {2}
        assert {call(wide, SelectionRate.at_most(1e6)) for _ in range(50)} == {2}
        assert {call(wide, SelectionRate.at_most(1000.0)) for _ in range(50)} == {2}
        assert {call(wide, SelectionRate.at_most(1e-30)) for _ in range(200)} == {0, 1, 2, 3}
        assert {call(wide, SelectionRate.at_most(2.0**-50)) for _ in range(200)} == {2, 3}
        assert {call(np.full(3, LOWEST), SelectionRate.at_most(math.inf)) for _ in range(100)} == {0, 1, 2}


def test_many_candidates_cost_little() -> None:
    utilities = np.zeros(200_000, np.int64)
    utilities[137] = 10**6
    with NoiseSource() as rng:
        assert rng.exponential(utilities, SelectionRate.at_most(0.001)) == 137
        assert rng.permute_and_flip(utilities, SelectionRate.at_most(0.001)) == 137


def test_running_out_of_words_replays_the_same_choice() -> None:
    exponents = (np.array([0, 3, 9, 40], np.uint64)) << np.uint64(51)
    bits = np.uint64(52)
    for seed in range(40):
        with SeededSource(seed) as rng:
            words = rng._words(500).copy()
        for again in (True, False):
            order = np.arange(4)
            state = np.zeros(2, np.int64)
            args = (exponents, state) if again else (exponents, order, state)
            kernel = accept_uniform if again else permute_and_flip
            done, _ = kernel(*args, bits, words)
            whole = int(state[0])
            assert done == 1
            order[:] = np.arange(4)
            state[:] = 0
            at = 0
            given = 1
            done = 0
            while not done:
                done, used = kernel(*args, bits, words[at : at + given])
                at = at + used
                given = 1 if used else given + 1
            assert int(state[0]) == whole


def test_bad_parameters_are_named() -> None:
    with pytest.raises(InvalidParameter, match="rate must be at least 0"):
        SelectionRate.at_most(-0.1)
    with NoiseSource() as rng, pytest.raises(InvalidParameter, match="must not be empty"):
        rng.exponential(np.empty(0, np.int64), SelectionRate.at_most(1.0))


@pytest.mark.parametrize("again", [True, False])
def test_differences_that_do_not_fit_in_a_word_are_still_differences(again: bool) -> None:
    """2**40 units of 2**30/2**52: e to the minus 2**18 is never; the product 2**70 would be 0 if it wrapped around."""
    utilities = np.array([0, -(1 << 40), -(1 << 62)], np.int64)
    for seed in range(40):
        with SeededSource(seed) as rng:
            choose = rng.exponential if again else rng.permute_and_flip
            assert choose(utilities, SelectionRate(1 << 30)) == 0
