"""The code of ``simd_lanes``: vectors of eight words.

numba passes the typing context itself, which its annotations do not know: hence Any.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from panstream.primitives.kernels.hashing.integer_mixer import FIRST, SECOND
from panstream.primitives.kernels.hashing.simd_lanes import LANES
from panstream.primitives.kernels.machine_word_instructions import address_of

_WORD = ir.IntType(64)
_INDEX = ir.IntType(32)
_PAIR = ir.VectorType(_WORD, 2)
_WORDS = ir.VectorType(_WORD, LANES)


def _indices(indices: range) -> ir.Constant:
    return ir.Constant(ir.VectorType(_INDEX, len(indices)), list(indices))


def _all(value: int) -> ir.Constant:
    return ir.Constant(_WORDS, [value] * LANES)


def _broadcast(builder: Any, word: Any) -> Any:
    """Return a word in every lane."""
    nothing = ir.Constant(_WORDS, ir.Undefined)
    one = builder.insert_element(nothing, word, _INDEX(0))
    return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(_INDEX, LANES), [0] * LANES))


def _pairs(builder: Any, address: Any, length: Any) -> Any:
    """Load the first and the second words of adjacent strings; 16 bytes must be readable from each."""
    parts = []
    for lane in range(LANES):
        pointer = builder.gep(address, [builder.mul(length, _WORD(lane))])
        parts.append(builder.load(builder.bitcast(pointer, _PAIR.as_pointer())))
        parts[-1].align = 1
    while len(parts) > 1:
        both = _indices(range(2 * parts[0].type.count))
        parts = [builder.shuffle_vector(left, right, both) for left, right in zip(parts[::2], parts[1::2], strict=True)]
    nothing = ir.Constant(parts[0].type, ir.Undefined)
    return tuple(builder.shuffle_vector(parts[0], nothing, _indices(range(which, 2 * LANES, 2))) for which in (0, 1))


def _product(builder: Any, left: Any, right: Any) -> Any:
    """Return the lower and the upper 64 bits of each lane's product of 128."""
    low = _all(0xFFFFFFFF)
    half = _all(32)
    left0 = builder.and_(left, low)
    left1 = builder.lshr(left, half)
    right0 = builder.and_(right, low)
    right1 = builder.lshr(right, half)
    lowest = builder.mul(left0, right0)
    middle = builder.add(builder.mul(left1, right0), builder.lshr(lowest, half))
    other = builder.add(builder.mul(left0, right1), builder.and_(middle, low))
    upper = builder.add(builder.lshr(middle, half), builder.lshr(other, half))
    lower = builder.or_(builder.shl(other, half), builder.and_(lowest, low))
    return lower, builder.add(builder.mul(left1, right1), upper)


def _folded(context: Any, builder: Any, kind: Any, args: Any) -> Any:
    """Return the hashes of strings from the first five arguments of `fold_lanes`."""
    size = builder.add(builder.mul(args[2], _WORD(LANES - 1)), _WORD(16))
    first, second = _pairs(builder, address_of(context, builder, kind, args[0], args[1], size), args[2])
    keep = [_broadcast(builder, builder.extract_value(args[3], i)) for i in range(2)]
    keys = [_broadcast(builder, builder.extract_value(args[4], i)) for i in range(4)]
    first = builder.add(builder.and_(first, keep[0]), keys[0])
    second = builder.add(builder.and_(second, keep[1]), keys[1])
    low, high = _product(builder, first, second)
    size = _broadcast(builder, args[2])
    low = builder.add(low, size)
    high = builder.add(high, builder.zext(builder.icmp_unsigned("<", low, size), _WORDS))
    high = builder.xor(high, _rotate(builder, low, 32))
    low, high = _product(builder, builder.add(low, keys[2]), builder.add(high, keys[3]))
    return builder.xor(low, high)


def _rotate(builder: Any, words: Any, bits: int) -> Any:
    """Rotate every word to the right."""
    return builder.or_(builder.lshr(words, _all(bits)), builder.shl(words, _all(64 - bits)))


def _mix(builder: Any, words: Any, keys: Any) -> Any:
    """Compute `integer_mixer.mix` in every lane."""
    for key, few, many, factor in ((0, 25, 50, FIRST), (1, 24, 49, SECOND)):
        words = builder.xor(words, _broadcast(builder, builder.extract_value(keys, key)))
        words = builder.xor(words, builder.xor(_rotate(builder, words, few), _rotate(builder, words, many)))
        words = builder.mul(words, _all(int(factor)))
    return builder.xor(words, builder.lshr(words, _all(28)))


def _cells(builder: Any, hashes: Any, table: Any) -> Any:
    """Compute `bitmap_cells.cell_of` in every lane."""
    buckets, guard = (builder.extract_value(table, i) for i in range(2))
    kind = ir.FunctionType(_WORDS, [_WORDS, ir.IntType(1)])
    zeros = builder.module.declare_intrinsic(f"llvm.cttz.v{LANES}i64", (), kind)
    level = builder.call(zeros, [builder.or_(hashes, _broadcast(builder, guard)), ir.IntType(1)(1)])
    narrow = builder.and_(_broadcast(builder, buckets), _all(0xFFFFFFFF))
    bucket = builder.lshr(builder.mul(builder.lshr(hashes, _all(32)), narrow), _all(32))
    return builder.add(builder.mul(builder.and_(level, _all(0xFFFFFFFF)), narrow), bucket)


def _store(context: Any, builder: Any, words: Any, kind: Any, out: Any, index: Any) -> Any:
    pointer = address_of(context, builder, kind, out, index, _WORD(LANES))
    builder.store(words, builder.bitcast(pointer, _WORDS.as_pointer())).align = 8
    return context.get_dummy_value()


_TWO: Any = types.UniTuple(types.uint64, 2)  # type: ignore[no-untyped-call]
_FOUR: Any = types.UniTuple(types.uint64, 4)  # type: ignore[no-untyped-call]


def fold_lanes(typingctx: Any, data: Any, start: Any, length: Any, keep: Any, keys: Any, out: Any, index: Any) -> Any:
    """Write the hashes of ``LANES`` strings of ``length`` bytes, at most 16, from ``data[start]`` to ``out[index]``.

    ``keep`` masks the two words of a string; ``keys`` are two of the product and two of the fold.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        hashes = _folded(context, builder, signature.args[0], args)
        return _store(context, builder, hashes, signature.args[5], *args[5:])

    return types.void(data, types.int64, types.int64, _TWO, _FOUR, out, types.int64), codegen


def folded_cells(
    typingctx: Any, data: Any, start: Any, length: Any, keep: Any, keys: Any, table: Any, out: Any, index: Any
) -> Any:
    """Write the cells of ``LANES`` strings, as `_fold_lanes` hashes them, in a ``table`` of (buckets, guard)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        cells = _cells(builder, _folded(context, builder, signature.args[0], args), args[5])
        return _store(context, builder, cells, signature.args[6], *args[6:])

    return types.void(data, types.int64, types.int64, _TWO, _FOUR, _TWO, out, types.int64), codegen


def mixed_cells(typingctx: Any, values: Any, row: Any, keys: Any, table: Any, out: Any, index: Any) -> Any:
    """Write the cells of ``LANES`` integers from ``values[row]`` on, under two keys."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = address_of(context, builder, signature.args[0], args[0], args[1], _WORD(LANES))
        words = builder.load(builder.bitcast(pointer, _WORDS.as_pointer()))
        words.align = 1
        cells = _cells(builder, _mix(builder, words, args[2]), args[3])
        return _store(context, builder, cells, signature.args[4], *args[4:])

    return types.void(values, types.int64, _TWO, _TWO, out, types.int64), codegen


def wide(typingctx: Any) -> Any:
    """Return, at compile time, whether vector registers are wide enough for lanes to be faster than words."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, _, features = context.codegen().magic_tuple()
        return ir.IntType(1)("+avx2" in features.split(","))

    return types.boolean(), codegen
