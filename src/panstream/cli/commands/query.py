"""``panstream query``: answer one query about a file privately, without a configuration."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from panstream.cli.commands.run import report
from panstream.cli.common import (
    DateFormat,
    Decimal,
    Encoding,
    Format,
    NoHardening,
    dialect_from,
    exit_codes,
    progress_bar,
)
from panstream.cli.flags import in_flags
from panstream.cli.hardening import reexec_hardened
from panstream.errors import InvalidParameter
from panstream.primitives.escaping import printable
from panstream.primitives.interrupts import INTERRUPTS

if TYPE_CHECKING:
    from panstream.engine.reporting.answer import Answer

_STDIN = ("-", "stdin")


def query(
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help="One SELECT; FROM names a file, a glob, a directory or '-', in quotes.")
    ],
    epsilon: Annotated[
        float, typer.Option(help="Privacy cost of the whole answer, all groups together; 1 is common, less is safer.")
    ],
    user: Annotated[
        str | None, typer.Option(help="Column that identifies the person; without it, single rows are protected.")
    ] = None,
    lower: Annotated[float | None, typer.Option(help="Lowest value, known without looking at the data.")] = None,
    upper: Annotated[float | None, typer.Option(help="Highest value, known without looking at the data.")] = None,
    groups: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=KEY,...", help="Keys of a GROUP BY column; may be repeated.")
    ] = None,
    universe: Annotated[int | None, typer.Option(help="Number of possible users; ids are 0, 1, 2, ...")] = None,
    expected: Annotated[int | None, typer.Option(help="Roughly how many users, for a better estimate.")] = None,
    at_most: Annotated[int | None, typer.Option(help="With --expected: the most users there can be.")] = None,
    contributions: Annotated[
        int | None, typer.Option(help="Most rows per user that count, to protect them together.")
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="Chance of a larger loss, such as 1e-6; Gaussian noise, more unlisted names."),
    ] = None,
    max_item_bytes: Annotated[
        int | None, typer.Option(help="Longest unlisted name, in bytes; fewer bytes mean less noise.")
    ] = None,
    window: Annotated[
        str | None,
        typer.Option(
            help="One answer per period: '1 hour', '7 days', or day, week (from Monday), month, quarter, year."
        ),
    ] = None,
    time: Annotated[str | None, typer.Option(help="Column of event time, if there is more than one.")] = None,
    time_zone: Annotated[
        str | None, typer.Option(help="Time zone of days, weeks and longer periods: Europe/Berlin. Default: UTC.")
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="COLUMN=TYPE", help="Type of a column, overriding the guess; may be repeated."),
    ] = None,
    public: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="CSV or Parquet file that the SELECT may JOIN: nothing in it is private."),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with the claim and what was guessed.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    parquet: Annotated[Path | None, typer.Option(help="Write a Parquet file; - for standard output.")] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="File that records what answers cost; next to the data by default.")
    ] = None,
    no_ledger: Annotated[bool, typer.Option("--no-ledger", help="Do not record what answers cost.")] = False,
    budget: Annotated[
        float | None, typer.Option(help="Refuse if all answers together would cost more; the ledger remembers it.")
    ] = None,
    format: Format = None,
    decimal: Decimal = ".",
    date_format: DateFormat = None,
    encoding: Encoding = None,
    unusable_share: Annotated[
        bool,
        typer.Option(help="Publish the share of rows that could not be used, for a twentieth of epsilon."),
    ] = True,
    no_hardening: NoHardening = False,
) -> None:
    """Answer one SELECT about a file privately: no configuration, no store.

    Format, columns and types are guessed from the first rows and shown. Bounds, groups and sizes are never read from
    the rows. Exit codes: 0 done, 1 stopped, 2 wrong usage, 3 privacy budget exhausted, 128 + n stopped by signal n.
    """
    if not no_hardening:
        reexec_hardened()
    with exit_codes(words=in_flags, compiles=True), INTERRUPTS.handling():
        from panstream.engine.adhoc import PreparedQuery, table_in_from

        if sum((as_csv, as_json, as_markdown, str(parquet) == "-")) > 1:
            raise InvalidParameter("give one of --csv, --json, --markdown and --parquet -")
        if ledger is not None and no_ledger:
            raise InvalidParameter("give --ledger or --no-ledger, not both")
        name = table_in_from(sql, public or ())
        settings: dict[str, Any] = {
            "lower": lower,
            "upper": upper,
            "groups": parse_column_options("--groups", groups, lambda keys: keys.split(",")),
            "universe": universe,
            "expected": expected,
            "at_most": at_most,
            "contributions": contributions,
            "delta": delta,
            "max_item_bytes": max_item_bytes,
            "window": window,
        }
        prepared = PreparedQuery(
            ["-" if name in _STDIN else name],
            sql,
            epsilon=epsilon,
            user=user,
            format=format,
            types=parse_column_options("--type", types, str),
            time=time,
            time_zone=time_zone,
            public=public or (),
            settings=settings,
            written=dialect_from(decimal, date_format, encoding),
            caller="command",
            unusable_share=unusable_share,
        )
        _tell(f"{name}: {prepared.guess} (guessed)")
        for warning in prepared.warnings():
            _tell(f"warning: {in_flags(warning)}")
        where = False if no_ledger else ledger or True
        answer = _with_progress(partial(prepared.answer, ledger=where, budget=budget))
        _show(answer, as_csv, as_json, as_markdown, parquet)
        if as_csv or as_markdown or str(parquet) == "-":  # a table and JSON have them
            for note in answer.notes:
                _tell(f"note: {note}")
        report(prepared.ingested)
        paths = ", ".join(path.name for path in prepared.ledgers(where)[:3])
        _tell(f"This answer: {answer.cost}. So far: {answer.spent}{f' ({paths})' if paths else ''}.")


def _tell(text: str) -> None:
    """Print a line on standard error, escaped: names of files and columns may contain control characters."""
    typer.echo(printable(text), err=True)


def _with_progress(answer: Callable[..., Answer]) -> Answer:
    """Answer with a progress bar, if standard error is a terminal."""
    if not sys.stderr.isatty():  # where Rich need not be loaded
        return answer()
    with progress_bar("reading", "{task.percentage:>3.0f}%") as bar:
        task = bar.add_task("reading", total=1.0)
        return answer(tick=lambda rows, share: bar.update(task, completed=share or 0.0))


def _show(answer: Answer, as_csv: bool, as_json: bool, as_markdown: bool, parquet: Path | None) -> None:
    if parquet is not None:
        import pyarrow.parquet

        target = sys.stdout.buffer if str(parquet) == "-" else parquet
        pyarrow.parquet.write_table(answer.to_arrow(), target)
    if as_csv or as_markdown:
        typer.echo(answer.to_csv() if as_csv else answer.to_markdown(), nl=False)
    elif as_json:
        typer.echo(json.dumps(answer.to_dict(), allow_nan=False))
    elif str(parquet) != "-":
        rows = tuple(row | {"help": in_flags(row["help"])} if row.get("help") else row for row in answer.rows)
        typer.echo(str(replace(answer, rows=rows)))


def parse_column_options(option: str, texts: list[str] | None, read: Any) -> dict[str, Any] | None:
    """Parse the values COLUMN=... of an option; None without any."""
    parsed = {}
    for text in texts or []:
        column, sign, value = text.partition("=")
        if not (column and sign and value):
            raise InvalidParameter(f"{option} must be COLUMN=..., got {text!r}")
        parsed[column] = read(value)
    return parsed or None
