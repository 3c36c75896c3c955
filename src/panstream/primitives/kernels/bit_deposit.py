"""Bits of one word to the places of another's ones: by one instruction where the processor has it, or by arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_WORD = ir.IntType(64)
_SLOW = ("znver1", "znver2")  # whose instruction takes eight cycles for every one of the mask

_BYTES = np.uint64(0x0101010101010101)  # 1 in each byte
_BYTE = np.uint64(0xFF)
_SEVEN = np.uint64(0x7F7F7F7F7F7F7F7F)
_63 = np.uint64(63)
_2 = np.uint64(0x3333333333333333)
_4 = np.uint64(0x0F0F0F0F0F0F0F0F)


def deposit_bits_bytewise(word: np.uint64, mask: np.uint64) -> np.uint64:
    """Return the lowest bits of ``word`` in the places where ``mask`` has ones, in order, and 0 elsewhere.

    Each byte of the mask takes the bits after those that the bytes below it take; within bytes, all eight at once,
    places are gone through from the lowest, and a one takes the next bit.
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


def _spread(typingctx: Any, word: Any, mask: Any) -> Any:
    """Return the same as `deposit_bits_bytewise`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, processor, features = context.codegen().magic_tuple()
        if "+bmi2" not in features.split(",") or processor in _SLOW:
            return context.compile_internal(builder, deposit_bits_bytewise, signature, args)
        kind = ir.FunctionType(_WORD, [_WORD, _WORD])
        return builder.call(builder.module.declare_intrinsic("llvm.x86.bmi.pdep.64", (), kind), args)

    return types.uint64(types.uint64, types.uint64), codegen


# numba passes the typing context itself, which its annotations do not know: hence Any.
spread: Any = intrinsic(_spread)
