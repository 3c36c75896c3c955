"""Compare 32 or 64 bytes at once: the result has a bit for each, the first byte's being the lowest.

These are plain vector operations, which LLVM translates for every processor; numba would compare byte by byte. Nothing
past the end of an array is read: the last bytes are compared one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import part
from panstream.primitives.kernels.machine_words import address_of, ones, trailing_zeros

_BYTE = ir.IntType(8)
_WORD = ir.IntType(64)
_LOW = np.uint64(0xFFFFFFFF)
_NONE = np.uint64(0)

Bytes = NDArray[np.uint8]


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


def _equal_32(typingctx: Any, data: Any, position: Any, byte: Any) -> Any:
    """Compare the 32 bytes from ``position`` on with one byte."""
    return _equal(data, 32)


def _equal_64(typingctx: Any, data: Any, position: Any, byte: Any) -> Any:
    """Compare the 64 bytes from ``position`` on with one byte."""
    return _equal(data, 64)


def _between_32(typingctx: Any, data: Any, position: Any, low: Any, high: Any) -> Any:
    """Find the bytes from ``low`` to ``high``, both included, among the 32 from ``position`` on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        chunk = _load(context, builder, signature.args[0], args[0], args[1], 32)
        low, high = (_broadcast(builder, byte, 32) for byte in args[2:])
        return _bits(builder, builder.icmp_unsigned("<=", builder.sub(chunk, low), builder.sub(high, low)), 32)

    return types.uint64(data, types.int64, types.int64, types.int64), codegen


def _same_32(typingctx: Any, data: Any, one: Any, other: Any) -> Any:
    """Compare the 32 bytes from one position on with those from another."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        left, right = (_load(context, builder, signature.args[0], args[0], start, 32) for start in args[1:])
        return _bits(builder, builder.icmp_unsigned("==", left, right), 32)

    return types.uint64(data, types.int64, types.int64), codegen


# numba passes the typing context itself, which its annotations do not know: hence Any.
equal_32: Any = intrinsic(_equal_32)
equal_64: Any = intrinsic(_equal_64)
between_32: Any = intrinsic(_between_32)
same_32: Any = intrinsic(_same_32)


# The loop over single bytes runs only near the end of the array, past which a vector must not read.
@part
def find_byte(data: Bytes, pos: int, end: int, byte: int) -> Any:
    """Return the first position of a byte in ``data[pos:end]``, or ``end``."""
    while pos < end and pos + 64 <= data.size:
        hits = equal_64(data, pos, byte)
        if hits != _NONE:
            return min(pos + np.int64(trailing_zeros(hits)), end)
        pos += 64
    while pos < end and data[pos] != byte:
        pos += 1
    return min(pos, end)


# Vectors only up to ``end``: bytes after it belong to a record that is not complete yet.
@njit(cache=True, nogil=True)
def count_byte(data: Bytes, end: int, byte: int) -> Any:
    """Count the occurrences of a byte in ``data[:end]``."""
    pos: Any = 0
    count: Any = 0
    while pos + 64 <= end:
        count += np.int64(ones(equal_64(data, pos, byte)))
        pos += 64
    while pos < end:
        count += data[pos] == byte
        pos += 1
    return count


@part
def end_of_digits(data: Bytes, pos: int, end: int) -> Any:
    """Return the position after the decimal digits that start at ``pos``."""
    while pos < end and pos + 32 <= data.size:
        others = ~between_32(data, pos, 0x30, 0x39) & _LOW
        if others != _NONE:
            return min(pos + np.int64(trailing_zeros(others)), end)
        pos += 32
    while pos < end and 0x30 <= data[pos] <= 0x39:
        pos += 1
    return min(pos, end)


@part
def end_of_letters(data: Bytes, pos: int, end: int) -> Any:
    """Return the first position of a quote, backslash or control character in ``data[pos:end]``, or ``end``."""
    while pos < end and pos + 32 <= data.size:
        hits = equal_32(data, pos, 0x22) | equal_32(data, pos, 0x5C) | between_32(data, pos, 0x00, 0x1F)
        if hits != _NONE:
            return min(pos + np.int64(trailing_zeros(hits)), end)
        pos += 32
    while pos < end and data[pos] != 0x22 and data[pos] != 0x5C and data[pos] >= 0x20:
        pos += 1
    return min(pos, end)


@part
def is_repeated(data: Bytes, one: int, other: int, size: int) -> Any:
    """Return whether the ``size`` bytes at two positions are equal; both ranges must lie within ``data``."""
    while size > 0 and max(one, other) + 32 <= data.size:
        differing = ~same_32(data, one, other) & _LOW
        if size < 32:
            differing &= (np.uint64(1) << np.uint64(size)) - np.uint64(1)
        if differing != _NONE:
            return False
        one = one + 32
        other = other + 32
        size = size - 32
    i = 0
    while i < size and data[one + i] == data[other + i]:
        i += 1
    return i >= size
