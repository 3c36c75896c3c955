"""Distinct users of a Spark DataFrame: runs panstream.distributed.sharded.spark on a local Spark and checks the
answers.

    make spark                     (or, with pyspark and Java: python -m benchmarks.soak.cluster_spark [ROWS [RUNS]])

Without noise the state that Spark's tasks fill must be that of one process, bit for bit. With noise, the 95% intervals
of RUNS counts must hold the truth about as often as they say.
"""

from __future__ import annotations

import math
import os
import sys
import time
import warnings
from typing import Any

import numpy as np

from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.distributed.sharded.spark import distinct, update_from_frame

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
LEVEL = 0.95
FALSE_ALARM = 1e-6


def users_of(session: Any, rows: int, users: int) -> Any:
    from pyspark.sql import functions

    number = (functions.col("id") % users).cast("string")
    return session.range(0, rows, 1, 8).select(functions.concat(functions.lit("user-"), number).alias("user"))


def equal_without_noise(frame: Any, users: int) -> bool:
    """Return whether Spark fills the same cells as one process."""
    algorithm = Bitmap(epsilon=float("inf"), buckets=4096, levels=16)
    states = []
    for spark in (True, False):
        monitor = algorithm.start()
        if spark:
            update_from_frame(frame, "user", monitor)
        else:
            monitor.update([f"user-{number}" for number in range(users)])
        states.append((monitor.state.bits.copy(), monitor.release().value))
    return bool(np.array_equal(states[0][0], states[1][0])) and states[0][1] == states[1][1]


def least_inside(runs: int) -> int:
    """Return how many of ``runs`` intervals hold the truth at least, but for one time in a million."""
    below = 0.0
    for inside in range(runs + 1):
        below += math.comb(runs, inside) * LEVEL**inside * (1 - LEVEL) ** (runs - inside)
        if below > FALSE_ALARM:
            return inside
    return runs


def main() -> int:
    from pyspark.sql import SparkSession

    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    users = rows // 4
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    warnings.simplefilter("ignore", FutureWarning)  # about pandas 3, of which nothing is used here
    failed = 0

    def show(what: str, figure: str, target: str, good: bool) -> None:
        nonlocal failed
        failed += not good
        print(f"{what:<46} {figure:>22}   {target:<28} {'pass' if good else 'FAIL'}", flush=True)

    try:
        frame = users_of(session, rows, users)
        same = equal_without_noise(frame, users)
        show("without noise, state and count as one process", "equal" if same else "different", "equal", same)
        inside = 0
        seconds = []
        shares = []
        for _ in range(runs):
            start = time.perf_counter()
            estimate = distinct(frame, "user", epsilon=1.0, expected=users)
            seconds.append(time.perf_counter() - start)
            low, high = estimate.interval(LEVEL)
            inside += low <= users <= high
            shares.append(abs(estimate.value / users - 1))
        least = least_inside(runs)
        show(
            f"{LEVEL:.0%} intervals that hold {users:,} users",
            f"{inside} of {runs}",
            f"at least {least}",
            inside >= least,
        )
        print(f"{'relative error, median':<46} {np.median(shares):>22.3%}")
        print(f"{'rows a second on 2 local cores, median':<46} {rows / np.median(seconds):>22,.0f}")
    finally:
        session.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
