"""Noise from digits has exactly its law, and takes as many words whatever is drawn."""

import math
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from panstream.primitives.kernels.noise.laplace_digits import add_from_digits
from panstream.primitives.noise import DiscreteLaplace, NoiseSource
from panstream.primitives.noise._binary_expansion import first_bits
from panstream.primitives.noise._laplace_digits import digit_coins, resolve_draw
from panstream.primitives.noise.distributions import exp_fraction
from tests.statistical import assert_fits

N = 200_000
PIECE = 10_000
LAWS = [DiscreteLaplace.at_most(kappa) for kappa in (200.0, 2.5, 1.0, 0.05, 1e-4, 1e-12)]
TOP = (1 << 64) - 1


def chances(law: DiscreteLaplace) -> list[int]:
    """Return the first 128 bits of the chance of every coin, as the product has them."""
    high, low = digit_coins(law)
    return [first << 64 | second for first, second in zip(high.tolist(), low.tolist(), strict=True)]


def of_words(law: DiscreteLaplace, words: list[int]) -> tuple[int, bool]:
    """Return the noise that the kernel adds for these words, and whether it leaves the draw open."""
    value = np.full(1, 1000, np.int64)
    undecided = np.zeros(1, np.int64)
    count = add_from_digits(value, np.array(words, np.uint64), *digit_coins(law), undecided)
    return int(value[0]) - 1000, bool(count)


def in_pairs(drawn: list[int]) -> list[int]:
    return [word for number in drawn for word in (number >> 64, number & TOP)]


@pytest.mark.parametrize("zeros", [5, 25, 45, 200])
@pytest.mark.parametrize("whole", [0, 1, 12_345, TOP])
def test_first_bits_are_computed_as_precisely_as_they_need(whole: int, zeros: int) -> None:
    """Numbers so near to a multiple of 2^-64, above and below, that few digits cannot tell on which side they are."""
    tiny = Decimal(1).scaleb(-zeros)

    def above(context: Context) -> Decimal:
        return context.divide(context.add(Decimal(whole), tiny), Decimal(1 << 64))

    def below(context: Context) -> Decimal:
        return context.divide(context.subtract(Decimal(whole + 1), tiny), Decimal(1 << 64))

    assert first_bits(64, above) == first_bits(64, below) == whole


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_every_chance_is_that_of_the_digit(law: DiscreteLaplace) -> None:
    probabilities = chances(law)
    for digit, chance in enumerate(probabilities[:-1]):
        q = exp_fraction(Fraction(-(law.numerator or 0) << digit, 1 << 52))
        assert chance == math.floor(q / (1 + q) * (1 << 128))
    beyond = exp_fraction(Fraction(-(law.numerator or 0) << len(probabilities) - 1, 1 << 52))
    assert probabilities[-1] == 0 and beyond < Fraction(1, 1 << 128)
    assert 2 * len(probabilities) <= 120  # coins that can tie


@pytest.mark.parametrize("kappa", [2.5, 0.7, 0.1])
def test_digits_with_these_chances_are_discrete_laplace_noise(kappa: float) -> None:
    """All digits multiplied out, and two such numbers subtracted: the chance of every value there is."""
    number = np.ones(1)
    for chance in chances(DiscreteLaplace.at_most(kappa))[:-1]:
        p = chance / 2**128
        number = np.concatenate([number * (1 - p), number * p])
    law = np.convolve(number, number[::-1])
    k = np.abs(np.arange(law.size) - law.size // 2)
    assert law == pytest.approx(math.tanh(kappa / 2) * np.exp(-kappa * k), rel=1e-9, abs=1e-30)


@pytest.mark.parametrize("law", LAWS[1:], ids=str)
def test_words_around_every_chance_mean_what_it_says(law: DiscreteLaplace) -> None:
    bounds = chances(law)
    never = [TOP << 64 | TOP] * len(bounds)
    for digit, bound in enumerate(bounds[:-1]):
        for drawn in (bound - 1, bound, bound + 1, bound + (1 << 64), max(bound - (1 << 64), 0)):
            one = [*never[:digit], drawn, *never[digit + 1 :]]
            for sign, pairs in ((1, one + never), (-1, never + one)):
                noise, open_draw = of_words(law, in_pairs(pairs))
                assert open_draw == (drawn == bound)
                assert noise == (sign << digit if drawn < bound else 0)


@pytest.mark.parametrize("law", LAWS[1:], ids=str)
def test_ties_are_decided_by_as_many_bits_as_they_need(law: DiscreteLaplace) -> None:
    bounds = chances(law)
    never = [TOP << 64 | TOP] * len(bounds)
    for digit in range(0, len(bounds), 3):
        whole = digit == len(bounds) - 1
        q = exp_fraction(Fraction(-(law.numerator or 0) << digit, 1 << 52))
        edge = math.floor((q if whole else q / (1 + q)) * (1 << 192)) & TOP
        tied = in_pairs([*never[:digit], bounds[digit], *never[digit + 1 :], *never])
        below = [edge - 1, TOP, TOP, 0] if edge else [edge, 0, TOP, TOP]
        assert resolve_draw(law, tied, iter(below).__next__) == 1 << digit
        assert resolve_draw(law, tied, iter([min(edge + 1, TOP), 0, 0]).__next__) == 0


def test_the_tail_goes_on_beyond_the_digits() -> None:
    law = DiscreteLaplace.at_most(1.0)
    size = digit_coins(law)[0].size
    words = in_pairs([TOP << 64 | TOP] * (size - 1) + [0]) + [TOP] * 2 * size
    again = [0, 0, 0, 0, 0, 0, TOP, TOP]  # 192 bits decide for 1, so do the next, and the third draw decides for 0
    assert resolve_draw(law, words, iter(again).__next__) == 2 << size - 1


@pytest.mark.parametrize("kappa", [0.05, 0.5, 1.0, 2.5, math.log(3)])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_draws_fit_the_law(kappa: float, kind: type[np.signedinteger]) -> None:
    values = np.zeros(N, kind)
    with NoiseSource() as rng:
        for start in range(0, N, PIECE):
            rng.add_discrete_laplace(values[start : start + PIECE], DiscreteLaplace.at_most(kappa))
    reach = int(30 / kappa)
    k = np.arange(-reach, reach + 1)
    expected = math.tanh(kappa / 2) * np.exp(-kappa * np.abs(k)) * N
    counts = np.bincount(np.clip(values, -reach, reach) + reach, minlength=k.size)
    assert_fits(counts, expected, f"{kappa} as {kind.__name__}")


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("size", [1, 3, 200])
def test_every_draw_takes_the_same_words(law: DiscreteLaplace, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 draws of every kind: the requests to the system depend on distribution and size only."""
    requests: set[tuple[int, ...]] = set()
    real = NoiseSource._fill
    for _ in range(1_000 // size + 5):
        sizes: list[int] = []

        def fill(self: NoiseSource, buffer: NDArray[np.uint8], sizes: list[int] = sizes) -> None:
            sizes.append(buffer.nbytes)
            real(self, buffer)

        monkeypatch.setattr(NoiseSource, "_fill", fill)
        with NoiseSource() as rng:
            rng.add_discrete_laplace(np.zeros(size, np.int64), law)
        requests.add(tuple(sizes))
    assert len(requests) == 1 and sum(*requests) == size * digit_coins(law)[0].size * 32


def test_open_draws_are_finished_by_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    law = DiscreteLaplace.at_most(0.5)
    bounds = chances(law)
    draw = in_pairs([TOP << 64 | TOP] * 3 + bounds[3:4] + [TOP << 64 | TOP] * (2 * len(bounds) - 4))
    requests: list[int] = []

    def fill(self: NoiseSource, buffer: NDArray[np.uint8]) -> None:
        requests.append(buffer.nbytes)
        buffer[:] = 0 if len(requests) > 1 else 255
        if len(requests) == 1:
            buffer.view(np.uint64)[len(draw) : 2 * len(draw)] = draw

    monkeypatch.setattr(NoiseSource, "_fill", fill)
    values = np.array([5, 5, 5], np.int32)
    with NoiseSource() as rng:
        rng.add_discrete_laplace(values, law)
    assert values.tolist() == [5, 13, 5]
    assert requests == [3 * len(draw) * 8, 8]


def test_large_and_strided_arrays_of_a_law_without_a_table() -> None:
    law = DiscreteLaplace.at_most(1e-12)
    values = np.zeros(60_000, np.int64)
    with NoiseSource() as rng:
        rng.add_discrete_laplace(values[::2], law)
        rng.add_discrete_laplace(np.zeros(0, np.int64), law)
    assert np.count_nonzero(values[::2]) > 29_990 and not values[1::2].any()
