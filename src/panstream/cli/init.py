"""``panstream init``: a commented configuration from the header of a sample file. No value of it is written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from panstream.cli.outcome import outcome
from panstream.errors import InvalidParameter, MissingExtra, translated

__all__ = ["init"]

_TYPES = {
    "int": "int",
    "uint": "int",
    "double": "double",
    "float": "double",
    "halffloat": "double",
    "decimal": "double",
}
_TYPES |= {"bool": "bool", "timestamp": "timestamp", "date": "date", "binary": "binary", "large_binary": "binary"}


def init(
    sample: Annotated[Path, typer.Argument(metavar="SAMPLE", help="A CSV, JSON lines, Parquet or Arrow file.")],
    user: Annotated[str | None, typer.Option(help="The column that says whom a row belongs to.")] = None,
    out: Annotated[Path, typer.Option(help="Where to write the configuration.")] = Path("panstream.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a commented configuration from a sample's header: names and types of columns only, no values."""
    with outcome():
        if out.exists() and not force:
            raise InvalidParameter(f"{out.name} is there already; --force replaces it")
        if not sample.exists():
            raise InvalidParameter(f"there is no file {sample.name!r}")
        stream = re.sub(r"\W+", "_", sample.name.split(".")[0].lower()).strip("_") or "stream"
        columns = _columns(sample)
        if user is not None and user not in columns:
            raise InvalidParameter(f"--user must be one of the columns {', '.join(columns)}, got {user!r}")
        out.write_text(_template(stream, columns, user))
        typer.echo(f"wrote {out}: read it through, then: panstream check {out}")


def _columns(sample: Path) -> dict[str, str]:
    """Return the names and types of a sample's columns."""
    try:
        from panstream.engine.feeds.inputs import format_of

        kind = format_of(sample) or "csv"
        schema = translated(  # Arrow's errors may quote values
            lambda: _schema(sample, kind),
            (OSError, ValueError),
            lambda _: InvalidParameter(f"{sample.name} cannot be read as {kind}"),
        )
    except ImportError:
        raise MissingExtra("reading a sample", "engine") from None
    return {field.name: _type(str(field.type)) for field in schema}


def _schema(sample: Path, kind: str) -> Any:
    if kind == "parquet":
        import pyarrow.parquet as parquet

        return parquet.read_schema(sample)
    import pyarrow as arrow

    if kind == "arrow":
        with arrow.OSFile(str(sample)) as file:
            opened = arrow.ipc.open_file if sample.suffix in (".arrow", ".feather") else arrow.ipc.open_stream
            return opened(file).schema
    if kind == "json":
        import pyarrow.json as lines

        return lines.read_json(arrow.input_stream(str(sample))).schema
    import pyarrow.csv as csv

    with csv.open_csv(arrow.input_stream(str(sample))) as reader:
        return reader.schema


def _type(arrow_type: str) -> str:
    if arrow_type.startswith("decimal"):
        return "double"
    return _TYPES.get(re.sub(r"[\d\[(].*", "", arrow_type), "string")


def _template(stream: str, columns: dict[str, str], user: str | None = None) -> str:
    """Return a configuration with these columns and a first question, with comments."""
    declared = "\n".join(f"{_key(name)} = {json.dumps(kind)}" for name, kind in columns.items())
    numeric = next((name for name, kind in columns.items() if kind == "double"), None)
    extra = ""
    if numeric is not None:
        extra = _SUM.format(stream=stream, column=numeric)
    line, question = _NO_USER, _ROWS.format(stream=stream)
    if user is not None:
        line, question = f"user = {json.dumps(user)}", _USERS.format(stream=stream, user=_quoted(user))
    return _TEMPLATE.format(stream=stream, user=line, columns=declared, question=question, extra=extra)


def _quoted(name: str) -> str:
    """Write a column's name as SQL takes it, inside a TOML string."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else json.dumps('"' + name.replace('"', '""') + '"')[1:-1]


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)


_TEMPLATE = """\
[stream]
name = "{stream}"
{user}
# time = "..."           # column of event time; without it the time of arrival counts
# lateness = "5 minutes" # how late a row may come
# on_bad_row = "skip"    # a bad row is left out; try a file first: panstream check CONFIG --rows FILE

[stream.columns]         # types: int, double, string, binary, bool, timestamp, date
{columns}

# [stream.budget]        # refuse queries if one event could lose more than this to all of them together
# event = 3.0            # a limit for user needs queries that bound what one user adds

[[query]]
{question}
epsilon = 1.0            # total privacy loss, for a copy of the state and all answers together
# every = "1 hour"       # answer on the clock ...
# horizon = 720          # ... so many times
# window = "1 day"       # or afresh for every day
{extra}
[store]
directory = "state"      # keep it out of backups: every copy of it is an intrusion
# durability = "batch"   # "interval" and "none" are faster and promise less
"""

_NO_USER = '# user = "..."           # column that says whom a row belongs to; needed for COUNT(DISTINCT ...)'

_ROWS = """\
name = "rows"
sql = "SELECT COUNT(*) FROM {stream}\""""

_USERS = """\
name = "users"
sql = "SELECT COUNT(DISTINCT {user}) FROM {stream}"
# expected = 10000       # roughly how many; makes the estimate better if it is about right"""

_SUM = """
# [[query]]
# name = "mean"
# sql = "SELECT AVG({column}) FROM {stream}"
# epsilon = 1.0
# lower = 0.0            # public bounds that you know without looking at the data
# upper = 100.0
"""
