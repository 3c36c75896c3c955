"""Draws have exactly the stated distribution, and nothing random is left after the step."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest

from panstream.errors import InvalidParameter
from panstream.primitives.kernels.noise import bernoulli as draws
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.noise import Coin, DiscreteLaplace, NoiseSource, SeededSource, symmetric_coins
from panstream.primitives.noise import source as source_module
from panstream.primitives.noise.lattice_balls import count_ball_points
from panstream.primitives.noise.source import _digits_of, counter_mode
from tests.statistical import assert_fits, assert_mean, assert_rate, assert_same_law

N = 400_000


@pytest.mark.parametrize("p", [1e-5, 0.1, 0.25, 0.5, 0.7310585786, 253 / 256, 1 - 1e-4])
def test_coins_fit_their_probability(p: float) -> None:
    with NoiseSource() as rng:
        assert_rate(int(rng.bernoulli(Coin.at_most(p), N).sum()), N, p, f"coin {p}")


def test_coins_by_exhaustion_of_the_first_bytes() -> None:
    """All first bytes, and ties resolved by all values of the next byte: the probability is exact."""
    coin = Coin(Fraction(0.7310585786) * 2**64 // 1)
    top = np.uint8(coin.threshold >> 56)
    rest = np.uint64(coin.threshold & ((1 << 56) - 1))
    heads = np.arange(256, dtype=np.uint8)
    draws.resolve_coins(heads, top, rest, np.zeros(1, np.uint64))
    assert heads.sum() - heads[top] == int(top)
    second = np.arange(256, dtype=np.uint64) << np.uint64(56)
    tied = np.full(256, top, np.uint8)
    draws.resolve_coins(tied, top, rest, second)
    assert tied.sum() == (coin.threshold >> 48 & 255) + 1  # the tie of the second byte itself: word 0 below rest


def digits_of(numbers: list[int]) -> np.ndarray:
    """Return 64 numbers of 64 binary digits as words, one for each digit, the highest first."""
    return np.array(
        [sum((number >> position & 1) << i for i, number in enumerate(numbers)) for position in range(63, -1, -1)],
        np.uint64,
    )


@pytest.mark.parametrize("threshold", [1, 1 << 63, (1 << 64) - 1, 0x9F3C_0000_0000_0001, 0x6000_1234_5678_9ABC])
def test_tossed_words_are_comparisons_of_64_digit_numbers(threshold: int) -> None:
    """Numbers that agree with the threshold in 0 to 64 digits, and random ones, at every position of a word."""
    rng = np.random.default_rng(threshold % 1000)
    near = [
        threshold,
        threshold - 1,
        (threshold + 1) % (1 << 64),
        *(threshold ^ 1 << position for position in range(64)),
    ]
    near += [int(number) for number in rng.integers(0, 1 << 64, 61, dtype=np.uint64)]
    for numbers in (near[:64], near[64:], near[:64][::-1]):
        coins = np.zeros(1, np.uint64)
        assert draws.bernoulli_words(_digits_of(threshold), digits_of(numbers), coins, 0) == 1
        assert int(coins[0]) == sum((number < threshold) << i for i, number in enumerate(numbers))


def ones_of_all_first_digits(threshold: int) -> int:
    """Toss coins from all numbers of six digits, each followed by the same random ones; return how many show 1."""
    planes = digits_of([number << 58 | 0x1234_5678_9ABC_DEF for number in range(64)])
    coins = np.zeros(1, np.uint64)
    assert draws.bernoulli_words(_digits_of(threshold), planes, coins, 0) == 1
    return int(coins[0]).bit_count()


@pytest.mark.parametrize("top", [0, 1, 31, 46, 63])
def test_coins_by_exhaustion_of_the_first_digits(top: int) -> None:
    """Of all first digits as many show 1 as are below the threshold's; one that equals them depends on the rest."""
    rest = 0x1234_5678_9ABC_DEF
    assert ones_of_all_first_digits(top << 58 | rest) == top
    assert ones_of_all_first_digits(top << 58 | rest + 1) == top + 1
    assert ones_of_all_first_digits(top << 58 | rest - 1) == top


def tossed_one_by_one(threshold: int, words: list[int]) -> list[int]:
    """Toss each coin by a loop over its own digits, as long as there are words for all that a coin may need."""
    found: list[int] = []
    used = 0
    while used + 64 <= len(words):
        coins = needed = 0
        for lane in range(64):
            digit = 0
            while digit < 64 and (words[used + digit] >> lane & 1) == (threshold >> (63 - digit) & 1):
                digit += 1
            coins |= (digit < 64 and threshold >> (63 - digit) & 1) << lane
            needed = max(needed, min(digit + 1, 64))
        used += max(needed, 8)
        found.append(coins)
    return found


@pytest.mark.parametrize("size", [0, 63, 64, 65, 500])
@pytest.mark.parametrize("threshold", [1, 1 << 63, 0xBA9E_9000_1234_5678])
def test_words_are_tossed_in_order_and_none_is_used_twice(threshold: int, size: int) -> None:
    words = np.random.default_rng(size).integers(0, 1 << 64, size, dtype=np.uint64)
    expected = tossed_one_by_one(threshold, words.tolist())
    coins = np.full(100, 7, np.uint64)
    tossed = draws.bernoulli_words(_digits_of(threshold), words, coins, 3)
    assert coins[3:tossed].tolist() == expected
    assert (coins[:3] == 7).all() and (coins[tossed:] == 7).all()
    assert draws.bernoulli_words(_digits_of(threshold), words, coins[:6], 3) == 3 + min(len(expected), 3)


class PlannedSource(NoiseSource):
    """A source whose random words were written down beforehand; it remembers how many it gave."""

    def __init__(self, words: Iterable[int]) -> None:
        super().__init__()
        self.words = iter(words)

    def _fill(self, buffer: np.ndarray) -> None:
        buffer.view(np.uint64)[:] = [next(self.words) for _ in range(buffer.size // 8)]


@pytest.mark.parametrize(("pool", "pools", "cells"), [(3, 4, 2), (4, 3, 3)])
def test_coins_around_the_end_of_a_piece_are_independent_by_enumeration(
    monkeypatch: pytest.MonkeyPatch, pool: int, pools: int, cells: int
) -> None:
    """All random words of equal bits, for a coin of 3/4 with two digits: a toss takes one word or two.

    A 1 takes fewer words than a 0, so leaving out the last toss of a pool of random words would prefer ones.
    """
    monkeypatch.setattr(draws, "DIGITS", 2)
    monkeypatch.setattr(draws, "_AT_ONCE", 1)
    for kernel in ("_decide", "bernoulli_words"):  # not compiled, so that they see the two numbers above
        monkeypatch.setattr(draws, kernel, getattr(draws, kernel).py_func)
    monkeypatch.setattr(source_module, "_TOSS_WORDS", pool)
    monkeypatch.setattr(source_module, "_COIN_WORDS", 2)
    full = (1 << 64) - 1
    marks = np.full(cells, full, np.uint64)
    counts: Counter[tuple[int, ...]] = Counter()
    for words in itertools.product((0, full), repeat=pool * pools):
        bits = np.zeros(cells, np.uint64)
        PlannedSource(words).redraw(Coin(3 << 62), bits, marks)
        counts[tuple(bits.tolist())] += 1
    for outcome in itertools.product((0, full), repeat=cells):
        ones = outcome.count(full)
        assert Fraction(counts[outcome], 2 ** (pool * pools)) == Fraction(3**ones, 4**cells), outcome


def test_a_piece_of_coins_has_the_same_size_whatever_its_coins_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random words that agree with the threshold in few digits or in many: every piece serves six words of cells."""
    monkeypatch.setattr(source_module, "_TOSS_WORDS", 96)
    monkeypatch.setattr(source_module, "_COIN_WORDS", 7)
    rng = np.random.default_rng(8)
    marks = np.full(30, (1 << 64) - 1, np.uint64)
    for threshold in (3 << 62, 0xBA9E_9000_1234_5678, 1 << 40):
        words = rng.integers(0, 1 << 64, (60, 96), dtype=np.uint64)
        words[rng.random(words.shape) < 0.3] = 0
        pools = iter(words.tolist())
        expected: list[int] = []
        while len(expected) < marks.size:
            piece: list[int] = []
            while len(piece) < 7:
                piece += tossed_one_by_one(threshold, next(pools))
            expected += piece[:6]
        bits = np.zeros(marks.size, np.uint64)
        PlannedSource(words.reshape(-1).tolist()).redraw(Coin(threshold), bits, marks)
        assert bits.tolist() == expected


def redrawn_one_by_one(bits: list[int], marks: list[int], coins: list[int]) -> list[int]:
    stream = iter([word >> i & 1 for word in coins for i in range(64)])
    words = []
    for word, mark in zip(bits, marks, strict=True):
        for position in range(64):
            if mark >> position & 1:
                word = word & ~(1 << position) | next(stream) << position
        words.append(word)
    return words


def test_every_marked_bit_gets_a_coin_of_its_own() -> None:
    """Words with all, one and some marks, so that the coins of a word begin anywhere in the stream."""
    rng = np.random.default_rng(6)
    marks = rng.integers(0, 1 << 64, 400, dtype=np.uint64) & rng.integers(0, 1 << 64, 400, dtype=np.uint64)
    marks[:5] = (1 << 64) - 1
    marks[5:70:3] = 0
    marks[100:164] = 1 << np.arange(64, dtype=np.uint64)
    bits, coins = rng.integers(0, 1 << 64, (2, 400), dtype=np.uint64)
    expected = redrawn_one_by_one(bits.tolist(), marks.tolist(), coins.tolist())
    assert draws.redraw(bits, marks, 0, coins) == 400
    assert bits.tolist() == expected


@pytest.mark.parametrize("size", [0, 1, 2, 3, 10])
def test_redrawing_stops_where_coins_might_not_suffice_and_goes_on_with_new_ones(size: int) -> None:
    rng = np.random.default_rng(5)
    marks = np.full(40, (1 << 64) - 1, np.uint64)
    bits = np.zeros(40, np.uint64)
    coins = rng.integers(0, 1 << 64, size, dtype=np.uint64)
    done = draws.redraw(bits, marks, 3, coins)
    assert done == 3 + max(size - 1, 0)
    assert bits[3:done].tolist() == coins[: done - 3].tolist()
    assert not bits[:3].any() and not bits[done:].any()
    assert draws.redraw(bits, marks, done, rng.integers(0, 1 << 64, 64, dtype=np.uint64)) == 40


@pytest.mark.parametrize("size", [1, 2, 5000])
def test_every_marked_bit_is_redrawn_and_no_other(size: int) -> None:
    """With coins that show 1, and 0, but for a chance of 2^-64 a toss: below 1e-13 in all."""
    marks = np.random.default_rng(size).integers(0, 1 << 64, size, dtype=np.uint64)
    zeros = np.zeros(size, np.uint64)
    ones = np.full(size, (1 << 64) - 1, np.uint64)
    with NoiseSource() as rng:
        rng.redraw(Coin((1 << 64) - 1), zeros, marks)
        rng.redraw(Coin(1), ones, marks)
    assert (zeros == marks).all() and (ones == ~marks).all()


@pytest.mark.parametrize("p", [1e-5, 0.25, 0.7310585786, 1 - 1e-4])
def test_redrawn_bits_fit_their_probability_and_nothing_else_changes(p: float) -> None:
    marks = np.random.default_rng(3).integers(0, 1 << 64, N // 16, dtype=np.uint64)  # more than one filling of words
    marks[::3] = 0
    marks[1::7] = 1 << 63
    bits = np.random.default_rng(4).integers(0, 1 << 64, marks.size, dtype=np.uint64)
    before = bits.copy()
    with NoiseSource() as rng:
        rng.redraw(Coin.at_most(p), bits, marks)
    assert np.array_equal(bits & ~marks, before & ~marks)
    assert_rate(int(np.bitwise_count(bits & marks).sum()), int(np.bitwise_count(marks).sum()), p, f"redrawn {p}")
    full = marks == (1 << 63)
    assert_rate(int((bits[full] >> np.uint64(63)).sum()), int(full.sum()), p, f"redrawn alone {p}")


@pytest.mark.parametrize(("threshold", "expected"), [(0, 0b0010), (1 << 64, 0b1110)])
def test_certain_coins_are_redrawn_without_a_draw(threshold: int, expected: int) -> None:
    bits = np.array([0b1010], np.uint64)
    with NoiseSource() as rng:
        rng.redraw(Coin(threshold), bits, np.array([0b1100], np.uint64))
    assert bits.tolist() == [expected]


def test_coins_use_one_word_per_tie_in_order() -> None:
    coin = Coin(5 << 56 | 7)
    coins = np.array([5, 4, 5, 6, 5, 5, 0, 255, 5], np.uint8)
    words = (np.array([6, 7, 0, 8, 1], np.uint64)) << np.uint64(8)
    draws.resolve_coins(coins, np.uint8(5), np.uint64(coin.threshold & ((1 << 56) - 1)), words)
    assert coins.tolist() == [1, 1, 0, 0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize("kappa", [0.05, 0.5, 1.0, 2.5, math.log(3)])
def test_discrete_laplace_fits_its_pmf(kappa: float) -> None:
    values = np.zeros(N, np.int64)
    with NoiseSource() as rng:
        rng.add_discrete_laplace(values, DiscreteLaplace.at_most(kappa))
    reach = int(30 / kappa)
    k = np.arange(-reach, reach + 1)
    expected = math.tanh(kappa / 2) * np.exp(-kappa * np.abs(k)) * N
    counts = np.bincount(np.clip(values, -reach, reach) + reach, minlength=k.size)
    assert_fits(counts, expected, f"discrete Laplace {kappa}")


@pytest.mark.parametrize("kappa", [0.3, 1.7])
def test_discrete_laplace_agrees_with_opendp(kappa: float) -> None:
    dp.enable_features("contrib")
    peer = dp.m.make_geometric(dp.vector_domain(dp.atom_domain(T=dp.i64)), dp.l1_distance(T=dp.i64), 1 / kappa)
    size = 20_000
    theirs = np.array(peer([0] * size))
    ours = np.zeros(size, np.int64)
    with NoiseSource() as rng:
        rng.add_discrete_laplace(ours, DiscreteLaplace.at_most(kappa))
    reach = int(8 / kappa)
    assert_same_law(np.clip(ours, -reach, reach), np.clip(theirs, -reach, reach), "OpenDP")


def test_discrete_laplace_at_tiny_and_huge_scales() -> None:
    """No overflow: scales from far below one to a million million."""
    for kappa in (200.0, 1e-12):
        values = np.zeros(20_000, np.int64)
        with NoiseSource() as rng:
            rng.add_discrete_laplace(values, DiscreteLaplace.at_most(kappa))
        if kappa > 100:
            assert not values.any()
        else:
            sizes = np.abs(values) * kappa  # exponential(1) in the limit
            below = int((sizes < math.log(2)).sum())
            assert_rate(below, values.size, 0.5, "median of a huge scale")


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 1000])
def test_uniform_below_fits(bound: int) -> None:
    with NoiseSource() as rng:
        values = rng.uniform_below(bound, N).copy()
    assert_fits(np.bincount(values, minlength=bound), np.full(bound, N / bound), f"uniform below {bound}")


def test_uniform_below_reaches_the_largest_bound() -> None:
    with NoiseSource() as rng:
        values = rng.uniform_below(1 << 63, 1000)
        assert values.min() >= 0
        assert values.max() > 1 << 60
        with pytest.raises(InvalidParameter, match="bound must be"):
            rng.uniform_below(0, 1)


@pytest.mark.parametrize("size", [10, 100_000])
def test_everything_handed_out_is_wiped(size: int) -> None:
    with NoiseSource() as rng:
        coins = rng.bernoulli(symmetric_coins(1.0)[1], size)
        numbers = rng.uniform_below(1000, size)
        assert coins.any()
        assert numbers.any()
    assert not coins.any()
    assert not numbers.any()
    assert rng._cipher is None


def test_wiped_even_when_the_step_fails() -> None:
    with pytest.raises(ZeroDivisionError), NoiseSource() as rng:
        coins = rng.bernoulli(Coin.at_most(0.5), 1000)
        1 / 0  # noqa: B018
    assert not coins.any()


def test_seeded_source_repeats_and_admits_it() -> None:
    draws_of = []
    for seed in (1, 1, 2):
        with SeededSource(seed) as rng:
            draws_of.append(rng.bernoulli(Coin.at_most(0.5), 500).tolist())
    assert draws_of[0] == draws_of[1] != draws_of[2]
    assert NoiseSource.is_secure
    assert not SeededSource.is_secure


@pytest.mark.parametrize(("cells", "kappa"), [(2, 0.7), (3, 0.9), (4, 1.1)])
def test_balanced_noise_fits_its_pmf(cells: int, kappa: float) -> None:
    """All integer vectors with sum 0 up to a reach beyond which hardly anything is drawn, by direct summation."""
    law = DiscreteLaplace.at_most(kappa)
    reach = 14
    runs = 5_000
    every = [x for x in itertools.product(range(-reach, reach + 1), repeat=cells - 1) if abs(sum(x)) <= reach]
    weights = np.array([math.exp(-kappa * (sum(map(abs, x)) + abs(sum(x)))) for x in every])
    place = {x: at for at, x in enumerate(every)}
    counts = np.zeros(len(every))
    beyond = 0
    with NoiseSource() as rng:
        for _ in range(runs):
            values = np.zeros(cells, np.int64)
            rng.add_balanced_laplace(values, law)
            assert values.sum() == 0
            at = place.get(tuple(int(each) for each in values[:-1]))
            beyond += at is None
            if at is not None:
                counts[at] += 1
    assert beyond <= 3
    assert_fits(counts, weights / weights.sum() * counts.sum(), f"{cells} cells that sum to 0")


@pytest.mark.parametrize("cells", [2, 5, 20, 64])
def test_balanced_noise_has_its_variance(cells: int) -> None:
    """(c-1)(2c-1)/(c(c+1)) over kappa², from the law of how many of c numbers with sum 0 are positive."""
    kappa = 0.01
    runs = 800
    law = DiscreteLaplace.at_most(kappa)
    drawn = np.zeros((runs, cells), np.int64)
    with NoiseSource() as rng:
        for row in drawn:
            rng.add_balanced_laplace(row, law)
    squares = (drawn.astype(float) ** 2).mean(axis=1)
    assert_mean(squares, (cells - 1) * (2 * cells - 1) / (cells * (cells + 1)) / kappa**2, f"{cells} cells")


def test_balanced_noise_of_one_cell_or_no_law_is_none() -> None:
    with NoiseSource() as rng:
        alone = np.array([7])
        none = np.array([1, 2, 3])
        rng.add_balanced_laplace(alone, DiscreteLaplace.at_most(0.1))
        rng.add_balanced_laplace(none, DiscreteLaplace.at_most(math.inf))
    assert alone.tolist() == [7]
    assert none.tolist() == [1, 2, 3]


def test_much_randomness_is_expanded_from_one_key_and_little_is_the_systems_own() -> None:
    from panstream.primitives.noise.source import _DIRECT

    with NoiseSource() as rng:
        rng._fill(np.empty(_DIRECT - 8, np.uint8))
        assert rng._cipher is None
        rng._fill(np.empty(8, np.uint8))
        assert rng._cipher is None
        rng._fill(np.empty(1, np.uint8))  # one byte more than is requested from the system
        assert rng._cipher is not None


@pytest.mark.parametrize("words", [4, 100_000])
def test_two_sources_never_draw_the_same(words: int) -> None:
    """Few words come from the system directly, many through a key of their own: 1,000 such keys, all different."""
    seen = set()
    for _ in range(1_000):
        with NoiseSource() as rng:
            drawn = np.empty(words, np.uint64)
            rng.fill_words(drawn)
            assert drawn[:4].tobytes() not in seen
            seen.add(drawn[:4].tobytes())


@pytest.mark.parametrize(("word", "head"), [(6 << 8, 1), (7 << 8, 0)])
def test_a_single_tie_is_settled_by_a_word_of_its_own(word: int, head: int) -> None:
    class Scripted(NoiseSource):
        def _fill(self, buffer: np.ndarray) -> None:  # type: ignore[type-arg]
            if buffer.size == 3:
                buffer[:] = (4, 5, 6)
            else:
                assert buffer.size == 8
                buffer.view(np.uint64)[:] = word

    with Scripted() as rng:
        assert rng.bernoulli(Coin(5 << 56 | 7), 3).tolist() == [1, head, 0]


def test_a_closed_source_starts_afresh() -> None:
    """The cipher is thrown away with its key, and so is the count of what came from the system directly."""
    rng = NoiseSource()
    rng.fill_words(np.empty(4, np.uint64))
    assert rng._cipher is None
    assert rng._drawn == 32
    rng.fill_words(np.empty(1000, np.uint64))
    assert rng._cipher is not None
    rng.close()
    assert rng._cipher is None
    assert rng._drawn == 0


def test_the_rarest_coin_is_not_a_certain_one() -> None:
    with NoiseSource() as rng:
        assert rng.bernoulli(Coin(1), 1000).sum() == 0  # one in 2**64 each
        assert rng.bernoulli(Coin((1 << 64) - 1), 1000).sum() == 1000
        assert rng.bernoulli(Coin(0), 10).tolist() == [0] * 10
        assert rng.bernoulli(Coin(1 << 64), 10).tolist() == [1] * 10


def test_a_bound_beyond_the_largest_is_refused() -> None:
    with NoiseSource() as rng:
        for bound in (-1, 0, (1 << 63) + 1, 1 << 64):
            with pytest.raises(InvalidParameter, match="bound must be in"):
                rng.uniform_below(bound, 1)


@pytest.mark.parametrize("cells", [0, 1])
def test_balanced_noise_of_fewer_than_two_cells_is_none(cells: int) -> None:
    values = np.full(cells, 7)
    with NoiseSource() as rng:
        rng.add_balanced_laplace(values, DiscreteLaplace.at_most(0.1))
    assert values.tolist() == [7] * cells


def test_the_key_is_overwritten_once_the_cipher_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = []

    def remember(key: np.ndarray) -> object:  # type: ignore[type-arg]
        assert key.size == 32
        assert key.any()
        keys.append(key)
        return counter_mode(key)

    monkeypatch.setattr("panstream.primitives.noise.source.counter_mode", remember)
    with NoiseSource() as rng:
        drawn = np.zeros(1000, np.uint64)
        rng.fill_words(drawn)
    assert drawn.any()
    assert [key.any() for key in keys] == [False]


def test_a_seeded_source_wipes_what_it_handed_out_and_goes_on() -> None:
    with SeededSource(3) as whole:
        expected = whole.uniform_below(1 << 40, 64).copy(), whole.uniform_below(1 << 40, 64).copy()
    rng = SeededSource(3)
    first = rng.uniform_below(1 << 40, 64)
    assert first.tolist() == expected[0].tolist()
    rng.close()
    assert not first.any()
    assert rng.uniform_below(1 << 40, 64).tolist() == expected[1].tolist()


class Counted(Scratch):
    """Working memory that counts what it returns."""

    def array(self, size: int, dtype: Any = np.uint8) -> Any:
        assert size > 0
        return super().array(size, dtype)


@pytest.mark.parametrize("size", [1, 3, 15, 16, 17, 40])
def test_every_draw_asks_for_some_memory(size: int) -> None:
    """A request for zero or fewer bytes would be repeated forever."""
    law = DiscreteLaplace.at_most(0.5)
    with NoiseSource() as rng:
        rng.scratch = Counted()
        assert rng.uniform_below(10, size).max() < 10
        assert rng._geometric_sum(size, law) >= 0
        rng.add_joint_laplace([np.zeros(size + 1, np.int64)], law)
        rng.add_discrete_laplace(np.zeros(size, np.int64), law)


@pytest.mark.parametrize(("sizes", "kappa"), [((3, 4), 1.0)], ids=str)
def test_the_radius_of_joint_noise_has_its_law(
    sizes: tuple[int, ...], kappa: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drawn with probability proportional to e**(-2·kappa·m) times the number of points within m."""
    radii: list[int] = []

    def remember(size: int, radius: int, below: Callable[[int], int]) -> list[int]:
        radii.append(radius)
        return [0] * size

    monkeypatch.setattr("panstream.primitives.noise.lattice_balls.balanced_point", remember)
    law = DiscreteLaplace.at_most(kappa)
    draws = 500
    with SeededSource(7) as rng:
        for _ in range(draws):
            rng.add_joint_laplace([np.zeros(size, np.int64) for size in sizes], law)
    assert radii[:: len(sizes)] == radii[len(sizes) - 1 :: len(sizes)]
    counts = np.bincount(radii[:: len(sizes)])
    reach = np.arange(400)
    weights = np.array(
        [math.exp(-2 * kappa * m) * math.prod(count_ball_points(size, int(m)) for size in sizes) for m in reach]
    )
    expected = weights / weights.sum() * draws
    common = expected >= 10
    seen = np.pad(counts, (0, max(0, reach.size - counts.size)))[: reach.size]
    assert_fits(
        np.append(seen[common], draws - seen[common].sum()),
        np.append(expected[common], draws - expected[common].sum()),
        "radius",
    )


def test_a_draw_that_is_left_open_is_finished_with_its_own_words() -> None:
    """No word serves two draws."""
    values = np.zeros(3, np.int64)
    given = []
    taken = []

    def add(piece: Any, words: Any, undecided: Any) -> int:
        given.extend(words.tolist())
        undecided[:2] = [0, 2]
        return 2

    def settle(words: Any, more: Any) -> int:
        taken.append(list(words))
        return 5

    with SeededSource(1) as rng:
        rng._add_few(values, 4, add, settle)
    assert values.tolist() == [5, 0, 5]
    assert taken == [given[:4], given[8:]]
