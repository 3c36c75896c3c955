"""``panstream init``: write a commented configuration from the first rows of a sample, without any of its values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from panstream.cli.common import DateFormat, Decimal, Encoding, Format, dialect_from, exit_codes
from panstream.errors import InvalidParameter
from panstream.primitives.toml_config import toml_lines, toml_value

if TYPE_CHECKING:
    from panstream.engine.sources import Dialect
    from panstream.engine.sources.schema_guess import InferredSchema

_TIMES = ("timestamp", "date")
_PROPOSED = 4  # most queries in the file
_SIZES = 2  # number of sizes for which an error is shown
# Columns that number or name things one by one: neither means nor groups of them answer anything.
_ONE_BY_ONE = re.compile(
    r"(^|[\W_])(ids?|uuid|guid|keys?|token|hash|no|number|index|row|phone|e?mail|ip|zip|postcode|url|"
    r"names?|(first|last|sur)name|address|comment|text|description|title)$|nr$|[a-z]I[dD]$",
    re.IGNORECASE,
)
_GROUPS = re.compile(
    r"country|region|state|city|category|kind|type|class|status|device|gender|sex|ward|page|path|section|channel|"
    r"department|segment|product|language|currency|store|branch"
)
_AMOUNTS = re.compile(
    r"amount|price|revenue|total|value|cost|duration|seconds|minutes|age|score|rating|bytes|size|length|quantity|"
    r"weight|height|salary|income|distance|temperature"
)
_PEOPLE = re.compile(
    r"user|customer|client|visitor|patient|person|member|host|subscriber|employee|student", re.IGNORECASE
)


def init(
    sample: Annotated[Path, typer.Argument(metavar="SAMPLE", help="A CSV, JSON lines, Parquet or Arrow file.")],
    user: Annotated[str | None, typer.Option(help="The column that identifies the person each row is about.")] = None,
    time: Annotated[str | None, typer.Option(help="The column of event time, if there is more than one.")] = None,
    expected: Annotated[
        int | None,
        typer.Option(min=1, help="Roughly how many different users there will be (without --user: rows), if you know."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to write the configuration; - for standard output.")] = Path(
        "panstream.toml"
    ),
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    format: Format = None,
    decimal: Decimal = ".",
    date_format: DateFormat = None,
    encoding: Encoding = None,
) -> None:
    """Write a commented configuration from a sample: names and types of columns, and questions to ask; no values."""
    with exit_codes():
        shown = str(out) == "-"
        if not shown and out.exists() and out.stat().st_size and not force:  # an empty one is the shell's redirection
            raise InvalidParameter(f"{out.name} already exists; use --force to overwrite it")
        if not sample.exists():
            raise InvalidParameter(f"there is no file {sample.name!r}")
        from panstream.engine.sources.schema_guess import infer_schema

        declared = dialect_from(decimal, date_format, encoding)
        guessed = infer_schema([str(sample)], format=format, written=declared, caller="command")
        for text in guessed.hints.values():
            typer.echo(f"warning: {text}", err=True)
        for option, column in (("--user", user), ("--time", time)):
            if column is not None and column not in guessed.columns:
                columns = ", ".join(guessed.columns)
                raise InvalidParameter(f"{option} must be one of the columns {columns}, got {column!r}")
        stream = re.sub(r"\W+", "_", sample.name.split(".")[0].lower()).strip("_") or "stream"
        text = _template(stream, guessed, declared, user, time, expected)
        if shown:
            typer.echo(text, nl=False)
            return
        out.write_text(text, encoding="utf-8")
        typer.echo(f"{sample.name}: {guessed} (guessed)", err=True)
        typer.echo(f"Wrote {out}. Review it, then run: panstream check {out}", err=True)


def _text_keys(written: Dialect) -> dict[str, Any]:
    """Return the keys of [stream] for the text style, if it is not the default."""
    formats = written.style.date_formats
    keys: dict[str, Any] = {"decimal": written.style.decimal} if written.style.decimal != "." else {}
    if formats:
        keys["date_format"] = formats[0] if len(formats) == 1 else list(formats)
    if written.declared_encoding is not None:
        keys["encoding"] = written.encoding
    return keys


def _template(
    name: str, guessed: InferredSchema, written: Dialect, user: str | None, time: str | None, expected: int | None
) -> str:
    """Return a configuration with these columns, queries about them, and comments."""
    columns = guessed.columns
    timed = [column for column, kind in columns.items() if kind in _TIMES]
    time = time or (timed[0] if timed else None)
    stream: dict[str, Any] = {"name": name, "columns": dict(columns)}
    stream |= {} if user is None else {"user": user}
    stream |= {} if time is None else {"time": time}
    lines = [
        "[stream]",
        f"name = {toml_value(name)}",
        _no_user(columns) if user is None else f"user = {toml_value(user)}",
        _NO_TIME if time is None else f"time = {toml_value(time)}  # event time; without it the time of arrival counts",
        _TIME_ZONE,
        '# lateness = "5 minutes" # how late a row may arrive',
        '# on_bad_row = "skip"    # a bad row is left out; try a file first: panstream check CONFIG --rows FILE',
    ]
    if guessed.dialect is not None and guessed.dialect.delimiter not in (",", "\t" if guessed.format == "tsv" else ","):
        lines.append(f"delimiter = {toml_value(guessed.dialect.delimiter)}")
    if guessed.dialect is not None and guessed.dialect.names:
        lines.append("header = false")
    lines += toml_lines(_text_keys(written))
    declared = "\n".join(toml_lines(columns))
    parts = ["\n".join(lines), _COLUMNS.format(columns=declared), _BUDGET]
    parts += [_question(stream, *question) for question in _questions(name, columns, user, time, expected)[:_PROPOSED]]
    return "\n".join([*parts, _STORE])


def _questions(
    stream: str, columns: Mapping[str, str], user: str | None, time: str | None, expected: int | None
) -> list[tuple[dict[str, Any], dict[str, str], bool]]:
    """Return proposed queries: keys of a [[query]], comments by key, and whether it is active.

    Queries with bounds or groups are not, since only a person can declare those.
    """
    rows = f"SELECT COUNT(*) FROM {stream}"
    day = {"window": "1 day"}
    sized = {} if expected is None else {"expected": expected}
    questions: list[tuple[dict[str, Any], dict[str, str], bool]] = []
    if user is not None:
        users = f"SELECT COUNT(DISTINCT {_quoted(user)}) FROM {stream}"
        questions.append(({"name": "users", "sql": users, **sized}, {} if sized else {"sql": _EXPECTED}, True))
        if time is not None:
            questions.append(({"name": "users per day", "sql": users, **day}, {}, True))
    else:
        questions.append(({"name": "rows", "sql": rows, **sized}, {}, True))
        if time is not None:
            questions.append(({"name": "rows per day", "sql": rows, **day}, {}, True))
    others = [(column, kind) for column, kind in columns.items() if column not in (user, time)]
    number = _first_named(others, ("double", "int"), _AMOUNTS)
    if number is not None:
        sql = f"SELECT AVG({_quoted(number)}) FROM {stream}"
        bounds = {"lower": 0.0, "upper": 100.0}
        questions.append(({"name": f"mean {number}", "sql": sql, **bounds}, {"lower": _BOUNDS}, False))
    word = _first_named(others, ("string", "bool"), _GROUPS)
    if word is not None:
        sql = f"SELECT {_quoted(word)}, COUNT(*) FROM {stream} GROUP BY {_quoted(word)}"
        keys = {"groups": {word: [True, False] if columns[word] == "bool" else ["one", "another"]}}
        questions.append(({"name": f"rows by {word}", "sql": sql, **keys}, {"groups": _KEYS}, False))
    if user is not None:
        questions.append(({"name": "rows", "sql": rows}, {}, True))
    return questions


def _first_named(columns: Sequence[tuple[str, str]], kinds: Sequence[str], likely: re.Pattern[str]) -> str | None:
    """Return the column of these kinds whose name is likeliest to be worth a question; None if none is.

    Of other names only a truth value or a number with decimals is proposed: text and whole numbers may name people.
    """
    names = [name for kind in kinds for name, of in columns if of == kind and not _ONE_BY_ONE.search(name)]
    plain = [name for name, of in columns if name in names and of in ("bool", "double")]
    return next((name for name in names if likely.search(name.lower())), next(iter(plain), None))


def _no_user(columns: Mapping[str, str]) -> str:
    """Return a comment that proposes the column whose name is likeliest to be that of people."""
    people = [name for name, kind in columns.items() if kind in ("string", "int") and _PEOPLE.search(name)]
    name = people[0] if people else "..."
    return f"# user = {toml_value(name):<15} {_USER}"


def _question(stream: dict[str, Any], keys: dict[str, Any], comments: dict[str, str], is_active: bool) -> str:
    """Return a [[query]] with its expected error; commented out if it is not active."""
    keys = {**keys, "epsilon": 1.0}
    lines = ["[[query]]"]
    for key, value in keys.items():
        lines.append(f"{key} = {toml_value(value)}{comments.get(key, _COMMENTS.get(key, ''))}")
    lines += [f"# error, 95%: {text}" for text in _errors(stream, keys)]
    return "".join(f"{'' if is_active else '# '}{line}\n" for line in lines)


def _errors(stream: dict[str, Any], keys: dict[str, Any]) -> list[str]:
    """Return the expected errors of a query, from public parameters only."""
    from panstream.core.estimate import format_number
    from panstream.engine.config.config import read_config
    from panstream.engine.planner.accuracy import expected_errors
    from panstream.engine.planner.query_plan import plan_all

    (plan,) = plan_all(read_config({"stream": stream, "query": [keys]}))
    return [f"{format_number(error)} {label}" for label, error in expected_errors(plan)[:_SIZES]]


def _quoted(name: str) -> str:
    """Return a column's name as a SQL identifier, quoted if necessary."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else '"' + name.replace('"', '""') + '"'


_USER = "# column that identifies the person each row is about; for COUNT(DISTINCT ...)"
_TIME_ZONE = '# time_zone = "Europe/Berlin"  # of window = "day", "week", "month" and so on; without it UTC'
_NO_TIME = '# time = "..."           # column of event time; without it the time of arrival counts'
_COLUMNS = """
[stream.columns]         # types: int, double, string, binary, bool, timestamp, date
{columns}
"""
_BUDGET = """\
# [stream.budget]        # refuse queries if one event could lose more than this to all of them together
# event = 5.0            # a limit for user needs queries that bound what one user adds
"""
_EXPECTED = "\n# expected = 10000       # roughly how many; makes the estimate better if it is about right"
_BOUNDS = "              # public bounds that you know without looking at the data"
_KEYS = "  # list them: keys read from the data would reveal who is in it"
_COMMENTS = {
    "epsilon": "            # privacy loss of a copy of the state and all answers together",
    "window": "         # starts afresh every day",
}
_STORE = """\
[store]
directory = "state"      # keep it out of backups: every copy of it is an intrusion
# durability = "batch"   # "interval" and "none" are faster and promise less
"""
