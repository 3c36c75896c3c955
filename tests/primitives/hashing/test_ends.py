"""Not a byte behind the last id is read: the data end where memory does."""

import subprocess
import sys

import pytest

CHILD = """
import ctypes, mmap
import numpy as np
from panstream.primitives.hashing import hash_strings, mark_integers_packed, mark_strings, mark_strings_packed

room = mmap.mmap(-1, 3 * mmap.PAGESIZE)
address = ctypes.addressof(ctypes.c_char.from_buffer(room)) + 2 * mmap.PAGESIZE
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), mmap.PAGESIZE, 0) == 0
page = np.frombuffer(room, np.uint8)[: 2 * mmap.PAGESIZE]
packed, marks = np.zeros(313, np.uint64), np.zeros(20_000, np.uint8)
for rows in (1, 7, 8, 9, 16, 33, 100, 255, 256, 264):
    for length in range(18):
        data, offsets = page[page.size - rows * length :], np.arange(rows + 1) * length
        mark_strings_packed(offsets, data, 0, 1000, 20, packed)
        mark_strings(offsets, data, 0, 1000, 20, marks)
        hash_strings(offsets, data, 0, np.empty(rows, np.uint64), hash="fold")
    mark_integers_packed(page[page.size - 8 * rows :].view(np.int64), 0, 1000, 20, packed)
print("read to the end")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect")
def test_nothing_is_read_behind_the_last_id() -> None:
    run = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=300, check=False)
    assert (run.returncode, run.stdout) == (0, "read to the end\n"), run.stderr
