"""The code of ``bit_deposit``, for the processor that is compiled for."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from panstream.primitives.kernels.bit_deposit import deposit_bits_bytewise

_WORD = ir.IntType(64)
_SLOW = ("znver1", "znver2")  # pdep is microcode there: eight cycles for every bit that is set in the mask


def deposit_bits(typingctx: Any, word: Any, mask: Any) -> Any:
    """Compute `deposit_bits_bytewise` by the fastest means of the processor that is compiled for."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, processor, features = context.codegen().magic_tuple()
        if "+bmi2" not in features.split(",") or processor in _SLOW:
            return context.compile_internal(builder, deposit_bits_bytewise, signature, args)
        kind = ir.FunctionType(_WORD, [_WORD, _WORD])
        return builder.call(builder.module.declare_intrinsic("llvm.x86.bmi.pdep.64", (), kind), args)

    return types.uint64(types.uint64, types.uint64), codegen
