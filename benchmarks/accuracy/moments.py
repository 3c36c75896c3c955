"""Second moments and inner products: error and coverage over keys and noise, and updates per second.

60,000 rows of 20,000 users, epsilon 1. Every run has a key of its own; intervals are those of the shipped code.
"""

from __future__ import annotations

import math
import sys
import time

import numpy as np
from numpy.typing import NDArray

from benchmarks.verdicts import verdict
from panstream.algorithms.turnstile import InnerProduct, SecondMoment
from panstream.algorithms.turnstile.legendre_counter import LegendreCounter
from panstream.core.monitor import Monitor
from panstream.papers.as_printed.cauchy_sketch import cauchy_scale, l1_deviation
from panstream.primitives.noise import SeededSource

ROWS = 60_000
USERS = 20_000
RUNS = 1_000
MOST = 10
Net = NDArray[np.int64]


def loads() -> dict[str, Net]:
    rng = np.random.default_rng(2)
    zipf = 1 / np.arange(1, USERS + 1) ** 0.7
    return {
        "uniform": np.bincount(rng.integers(0, USERS, ROWS), minlength=USERS),
        "Zipf .7": rng.multinomial(ROWS, zipf / zipf.sum()),
        "two points": np.where(np.arange(USERS) < 40, 1001, 1),
    }


def rows_of(net: Net) -> Net:
    return np.repeat(np.arange(net.size), net)


def second_moments(runs: int) -> bool:
    met = True
    for name, net in loads().items():
        for label, most in (("event", None), (f"users of at most {MOST} rows", MOST)):
            kept = net if most is None else np.minimum(net, most)
            truth = float(kept @ kept)
            rows = rows_of(kept)
            errors = []
            squares = []
            covered = 0
            widths = []
            for key in range(runs):
                sketch = SecondMoment(epsilon=1.0, expected=math.sqrt(truth), contributions=most, key=key)
                monitor = Monitor(sketch, rng=SeededSource(key))
                monitor.update(rows)
                estimate = monitor.release()
                low, high = estimate.interval()
                covered += low <= truth <= high
                widths.append((math.sqrt(high) - math.sqrt(low)) / 2 / math.sqrt(truth))
                squares.append(abs(estimate.unbiased / truth - 1))
                errors.append(abs(math.sqrt(estimate.value / truth) - 1))
            what = f"L2, {name}, {label}"
            if most is None:
                reach = float(np.quantile(errors, 0.95))
                met &= verdict(f"{what}: error in 95% of runs", f"{reach:.2%}", "<= 2%", reach <= 0.02)
            else:
                beyond = float(np.mean(np.array(squares) > sketch.error_bound(beta=0.05) / truth))
                met &= verdict(f"{what}: beyond the 95% error", f"{beyond:.1%}", "<= 7%", beyond <= 0.07)
            met &= verdict(f"{what}: coverage of 95%", f"{covered / runs:.1%}", ">= 93%", covered >= 0.93 * runs)
            print(f"{what}: mean half width {np.mean(widths):.2%}")
    return met


def inner_products(runs: int) -> bool:
    met = True
    for name, left in loads().items():
        right = np.roll(left, 3)
        truth = float(left @ right)
        norm = math.sqrt(left @ left)
        values = []
        covered = 0
        for key in range(runs):
            monitor = Monitor(InnerProduct(epsilon=1.0, expected=norm, key=key), rng=SeededSource(key))
            monitor.update(rows_of(left), stream="left")
            monitor.update(rows_of(right), stream="right")
            estimate = monitor.release()
            low, high = estimate.interval()
            covered += low <= truth <= high
            values.append(estimate.value)
        print(f"inner product, {name}: truth {truth:,.0f}, mean {np.mean(values):,.0f}, sd {np.std(values):,.0f}")
        what = f"inner product, {name}: coverage of 95%"
        met &= verdict(what, f"{covered / runs:.1%}", ">= 93%", covered >= 0.93 * runs)
    return met


def l1() -> None:
    entries = np.random.default_rng(3).standard_cauchy((USERS, 100))
    scale = cauchy_scale(entries, 1.0)
    print(f"L1 by 100 Cauchy counters: noise scale {scale:,.0f}, sd {l1_deviation(ROWS, scale, 100):,.0f} of {ROWS:,}")


def speed() -> None:
    ids = np.random.default_rng(0).integers(0, USERS, 2_000_000)
    for sketch in (
        SecondMoment(epsilon=1.0, expected=490.0),
        LegendreCounter(epsilon=1.0, buckets=1 << 16, independence=4),
    ):
        monitor = sketch.start()
        monitor.update(ids)
        times = []
        for _ in range(5):
            start = time.process_time()
            monitor.update(ids)
            times.append(time.process_time() - start)
        print(f"{type(sketch).__name__}: {ids.size / np.median(times) / 1e6:.1f} million rows a second")


if __name__ == "__main__":
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    speed()
    l1()
    results = [second_moments(runs), inner_products(runs)]
    sys.exit(0 if all(results) else 1)
