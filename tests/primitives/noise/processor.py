"""Machine code for the tests: fill registers, read them, and write to the stack, as copies and the dynamic linker
do.
"""

from __future__ import annotations

import platform
from functools import cache
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from panstream.primitives.kernels import register_clearing as registers

X86 = platform.machine() in ("x86_64", "AMD64")
KIND = registers.kind_of_registers()
NAME = {registers.SSE: "xmm", registers.AVX: "ymm", registers.AVX512: "zmm"}
WIDTH = {registers.SSE: 16, registers.AVX: 32, registers.AVX512: 64}
COUNT = {registers.SSE: 16, registers.AVX: 16, registers.AVX512: 32}
MOVE = {registers.SSE: "movdqu", registers.AVX: "vmovdqu", registers.AVX512: "vmovdqu64"}
PATTERN = 0x5AC3_96F0_0F69_3CA5
DEEP = 1 << 17  # bytes below the caller: nothing that is called later comes there
WORD = ir.IntType(64)


def size(kind: int) -> int:
    """Return the bytes of all vector and mask registers of a kind."""
    return WIDTH[kind] * COUNT[kind] + (16 if kind == registers.AVX512 else 0)


def _moves(kind: int, load: bool) -> str:
    """Return the instructions that load the registers from the memory at rsi, or store them there."""
    moves = [(f"{WIDTH[kind] * i}(%rsi)", f"%{NAME[kind]}{i}", MOVE[kind]) for i in range(COUNT[kind])]
    if kind == registers.AVX512:
        moves += [(f"{64 * 32 + 2 * i}(%rsi)", f"%k{i}", "kmovw") for i in range(8)]
    lines = [f"{move} {memory}, {name}" if load else f"{move} {name}, {memory}" for memory, name, move in moves]
    return "\n".join(lines)


def _run(builder: Any, lines: str, address: Any) -> None:
    changed = ",".join(f"~{{{name}}}" for name in [*registers.clobbers("x86_64"), "memory"])
    builder.asm(ir.FunctionType(ir.VoidType(), [WORD]), lines, f"{{rsi}},{changed}", [address], True)


def _moving(kind: int, load: bool) -> Any:
    def code(context: Any, address: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            _run(builder, _moves(kind, load), values[0])
            return _context.get_dummy_value()

        return types.void(types.uint64), generate

    return intrinsic(code)


def _clearing(kind: int) -> Any:
    def code(context: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, _values: Any) -> Any:
            registers.emit(builder, WORD(kind), WORD(2**64 - 1), WORD(0))  # nothing of the stack
            return _context.get_dummy_value()

        return types.void(), generate

    return intrinsic(code)


@cache
def through(kind: int, cleared: bool) -> Any:
    """Return a function that loads the registers from one address, clears them or not, and stores them at another."""
    load = _moving(kind, True)
    clear = _clearing(kind)
    store = _moving(kind, False)
    if cleared:

        @njit(["void(uint64, uint64)"])
        def run(source: int, target: int) -> None:
            load(source)
            clear()
            store(target)
    else:

        @njit(["void(uint64, uint64)"])
        def run(source: int, target: int) -> None:
            load(source)
            store(target)

    return run


@cache
def load_registers(kind: int = KIND) -> Any:
    """Return a function that leaves the bytes at an address in the registers, as a copy does."""
    load = _moving(kind, True)

    @njit(["void(uint64)"])
    def run(source: int) -> None:
        load(source)

    return run


@cache
def store_registers(kind: int = KIND) -> Any:
    """Return a function that writes all registers to the stack, as the dynamic linker does."""

    def code(context: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, _values: Any) -> Any:
            space = builder.alloca(ir.IntType(8), DEEP)
            _run(builder, _moves(kind, False), builder.ptrtoint(space, WORD))
            return _context.get_dummy_value()

        return types.void(), generate

    store: Any = intrinsic(code)

    @njit(["void()"])
    def run() -> None:
        store()

    return run


def _spill_code(context: Any, size: Any) -> Any:
    """Fill so many bytes of the stack with the pattern and return their address."""

    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        count = builder.udiv(values[0], WORD(8))
        space = builder.alloca(WORD, count)
        before = builder.block
        loop = builder.append_basic_block()
        after = builder.append_basic_block()
        builder.branch(loop)
        builder.position_at_end(loop)
        at = builder.phi(WORD)
        at.add_incoming(WORD(0), before)
        builder.store(WORD(PATTERN), builder.gep(space, [at])).volatile = True
        following = builder.add(at, WORD(1))
        at.add_incoming(following, loop)
        builder.cbranch(builder.icmp_unsigned("<", following, count), loop, after)
        builder.position_at_end(after)
        return builder.ptrtoint(space, WORD)

    return types.uint64(types.uint64), generate


_spill: Any = intrinsic(_spill_code)


@njit(["uint64(uint64)"])
def _spilling(size: int) -> int:
    address: int = _spill(size)
    return address


# Without numba's dispatcher, so that the values are written as close to the caller's frame as possible.
spill: Any = _spilling.overloads[_spilling.signatures[0]].entry_point
