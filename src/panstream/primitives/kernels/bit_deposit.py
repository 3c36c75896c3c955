"""Parallel bit deposit: one instruction (pdep) where the processor has it, arithmetic on all eight bytes elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from panstream.primitives.kernels.jit import instruction

_BYTES = np.uint64(0x0101010101010101)  # 1 in each byte
_BYTE = np.uint64(0xFF)
_SEVEN = np.uint64(0x7F7F7F7F7F7F7F7F)
_63 = np.uint64(63)
_2 = np.uint64(0x3333333333333333)
_4 = np.uint64(0x0F0F0F0F0F0F0F0F)


def deposit_bits_bytewise(word: np.uint64, mask: np.uint64) -> np.uint64:
    """Move the lowest bits of ``word`` to the set positions of ``mask``, in order; other positions are 0.

    Each byte of the mask takes the bits after those that the bytes below it take. Within the bytes, all eight at once,
    positions are visited from the lowest, and a set one takes the next bit. No branch depends on either word.
    """
    one = np.uint64(1)
    counts = mask - ((mask >> one) & np.uint64(0x5555555555555555))
    counts = (counts & _2) + ((counts >> np.uint64(2)) & _2)
    below = (((counts + (counts >> np.uint64(4))) & _4) * _BYTES) << np.uint64(8)
    remaining = deposited = np.uint64(0)
    for byte in range(8):
        first = np.uint64(8 * byte)
        remaining |= ((word >> ((below >> first) & _63)) & _BYTE) << first
    for bit in range(8):
        takes = (mask >> np.uint64(bit)) & _BYTES
        deposited |= (remaining & takes) << np.uint64(bit)
        remaining ^= (remaining ^ ((remaining >> one) & _SEVEN)) & (takes * _BYTE)
    return deposited


deposit_bits: Any = instruction("panstream.primitives.kernels.bit_deposit_instruction", "deposit_bits")
