"""Clearing the processor: the instructions are the right ones, every register is cleared, and so is the stack below.

The rows for AVX-512 registers run only on a processor that has them; that their instructions are right is checked
everywhere, byte by byte against the encoding in Intel's manual, and by ``objdump`` where it is installed.
"""

import ctypes
import platform
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir
from numba import cfunc
from numpy.typing import NDArray

from panstream.algorithms.density.optbern import OptBern
from panstream.papers.counters.binary import BinaryMechanism
from panstream.primitives.kernels import register_clearing as registers
from panstream.primitives.memory.scratch import Scratch, clear_registers, clears_registers
from panstream.primitives.noise import NoiseSource
from tests.primitives.noise import processor
from tests.primitives.noise.processor import KIND, PATTERN, WORD, X86, spill

LINUX = platform.system() == "Linux"
KINDS = range(KIND + 1) if X86 else ()


def machine_code(triple: str) -> bytes:
    """Return the function as it is assembled for a processor without any extension."""
    module = ir.Module()
    module.triple = triple
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [WORD, WORD, WORD]), "clear")
    builder = ir.IRBuilder(function.append_basic_block())
    registers.emit(builder, *function.args)
    builder.ret_void()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple).create_target_machine()
    compiled = llvm.ObjectFileRef.from_data(target.emit_object(llvm.parse_assembly(str(module))))
    return b"".join(bytes(section.data()) for section in compiled.sections() if section.is_text())


def xor_zmm(register: int) -> bytes:
    """Return VPXORD of a register with itself (EVEX.512.66.0F.W0 EF /r; the manual's volume 2, sections 2.7 and 5)."""
    low = register & 7
    eight = register >> 3 & 1
    sixteen = register >> 4 & 1
    first = (
        (1 - eight) << 7 | (1 - sixteen) << 6 | (1 - eight) << 5 | (1 - sixteen) << 4 | 0b001
    )  # R X B R' and the map
    second = (~register & 15) << 3 | 0b101  # vvvv, and the prefix 66
    third = 0b10 << 5 | (1 - sixteen) << 3  # 512 bits, and V'
    return bytes([0x62, first, second, third, 0xEF, 0b11 << 6 | low << 3 | low])


def xor_mask(register: int) -> bytes:
    """Return KXORW of a mask with itself (VEX.L1.0F.W0 47 /r)."""
    return bytes([0xC5, 1 << 7 | (~register & 15) << 3 | 1 << 2, 0x47, 0b11 << 6 | register << 3 | register])


def xor_xmm(register: int) -> bytes:
    """Return PXOR of a register with itself (66 REX 0F EF /r)."""
    low = register & 7
    return b"\x66" + (b"\x45" if register > 7 else b"") + bytes([0x0F, 0xEF, 0b11 << 6 | low << 3 | low])


if X86:

    def test_every_register_has_its_instruction() -> None:
        code = machine_code("x86_64-unknown-linux-gnu")
        wide = b"".join(map(xor_zmm, range(16, 32))) + b"".join(map(xor_mask, range(8)))
        everywhere = bytes.fromhex("d9ee" * 8 + "ddd8" * 8)  # FLDZ, FSTP ST(0)
        assert wide + bytes.fromhex("c5fc77") in code  # VZEROALL comes next
        assert b"".join(map(xor_xmm, range(16))) in code
        assert code.index(everywhere) < code.index(wide)

    def test_a_disassembler_reads_the_same(tmp_path: Path) -> None:
        if (tool := shutil.which("objdump")) is None:
            return  # the test above has the same answer from the manual
        code = tmp_path / "code"
        code.write_bytes(machine_code("x86_64-unknown-linux-gnu"))
        command = [tool, "-D", "-b", "binary", "-m", "i386:x86-64", str(code)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "(bad)" not in text
        for register in range(16, 32):
            assert f"vpxord %zmm{register},%zmm{register},%zmm{register}\n" in text
        for register in range(8):
            assert f"kxorw  %k{register},%k{register},%k{register}\n" in text
        assert re.search(r"\bvzeroall\b", text)

    def test_nothing_is_kept_below_the_stack_pointer() -> None:
        """The code overwrites the red zone, so its own function must not use it."""
        text = cfunc("intp(intp, intp)")(registers._called._pyfunc)._library.get_asm_str()
        function = text[: text.index(".Lfunc_end0")]
        outside = re.sub(r"#APP.*?#NO_APP", "", function, flags=re.DOTALL)
        assert "retq" in outside
        assert not re.search(r"-\d+\(%rsp\)", outside)

    def through_registers(kind: int, cleared: bool) -> NDArray[np.uint8]:
        """Fill the registers, clear them or not, and return what they hold."""
        source = np.arange(processor.size(kind), dtype=np.uint8) | 1
        target = np.full(source.size, 255, np.uint8)
        processor.through(kind, cleared)(source.ctypes.data, target.ctypes.data)
        return target

    @pytest.mark.parametrize("kind", KINDS)
    def test_every_register_is_cleared(kind: int) -> None:
        held = through_registers(kind, cleared=False)
        assert (held == np.arange(held.size, dtype=np.uint8) | 1).all()
        assert not through_registers(kind, cleared=True).any()

    if LINUX:

        def test_the_kind_is_that_of_the_kernel() -> None:
            flags = set(re.findall(r"^flags\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[0].split())
            expected = registers.AVX512 if "avx512f" in flags else registers.AVX if "avx" in flags else registers.SSE
            assert registers.kind_of_registers() == expected


@pytest.mark.parametrize("triple", ["riscv64-unknown-linux-gnu", "powerpc64le-unknown-linux-gnu"])
def test_other_processors_have_nothing_to_run(triple: str) -> None:
    """There a step clears neither registers nor the stack, and SECURITY.md says so."""
    assert registers.processor_of(triple) is None
    assert b"\x62" not in machine_code(triple)
    assert "x86-64 and arm64" in (Path(__file__).parents[3] / "SECURITY.md").read_text()


def test_arm_leaves_the_halves_that_belong_to_the_caller() -> None:
    """The lower halves of v8 to v15 are the caller's (AAPCS64); all else is cleared."""
    lines = [line.strip() for line in registers.aarch64().splitlines()]
    for register in range(32):
        clear = f"movi v{register}.2d, #0"
        assert (clear in lines) == (register not in range(8, 16))
        assert (f"mov v{register}.8b, v{register}.8b" in lines) == (register in range(8, 16))


if X86 or platform.machine() in ("aarch64", "arm64"):
    addresses: list[int] = []

    def note(size: int) -> None:
        addresses.append(spill(size))

    noted = clears_registers(note)

    def scratch(size: int) -> None:
        with Scratch():
            sorted([size], key=note)  # deeper than the frame of the block's end, which stays

    def left(size: int, step: Callable[[int], None]) -> int:
        """Return how many of the words are left that a step wrote to the stack."""
        step(size)
        content = ctypes.string_at(addresses.pop(), size)
        return content.count(PATTERN.to_bytes(8, "little"))

    if LINUX:

        @pytest.mark.parametrize("size", [4096, 30_000, 100_000, 1_000_000])
        def test_the_stack_below_a_step_is_overwritten(size: int) -> None:
            for _ in range(20):  # Python calls functions another way once they are warm
                assert left(size, note) > size // 8 - 200  # what was called since then used the rest
                assert left(size, noted) == 0
                assert left(size, note) > size // 8 - 200
                assert left(size, scratch) == 0

        @pytest.fixture(params=[1 << 15, 1 << 16, 1 << 18, 1 << 23])
        def stack_size(request: pytest.FixtureRequest) -> Iterator[int]:
            before = threading.stack_size(request.param)
            yield request.param
            threading.stack_size(before)

        def test_the_end_of_a_small_stack_is_left_alone(stack_size: int) -> None:
            """Writing beyond the stack would end the process."""
            done = []

            def use() -> None:
                clear_registers()
                done.append(left(stack_size // 4, noted) if stack_size >= 1 << 18 else 0)

            thread = threading.Thread(target=use)
            thread.start()
            thread.join()
            assert done == [0]

        def test_a_step_of_a_monitor_leaves_nothing_on_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
            """Every method that is a step: with a source whose draws fill the stack."""
            fill = NoiseSource._fill

            def spilling(self: NoiseSource, buffer: NDArray[np.uint8]) -> None:
                fill(self, buffer)
                note(50_000)

            law = OptBern(universe=500, epsilon=1.0, releases=20, announced=7)
            counter = BinaryMechanism(horizon=100, epsilon=1.0).start()
            first = law.start()
            monkeypatch.setattr(NoiseSource, "_fill", spilling)
            steps: list[Callable[[], object]] = [
                law.start,
                lambda: first.update([1, 2, 3]),
                lambda: first.apply(law.batch([1, 2, 3])),
                lambda: first.release(),
                lambda: counter.tick(),
                lambda: counter.tick_many([1, 0, 1]),
            ]
            for step in [
                *steps * 15,
                *[lambda: first.refresh(rows_since_copy=False)] * 7,
            ]:  # Python calls functions another way once they are warm
                step()
                contents = [ctypes.string_at(address, 50_000) for address in addresses]
                assert contents
                assert not any(PATTERN.to_bytes(8, "little") in words for words in contents)
                addresses.clear()
