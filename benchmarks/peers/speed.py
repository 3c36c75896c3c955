"""Speed of the algorithms beside what people use today, one thread each, on the same array in the same run."""

from __future__ import annotations

import math
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import itertools

import datasketches
import duckdb
import numpy as np
import opendp.prelude as dp
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.peers.anchors import anchors, in_turns, ratio
from benchmarks.peers.rows import Row, elapsed, per_second, speed_row
from panstream import ContinualCount
from panstream.algorithms.density import OptBern
from panstream.algorithms.distinct import Bitmap
from panstream.algorithms.turnstile import LegendreCounter

GROUP = "speed"
IDS = 20_000_000
STRINGS = 10_000_000
LOOPED = 300_000
TICKS = 1_000_000
USERS = 1_000_000


def rows() -> list[Row]:
    """Return every comparison of speed."""
    print("speed: events per second, ours and theirs, ratio with the lowest and highest of the rounds")
    rng = np.random.default_rng(11)
    ids = rng.integers(-(2**63), 2**63 - 1, IDS)
    strings = hexadecimal(rng, STRINGS)
    found = [*distinct(ids, "64-bit ids"), *distinct(strings, "16-byte strings")]
    found += [*looped(ids, strings), *redis_rows(ids), *dp_rows(ids), *others(rng), bandwidth(ids), slope(ids)]
    return found


def hexadecimal(rng: np.random.Generator, count: int) -> Any:
    """Return unguessable strings of 16 characters."""
    text = np.frombuffer(b"0123456789abcdef", np.uint8)[rng.integers(0, 16, (count, 16), dtype=np.uint8)]
    offsets = np.arange(count + 1, dtype=np.int32) * 16
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def distinct(column: Any, kind: str) -> list[Row]:
    """Compare the bitmap with the databases' own sketches, all in turns, by CPU time."""
    databases = anchors(column)
    bitmap = Bitmap(epsilon=1.0).start()
    times = in_turns({"ours": lambda: bitmap.update(column), **databases})
    speeds = {name: len(column) / statistics.median(seconds) for name, seconds in times.items()}
    found = []
    for name in databases:
        middle, low, high = ratio(times["ours"], times[name])
        row = Row(
            group=GROUP,
            name=f"distinct count, {kind}",
            peer=name,
            ours=per_second(speeds["ours"]),
            theirs=per_second(speeds[name]),
            ratio=middle,
            low=low,
            high=high,
            target=1.0,
        )
        print(row, flush=True)
        found.append(row)
    return found


def looped(ids: NDArray[np.int64], strings: Any) -> list[Row]:
    """Compare with DataSketches, whose Python sketches take one item a call."""
    found = []
    for kind, column, target in (("64-bit ids", ids, 20.0), ("16-byte strings", strings, None)):
        some = (column[:LOOPED]).tolist() if kind == "64-bit ids" else column.slice(0, LOOPED).to_pylist()
        bitmap = Bitmap(epsilon=1.0).start()
        for sort, sketch in (("HLL", datasketches.hll_sketch(12)), ("CPC", datasketches.cpc_sketch(11))):

            def fill(sketch: Any = sketch, some: list[Any] = some) -> None:
                for item in some:
                    sketch.update(item)

            ours = (lambda bitmap=bitmap, column=column: bitmap.update(column), len(column))
            name = f"distinct count, {kind}"
            found.append(speed_row(GROUP, name, f"DataSketches {sort}, looped", ours, (fill, LOOPED), target))
    return found


@contextmanager
def redis_server() -> Iterator[Any]:
    """Run a server of our own on a socket."""
    import redis

    with tempfile.TemporaryDirectory() as directory:
        socket = Path(directory) / "redis.sock"
        options = ["--port", "0", "--unixsocket", str(socket), "--save", "", "--appendonly", "no"]
        server = subprocess.Popen(["redis-server", *options], stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            while "eady to accept" not in (line := server.stdout.readline()) and line:
                pass
            yield redis.Redis(unix_socket_path=str(socket))
        finally:
            server.terminate()
            server.wait()


def redis_rows(ids: NDArray[np.int64]) -> list[Row]:
    """Compare with PFADD of 1,000 ids a command."""
    if shutil.which("redis-server") is None:
        print("redis-server is not installed: left out")
        return []
    bitmap = Bitmap(epsilon=1.0).start()
    some = [str(item) for item in ids[:LOOPED].tolist()]
    with redis_server() as client:

        def fill() -> None:
            for start in range(0, LOOPED, 1000):
                client.pfadd("visitors", *some[start : start + 1000])

        return [speed_row(GROUP, "distinct count, 64-bit ids", "Redis PFADD, 1,000 a command",
                          (lambda: bitmap.update(ids), IDS), (fill, LOOPED))]  # fmt: skip


def dp_rows(ids: NDArray[np.int64]) -> list[Row]:
    """Compare with counters of libraries for differential privacy; neither survives a look at its memory."""
    from pydp.algorithms.laplacian import Count

    dp.enable_features("contrib")
    some = ids[:LOOPED].tolist()
    space = dp.vector_domain(dp.atom_domain(T=dp.i64)), dp.symmetric_distance()
    measure = space >> dp.t.then_count_distinct(TO=dp.i64) >> dp.m.then_laplace(scale=1.0)
    bitmap = Bitmap(epsilon=1.0).start()
    population = OptBern(universe=USERS, epsilon=1.0).start()
    known = ids % USERS

    listed = known[:LOOPED].tolist()

    def pydp_count() -> None:
        counter = Count(epsilon=1.0, l0_sensitivity=1, linf_sensitivity=1)
        counter.add_entries(listed)
        counter.result()

    return [
        speed_row(GROUP, "distinct count, 64-bit ids", "OpenDP count_distinct + Laplace",
                  (lambda: bitmap.update(ids), IDS), (lambda: measure(some), LOOPED)),
        speed_row(GROUP, "distinct count, the same Python list", "OpenDP count_distinct + Laplace",
                  (lambda: bitmap.update(some), LOOPED), (lambda: measure(some), LOOPED)),
        speed_row(GROUP, "presence of a known population", "PyDP Count",
                  (lambda: population.update(known), IDS), (pydp_count, LOOPED)),
        speed_row(GROUP, "presence, the same Python list", "PyDP Count",
                  (lambda: population.update(listed), LOOPED), (pydp_count, LOOPED)),
    ]  # fmt: skip


def others(rng: np.random.Generator) -> list[Row]:
    """Compare turnstile and continual counters with the exact computation."""
    users = rng.integers(0, USERS, IDS // 2)
    weights = rng.integers(-3, 4, IDS // 2)
    counter = LegendreCounter(universe=USERS, epsilon=1.0).start()
    database = duckdb.connect(config={"threads": 1})
    database.register("data", pa.table({"u": users, "w": weights}))
    query = "SELECT count(*) FROM (SELECT u FROM data GROUP BY u HAVING sum(w) <> 0)"
    bits = rng.integers(0, 2, TICKS)
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=dp.i64)), dp.symmetric_distance()
    measure = space >> dp.t.then_count() >> dp.m.then_laplace(scale=1.0)
    slots = [[0] * int(bit) for bit in bits[:20_000]]
    return [
        speed_row(GROUP, "turnstile, users with a balance", "DuckDB, exact (GROUP BY)",
                  (lambda: counter.update(users, weights), users.size),
                  (lambda: database.execute(query).fetchall(), users.size)),
        speed_row(GROUP, "continual count, ticks", "OpenDP, a noisy count a slot",
                  (lambda: ContinualCount(horizon=TICKS, epsilon=1.0).start().tick_many(bits), TICKS),
                  (lambda: [measure(slot) for slot in slots], len(slots))),
    ]  # fmt: skip


def bandwidth(ids: NDArray[np.int64]) -> Row:
    """Return which part of the speed of copying the same array remains."""
    bitmap = Bitmap(epsilon=1.0).start()
    target = np.empty_like(ids)
    return speed_row(GROUP, "distinct count, 64-bit ids", "copying the array (memory speed)",
                     (lambda: bitmap.update(ids), IDS), (lambda: np.copyto(target, ids), IDS))  # fmt: skip


def slope(ids: NDArray[np.int64]) -> Row:
    """Return the exponent of the cost in the number of events, from 1e4 to 1e8; 1 is linear."""
    bitmap = Bitmap(epsilon=1.0).start()
    sizes = [10**4, 10**5, 10**6, 10**7, 10**8]

    def feed(size: int) -> Callable[[], object]:
        whole, rest = divmod(size, IDS)
        return lambda: [bitmap.update(ids[:part]) for part in [IDS] * whole + [rest] * (rest > 0)]

    times = {size: min(elapsed(feed(size)) for _ in range(3 if size == 10**8 else 7)) for size in sizes}
    steps = [math.log10(times[large] / times[small]) for small, large in itertools.pairwise(sizes)]
    whole = math.log10(times[sizes[-1]] / times[sizes[0]]) / 4
    row = Row(group=GROUP, name="exponent of the cost, 1e4 to 1e8 events", peer="linear cost",
              ours=f"n^{whole:.3f}", theirs="n^1", ratio=1 / whole, low=1 / max(steps), high=1 / min(steps),
              target=0.95)  # fmt: skip
    print(row, flush=True)
    return row
