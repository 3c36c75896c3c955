"""After an update no name, prefix or hash of an event is in memory; while names are held, they are found."""

import numpy as np
import pytest

from panstream.primitives.hashing.keys import key_words
from panstream.primitives.kernels.algorithms.name_counts import hash_of_name
from panstream.primitives.kernels.algorithms.prefix_tables import hash_names
from panstream.testing.memory import make_needles
from tests.scanned import Scanned

pytestmark = pytest.mark.slow

NAMES = 500
SIZE = 32

CHILD = """
import numpy as np, pyarrow as pa
from panstream.algorithms.heavy_hitters.prefix_sketch import FrequentItems
names, size = 500, 32
held = np.zeros(names * size, np.uint8)
offsets = np.arange(0, names * size + 1, size, dtype=np.int32)
monitor = FrequentItems(epsilon=1.0, delta=1e-6, max_item_bytes=48, width=1 << 10, row_width=1 << 10).start()
fill(held)
def column():
    return pa.StringArray.from_buffers(names, pa.py_buffer(offsets), pa.py_buffer(held))
for _ in range(3):
    monitor.update(column())
    monitor.update(column().slice(7, 400))
    indices = pa.array(np.arange(names, dtype=np.int32))
    monitor.update(pa.DictionaryArray.from_arrays(indices, column()))
answer()
line()
held[:] = 0
monitor.release()
answer()
line()
"""


@pytest.mark.usefixtures("warm_scanner")
def test_nothing_of_a_batch_stays_behind() -> None:
    child = Scanned(CHILD)
    try:
        names = make_needles(NAMES)
        data = np.frombuffer("".join(names).encode(), np.uint8)
        offsets = np.arange(0, NAMES * SIZE + 1, SIZE)
        hashes = np.empty(NAMES, np.uint64)
        hash_names(offsets, data, 48, 4, 1, key_words(0, "names")[0], hashes)
        grouped = [int(hash_of_name(data, at, at + SIZE)) for at in offsets[:-1].tolist()]
        prefixes = [name[:20] for name in names]
        needles = [*names, *prefixes, *(word.to_bytes(8, "little") for word in [*hashes.tolist(), *grouped])]
        child.send(data.tobytes())
        child.wait_ready()
        held = child.scan(needles)
        found = {needle.needle for needle in held.found}
        assert held.valid and set(range(2 * NAMES)) <= found, held
        assert found <= set(range(2 * NAMES)), "hashes of events are left"
        child.send(b"\n")
        child.wait_ready()
        assert child.scan(needles).ok
    finally:
        child.close()
