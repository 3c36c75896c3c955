"""Figures that the texts on sketches and counters do not have: errors of turnstile and continual statistics, compared.

Mir et al. 2011 and Budaeva et al. 2013 draw nothing; these show what they state and what is shipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.decayed_sum import DecayedSum
from panstream.algorithms.continual.gauss_markov import GaussMarkovCount
from panstream.algorithms.continual.sums import ContinualCount, KaryTree
from panstream.algorithms.continual.windowed_sum import WindowedSum
from panstream.algorithms.planning.continual import average_bound, conjectured_bound
from panstream.algorithms.planning.lower_bounds import continual_count_bound, independent_parts_bound
from panstream.algorithms.turnstile.block_counter import BlockCounter
from panstream.papers.as_printed.mir import PublishedCroppedSum
from panstream.papers.counters.binary import BinaryMechanism
from panstream.papers.counters.hybrid import HybridMechanism
from panstream.papers.counters.simple_counters import SimpleCounterI, SimpleCounterII
from panstream.papers.figures.plan import FigureOptions, FigurePanel, FigurePlan, FigurePoint, FigureRow

EPSILON = 1.0
BETA = 0.05
CROP = 16
_HORIZON = 1024
_RUNS = 4000
_TICKS = "ticks"
_COUNTERS: dict[str, Callable[[int], float]] = {
    "simple counter I": lambda ticks: SimpleCounterI(epsilon=EPSILON, horizon=ticks).error_bound(beta=BETA),
    "simple counter II": lambda ticks: SimpleCounterII(epsilon=EPSILON).error_bound(beta=BETA, ticks=ticks),
    "binary mechanism": lambda ticks: BinaryMechanism(epsilon=EPSILON, horizon=ticks).error_bound(beta=BETA),
    "hybrid mechanism, no horizon": lambda ticks: HybridMechanism(epsilon=EPSILON).error_bound(
        beta=BETA,
        ticks=ticks - 1,  # at powers of two it needs one sum only
    ),
    "panstream, tree": lambda ticks: KaryTree(epsilon=EPSILON, horizon=ticks).error_bound(beta=BETA),
    "panstream, trees without a horizon": lambda ticks: ContinualCount(epsilon=EPSILON).error_bound(
        beta=BETA, ticks=ticks
    ),
    "panstream, delta 1e-6, correlated noise": lambda ticks: GaussMarkovCount(
        epsilon=EPSILON, delta=1e-6, horizon=ticks
    ).error_bound(beta=BETA, ticks=ticks),
    "lower bound for all answers together": lambda ticks: continual_count_bound(EPSILON, ticks, BETA).value,
}


def _counters(point: FigurePoint, options: FigureOptions) -> list[FigureRow]:
    return [FigureRow(series=name, x=point.x, y=error(round(point.x))) for name, error in _COUNTERS.items()]


def _windows(point: FigurePoint, options: FigureOptions) -> list[FigureRow]:
    window = round(point.x)
    pure, gaussian = (WindowedSum(epsilon=EPSILON, window=window, delta=delta) for delta in (0.0, 1e-6))
    ticks = 1 << 22
    return [
        FigureRow(series="panstream, delta 0", x=window, y=pure.error_bound(beta=BETA, ticks=ticks)),
        FigureRow(series="panstream, delta 1e-6", x=window, y=gaussian.error_bound(beta=BETA, ticks=ticks)),
        FigureRow(series="a release of every slot, added up", x=window, y=_slots(window)),
    ]


def _slots(window: int) -> float:
    return SimpleCounterII(epsilon=EPSILON).error_bound(beta=BETA, ticks=window)


def _decays(point: FigurePoint, options: FigureOptions) -> list[FigureRow]:
    decayed = DecayedSum(epsilon=EPSILON, decay="exponential", rate=math.exp(-1.0 / point.x))
    return [
        FigureRow(series="panstream, exponential", x=point.x, y=decayed.error_bound(beta=BETA, ticks=1 << 16)),
        FigureRow(series="a release of every slot, added up", x=point.x, y=_slots(round(point.x))),
    ]


def _cropped(point: FigurePoint, options: FigureOptions) -> list[FigureRow]:
    users = round(point.x)
    printed, corrected = (
        PublishedCroppedSum(universe=users, epsilon=EPSILON / 2, crop=CROP, corrected=fixed) for fixed in (False, True)
    )
    block = BlockCounter(universe=users, epsilon=EPSILON, crop=CROP, largest=1 << 20)
    errors = {
        "Mir's Algorithm 2 as printed: its bias on empty data": abs(
            printed.debias(_empty_mean(printed)) - corrected.debias(_empty_mean(corrected))
        ),
        "Mir's Algorithm 2, constant corrected": corrected.deviation(),
        "panstream, BlockCounter": block.expected_estimate(users).standard_error,
        "lower bound for independent parts": independent_parts_bound(EPSILON, users, CROP).value,
    }
    return [FigureRow(series=name, x=users, y=error) for name, error in errors.items()]


def _empty_mean(literal: PublishedCroppedSum) -> float:
    """Return the mean of the counters' sum on empty data: uniform on [0, 1) with the larger probability."""
    top = math.exp(literal.epsilon)
    inner = top / (2 * literal.crop - 1 + top)
    return literal.universe * (inner * 0.5 + (1 - inner) * (1 + (2 * literal.crop - 1) / 2))


def _conjectures(point: FigurePoint, options: FigureOptions) -> list[FigureRow]:
    """Return errors of averages and variances over what Conjectures 1 and 2 allow with constant 1."""
    count = round(point.x)
    runs = options.runs(_RUNS, at_least=1000)
    rng = options.generator("conjectures", count)
    log = math.log2(_HORIZON)
    draws = (_HORIZON - 1).bit_count()
    allowed = conjectured_bound(EPSILON, horizon=_HORIZON, time=_HORIZON - 1, beta=BETA)

    def noise(scale: float) -> NDArray[np.float64]:
        return np.asarray(rng.laplace(0.0, scale, (runs, draws)).sum(axis=1))

    size = count + noise(log)
    rows = []
    for label, top in (("0 and 1", 1.0), ("0 and 10,000", 1e4)):
        values = (np.arange(count) % 2.0) * top
        mean = (values.sum() + noise(2 * log)) / (count + noise(2 * log))
        power = ((values**2).sum() + noise(2 * log)) / (count + noise(2 * log))
        variance = (power * size - size * mean**2) / (size - 1)
        truth = float(values.var(ddof=1)) if count > 1 else 0.0
        for panel, errors in (("average", np.abs(mean - values.mean())), ("variance", np.abs(variance - truth))):
            ratio = float(np.quantile(errors, 1 - BETA)) / allowed
            name = f"Budaeva et al., values {label}"
            rows.append(FigureRow(panel=panel, series=name, x=count, y=ratio, repetitions=runs))
    bound = average_bound(EPSILON, horizon=_HORIZON, time=_HORIZON - 1, beta=BETA, bound=1.0, count=count)
    if math.isfinite(bound):
        rows.append(FigureRow(panel="average", series="panstream's bound, which holds", x=count, y=bound / allowed))
    return rows


def _powers(low: int, high: int, step: int = 2) -> Callable[[FigureOptions], list[FigurePoint]]:
    return lambda options: [FigurePoint("a", float(1 << power)) for power in range(low, high + 1, step)]


FIGURES = (
    FigurePlan(
        key="new-cropped",
        title="Cropped sums: literal, corrected, shipped, and the bound",
        caption=f"Every user at the crop of {CROP}, total loss {EPSILON:g}. The printed debiasing constant of Mir et "
        "al. is wrong by half; its corrected form still errs with the square of the crop.",
        panels=(FigurePanel(x_label="users", y_label="standard error, or bias", x_log=True, y_log=True),),
        points=_powers(6, 16),
        evaluate=_cropped,
    ),
    FigurePlan(
        key="new-counters",
        title="Counters of Budaeva et al. and the shipped tree",
        caption=f"Error that one answer exceeds with probability {BETA:g} at most, epsilon {EPSILON:g}, one copy.",
        panels=(FigurePanel(x_label=_TICKS, y_label="error of a count", x_log=True, y_log=True),),
        points=_powers(2, 20),
        evaluate=_counters,
    ),
    FigurePlan(
        key="new-conjectures",
        title="Conjectures 1 and 2 of Budaeva et al.",
        caption=f"95% error of averages and variances of zeros and ones after {_HORIZON - 1:,} slots, divided by what "
        "the conjectures allow. If they held, a constant would bound the curves whatever the values; with few values "
        "the error is not bounded at all.",
        panels=(
            FigurePanel(key="average", title="average", x_label="values", y_label="error / conjecture", y_log=True),
            FigurePanel(key="variance", title="variance", x_label="values", y_label="error / conjecture", y_log=True),
        ),
        points=lambda options: [FigurePoint("average", float(count)) for count in (1, 4, 16, 64, 256, 512, 1000)],
        evaluate=_conjectures,
    ),
    FigurePlan(
        key="new-window",
        title="A sum over the last slots",
        caption=f"Error that one answer exceeds with probability {BETA:g} at most, epsilon {EPSILON:g}.",
        panels=(FigurePanel(x_label="slots in the window", y_label="error of a count", x_log=True, y_log=True),),
        points=_powers(2, 16),
        evaluate=_windows,
    ),
    FigurePlan(
        key="new-decay",
        title="A sum with exponential decay",
        caption=f"Error that one answer exceeds with probability {BETA:g} at most, epsilon {EPSILON:g}; the weight of "
        "a slot falls by a factor of e in the time shown.",
        panels=(FigurePanel(x_label="slots of decay", y_label="error of a count", x_log=True, y_log=True),),
        points=_powers(1, 9),
        evaluate=_decays,
    ),
)
