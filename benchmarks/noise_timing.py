"""Can the size of a release's noise be told from how long it took to draw?

10,000 draws of one number each, timed one by one, as a release draws them; the larger half by size against the smaller
half, by a rank test of the durations (Mann-Whitney) and of their whole law (Kolmogorov-Smirnov); 10 runs. With noise
that has nothing to do with time, the smallest of a law's 20 values of p is below the limit of 1e-3 in 2 of 100 cases.

The control is noise drawn by rejection, as the discrete Gaussian's still is: there the test must tell.

    python benchmarks/noise_timing.py [runs]
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable

import numpy as np
from scipy import stats
from verdicts import verdict

from panstream.randomness import DiscreteGaussian, DiscreteLaplace, Source

RUNS, DRAWS, LIMIT = 10, 10_000, 1e-3
LAWS = (1.0, 0.1, 0.01, 1e-4)


def laplace(kappa: float) -> Callable[[np.ndarray], None]:  # type: ignore[type-arg]
    law = DiscreteLaplace.at_most(kappa)

    def draw(value: np.ndarray) -> None:  # type: ignore[type-arg]
        with Source() as source:
            source.add_discrete_laplace(value, law)

    return draw


def gaussian(sigma: float) -> Callable[[np.ndarray], None]:  # type: ignore[type-arg]
    law = DiscreteGaussian.at_least(sigma)

    def draw(value: np.ndarray) -> None:  # type: ignore[type-arg]
        with Source() as source:
            source.add_discrete_gaussian(value, law)

    return draw


def tested(draw: Callable[[np.ndarray], None]) -> tuple[float, float]:  # type: ignore[type-arg]
    """Return p of both tests on one run."""
    sizes, durations = np.empty(DRAWS), np.empty(DRAWS)
    for at in range(DRAWS):
        value = np.zeros(1, np.int64)
        start = time.perf_counter_ns()
        draw(value)
        durations[at] = time.perf_counter_ns() - start
        sizes[at] = abs(int(value[0]))
    order = np.argsort(sizes + np.random.default_rng().random(DRAWS) / 2)  # ties are split by chance
    small, large = durations[order[: DRAWS // 2]], durations[order[DRAWS // 2 :]]
    return float(stats.mannwhitneyu(small, large).pvalue), float(stats.ks_2samp(small, large).pvalue)


def main(runs: int) -> int:
    told = False
    cases = [(f"Laplace noise, kappa = {kappa:g}", laplace(kappa)) for kappa in LAWS]
    control = gaussian(100.0)
    for _, draw in [*cases, ("", control)]:
        draw(np.zeros(1, np.int64))  # compiled now
    gc.disable()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name, _ in cases}
    controls: list[float] = []
    for _ in range(runs):
        for name, draw in cases:
            found[name].append(tested(draw))
        controls.append(tested(control)[0])
        gc.collect()
    for name, pairs in found.items():
        least = min(min(pair) for pair in pairs)
        told |= not verdict(f"{name}: smallest p of {runs} runs", f"{least:.2g}", f"> {LIMIT:g}", least > LIMIT)
    joint = float(stats.combine_pvalues(controls).pvalue)
    name = "control, Gaussian noise by rejection: p of all runs together"
    told |= not verdict(name, f"{joint:.2g}", f"< {LIMIT:g}", joint < LIMIT)
    return int(told)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS))
