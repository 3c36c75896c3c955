"""After an update no name, prefix or hash of an event is in memory; while names are held, they are found."""

import subprocess
import sys

import numpy as np
import pytest

from panstream._kernels.names import _hashed, hash_names
from panstream.hashing.keys import key_words
from panstream.testing.memory import make_needles, scan

pytestmark = pytest.mark.slow

NAMES, SIZE = 500, 32

CHILD = """
import os, sys
import numpy as np, pyarrow as pa
from panstream.frequent.items import FrequentItems
from panstream.testing.memory import permit_scan, plant_control
permit_scan()
def line():
    text = b""
    while not text.endswith(b"\\n"):
        text += os.read(0, 1)
    return text.strip()
def fill(buffer):
    view = memoryview(buffer)
    while len(view):
        view = view[os.readv(0, [view]):]
plant_control(bytes.fromhex(line().decode()))
names, size = 500, 32
held = np.zeros(names * size, np.uint8)
offsets = np.arange(0, names * size + 1, size, dtype=np.int32)
monitor = FrequentItems(epsilon=1.0, delta=1e-6, longest=48, width=1 << 10, row_width=1 << 10).start()
fill(held)
def column():
    return pa.StringArray.from_buffers(names, pa.py_buffer(offsets), pa.py_buffer(held))
for _ in range(3):
    monitor.update(column())
    monitor.update(column().slice(7, 400))
    indices = pa.array(np.arange(names, dtype=np.int32))
    monitor.update(pa.DictionaryArray.from_arrays(indices, column()))
os.write(1, b"ready\\n")
line()
held[:] = 0
monitor.release()
os.write(1, b"ready\\n")
line()
"""


def test_nothing_of_a_batch_stays_behind() -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert child.stdin and child.stdout
    try:
        (control,) = make_needles(1, "bytes")
        names, decoys = make_needles(NAMES), make_needles(100)
        data = np.frombuffer("".join(names).encode(), np.uint8)
        offsets = np.arange(0, NAMES * SIZE + 1, SIZE)
        hashes = np.empty(NAMES, np.uint64)
        hash_names(offsets, data, 48, 4, key_words(0, "names")[0], hashes)
        grouped = [int(_hashed(data, at, at + SIZE)) for at in offsets[:-1].tolist()]
        prefixes = [name[:20] for name in names]
        needles = [*names, *prefixes, *(word.to_bytes(8, "little") for word in [*hashes.tolist(), *grouped])]
        child.stdin.write(control.hex().encode() + b"\n" + data.tobytes())
        assert child.stdout.readline() == b"ready\n"
        held = scan(child.pid, needles, decoys=decoys, control=control)
        found = {needle.needle for needle in held.found}
        assert held.valid and set(range(2 * NAMES)) <= found, held
        assert found <= set(range(2 * NAMES)), "hashes of events are left"
        child.stdin.write(b"\n")
        assert child.stdout.readline() == b"ready\n"
        assert scan(child.pid, needles, decoys=decoys, control=control).ok
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()
