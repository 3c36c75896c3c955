"""Mean squared errors of counts at every tick: trees without and with a delta, and correlated noise.

    python -m benchmarks.accuracy.gauss_markov [--runs 200]

Stated ones for horizons from 2**10 to 2**24, those measured on 2**10 slots, the mean without a horizon beside that
with one, and CPU time. `--table` computes the numbers of panstream.privacy.gauss_markov_loss again.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from panstream.algorithms.continual.gauss_markov import GaussMarkovCount
from panstream.algorithms.continual.sums import ContinualCount
from panstream.core.monitor import Monitor
from panstream.primitives.kernels.algorithms.gauss_markov import constant_information
from panstream.primitives.noise import NoiseSource
from panstream.privacy.gauss_markov_loss import LEAST_ORDER, MOST_ORDER, fresh_variance, level_exponents

EPSILON = 1.0
DELTA = 1e-6
ORDERS = (10, 12, 14, 16, 20, 24)


def of_tree(ticks: int, delta: float, one_step_ticks: bool) -> float:
    """Return the mean squared error of a tree over so many ticks; of a pure one as `KaryTree` states it."""
    tree = ContinualCount(epsilon=EPSILON, delta=delta, horizon=ticks, one_step_ticks=one_step_ticks)
    shape = tree.shape(0)
    draw = tree.engine.law().variance if delta else 2.0 * (shape.rows / EPSILON) ** 2
    return shape.noise(ticks).mean * draw


def endless_mean(ticks: int) -> float:
    """Return the mean squared error without a horizon."""
    count = GaussMarkovCount(epsilon=EPSILON, delta=DELTA)
    total = 0.0
    first = 0
    for epoch in range(16):
        last = min(ticks, first + (1 << count.order(epoch)))
        total += max(0, last - first) * count.variance_at(last)
        first = last
    return total / ticks


def measured(ticks: int, runs: int, one_step_ticks: bool) -> float:
    """Return the mean squared error of runs with the noise of the operating system."""
    squares = []
    for _ in range(runs):
        with NoiseSource() as rng:
            count = GaussMarkovCount(epsilon=EPSILON, delta=DELTA, horizon=ticks, one_step_ticks=one_step_ticks)
            answers = Monitor(count, rng=rng).tick_many(np.ones(ticks, np.int64)).unclipped
            squares.append(np.mean((answers - np.arange(1, ticks + 1)) ** 2))
    return float(np.mean(squares))


def table() -> None:
    """Print the information about a constant, as the privacy module holds it."""
    for one_step_ticks in (False, True):
        fresh = fresh_variance(one_step_ticks=one_step_ticks)
        for order in range(LEAST_ORDER, MOST_ORDER + 1):
            exponents = level_exponents(order, one_step_ticks=one_step_ticks)
            decays = np.array([0.0, *(1.0 - 2.0**-k for k in exponents)])
            variances = np.array([fresh, *[1.0] * len(exponents)])
            ticks = (1 << order) - (not one_step_ticks)
            print(order, constant_information(decays, variances, ticks) + (0.0 if one_step_ticks else 1.0 / fresh))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="runs for the measured error")
    parser.add_argument("--table", action="store_true", help="compute the table of the privacy module")
    options = parser.parse_args()
    if options.table:
        table()
        return
    print(f"mean squared error, epsilon {EPSILON:g}, delta {DELTA:g} (without one: tree, pure)")
    print(f"{'ticks':>12}{'several steps':>32}{'one step':>32}{'no horizon':>12}")
    print(f"{'':>12}" + f"{'tree, pure':>12}{'tree':>8}{'correlated':>12}" * 2)
    for order in ORDERS:
        line = f"{1 << order:>12,}"
        for one_step_ticks in (False, True):
            pure, gaussian = (of_tree(1 << order, delta, one_step_ticks) for delta in (0.0, DELTA))
            count = GaussMarkovCount(epsilon=EPSILON, delta=DELTA, horizon=1 << order, one_step_ticks=one_step_ticks)
            line += f"{pure:>12,.0f}{gaussian:>8,.0f}{count.variance_at(1 << order):>12,.0f}"
        print(f"{line}{endless_mean(1 << order):>12,.0f}", flush=True)
    for one_step_ticks in (False, True):
        begin = time.process_time()
        error = measured(1 << 10, options.runs, one_step_ticks)
        spent = (time.process_time() - begin) / options.runs / (1 << 10)
        print(
            f"measured over {1 << 10:,} ticks, one step {one_step_ticks}: {error:,.0f} in {options.runs} runs, "
            f"{1e6 * spent:.0f} µs of CPU a tick"
        )


if __name__ == "__main__":
    main()
