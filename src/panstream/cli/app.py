"""The tree of commands."""

from __future__ import annotations

from typing import Annotated

import typer

from panstream import __version__
from panstream.cli import plan, synth
from panstream.cli.audit import audit
from panstream.cli.explain import check, explain
from panstream.cli.federate import federate, holder
from panstream.cli.figures import figures
from panstream.cli.init import init
from panstream.cli.query import query
from panstream.cli.run import run
from panstream.cli.send import send
from panstream.cli.serve import serve, token, worker
from panstream.cli.store import inspect, intrusion, recover

__all__ = ["app"]

app = typer.Typer(
    name="panstream",
    help="Private statistics over streams that survive a break-in.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _command in (query, init, check, explain, run, inspect, recover, serve, token, send, worker, holder, federate):
    app.command()(_command)
for _name, _group in (("intrusion", intrusion), ("plan", plan.app), ("synth", synth.app)):
    app.add_typer(_group, name=_name)
app.command()(audit)
app.command()(figures)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"panstream {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Private statistics over streams that survive a break-in."""
