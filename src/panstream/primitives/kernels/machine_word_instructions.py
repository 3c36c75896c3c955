"""The code of ``machine_words``: LLVM has one instruction for each, and NumPy scalars have none.

numba passes the typing context itself, which its annotations do not know: hence Any.
"""

from __future__ import annotations

import sys
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils, config

_WORD = ir.IntType(64)
_DOUBLE_WORD = ir.IntType(128)


def address_of(context: Any, builder: Any, kind: Any, data: Any, position: Any, size: Any) -> Any:
    """Return the address of ``data[position]``, where ``size`` items are to be read or written.

    Numba checks no bounds inside intrinsics. With ``NUMBA_BOUNDSCHECK=1``, as fuzzers set it, this does.
    """
    array = context.make_array(kind)(context, builder, data)
    if getattr(config, "BOUNDSCHECK", None):
        past = builder.icmp_signed(">", builder.add(position, size), array.nitems)
        with builder.if_then(builder.or_(past, builder.icmp_signed("<", position, _WORD(0))), likely=False):
            context.call_conv.return_user_exc(builder, IndexError, ("words beyond the end of an array",))
    return builder.gep(array.data, [position])


def load_word(typingctx: Any, data: Any, position: Any) -> Any:
    """Read the eight bytes ``data[position : position + 8]`` as a little-endian word, at any alignment."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = address_of(context, builder, signature.args[0], args[0], args[1], _WORD(8))
        word = builder.load(builder.bitcast(address, _WORD.as_pointer()))
        word.align = 1
        return builder.bswap(word) if sys.byteorder == "big" else word

    return types.uint64(data, types.int64), codegen


def byte_at(typingctx: Any, address: Any) -> Any:
    """Read the byte at an address."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[0], ir.IntType(8).as_pointer()))

    return types.uint8(types.uint64), codegen


def copy_bytes(typingctx: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy bytes between two addresses that do not overlap: numba copies slices byte by byte."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        to, start = (builder.inttoptr(address, byte) for address in args[:2])
        cgutils.raw_memcpy(builder, to, start, args[2], 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64, types.int64), codegen


def product_high(typingctx: Any, left: Any, right: Any) -> Any:
    """Return the upper 64 bits of the 128-bit product of two words."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = builder.mul(builder.zext(args[0], _DOUBLE_WORD), builder.zext(args[1], _DOUBLE_WORD))
        return builder.trunc(builder.lshr(wide, ir.Constant(_DOUBLE_WORD, 64)), _WORD)

    return types.uint64(types.uint64, types.uint64), codegen


def product(typingctx: Any, left: Any, right: Any) -> Any:
    """Return the lower and the upper 64 bits of the 128-bit product of two words."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = builder.mul(builder.zext(args[0], _DOUBLE_WORD), builder.zext(args[1], _DOUBLE_WORD))
        upper = builder.trunc(builder.lshr(wide, ir.Constant(_DOUBLE_WORD, 64)), _WORD)
        return context.make_tuple(builder, signature.return_type, [builder.trunc(wide, _WORD), upper])

    words: Any = types.UniTuple
    return words(types.uint64, 2)(types.uint64, types.uint64), codegen


def trailing_zeros(typingctx: Any, word: Any) -> Any:
    """Return the number of trailing zero bits of a word, which must not be zero."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), codegen


def ones(typingctx: Any, word: Any) -> Any:
    """Return the number of set bits of a word."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), codegen


def prefetch(typingctx: Any, data: Any, position: Any) -> Any:
    """Start loading the cache line of ``data[position]`` into the second-level cache, without waiting for it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        address = builder.bitcast(builder.gep(array.data, [args[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        fetch = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
        builder.call(fetch, [address, number(0), number(2), number(1)])  # a read, level 2, data
        return context.get_dummy_value()

    return types.void(data, types.uint64), codegen
