"""After a step neither its entropy, nor AES round keys, nor keystream, nor coins are left in the process's memory.

A fresh interpreter takes steps (``watched.py``), and its memory is scanned for their secrets. Processors, C libraries
and compilers leave data at different addresses, so the same is done with functions bound at the start or at their first
call, with kernels from the cache and freshly compiled, with several targets of the compiler, and with the vector
functions of the C library switched off. ``PANSTREAM_FULL=1`` runs all combinations. Steps that are made to leak on
purpose show that each kind of secret would be found.
"""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.primitives.noise.processor import X86
from tests.primitives.noise.watched import STEPS, Child, key_schedule, needles_by_kind

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm_scanner")]


def test_key_schedule_is_that_of_the_standard() -> None:
    """FIPS 197, appendix A.3: the first, the first derived, and the last words."""
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    rounds = key_schedule(key)
    assert rounds[0] + rounds[1] == key
    assert rounds[2].hex() == "9ba354118e6925afa51a8b5f2067fcde"
    assert rounds[14].hex() == "fe4890d1e6188d0b046df344706c631e"


# Each makes one promise of the source fail; the scan must find it out.
LEAKS = {
    "entropy": "source.wipe = lambda array: kept.append(array)",
    "round keys": "make = source.counter_mode\nsource.counter_mode = lambda key: kept.append(make(key)) or kept[-1]",
    "stream": """
from panstream.primitives.memory.scratch import Scratch
def close(self):
    kept.extend(self._used)
    self._used.clear()
Scratch.close = close
""",
}


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    one = Child(tmp_path)
    yield one
    one.close()


@pytest.mark.parametrize(
    ("step", "least"),
    [
        ("large", {"entropy": 25, "round keys": 50, "stream": 50_000, "coins": 1500, "uniform": 2000}),
        ("small", {"entropy": 900, "coins": 50, "uniform": 60}),
        ("failing", {"entropy": 25, "round keys": 50, "stream": 1200, "coins": 70}),
        ("monitored", {"entropy": 25, "round keys": 50, "stream": 1200}),
    ],
)
def test_nothing_random_outlives_a_step(child: Child, step: str, least: dict[str, int]) -> None:
    needles = needles_by_kind(child.run(step))
    for kind, count in least.items():
        assert len(needles[kind]) >= count, kind
    report = child.scan(set().union(*needles.values()))
    assert report.ok, report


def test_nothing_outlives_a_step_of_which_only_the_key_is_watched(child: Child) -> None:
    """The hooks' own work could overwrite what the cipher left; here there is none after the key was drawn."""
    secrets = child.run("unwatched")
    assert [(kind, len(secret)) for kind, secret in secrets] == [("key", 32)]
    needles = needles_by_kind(secrets)
    assert len(needles["stream"]) > 20_000
    report = child.scan(set().union(*needles.values()))
    assert report.ok, report


@pytest.mark.parametrize("kind", LEAKS)
def test_a_leak_would_be_found(child: Child, kind: str) -> None:
    needles = needles_by_kind(child.run("large", leak=LEAKS[kind]))
    report = child.scan(needles[kind])
    assert report.valid, report
    assert report.found_needles > len(needles[kind]) // 4, report


# Names that a glibc does not know are ignored: it calls them otherwise since 2.33.
WIDE = "-AVX512F,-AVX512VL,-AVX512BW,-AVX512F_Usable,-AVX512VL_Usable,-AVX512BW_Usable"
BINDING = {"lazy": {}, "eager": {"LD_BIND_NOW": "1"}}
KERNELS = {"cached": {}, "fresh": {"NUMBA_CACHE_DIR": "{tmp}/cache"}}
LIBRARY = {
    "wide": {},
    "no-avx512": {"GLIBC_TUNABLES": f"glibc.cpu.hwcaps={WIDE}"},
    "no-avx2": {"GLIBC_TUNABLES": f"glibc.cpu.hwcaps={WIDE},-AVX2,-AVX2_Usable"},
}
TARGET = {"host": {}, "generic": {"NUMBA_CPU_NAME": "generic"}, "haswell": {"NUMBA_CPU_NAME": "haswell"}}
USUAL = [  # the last step is the one that nothing overwrites
    ("eager", "cached", "wide", "host", "large"),
    ("lazy", "cached", "no-avx512", "host", "large"),
    ("lazy", "cached", "no-avx2", "host", "unwatched"),
    ("lazy", "fresh", "wide", "generic", "small"),
    ("eager", "cached", "no-avx2", "haswell", "monitored"),
]
ALL = list(itertools.product(BINDING, KERNELS, LIBRARY, TARGET, STEPS))
VARIANTS = [
    variant
    for variant in (ALL if os.environ.get("PANSTREAM_FULL") == "1" else USUAL)
    if X86 or (variant[2] == "wide" and variant[3] != "haswell")
]


def in_order(last: str) -> list[str]:
    return [step for step in STEPS if step != last] + [last]


@pytest.mark.parametrize(("binding", "kernels", "library", "target", "last"), VARIANTS)
def test_nothing_outlives_a_step_however_the_process_is_built(
    child: Child, tmp_path: Path, binding: str, kernels: str, library: str, target: str, last: str
) -> None:
    chosen = BINDING[binding] | KERNELS[kernels] | LIBRARY[library] | TARGET[target]
    environment = {name: value.format(tmp=tmp_path) for name, value in chosen.items()}
    needles = needles_by_kind(child.run(*in_order(last), environment=environment))
    assert len(needles["stream"]) > 50_000
    report = child.scan(set().union(*needles.values()))
    assert report.ok, report


@pytest.mark.parametrize("last", ["large", "small"])
def test_nothing_outlives_a_step_that_loads_its_kernels(child: Child, last: str) -> None:
    """Loading goes deep into the stack, while earlier draws of the same step are in registers."""
    needles = needles_by_kind(child.run(last, warm=False))
    report = child.scan(set().union(*needles.values()))
    assert report.ok, report


if X86:
    OFF = "from panstream.primitives.memory import scratch\nscratch.clear_registers = lambda: None"

    @pytest.mark.parametrize("leak", ["", OFF], ids=["cleared", "not cleared"])
    def test_what_a_copy_leaves_in_registers_does_not_reach_the_stack(child: Child, leak: str) -> None:
        needles = needles_by_kind(child.run("planted", leak=leak))["stream"]
        report = child.scan(needles)
        assert report.valid, report
        assert report.ok == (leak == ""), report
