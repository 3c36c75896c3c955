"""Gaussian noise from candidates has exactly its law, and takes as many words whatever is drawn."""

import itertools
import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from panstream.primitives.kernels.noise import gaussian_rejection as candidate_draws
from panstream.primitives.kernels.noise.gaussian_rejection import _exponential, add_from_candidates
from panstream.primitives.noise import DiscreteGaussian, NoiseSource
from panstream.primitives.noise._gaussian_rejection import (
    TAIL_BITS,
    TAIL_SHIFT,
    WORDS,
    _acceptance,
    candidates_of,
    resolve_draw,
)
from panstream.primitives.noise.distributions import RATE_BITS, exp_fraction
from tests.statistical import assert_fits

N = 100_000
PIECE = 10_000
DIRECT = [DiscreteGaussian.at_least(sigma) for sigma in (1 / 32, 0.3, 4.2, 127.0)]
BLOCKS = [DiscreteGaussian.at_least(sigma) for sigma in (129.0, 255.0, 2e3, 2.0**20)]
LAWS = DIRECT + BLOCKS
TOP = (1 << 64) - 1
IN_TAIL = ((1 << TAIL_BITS) - 1) << TAIL_SHIFT


def weight(law: DiscreteGaussian, size: int) -> Fraction:
    if size == 0:
        return Fraction(1, 2)
    return exp_fraction(Fraction(-(law.numerator or 0) * size**2, 1 << RATE_BITS))


def exact(law: DiscreteGaussian, size: int) -> Fraction:
    """Return the chance that a candidate of this size is accepted, by the definition."""
    drawn = candidates_of(law)
    return weight(law, size) * drawn.scale / drawn.counts[size >> drawn.block_bits]


def of_words(law: DiscreteGaussian, words: list[int]) -> tuple[int, bool]:
    """Return the noise that the kernel adds for candidates of these words, and whether it leaves the draw open."""
    drawn = candidates_of(law)
    value = np.full(1, 1 << 40, np.int64)
    undecided = np.zeros(1, np.int64)
    count = add_from_candidates(
        value,
        np.array(words, np.uint64),
        drawn.starts,
        drawn.high,
        drawn.low,
        np.uint64(law.numerator or 0),
        np.uint64(drawn.block_bits),
        len(words) // WORDS,
        undecided,
    )
    return int(value[0]) - (1 << 40), bool(count)


def candidate(
    law: DiscreteGaussian, size: int, accept: int, *, negative: bool = False, last: bool = False
) -> list[int]:
    """Return words of a candidate: the first or last word of its block, and 128 bits to accept it."""
    drawn = candidates_of(law)
    block, step = divmod(size, 1 << drawn.block_bits)
    word = int(drawn.starts[block + 1]) - 1 if last else int(drawn.starts[block])
    return [word << 1 | negative, step, accept >> 64, accept & TOP]


def sizes(law: DiscreteGaussian) -> list[int]:
    """Return sizes at the ends and in the middle of blocks throughout."""
    drawn = candidates_of(law)
    width = 1 << drawn.block_bits
    blocks = range(0, len(drawn.counts), 1 + len(drawn.counts) // 40)
    offsets = sorted({0, 1 % width, width // 3, width - 1})
    return [block * width + offset for block in blocks for offset in offsets]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_no_chance_is_above_one_and_every_word_has_one_meaning(law: DiscreteGaussian) -> None:
    drawn = candidates_of(law)
    assert drawn.starts.tolist() == [0, *itertools.accumulate(drawn.counts)]
    assert sum(drawn.counts) < 1 << 63
    assert min(drawn.counts) > 0
    assert all(exact(law, size) <= 1 for size in sizes(law))
    first = 1 if drawn.block_bits else 0  # 0 has half the weight of a size that is so near to it
    assert all(exact(law, block << drawn.block_bits or first) <= 1 for block in range(len(drawn.counts)))
    assert drawn.tail_bits <= TAIL_SHIFT and TAIL_SHIFT + TAIL_BITS < 64  # no bit is used twice


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_tail_begins_where_its_chances_are_below_one_and_stay_there(law: DiscreteGaussian) -> None:
    drawn = candidates_of(law)
    first = len(drawn.counts) << drawn.block_bits
    width = 1 << drawn.tail_bits
    for block in range(12):
        most = weight(law, first + block * width) * drawn.scale * 2 ** (33 + block)
        assert most * Fraction(width, 1 << drawn.block_bits) < 1
    a = Fraction(law.numerator or 0, 1 << RATE_BITS)
    assert a * (2 * first * width + width**2) > Fraction(7, 10)  # exp(-.7) < 1/2, and farther out even less


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_kernels_chances_are_those_of_the_law(law: DiscreteGaussian) -> None:
    high, low = (
        np.cumsum(increments, dtype=np.uint64).tolist()
        for increments in (candidates_of(law).high, candidates_of(law).low)
    )
    drawn = candidates_of(law)
    for block in range(len(drawn.counts)):
        size = block << drawn.block_bits
        chance = exact(law, size) * (1 if size or not drawn.block_bits else 2)
        assert 0 <= chance * (1 << 128) - (high[block] << 64 | low[block]) < 2
    assert high[-1] == low[-1] == 0  # words without a block are refused


def test_exponentials_are_as_precise_as_stated() -> None:
    chance = np.random.default_rng(5)
    for exponent in [0, 1, (1 << 53) - 1, 1 << 52, *chance.integers(0, 1 << 53, 300).tolist()]:
        high, low = _exponential(np.uint64(exponent))
        truth = exp_fraction(Fraction(-exponent, 1 << 52)) * (1 << 128)
        assert abs((int(high) << 64 | int(low)) - truth) < 1 << 9


@pytest.mark.parametrize("law", BLOCKS, ids=str)
def test_no_exponent_is_too_large_for_the_kernel(law: DiscreteGaussian) -> None:
    drawn = candidates_of(law)
    width = 1 << drawn.block_bits
    blocks = len(drawn.counts)
    assert (law.numerator or 0) * (width - 1) * (2 * blocks * width + width - 1) < 1 << 53


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_words_around_every_chance_mean_what_it_says(law: DiscreteGaussian) -> None:
    never = [TOP - 2, 0, TOP, TOP]
    for size in sizes(law):
        bound = math.floor(exact(law, size) * (1 << 128))
        for last, negative in itertools.product((False, True), repeat=2):
            for accept in (bound - (1 << 34), bound + (1 << 34), 1 << 40, bound):
                if not 0 <= accept < 1 << 128:
                    continue
                words = candidate(law, size, accept, negative=negative, last=last)
                noise, left_open = of_words(law, words)
                if accept == bound:
                    assert left_open
                elif accept < bound:
                    assert (noise, left_open) == (-size if negative else size, False)
                else:
                    assert left_open  # no candidate was accepted
                    assert of_words(law, words + candidate(law, 0, 0 if bound < 1 << 60 else 1 << 40))[0] == 0
    assert of_words(law, never) == (0, True)


@pytest.mark.parametrize("law", LAWS[1:], ids=str)
def test_the_first_that_is_accepted_is_taken(law: DiscreteGaussian) -> None:
    refused = candidate(law, 3, (1 << 128) - (1 << 40))
    one = candidate(law, 1, 1 << 60)
    two = candidate(law, 2, 1 << 60, negative=True)
    for order, noise in [(one + two, 1), (two + one, -2), (refused + two + one, -2), (refused + one + refused, 1)]:
        assert of_words(law, order) == (noise, False)
        assert resolve_draw(law, order, iter(()).__next__) == noise


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_chances_near_a_tie_are_exact(law: DiscreteGaussian) -> None:
    for size in sizes(law)[::3]:
        chance = exact(law, size)
        edge = math.floor(chance * (1 << 192))
        bound = edge >> 64
        further = edge & TOP
        words = candidate(law, size, bound)
        then = candidate(law, 0, 0, negative=True)
        more = partial(next, itertools.chain([further, TOP], itertools.repeat(0)))
        scale = Fraction(candidates_of(law).scale, candidates_of(law).counts[size >> candidates_of(law).block_bits])
        assert _acceptance(law, size, scale, 192) == edge
        if further:
            assert resolve_draw(law, words, iter([further - 1]).__next__) == size
        if further < TOP:
            assert resolve_draw(law, words + then, iter([further + 1]).__next__) == 0
        assert resolve_draw(law, words + then, more) == 0


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_tail_goes_on_beyond_the_blocks(law: DiscreteGaussian) -> None:
    drawn = candidates_of(law)
    first = len(drawn.counts) << drawn.block_bits
    width = 1 << drawn.tail_bits
    words = [TOP - 1, IN_TAIL | (width - 1), 0, 0]
    assert of_words(law, words + candidate(law, 0, 1 << 40)) == (0, True)
    for block in (0, 1, 5) if law.sigma > 1 else (0, 1):
        size = first + block * width + width - 1
        more = partial(next, itertools.chain([1] * block, itertools.repeat(0)))  # all further bits say yes
        assert resolve_draw(law, words, more) == size
    refused = [TOP, IN_TAIL, TOP, TOP, *candidate(law, 0, 0)]
    assert resolve_draw(law, refused, iter([0]).__next__) == 0
    assert of_words(law, [TOP, IN_TAIL ^ (1 << TAIL_SHIFT), 0, 1 << 40, *candidate(law, 0, 1 << 40)]) == (0, False)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_chances_in_the_tail_are_those_of_the_law(law: DiscreteGaussian) -> None:
    """A word of 63 ones and TAIL_BITS more ends in one of the 2^-(1 + block) of the tail's blocks."""
    drawn = candidates_of(law)
    first = len(drawn.counts) << drawn.block_bits
    width = 1 << drawn.tail_bits
    for block, step in itertools.product((0, 1, 2, 5), {0, width - 1}):
        size = first + block * width + step
        chance = weight(law, size) * drawn.scale * 2 ** (TAIL_BITS + 1 + block) * Fraction(width, 1 << drawn.block_bits)
        bound = math.floor(chance * (1 << 192))
        further = bound & TOP
        words = [TOP - 1, IN_TAIL | step, bound >> 128, bound >> 64 & TOP, *candidate(law, 0, 0)]
        for more, noise in ((further - 1, size), (further + 1, 0)):
            if 0 <= more <= TOP:
                assert resolve_draw(law, words, iter([1] * block + [0, more]).__next__) == noise


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_when_none_is_accepted_new_ones_are_drawn(law: DiscreteGaussian) -> None:
    refused = [TOP - 2, 0, TOP, TOP]
    more = refused + candidate(law, 1, 0, negative=True) if law.sigma > 1 else refused + candidate(law, 0, 0)
    assert resolve_draw(law, refused * 2, iter(more + [0] * 8).__next__) == (-1 if law.sigma > 1 else 0)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_words_of_no_block_are_refused_unless_all_bits_send_them_to_the_tail(law: DiscreteGaussian) -> None:
    then = candidate(law, 0, 0, negative=True)
    for word, rest in ((TOP - 2, 0), (TOP - 2, IN_TAIL), (TOP, 0), (TOP, IN_TAIL ^ (1 << TAIL_SHIFT))):
        assert resolve_draw(law, [word, rest, 0, 0, *then], iter(()).__next__) == 0
    inside = candidate(law, 1, 0) if law.sigma > 1 else then
    inside[1] |= IN_TAIL | 1 << candidates_of(law).block_bits  # these bits say nothing of a word of a block
    assert of_words(law, inside)[0] == (1 if law.sigma > 1 else 0)
    assert resolve_draw(law, inside, iter(()).__next__) == (1 if law.sigma > 1 else 0)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_sizes_in_the_tail_take_no_more_bits_than_they_have(law: DiscreteGaussian) -> None:
    drawn = candidates_of(law)
    first = len(drawn.counts) << drawn.block_bits
    width = 1 << drawn.tail_bits
    assert drawn.tail_bits < TAIL_SHIFT
    assert resolve_draw(law, [TOP - 1, IN_TAIL | width, 0, 0], itertools.repeat(0).__next__) == first


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_draws_are_open_less_than_once_in_2_to_the_64(law: DiscreteGaussian) -> None:
    drawn = candidates_of(law)
    reach = math.ceil(13 * law.sigma) + 1
    if reach < 1 << 16:
        mass = sum((weight(law, size) for size in range(reach)), Fraction(0))
    else:  # Poisson's formula: the sum is above the integral
        mass = Fraction(law.sigma) * Fraction(math.sqrt(math.pi / 2)) * Fraction((1 << 30) - 1, 1 << 30)
    accepted = mass * drawn.scale / (1 << 63 + drawn.block_bits)
    none = (1 - accepted) ** drawn.number
    near = drawn.number * (Fraction(2 * int(candidate_draws._NEAR), 1 << 128) + Fraction(1, 1 << 63 + TAIL_BITS))
    assert 0 < accepted < 1
    assert none + near < Fraction(1, 1 << 64)
    if drawn.block_bits:  # and one candidate less would not do
        assert (1 - accepted) ** (drawn.number - 1) > Fraction(1, 1 << 65)


@pytest.mark.parametrize("sigma", [0.1, 0.3, 1.0, 11.0, 120.0, 135.0, 250.0])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_draws_fit_the_law(sigma: float, kind: type[np.signedinteger]) -> None:
    values = np.zeros(N, kind)
    with NoiseSource() as rng:
        for start in range(0, N, PIECE):
            rng.add_discrete_gaussian(values[start : start + PIECE], DiscreteGaussian.at_least(sigma))
    reach = math.ceil(12 * sigma) + 2
    k = np.arange(-reach, reach + 1)
    pmf = np.exp(-(k**2) / (2 * sigma**2))
    counts = np.bincount(np.clip(values, -reach, reach) + reach, minlength=k.size)
    assert_fits(counts, pmf / pmf.sum() * N, f"{sigma} as {kind.__name__}")


@pytest.mark.parametrize("sigma", [2e3, 1e5, 2.0**20])
def test_large_scales_have_the_normal_law_and_even_ends(sigma: float) -> None:
    values = np.zeros(N, np.int64)
    with NoiseSource() as rng:
        for start in range(0, N, PIECE):
            rng.add_discrete_gaussian(values[start : start + PIECE], DiscreteGaussian.at_least(sigma))
    cells = np.floor(stats.norm.cdf(values / sigma) * 50).astype(int)
    assert_fits(np.bincount(cells, minlength=50), np.full(50, N / 50), f"fiftieths at {sigma}")
    assert_fits(np.bincount(np.abs(values) % 8, minlength=8), np.full(8, N / 8), f"last digits at {sigma}")


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("size", [1, 3, 200])
def test_every_draw_takes_the_same_words(law: DiscreteGaussian, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 draws of every kind: the requests to the system depend on distribution and size only."""
    requests: set[tuple[int, ...]] = set()
    real = NoiseSource._fill
    for _ in range(1_000 // size + 5):
        filled: list[int] = []

        def fill(self: NoiseSource, buffer: NDArray[np.uint8], filled: list[int] = filled) -> None:
            filled.append(buffer.nbytes)
            real(self, buffer)

        monkeypatch.setattr(NoiseSource, "_fill", fill)
        with NoiseSource() as rng:
            rng.add_discrete_gaussian(np.zeros(size, np.int64), law)
        requests.add(tuple(filled))
    assert len(requests) == 1 and sum(*requests) == size * candidates_of(law).number * WORDS * 8


def test_open_draws_are_finished_by_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    law = DiscreteGaussian.at_least(500.0)
    words_per_value = WORDS * candidates_of(law).number
    tie = math.floor(exact(law, 333) * (1 << 128))
    draws = candidate(law, 7, 1 << 60) + [TOP] * (words_per_value - 4)
    draws += candidate(law, 333, tie, negative=True) + [TOP] * (words_per_value - 4)
    requests: list[int] = []

    def fill(self: NoiseSource, buffer: NDArray[np.uint8]) -> None:
        requests.append(buffer.nbytes)
        buffer[:] = 0
        if len(requests) == 1:
            buffer.view(np.uint64)[:] = draws

    monkeypatch.setattr(NoiseSource, "_fill", fill)
    values = np.array([5, 5], np.int32)
    with NoiseSource() as rng:
        rng.add_discrete_gaussian(values, law)
    assert values.tolist() == [12, -328]
    assert requests == [2 * words_per_value * 8, 8]


def test_words_are_asked_for_in_pieces_of_64_kib(monkeypatch: pytest.MonkeyPatch) -> None:
    law = DiscreteGaussian.at_least(1e5)
    requests = []
    real = NoiseSource._fill

    def fill(self: NoiseSource, buffer: NDArray[np.uint8]) -> None:
        requests.append(buffer.nbytes)
        real(self, buffer)

    monkeypatch.setattr(NoiseSource, "_fill", fill)
    with NoiseSource() as rng:
        rng.add_discrete_gaussian(np.zeros(5_000, np.int64), law)
    assert sum(requests) == 5_000 * candidates_of(law).number * WORDS * 8
    assert max(requests) <= 1 << 16


def test_large_and_strided_arrays_of_a_law_without_a_table() -> None:
    law = DiscreteGaussian.at_least(1e5)
    values = np.zeros(60_000, np.int64)
    with NoiseSource() as rng:
        rng.add_discrete_gaussian(values[::2], law)
        rng.add_discrete_gaussian(np.zeros(0, np.int64), law)
    assert np.count_nonzero(values[::2]) > 29_900 and not values[1::2].any()
