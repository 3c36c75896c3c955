"""Figures of proposed sample sizes: 1 of the paper, 4.1 and 4.5 of the thesis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from panstream.papers.figures.plan import (
    CLAIMED,
    EPSILON,
    SAME_LOSS,
    FigureOptions,
    FigurePlan,
    Panel,
    Point,
    Row,
    epsilon_grid,
)
from panstream.planning.density import sample_size
from panstream.planning.density_published import DWORK, OPTBERN, roth_sample_size

__all__ = ["FIGURES"]

ALPHA, BETA = 0.1, 0.05  # not printed; α as in the experiments
MANY = 10**9  # the papers' bounds sample with replacement

Curve = Callable[[float], int]
CURVES: dict[str, Curve] = {
    "Roth (factor 200)": lambda epsilon: roth_sample_size(epsilon, ALPHA, BETA),
    "Roth (factor 128)": lambda epsilon: roth_sample_size(epsilon, ALPHA, BETA, factor=128.0),
    "Dwork": lambda epsilon: DWORK.sample_size(epsilon, ALPHA, BETA),
    "OptBern": lambda epsilon: OPTBERN.sample_size(epsilon, ALPHA, BETA),
    CLAIMED: lambda epsilon: sample_size(2 * epsilon, ALPHA, BETA, MANY),
    SAME_LOSS: lambda epsilon: sample_size(OPTBERN.true_loss(epsilon), ALPHA, BETA, MANY),
}


def _figure(key: str, title: str, source: str, names: Sequence[str]) -> FigurePlan:
    panel = Panel(key="a", title="", x_label=EPSILON, y_label="sample size m", y_log=True)

    def evaluate(point: Point, options: FigureOptions) -> list[Row]:
        return [Row(panel="a", series=name, x=point.x, y=float(CURVES[name](point.x))) for name in names]

    return FigurePlan(
        key=key,
        title=title,
        source=source,
        caption=f"Users that must be sampled for an error of at most {ALPHA:g} except with probability {BETA:g}. The papers' "
        "curves follow their bounds (Roth's formula, or the numerical optimum), panstream's the exact law.",
        panels=(panel,),
        points=lambda options: [Point("a", epsilon) for epsilon in epsilon_grid(options)],
        evaluate=evaluate,
    )


FIGURES = (
    _figure(
        "000-1",
        "Proposed sample size for Dwork and OptBern",
        "paper, Figure 1",
        ("Dwork", "OptBern", CLAIMED, SAME_LOSS),
    ),
    _figure(
        "002-4.1",
        "Proposed sample size for Dwork's estimator",
        "thesis, Figure 4.1",
        ("Roth (factor 200)", "Roth (factor 128)", "Dwork", CLAIMED, SAME_LOSS),
    ),
    _figure(
        "002-4.5",
        "Proposed sample size for the optimal Bernoulli estimator",
        "thesis, Figure 4.5",
        ("Roth (factor 128)", "Dwork", "OptBern", CLAIMED, SAME_LOSS),
    ),
)
