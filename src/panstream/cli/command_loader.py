"""All commands and command groups, in the order of ``--help``; a command's module is imported when it is needed.

Typer evaluates the annotations of every option of every command that it is given, so a process builds only its own.
"""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer

from panstream import __version__

_COMMANDS = {  # the module with a function of the command's name, and a text that --help does not truncate
    "query": ("query", "Answer one SELECT about a file, without a configuration."),
    "init": ("init", "Write a configuration from a sample file."),
    "check": ("explain", "Check a configuration, and the rows of a file."),
    "explain": ("explain", "Explain what a configuration promises, and its errors."),
    "statement": ("statement", "Write the promises as one page in plain words."),
    "run": ("run", "Feed files or pipes to the queries and print answers."),
    "serve": ("serve", "Serve the queries over HTTP, with a dashboard."),
    "web": ("web", "Count a site's visitors: configure, explain and serve."),
    "token": ("serve", "Create a token for a server."),
    "send": ("send", "Send a file or a pipe to a server."),
    "report": ("report", "Report on a day, a week or a month, as Markdown or mail."),
    "ask": ("published", "Print how often a name occurred, from published answers."),
    "retention": ("retention", "Print how many users came back, from published answers."),
    "merge": ("published", "Combine published lists of names into one."),
    "inspect": ("store", "Print what is public about a store or a state."),
    "recover": ("store", "Restore the state before a damaged one."),
    "worker": ("serve", "Run a cluster worker."),
    "party": ("party", "Hold one of two shares of a stream's cells."),
    "holder": ("federate", "Keep a table and answer an analyst over HTTPS."),
    "holder-key": ("federate", "Create a holder's signing key for secure sums."),
    "federate": ("federate", "Learn one network from multiple data owners."),
    "audit": ("audit", "Measure what algorithms, the system and memory leak."),
    "figures": ("figures", "Compute and draw the papers' figures."),
}
_GROUPS = {"intrusion": ("store", "intrusion"), "plan": ("plan", "app"), "sketch": ("sketch", "sketch")}
_GROUPS["synth"] = ("synth", "app")
NAMES = (*_COMMANDS, *_GROUPS)


def app_with(*names: str) -> typer.Typer:
    """Return the application with these commands and groups."""
    app = typer.Typer(
        name="panstream",
        help="Private statistics over streams that survive a break-in.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_root)
    for name in names:
        if name in _GROUPS:
            app.add_typer(_attribute(*_GROUPS[name]), name=name)
        else:
            module, short = _COMMANDS[name]
            app.command(name, short_help=short)(_attribute(module, name.replace("-", "_")))
    return app


def _attribute(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"{__package__}.commands.{module}"), name)


def _version(show_version: bool) -> None:
    if show_version:
        typer.echo(f"panstream {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Private statistics over streams that survive a break-in."""
