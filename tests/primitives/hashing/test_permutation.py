from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from panstream.errors import InvalidBatch, InvalidParameter
from panstream.primitives.hashing import derive, expand, permute
from panstream.primitives.hashing._permutation import DOUBLE_ROUNDS, TABLE_UNIVERSE, _round_keys, _shape
from panstream.primitives.kernels.hashing import feistel as kernels
from tests.statistical import ALPHA, assert_fits, assert_mean

MASK = (1 << 64) - 1
TABLE = 1000
SMALL = 10**5
LARGE = 10**7
HUGE = 3 * 2**59 + 12345


def images(ids: Any, universe: int, key: int) -> NDArray[np.int64]:
    out = np.empty(len(ids), np.int64)
    permute(np.asarray(ids, np.int64), universe, key, out)
    return out


def feistel(ids: NDArray[np.uint64], universe: int, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Permute by the rounds even where the library would use a table."""
    out = np.empty(ids.size, np.uint64)
    kernels.permute_all(ids, np.uint64(universe), *_shape(universe), keys, out)
    return out


def round_function(half: int, a: int, b: int) -> int:
    word = half * 0x9E3779B1 % (1 << 32)
    return (a * (word ^ (word >> 16)) + b) & MASK


def reference(identity: int, universe: int, key: int) -> int:
    k = universe.bit_length() // 2
    rows = (universe + (1 << k) - 1) >> k
    words = expand(key, "permutation", 4 * DOUBLE_ROUNDS)
    while True:
        left = identity >> k
        right = identity % (1 << k)
        for r in range(DOUBLE_ROUNDS):
            a, b, c, d = words[4 * r : 4 * r + 4]
            left = (left + (round_function(right, a, b) * rows >> 64)) % rows
            right ^= round_function(left, c, d) >> (64 - k)
        identity = (left << k) + right
        if identity < universe:
            return identity


def mixed(word: int, subkey: int) -> int:
    def ror(x: int, bits: int) -> int:
        return ((x >> bits) | (x << (64 - bits))) & MASK

    word ^= subkey & MASK
    word = (word ^ ror(word, 25) ^ ror(word, 50)) * 0xA24BAED4963EE407 & MASK
    word ^= subkey >> 64
    word = (word ^ ror(word, 24) ^ ror(word, 49)) * 0x9FB21C651E98DF25 & MASK
    return word ^ (word >> 28)


def reference_table(universe: int, key: int) -> list[int]:
    table = list(range(universe))
    for i in range(universe - 1, 0, -1):
        j = mixed(i, derive(key, "shuffle")) * (i + 1) >> 64
        table[i], table[j] = table[j], table[i]
    return table


@pytest.mark.slow
@given(st.integers(TABLE_UNIVERSE + 1, 1 << 62), st.integers(0, (1 << 128) - 1), st.data())
@settings(max_examples=150, deadline=None)
def test_images_agree_with_the_reference(universe: int, key: int, data: st.DataObject) -> None:
    ids = [*data.draw(st.lists(st.integers(0, universe - 1), max_size=20)), 0, universe - 1]
    result = images(ids, universe, key)
    assert result.tolist() == [reference(identity, universe, key) for identity in ids]


@pytest.mark.parametrize("universe", [1, 2, 3, 17, 256, 5000])
@pytest.mark.parametrize("key", [0, 2**128 - 1])
def test_tables_agree_with_the_reference(universe: int, key: int) -> None:
    assert images(np.arange(universe), universe, key).tolist() == reference_table(universe, key)


SIZES = [*range(1, 301), *(2**k + d for k in range(9, 20) for d in (-1, 0, 1)), 65521, 65537, 99991, 10**6]


def test_every_id_has_one_image() -> None:
    for universe in SIZES:
        everyone = np.arange(universe)
        result = images(everyone, universe, 11)
        assert np.array_equal(np.sort(result), everyone), universe


def test_the_rounds_give_every_id_one_image_in_small_universes_too() -> None:
    keys = _round_keys(5)
    for universe in range(2, 700):
        everyone = np.arange(universe, dtype=np.uint64)
        result = feistel(everyone, universe, keys)
        assert np.array_equal(np.sort(result), everyone), universe


# ---- the law over keys -------------------------------------------------------------------------------------------


def over_keys(ids: list[int], universe: int, count: int, first: int = 0) -> NDArray[np.int64]:
    """Images of the ids, one row a key, for the keys that users choose: 0, 1, 2, ..."""
    return np.array([images(ids, universe, key) for key in range(first, first + count)])


def share(result: NDArray[np.int64], universe: int, bins: int) -> NDArray[np.int64]:
    """Return which of ``bins`` almost equal parts of [0, universe) each image is in."""
    if universe * bins < 1 << 63:
        return result * bins // universe
    return (result.astype(np.float64) / universe * bins).astype(np.int64)


def parts(universe: int, bins: int) -> NDArray[np.float64]:
    """Return the size of each part as a fraction of the universe."""
    edges = [-(-number * universe // bins) for number in range(bins + 1)]
    return np.array([(upper - lower) / universe for lower, upper in pairwise(edges)])


@pytest.mark.slow
@pytest.mark.parametrize("universe", [2, 3, 10, 97, 256])
def test_positions_in_a_tiny_universe_are_uniform(universe: int) -> None:
    count = 12_000
    ids = [0, 1, universe // 2, universe - 1]
    result = over_keys(ids, universe, count)
    for column, identity in enumerate(ids):
        seen = np.bincount(result[:, column], minlength=universe)
        assert_fits(seen, np.full(universe, count / universe), f"id {identity} of {universe}")


@pytest.mark.slow
@pytest.mark.parametrize("universe", [TABLE, TABLE_UNIVERSE + 1, SMALL, LARGE, 2**40, HUGE, 2**62])
def test_positions_are_uniform(universe: int) -> None:
    count = 12_000
    bins = 50
    middle = 1 << (universe.bit_length() // 2)
    ids = [0, 1, middle - 1, middle, universe // 2, universe - 2, universe - 1]
    result = over_keys(ids, universe, count)
    for column, identity in enumerate(ids):
        seen = np.bincount(share(result[:, column], universe, bins), minlength=bins)
        assert_fits(seen, count * parts(universe, bins), f"part of [0, {universe}), id {identity}")
        # The last digits matter too: they come from the other half.
        last = [len(range(residue, universe, bins)) / universe for residue in range(bins)]
        assert_fits(np.bincount(result[:, column] % bins, minlength=bins), count * np.array(last), f"id {identity}")


def pairs_of(universe: int) -> dict[str, tuple[int, int]]:
    middle = 1 << (universe.bit_length() // 2)
    high = 1 << (universe.bit_length() - 1)
    return {
        "neighbours": (0, 1),
        "neighbours inside": (universe // 3, universe // 3 + 1),
        "even": (universe // 3 & ~1, (universe // 3 & ~1) + 2),
        "same right half": (5, 5 + middle),
        "far, same right half": (7, 7 + middle * (universe // middle // 2)),
        "stride 1000": (0, min(1000, universe - 1)),
        "highest bit": (0, high - (high == universe)),
        "first and last": (0, universe - 1),
    }


@pytest.mark.slow
@pytest.mark.parametrize("universe", [TABLE, TABLE_UNIVERSE + 1, SMALL, LARGE, HUGE])
def test_images_of_two_ids_are_independent_up_to_being_different(universe: int) -> None:
    count = 12_000
    bins = 8
    names = pairs_of(universe)
    result = over_keys([identity for pair in names.values() for identity in pair], universe, count, first=10**6)
    joint = np.outer(parts(universe, bins), parts(universe, bins))
    # The images differ, which takes 1/universe from the diagonal.
    joint -= np.diag(parts(universe, bins)) / universe
    joint *= universe / (universe - 1)
    for number, name in enumerate(names):
        first = result[:, 2 * number]
        second = result[:, 2 * number + 1]
        assert not np.any(first == second)
        seen = np.bincount(share(first, universe, bins) * bins + share(second, universe, bins), minlength=bins**2)
        assert_fits(seen, count * joint.ravel(), f"parts of {name}, {universe}")
        gap = share((first - second) % universe, universe, 64)
        law = parts(universe, 64) * universe
        law[0] -= 1  # a gap of 0 cannot be
        assert_fits(np.bincount(gap, minlength=64), count * law / (universe - 1), f"gap of {name}, {universe}")
        low = np.bincount((first % bins) * bins + second % bins, minlength=bins**2)
        if universe > 10**4:
            assert_fits(low, np.full(bins**2, count / bins**2), f"low bits of {name}, {universe}")


@pytest.mark.slow
@pytest.mark.parametrize("universe", [3, 5, 7])
def test_images_of_two_ids_in_a_tiny_universe(universe: int) -> None:
    count = 12_000
    result = over_keys([0, 1], universe, count, first=10**7)
    seen = np.zeros((universe, universe))
    np.add.at(seen, (result[:, 0], result[:, 1]), 1)
    assert not seen.diagonal().any()
    off = ~np.eye(universe, dtype=bool)
    assert_fits(seen[off], np.full(off.sum(), count / off.sum()), f"pairs of {universe}")


@pytest.mark.slow
@pytest.mark.parametrize("universe", [TABLE, SMALL, LARGE, HUGE])
@pytest.mark.parametrize("stride", [1, 2, 64])
def test_images_of_three_ids_in_a_row_are_independent(universe: int, stride: int) -> None:
    count = 10_000
    bins = 5
    start = universe // 7
    result = over_keys([start, start + stride, start + 2 * stride], universe, count, first=10**8)
    cell = share(result, universe, bins) @ np.array([bins**2, bins, 1])
    # At U = 1000 being different matters; subtract it exactly.
    sizes = parts(universe, bins) * universe
    law = np.zeros((bins,) * 3)
    for index in np.ndindex(law.shape):
        left = sizes.copy()
        law[index] = 1.0
        for taken, part in enumerate(index):
            law[index] *= left[part] / (universe - taken)
            left[part] -= 1
    assert_fits(np.bincount(cell, minlength=bins**3), count * law.ravel(), f"three ids, stride {stride}, {universe}")


def evolve(rows: int, columns: int, start: tuple[int, int, int, int], double_rounds: int) -> NDArray[np.float64]:
    """Exact law of the images of two ids if every round function were truly random."""
    law = np.zeros((rows, columns, rows, columns))
    law[start] = 1.0
    for _ in range(double_rounds):
        after = np.zeros_like(law)
        after += np.where(np.eye(columns, dtype=bool), 0, law.sum(axis=(0, 2)) / rows**2)[None, :, None, :]
        for right in range(columns):
            for move in range(rows):
                after[:, right, :, right] += np.roll(law[:, right, :, right], (move, move), (0, 1)) / rows
        law, after = after, np.zeros_like(law)
        after += np.where(np.eye(rows, dtype=bool), 0, law.sum(axis=(1, 3)) / columns**2)[:, None, :, None]
        for left in range(rows):
            for move in range(columns):
                order = np.arange(columns) ^ move
                after[left, :, left, :] += law[left][:, left][np.ix_(order, order)] / columns
        law = after
    return law


@pytest.mark.parametrize(("rows", "bits"), [(3, 2), (4, 2), (7, 3), (8, 3), (16, 4), (17, 4)])
def test_truly_random_rounds_are_as_close_to_uniform_as_documented(rows: int, bits: int) -> None:
    columns = 1 << bits
    size = rows * columns
    uniform = np.where(np.eye(size, dtype=bool), 0, 1 / (size * (size - 1))).reshape(rows, columns, rows, columns)
    for start in ((0, 0, 1, 0), (0, 0, 0, 1), (0, 0, 1, 1)):
        for double_rounds in (2, DOUBLE_ROUNDS):
            distance = np.abs(evolve(rows, columns, start, double_rounds) - uniform).sum() / 2
            assert distance <= min(rows, columns) ** -(double_rounds - 1), (start, double_rounds)


@pytest.mark.slow
@pytest.mark.parametrize("pair", [(0, 8), (0, 1), (3, 12)])
def test_two_ids_move_as_with_truly_random_round_functions(pair: tuple[int, int]) -> None:
    """With only four rounds on 5 x 8 the law is far from uniform, and known exactly."""
    rows = 5
    bits = 3
    universe = 40
    count = 40_000
    assert _shape(universe) == (rows, bits)
    ids = np.array(pair, np.uint64)
    result = np.empty((count, 2), np.uint64)
    for key in range(count):
        result[key] = feistel(ids, universe, np.array(expand(key, "pair", 8), np.uint64).reshape(2, 4))
    seen = np.bincount(result.astype(np.int64) @ np.array([universe, 1]), minlength=universe**2)
    law = evolve(rows, 1 << bits, (*divmod(pair[0], 8), *divmod(pair[1], 8)), 2).ravel()
    assert not seen[law == 0].any()
    assert_fits(seen[law > 0], count * law[law > 0], f"pair {pair}")


SUBSETS: dict[str, Callable[[int, int], NDArray[np.int64]]] = {
    "consecutive": lambda universe, n: np.arange(n) + universe // 3,
    "multiples of 2": lambda universe, n: np.arange(n) * 2,
    "multiples of the largest power of 2": lambda universe, n: np.arange(n) << ((universe // n).bit_length() - 1),
    "stride": lambda universe, n: np.arange(n) * (universe // n),
    "random": lambda universe, n: np.random.default_rng(3).choice(universe, n, replace=False),
    "upper end": lambda universe, n: universe - 1 - np.arange(n),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBSETS)
@pytest.mark.parametrize(("universe", "n", "m"), [(TABLE, 200, 300), (SMALL, 400, 20_000), (LARGE, 500, 10**6)])
def test_samples_are_hypergeometric(name: str, universe: int, n: int, m: int) -> None:
    """How many of n ids are in the sample "image < m": mean, variance and the whole law, over keys."""
    count = 4_000
    ids = SUBSETS[name](universe, n)
    sizes = np.array([(images(ids, universe, key) < m).sum() for key in range(count)])
    law = stats.hypergeom(universe, m, n)
    assert_mean(sizes, law.mean(), "size of the sample", law.std())
    # The sample variance's own standard error, from the law's fourth moment.
    kurtosis = float(law.stats("k"))
    error = law.var() * np.sqrt((kurtosis + 2) / count)
    assert abs(sizes.var(ddof=1) - law.var()) < stats.norm.isf(ALPHA / 2) * error, (sizes.var(ddof=1), law.var())
    expected = count * law.pmf(np.arange(n + 1))
    assert_fits(np.bincount(sizes, minlength=n + 1), expected, f"{name}, {universe}")


# ---- the interface -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("universe", [100, SMALL])
def test_ids_may_be_permuted_in_place_and_unsigned(universe: int) -> None:
    expected = images(np.arange(100), universe, 1)
    ids = np.arange(100, dtype=np.uint64)
    permute(ids, universe, 1, ids)
    assert ids.tolist() == expected.tolist()


@pytest.mark.parametrize("universe", [1, 100, SMALL, 1 << 62])
@pytest.mark.parametrize("bad", ["universe", "negative"])
def test_an_id_outside_the_universe_is_refused_by_row(bad: str, universe: int) -> None:
    ids = np.zeros(5, np.int64)
    ids[3] = universe if bad == "universe" else -1234567
    out = np.full(5, -7)
    with pytest.raises(InvalidBatch, match=rf"row 3: ids must be in 0..{universe - 1}$") as caught:
        permute(ids, universe, 0, out)
    assert caught.value.row == 3
    assert "1234567" not in str(caught.value)
    assert out.tolist() == [-7] * 5


@pytest.mark.parametrize("universe", [0, -1, (1 << 62) + 1, 5.0, True])
def test_universes_outside_the_range_are_refused(universe: Any) -> None:
    with pytest.raises(InvalidParameter, match=r"universe must be an integer in 1\.\.2\*\*62, got universe="):
        permute(np.zeros(1, np.int64), universe, 0, np.empty(1, np.int64))


def test_no_ids() -> None:
    for universe in (10, SMALL):
        around = np.full(3, -1)
        permute(np.empty(0, np.int64), universe, 0, around[1:1])
        assert around.tolist() == [-1, -1, -1]
