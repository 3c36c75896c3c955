"""Figures of measured errors: 4 to 7 of the paper, 4.8 to 4.11 of the thesis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.density.optbern import OptBern
from panstream.papers.as_printed.density import (
    PublishedDwork,
    PublishedLaplace,
    PublishedOptBern,
    PublishedQuantisedLaplace,
    PublishedTruncatedGaussian,
)
from panstream.papers.as_printed.density_base import LiteralDensity
from panstream.papers.as_printed.density_ppds import PublishedPPDS
from panstream.papers.figures._simulate import (
    StreamKind,
    distinct_counts,
    draw_stream,
    literal_estimates,
    ppds_estimate,
    presence_estimates,
    previous_events,
)
from panstream.papers.figures.closed_forms import TOTALS
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

LITERAL: dict[str, type[LiteralDensity]] = {
    "Dwork": PublishedDwork,
    "OptBern": PublishedOptBern,
    "quantised Laplace": PublishedQuantisedLaplace,
    "Laplace": PublishedLaplace,
    "truncated Gaussian": PublishedTruncatedGaussian,
}
STREAM_NAMES: dict[StreamKind, str] = {"uniform": "uniform stream", "zipf": "Zipf stream"}
MSE_RUNS = 300
FAILURE_RUNS = 1000
# Of the figures of failures
SHARE = 0.05
ALPHA = 0.1
FIXED_EPSILON = 0.2  # of the figure over sample sizes


def _estimate_errors(
    name: str, epsilon: float, m: int, stream: StreamKind, options: FigureOptions, runs: int
) -> NDArray[np.float64]:
    """Return estimate minus true density for ``runs`` streams, by the estimator called ``name``."""
    present = distinct_counts(stream, options, runs)
    rng = options.generator(name, epsilon, m, stream)
    if name == "PPDS":
        sampling = PublishedPPDS(universe=options.universe, epsilon=epsilon, sample=m)
        streams = (draw_stream(stream, options, run) for run in range(runs))
        ppds_estimates = [
            ppds_estimate(sampling, drawn_stream, previous_events(drawn_stream, options.universe), rng)
            for drawn_stream in streams
        ]
        estimates = np.array(ppds_estimates)
    elif name in LITERAL:
        algorithm = LITERAL[name](universe=options.universe, epsilon=epsilon, sample=m)
        estimates = literal_estimates(algorithm, present, rng)
    else:
        shipped = OptBern(universe=options.universe, epsilon=TOTALS[name](epsilon), sample=m)
        estimates = presence_estimates(shipped, present, rng)
    return np.asarray(estimates - present / options.universe)


def _measured(
    key: str,
    title: str,
    streams: Sequence[StreamKind],
    names: Sequence[str],
    shares: Sequence[float] = (),
    theory: Sequence[str] = (),
) -> FigurePlan:
    """Plot the mean squared error against epsilon for these ``shares`` of users; without any, the failures."""
    fixed = {f"{stream}-{share:g}": (stream, share) for stream in streams for share in (shares or [SHARE])}

    def evaluate(point: FigurePoint, options: FigureOptions) -> list[FigureRow]:
        stream, share = fixed[point.panel]
        epsilon = point.x
        m = options.users(share)
        runs = options.runs(MSE_RUNS if shares else FAILURE_RUNS)
        rows = []
        for name in names:
            errors = _estimate_errors(name, epsilon, m, stream, options, runs)
            rows.append(
                FigureRow.mean(point.panel, name, epsilon, errors**2)
                if shares
                else FigureRow.share(point.panel, name, epsilon, np.abs(errors) >= ALPHA)
            )
        for name in theory:
            promised = LITERAL[name](universe=options.universe, epsilon=epsilon, sample=m).mean_squared_error
            rows.append(FigureRow(panel=point.panel, series=f"{name} (theory)", x=epsilon, y=promised))
        return rows

    measure = (
        "Mean squared error against the density of the whole stream, estimates unclipped, with 95% intervals"
        if shares
        else f"Share of runs whose error is at least {ALPHA:g}, at m = {SHARE:g}·|U|, with 95% intervals"
    )
    return FigurePlan(
        key=key,
        title=title,
        caption=f"{measure}. The panstream curves lose in all what OptBern really loses at ε, or the 2ε that the "
        "papers claim.",
        panels=tuple(
            FigurePanel(
                key=panel_key,
                title=", ".join(
                    ([STREAM_NAMES[stream]] if len(streams) > 1 else []) + ([f"m = {share:g}·|U|"] if shares else [])
                ),
                x_label=EPSILON,
                y_label="mean squared error" if shares else "probability of error",
                y_log=bool(shares),
            )
            for panel_key, (stream, share) in fixed.items()
        ),
        points=lambda options: [FigurePoint(panel, epsilon) for panel in fixed for epsilon in options.epsilons()],
        evaluate=evaluate,
    )


def _over_samples() -> FigurePlan:
    """Plot the mean squared error against the sample size, Figure 7."""
    shares = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)

    def evaluate(point: FigurePoint, options: FigureOptions) -> list[FigureRow]:
        stream: StreamKind = "uniform" if point.panel == "uniform" else "zipf"
        m = options.users(point.x)
        runs = options.runs(MSE_RUNS)
        return [
            FigureRow.mean(
                point.panel, name, point.x, _estimate_errors(name, FIXED_EPSILON, m, stream, options, runs) ** 2
            )
            for name in _WITH_PPDS
        ]

    def points(options: FigureOptions) -> list[FigurePoint]:
        chosen = shares[::3] if options.quick else shares
        return [FigurePoint(panel, share) for panel in STREAM_NAMES for share in chosen]

    return FigurePlan(
        key="000-7",
        title="Mean squared error against the sample size",
        caption=f"ε = {FIXED_EPSILON:g}, with 95% intervals. For PPDS the sample size is the number of ids that fit "
        "into memory, for the others the number of stored bits: see the figure at equal memory.",
        panels=tuple(
            FigurePanel(
                key=key,
                title=name,
                x_label="sample size m as a share of |U|",
                y_label="mean squared error",
                x_log=True,
                y_log=True,
            )
            for key, name in STREAM_NAMES.items()
        ),
        points=points,
        evaluate=evaluate,
    )


_ALL: tuple[StreamKind, ...] = ("uniform", "zipf")
_PAPER = ("Dwork", "OptBern", CLAIMED, SAME_LOSS)
_WITH_PPDS = ("Dwork", "OptBern", "PPDS", CLAIMED, SAME_LOSS)
_THESIS = ("Dwork", "Laplace", "truncated Gaussian", "quantised Laplace", "OptBern", CLAIMED, SAME_LOSS)
_PAPER_SHARES = (0.001, 0.01)
_THESIS_SHARES = (0.001, 0.01, 0.1)


def _thesis(
    number: str, title: str, stream: StreamKind, shares: Sequence[float] = (), theory: Sequence[str] = ()
) -> FigurePlan:
    return _measured(f"002-{number}", f"{title}, {STREAM_NAMES[stream]}", (stream,), _THESIS, shares, theory)


FIGURES = (
    _measured("000-4", "Empirical probability of error", _ALL, _PAPER),
    _measured("000-5", "Theoretical and empirical mean squared error", _ALL, _PAPER, _PAPER_SHARES, _PAPER[:2]),
    _measured("000-6", "Empirical mean squared error", _ALL, _WITH_PPDS, _PAPER_SHARES),
    _over_samples(),
    _thesis("4.8", "Mean squared error", "uniform", _THESIS_SHARES, tuple(LITERAL)),
    _thesis("4.9", "Mean squared error", "zipf", _THESIS_SHARES, tuple(LITERAL)),
    _thesis("4.10", "Probability of error", "uniform"),
    _thesis("4.11", "Probability of error", "zipf"),
)
