"""Speed of the exact samplers on one core: medians of interleaved runs, in processor time since machines are shared."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from benchmarks.verdicts import verdict
from panstream.algorithms.density import OptBern
from panstream.primitives.noise import Coin, DiscreteGaussian, DiscreteLaplace, NoiseSource

RUNS = 15
COINS = 1 << 22
DRAWS = 1_000_000
FEW = 1000
P = Coin.at_most(0.7310585786)


def toss() -> None:
    with NoiseSource() as rng:
        out = rng.scratch.array(1 << 16)
        for _ in range(COINS >> 16):
            rng.bernoulli(P, 1 << 16, out)


def laplace(kappa: float, draws: int = DRAWS) -> Callable[[], None]:
    law = DiscreteLaplace.at_most(kappa)
    values = np.zeros(draws, np.int64)

    def draw() -> None:
        with NoiseSource() as rng:
            rng.add_discrete_laplace(values, law)

    return draw


def gaussian(sigma: float, draws: int = DRAWS) -> Callable[[], None]:
    law = DiscreteGaussian.at_least(sigma)
    values = np.zeros(draws, np.int64)

    def draw() -> None:
        with NoiseSource() as rng:
            rng.add_discrete_gaussian(values, law)

    return draw


def uniform() -> None:
    with NoiseSource() as rng:
        rng.uniform_below(1000, DRAWS)


def small_step() -> None:
    with NoiseSource() as rng:
        rng.bernoulli(P, 10)


def monitor_step() -> Callable[[], None]:
    monitor = OptBern(universe=100_000, epsilon=1.0).start()
    ids = list(range(10))
    return lambda: monitor.update(ids)


def seconds(run: Callable[[], object], repeat: int) -> float:
    start = time.process_time()
    for _ in range(repeat):
        run()
    return (time.process_time() - start) / repeat


def main() -> int:
    rates = [  # name, run, items in one run, repeats, target in millions a second
        ("coins at p = .7310585786", toss, COINS, 1, 150.0),
        ("discrete Laplace, kappa = 1", laplace(1.0), DRAWS, 1, 15.0),
        ("discrete Laplace, kappa = .05", laplace(0.05), DRAWS, 1, 15.0),
        ("discrete Laplace, kappa = .001", laplace(0.001), DRAWS, 1, 15.0),
        ("discrete Laplace, kappa = .05, 1,000 at a time", laplace(0.05, FEW), FEW, 1, None),
        ("discrete Gaussian, sigma = 2", gaussian(2.0), DRAWS, 1, 15.0),
        ("discrete Gaussian, sigma = 100", gaussian(100.0), DRAWS, 1, 15.0),
        ("discrete Gaussian, sigma = 5,000", gaussian(5000.0), DRAWS, 1, 15.0),
        ("discrete Gaussian, sigma = 100, 1,000 at a time", gaussian(100.0, FEW), FEW, 1, None),
        ("uniform below 1000", uniform, DRAWS, 1, None),
    ]
    steps = [  # name, run, target in microseconds
        ("a step of 10 coins", small_step, 40.0),
        ("Monitor.update with a list of 10 ids", monitor_step(), None),
    ]
    times: dict[str, list[float]] = {name: [] for name, *_ in [*rates, *steps]}
    for round_ in range(RUNS + 1):
        for name, run, *_ in rates:
            times[name].append(seconds(run, 1))
        for name, run, _ in steps:
            times[name].append(seconds(run, 500))
        if round_ == 0:
            times = {name: [] for name in times}  # compiled now
    failed = False
    for name, _, items, _, target in rates:
        figure = items / statistics.median(times[name]) / 1e6
        failed |= target is not None and figure < target
        if target is None:
            print(f"{name:<64}  {figure:>14.1f} M/s")
        else:
            verdict(name, f"{figure:.1f} M/s", f">= {target:g} M/s", figure >= target)
    for name, _, limit in steps:
        figure = statistics.median(times[name]) * 1e6
        failed |= limit is not None and figure > limit
        if limit is None:
            print(f"{name:<64}  {figure:>15.1f} µs")
        else:
            verdict(name, f"{figure:.1f} µs", f"<= {limit:g} µs", figure <= limit)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
