"""Could a count at every tick do better with a delta? One stationary noise, and what it would need.

    python -m benchmarks.accuracy.gauss_markov [--horizons 10 14 20]

The noise of an answer is eta, drawn at the start and kept with the count, and X, a sum of independent autoregressive
processes x <- theta·x + draw. Given what one look shows, an event shifts X on one side of itself by 1, at a cost of
c = 1'K⁻¹1 in zCDP (twice rho), K the covariance of X over the horizon from a known start: a Kalman filter adds it up.
The smallest mean squared error is (1 + sqrt(c·Var X))²/(2 rho). The last columns show why it is not shipped: how fine
the integers would have to be, and how wide the draws on them. docs/explanation/continual.md tells the rest.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.optimize import minimize

from panstream.algorithms.continual.tree_shape import TreeShape
from panstream.privacy.composition import zcdp_rho

EPSILON = 1.0
DELTA = 1e-6
PROCESSES = {10: 5, 14: 7, 20: 9}
_SLACK = 1e-3  # of the root of 2 rho, for roundings
Floats = NDArray[np.float64]


@njit(cache=True)
def shift_cost(theta: Floats, spread: Floats, ticks: int) -> float:
    """Return 1'K⁻¹1 for a sum of autoregressive processes with these stationary variances that starts at 0.

    It is the information that exact values of the sum hold about a constant added to all of them.
    """
    size = theta.size
    covariance = np.zeros((size, size))
    gain = np.zeros(size)
    total = 0.0
    for _ in range(ticks):
        gain *= theta
        covariance *= np.outer(theta, theta)
        for i in range(size):
            covariance[i, i] += spread[i] * (1.0 - theta[i] ** 2)
        across = covariance.sum(axis=1)
        width = across.sum()
        left = 1.0 - gain.sum()
        total += left * left / width
        gain += across / width * left
        covariance -= np.outer(across, across) / width
    return total


def processes(shape: Floats, size: int) -> tuple[Floats, Floats]:
    """Return the thetas and variances of white noise and slower processes, spaced evenly on a scale of logarithms."""
    ratio, first, slope, start, end = shape
    theta = np.concatenate([np.zeros(1), np.exp(-np.exp(-first - ratio * np.arange(size - 1)))])
    weights = slope * np.arange(size)
    weights[0] += start
    weights[-1] += end
    return theta, np.exp(weights - weights.mean())


def best(power: int) -> tuple[Floats, Floats, float]:
    """Return the processes that were found best for 2**power ticks, with c·Var X."""
    size = PROCESSES[power]
    ticks = 1 << power
    tuned = 1 << min(power, 14)  # the last ones are tuned on a shorter scale, and stretched

    def error(shape: Floats) -> float:
        theta, spread = processes(shape, size)
        return float(shift_cost(theta, spread, tuned) * spread.sum())

    begin = np.array([math.log(2.0 * tuned) / (size - 1), 0.0, 0.15, -0.1, 0.0])
    shape = minimize(error, begin, method="Nelder-Mead", options={"maxiter": 150, "fatol": 1e-3}).x
    shape[0] += math.log(ticks / tuned) / (size - 1)
    theta, spread = processes(shape, size)
    return theta, spread, float(shift_cost(theta, spread, ticks) * spread.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--horizons", type=int, nargs="*", default=sorted(PROCESSES), help="powers of two")
    twice = 2.0 * zcdp_rho(EPSILON, DELTA)
    print(f"epsilon {EPSILON:g}, delta {DELTA:g}: 2 rho = {twice:.5f}")
    print(f"{'ticks':>8}{'numbers':>9}{'c Var X':>9}{'MSE':>8}{'shipped':>9}{'unit':>9}{'widest draw':>13}")
    for power in parser.parse_args().horizons:
        theta, spread, product = best(power)
        error = (1.0 + math.sqrt(product)) ** 2 / twice
        scale = math.sqrt(product) * (1.0 + math.sqrt(product)) / twice / spread.sum()
        innovations = np.sqrt(scale * spread * (1.0 - theta**2))
        # Every tick rounds the centre of a draw, and the shift, by up to a unit: T·sum (2·unit/innovation)² in all.
        unit = _SLACK * math.sqrt(twice) / math.sqrt(4.0 * 2.0**power * float((innovations**-2.0).sum()))
        shape = TreeShape.best(1 << power, one_step_ticks=False)
        shipped = shape.noise(1 << power).mean * 2.0 * (shape.rows / EPSILON) ** 2  # as KaryTree states it
        widest = math.log2(float(innovations.max()) / unit)
        print(
            f"{1 << power:>8,}{theta.size + 1:>9}{product:>9.1f}{error:>8,.0f}{shipped:>9,.0f}"
            f"{f'2^{math.log2(unit):.0f}':>9}{f'2^{widest:.0f}':>13}",
            flush=True,
        )


if __name__ == "__main__":
    main()
