"""Why many answers about a sketch cost more than one: the noise of a counter, by mechanism, beside a lower bound.

    python -m benchmarks.accuracy.continual_moments [--releases 5 10 20]

Epsilon 1 and, for Gaussian noise, delta 1e-6. The relative error of a second moment is 2·sqrt(2)·s/L2, s² the variance
of a counter's noise, in the mean over all answers and in the noisiest one. One row changes one counter by one, so the
counter's L1 and L2 sensitivity are the same. `bound` is for the mean, and for every mechanism that publishes linear
sums of the rows: the square of the mean singular value of the prefix sums, times the variance of two Laplace draws, or
over twice the zCDP. `best found` optimises the sums for Laplace noise numerically; another start may give less. `two
levels` is the least mean of trees that split epsilon between their levels in any way.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from panstream.algorithms.continual.gauss_markov import GaussMarkovCount
from panstream.algorithms.continual.sums import ContinualCount
from panstream.algorithms.continual.tree_shape import TreeShape
from panstream.privacy.composition import zcdp_rho

DELTA = 1e-6
DRAW = 4.0  # two Laplace draws of rate 1
Floats = NDArray[np.float64]


def prefix_sums(releases: int) -> Floats:
    return np.tril(np.ones((releases, releases)))


def factor_bound(releases: int) -> float:
    """Return the square of the mean singular value of the prefix sums: no factorisation has less noise."""
    j = np.arange(1, releases + 1)
    return float(np.mean(0.5 / np.sin((2 * j - 1) * math.pi / (4 * releases + 2)))) ** 2


def two_levels(releases: int) -> float:
    """Return the least mean variance of trees of two levels with any number of children and any split of epsilon."""
    answers = np.arange(1, releases + 1)
    best = DRAW * (releases + 1) / 2
    for children in range(2, releases + 1):
        for share in np.arange(0.05, 2.0, 0.05):  # rate of the upper level over that of the leaves
            node = 1.0 / (share**2 / DRAW + 1.0 / (children * DRAW))
            mean = np.mean((answers // children) * node + (answers % children) * DRAW)
            best = min(best, float((1.0 + share) ** 2 * mean))
    return best


def best_found(releases: int) -> tuple[float, float]:
    """Return mean and largest variance of the best sums that descent finds, from leaves and one coarser level."""
    total = prefix_sums(releases)
    rng = np.random.default_rng(0)
    results = []
    for size in range(3, max(4, releases // 2 + 1)):
        coarse = np.array([np.arange(releases) // size == k for k in range(releases // size)], float)
        sums = np.vstack([np.eye(releases), 0.5 * coarse])
        sums += 0.01 * rng.standard_normal(sums.shape)
        for power in (30.0, 200.0):  # of the norm that replaces the largest column
            sums = _descend(sums, total, power)
        length = np.abs(sums).sum(axis=0).max()
        variances = length**2 * ((total @ np.linalg.pinv(sums)) ** 2).sum(axis=1)
        results.append((float(variances.mean()), float(variances.max())))
    return min(results)


def _descend(sums: Floats, total: Floats, power: float) -> Floats:
    rows, releases = sums.shape

    def error(flat: Floats) -> tuple[float, Floats]:
        now = flat.reshape(rows, releases)
        sizes = np.sqrt(now**2 + 1e-8)
        columns = sizes.sum(axis=0)
        length = (columns**power).sum() ** (1.0 / power)
        inverse = np.linalg.inv(now.T @ now)
        spread = np.trace(total @ inverse @ total.T)
        slope = 2.0 * length ** (1.0 - power) * columns ** (power - 1.0) * now / sizes / length
        slope += -2.0 * now @ inverse @ total.T @ total @ inverse / spread
        return math.log(length**2 * spread), slope.ravel()

    found = minimize(error, sums.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 300})
    return np.asarray(found.x).reshape(rows, releases)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", type=int, nargs="*", default=[1, 5, 10, 20, 100, 365, 10_000])
    twice = 2.0 * zcdp_rho(1.0, DELTA)
    print(
        f"{'releases':>9}{'one by one':>14}{'tree, pure':>14}{'best found':>14}{'two levels':>12}{'bound':>8}"
        f"{'tree, delta':>14}{'correlated':>12}{'bound':>8}"
    )
    for releases in parser.parse_args().releases:
        shape = TreeShape.best(releases, False)
        noise = shape.noise(releases)
        pure = 2.0 * shape.levels**2
        tree = ContinualCount(epsilon=1.0, delta=DELTA, horizon=releases)
        gaussian = tree.shape(0).noise(releases).mean * tree.engine.law().variance
        correlated = GaussMarkovCount(epsilon=1.0, delta=DELTA, horizon=releases).variance_at(releases)
        mean, worst = best_found(releases) if 5 <= releases <= 20 else (math.nan, math.nan)
        split = two_levels(releases) if releases <= 365 else math.nan
        bound = factor_bound(releases)
        print(
            f"{releases:>9,}{DRAW * (releases + 1) / 2:>7,.0f}{DRAW * releases:>7,.0f}"
            f"{pure * noise.mean:>7,.0f}{pure * noise.worst:>7,.0f}{DRAW * mean:>7,.0f}{DRAW * worst:>7,.0f}"
            f"{split:>12,.0f}{DRAW * bound:>8,.1f}{gaussian:>14,.0f}{correlated:>12,.0f}{bound / twice:>8,.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
