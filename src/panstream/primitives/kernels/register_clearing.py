"""Clear what a step leaves in the processor: every register that a function may change, and the stack below the caller.

After a copy, vector registers still hold its last bytes. The dynamic linker stores all registers on the stack when a
function is called for the first time, and the operating system does when a signal arrives. Therefore the end of a step
clears the registers first and the stack second. The stack is overwritten for ``ALWAYS`` bytes, twice what a draw uses,
and then by blocks of ``BLOCK`` bytes until a block holds only zeros.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import cfunc, njit, types
from numba.extending import intrinsic

ALWAYS = 1 << 14
BLOCK = 1 << 15
SSE, AVX, AVX512 = range(3)  # vector registers of x86-64 processors; other processors have one kind
NOTHING = -1  # a processor that this module has no instructions for


def x86_64() -> str:
    """Return the instructions; inputs: kind of registers in rdx, lowest stack address in rsi, highest in r11."""
    # vzeroall clears the first 16 vector registers at their full width, be it 128, 256 or 512 bits.
    look = "\n".join(f"por {16 * i}(%rdi), %xmm{i}" for i in range(8))
    fold = "\n".join(f"por %xmm{i}, %xmm0" for i in range(1, 8))
    return f"""
        {_lines("fldz", 8)}
        {_lines("fstp %st(0)", 8)}
        cmpl $$1, %edx
        jb 1f
        je 2f
        {_repeat_line("vpxord %zmm{0}, %zmm{0}, %zmm{0}", range(16, 32))}
        {_repeat_line("kxorw %k{0}, %k{0}, %k{0}", range(8))}
    2:  vzeroall
        jmp 3f
    1:  {_repeat_line("pxor %xmm{0}, %xmm{0}", range(16))}
    3:  movq %rsp, %r8
        cmpq %r11, %rsp
        ja 6f
        leaq -{ALWAYS}(%rsp), %rdi
        movl $${ALWAYS // 8}, %ecx
        cmpq %rsi, %rdi
        jb 6f
        movq $$0, -8(%rsp)
        andq $$-16, %rdi
        movq %rdi, %rsp
    4:  xorl %eax, %eax
        rep stosq
        leaq -{BLOCK}(%rsp), %rdi
        cmpq %rsi, %rdi
        jb 6f
        movq %rdi, %rsp
        movl $${BLOCK // 128}, %ecx
    5:  {look}
        addq $$128, %rdi
        decl %ecx
        jnz 5b
        {fold}
        pxor %xmm1, %xmm1
        pcmpeqb %xmm0, %xmm1
        pmovmskb %xmm1, %eax
        {_repeat_line("pxor %xmm{0}, %xmm{0}", range(8))}
        movl $${BLOCK // 8}, %ecx
        movq %rsp, %rdi
        cmpl $$0xffff, %eax
        jne 4b
    6:  movq %r8, %rsp
        {_repeat_line("xorl %{0}, %{0}", ("eax", "ecx", "edi", "r8d", "r9d", "r10d"))}
    """


def aarch64() -> str:
    """Return the instructions; inputs: lowest stack address in x1, highest in x2.

    The lower halves of v8 to v15 belong to the caller under the calling convention, so only the upper are cleared.
    """
    return f"""
        {_repeat_line("movi v{0}.2d, #0", [*range(8), *range(16, 32)])}
        {_repeat_line("mov v{0}.8b, v{0}.8b", range(8, 16))}
        mov x9, sp
        cmp x9, x2
        b.hi 6f
        mov x12, #{ALWAYS // 16}
        sub x10, x9, #{ALWAYS}
        b 4f
    3:  mov x12, #{BLOCK // 16}
        mov x11, x10
        mov x15, #0
    5:  ldp x13, x14, [x11], #16
        orr x15, x15, x13
        orr x15, x15, x14
        subs x12, x12, #1
        b.ne 5b
        cbz x15, 6f
        mov x12, #{BLOCK // 16}
        b 7f
    4:  cmp x10, x1
        b.lo 6f
        mov sp, x10
    7:  mov x11, x10
    8:  stp xzr, xzr, [x11], #16
        subs x12, x12, #1
        b.ne 8b
        sub x10, x10, #{BLOCK}
        cmp x10, x1
        b.lo 6f
        mov sp, x10
        b 3b
    6:  mov sp, x9
        {_repeat_line("mov x{0}, #0", range(9, 16))}
    """


def _lines(line: str, count: int) -> str:
    return "\n".join([line] * count)


def _repeat_line(line: str, names: Any) -> str:
    return "\n".join(line.format(name) for name in names)


def clobbers(processor: str) -> list[str]:
    """Return LLVM's names of the registers that the instructions change."""
    if processor == "x86_64":
        general = ["rax", "rcx", "rdi", "r8", "r9", "r10"]
        return [*general, *(f"xmm{i}" for i in range(32)), *(f"k{i}" for i in range(1, 8)), "flags", "fpsr", "dirflag"]
    return [*(f"x{i}" for i in range(9, 16)), *(f"v{i}" for i in [*range(8), *range(16, 32)]), "cc"]


def emit(builder: ir.IRBuilder, kind: ir.Value, end: ir.Value, start: ir.Value) -> None:
    """Emit the instructions for the processor of the builder's module; none if it is unsupported."""
    processor = processor_of(builder.module.triple)
    if processor is None:
        return
    instructions, inputs = (x86_64(), "{rdx},{rsi},{r11}") if processor == "x86_64" else (aarch64(), "{x0},{x1},{x2}")
    changed = ",".join(f"~{{{name}}}" for name in [*clobbers(processor), "memory"])
    word = ir.IntType(64)
    # The bytes just below the frame are overwritten too, so the compiler must not use the red zone.
    builder.function.attributes.add("noredzone")
    builder.function.attributes.add("noinline")
    signature = ir.FunctionType(ir.VoidType(), [word, word, word])
    builder.asm(signature, instructions, f"{inputs},{changed}", [kind, end, start], True)


def processor_of(triple: str) -> str | None:
    """Return the supported processor that an LLVM triple names, or None."""
    name = triple.partition("-")[0]
    return {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}.get(name)


# CPUID reports the processor's registers, XGETBV those the system saves for a process: 6 for AVX, 0xe6 for AVX-512.
_KIND = f"""
    xorl %r8d, %r8d
    movl $$1, %eax
    xorl %ecx, %ecx
    cpuid
    andl $$0x18000000, %ecx
    cmpl $$0x18000000, %ecx
    jne 1f
    xorl %ecx, %ecx
    xgetbv
    movl %eax, %r9d
    andl $$6, %eax
    cmpl $$6, %eax
    jne 1f
    movl $${AVX}, %r8d
    andl $$0xe6, %r9d
    cmpl $$0xe6, %r9d
    jne 1f
    xorl %eax, %eax
    cpuid
    cmpl $$7, %eax
    jb 1f
    movl $$7, %eax
    xorl %ecx, %ecx
    cpuid
    btl $$16, %ebx
    jnc 1f
    movl $${AVX512}, %r8d
1:  movq %r8, $0
"""


def _clear_code(context: Any, where: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        python = _context.get_python_api(builder)
        address = python.long_as_ulonglong(builder.inttoptr(values[0], python.pyobj))
        pointer = builder.inttoptr(address, ir.IntType(64).as_pointer())
        arguments = [builder.load(builder.gep(pointer, [ir.IntType(32)(i)])) for i in range(3)]
        nothing = python.make_none()
        emit(builder, *arguments)
        return builder.ptrtoint(nothing, values[0].type)

    return types.intp(types.intp), generate


def _kind_code(context: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, _values: Any) -> Any:
        word = ir.IntType(64)
        processor = processor_of(builder.module.triple)
        if processor != "x86_64":
            return word(NOTHING if processor is None else 0)
        changed = "~{rax},~{rbx},~{rcx},~{rdx},~{r8},~{r9},~{flags}"
        return builder.asm(ir.FunctionType(word, []), _KIND, f"=&{{rsi}},{changed}", [], True)

    return types.int64(), generate


llvm.initialize_native_asmparser()
_clear: Any = intrinsic(_clear_code)
_kind: Any = intrinsic(_kind_code)


@njit(["int64()"], cache=True)
def kind_of_registers() -> int:
    """Return the widest vector registers that processor and system support, or ``NOTHING``."""
    kind: int = _kind()
    return kind


@cfunc("intp(intp, intp)", cache=True)
def _called(_module: int, where: int) -> int:
    none: int = _clear(where)
    return none


class _Method(ctypes.Structure):
    """PyMethodDef of Python's C interface."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def _built_in(function: int | None) -> Callable[[int], None]:
    """Return the machine code at an address as a built-in Python function of one argument.

    Python then calls it without wrapper frames: those of numba and ctypes would occupy the part of the stack that is
    to be overwritten.
    """
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype = ctypes.py_object
    make.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
    _METHODS.append(_Method(b"clear", function, _ONE_ARGUMENT, None))
    builtin: Callable[[int], None] = make(ctypes.addressof(_METHODS[-1]), None, None)
    return builtin


_ONE_ARGUMENT = 8  # METH_O
_METHODS: list[_Method] = []  # Python refers to these without copying them

# Clears all registers, and the stack below the caller. The argument is the address of three 64-bit words: the kind of
# registers, and the lowest and the highest address of the stack. A caller outside that range (another thread's stack)
# has its registers cleared and its stack left unchanged.
clear = _built_in(_called.address)
