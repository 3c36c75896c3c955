from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from panstream.errors import InvalidBatch, InvalidParameter
from panstream.primitives.hashing import (
    MAX_LEVELS,
    cells_of,
    cells_of_integers,
    cells_of_strings,
    hash_integers,
    hash_strings,
    mark_integers_packed,
    mark_strings,
    mark_strings_packed,
)
from panstream.primitives.kernels.hashing.packed_cell_marks import STRINGS
from tests.statistical import assert_fits


def reference(word: int, buckets: int, levels: int) -> int:
    low = word % (1 << 32)
    high = word >> 32
    level = 0
    while level < levels - 1 and low % 2 == 0:
        low >>= 1
        level += 1
    return level * buckets + high * buckets // (1 << 32)


def cells(hashes: NDArray[np.uint64], buckets: int, levels: int, dtype: Any = np.int64) -> NDArray[Any]:
    out = np.empty(hashes.size, dtype)
    cells_of(hashes, buckets, levels, out)
    return out


hashes_st = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 2**31, 2**32, 2**63, 2**64 - 1, 2**64 - 2**32]))


@given(st.lists(hashes_st, max_size=40), st.integers(1, (1 << 32) - 1), st.integers(1, MAX_LEVELS))
@settings(max_examples=200, deadline=None)
def test_cells_agree_with_the_reference(hashes: list[int], buckets: int, levels: int) -> None:
    expected = [reference(word, buckets, levels) for word in hashes]
    assert cells(np.array(hashes, np.uint64), buckets, levels).tolist() == expected
    if buckets * levels <= 1 << 31:
        assert cells(np.array(hashes, np.uint64), buckets, levels, np.int32).tolist() == expected


@pytest.mark.parametrize("levels", [1, 2, 3, 6, 33])
def test_levels_have_exactly_geometric_probabilities(levels: int) -> None:
    """All 2**16 patterns of the lowest bits, the other 16 of the lower half set or clear."""
    patterns = np.arange(1 << 16, dtype=np.uint64)
    if levels > 16:
        patterns |= np.uint64(1 << 31)  # a level above 15 needs more bits than can be tried
    counts = np.bincount(cells(patterns, 1, levels), minlength=levels)
    for level in range(min(levels, 16)):
        last = level == levels - 1
        assert counts[level] == (1 << 16) >> (level if last else level + 1)


@pytest.mark.parametrize("buckets", [1, 2, 4096, 3, 1000, 65521])
def test_buckets_are_uniform_within_the_documented_bias(buckets: int) -> None:
    """The exact number of upper halves that fall in a bucket, from its first and the previous one's last."""
    edges = np.array([-(-bucket * (1 << 32) // buckets) for bucket in range(buckets)], np.uint64)
    assert cells(edges << np.uint64(32), buckets, 1).tolist() == list(range(buckets))
    before = (edges[1:] - np.uint64(1)) << np.uint64(32)
    assert cells(before, buckets, 1).tolist() == list(range(buckets - 1))
    sizes = np.diff([*edges.astype(np.int64), 1 << 32])
    assert np.abs(sizes - (1 << 32) / buckets).max() < 1
    if (1 << 32) % buckets == 0:
        assert len(set(sizes)) == 1


def test_level_and_bucket_use_disjoint_bits() -> None:
    rng = np.random.default_rng(0)
    hashes = rng.integers(0, 2**64, 1000, dtype=np.uint64)
    other = (hashes >> np.uint64(32) << np.uint64(32)) | rng.integers(0, 2**32, 1000, dtype=np.uint64)
    assert (cells(hashes, 1000, 33) % 1000).tolist() == (cells(other, 1000, 33) % 1000).tolist()
    other = (hashes & np.uint64(2**32 - 1)) | (rng.integers(0, 2**32, 1000, dtype=np.uint64) << np.uint64(32))
    assert (cells(hashes, 1000, 33) // 1000).tolist() == (cells(other, 1000, 33) // 1000).tolist()


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("n", [0, 1, 63, 64, 1000])
def test_one_pass_gives_what_two_passes_give(dtype: Any, n: int) -> None:
    rng = np.random.default_rng(n)
    values = rng.integers(-(2**62), 2**62, n)
    hashes = np.empty(n, np.uint64)
    result = np.empty(n, dtype)
    hash_integers(values, 4, hashes)
    cells_of_integers(values, 4, 999, 20, result)
    assert result.tolist() == cells(hashes, 999, 20, dtype).tolist()
    for lengths in (rng.integers(0, 30, n), np.full(n, 16)):
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(dtype)
        data = rng.integers(0, 256, offsets[-1], dtype=np.uint8)
        hash_strings(offsets, data, 4, hashes, hash="siphash")
        cells_of_strings(offsets, data, 4, 999, 20, result, hash="siphash")
        assert result.tolist() == cells(hashes, 999, 20, dtype).tolist()


@pytest.mark.parametrize("key", [0, 1])
@pytest.mark.parametrize("stride", [1, 2, 1 << 20, 1 << 44])
def test_structured_integers_fill_the_table_as_they_should(stride: int, key: int) -> None:
    n = 1 << 18
    buckets = 300
    levels = 12
    cells_out = np.empty(n, np.int64)
    cells_of_integers(np.arange(n) * stride, key, buckets, levels, cells_out)
    shares = np.array([*(0.5 ** (level + 1) for level in range(levels - 1)), 0.5 ** (levels - 1)])
    expected = n * np.repeat(shares / buckets, buckets)
    assert_fits(np.bincount(cells_out, minlength=buckets * levels), expected, f"cells, stride {stride}")


def test_numbered_names_fill_the_table_as_they_should() -> None:
    n = 1 << 17
    buckets = 100
    levels = 10
    names = [f"user{i}".encode() for i in range(n)]
    offsets = np.cumsum([0, *(len(name) for name in names)]).astype(np.int32)
    cells_out = np.empty(n, np.int32)
    cells_of_strings(offsets, np.frombuffer(b"".join(names), np.uint8), 0, buckets, levels, cells_out, hash="siphash")
    shares = np.array([*(0.5 ** (level + 1) for level in range(levels - 1)), 0.5 ** (levels - 1)])
    expected = n * np.repeat(shares / buckets, buckets)
    assert_fits(np.bincount(cells_out, minlength=buckets * levels), expected, "cells of names")


@pytest.mark.parametrize(
    ("buckets", "levels", "dtype", "message"),
    [
        (0, 1, np.int64, "buckets must be an integer in 1"),
        (1 << 32, 1, np.int64, "buckets must be an integer in 1"),
        (1.5, 1, np.int64, "buckets must be an integer in 1"),
        (10, 0, np.int64, "levels must be an integer in 1"),
        (10, 34, np.int64, "levels must be an integer in 1"),
        (1 << 31, 2, np.int32, "out must be int64"),
        (10, 2, np.uint32, "out must be a contiguous one-dimensional array of int32 or int64"),
    ],
)
def test_other_tables_are_refused(buckets: Any, levels: int, dtype: Any, message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        cells(np.zeros(3, np.uint64), buckets, levels, dtype)


def test_other_inputs_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="hashes must be a contiguous"):
        cells_of(np.zeros(3, np.int64), 10, 3, np.empty(3, np.int64))  # type: ignore[arg-type]
    with pytest.raises(InvalidBatch, match="row 0: offsets must not decrease"):
        cells_of_strings(np.array([5, 1]), np.zeros(9, np.uint8), 0, 10, 3, np.empty(1, np.int64), hash="siphash")


def bits_of(found: NDArray[Any], buckets: int, levels: int) -> list[int]:
    seen = np.zeros(-(-buckets * levels // 64) * 64, np.uint8)
    seen[found] = 1
    words: list[int] = np.packbits(seen, bitorder="little").view("<u8").tolist()
    return words


TABLES = [(1, 1), (1000, 20), (4096, 33), (1 << 16, 5)]


@pytest.mark.parametrize(("buckets", "levels"), TABLES)
@pytest.mark.parametrize("rows", [0, 1, 7, 31, 40, 250, 295, 1000])
def test_packed_marks_of_integers_are_their_cells(buckets: int, levels: int, rows: int) -> None:
    """Wherever in a line of cache the first integer lies, and with marks that were there before."""
    buffer = np.random.default_rng(rows).integers(-(2**63), 2**63 - 1, rows + 8)
    for start in range(8):
        values = buffer[start : start + rows]
        cells = np.empty(rows, np.int64)
        marks = np.zeros(-(-buckets * levels // 64), np.uint64)
        marks[-1] = before = 1
        cells_of_integers(values, 9, buckets, levels, cells)
        mark_integers_packed(values, 9, buckets, levels, marks)
        expected = bits_of(cells, buckets, levels)
        expected[-1] |= before
        assert marks.tolist() == expected


def assert_marks_are_cells(offsets: NDArray[Any], data: NDArray[np.uint8], buckets: int, levels: int) -> None:
    """Compare packed marks, and one byte for each cell, with the cells of the strings hashed one by one."""
    cells = np.empty(offsets.size - 1, np.int64)
    for row in range(cells.size):
        alone = data[offsets[row] : offsets[row + 1]].copy()
        cells_of_strings(np.array([0, alone.size]), alone, 9, buckets, levels, cells[row : row + 1], hash="fold")
    packed = np.zeros(-(-buckets * levels // 64), np.uint64)
    marks = np.zeros(buckets * levels, np.uint8)
    mark_strings_packed(offsets, data, 9, buckets, levels, packed)
    mark_strings(offsets, data, 9, buckets, levels, marks)
    assert packed.tolist() == bits_of(cells, buckets, levels)
    assert np.flatnonzero(marks).tolist() == np.unique(cells).tolist()


@pytest.mark.parametrize(("buckets", "levels"), TABLES)
@pytest.mark.parametrize("lengths", [[0], [16], [5], [3, 16, 17, 40, 0, 100]])
@pytest.mark.parametrize("rows", [0, 1, 300, STRINGS, STRINGS + 300])
def test_packed_marks_of_strings_are_their_cells(buckets: int, levels: int, lengths: list[int], rows: int) -> None:
    offsets = np.concatenate([[0], np.cumsum(np.resize(lengths, rows))]).astype(np.int32)
    data = np.random.default_rng(rows).integers(0, 256, int(offsets[-1]) + 3, dtype=np.uint8)
    cells = np.empty(rows, np.int64)
    marks = np.zeros(-(-buckets * levels // 64), np.uint64)
    cells_of_strings(offsets, data, 9, buckets, levels, cells, hash="fold")
    mark_strings_packed(offsets, data, 9, buckets, levels, marks)
    assert marks.tolist() == bits_of(cells, buckets, levels)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("length", range(18))
def test_strings_of_equal_length_are_marked_wherever_they_lie(length: int, dtype: Any) -> None:
    """Any number of rows, any alignment, and from no bytes to more than a pair of words after them."""
    rng = np.random.default_rng(length)
    buffer = rng.integers(0, 256, 300 * 18 + 64, dtype=np.uint8)
    for rows, skip, spare in [(1, 0, 0), (7, 3, 16), (8, 5, 16), (9, 1, 40), (31, 0, 16), (250, 2, 15), (300, 9, 20)]:
        offsets = (np.arange(rows + 1) * length + skip).astype(dtype)
        assert_marks_are_cells(offsets, buffer[: int(offsets[-1]) + spare], 1000, 20)


@pytest.mark.parametrize("longest", [1, 8, 16, 17, 40])
def test_strings_of_mixed_lengths_are_marked_wherever_they_lie(longest: int) -> None:
    rng = np.random.default_rng(longest)
    for rows, skip, spare in [(1, 0, 0), (8, 0, 0), (9, 3, 16), (300, 1, 0), (299, 7, 16), (64, 0, 3)]:
        offsets = (np.cumsum([skip, *rng.integers(0, longest + 1, rows)])).astype(np.int32)
        data = rng.integers(0, 256, int(offsets[-1]) + spare, dtype=np.uint8)
        assert_marks_are_cells(offsets, data, 1000, 20)


@pytest.mark.parametrize("bad", [-1, 10**6])
@pytest.mark.parametrize("row", [0, 5, STRINGS, STRINGS + 800])
def test_packed_marks_refuse_strings_outside_their_data(bad: int, row: int) -> None:
    offsets = np.arange(STRINGS + 801, dtype=np.int32) * 16
    offsets[row] = bad
    with pytest.raises(InvalidBatch, match="offsets must not decrease and must lie within data") as error:
        mark_strings_packed(offsets, np.zeros((STRINGS + 800) * 16, np.uint8), 0, 1000, 20, np.zeros(313, np.uint64))
    assert error.value.row in (row - 1, row)


@pytest.mark.parametrize("length", [-1, 0, 8, 16])
@pytest.mark.parametrize("start", [-(2**63), -1, -16, 2**62, 2**63 - 40, 2**63 - 1])
def test_marks_refuse_equal_lengths_outside_their_data(start: int, length: int) -> None:
    """Equal differences of offsets do not imply that strings lie in the data or in order, as numbers wrap around."""
    offsets = np.array([(start + i * length + 2**63) % 2**64 - 2**63 for i in range(9)], np.int64)
    data = np.zeros(1000, np.uint8)
    packed = np.zeros(313, np.uint64)
    marks = np.zeros(20_000, np.uint8)
    for refused in (
        lambda: mark_strings_packed(offsets, data, 0, 1000, 20, packed),
        lambda: mark_strings(offsets, data, 0, 1000, 20, marks),
        lambda: hash_strings(offsets, data, 0, np.empty(8, np.uint64), hash="fold"),
    ):
        with pytest.raises(InvalidBatch, match="offsets must not decrease and must lie within data"):
            refused()
    assert not packed.any() and not marks.any()


def test_packed_marks_need_a_bit_for_every_cell() -> None:
    with pytest.raises(InvalidParameter, match="out must be a writeable array of 313 elements"):
        mark_integers_packed(np.arange(3), 0, 1000, 20, np.zeros(312, np.uint64))
