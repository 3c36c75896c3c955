"""After an update no id, sum, hash or run of cells is in memory, however the kernels were compiled."""

import numpy as np
import pytest

from panstream.algorithms.distinct import Bitmap
from panstream.primitives.hashing import cells_of_integers, cells_of_strings, expand, hash_integers, hash_strings
from panstream.testing.memory import make_needles
from tests.scanned import Scanned

pytestmark = pytest.mark.slow

IDS = 500
SIZE = 32
RUN = 4

CHILD = """
import numpy as np, pyarrow as pa
from panstream.algorithms.distinct import Bitmap, bitmap_base
ids, size = 500, 32
held = np.zeros(ids * size, np.uint8)
fill(held)
def column(each):
    offsets = np.arange(0, ids * size + 1, each, dtype=np.int32)
    return pa.StringArray.from_buffers(offsets.size - 1, pa.py_buffer(offsets), pa.py_buffer(held))
# A coin for each row, one for each cell, a large table, and the same with packed marks.
for shape, cells_a_row in (((4096, 24), 8), ((64, 8), 8), ((1 << 18, 12), 8), ((1 << 18, 12), 1 << 20)):
    bitmap_base._MAX_CELLS_PER_ROW = cells_a_row
    for hash in ("fold", "siphash"):
        monitor = Bitmap(epsilon=1.0, buckets=shape[0], levels=shape[1], hash=hash).start()
        for each in (16, 32):
            monitor.update(column(each))
            monitor.update(column(each).slice(7, 400))
    monitor.update(held.view(np.int64))
answer()
line()
held[:] = 0
monitor.release()
answer()
line()
"""


def words(values: np.ndarray) -> list[bytes]:
    return [word.tobytes() for word in values]


def traces(data: np.ndarray) -> list[bytes]:
    """Return hashes, the sums that are folded, and runs of cells, as they would lie in a register or an array."""
    found: list[bytes] = []
    numbers = data.view(np.int64)
    for each in (16, 32):
        offsets = np.arange(0, data.size + 1, each)
        for hash in ("fold", "siphash"):
            out = np.empty(offsets.size - 1, np.uint64)
            hash_strings(offsets, data, 0, out, hash=hash)
            found += words(out)
            cells = np.empty(out.size, np.int32)
            cells_of_strings(offsets, data, 0, 4096, 24, cells, hash=hash)
            found += [cells[at : at + RUN].tobytes() for at in range(0, cells.size - RUN, RUN)]
    keys = expand(0, "fold", 66)
    mask = (1 << 64) - 1
    for first, second in numbers.reshape(-1, 2).tolist():
        total = 16 + (first + keys[0] & mask) * (second + keys[1] & mask)
        found += [(total & mask).to_bytes(8, "little"), (total >> 64).to_bytes(8, "little")]
    mixed = np.empty(numbers.size, np.uint64)
    cells = np.empty(numbers.size, np.int32)
    hash_integers(numbers, 0, mixed)
    cells_of_integers(numbers, 0, 1 << 18, 12, cells)
    wide = cells.astype(np.int64)  # as packed marks keep them for a while
    found += [wide[at : at + RUN].tobytes() for at in range(0, wide.size - RUN, RUN)]
    return found + words(mixed) + [cells[at : at + RUN].tobytes() for at in range(0, cells.size - RUN, RUN)]


@pytest.mark.parametrize("target", [{}, {"NUMBA_CPU_NAME": "generic"}], ids=["host", "generic"])
@pytest.mark.usefixtures("warm_scanner")
def test_nothing_of_a_batch_stays_behind(target: dict[str, str]) -> None:
    child = Scanned(CHILD, target)
    try:
        ids = make_needles(IDS)
        data = np.frombuffer("".join(ids).encode(), np.uint8)
        needles = [*ids, *traces(data)]
        assert Bitmap(epsilon=1.0).hash == "fold"
        child.send(data.tobytes())
        child.wait_ready()
        held = child.scan(needles)
        found = {needle.needle for needle in held.found}
        assert held.valid and set(range(IDS)) <= found, held
        assert found == set(range(IDS)), "hashes, sums or cells are left"
        child.send(b"\n")
        child.wait_ready()
        assert child.scan(needles).ok
    finally:
        child.close()
