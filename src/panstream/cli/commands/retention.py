"""``panstream retention``: who came back, from what a store has published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from panstream.cli.common import AsJson, exit_codes

if TYPE_CHECKING:
    from panstream.engine.reporting.retention_table import CohortTable


def retention(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="A store's directory.")],
    query: Annotated[str | None, typer.Option(help="Which query, if more than one asks RETENTION.")] = None,
    cohorts: Annotated[int, typer.Option(min=1, help="How many windows to print.")] = 13,
    as_json: AsJson = False,
) -> None:
    """Print for every window how many of its users came again in later ones, and the share over all of them, from
    published answers alone: it costs nothing, however often it is asked. Exit codes: 0 done, 2 wrong usage.
    """
    with exit_codes(refused=2):
        from panstream.engine.reporting.retention_table import read_cohorts

        tables = read_cohorts(store, query)
        if as_json:
            for table in tables:
                typer.echo(json.dumps(table.to_json(cohorts), allow_nan=False))
            return
        typer.echo("\n\n".join(_text(table, cohorts) for table in tables))


def _text(table: CohortTable, cohorts: int) -> str:
    from panstream.algorithms.planning.tables import format_table
    from panstream.engine.reporting.retention_table import TOO_FEW, cell_text
    from panstream.primitives.escaping import printable

    values = table.to_json(cohorts)
    lags = range(1, values["lags"] + 1)
    head = ("window", "users", "not in the one before", *(f"back after {lag}" for lag in lags))
    lines = []
    for row in values["cohorts"]:
        span = " to ".join(time[:16].replace("T", " ").removesuffix(" 00:00") for time in row["window"] or ("?",))
        lines.append((span, cell_text(row["users"]), cell_text(row["new"]), *map(cell_text, row["back"])))
    rates = [cell_text(cell, percent=True) for cell in values["rates"]]
    lines.append(("share of all windows", "", "", *rates))
    title = f"{printable(table.query)}: users who came back, with 95% intervals"
    texts = [format_table(title, head, lines, right={*range(1, len(head))})]
    if any(TOO_FEW in cell for line in lines for cell in line):
        texts.append(f"\n{TOO_FEW}: too few users to say; what would help: {values['help']}")
    return "\n".join(texts)
