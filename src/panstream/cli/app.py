"""The tree of commands."""

from __future__ import annotations

from typing import Annotated

import typer

from panstream import __version__
from panstream.cli import plan

__all__ = ["app"]

app = typer.Typer(
    name="panstream",
    help="Private statistics over streams that survive a break-in.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(plan.app, name="plan")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"panstream {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Private statistics over streams that survive a break-in."""
