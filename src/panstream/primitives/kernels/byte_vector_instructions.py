"""The code of ``simd_byte_search``: vectors of bytes, which LLVM translates for every processor.

numba passes the typing context itself, which its annotations do not know: hence Any.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from panstream.primitives.kernels.machine_word_instructions import address_of

_BYTE = ir.IntType(8)
_WORD = ir.IntType(64)


def _load(context: Any, builder: Any, kind: Any, data: Any, position: Any, width: int) -> Any:
    address = address_of(context, builder, kind, data, position, _WORD(width))
    vector = builder.load(builder.bitcast(address, ir.VectorType(_BYTE, width).as_pointer()))
    vector.align = 1
    return vector


def _broadcast(builder: Any, number: Any, width: int) -> Any:
    """Return a vector with the lowest byte of a number in every lane."""
    kind = ir.VectorType(_BYTE, width)
    nothing = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(nothing, builder.trunc(number, _BYTE), ir.IntType(32)(0))
    return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(ir.IntType(32), width), None))


def _bits(builder: Any, truths: Any, width: int) -> Any:
    word = builder.bitcast(truths, ir.IntType(width))
    return word if width == 64 else builder.zext(word, _WORD)


def _equal(data: Any, width: int) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        chunk = _load(context, builder, signature.args[0], args[0], args[1], width)
        return _bits(builder, builder.icmp_unsigned("==", chunk, _broadcast(builder, args[2], width)), width)

    return types.uint64(data, types.int64, types.int64), codegen


def equal_32(typingctx: Any, data: Any, position: Any, byte: Any) -> Any:
    """Compare the 32 bytes from ``position`` on with one byte."""
    return _equal(data, 32)


def equal_64(typingctx: Any, data: Any, position: Any, byte: Any) -> Any:
    """Compare the 64 bytes from ``position`` on with one byte."""
    return _equal(data, 64)


def between_32(typingctx: Any, data: Any, position: Any, low: Any, high: Any) -> Any:
    """Find the bytes from ``low`` to ``high``, both included, among the 32 from ``position`` on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        chunk = _load(context, builder, signature.args[0], args[0], args[1], 32)
        low, high = (_broadcast(builder, byte, 32) for byte in args[2:])
        return _bits(builder, builder.icmp_unsigned("<=", builder.sub(chunk, low), builder.sub(high, low)), 32)

    return types.uint64(data, types.int64, types.int64, types.int64), codegen


def same_32(typingctx: Any, data: Any, one: Any, other: Any) -> Any:
    """Compare the 32 bytes from one position on with those from another."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        left, right = (_load(context, builder, signature.args[0], args[0], start, 32) for start in args[1:])
        return _bits(builder, builder.icmp_unsigned("==", left, right), 32)

    return types.uint64(data, types.int64, types.int64), codegen
