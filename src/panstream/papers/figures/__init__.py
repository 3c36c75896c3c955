"""The papers' figures of densities and federated networks, and figures of streams, as data: points and computations.

``panstream figures`` computes them, stores the results and draws them. Keys are the paper's number in the reference
list of docs/reference/figures.md and the figure's number in it.
"""

from __future__ import annotations

from panstream.errors import InvalidParameter
from panstream.papers.figures import beyond, closed_forms, dependences, errors, networks, streams
from panstream.papers.figures.plan import FigureOptions, FigurePanel, FigurePlan, FigurePoint, FigureRow

__all__ = [
    "FIGURES",
    "FigureOptions",
    "FigurePanel",
    "FigurePlan",
    "FigurePoint",
    "FigureRow",
    "evaluate_point",
    "find_figure",
]


def _order(plan: FigurePlan) -> tuple[str, list[int]]:
    paper, _, number = plan.key.partition("-")
    return paper, [int(part) for part in number.split(".") if part.isdigit()]


FIGURES: dict[str, FigurePlan] = {
    plan.key: plan
    for plan in sorted(
        (
            *closed_forms.FIGURES,
            *dependences.FIGURES,
            *networks.FIGURES,
            *errors.FIGURES,
            *beyond.FIGURES,
            *streams.FIGURES,
        ),
        key=_order,
    )
}


def find_figure(key: str) -> FigurePlan:
    """Return the figure called ``key``; raise InvalidParameter if there is none."""
    if key not in FIGURES:
        raise InvalidParameter(f"figure must be one of {', '.join(FIGURES)}, got {key!r}")
    return FIGURES[key]


def evaluate_point(key: str, index: int, options: FigureOptions) -> list[FigureRow]:
    """Return the rows of one point; the arguments can be pickled, so that another process can compute it."""
    plan = find_figure(key)
    return list(plan.evaluate(plan.points(options)[index], options))
