"""``panstream figures``: compute and draw the papers' figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from panstream.cli.common import exit_codes


def figures(
    out: Annotated[Path, typer.Option(help="Directory for data, manifests and pictures.")],
    quick: Annotated[bool, typer.Option("--quick", help="Fewer points and repetitions: a few minutes in all.")] = False,
    only: Annotated[
        list[str] | None, typer.Option(help="Only this figure, such as 000-6 or 002-4.8; may be repeated.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
    jobs: Annotated[int, typer.Option(help="Number of processes; 0 for one per core.")] = 0,
    diabetes: Annotated[
        Path | None, typer.Option(help="Folder with the prepared Diabetes table; without it a bundled sample is used.")
    ] = None,
    data_only: Annotated[bool, typer.Option("--data-only", help="Write data and manifests, draw nothing.")] = False,
) -> None:
    """Compute and draw the papers' figures; points that an earlier run with the same settings finished are reused."""
    with exit_codes(refused=2, interrupted="stopped; run the same command to continue"):
        from panstream.cli.commands._figures_run import make_figures
        from panstream.papers.figures import FigureOptions

        options = FigureOptions(seed=seed, quick=quick, diabetes=str(diabetes.resolve()) if diabetes else "")
        make_figures(out, options, only=only or (), jobs=jobs, data_only=data_only)
