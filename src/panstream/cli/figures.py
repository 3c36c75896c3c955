"""``panstream figures``: the papers' figures of density estimation, computed and drawn anew."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from panstream.errors import PanstreamError

__all__ = ["figures", "make_figures"]


def figures(
    out: Annotated[Path, typer.Option(help="Directory for data, manifests and pictures.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer points and repetitions: about a minute in all.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="Only this figure, such as 000-6 or 002-4.8; may be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Number that fixes all draws.")] = 1,
    jobs: Annotated[int, typer.Option(help="Processes; 0 for one a core.")] = 0,
    data_only: Annotated[bool, typer.Option("--data-only", help="Write data and manifests, draw nothing.")] = False,
) -> None:
    """Compute and draw the papers' figures; what an earlier run with the same settings has finished is kept."""
    try:
        make_figures(out, only=only or (), quick=quick, seed=seed, jobs=jobs, data_only=data_only)
    except PanstreamError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("stopped; the same command goes on from here", err=True)
        raise typer.Exit(130) from None


def make_figures(
    out: Path,
    *,
    only: Sequence[str] = (),
    quick: bool = False,
    seed: int = 1,
    jobs: int = 0,
    data_only: bool = False,
    created: str | None = None,
) -> None:
    """Compute and draw the figures named by ``only`` (all if none is), with a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from panstream.cli.figures_plot import check_plots, draw
    from panstream.cli.figures_run import FigureFiles, Results, run_figures
    from panstream.papers.figures import FIGURES, FigureOptions, figure

    plans = [figure(key) for key in dict.fromkeys(only)] or list(FIGURES.values())
    if not data_only:
        check_plots()
    options = FigureOptions(seed=seed, quick=quick)
    stamp = created if created is not None else datetime.now(UTC).isoformat(timespec="seconds")
    results = [Results(plan, options, FigureFiles(out, plan.key), stamp) for plan in plans]
    for result in results:
        result.open()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("points", total=sum(result.total for result in results))

        def done(result: Results) -> None:
            finished = sum(len(each.points) for each in results)
            progress.update(bar, completed=finished, description=f"figure {result.plan.key}")
            if not result.missing and not data_only:
                draw(result.plan, result.rows, result.files.pictures)

        run_figures(results, jobs=jobs or os.cpu_count() or 1, done=done)
    for result in results:
        computed = result.total - result.reused
        typer.echo(f"{result.plan.key:<11} {computed:>4} points computed, {result.reused:>4} kept  {result.files.data}")
