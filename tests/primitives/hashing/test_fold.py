"""Multiply and fold against its definition, and against what breaks hashes of its family."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from panstream.errors import InvalidParameter
from panstream.primitives.hashing import cells_of, cells_of_strings, expand, hash_strings, mark_strings
from panstream.primitives.kernels.hashing.multiply_fold import LANES
from tests.statistical import ALPHA, assert_fits

MASK = (1 << 64) - 1
Words = NDArray[np.uint64]


def reference(message: bytes, key: int) -> int:
    """The definition in ``hashing/_strings.py``, in Python's own integers."""
    k = expand(key, "fold", 66)
    upper = 0
    left = message
    while True:
        piece = left[:512]
        rest = left[512:]
        padded = piece.ljust(max(16, -(-len(piece) // 16) * 16), b"\0")
        m = [int.from_bytes(padded[i : i + 8], "little") for i in range(0, len(padded), 8)]
        total = (upper << 64) + len(left)
        total += sum((m[i] + k[i] & MASK) * (m[i + 1] + k[i + 1] & MASK) for i in range(0, len(m), 2))
        total &= (1 << 128) - 1
        low = total & MASK
        high = total >> 64
        high ^= (low << 32 | low >> 32) & MASK
        product = (low + k[64] & MASK) * (high + k[65] & MASK)
        upper = (product & MASK) ^ (product >> 64)
        left = rest
        if not rest:
            return upper


def lay_out(messages: list[bytes], dtype: Any = np.int32, skip: int = 0) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    offsets = np.cumsum([skip, *(len(message) for message in messages)]).astype(dtype)
    return offsets, np.frombuffer(bytes(range(skip)) + b"".join(messages), np.uint8)


def hashed(messages: list[bytes], key: int = 0, dtype: Any = np.int32, skip: int = 0) -> Words:
    out = np.empty(len(messages), np.uint64)
    hash_strings(*lay_out(messages, dtype, skip), key, out, hash="fold")
    return out


def hashed_rows(rows: NDArray[np.uint8], key: int = 0) -> Words:
    """Hash the rows of a matrix of bytes."""
    out = np.empty(len(rows), np.uint64)
    offsets = np.arange(len(rows) + 1, dtype=np.int64) * rows.shape[1]
    hash_strings(offsets, np.ascontiguousarray(rows).reshape(-1), key, out, hash="fold")
    return out


@pytest.mark.parametrize("length", [*range(40), 47, 48, 49, 511, 512, 513, 1024, 1025])
def test_equal_lengths_agree_with_the_definition(length: int) -> None:
    rng = np.random.default_rng(length)
    messages = [rng.bytes(length) for _ in range(259 if length < 40 else 5)]
    assert hashed(messages, 5).tolist() == [reference(message, 5) for message in messages]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("skip", [0, 1, 13])
def test_mixed_lengths_agree_with_the_definition(dtype: Any, skip: int) -> None:
    rng = np.random.default_rng(1)
    messages = [rng.bytes(int(length)) for length in rng.geometric(1 / 20, 1000) - 1]
    messages[500:850] = [rng.bytes(16) for _ in range(350)]  # some blocks of equal lengths between mixed ones
    messages += [rng.bytes(n) for n in (600, 1024, 2000)]
    assert b"" in messages
    assert hashed(messages, 9, dtype, skip).tolist() == [reference(message, 9) for message in messages]


@given(st.lists(st.binary(max_size=70), max_size=60), st.integers(0, (1 << 128) - 1), st.integers(0, 20))
@settings(max_examples=40, deadline=None)
def test_any_strings_agree_with_the_definition(messages: list[bytes], key: int, skip: int) -> None:
    assert hashed(messages, key, np.int64, skip).tolist() == [reference(message, key) for message in messages]


def test_what_lies_behind_a_string_does_not_count() -> None:
    """Words are read whole where the buffer allows it: a neighbour, or the end of the buffer, must not show."""
    for length in range(60):
        message = bytes(range(1, length + 1))
        behind = [bytes(n) for n in (0, 1, 7, 15, 16, 60)] + [b"\xff" * n for n in (1, 7, 15, 16, 60)]
        hashes = set()
        for more in behind:
            out = np.empty(1, np.uint64)
            data = np.frombuffer(message + more or b"\0", np.uint8)
            hash_strings(np.array([0, length]), data, 3, out, hash="fold")
            hashes.add(int(out[0]))
        assert hashes == {reference(message, 3)}


def test_slices_of_arrow_arrays_are_hashed_in_place() -> None:
    words = [f"user-{i}" for i in range(1000)]
    array = pa.array(words)[123:777]
    _, offsets, data = array.buffers()
    out = np.empty(len(array), np.uint64)
    starts = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    hash_strings(starts, np.frombuffer(data, np.uint8), 0, out, hash="fold")
    assert out.tolist() == hashed([word.encode() for word in words[123:777]]).tolist()


def test_cells_are_those_of_the_hashes() -> None:
    messages = [f"user-{i}".encode() for i in range(3 * LANES + 5)]
    result = np.empty(len(messages), np.int32)
    wanted = np.empty(len(messages), np.int32)
    cells_of_strings(*lay_out(messages), 4, 999, 20, result, hash="fold")
    cells_of(hashed(messages, 4), 999, 20, wanted)
    assert result.tolist() == wanted.tolist()


def test_marks_are_at_the_cells_of_the_strings() -> None:
    for messages in ([b"%016d" % i for i in range(3 * LANES + 5)], [b"%d" % i for i in range(LANES + 5)]):
        cells = np.empty(len(messages), np.int64)
        marks = np.zeros(999 * 20, np.uint8)
        cells_of_strings(*lay_out(messages), 4, 999, 20, cells, hash="fold")
        mark_strings(*lay_out(messages), 4, 999, 20, marks)
        assert np.flatnonzero(marks).tolist() == np.unique(cells).tolist()
    with pytest.raises(InvalidParameter, match="out must be a writeable array of 19980"):
        mark_strings(*lay_out(messages), 4, 999, 20, marks[1:])


def test_an_unknown_hash_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="hash must be 'fold' or 'siphash'"):
        hash_strings(np.array([0]), np.empty(0, np.uint8), 0, np.empty(0, np.uint64), hash="md5")  # type: ignore[arg-type]


# Quality, after SMHasher: all bits of all of the hash, and of its halves, on inputs with little in them.


@pytest.mark.parametrize("counting", [False, True])
@pytest.mark.parametrize("length", [3, 8, 11, 16, 24, 36])
@pytest.mark.parametrize("key", [0, 1])
def test_every_bit_of_a_string_flips_every_bit_of_the_hash_half_the_time(key: int, length: int, counting: bool) -> None:
    runs = 4096
    rows = np.random.default_rng(length).integers(0, 256, (runs, length), dtype=np.uint8)
    if counting:
        rows[:] = 0
        rows[:, :2] = np.arange(runs, dtype=np.uint16).view(np.uint8).reshape(runs, 2)
    base = hashed_rows(rows, key)
    worst = 0.0
    for byte, bit in itertools.product(range(length), range(8)):
        turned = rows.copy()
        turned[:, byte] ^= np.uint8(1 << bit)
        flips = np.unpackbits((base ^ hashed_rows(turned, key)).view(np.uint8)).reshape(-1, 64).mean(axis=0)
        worst = max(worst, float(np.abs(flips - 0.5).max()))
    # The worst of length * 8 * 64 shares. Of counted strings, a pair may be met from both sides.
    limit = stats.norm.isf(ALPHA / (2 * length * 8 * 64)) * 0.5 / np.sqrt(runs / (1 + counting))
    assert worst < limit, f"{worst:.3f} off, allowed {limit:.3f}"


def sparse(bytes_: int, most: int) -> list[bytes]:
    """All strings of so many bytes with at most ``most`` bits set."""
    bits = range(8 * bytes_)
    chosen = (set_ for count in range(most + 1) for set_ in itertools.combinations(bits, count))
    return [sum(1 << bit for bit in positions).to_bytes(bytes_, "little") for positions in chosen]


SETS: dict[str, Any] = {
    "sparse, 4 bytes": lambda: sparse(4, 4),
    "sparse, 16 bytes": lambda: sparse(16, 2),
    "sparse, 40 bytes": lambda: sparse(40, 2),
    "cyclic, 8 bytes repeated": lambda: [i.to_bytes(8, "little") * 4 for i in range(40_000)],
    "cyclic, 5 bytes repeated": lambda: [i.to_bytes(5, "big") * 5 for i in range(40_000)],
    "zeros of every length": lambda: [bytes(n) for n in range(1500)],
    "ones of every length": lambda: [b"\xff" * n for n in range(1500)],
    "decimal": lambda: [b"%d" % i for i in range(60_000)],
    "padded": lambda: [b"user-%09d@example.org" % i for i in range(60_000)],
    "addresses": lambda: [b"10.%d.%d.%d" % (i % 7, i // 7 % 100, i // 700) for i in range(60_000)],
    "two words swapped": lambda: [
        a.to_bytes(8, "little") + b.to_bytes(8, "little") for a in range(200) for b in range(200)
    ],
    "high halves": lambda: [(i << 48).to_bytes(16, "little") for i in range(40_000)],
    "pairs permuted": lambda: [
        b"".join(blocks) for blocks in itertools.permutations([bytes([i]) * 16 for i in range(8)], 5)
    ],
}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("key", [0, 77])
def test_little_in_them_does_not_make_strings_collide(name: str, key: int) -> None:
    messages = SETS[name]()
    words = hashed(messages, key)
    count = words.size
    pairs = words.size * (words.size - 1) / 2
    assert np.unique(words).size == count
    for bits, part in ((24, words >> np.uint64(40)), (24, words & np.uint64((1 << 24) - 1))):
        sharing = np.unique(part, return_counts=True)[1].astype(float)
        collisions = float((sharing * (sharing - 1) / 2).sum())
        limit = stats.poisson.isf(ALPHA, pairs / (1 << bits))
        assert collisions <= limit, f"{collisions:.0f} collisions in {bits} bits, expected {pairs / (1 << bits):.1f}"


@pytest.mark.parametrize("name", ["decimal", "padded", "sparse, 16 bytes", "two words swapped"])
def test_levels_and_buckets_have_the_law_of_the_bitmap(name: str) -> None:
    words = hashed(SETS[name]())
    cells = np.empty(words.size, np.int64)
    cells_of(words, 64, 8, cells)
    shares = np.repeat([*(0.5 ** (level + 1) for level in range(7)), 0.5**7], 64) / 64
    assert_fits(np.bincount(cells, minlength=512), words.size * shares, name)


# Pairs of strings that collide under every key: what hashes with fixed constants have.

WY = (0xA0761D6478BD642F, 0xE7037ED1A0B428DB)  # constants of such a hash


def fixed_constants(a: int, b: int, seed: int) -> int:
    """A hash of two words that multiplies as its siblings do: constants on one side, the seed on the other."""
    product = (a ^ WY[1]) * ((b ^ seed) & MASK)
    return (product & MASK) ^ (product >> 64)


def chosen_pairs() -> list[tuple[bytes, bytes]]:
    """Pairs that make a factor 0, move a difference from word to word, or cancel it, for fixed constants."""
    words = [0, 1, MASK, 1 << 63, *WY, *(-w & MASK for w in WY), *(w ^ MASK for w in WY), *expand(0, "fold", 4)]
    words += [-w & MASK for w in expand(0, "fold", 4)]
    pairs = []
    for a, (b, c) in itertools.product(words, itertools.combinations(words, 2)):
        two = [x.to_bytes(8, "little") for x in (a, b, c)]
        pairs += [(two[0] + two[1], two[0] + two[2]), (two[1] + two[0], two[2] + two[0])]
        pairs += [(two[0] + two[1], two[1] + two[0]), (two[0] + two[1] + bytes(16), bytes(16) + two[0] + two[1])]
    pairs += [(bytes(n), bytes(n + 1)) for n in range(40)]
    return [(one, other) for one, other in pairs if one != other]


def test_no_chosen_pair_collides_under_many_keys() -> None:
    pairs = chosen_pairs()
    flat = [message for pair in pairs for message in pair]
    for key in range(1, 200):  # under key 0, which is public, the zeros of its own words are known
        words = hashed(flat, key).reshape(-1, 2)
        assert not (words[:, 0] == words[:, 1]).any()


def test_the_same_pairs_break_a_hash_with_fixed_constants() -> None:
    def word(message: bytes, at: int) -> int:
        return int.from_bytes(message[at : at + 8], "little")

    always = 0
    for one, other in (pair for pair in chosen_pairs() if len(pair[0]) == len(pair[1]) == 16):
        always += all(
            fixed_constants(word(one, 0), word(one, 8), seed) == fixed_constants(word(other, 0), word(other, 8), seed)
            for seed in expand(1, "seeds", 8)
        )
    assert always > 0


@pytest.mark.parametrize("bits", [2, 3])
def test_the_sum_of_products_collides_for_few_keys_whatever_the_strings(bits: int) -> None:
    """The bound that is stated, 2·2**-bits of all keys, on words so short that every pair and key can be tried."""
    size = 1 << bits
    a, b, k0, k1 = np.ogrid[:size, :size, :size, :size]
    products = (((a + k0) % size) * ((b + k1) % size)).reshape(size * size, size * size)  # strings x keys
    for other in range(size * size):
        for shift in range(size * size):  # a difference of lengths, or what further pairs add
            same = ((products - products[other] - shift) % (size * size) == 0).sum(axis=1)
            same[other] = 0
            assert same.max() <= size
    zero = (products[:, :] == np.arange(size * size)[:, None, None]).sum(axis=2)  # one pair against none
    assert zero.max() <= 2 * size - 1
