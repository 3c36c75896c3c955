"""Noise from tables has exactly its law: every bound against a sum of exact terms, ties, tails, and counts of draws."""

import itertools
import math
import random
from bisect import bisect_left, bisect_right
from fractions import Fraction

import numpy as np
import pytest

from panstream.primitives.kernels.noise.inversion_table import add_from_table, guide_entry
from panstream.primitives.noise import DiscreteGaussian, DiscreteLaplace, NoiseSource
from panstream.primitives.noise import _inversion_table as _tables
from panstream.primitives.noise._inversion_table import Law, _bounds, _words_of_entries, draw_table, resolve
from panstream.primitives.noise.distributions import RATE_BITS, exp_fraction
from tests.statistical import assert_fits

N = 1 << 18
LAWS: list[Law] = [
    DiscreteGaussian.at_least(0.3),
    DiscreteGaussian.at_least(4.2),
    DiscreteGaussian.at_least(55.2),
    DiscreteLaplace.at_most(2.0),
    DiscreteLaplace.at_most(0.25),
    DiscreteLaplace.at_most(0.04),
]


def exact(law: Law) -> list[Fraction]:
    """Return G(0), G(1), ... from separate exponentials of 70 digits, until nothing is left at 200 bits."""
    power = 2 if isinstance(law, DiscreteGaussian) else 1
    weights = [Fraction(1)]
    while weights[-1] > Fraction(1, 1 << 200):
        weights.append(2 * exp_fraction(Fraction(-(law.numerator or 0) * len(weights) ** power, 1 << RATE_BITS)))
    if power == 1:
        q = law.decay() if isinstance(law, DiscreteLaplace) else Fraction(0)
        total = (1 + q) / (1 - q)
    else:
        total = sum(weights, Fraction(0))
    sums = np.cumsum(np.array(weights, object)).tolist()
    return [part / total for part in sums]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_every_bound_is_that_of_the_law(law: Law) -> None:
    table = draw_table(law)
    assert table is not None
    bounds = table.bounds.tolist()
    assert bounds == [math.floor(part * (1 << 63)) for part in exact(law)[: len(bounds)]]
    assert bounds[-1] == (1 << 63) - 1 and bounds[-2] < bounds[-1]


@pytest.mark.parametrize("law", LAWS[2::2], ids=str)
def test_bounds_that_few_bits_do_not_decide_are_computed_with_more(law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = draw_table(law)
    monkeypatch.setattr(_tables, "_GUARD", 6)
    again = draw_table.__wrapped__(law)
    assert _tables._floors(law, 63 + 6) is None
    assert plain is not None and again is not None
    assert again.bounds.tolist() == plain.bounds.tolist()


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("bits", [24, 40])
def test_bounds_hold_the_law_even_where_no_bits_guard_them(
    law: Law, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_tables, "_GUARD", 0)
    one = 1 << bits
    count = 0
    for (low, high), part in zip(_bounds(law, bits), exact(law), strict=False):
        assert low <= part * one
        assert part * one <= high or high == one - 1
        count += high < one - 1
    assert count


@pytest.mark.parametrize("law", LAWS[1:5], ids=str)
def test_words_around_every_bound_mean_what_inversion_says(law: Law) -> None:
    table = draw_table(law)
    parts = exact(law)
    assert table is not None
    floors = [math.floor(part * (1 << 63)) for part in parts]
    for bound in table.bounds.tolist():
        for start in {max(bound - 1, 0), bound, min(bound + 1, (1 << 63) - 1)}:
            for sign in (0, 1):
                value = np.full(1, 1000, np.int32)
                undecided = np.zeros(1, np.int64)
                words = np.array([start << 1 | sign], np.uint64)
                count = add_from_table(value, words, table.bounds, table.guide, table.digits, table.reach, undecided)
                if count:
                    assert start in table.bounds and value[0] == 1000
                    continue
                size = bisect_right(floors, start)
                assert value[0] == 1000 + (-size if sign else size)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_every_word_means_one_of_the_sizes_that_are_searched(law: Law) -> None:
    """For words next to all bounds and to all powers of two, and others; and no search leaves the table."""
    table = draw_table(law)
    assert table is not None
    last = (1 << 63) - 1
    chance = random.Random(7)
    words = {word + step for word in (*table.bounds.tolist(), *(1 << bit for bit in range(64))) for step in (-1, 0, 1)}
    words |= {last - word for word in words} | {last >> chance.randrange(63) for _ in range(1000)}
    words |= {last - (chance.getrandbits(63) >> chance.randrange(63)) for _ in range(20_000)}
    entries = set()
    for word in words:
        if 0 <= word <= last:
            entry = guide_entry(np.uint64(word), table.digits)
            size = int(np.searchsorted(table.bounds, np.uint64(word)))
            assert table.guide[entry] <= size < table.guide[entry] + table.reach
            entries.add(entry)
    assert min(entries) == 0 and max(entries) == table.guide.size - 1
    assert (table.guide >= 0).all()
    assert (table.guide + table.reach <= table.bounds.size).all()


def test_the_words_of_an_entry_are_those_that_the_kernel_takes_there() -> None:
    """Found by bisection; to the word within 2^52 of the end, and with little to spare farther out."""
    digits = 6
    last = (1 << 63) - 1

    def entry(distance: int) -> int:
        return int(guide_entry(np.uint64(last + 1 - distance), digits))

    first, final = (words.tolist() for words in _words_of_entries(digits))
    starts = [bisect_left(range(1, last + 1), index, key=entry) + 1 for index in range(len(first))] + [last + 2]
    for index, (nearest, beyond) in enumerate(itertools.pairwise(starts)):
        if nearest == beyond:
            continue  # no distance has these digits
        allowed = 0 if beyond < 1 << 52 else 1 << 13
        assert 0 <= last + 2 - beyond - first[index] <= allowed
        assert 0 <= final[index] - (last + 1 - nearest) <= allowed


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_ties_are_decided_by_as_many_bits_as_they_need(law: Law) -> None:
    table = draw_table(law)
    parts = exact(law)
    assert table is not None
    for size in range(0, len(table.bounds) - 1, 1 + len(table.bounds) // 20):
        start = int(table.bounds[size])
        edge = math.floor((parts[size] * (1 << 63) - start) * (1 << 64))  # the further bits at which U reaches G(size)
        for more in {max(edge - 1, 0), edge, min(edge + 1, (1 << 64) - 1), 0, (1 << 64) - 1}:
            further_words = iter([more, 1 << 63, 0, 0])  # 127 bits may decide nothing
            uniform = Fraction((start << 64 | more) << 64 | 1 << 63, 1 << 191)
            assert resolve(law, start, further_words.__next__) == bisect_right(parts, uniform)
            if 0 < more < edge:
                assert next(further_words) == 1 << 63  # no further word was taken: those before the edge are decided


def test_the_tail_goes_on_beyond_the_table() -> None:
    law = DiscreteLaplace.at_most(0.25)
    table = draw_table(law)
    assert table is not None
    ones = (1 << 64) - 1
    far = resolve(law, (1 << 63) - 1, iter([ones, ones, 1 << 63, 0]).__next__)
    tail = math.log(2.0) * (63 + 128 + 1) / 0.25  # q^m = 2^-192, up to the factor 2/(1+q)
    assert len(table.bounds) < far
    assert abs(far - tail) < 4


@pytest.mark.parametrize("law", LAWS[:5], ids=str)
def test_the_last_words_are_decided_by_further_bits_too(law: Law) -> None:
    """Numbers next to 1, above all bounds of the table, where the bounds of 127 bits meet their end."""
    parts = exact(law)
    start = (1 << 63) - 1
    top = (1 << 64) - 1
    for first, second in itertools.product((top - 4, top - 3, top - 2, top - 1, top), (0, 1 << 63, top - 9)):
        uniform = Fraction((start << 64 | first) << 64 | second, 1 << 191)
        magnitude = resolve(law, start, itertools.chain([first, second], itertools.repeat(0)).__next__)
        assert magnitude == bisect_right(parts, uniform)


DRAWN: list[Law] = [DiscreteGaussian.at_least(0.3), DiscreteGaussian.at_least(20.0), DiscreteLaplace.at_most(0.1)]


@pytest.mark.parametrize("law", DRAWN, ids=str)
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_draws_fit_the_law(law: Law, kind: type[np.signedinteger]) -> None:
    values = np.zeros(N, kind)
    with NoiseSource() as rng:
        draw = rng.add_discrete_gaussian if isinstance(law, DiscreteGaussian) else rng.add_discrete_laplace
        draw(values, law)  # type: ignore[arg-type]
    reach = int(np.abs(values).max()) + 40
    k = np.arange(-reach, reach + 1)
    rate = (law.numerator or 0) / (1 << RATE_BITS)
    pmf = np.exp(-rate * (k**2 if isinstance(law, DiscreteGaussian) else np.abs(k)))
    assert_fits(np.bincount(values + reach, minlength=k.size), pmf / pmf.sum() * N, f"{law} as {kind.__name__}")


def test_open_draws_are_finished_by_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    law = DiscreteGaussian.at_least(4.2)
    table = draw_table(law)
    assert table is not None
    tie = int(table.bounds[3]) << 1
    values = np.zeros(1 << 14, np.int32)
    with NoiseSource() as rng:
        requests = []

        def fill(buffer: np.ndarray) -> None:
            requests.append(buffer.size)
            buffer.view(np.uint64)[:] = 0 if len(requests) == 1 else (1 << 64) - 1
            if len(requests) == 1:
                buffer.view(np.uint64)[:50] = tie

        monkeypatch.setattr(NoiseSource, "_fill", lambda self, buffer: fill(buffer))
        rng.add_discrete_gaussian(values, law)
    assert set(values[:50].tolist()) == {4} and not values[50:].any()
    assert len(requests) == 1 + 50


@pytest.mark.parametrize("sign", [0, 1])
def test_open_draws_have_the_sign_of_their_last_bit(sign: int, monkeypatch: pytest.MonkeyPatch) -> None:
    law = DiscreteLaplace.at_most(0.25)
    table = draw_table(law)
    assert table is not None
    bounds = table.bounds[:12].tolist()
    assert {bound & 1 for bound in bounds} == {0, 1}
    values = np.zeros(1 << 14, np.int64)
    filled = []

    def fill(buffer: np.ndarray) -> None:
        filled.append(buffer.size)
        buffer.fill(0 if len(filled) == 1 else 255)  # further bits: not below the bound, so one size farther
        if len(filled) == 1:
            buffer.view(np.uint64)[: len(bounds)] = [bound << 1 | sign for bound in bounds]

    monkeypatch.setattr(NoiseSource, "_fill", lambda self, buffer: fill(buffer))
    with NoiseSource() as rng:
        rng.add_discrete_laplace(values, law)
    assert values[: len(bounds)].tolist() == [-size if sign else size for size in range(1, len(bounds) + 1)]


@pytest.mark.parametrize("law", LAWS[2:5:2], ids=str)
def test_tables_are_built_up_to_the_length_that_they_may_have(law: Law, monkeypatch: pytest.MonkeyPatch) -> None:
    table = draw_table(law)
    assert table is not None
    for share, built in ((0.99, False), (1.06, True)):
        monkeypatch.setattr(_tables, "_MAX_MAGNITUDES", int(share * len(table.bounds)))
        assert (draw_table.__wrapped__(law) is not None) == built


def test_long_tables_are_not_built() -> None:
    assert draw_table(DiscreteGaussian.at_least(1e4)) is None
    assert draw_table(DiscreteLaplace.at_most(1e-4)) is None
    assert draw_table(DiscreteLaplace.at_most(math.inf)) is None
