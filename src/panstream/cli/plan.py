"""``panstream plan``: what a question costs, before any data is seen."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from panstream.errors import PanstreamError

__all__ = ["app"]

app = typer.Typer(
    help="Sizes, errors and budgets before any data is seen.", no_args_is_help=True, rich_markup_mode=None
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.callback()
def group() -> None:
    """Sizes, errors and budgets before any data is seen."""


@app.command()
def density(
    epsilon: Annotated[float, typer.Option(help="Total privacy loss.")],
    alpha: Annotated[float, typer.Option(help="Additive error of the density.")],
    beta: Annotated[float, typer.Option(help="Probability that the error is larger.")],
    universe: Annotated[int, typer.Option(help="How many users exist.")],
    as_json: AsJson = False,
) -> None:
    """How many users must be watched for a density within ALPHA: ours, the papers', and Roth's bound."""
    from panstream.planning.density_plan import density_plan

    try:
        plan = density_plan(epsilon, alpha, beta, universe)
    except PanstreamError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(json.dumps(plan.to_json(), indent=2) if as_json else plan.table())
