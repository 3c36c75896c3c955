"""Turnstile counters: updates per second on one core, and the error of the cropped sum at a total epsilon of 1.

Speed is of ``Monitor.update`` on NumPy arrays, checks, hashing, entropy and wiping included: median of interleaved
runs, by processor time. NumPy's own ``np.add.at`` on the same ids and weights, exact and without privacy, runs beside
them.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.verdicts import verdict
from panstream.algorithms.turnstile.block_counter import BlockCounter
from panstream.algorithms.turnstile.heavy_hitter_count import HeavyHitterCount
from panstream.algorithms.turnstile.legendre_counter import LegendreCounter
from panstream.algorithms.turnstile.profile_sketch import ProfileSketch
from panstream.core.monitor import Monitor
from panstream.papers.as_printed.mir import PublishedCroppedSum
from panstream.primitives.noise import SeededSource
from panstream.privacy.turnstile_loss import _counter_variance

ROWS = 2_000_000
UNIVERSE = 100_000
RUNS = 7
TARGET = 20.0
CROP = 16
USERS = 20_000
REPEAT = 600


def counters() -> dict[str, Any]:
    known: dict[str, Any] = {"epsilon": 1.0, "universe": UNIVERSE}
    return {
        "LegendreCounter, all users": LegendreCounter(**known),
        "LegendreCounter, sample of 20,000": LegendreCounter(**known, sample=20_000),
        "LegendreCounter, 4096 x 16 cells": LegendreCounter(epsilon=1.0, buckets=4096, levels=16),
        "LegendreCounter, 4-wise family": LegendreCounter(epsilon=1.0, buckets=4096, levels=16, independence=4),
        "BlockCounter, all users": BlockCounter(**known, crop=16),
        "BlockCounter, small prime": BlockCounter(**known, crop=16, largest=160),
        "BlockCounter, 65,536 buckets": BlockCounter(epsilon=1.0, buckets=1 << 16, crop=16),
        "HeavyHitterCount, 16,384 buckets": HeavyHitterCount(epsilon=1.0, buckets=1 << 14, threshold=1000),
        "ProfileSketch, all users": ProfileSketch(**known, largest=509),
    }


def speeds() -> int:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, UNIVERSE, ROWS)
    weights = rng.integers(-(10**6), 10**6, ROWS)
    exact = np.zeros(UNIVERSE, np.int64)
    table: dict[str, Callable[[], None]] = {"np.add.at, exact (peer)": lambda: np.add.at(exact, ids, weights)}
    for name, counter in counters().items():
        monitor = counter.start()
        table[name] = lambda monitor=monitor: monitor.update(ids, weight=weights)  # type: ignore[misc]
    times: dict[str, list[float]] = {name: [] for name in table}
    for run in range(RUNS + 1):
        for name, call in table.items():
            start = time.process_time()
            call()
            if run:  # the first run compiles
                times[name].append(time.process_time() - start)
    missed = 0
    for name in table:
        speed = ROWS / statistics.median(times[name]) / 1e6
        peer = name.endswith("(peer)")
        missed += not peer and speed < TARGET
        if peer:
            print(f"{name:<64}  {speed:>14.0f} M/s")
        else:
            verdict(f"{name}, updates with weights", f"{speed:.0f} M/s", f">= {TARGET:.0f} M/s", speed >= TARGET)
    return missed


def spread(largest: int, net: Any) -> tuple[float, float, float, int]:
    """Return the sd of the cropped sum: worst case and on ``net`` by formula, measured on ``net``; and the prime."""
    counter = BlockCounter(universe=USERS, epsilon=1.0, crop=CROP, largest=largest)
    law = counter.law
    worst = CROP * math.sqrt(_counter_variance(law.epsilon_state, law.kappa, USERS, counter.prime))
    chances = law.elsewhere + law.gap * (1 - np.minimum(np.abs(net), CROP) / CROP)
    expected = CROP * math.sqrt(float((chances * (1 - chances)).sum()) + law.noise.variance) / law.gap
    rng = SeededSource(1)
    batch = counter.batch(np.arange(USERS), weight=net)
    values = []
    for _ in range(REPEAT):
        monitor = Monitor(counter, rng=rng)
        with rng:
            counter.update(monitor.state, batch, rng)
        values.append(monitor.release().unbiased)
    return worst, expected, float(np.std(values, ddof=1)), counter.prime


def errors() -> int:
    print(f"\nsum of min(|a|, {CROP}) over {USERS:,} users, total epsilon 1: standard deviation, target 5,000")
    print(f"{'loads':36}{'prime':>6}{'worst case':>12}{'here':>8}{'measured':>10}")
    rng = np.random.default_rng(2)
    missed = 0
    cases = {
        "uniform in -160..160": (160, rng.integers(-160, 161, USERS)),
        "geometric, mean 20, at most 288": (288, np.minimum(rng.geometric(0.05, USERS), 288)),
        "geometric, half of the users": (480, np.minimum(rng.geometric(0.05, USERS), 480) * rng.integers(0, 2, USERS)),
        "nobody": (480, np.zeros(USERS, np.int64)),
    }
    slack = 3 / math.sqrt(2 * REPEAT)  # three standard errors of a measured standard deviation
    for name, (largest, net) in cases.items():
        worst, expected, measured, prime = spread(largest, net)
        good = expected <= 5000 and abs(measured / expected - 1) <= slack
        missed += not good
        print(f"{name:36}{prime:>6}{worst:>12,.0f}{expected:>8,.0f}{measured:>10,.0f}")
        verdict(f"cropped sum, sd, {name}, prime {prime}", f"{expected:,.0f}", "<= 5,000", good)
    theirs = PublishedCroppedSum(universe=USERS, epsilon=1.0, crop=CROP).deviation()
    print(f"{'Mir et al., constant corrected':36}{'':>6}{theirs:>12,.0f}  for twice the loss")
    return missed


if __name__ == "__main__":
    sys.exit(int(speeds() + errors() > 0))
