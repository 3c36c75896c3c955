"""All commands and command groups, in the order of ``--help``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from panstream import __version__
from panstream.cli.commands import plan, synth
from panstream.cli.commands.audit import audit
from panstream.cli.commands.explain import check, explain
from panstream.cli.commands.federate import federate, holder, holder_key
from panstream.cli.commands.figures import figures
from panstream.cli.commands.init import init
from panstream.cli.commands.party import party
from panstream.cli.commands.published import ask, merge
from panstream.cli.commands.query import query
from panstream.cli.commands.report import report
from panstream.cli.commands.retention import retention
from panstream.cli.commands.run import run
from panstream.cli.commands.send import send
from panstream.cli.commands.serve import serve, token, worker
from panstream.cli.commands.sketch import sketch
from panstream.cli.commands.statement import statement
from panstream.cli.commands.store import inspect, intrusion, recover
from panstream.cli.commands.web import web

app = typer.Typer(
    name="panstream",
    help="Private statistics over streams that survive a break-in.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
_COMMANDS: dict[Callable[..., None], str] = {  # texts short enough that --help does not truncate them
    query: "Answer one SELECT about a file, without a configuration.",
    init: "Write a configuration from a sample file.",
    check: "Check a configuration, and rows if given.",
    explain: "Explain what a configuration promises, and its errors.",
    statement: "Write the promises as one page in plain words.",
    run: "Feed files or pipes to the queries and print answers.",
    serve: "Serve the queries over HTTP, with a dashboard.",
    web: "Count a site's visitors: configure, explain and serve.",
    token: "Create a token for a server.",
    send: "Send a file or a pipe to a server.",
    report: "Report a day, a week or a month, by mail or cron.",
    ask: "Say how often a name occurred, from published answers.",
    retention: "Say who came back, from published answers.",
    merge: "Combine published lists of names into one.",
    inspect: "Print what is public about a store or a state.",
    recover: "Restore the state before a damaged one.",
    worker: "Run a cluster worker.",
    party: "Hold one of two shares of a stream's cells.",
    holder: "Keep a table and answer an analyst over HTTPS.",
    holder_key: "Create a holder's signing key for secure sums.",
    federate: "Learn one network from multiple data owners.",
    audit: "Measure what algorithms, the system and memory leak.",
    figures: "Compute and draw the papers' figures.",
}
for _command, _short in _COMMANDS.items():
    app.command(short_help=_short)(_command)
for _name, _group in (("intrusion", intrusion), ("plan", plan.app), ("sketch", sketch), ("synth", synth.app)):
    app.add_typer(_group, name=_name)


def _version(show_version: bool) -> None:
    if show_version:
        typer.echo(f"panstream {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Private statistics over streams that survive a break-in."""
