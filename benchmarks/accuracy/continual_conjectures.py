"""The two conjectures of Budaeva et al. 2013 on the usefulness of average and variance, checked.

Each figure is the error that is exceeded with probability beta, divided by what the conjecture allows with constant 1.
If a conjecture were true, some constant would bound every figure in its table. Averages are exact (one integral),
variances simulated with 200,000 runs.
"""

import math

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from panstream.algorithms.planning.continual import conjectured_bound

Floats = NDArray[np.float64]
HORIZON = 1024
RUNS = 200_000
AVERAGES = {
    "1 value of 1": (1, 1024, 1.0),
    "64 values, mean 1": (64, 1024, 1.0),
    "512 values, mean 1": (512, 1024, 1.0),
    "1,000 values, mean 1": (1000, 1023, 1.0),
    "512 values, mean 10,000": (512, 1024, 1e4),
}
VARIANCES = {
    "1 value of 1": (1024, np.ones(1)),
    "64 values of 0 and 1": (1024, np.arange(64) % 2 * 1.0),
    "512 values of 0 and 1": (1024, np.arange(512) % 2 * 1.0),
    "1,000 values of 0 and 1": (1023, np.arange(1000) % 2 * 1.0),
    "1,000 values from 0 to 100": (1023, np.arange(1000) % 101 * 1.0),
    "1,000 values from 0 to 10,000": (1023, np.arange(1000) * 10.0),
}


def average_error_tail(error: float, *, count: int, mean: float, draws: int, scale: float, bound: float = 1.0) -> float:
    """Return P(|noisy average - mean| > ``error``) for ``count`` values.

    With S the sum, C the count, X and Y their noises, |(S+X)/(C+Y) - S/C| > error if and only if
    |X - Y·S/C| > error·|C + Y|. For Laplace noise both laws are known in closed form and one integral remains.

    The count holds ``draws`` Laplace draws of ``scale``, the sum as many of scale·bound.
    """
    coefficients = tail_coefficients(draws)
    y = grid(count / scale, 60.0 + 12.0 * math.sqrt(draws))
    weight = density(y, coefficients)
    shift = mean * y / bound
    reach = error * np.abs(count / scale + y) / bound
    outside = tail_beyond(shift + reach, coefficients) + tail_beyond(reach - shift, coefficients)
    height = weight * outside
    return float(((height[1:] + height[:-1]) * np.diff(y)).sum() / 2.0)


def average_error_quantile(
    beta: float, *, count: int, mean: float, draws: int, scale: float, bound: float = 1.0
) -> float:
    """Return the error that is exceeded with probability ``beta``."""

    def tail(error: float) -> float:
        return average_error_tail(error, count=count, mean=mean, draws=draws, scale=scale, bound=bound)

    low = 1e-9
    high = 1.0
    while tail(high) > beta:
        high *= 2.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if tail(middle) > beta else (low, middle)
    return high


def grid(kink: float, reach: float) -> Floats:
    """Return points from -reach to reach, dense around 0 and around -kink, where the noisy count vanishes."""
    fine = np.concatenate([[0.0], np.geomspace(1e-12, reach, 4000)])
    points = np.concatenate([-fine, fine, -kink - fine, -kink + fine, np.linspace(-reach, reach, 4001)])
    return np.unique(points[np.abs(points) <= reach])


def tail_coefficients(draws: int) -> Floats:
    """Return a with P(sum of Laplace(1) draws > x) = exp(-x)·sum a_j·x**j for x >= 0."""
    term = 2.0**-draws
    partial = 0.0
    sums = []
    for r in range(draws):
        partial += term
        sums.append(partial)
        term *= (draws + r) / (2.0 * (r + 1))
    return np.array([weight / math.factorial(power) for power, weight in enumerate(reversed(sums))])


def tail_beyond(x: Floats, coefficients: Floats) -> Floats:
    far = np.minimum(np.abs(x), 700.0)
    upper = np.exp(-far) * np.polynomial.polynomial.polyval(far, coefficients)
    return np.where(x >= 0, upper, 1.0 - upper)


def density(x: Floats, coefficients: Floats) -> Floats:
    slope = np.append(coefficients[1:] * np.arange(1, coefficients.size), 0.0)
    far = np.minimum(np.abs(x), 700.0)
    return np.asarray(np.exp(-far) * np.polynomial.polynomial.polyval(far, coefficients - slope))


def average(count: int, time: int, mean: float, beta: float) -> float:
    scale = 2 * math.log2(HORIZON)  # Algorithm 3 at epsilon = 1
    needed = average_error_quantile(beta, count=count, mean=mean, draws=time.bit_count(), scale=scale)
    return needed / conjectured_bound(1.0, horizon=HORIZON, time=time, beta=beta)


def variance_errors(time: int, values: np.ndarray) -> np.ndarray:
    """Return errors of Algorithm 4 at epsilon = 1."""
    chance = np.random.default_rng(0)
    log = math.log2(HORIZON)

    def noise(scale: float) -> np.ndarray:
        return chance.laplace(0.0, scale, (RUNS, time.bit_count())).sum(axis=1)

    count = values.size + noise(log)
    mean = (values.sum() + noise(2 * log)) / (values.size + noise(2 * log))
    power = ((values**2).sum() + noise(2 * log)) / (values.size + noise(2 * log))
    truth = values.var(ddof=1) if values.size > 1 else 0.0
    return np.abs((power * count - count * mean**2) / (count - 1) - truth)


def main() -> None:
    console = Console()
    betas = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-9)
    table = Table(title="Conjecture 1, average: error over conjectured bound", title_justify="left")
    for column in ("stream", *(f"beta {beta:g}" for beta in betas)):
        table.add_column(column.replace("beta ", "β="), justify="right", no_wrap=column == "stream")
    for name, (count, time, mean) in AVERAGES.items():
        table.add_row(name, *(f"{average(count, time, mean, beta):.3g}" for beta in betas))
    console.print(table)
    table = Table(title="Conjecture 2, variance: error over conjectured bound", title_justify="left")
    for column in ("stream", *(f"beta {beta:g}" for beta in betas[:4])):
        table.add_column(column.replace("beta ", "β="), justify="right", no_wrap=column == "stream")
    for name, (time, values) in VARIANCES.items():
        errors = variance_errors(time, values)
        bounds = [conjectured_bound(1.0, horizon=HORIZON, time=time, beta=beta) for beta in betas[:4]]
        quantiles = np.quantile(errors, [1 - beta for beta in betas[:4]])
        table.add_row(name, *(f"{q / bound:.3g}" for q, bound in zip(quantiles, bounds, strict=True)))
    console.print(table)


if __name__ == "__main__":
    main()
