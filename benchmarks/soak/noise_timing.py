"""Can the size of a release's noise be told from how long it took to draw?

10,000 draws of one number each, timed one by one, as a release draws them; the larger half by size against the smaller
half, by a rank test of the durations (Mann-Whitney) and of their whole law (Kolmogorov-Smirnov); 10 runs. Then the same
with 2^14 numbers a draw, by the sum of their sizes, as large states are drawn. With noise that has nothing to do with
time, the smallest of a law's 20 values of p is below the limit of 1e-3 in 2 of 100 cases, and that of any of the ten
laws in 18: then run it again.

The control is noise that is counted up coin by coin, as many samplers do: there the test must tell.

    python -m benchmarks.soak.noise_timing [runs]
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import stats

from benchmarks.verdicts import verdict
from panstream.primitives.kernels.noise.bernoulli import bernoulli_exp_any
from panstream.primitives.noise import DiscreteGaussian, DiscreteLaplace, NoiseSource

RUNS = 10
DRAWS = 10_000
MANY = 1 << 14
LIMIT = 1e-3
# Sigma from 128 on is drawn in blocks
KAPPAS = (1.0, 0.1, 0.01, 1e-4)
SIGMAS = (2.0, 100.0, 1e3, 1e5)
COINS = 1_000
Draw = Callable[[NDArray[np.int64]], None]


def laplace(kappa: float) -> Draw:
    law = DiscreteLaplace.at_most(kappa)

    def draw(values: NDArray[np.int64]) -> None:
        with NoiseSource() as rng:
            rng.add_discrete_laplace(values, law)

    return draw


def gaussian(sigma: float) -> Draw:
    law = DiscreteGaussian.at_least(sigma)

    def draw(values: NDArray[np.int64]) -> None:
        with NoiseSource() as rng:
            rng.add_discrete_gaussian(values, law)

    return draw


@njit
def count_up(rate: np.uint64, words: NDArray[np.uint64]) -> int:
    size = 0
    at = 0
    while True:
        again, at = bernoulli_exp_any(rate, np.uint64(52), words, at)
        if again != 1:
            return size
        size += 1


def counted(values: NDArray[np.int64]) -> None:
    """Add geometric noise of mean 10, the number of coins before the first that shows 0."""
    with NoiseSource() as rng:
        words: NDArray[np.uint64] = rng.scratch.array(COINS, np.uint64)
        rng.fill_words(words)
        values[0] += count_up(np.uint64((1 << 52) // 10), words)


def tested(draw: Draw, numbers: int) -> tuple[float, float]:
    """Return p of both tests on one run."""
    sizes = np.empty(DRAWS)
    durations = np.empty(DRAWS)
    values = np.zeros(numbers, np.int64)
    for at in range(DRAWS):
        values[:] = 0
        start = time.perf_counter_ns()
        draw(values)
        durations[at] = time.perf_counter_ns() - start
        sizes[at] = np.abs(values).sum()
    order = np.argsort(sizes + np.random.default_rng().random(DRAWS) / 2)  # ties are split by chance
    small = durations[order[: DRAWS // 2]]
    large = durations[order[DRAWS // 2 :]]
    return float(stats.mannwhitneyu(small, large).pvalue), float(stats.ks_2samp(small, large).pvalue)


def main(runs: int) -> int:
    told = False
    cases = [(f"Laplace noise, kappa = {kappa:g}", laplace(kappa), 1) for kappa in KAPPAS]
    cases += [(f"Gaussian noise, sigma = {sigma:g}", gaussian(sigma), 1) for sigma in SIGMAS]
    cases += [("2^14 of Laplace noise, kappa = 0.1", laplace(0.1), MANY)]
    cases += [("2^14 of Gaussian noise, sigma = 100", gaussian(100.0), MANY)]
    for _, draw, numbers in [*cases, ("", counted, 1)]:
        draw(np.zeros(numbers, np.int64))  # compiled now
    gc.disable()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name, *_ in cases}
    controls: list[float] = []
    for _ in range(runs):
        for name, draw, numbers in cases:
            found[name].append(tested(draw, numbers))
        controls.append(tested(counted, 1)[0])
        gc.collect()
    for name, pairs in found.items():
        least = min(min(pair) for pair in pairs)
        told |= not verdict(f"{name}: smallest p of {runs} runs", f"{least:.2g}", f"> {LIMIT:g}", least > LIMIT)
    joint = float(stats.combine_pvalues(controls).pvalue)
    name = "control, noise counted up: p of all runs together"
    told |= not verdict(name, f"{joint:.2g}", f"< {LIMIT:g}", joint < LIMIT)
    return int(told)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS))
