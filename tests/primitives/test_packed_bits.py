"""Packed bits: every kernel against the same thing done to plain lists, cell by cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from panstream.primitives.kernels.algorithms import packed_bits as kernels
from panstream.primitives.noise import Coin, NoiseSource, SeededSource
from panstream.primitives.packed_bits import draw_packed_bits, get_bit, pack_bits, popcount, unpack_bits

SIZES = (1, 2, 7, 8, 9, 15, 16, 17, 64, 100, 131)
Bytes = NDArray[np.uint8]


def some(size: int, seed: int = 0) -> Bytes:
    return np.random.default_rng((size, seed)).integers(0, 2, size).astype(np.uint8)


def same(bits: Bytes, cells: Any) -> None:
    """The bits are those cells, and nothing is set beyond the last."""
    expected = np.asarray(cells, np.uint8)
    assert bits.tolist() == pack_bits(expected).tolist()
    assert unpack_bits(bits, expected.shape[-1]).tolist() == expected.tolist()


@pytest.mark.parametrize("size", SIZES)
def test_there_and_back(size: int) -> None:
    cells = some(size)
    bits = pack_bits(cells)
    assert bits.size == (size + 7) // 8
    same(bits, cells)
    assert [get_bit(bits, cell) for cell in range(size)] == cells.tolist()
    assert popcount(bits) == int(cells.sum())
    out = np.full(bits.size, 255, np.uint8)
    kernels.pack(cells, out)
    same(out, cells)
    rows = np.stack([cells, 1 - cells])
    assert unpack_bits(pack_bits(rows), size).tolist() == rows.tolist()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 70), st.lists(st.tuples(st.integers(0, 90), st.booleans()), max_size=40), st.booleans())
def test_rows_change_their_own_cell_only(size: int, rows: list[tuple[int, bool]], small: bool) -> None:
    """In order, so that the last row of a cell decides; users outside the sample change nothing."""
    kind = np.int32 if small else np.int64
    inside = [(cell % size, coin) for cell, coin in rows]
    cells = np.array([c for c, _ in inside], kind)
    coins = np.array([c for _, c in inside], np.uint8)
    bits = pack_bits(some(size))
    expected = some(size).tolist()
    kernels.scatter(bits, cells, coins)
    for cell, coin in inside:
        expected[cell] = int(coin)
    same(bits, expected)
    kernels.toggle(bits, cells)
    for cell, _ in inside:
        expected[cell] ^= 1
    same(bits, expected)
    anywhere = np.array([c for c, _ in rows], np.int64)
    kernels.redraw(bits, size, anywhere, coins)
    for cell, coin in rows:
        if cell < size:
            expected[cell] = int(coin)
    same(bits, expected)
    counters = np.zeros(size, np.int32)
    kernels.count_and_redraw(counters, bits, anywhere, coins, 3)
    seen = [0] * size
    for cell, coin in rows:
        if cell < size:
            seen[cell] += 1
            if seen[cell] % 3 == 0:
                expected[cell] = int(coin)
    same(bits, expected)
    assert counters.tolist() == [times % 3 for times in seen]


@pytest.mark.parametrize("size", SIZES)
def test_marked_cells_take_their_coins(size: int) -> None:
    before, marks, coins = (some(size, seed) for seed in range(3))
    bits = pack_bits(before)
    kernels.draw_marked(bits, marks, coins)
    same(bits, np.where(marks, coins, before))
    longer = np.zeros(8 * bits.size, np.uint8)  # as from packed marks: 0 beyond the last cell
    longer[:size] = marks
    bits = pack_bits(before)
    kernels.draw_marked(bits, longer, np.ones(longer.size, np.uint8))
    same(bits, np.where(marks, 1, before))


@pytest.mark.parametrize("size", SIZES)
def test_noisy_or_takes_the_coin_of_the_pair(size: int) -> None:
    first, second, one, other, both = (some(size, seed) for seed in range(5))
    out = np.full((size + 7) // 8, 255, np.uint8)
    kernels.noisy_or(*(pack_bits(each) for each in (first, second, one, other, both)), out)  # type: ignore[call-arg]
    chosen = {(0, 0): np.zeros(size, int), (1, 0): one, (0, 1): other, (1, 1): both}
    same(out, [chosen[pair][cell] for cell, pair in enumerate(zip(first.tolist(), second.tolist(), strict=True))])


@pytest.mark.parametrize("buckets", [1, 3, 7, 8, 12, 64, 101])
@pytest.mark.parametrize("levels", [1, 2, 5])
@pytest.mark.parametrize("phases", [0, 1, 3])
def test_ones_are_counted_by_level_and_pattern(buckets: int, levels: int, phases: int) -> None:
    size = buckets * levels
    cells = some(size)
    seen = np.array([some(size, 1 + phase) for phase in range(phases)]).reshape(phases, size)
    ones = np.zeros((1 << phases, levels), np.int64)
    kernels.count_set_bits(pack_bits(cells), pack_bits(seen.astype(np.uint8)), buckets, ones)
    expected = np.zeros_like(ones)
    for cell in range(size):
        pattern = sum(int(seen[phase, cell]) << phase for phase in range(phases))
        expected[pattern, cell // buckets] += int(cells[cell])
    assert ones.tolist() == expected.tolist()


def test_tosses_are_those_of_the_source_whatever_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    coin = Coin.at_most(0.3)
    with SeededSource(5) as rng:
        expected = rng.bernoulli(coin, 1000).copy()
    with SeededSource(5) as rng:
        same(draw_packed_bits(coin, 1000, rng), expected)
    monkeypatch.setattr("panstream.primitives.packed_bits._CHUNK", 64)
    for cells in (*SIZES, 1000):
        with NoiseSource() as secure:
            same(draw_packed_bits(Coin(1 << 64), cells, secure), np.ones(cells))
            bits = np.full((cells + 7) // 8, 255, np.uint8)
            draw_packed_bits(Coin(0), cells, secure, bits)
            assert not bits.any()
