"""Speed of the bitmap against the fastest databases and DataSketches, on one thread, coins and wiping included.

Figures are CPU time, medians of rounds in turns. The ratio is to the fastest database of this run, which is named, with
its lowest and highest round; processor and load are printed.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.peers.anchors import anchors, described, in_turns, ratio
from benchmarks.verdicts import verdict
from panstream.algorithms.auto import DistinctCount
from panstream.algorithms.distinct import Bitmap

IDS = 20_000_000
STRINGS = 10_000_000
VALUES = 100_000
SKETCHED = 500_000


def main() -> int:
    rng = np.random.default_rng(2)
    print(f"million events a second on {described()}")
    passed = True
    ids = rng.integers(-(2**63), 2**63 - 1, IDS)
    passed &= compare(f"{IDS // 10**6} million 64-bit ids", ids, highest=1.0)
    passed &= sketches(ids)
    del ids
    text = np.frombuffer(b"0123456789abcdef", np.uint8)[rng.integers(0, 16, (STRINGS, 16), dtype=np.uint8)]
    offsets = np.arange(STRINGS + 1, dtype=np.int32) * 16
    strings = pa.Array.from_buffers(pa.string(), STRINGS, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    passed &= compare(f"{STRINGS // 10**6} million 16-byte strings", strings, highest=1.0)
    codes = pa.array(rng.integers(0, VALUES, STRINGS, dtype=np.int32))
    coded = pa.DictionaryArray.from_arrays(codes, strings.slice(0, VALUES))
    passed &= compare("the same, dictionary-encoded, 100,000 values", coded, peers=("DuckDB",), highest=1.3)
    return int(not passed)


def compare(name: str, column: Any, highest: float, peers: tuple[str, ...] = ()) -> bool:
    """Let all databases and our bitmaps run in turns; ours must reach so much of the fastest of them."""
    rows = len(column)
    bitmaps = {
        "": Bitmap(epsilon=1.0),
        ", expected = 1e6": DistinctCount(1.0, expected=1e6).algorithm,
        ", expected = n": DistinctCount(1.0, expected=rows).algorithm,
    }
    monitors = {shape: bitmap.start() for shape, bitmap in bitmaps.items() if not (peers and shape)}
    databases = {each: call for each, call in anchors(column).items() if not peers or each.partition(" ")[0] in peers}
    calls: dict[str, Any] = dict(databases)
    calls |= {shape: (lambda monitor=monitor: monitor.update(column)) for shape, monitor in monitors.items()}
    times = in_turns(calls)
    speeds = {each: rows / statistics.median(seconds) / 1e6 for each, seconds in times.items()}
    print("  " + ", ".join(f"{each} {speeds[each]:.0f} M/s" for each in databases))
    best = max(databases, key=lambda each: speeds[each])
    passed = True
    for shape in monitors:
        found, low, high = ratio(times[shape], times[best])
        figure = f"{speeds[shape]:.0f} M/s = {found:.2f} ({low:.2f} to {high:.2f})"
        passed &= verdict(name + shape, figure, f">= {highest:g} {best.partition(' ')[0]}", found >= highest)
    return passed


def sketches(ids: NDArray[np.int64]) -> bool:
    import datasketches

    some = ids[:SKETCHED].tolist()
    sketch = datasketches.hll_sketch(12)
    monitor = Bitmap(epsilon=1.0).start()

    def fill() -> None:
        for item in some:
            sketch.update(item)

    times = in_turns({"ours": lambda: monitor.update(ids), "theirs": fill})
    mine, theirs = (statistics.median(times[side]) for side in ("ours", "theirs"))
    faster = (theirs / SKETCHED) / (mine / IDS)
    figure = f"{IDS / mine / 1e6:.0f} M/s = {faster:.0f} DataSketches"
    return verdict("64-bit ids against HLL, looped over in Python", figure, ">= 20 DataSketches", faster >= 20)


if __name__ == "__main__":
    sys.exit(main())
