"""Counts of users at every tick: errors by formula and in runs of the shipped code, coverage, and speed.

python -m benchmarks.accuracy.continual_distinct [runs]     (1,000 runs take a few minutes)
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import numpy as np

from panstream import ContinualCount
from panstream.algorithms.continual_users import ContinualBitmap, ContinualDensity
from panstream.algorithms.density import OptBern
from panstream.algorithms.distinct import Bitmap

USERS = 20_000
LEVEL = 1.96
BARS = {("event", 100): 390, ("event", 1_000): 480, ("event", 100_000): 700, ("user", 1_000): 2_600}


def formulas() -> None:
    """Print the 95% error, on average over the ticks, where half of the users come."""
    for (unit, horizon), bar in BARS.items():
        algorithm = ContinualDensity(universe=USERS, epsilon=1.0, horizon=horizon, unit=unit, count=True)
        error = LEVEL * math.sqrt(algorithm.strategy.variance)
        print(f"{unit:6} n = {horizon:>7,}: 95% error {error:,.0f} (at most {bar:,}), {algorithm.strategy.method}")


def covered(algorithm: ContinualDensity | ContinualBitmap, users: int, runs: int) -> tuple[float, float, float]:
    """Return the 95% error of the last answer, how often its interval held the truth, and its half width."""
    horizon = algorithm.horizon or 1
    errors = []
    hits = 0
    widths = []
    shares = np.array_split(np.arange(users), horizon)
    for _ in range(runs):
        monitor = algorithm.start()
        for ids in shares:
            monitor.update(ids)
            estimate = monitor.tick()
        low, high = estimate.interval()
        errors.append(estimate.unbiased - users)
        hits += low <= users <= high
        widths.append((high - low) / 2)
    return LEVEL * float(np.sqrt(np.mean(np.square(errors)))), hits / runs, float(np.mean(widths))


def simulations(runs: int) -> None:
    """Print errors and coverage of the last answer."""
    for unit in ("event", "user"):
        algorithm = ContinualDensity(universe=USERS, epsilon=1.0, horizon=100, unit=unit, count=True)  # type: ignore[arg-type]
        nominal = LEVEL * algorithm.expected_estimate(100, USERS / 2).standard_error
        error, share, width = covered(algorithm, USERS // 2, runs)
        print(
            f"{unit:6} n = 100, last tick, {runs:,} runs: 95% error {error:,.0f}, covers {share:.1%}, half width "
            f"{width:,.0f}, {width / nominal:.2f} x nominal"
        )
    table = ContinualBitmap(epsilon=1.0, horizon=100, expected=USERS)
    error, share, width = covered(table, USERS, runs)
    print(
        f"bitmap n = 100, last tick, {runs:,} runs: 95% error {error:,.0f}, covers {share:.1%}, half width {width:,.0f}"
    )
    single = ContinualDensity(universe=USERS, epsilon=1.0, horizon=1, unit="user", expected=0.3 * USERS, count=True)
    today = OptBern(universe=USERS, epsilon=1.0, count=True)
    for density in (0.05, 0.9):
        users = round(density * USERS)
        error, share, _ = covered(single, users, 10 * runs)  # quick, and 1,000 runs leave a standard error of 2%
        formula, before = (LEVEL * each.standard_error(users) for each in (single, today))
        print(
            f"single answer planned at 30%, {density:.0%} come: 95% error {formula:,.0f} by the formula, {error:,.0f} "
            f"in {10 * runs:,} runs, covers {share:.1%}; without the start {before:,.0f}"
        )


def _seconds(steps: dict[str, Any], repeats: int) -> dict[str, float]:
    """Return the median time of every step, ten in a row in turns: none profits from what another left in a cache."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(repeats // 10):
        for name, step in steps.items():
            for _ in range(10):
                begin = time.thread_time()
                step()
                times[name].append(time.thread_time() - begin)
    return {name: float(np.median(each)) for name, each in times.items()}


def speed() -> None:
    """Print how fast updates and ticks are, as ratios to the counters with paid releases and to a count of events."""
    ids = np.random.default_rng(1).integers(0, USERS, 100_000)
    ours = ContinualDensity(universe=USERS, epsilon=1.0, horizon=1_000, count=True).start()
    bits = OptBern(universe=USERS, epsilon=1.0, releases=1_000, count=True).start()
    table = ContinualBitmap(epsilon=1.0, horizon=1_000, expected=USERS).start()
    bitmap = Bitmap(epsilon=1.0, releases=1_000, expected=USERS).start()
    counter = ContinualCount(epsilon=1.0, horizon=1_000).start()
    every = {"ours": ours, "OptBern": bits, "table": table, "Bitmap": bitmap}
    updates = _seconds({name: lambda each=each: each.update(ids) for name, each in every.items()}, 50)
    ticks = _seconds(
        {"ours": ours.tick, "ContinualCount": counter.tick, "table": table.tick, "Bitmap": bitmap.release}, 300
    )
    print(
        f"density: updates {updates['OptBern'] / updates['ours']:.2f} x OptBern, "
        f"ticks {ticks['ContinualCount'] / ticks['ours']:.2f} x ContinualCount"
    )
    print(
        f"bitmap: updates {updates['Bitmap'] / updates['table']:.2f} x Bitmap, "
        f"ticks {ticks['Bitmap'] / ticks['table']:.2f} x releases of Bitmap"
    )


if __name__ == "__main__":
    formulas()
    speed()
    simulations(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000)
