"""How a cluster scales: constants measured here on 1, 2, 4 and 8 shards, a model made of them, and a simulation that
checks it.

    python experiments/cluster_model.py [ROWS]

The model (docs/explanation/scaling-model.md): a task of P rows costs its reader P·read + N·call seconds and every shard
take·C/N + store·C/N seconds, C the cells of the state; workers do both. The simulation lets W workers read partitions
and serve shards one thing at a time, with random service times, and counts partitions a second.
"""

from __future__ import annotations

import heapq
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.distributed.sharded._cell_messages import CellMessage
from panstream.distributed.sharded._partitioning import Partitioning
from panstream.distributed.sharded._shard import Shard
from panstream.distributed.sharded._worker_reading import Partition, ReadPlan
from panstream.engine.config.config import read_config
from panstream.engine.runtime.state_backend import state_name

SHARDS = (1, 2, 4, 8)


def best(work: object, rounds: int = 3) -> float:
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()  # type: ignore[operator]
        found.append(time.perf_counter() - start)
    return min(found[1:]) if rounds > 1 else found[0]


def _take(shard: Shard, steps: Iterator[int], work: Iterator[CellMessage]) -> None:
    shard.apply(next(steps), 0, (), [((), (), [next(work)])])


def measure(rows: int) -> dict[str, float]:
    """Return seconds a row for reading and hashing, seconds a cell for taking marks in and storing, bytes a cell
    sent.
    """
    query = {
        "name": "n",
        "sql": "SELECT COUNT(DISTINCT user) FROM s",
        "epsilon": 1.0,
        "memory": 1 << 21,
        "expected": 10**8,
    }
    stream = {"name": "s", "user": "user", "columns": {"user": "string"}}
    config = read_config({"stream": stream, "query": [query]})
    ids = pa.array([f"user-{number}" for number in np.random.default_rng(1).integers(0, rows, rows)])
    print(
        f"{'shards':>6} {'read, ns/row':>13} {'take, ns/cell':>14} {'store, ns/cell':>15} {'sent, bytes/cell':>17} "
        f"{'state, bytes/cell':>18}"
    )
    table = []
    with tempfile.TemporaryDirectory() as folder:
        parquet.write_table(pa.table({"user": ids}), Path(folder) / "ids.parquet")
        parts = Partition.of([folder])
        for shards in SHARDS:
            reader = ReadPlan(config=config, shards=shards).reader()
            algorithm = reader.queries["n"].plan.algorithm
            reader.cut(parts)
            read = best(lambda reader=reader: reader.cut(parts)) / rows
            work = [own[0] for own in reader.cut(parts).work]
            marks = [message.marks for message in work]
            sent = sum(own.nbytes for own in marks) / algorithm.cells
            seconds = []
            for directory in (None, Path(folder) / str(shards)):
                shard = Shard(number=0, shards=shards, algorithms={"n": algorithm}, directory=directory)
                shard.apply(1, 0, (), [((), (state_name("n", (0, 0)),), [])])
                copies = [replace(work[0], marks=marks[0].copy()) for _ in range(6)]
                seconds.append(best(partial(_take, shard, count(2), iter(copies)), 6))
                held = len(shard.gather(state_name("n", (0, 0))))
                shard.close()
            own = Partitioning(algorithm, shards).count(0)
            take = seconds[0] / own
            store = max(seconds[1] - seconds[0], 0.0) / own
            table.append((read, take, store, sent, held / own))
            print(
                f"{shards:>6} {read * 1e9:>13.1f} {take * 1e9:>14.2f} {store * 1e9:>15.2f} {sent:>17.3f} "
                f"{held / own:>18.3f}",
                flush=True,
            )
    read, take, store, sent, held = np.median(np.array(table), axis=0)
    cells = algorithm.cells
    return {"read": read, "take": take, "store": store, "sent": sent, "held": held, "cells": cells}


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
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    constants = measure(rows)
    print(f"\n{'workers':>8} {'model, events/s':>16} {'simulated':>12} {'ratio':>6}")
    for workers in (1, 2, 4, 8, 32, 128):
        predicted = model(constants, workers, 1_000_000)
        found = simulate(constants, workers, 1_000_000, 50 * workers)
        print(f"{workers:>8} {predicted:>16,.0f} {found:>12,.0f} {found / predicted:>6.2f}")
    need = 1e12 / 86_400
    workers = next(w for w in range(1, 5000) if model(constants, w, 1_000_000) >= need)
    algorithm = Bitmap(epsilon=1.0, buckets=1 << 16, levels=24, expected=1e10)
    cells = algorithm.cells
    print(
        f"\n10^12 events a day are {need:,.0f} a second: {workers} workers like this core, partitions of a million rows"
    )
    print(f"  state, all shards     {cells / 1e6:.1f} MB running, {constants['held'] * cells / 1e6:.2f} MB on disk")
    print(f"  network, all shards   {constants['sent'] * cells * need / 1e6 / 1e6:.1f} MB/s")
    print(
        f"  error at 10^10 users  {algorithm.relative_error(1e10):.2%} standard error, epsilon 1, on any number of "
        "shards"
    )


if __name__ == "__main__":
    main()
