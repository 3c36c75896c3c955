"""Counts of users at every tick: errors by formula and in runs of the shipped code, coverage, and speed.

python benchmarks/continual_distinct.py [runs]     (1,000 runs take a few minutes)
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

import numpy as np

from panstream import ContinualCount
from panstream.continual_users import ContinualDensity
from panstream.density import OptBern

USERS, LEVEL = 20_000, 1.96
BARS = {("event", 100): 390, ("event", 1_000): 480, ("event", 100_000): 700, ("user", 1_000): 2_600}


def formulas() -> None:
    """Print the 95% error, on average over the ticks, where half of the users come."""
    for (unit, horizon), bar in BARS.items():
        algorithm = ContinualDensity(universe=USERS, epsilon=1.0, horizon=horizon, unit=unit, count=True)
        error = LEVEL * math.sqrt(algorithm.way.variance)
        print(f"{unit:6} n = {horizon:>7,}: 95% error {error:,.0f} (at most {bar:,}), {algorithm.way.method}")


def covered(algorithm: ContinualDensity, users: int, runs: int) -> tuple[float, float, float]:
    """Return the 95% error of the last answer, how often its interval held the truth, and its half width."""
    horizon, errors, hits, widths = algorithm.horizon or 1, [], 0, []
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
        nominal = LEVEL * algorithm.foreseen(100, USERS / 2).standard_error
        error, share, width = covered(algorithm, USERS // 2, runs)
        print(
            f"{unit:6} n = 100, last tick, {runs:,} runs: 95% error {error:,.0f}, covers {share:.1%}, half width "
            f"{width:,.0f}, {width / nominal:.2f} x nominal"
        )
    single = ContinualDensity(universe=USERS, epsilon=1.0, horizon=1, unit="user", expected=0.3 * USERS, count=True)
    today = OptBern(universe=USERS, epsilon=1.0, count=True)
    for density in (0.05, 0.9):
        users = round(density * USERS)
        error, share, _ = covered(single, users, runs)
        formula, before = (LEVEL * each.standard_error(users) for each in (single, today))
        print(
            f"single answer planned at 30%, {density:.0%} come: 95% error {formula:,.0f} by the formula, {error:,.0f} "
            f"in {runs:,} runs, covers {share:.1%}; without the start {before:,.0f}"
        )


def _seconds(monitor: Any, step: Any, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        step(monitor)
        times.append(time.perf_counter() - begin)
    return float(np.median(times))


def speed() -> None:
    """Print how fast updates and ticks are, as a ratio to one bit per user with paid releases."""
    ids = np.random.default_rng(1).integers(0, USERS, 100_000)
    ours = ContinualDensity(universe=USERS, epsilon=1.0, horizon=1_000, count=True).start()
    paid = OptBern(universe=USERS, epsilon=1.0, releases=1_000, count=True).start()
    counter = ContinualCount(epsilon=1.0, horizon=1_000).start()
    updates = [_seconds(monitor, lambda each: each.update(ids), 50) for monitor in (ours, paid)]
    ticks = [_seconds(monitor, lambda each: each.tick(), 300) for monitor in (ours, counter)]
    print(f"updates {updates[1] / updates[0]:.2f} x OptBern, ticks {ticks[1] / ticks[0]:.2f} x ContinualCount")


if __name__ == "__main__":
    formulas()
    speed()
    simulations(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000)
