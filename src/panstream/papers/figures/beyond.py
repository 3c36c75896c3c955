"""Two figures that the papers do not have: error at equal memory, and the true loss of the papers' estimators."""

from __future__ import annotations

import math

import numpy as np

from panstream.algorithms.density.fixed_level import FixedLevel
from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.planning.density_published import (
    DWORK,
    GAUSSIAN,
    OPTBERN,
    QUANTISED_LAPLACE,
    TRUNCATED_LAPLACE,
    PublishedEstimator,
)
from panstream.papers.figures._simulate import StreamKind, distinct_counts, presence_estimates
from panstream.papers.figures.plan import CLAIMED, FigureOptions, FigurePanel, FigurePlan, FigurePoint, FigureRow

TOTAL = 1.0
RUNS = 1000
_RESERVE = 6.0  # standard deviations between the expected number of ids and the capacity


def _bits_for(memory: int, universe: int) -> int:
    """Return the number of users that ``memory`` bytes can watch, at one bit each."""
    return min(8 * memory, universe)


def level_for_ids(memory: int, universe: int, epsilon: float) -> int:
    """Return the lowest level at which the ids of fixed-level distinct sampling fit into ``memory`` bytes.

    Ids are packed into as few bits as the universe needs. The level must be chosen before the stream, so it is chosen
    for a full stream. An overflow would leak information about the stream, so there is a reserve of six standard
    deviations.
    """
    capacity = 8 * memory // max((universe - 1).bit_length(), 1)
    for level in range(universe.bit_length()):
        watched = -(-universe >> level)
        chance = OptBern(universe=watched, epsilon=epsilon).law.p1
        if watched * chance + _RESERVE * math.sqrt(watched * chance * (1 - chance)) <= capacity or watched <= capacity:
            return level
    return universe.bit_length()


def _memory(point: FigurePoint, options: FigureOptions) -> list[FigureRow]:
    stream: StreamKind = "uniform" if point.panel == "uniform" else "zipf"
    memory = round(point.x)
    universe = options.universe
    runs = options.runs(RUNS)
    present = distinct_counts(stream, options, runs)
    ours = OptBern(universe=universe, epsilon=TOTAL, sample=_bits_for(memory, universe))
    level = level_for_ids(memory, universe, TOTAL)
    theirs = FixedLevel(universe=universe, epsilon=TOTAL, level=level)
    rows = []
    for name, algorithm in (("panstream: a bit per user", ours), ("sound fixed-level PPDS: ids", theirs)):
        estimates = presence_estimates(algorithm, present, options.generator(name, memory, stream))
        rows.append(FigureRow.mean(point.panel, name, memory, np.square(estimates - present / universe)))
    return rows


def _memory_points(options: FigureOptions) -> list[FigurePoint]:
    full_bytes = -(-options.universe // 8)
    sizes = sorted({max(25, full_bytes >> halvings) for halvings in range(0, 9, 2 if options.quick else 1)})
    return [FigurePoint(panel, float(size)) for panel in ("uniform", "zipf") for size in sizes]


_PUBLISHED: tuple[PublishedEstimator, ...] = (DWORK, GAUSSIAN, TRUNCATED_LAPLACE, QUANTISED_LAPLACE, OPTBERN)


def _losses(point: FigurePoint, options: FigureOptions) -> list[FigureRow]:
    x = point.x
    return [
        FigureRow(series="claimed: 2ε", x=x, y=2 * x),
        *(FigureRow(series=estimator.name, x=x, y=estimator.true_loss(x)) for estimator in _PUBLISHED),
        FigureRow(series=CLAIMED, x=x, y=OptBern(universe=options.universe, epsilon=2 * x).claim().epsilon),
    ]


FIGURES = (
    FigurePlan(
        key="new-memory",
        title="Mean squared error at equal memory",
        caption=f"Total loss {TOTAL:g} for both, both with the optimal split. Distinct sampling at a fixed level "
        "stores the ids of the users whose coin shows 1, packed; panstream stores a bit per watched user and finds it "
        "by a permutation.",
        panels=tuple(
            FigurePanel(
                key=key, title=title, x_label="memory in bytes", y_label="mean squared error", x_log=True, y_log=True
            )
            for key, title in (("uniform", "uniform stream"), ("zipf", "Zipf stream"))
        ),
        points=_memory_points,
        evaluate=_memory,
    ),
    FigurePlan(
        key="new-loss",
        title="What the published estimators really lose",
        caption="Exact joint loss of one copy of the state and the output, for any sample size. Laplace's estimator "
        "and PPDS have no finite loss.",
        panels=(FigurePanel(x_label="privacy budget ε", y_label="joint loss of state and output"),),
        points=lambda options: [FigurePoint("a", round(0.02 * step, 2)) for step in range(1, 26)],
        evaluate=_losses,
    ),
)
