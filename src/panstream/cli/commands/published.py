"""``panstream ask`` and ``merge``: point queries and merged lists of names, from published tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from panstream.cli.common import AsJson, exit_codes


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
    with exit_codes(refused=2):
        from panstream.algorithms.planning.tables import format_table
        from panstream.cli.commands.run import period
        from panstream.core.estimate import format_interval, format_number
        from panstream.engine.reporting.point_queries import point_query
        from panstream.primitives.escaping import printable

        answers = point_query(store, condition, query=query, all_windows=all_windows)
        if as_json:
            for row in answers:
                typer.echo(json.dumps(row, allow_nan=False))
            return
        lines = []
        for row in answers:
            interval = format_interval(*row["interval"])
            lines.append((row["query"], printable(row["name"]), period(row), format_number(row["value"]), interval))
        head = ("query", "name", "period", "estimate", "95% interval")
        typer.echo(
            format_table(
                "each interval holds with 95% for its own name, not for all names at once", head, lines, right={3, 4}
            )
        )


def merge(
    stores: Annotated[list[Path], typer.Argument(metavar="STORE...", help="The directories of the stores.")],
    query: Annotated[str | None, typer.Option(help="Which query, if more than one lists names.")] = None,
    all_windows: Annotated[
        bool, typer.Option("--all", help="Add every answer whose tables are stored, not only the latest of each store.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="How many names to print.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Make one list of names from the lists that several stores, or several windows of one, have published: names that
    are too rare for each of them may be found in their sum. It costs nothing. Exit codes: 0 done, 2 wrong usage.
    """
    with exit_codes(refused=2):
        from panstream.algorithms.planning.tables import format_table
        from panstream.core.estimate import format_interval, format_number
        from panstream.engine.reporting.merge_lists import merge_lists
        from panstream.primitives.escaping import printable

        lists = merge_lists(stores, query=query, all_windows=all_windows)
        if as_json:
            typer.echo(json.dumps(lists.to_json(), allow_nan=False))
            return
        lines = []
        for item in lists.items[:limit]:
            interval = format_interval(*item["interval"])
            lines.append((printable(str(item["name"])), format_number(item["count"]), interval))
        title = f"{len(lists.parts)} published answers added up; all intervals hold together, with 95%"
        typer.echo(format_table(title, (lists.key, "estimate", "95% interval"), lines, right={1, 2}))
        note = lists.note(limit)
        typer.echo(f"\n{note[0].upper()}{note[1:]}.")
        typer.echo(f"Adding up costs no further privacy. Each answer was published at {', or at '.join(lists.costs)}.")
        if lists.by_user:
            typer.echo("A user whose rows are in several of them loses that in each.")
