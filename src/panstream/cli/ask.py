"""``panstream ask``: how often one name came, from what a store has published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from panstream.cli.outcome import AsJson, outcome


def ask(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="A store's directory.")],
    condition: Annotated[str, typer.Argument(metavar="CONDITION", help="\"page = '/x'\" or \"page IN ('/x', '/y')\".")],
    query: Annotated[str | None, typer.Option(help="Which query, if more than one counts the same key.")] = None,
    all_windows: Annotated[
        bool, typer.Option("--all", help="Answer for every published window, not only the latest.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say how often a name occurred, listed or not, from published tables alone: it costs nothing, however often it is
    asked. Exit codes: 0 done, 2 wrong usage.
    """
    with outcome(refused=2):
        from panstream.cli.run import period
        from panstream.engine.names import printable
        from panstream.engine.point_queries import ask as asked
        from panstream.planning.text import aligned

        found = asked(store, condition, query=query, all_windows=all_windows)
        if as_json:
            for row in found:
                typer.echo(json.dumps(row, allow_nan=False))
            return
        lines = [(row["query"], printable(row["name"]), period(row), *_figures(row)) for row in found]
        head = ("query", "name", "period", "estimate", "95% interval")
        typer.echo(aligned("each interval holds for its name alone", head, lines, right={3, 4}))


def _figures(row: dict[str, Any]) -> tuple[str, str]:
    from panstream.estimate import figure

    low, high = row["interval"]
    return figure(row["value"]), f"{figure(low)} to {figure(high)}"
