"""Figures of closed forms: proposed sample sizes (1 of the paper, 4.1 and 4.5 of the thesis), and the loss of the state
(2 and 3 of the paper, 4.2, 4.3, 4.4, 4.6 and 4.7 of the thesis)."""

from __future__ import annotations

import math
from collections.abc import Callable

from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.planning.density import sample_size
from panstream.algorithms.planning.density_published import DWORK, OPTBERN, QUANTISED_LAPLACE, roth_sample_size
from panstream.papers.figures.plan import (
    CLAIMED,
    EPSILON,
    SAME_LOSS,
    FigureOptions,
    FigurePanel,
    FigurePlan,
    FigurePoint,
    FigureRow,
)
from panstream.privacy.joint_loss import pair_state_loss

# Not printed; α as in the experiments
ALPHA = 0.1
BETA = 0.05
LARGE_UNIVERSE = 10**9  # the papers' bounds sample with replacement

_ROTH = ("Roth (factor 200)", "Roth (factor 128)")
CURVES: dict[str, Callable[[float], int]] = {
    _ROTH[0]: lambda epsilon: roth_sample_size(epsilon, ALPHA, BETA),
    _ROTH[1]: lambda epsilon: roth_sample_size(epsilon, ALPHA, BETA, factor=128.0),
    "Dwork": lambda epsilon: DWORK.sample_size(epsilon, ALPHA, BETA),
    "OptBern": lambda epsilon: OPTBERN.sample_size(epsilon, ALPHA, BETA),
    CLAIMED: lambda epsilon: sample_size(TOTALS[CLAIMED](epsilon), ALPHA, BETA, LARGE_UNIVERSE),
    SAME_LOSS: lambda epsilon: sample_size(TOTALS[SAME_LOSS](epsilon), ALPHA, BETA, LARGE_UNIVERSE),
}


def _sample_sizes(key: str, title: str, *names: str) -> FigurePlan:
    panel = FigurePanel(x_label=EPSILON, y_label="sample size m", y_log=True)

    def evaluate(point: FigurePoint, options: FigureOptions) -> list[FigureRow]:
        return [FigureRow(series=name, x=point.x, y=float(CURVES[name](point.x))) for name in names]

    return FigurePlan(
        key=key,
        title=title,
        caption=f"Users that must be sampled for an error of at most {ALPHA:g} except with probability {BETA:g}. The "
        "papers' curves follow their bounds (Roth's formula, or the numerical optimum), panstream's the exact law.",
        panels=(panel,),
        points=lambda options: [FigurePoint("a", epsilon) for epsilon in options.epsilons()],
        evaluate=evaluate,
    )


TOTALS: dict[str, Callable[[float], float]] = {SAME_LOSS: OPTBERN.true_loss, CLAIMED: lambda epsilon: 2 * epsilon}
PAPERS = {estimator.name: estimator.pair for estimator in (DWORK, OPTBERN, QUANTISED_LAPLACE)}


def _grid(options: FigureOptions) -> list[FigurePoint]:
    return [FigurePoint("a", round(0.01 * step, 2)) for step in range(1, 51)]


def _pair(name: str, epsilon: float, options: FigureOptions) -> tuple[float, float]:
    """Return the two coins of a stored bit, of a paper's estimator or of OptBern at the total loss of this name."""
    paper = PAPERS.get(name)
    if paper is not None:
        return paper(epsilon)
    coins = OptBern(universe=options.universe, epsilon=TOTALS[name](epsilon)).law
    return coins.p0, coins.p1


def _ratios(key: str, title: str, *names: str) -> FigurePlan:
    def evaluate(point: FigurePoint, options: FigureOptions) -> list[FigureRow]:
        x = point.x
        rows = [FigureRow(series=f"allowed: e^{sign}ε", x=x, y=math.exp(s * x)) for sign, s in (("", 1), ("-", -1))]
        for name in names:
            p0, p1 = _pair(name, x, options)
            rows += [
                FigureRow(series=f"{name}, R(1)", x=x, y=p1 / p0),
                FigureRow(series=f"{name}, R(0)", x=x, y=(1 - p1) / (1 - p0)),
            ]
        return rows

    return FigurePlan(
        key=key,
        title=title,
        caption="Ratio R(b) = f_upd(b)/f_init(b) of the two laws of a stored bit. The papers allow e^-ε to e^ε. At a "
        "total loss of 2ε panstream gives the state nearly all of it, since the exact joint loss leaves more for the "
        "bits.",
        panels=(FigurePanel(x_label="privacy budget ε", y_label="ratio R(b)"),),
        points=_grid,
        evaluate=evaluate,
    )


def _budgets(key: str, title: str) -> FigurePlan:
    def evaluate(point: FigurePoint, options: FigureOptions) -> list[FigureRow]:
        x = point.x
        names = ("Dwork", "OptBern", CLAIMED)
        return [
            FigureRow(series="allocated", x=x, y=x),
            *(FigureRow(series=name, x=x, y=pair_state_loss(*_pair(name, x, options))) for name in names),
        ]

    return FigurePlan(
        key=key,
        title=title,
        caption="What the stored bits really lose. Dwork's use about half of the budget ε that is allocated to them.",
        panels=(FigurePanel(x_label="allocated privacy budget ε", y_label="actual privacy budget of the state"),),
        points=_grid,
        evaluate=evaluate,
    )


def _laplace(point: FigurePoint, options: FigureOptions) -> list[FigureRow]:
    x = point.x
    epsilon = 0.1
    low = (1 - epsilon) / 2
    high = (1 + epsilon) / 2
    init, update = (0.5 * math.exp(-abs(x - mean)) for mean in (low, high))
    return [
        FigureRow(panel="densities", series="not seen: Laplace(.45, 1)", x=x, y=init),
        FigureRow(panel="densities", series="seen: Laplace(.55, 1)", x=x, y=update),
        FigureRow(panel="ratio", series="ratio", x=x, y=update / init),
        FigureRow(panel="ratio", series="allowed: e^ε", x=x, y=math.exp(epsilon)),
        FigureRow(panel="ratio", series="allowed: e^-ε", x=x, y=math.exp(-epsilon)),
    ]


FIGURES = (
    _sample_sizes("000-1", "Proposed sample size for Dwork and OptBern", "Dwork", "OptBern", CLAIMED, SAME_LOSS),
    _sample_sizes("002-4.1", "Proposed sample size for Dwork's estimator", *_ROTH, "Dwork", CLAIMED, SAME_LOSS),
    _sample_sizes(
        "002-4.5",
        "Proposed sample size for the optimal Bernoulli estimator",
        *(_ROTH[1], "Dwork", "OptBern", CLAIMED, SAME_LOSS),
    ),
    _ratios("000-2", "State differential privacy of Dwork and OptBern", "Dwork", "OptBern", CLAIMED),
    _budgets("000-3", "Allocated and actual privacy budget of Dwork"),
    _ratios("002-4.2", "Dwork: state differential privacy", "Dwork", CLAIMED),
    _budgets("002-4.3", "Dwork: allocated and actual privacy budget"),
    _ratios("002-4.4", "Optimal Bernoulli: state differential privacy", "OptBern", CLAIMED),
    FigurePlan(
        key="002-4.6",
        title="The Laplace laws of a stored value",
        caption="ε = .1. Their ratio stays within e^±ε, so the state alone keeps its promise. The values have no "
        "bound, and that breaks the promise for state and output together. panstream stores no real numbers.",
        panels=(
            FigurePanel(key="densities", title="densities", x_label="stored value x", y_label="density"),
            FigurePanel(key="ratio", title="their ratio", x_label="stored value x", y_label="f_upd(x)/f_init(x)"),
        ),
        points=lambda options: [FigurePoint("densities", round(-2.5 + 0.025 * step, 4)) for step in range(241)],
        evaluate=_laplace,
    ),
    _ratios("002-4.7", "Quantised Laplace: state differential privacy", *PAPERS, CLAIMED),
)
