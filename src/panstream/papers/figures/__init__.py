"""The papers' figures of densities and federated networks as data: which points they have, how each is computed.

``panstream figures`` runs them, keeps the results and draws them. Keys are the paper's number in the reference list of
docs/reference/figures.md and the figure's number in it.
"""

from __future__ import annotations

from panstream.errors import InvalidParameter
from panstream.papers.figures import beyond, errors, networks
from panstream.papers.figures import closed_forms as promises
from panstream.papers.figures.plan import FigureOptions, FigurePanel, FigurePlan, FigurePoint, FigureRow

__all__ = [
    "FIGURES",
    "FigureOptions",
    "FigurePanel",
    "FigurePlan",
    "FigurePoint",
    "FigureRow",
    "evaluate_point",
    "format_number",
]


def _order(plan: FigurePlan) -> tuple[str, list[int]]:
    source, _, number = plan.key.partition("-")
    return source, [int(part) for part in number.split(".") if part.isdigit()]


FIGURES: dict[str, FigurePlan] = {
    plan.key: plan
    for plan in sorted((*promises.FIGURES, *networks.FIGURES, *errors.FIGURES, *beyond.FIGURES), key=_order)
}


def format_number(key: str) -> FigurePlan:
    """Return the figure called ``key``."""
    if key not in FIGURES:
        raise InvalidParameter(f"figure must be one of {', '.join(FIGURES)}, got {key!r}")
    return FIGURES[key]


def evaluate_point(key: str, index: int, options: FigureOptions) -> list[FigureRow]:
    """Return the rows of one point; the arguments are plain values, so that another process can do it."""
    plan = format_number(key)
    return list(plan.evaluate(plan.points(options)[index], options))
