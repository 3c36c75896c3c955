"""How a cluster scales: a formula with measured constants, and a simulation that checks it.

    python -m benchmarks.speed.cluster_model [--read 55] [--take 3] [--store 15]

The formula (docs/explanation/scaling-model.md): a task of P rows costs its reader P·read + N·call seconds and every
shard take·C/N + store·C/N seconds, C the cells of the state; workers do both. The simulation lets W workers read
partitions and serve shards one thing at a time, with random service times, and counts partitions a second. The
constants are those of the page by default; `python -m benchmarks.speed.cluster` measures a cluster of two workers.
"""

from __future__ import annotations

import argparse
import heapq

import numpy as np

from panstream.algorithms.distinct.bitmap import Bitmap

_SENT = 1 / 8  # bytes for a cell of a task, to all shards together


def model(constants: dict[str, float], workers: int, rows: int, call: float = 0.002) -> float:
    """Return events a second of ``workers`` workers with one shard each, partitions of ``rows`` rows."""
    shard = (constants["take"] + constants["store"]) * constants["cells"] / workers
    return workers * rows / (rows * constants["read"] + workers * (call + shard))


def simulate(constants: dict[str, float], workers: int, rows: int, partitions: int, call: float = 0.002) -> float:
    """Return the same from a queue at every worker: two partitions under way each, reading and serving shards in
    turn.
    """
    draw = np.random.default_rng(2)
    serve = call + (constants["take"] + constants["store"]) * constants["cells"] / workers
    free = [0.0] * workers
    left = partitions
    done = 0.0
    events: list[tuple[float, int, int]] = []  # when a worker may begin to read its next partition

    def busy(worker: int, begin: float, seconds: float) -> float:
        free[worker] = max(free[worker], begin) + seconds * draw.uniform(0.8, 1.2)
        return free[worker]

    for number in range(2 * workers):
        heapq.heappush(events, (0.0, number, number % workers))
    reads: list[tuple[float, int, int]] = []
    while (events and left) or reads:
        if events and left and (not reads or events[0][0] <= reads[0][0]):
            now, token, worker = heapq.heappop(events)
            left -= 1
            heapq.heappush(reads, (busy(worker, now, rows * constants["read"]), token, worker))
        else:
            now, token, worker = heapq.heappop(reads)
            ends = [busy(owner, now, serve) for owner in range(workers)]
            done = max(done, *ends)
            heapq.heappush(events, (max(ends), token, worker))
    return partitions * rows / done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--read", type=float, default=55.0, help="nanoseconds to read, hash and mark a row")
    parser.add_argument("--take", type=float, default=3.0, help="nanoseconds to take in a cell's mark")
    parser.add_argument("--store", type=float, default=15.0, help="nanoseconds to store a cell")
    options = parser.parse_args()
    algorithm = Bitmap(epsilon=1.0, buckets=1 << 16, levels=24, expected=1e10)
    cells = algorithm.cells
    constants = {name: 1e-9 * getattr(options, name) for name in ("read", "take", "store")} | {"cells": cells}
    print(f"{'workers':>8} {'formula, events/s':>18} {'simulated':>14} {'ratio':>6}")
    for workers in (1, 2, 4, 8, 32, 128):
        predicted = model(constants, workers, 1_000_000)
        found = simulate(constants, workers, 1_000_000, 50 * workers)
        print(f"{workers:>8} {predicted:>18,.0f} {found:>14,.0f} {found / predicted:>6.2f}", flush=True)
    need = 1e12 / 86_400
    workers = next(count for count in range(1, 5000) if model(constants, count, 1_000_000) >= need)
    print(f"\n10^12 events a day are {need:,.0f} a second: {workers} such workers, partitions of a million rows")
    print(f"  state, all shards     {cells / 8e6:.1f} MB")
    print(f"  network, all shards   {_SENT * cells * need / 1e6 / 1e6:.1f} MB/s")
    print(f"  error at 10^10 users  {algorithm.relative_error(1e10):.2%} standard error, epsilon 1")


if __name__ == "__main__":
    main()
