"""Errors of daily counts at a person's budget: Laplace noise against Gaussian, for any 30 days and one copy.

A query counts rows once a day, at most K of one person, or rows of every group, where a person can be in several. Its
epsilon is the largest at which `PersonTotal` stays within the budget. Laplace noise is priced twice: with pure losses,
which add up, and at the same delta as Gaussian noise. Errors are those that 95% of seeded runs do not exceed, beside
the half-width of the 95% interval.

    python -m benchmarks.accuracy.person_counts
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from benchmarks.verdicts import verdict
from panstream.algorithms.continual.sums import ContinualCount
from panstream.core.monitor import Monitor
from panstream.primitives.noise import SeededSource
from panstream.privacy.numeric_search import bisect
from panstream.privacy.person_loss import PERIOD, PersonShare, PersonTotal

DAY = 86_400.0
DELTA = 1e-6
QUERY_DELTA = 1e-9  # of one window; the person's delta is not made up of it
BUDGETS = (1.0, 2.0, 4.0)
ROWS = (1, 8)
GROUPS = (1, 4, 20)  # that one person can be in
TRUTH = 10_000
RUNS = 1_000


@dataclass(frozen=True)
class Kind:
    """Noise, and the delta of the person's total."""

    name: str
    query_delta: float
    delta: float

    def total(self, epsilon: float, rows: int, groups: int) -> float:
        """Return what one person loses in any 30 days."""
        loss = self.count(epsilon, rows).window_loss().times(groups)
        share = PersonShare.of_windows("count", loss, window=DAY, period=PERIOD)
        return PersonTotal(period=PERIOD, shares=(share,), delta=self.delta).epsilon

    def count(self, epsilon: float, rows: int) -> ContinualCount:
        """Return the query of one day."""
        return ContinualCount(epsilon=epsilon, delta=self.query_delta, horizon=1, contributions=rows)

    def priced(self, budget: float, rows: int, groups: int) -> ContinualCount:
        """Return the query with the largest epsilon that the budget allows."""
        low, _ = bisect(lambda epsilon: self.total(epsilon, rows, groups) <= budget, budget / 1e4, 2.0 * budget)
        return self.count(low, rows)


KINDS = (Kind("Laplace, delta 0", 0.0, 0.0), Kind("Laplace", 0.0, DELTA), Kind("Gaussian", QUERY_DELTA, DELTA))


def measured(count: ContinualCount, seed: int) -> tuple[float, float, float]:
    """Return the error that 95% of runs do not exceed, the interval's half-width, and how often it covers."""
    errors = np.empty(RUNS)
    half = 0.0
    with SeededSource(seed) as rng:
        for run in range(RUNS):
            monitor = Monitor(count, rng=rng)
            monitor.update(TRUTH)
            answer = monitor.tick()
            errors[run] = abs(answer.value - TRUTH)
            half = answer.interval()[1] - answer.value
    return float(np.quantile(errors, 0.95)), half, float((errors <= half).mean())


def main() -> int:
    """Print the table, and whether intervals cover."""
    least = 1.0
    print(f"95% error of a daily count, any 30 days of one person, delta {DELTA:g}; measured (planned)")
    print("| epsilon | K | groups | " + " | ".join(kind.name for kind in KINDS) + " |")
    print("| --- | --- | --- |" + " --- |" * len(KINDS))
    for budget in BUDGETS:
        for rows in ROWS:
            for groups in GROUPS:
                cells = []
                for kind in KINDS:
                    error, half, covered = measured(kind.priced(budget, rows, groups), seed=rows + groups)
                    cells.append(f"±{error:,.0f} (±{half:,.0f})")
                    least = min(least, covered)
                print(f"| {budget:g} | {rows} | {groups} | " + " | ".join(cells) + " |", flush=True)
    target = 0.95 - 4.0 * (0.95 * 0.05 / RUNS) ** 0.5
    met = verdict("coverage of 95% intervals, least of all cases", f"{least:.4f}", f">= {target:.4f}", least >= target)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
