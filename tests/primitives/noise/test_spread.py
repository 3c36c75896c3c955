"""Bit deposit: both implementations agree with a loop over single bits."""

import numpy as np
import pytest
from numba import njit

from panstream.primitives.kernels.bit_deposit import deposit_bits, deposit_bits_bytewise

FULL = (1 << 64) - 1


def one_by_one(word: int, mask: int) -> int:
    deposited = 0
    for position in range(64):
        if mask >> position & 1:
            deposited |= (word & 1) << position
            word >>= 1
    return deposited


def cases() -> list[tuple[int, int]]:
    rng = np.random.default_rng(8)
    words = [0, 1, FULL, 0x5555_5555_5555_5555, *rng.integers(0, 1 << 64, 20, dtype=np.uint64).tolist()]
    masks = [0, 1, 1 << 63, FULL, FULL >> 1, FULL - 1, 0xFF, 0xFF << 56, 0x8000_0000_0000_0001]
    masks += [0x0101_0101_0101_0101 << i for i in range(8)]
    for thinner in range(5):
        masks += np.bitwise_and.reduce(rng.integers(0, 1 << 64, (thinner + 1, 20), dtype=np.uint64)).tolist()
    return [(word, mask) for word in words for mask in masks]


@njit
def _compiled(word: np.uint64, mask: np.uint64) -> np.uint64:
    return deposit_bits(word, mask)


@pytest.mark.parametrize("way", [_compiled, njit(deposit_bits_bytewise)], ids=["processor", "bytes"])
def test_bits_are_spread_in_order(way: object) -> None:
    assert callable(way)
    for word, mask in cases():
        assert int(way(np.uint64(word), np.uint64(mask))) == one_by_one(word, mask), (hex(word), hex(mask))
