"""Decompress Snappy's raw format: literals, and copies of what was written before.

Which of the two comes next cannot be guessed, so both go the same way, without a branch: sixteen bytes are copied
whatever the length, as long as they fit. Every place is checked before a byte is read or written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from panstream.primitives.kernels.machine_words import load_word

_MARGIN = 80  # bytes that are read or written behind a place at most, by one element
_LONGEST = 60  # bytes of a literal whose length stands in its tag
_LENGTH_BYTES = 5  # of the length at the beginning, at most
_BLOCK = 16
_FEW = 4  # literal bytes that fit into a word with the tags around them and an offset of two bytes


def _table() -> NDArray[np.uint64]:
    """Return for every tag of a copy its length and, from bit 16 on, what its offset is at least.

    Tags that a pair cannot end with, literals and copies with offsets of four bytes, are too long for a block.
    """
    found = np.empty(256, np.uint64)
    for tag in range(256):
        kind, upper = tag & 3, tag >> 2
        length = 4 + (upper & 7) if kind == 1 else upper + 1 if kind == 2 else 255
        found[tag] = length | ((tag >> 5) << 24 if kind == 1 else 0)
    return found


_TAGS = _table()
_OFFSET_BITS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFFFF], np.uint64)  # by kind, behind the tag


def _block(typingctx: Any, target: Any, source: Any) -> Any:
    """Copy sixteen bytes between two addresses, whatever their alignment: all are read before any is written."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = ir.VectorType(ir.IntType(8), _BLOCK).as_pointer()
        to, start = (builder.inttoptr(address, pointer) for address in args)
        block = builder.load(start)
        block.align = 1
        builder.store(block, to).align = 1
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64), codegen


_copy_block: Any = intrinsic(_block)


@njit(cache=True, nogil=True)
def unpack_snappy(packed: NDArray[np.uint8], out: NDArray[np.uint8]) -> bool:
    """Decompress into ``out``; return whether it was sound and as long as ``out`` is, as it says itself."""
    told, at = np.uint64(0), np.uint64(0)
    while True:
        if at >= np.uint64(min(packed.size, _LENGTH_BYTES)):
            return False
        byte = np.uint64(packed[at])
        told |= (byte & np.uint64(127)) << (np.uint64(7) * at)
        at += np.uint64(1)
        if byte < np.uint64(128):
            break
    if told != np.uint64(out.size):
        return False
    at, done = _fast(packed, at, out)
    return bool(done >= 0 and _rest(packed, at, out, done) == out.size)


@njit(cache=True, nogil=True)
def _fast(packed: NDArray[np.uint8], at: np.uint64, out: NDArray[np.uint8]) -> Any:
    """Go on until either end is near; return where, -1 for damage.

    Most elements are a few literal bytes and then a copy: such a pair, or the copy alone, is read as one word.
    """
    source, target, done, one = np.uint64(packed.ctypes.data), np.uint64(out.ctypes.data), np.uint64(0), np.uint64(1)
    last, full = np.uint64(max(packed.size - _MARGIN, 0)), np.uint64(max(out.size - _MARGIN, 0))
    while at < last and done < full:
        word = load_word(packed, at)
        tag = word & np.uint64(0xFF)
        literal = np.uint64(0) - np.uint64((tag & np.uint64(3)) == 0)  # all bits or none
        few = ((tag >> np.uint64(2)) + one) & literal
        ahead = (few + one) & literal
        pair = word >> ((ahead << np.uint64(3)) & np.uint64(63))
        kind = pair & np.uint64(3)
        entry = _TAGS[pair & np.uint64(0xFF)]
        length = entry & np.uint64(0xFF)
        offset = (entry >> np.uint64(16)) + ((pair >> np.uint64(8)) & _OFFSET_BITS[kind])
        to = target + done + few
        if few <= np.uint64(_FEW) and length <= np.uint64(_BLOCK) and length <= offset and offset <= done + few:
            _copy_block(target + done, source + at + one)
            _copy_block(to, to - offset)
            at += ahead + kind + one
            done += few + length
        else:
            at, done, good = _element(packed, at, out, done)
            if not good:
                return at, np.int64(-1)
    return at, np.int64(done)


@njit(cache=True, nogil=True)
def _element(packed: NDArray[np.uint8], at: np.uint64, out: NDArray[np.uint8], done: np.uint64) -> Any:
    """Decompress one element that is not near either end; return where it ends and whether it was sound."""
    source, to, one = np.uint64(packed.ctypes.data) + at, np.uint64(out.ctypes.data) + done, np.uint64(1)
    word = load_word(packed, at)
    kind, length = word & np.uint64(3), ((word & np.uint64(0xFF)) >> np.uint64(2)) + one
    if kind == 0:
        more = length - np.uint64(_LONGEST) if length > np.uint64(_LONGEST) else np.uint64(0)
        if more:
            length = ((word >> np.uint64(8)) & ((one << (np.uint64(8) * more)) - one)) + one
        at += one + more
        if length > np.uint64(packed.size) - at or length > np.uint64(out.size) - done:
            return at, done, False
        if more:
            for i in range(length):  # a slice would take longer to compile than all the rest
                out[done + i] = packed[at + i]
        else:
            for j in range(0, 4 * _BLOCK, _BLOCK):
                _copy_block(to + np.uint64(j), source + one + np.uint64(j))
        return at + length, done + length, True
    offset = (word >> np.uint64(8)) & _OFFSET_BITS[kind]
    if kind == one:
        offset |= ((word & np.uint64(0xFF)) >> np.uint64(5)) << np.uint64(8)
        length = ((length - one) & np.uint64(7)) + np.uint64(4)
    if offset == 0 or offset > done:
        return at, done, False
    if offset >= np.uint64(_BLOCK):
        for j in range(0, 4 * _BLOCK, _BLOCK):
            _copy_block(to + np.uint64(j), to + np.uint64(j) - offset)
    else:
        for j in range(length):
            out[done + np.uint64(j)] = out[done - offset + np.uint64(j)]
    return at + kind + one + (kind & (kind >> one)), done + length, True


@njit(cache=True, nogil=True)
def _rest(packed: NDArray[np.uint8], start: np.uint64, out: NDArray[np.uint8], done: Any) -> Any:
    """Go on to the end, byte by byte."""
    at, end, room = np.int64(start), packed.size, out.size
    while at < end:
        tag = np.int64(packed[at])
        kind, length = tag & 3, (tag >> 2) + 1
        at += 1
        wide = kind if kind < 3 else 4
        if kind == 0 and length > _LONGEST:
            wide = length - _LONGEST
        if wide > end - at:
            return -1
        number = np.int64(0)
        for j in range(wide):
            number |= np.int64(packed[at + j]) << (8 * j)
        at += wide
        if kind == 0:
            length = length if wide == 0 else number + 1
            if length > end - at or length > room - done:
                return -1
            for j in range(length):
                out[done + j] = packed[at + j]
            at += length
        else:
            if kind == 1:
                length, number = 4 + ((tag >> 2) & 7), number | (tag >> 5) << 8
            if number == 0 or number > done or length > room - done:
                return -1
            for j in range(length):
                out[done + j] = out[done - number + j]
        done += length
    return done
