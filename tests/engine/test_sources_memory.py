"""Freed memory is overwritten: checked in a process of its own, since the setting is for good."""

import platform
import subprocess
import sys

import pytest

from panstream.engine.sources import memory

SCAN = """
import ctypes, sys
import pyarrow as pa
from panstream.engine.sources.memory import wipe_freed_memory

wiping = sys.argv[1] == "wipe"
assert not wiping or wipe_freed_memory()
pool = pa.system_memory_pool()
assert not wiping or pa.default_memory_pool().backend_name == "system"
buffer = pa.allocate_buffer(200_000, memory_pool=pool)
guard = pa.allocate_buffer(200_000, memory_pool=pool)  # so that the hole stays in the heap
address = buffer.address
ctypes.memset(address, ord("s"), 200_000)
del buffer
print(ctypes.string_at(address + 4096, 16))
"""


@pytest.mark.parametrize(("mode", "found"), [("wipe", repr(b"\xa5" * 16)), ("leave", repr(b"s" * 16))])
def test_freed_memory(mode: str, found: str) -> None:
    """The control run shows that the bytes would still be there."""
    if platform.libc_ver()[0] != "glibc":
        assert memory.wipe_freed_memory() is False
        return
    settings = {"MALLOC_MMAP_THRESHOLD_": str(1 << 25), "MALLOC_TRIM_THRESHOLD_": str(1 << 28)}
    run = subprocess.run([sys.executable, "-c", SCAN, mode], capture_output=True, text=True, env=settings, check=True)
    assert run.stdout.strip() == found


def test_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.platform, "libc_ver", lambda: ("", ""))
    assert memory.wipe_freed_memory() is False
