"""What keeps a distinct count from the speed of a copy: every stage of an update alone, and the whole beside it.

``python -m benchmarks.speed.roofline`` prints, for ids of 64 bits and strings of 16 bytes and for three sizes of the
bitmap, how many bytes are read, cells touched and coins drawn for an event, and the nanoseconds of CPU time that each
stage takes. A stage alone finds its input in the cache; the rest of the whole is checking, wiping and waiting for
memory. Of a large table, hashing and marking are one stage, in which one waits for the other. The last lines are a
bound for large bitmaps: what it costs to touch one random bit, with nothing drawn and nothing looked at, in tables of
growing size.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from benchmarks.peers.anchors import described, in_turns
from panstream.algorithms.auto import DistinctCount
from panstream.algorithms.distinct import Bitmap
from panstream.algorithms.distinct.bitmap_base import _MAX_BYTE_MARKS, _MAX_CELLS_PER_ROW
from panstream.primitives.hashing import (
    cells_of_integers,
    cells_of_strings,
    mark_integers_packed,
    mark_strings,
    mark_strings_packed,
)
from panstream.primitives.kernels.algorithms.packed_bits import draw_marked, scatter
from panstream.primitives.kernels.hashing.cell_marks import mark
from panstream.primitives.kernels.machine_words import prefetch
from panstream.primitives.noise import NoiseSource

ROWS = 10_000_000
CHUNK = 1 << 17
SHAPES = {"default": None, "expected = 1e6": 1e6, "expected = 1e7": 1e7}


def chunks(step: Callable[[int, int], object]) -> Callable[[], None]:
    def run() -> None:
        for start in range(0, ROWS, CHUNK):
            step(start, min(start + CHUNK, ROWS))

    return run


def columns() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    text = np.frombuffer(b"0123456789abcdef", np.uint8)[rng.integers(0, 16, (ROWS, 16), dtype=np.uint8)]
    offsets = np.arange(ROWS + 1, dtype=np.int32) * 16
    strings = pa.Array.from_buffers(pa.string(), ROWS, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    return {"64-bit ids": rng.integers(-(2**63), 2**63 - 1, ROWS), "16-byte strings": strings}


def stages(column: Any, bitmap: Bitmap, monitor: Any) -> tuple[dict[str, Callable[[], Any]], float, float]:
    """Return every stage as a call over all rows, and how many cells and coins an event costs."""
    batch = bitmap.batch(column).parts[0]
    small = bitmap.cells <= min(ROWS, _MAX_BYTE_MARKS)
    packed = not small and bitmap.cells <= _MAX_CELLS_PER_ROW * ROWS
    shape = (bitmap.buckets, bitmap.levels)
    coin = bitmap.law.present
    cells = np.empty(ROWS, np.int32)
    out = np.empty(CHUNK, np.int32)
    coins = np.zeros(CHUNK, np.uint8)
    marks = np.zeros(bitmap.cells, np.uint8)
    bits = monitor.state.bits.copy()
    words = np.zeros(-(-bitmap.cells // 64), np.uint64)
    integers = isinstance(column, np.ndarray)
    spare = np.empty(CHUNK * 20, np.uint8)

    def to_cells(start: int, stop: int) -> None:
        if integers:
            cells_of_integers(column[start:stop], 0, *shape, out[: stop - start])
        else:
            cells_of_strings(batch.offsets[start : stop + 1], batch.data, 0, *shape, out[: stop - start], hash="fold")

    def to_packed() -> None:
        if integers:
            mark_integers_packed(column, 0, *shape, words)
        else:
            mark_strings_packed(batch.offsets, batch.data, 0, *shape, words)

    def copy(start: int, stop: int) -> None:
        if integers:
            np.copyto(spare.view(np.int64)[: stop - start], column[start:stop])
        else:
            np.copyto(spare[: 16 * (stop - start)], batch.data[16 * start : 16 * stop])

    if integers:
        cells_of_integers(column, 0, *shape, cells)
    else:
        cells_of_strings(batch.offsets, batch.data, 0, *shape, cells, hash="fold")

    def toss() -> None:
        with NoiseSource() as rng:
            room = rng.scratch.array(CHUNK)
            for _ in range(0, bitmap.cells if small else ROWS, CHUNK):
                taken = rng.scratch.mark
                rng.bernoulli(coin, CHUNK, room)
                rng.scratch.rewind(taken)

    def redraw() -> None:
        with NoiseSource() as rng:
            rng.redraw(coin, bits.view(np.uint64), words)

    found: dict[str, Callable[[], Any]] = {"copy": chunks(copy)}
    if packed:
        found |= {"hash and mark": to_packed, "coins and set": redraw}
        to_packed()
    elif small and not integers:
        found["hash and mark"] = lambda: mark_strings(batch.offsets, batch.data, 0, *shape, marks)
    else:
        found["hash"] = chunks(to_cells)
        if small:
            found["mark"] = chunks(lambda start, stop: mark(marks, cells[start:stop]))
        else:
            found["set"] = chunks(lambda start, stop: scatter(bits, cells[start:stop], coins[: stop - start]))
    if not packed:
        found["coins"] = toss
    if small:
        drawn = np.zeros(bitmap.cells, np.uint8)
        found["set"] = lambda: draw_marked(bits, marks, drawn)
    found["whole"] = lambda: monitor.update(column)
    touched = np.unique(cells).size if small or packed else ROWS
    return found, touched / ROWS, (bitmap.cells if small else touched) / ROWS


@njit
def touch(words: NDArray[np.uint64], cells: NDArray[np.int32], ahead: int) -> None:
    """Set the bit of every cell to 1."""
    for i in range(cells.size - ahead):
        prefetch(words, np.uint64(cells[i + ahead]) >> np.uint64(6))
        cell = np.uint64(cells[i])
        words[cell >> np.uint64(6)] |= np.uint64(1) << (cell & np.uint64(63))


def bound() -> None:
    """Print what one random bit costs, for the cells of ids in bitmaps of growing size."""
    ids = np.random.default_rng(6).integers(-(2**63), 2**63 - 1, ROWS)
    cells = np.empty(ROWS, np.int32)
    coins = np.zeros(CHUNK, np.uint8)
    print("one random bit, ns: touched as little as possible, and set to its coin")
    for buckets in (1 << 12, 1 << 16, 1 << 19, 1 << 22):
        cells_of_integers(ids, 0, buckets, 14, cells)
        bits = np.zeros(buckets * 14 // 8, np.uint8)
        calls = {
            "touch": chunks(lambda start, stop, bits=bits: touch(bits.view(np.uint64), cells[start:stop], 256)),
            "set": chunks(lambda start, stop, bits=bits: scatter(bits, cells[start:stop], coins[: stop - start])),
        }
        times = {name: statistics.median(found) / ROWS * 1e9 for name, found in in_turns(calls, 7).items()}
        print(f"  {bits.size / 1024:6,.0f} KB: {times['touch']:.2f} and {times['set']:.2f}")


def main() -> int:
    print(f"nanoseconds of CPU time for an event, one thread, on {described()}\n")
    for kind, column in columns().items():
        read = 8 if kind.startswith("64") else 20
        for shape, expected in SHAPES.items():
            bitmap = Bitmap(epsilon=1.0) if expected is None else DistinctCount(1.0, expected=expected).algorithm
            assert isinstance(bitmap, Bitmap)
            calls, touched, coins = stages(column, bitmap, bitmap.start())
            times = {name: statistics.median(found) / ROWS * 1e9 for name, found in in_turns(calls, 5).items()}
            whole = times.pop("whole")
            copied = times.pop("copy")
            rest = whole - sum(times.values())
            print(f"{kind}, {shape}: {bitmap.cells / 8 / 1024:,.0f} KB of cells")
            print(f"  an event: {read} bytes read, {touched:.3f} cells written, {coins:.3f} coins drawn")
            parts = ", ".join(f"{name} {time:.2f}" for name, time in times.items())
            print(
                f"  {parts}, rest {rest:.2f}: {whole:.2f} ns = {1e3 / whole:.0f} M/s; a copy {1e3 / copied:.0f} M/s\n"
            )
    bound()
    return 0


if __name__ == "__main__":
    sys.exit(main())
