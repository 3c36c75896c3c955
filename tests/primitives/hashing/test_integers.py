from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from panstream.errors import InvalidParameter
from panstream.primitives.hashing import derive, hash_integers
from tests.statistical import ALPHA, assert_fits

MASK = (1 << 64) - 1
FIRST = 0xA24BAED4963EE407
SECOND = 0x9FB21C651E98DF25
words = st.integers(0, MASK)


def rotate_right(word: int, bits: int) -> int:
    return ((word >> bits) | (word << (64 - bits))) & MASK


def reference(word: int, key: int) -> int:
    subkey = derive(key, "integers")
    word ^= subkey & MASK
    word ^= rotate_right(word, 25) ^ rotate_right(word, 50)
    word = word * FIRST & MASK
    word ^= subkey >> 64
    word ^= rotate_right(word, 24) ^ rotate_right(word, 49)
    word = word * SECOND & MASK
    return word ^ (word >> 28)


def undo_rotations(word: int, first: int, second: int) -> int:
    # The circulant maps of 64 bits with an odd number of terms form a group whose elements have orders dividing 64.
    for _ in range(63):
        word ^= rotate_right(word, first) ^ rotate_right(word, second)
    return word


def inverse(word: int, key: int) -> int:
    subkey = derive(key, "integers")
    word ^= (word >> 28) ^ (word >> 56)
    word = word * pow(SECOND, -1, 1 << 64) & MASK
    word = undo_rotations(word, 24, 49) ^ (subkey >> 64)
    word = word * pow(FIRST, -1, 1 << 64) & MASK
    return undo_rotations(word, 25, 50) ^ (subkey & MASK)


def hashed(values: NDArray[Any], key: int = 0) -> NDArray[np.uint64]:
    out = np.empty(values.size, np.uint64)
    hash_integers(values, key, out)
    return out


@given(st.lists(words, max_size=50), st.integers(0, (1 << 128) - 1))
@settings(max_examples=100, deadline=None)
def test_hashes_agree_with_the_reference(values: list[int], key: int) -> None:
    assert hashed(np.array(values, np.uint64), key).tolist() == [reference(value, key) for value in values]


@given(words, st.integers(0, (1 << 128) - 1))
@settings(deadline=None)
def test_a_hash_can_be_undone_so_the_mixer_is_a_bijection(word: int, key: int) -> None:
    assert inverse(reference(word, key), key) == word
    assert reference(inverse(word, key), key) == word


def test_signed_and_unsigned_integers_of_the_same_bits_agree() -> None:
    signed = np.array([0, 1, -1, 2**63 - 1, -(2**63)])
    assert hashed(signed).tolist() == hashed(signed.view(np.uint64)).tolist()


# Bases of structured inputs: name, values. N of each is 2**16.
N = 1 << 16
COUNT = np.arange(N, dtype=np.uint64)
STRUCTURED = {
    "counter": COUNT,
    "even": COUNT * np.uint64(2),
    "from -n": (COUNT.view(np.int64) - N).view(np.uint64),
    "thousands": COUNT * np.uint64(1000),
    "multiples of 2**16": COUNT << np.uint64(16),
    "multiples of 2**32": COUNT << np.uint64(32),
    "multiples of 2**48": COUNT << np.uint64(48),
    "float64 patterns": np.arange(N).astype(np.float64).view(np.uint64),
    "two counters": (COUNT & np.uint64(255)) | ((COUNT >> np.uint64(8)) << np.uint64(40)),
    "random": np.random.default_rng(7).integers(0, 2**64, N, dtype=np.uint64),
}
KEYS = [0, 1, 2**127]


@pytest.mark.slow
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("name", STRUCTURED)
def test_avalanche(name: str, key: int) -> None:
    """Each of the 64 x 64 pairs of input and output bits: flips in half of the cases."""
    cases = 4096 * 2  # enough to see a bias of 3%
    limit = stats.norm.isf(ALPHA / 2 / 64**2)
    values = STRUCTURED[name][:: N // cases]
    for bit in range(64):
        one = np.uint64(1 << bit)
        clear = np.unique(values & ~one)  # so that no pair is counted twice
        difference = hashed(clear, key) ^ hashed(clear | one, key)
        flips = np.unpackbits(difference.view(np.uint8), bitorder="little").reshape(-1, 64).sum(axis=0)
        z = np.abs(flips - clear.size / 2) / np.sqrt(clear.size / 4)
        assert z.max() < limit, f"input bit {bit}, output bit {z.argmax()}: z = {z.max():.2f}, limit {limit:.2f}"


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("name", STRUCTURED)
def test_structured_integers_fill_buckets_and_levels_evenly(name: str, key: int) -> None:
    result = hashed(STRUCTURED[name], key)
    for where, bits in (("upper", result >> np.uint64(54)), ("lower", result & np.uint64(1023))):
        assert_fits(
            np.bincount(bits.astype(np.int64), minlength=1024), np.full(1024, N / 1024), f"{where} bits, {name}"
        )
    middle = ((result >> np.uint64(32)) * np.uint64(1000)) >> np.uint64(32)
    assert_fits(np.bincount(middle.astype(np.int64), minlength=1000), np.full(1000, N / 1000), f"1000 buckets, {name}")
    lowest = np.log2((result & (~result + np.uint64(1))).astype(np.float64)).astype(np.int64)
    shares = 0.5 ** np.arange(1, 65)
    assert_fits(np.bincount(lowest, minlength=64)[:64], N * shares, f"trailing zeros, {name}")


def test_keys_give_unrelated_functions() -> None:
    """Hashes of one integer under neighbouring keys: bits agree in half of the cases."""
    results = np.array([reference(12345, key) for key in range(4097)], np.uint64)
    agree = 64 * 4096 - int(np.unpackbits((results[1:] ^ results[:-1]).view(np.uint8)).sum())
    assert abs(agree - 32 * 4096) < stats.norm.isf(ALPHA / 2) * np.sqrt(16 * 4096)


@pytest.mark.parametrize("values", [np.zeros(3, np.int32), np.zeros(3), np.zeros((3, 1), np.int64), [1, 2, 3]])
def test_unfit_arrays_are_refused(values: Any) -> None:
    with pytest.raises(InvalidParameter, match="values must be a contiguous one-dimensional array of int64 or uint64"):
        hash_integers(values, 0, np.empty(3, np.uint64))


def test_bytes_of_the_other_order_are_refused() -> None:
    swapped = np.arange(3).astype(np.dtype(np.int64).newbyteorder("S"))
    with pytest.raises(InvalidParameter, match="values must be a contiguous"):
        hash_integers(swapped, 0, np.empty(3, np.uint64))


def test_both_types_of_64_bits_are_taken_and_other_byte_orders_refused() -> None:
    out = np.empty(3, np.uint64)
    hash_integers(np.arange(3, dtype=np.longlong), 0, out)
    with pytest.raises(InvalidParameter, match="int64"):
        hash_integers(np.arange(3, dtype=np.int64).astype(">i8"), 0, out)
