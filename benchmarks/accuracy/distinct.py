"""Accuracy of the bitmap against the Fisher information.

``python -m benchmarks.accuracy.distinct`` prints everything; a number sets how many runs an accuracy figure rests on
(targets allow for the sampling error of as many runs). For speed see ``distinct_speed.py``.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream import Monitor
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.distinct.likelihood import Likelihood
from panstream.primitives.noise import SeededSource
from panstream.privacy.bitmap_loss import level_rates

RUNS = 1000
PLATEAUS = {0.5: 0.053, 1.0: 0.0274, 2.0: 0.0157, 4.0: 0.0112}
BRUTE_FORCE_BELOW = 10_000
failed = 0


def line(name: str, figure: str, target: str, passed: bool) -> None:
    global failed
    failed += not passed
    print(f"{name:<46}{figure:>39}{target:>24}  {'pass' if passed else 'FAIL'}", flush=True)


def occupied(rng: np.random.Generator, users: int, buckets: int, levels: int) -> NDArray[np.int64]:
    """Draw how many cells of every level ``users`` users come to; a level with over 64 users a cell is full."""
    counts = np.full(levels, buckets)
    for level, here in enumerate(rng.multinomial(users, level_rates(buckets, levels) * buckets)):
        if here < 16 * buckets:
            counts[level] = np.count_nonzero(np.bincount(rng.integers(0, buckets, here), minlength=buckets))
        elif here <= 64 * buckets:
            counts[level] = np.count_nonzero(rng.multinomial(here, np.full(buckets, 1 / buckets)))
    return counts


def by_cell_law(rng: np.random.Generator, algorithm: Bitmap, filled: NDArray[np.int64]) -> list[tuple[float, Any]]:
    """Return the estimate and its interval for every drawn table, by the shipped likelihood."""
    law = algorithm.law
    p1 = float(law.present)
    decoder = law.decoder
    moments = algorithm.moments()
    ones = rng.binomial(filled, p1) + rng.binomial(algorithm.buckets - filled, 1 - p1)
    for sign in (1, -1):
        ones += sign * rng.geometric(-math.expm1(-law.noise.kappa), ones.shape)
    found = []
    for row in algorithm.buckets * decoder.zero + ones * (decoder.one - decoder.zero):
        likelihood = Likelihood(moments, row)
        fit = likelihood.fit()
        found.append((fit.unbiased, likelihood.interval(fit, 0.95)))
    return found


def by_brute_force(algorithm: Bitmap, users: int, runs: int) -> list[tuple[float, Any]]:
    """Return the same through Monitor, hashing and coins, under a fresh hash key in every run."""
    rng = SeededSource(users)
    found = []
    for key in range(runs):
        keyed = Bitmap(epsilon=algorithm.epsilon, epsilon_state=algorithm.epsilon_state, key=key)
        monitor = Monitor[Any](keyed, rng=rng)
        monitor.update(np.arange(users))
        estimate = monitor.release()
        found.append((estimate.unbiased, estimate.interval(0.95)))
    return found


def accuracy(runs: int) -> None:
    rng = np.random.default_rng(1)
    print(f"{f'bitmap 4096 x 24, {runs} runs each':<46}{'figure':>39}{'target':>24}")
    covered = dict.fromkeys(PLATEAUS, 0)
    for users in (10**power for power in range(2, 9)):
        brute = users < BRUTE_FORCE_BELOW
        filled = None if brute else np.array([occupied(rng, users, 4096, 24) for _ in range(runs)])
        for state, plateau in PLATEAUS.items():
            algorithm = Bitmap(epsilon=state + 1, epsilon_state=state)
            found = by_brute_force(algorithm, users, runs) if filled is None else by_cell_law(rng, algorithm, filled)
            values = np.array([value for value, _ in found])
            error = float(np.sqrt(np.square(values - users).mean()))
            expected = algorithm.relative_error(users)
            inside = sum(low <= users <= high for _, (low, high) in found)
            covered[state] += inside
            ratio = error / users / expected
            rate = inside / runs
            near = users < 10**6 or abs(expected / plateau - 1) < 0.02
            close = abs(ratio - 1) < 0.1 + 2 / math.sqrt(2 * runs)
            covers = abs(rate - 0.95) < 0.01 + 3 * math.sqrt(0.95 * 0.05 / runs)
            line(
                f"epsilon_state {state:g}, n = 1e{round(math.log10(users))}{', brute force' if brute else ''}",
                f"rms {error / users:.4f} = {ratio:.3f} Fisher, {rate:.1%} inside",
                f"{f'{plateau:g}, ' if users >= 10**6 else ''}±10%, 95% ± 1%",
                close and near and covers,
            )
    for state, inside in covered.items():
        rate = inside / (7 * runs)
        line(f"epsilon_state {state:g}: coverage over all n", f"{rate:.2%}", "95% ± 1%", abs(rate - 0.95) < 0.01)


def merges(runs: int) -> None:
    for sites in (2, 4, 8):
        rng = SeededSource(sites)
        values = []
        errors = []
        truth = 10_000 * (sites + 1)
        for key in range(runs):
            monitors = [Monitor[Any](Bitmap(epsilon=3.0, key=key), rng=rng) for _ in range(sites)]
            for i, monitor in enumerate(monitors):
                monitor.update(np.arange(10_000 * i, 10_000 * (i + 2)))
            while len(monitors) > 1:
                monitors[:2] = [monitors[0].merge(monitors[1])]
            estimate = monitors[0].release()
            values.append(estimate.unbiased)
            errors.append(estimate.standard_error)
        z = (np.mean(values) - truth) / (np.mean(errors) / math.sqrt(runs))
        claim = monitors[0].algorithm.claim().epsilon
        figure = f"bias {z:+.2f} se, rms {np.std(values) / truth:.3f}"
        line(f"{sites} noisy merges, {runs} runs (claim {claim:.2f})", figure, "under 4 se", abs(z) < 4)


def main(arguments: list[str]) -> int:
    runs = next((int(argument) for argument in arguments if argument.isdigit()), RUNS)
    accuracy(runs)
    merges(max(runs // 5, 20))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
