"""Cells of one bit, eight to a byte as in files: an eighth of the memory, so that more of a table is in the cache.

A packed array has the lowest cell in the lowest bit, and 0 beyond the last cell.

>>> bits = pack_bits(np.array([1, 0, 0, 1, 0, 0, 0, 0, 1, 1], np.uint8))
>>> bits.tolist(), unpack_bits(bits, 10).tolist(), get_bit(bits, 3), popcount(bits)
([9, 3], [1, 0, 0, 1, 0, 0, 0, 0, 1, 1], 1, 4)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.noise import Coin, NoiseSource

_CHUNK = 1 << 17  # a multiple of eight


def draw_packed_bits(
    coin: Coin, cells: int, rng: NoiseSource, bits: NDArray[np.uint8] | None = None
) -> NDArray[np.uint8]:
    """Return ``cells`` packed tosses of a coin, written to ``bits`` if it is given."""
    from panstream.primitives.kernels.algorithms.packed_bits import pack

    out = np.empty((cells + 7) // 8, np.uint8) if bits is None else bits
    coins = rng.scratch.array(min(cells, _CHUNK))
    for start in range(0, cells, _CHUNK):
        tossed = rng.bernoulli(coin, min(_CHUNK, cells - start), out=coins)
        pack(tossed, out[start // 8 :])
    return out


def pack_bits(cells: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return bytes 0 and 1 packed along the last axis."""
    return np.packbits(cells, axis=-1, bitorder="little")


def unpack_bits(bits: NDArray[np.uint8], cells: int) -> NDArray[np.uint8]:
    """Return ``cells`` bytes 0 and 1 for each packed row."""
    return np.unpackbits(bits, axis=-1, count=cells, bitorder="little")


def get_bit(bits: NDArray[np.uint8], cell: int) -> int:
    """Return one cell."""
    return int(bits[cell >> 3]) >> (cell & 7) & 1


def popcount(bits: NDArray[np.uint8]) -> int:
    """Return how many cells are 1."""
    return int(np.unpackbits(bits).sum(dtype=np.int64))
