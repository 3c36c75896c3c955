"""Speed of the hash functions on one core: medians of interleaved runs, items per second of processor time."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.verdicts import verdict
from panstream.primitives.hashing import (
    KWise,
    StringHash,
    cells_of,
    cells_of_integers,
    cells_of_strings,
    hash_integers,
    hash_strings,
    permute,
)

N = 1_000_000
RUNS = 15
Case = tuple[str, Callable[[], Any], float | None]  # name, one run over N items, target in millions a second


def cases() -> list[Case]:
    rng = np.random.default_rng(0)
    hashes = np.empty(N, np.uint64)
    cells = np.empty(N, np.int32)
    wide = np.empty(N, np.int64)
    integers = rng.integers(0, 2**62, N)
    family = KWise.from_key(4)
    offsets = {16: np.arange(N + 1, dtype=np.int32) * 16, 36: np.arange(N + 1, dtype=np.int32) * 36}
    text = rng.integers(0, 256, 36 * N, dtype=np.uint8)
    mixed = np.concatenate([[0], np.cumsum(rng.integers(4, 25, N))]).astype(np.int32)
    ids = {universe: rng.integers(0, universe, N) for universe in (50_000, 10**7, 10**12)}
    return [
        *strings("fold", 150, offsets, mixed, text),
        *strings("siphash", 50, offsets, mixed, text),
        ("integers", lambda: hash_integers(integers, 0, hashes), 200),
        ("integers to cells", lambda: cells_of_integers(integers, 0, 4096, 24, cells), 230),
        ("hashes to cells", lambda: cells_of(hashes, 4096, 24, cells), None),
        ("permutation, U = 50,000", lambda: permute(ids[50_000], 50_000, 0, wide), None),
        ("permutation, U = 10**7", lambda: permute(ids[10**7], 10**7, 0, wide), 60),
        ("permutation, U = 10**12", lambda: permute(ids[10**12], 10**12, 0, wide), None),
        ("4-wise polynomial", lambda: family.values(ids[10**12], hashes), None),
        *peers(integers, text[: 16 * N]),
    ]


def strings(hash: StringHash, target: float, offsets: dict[int, Any], mixed: Any, text: Any) -> list[Case]:
    hashes = np.empty(N, np.uint64)
    cells = np.empty(N, np.int32)

    def hashed(starts: Any) -> Callable[[], Any]:
        return lambda: hash_strings(starts, text, 0, hashes, hash=hash)

    return [
        (f"16-byte strings, {hash}", hashed(offsets[16]), target),
        (f"36-byte strings, {hash}", hashed(offsets[36]), None),
        (f"strings of 4 to 24 bytes, {hash}", hashed(mixed), None),
        (
            f"16-byte strings to cells, {hash}",
            lambda: cells_of_strings(offsets[16], text, 0, 4096, 24, cells, hash=hash),
            target,
        ),
    ]


def peers(integers: Any, text: Any) -> list[Case]:
    try:
        import polars
    except ImportError:
        return []
    numbers = polars.Series(integers)
    raw = text.tobytes()
    strings = polars.Series([raw[i : i + 16] for i in range(0, len(raw), 16)], dtype=polars.Binary)
    return [
        ("polars: integers", lambda: numbers.hash(), None),
        ("polars: 16-byte strings", lambda: strings.hash(), None),
    ]


def main() -> int:
    table = cases()
    times: dict[str, list[float]] = {name: [] for name, _, _ in table}
    for run in range(RUNS + 1):
        for name, call, _ in table:
            start = time.process_time()
            call()
            if run:  # the first run compiles
                times[name].append(time.process_time() - start)
    missed = 0
    for name, _, target in table:
        speed = N / statistics.median(times[name]) / 1e6
        missed += target is not None and speed < target
        if target is None:
            print(f"{name:<64}  {speed:>14.0f} M/s")
        else:
            verdict(name, f"{speed:.0f} M/s", f">= {target:.0f} M/s", speed >= target)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
