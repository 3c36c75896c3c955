"""``panstream sketch``: counts, unions, overlaps and retention from files of published sketches."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from panstream.cli.common import AsJson, exit_codes

if TYPE_CHECKING:
    from panstream.algorithms.distinct import Sketch
    from panstream.core.estimate import Estimate

sketch = typer.Typer(
    help="Count, unite and compare published sketches, at no cost. list, ask and export read a store; the other "
    "commands read the files that export writes.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files with the bytes of published sketches.")]


@sketch.command(short_help="Count the users of each window.")
def count(files: Files, as_json: AsJson = False) -> None:
    """Print how many distinct users came in each window, with its dates. Exit codes: 0 done, 2 wrong usage."""
    with exit_codes(refused=2):
        sketches = _read(files)
        _print(
            "users of each window",
            [(_label(one, path), one.count()) for one, path in zip(sketches, files, strict=True)],
            as_json,
        )


@sketch.command(short_help="Count the users of any of the windows.")
def union(files: Files, as_json: AsJson = False) -> None:
    """Print how many distinct users came in any of the windows. Exit codes: 0 done, 2 wrong usage."""
    with exit_codes(refused=2):
        first, *others = _read(files)
        _print("users of all windows together", [(f"{len(files)} windows", first.union(*others))], as_json)


@sketch.command(short_help="Compare two windows.")
def overlap(
    first: Annotated[Path, typer.Argument(metavar="FIRST", help="A published sketch.")],
    second: Annotated[Path, typer.Argument(metavar="SECOND", help="Another one.")],
    as_json: AsJson = False,
) -> None:
    """Print how many users came in both windows, in one only, and in either. Exit codes: 0 done, 2 wrong usage."""
    with exit_codes(refused=2):
        one, two = _read([first, second])
        rows = [
            ("in both", one.intersection(two)),
            ("in the first only", one.difference(two)),
            ("in the second only", two.difference(one)),
            ("in either", one.union(two)),
        ]
        _print(f"{_label(one, first)} and {_label(two, second)}", rows, as_json)


@sketch.command(short_help="Count who came back.")
def retention(
    files: Files,
    lags: Annotated[int, typer.Option(min=1, help="With how many later windows each is compared.")] = 4,
    as_json: AsJson = False,
) -> None:
    """Print for every window how many of its users came again in later ones; windows in order of time. Exit codes: 0
    done, 2 wrong usage.
    """
    with exit_codes(refused=2):
        from panstream.algorithms.distinct import Sketch

        sketches = _read(files)
        rows = [
            (f"{_label(one, path)}, {lag} later", estimate)
            for one, path, cells in zip(sketches, files, Sketch.retention(sketches, lags), strict=True)
            for lag, estimate in enumerate(cells, 1)
        ]
        _print("users who came back", rows, as_json)


@sketch.command(name="list", short_help="List the sketches of a store.")
def list_sketches(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="A store's directory.")],
    as_json: AsJson = False,
) -> None:
    """List the published sketches of a store, with the users of each window. Exit codes: 0 done, 2 wrong usage."""
    with exit_codes(refused=2):
        from panstream.engine.reporting.sketch_store import read_sketches

        rows = [(stored.label, stored.sketch.count()) for stored in read_sketches(store)]
        _print("published sketches", rows, as_json)


@sketch.command(short_help="Answer a SELECT from the sketches of a store.")
def ask(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="A store's directory.")],
    sql: Annotated[
        str,
        typer.Argument(
            metavar="SELECT",
            help="SELECT OVERLAP(a, b), or SELECT COUNT(DISTINCT user) FROM name WHERE window BETWEEN dates.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Answer a SELECT from published sketches, at no further cost. For a range of days that no windows make up, the
    windows inside and around it are counted. Exit codes: 0 done, 2 wrong usage.
    """
    with exit_codes(refused=2):
        from panstream.engine.reporting.sketch_store import ask_sketches

        _print(sql, [(answer.label, answer.estimate) for answer in ask_sketches(store, sql)], as_json)


@sketch.command(short_help="Write the sketches of a store to files.")
def export(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="A store's directory.")],
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Where the files are written.")],
    query: Annotated[str | None, typer.Option(help="Which [[sketch]]; all by default.")] = None,
    parquet: Annotated[
        bool, typer.Option("--parquet", help="Write one Parquet file, sketches.parquet, with a row per window.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Write every published sketch to a file of its own, for panstream sketch count, union, overlap and retention, on
    any machine. Exit codes: 0 done, 2 wrong usage.
    """
    with exit_codes(refused=2):
        from panstream.engine.reporting.sketch_store import read_sketches
        from panstream.errors import InvalidParameter

        sketches = read_sketches(store, query)
        directory.mkdir(parents=True, exist_ok=True)
        if parquet:
            from panstream.engine.reporting.sketch_store import write_sketches

            path = directory / "sketches.parquet"
            if path.exists() and not force:
                raise InvalidParameter(f"{path.name} already exists; use --force to overwrite it")
            write_sketches(sketches, path)
            typer.echo(str(path))
            return
        for stored in sketches:
            words = "".join(letter if letter.isalnum() else "-" for letter in stored.query)
            start = datetime.fromtimestamp(stored.span[0], UTC).strftime("%Y%m%dT%H%M%S")
            path = directory / f"{words}-{start}.sketch"
            if path.exists() and not force:
                raise InvalidParameter(f"{path.name} already exists; use --force to overwrite it")
            path.write_bytes(stored.sketch.to_bytes())
            typer.echo(str(path))


def _read(paths: list[Path]) -> list[Sketch]:
    from panstream.algorithms.distinct import Sketch
    from panstream.engine.storage.disk import wrap_os_errors
    from panstream.errors import InvalidBytes

    sketches = []
    for path in paths:
        name = path.name
        with wrap_os_errors(lambda reason: f"{name} cannot be read: {reason}"):  # noqa: B023  # called in this round
            data = path.read_bytes()
        try:
            sketches.append(Sketch.from_bytes(data))
        except InvalidBytes as error:
            raise InvalidBytes(f"{name}: {error}") from None
    return sketches


def _label(one: Sketch, path: Path) -> str:
    """Return the dates of a window, or the name of its file."""
    if one.start is None or one.end is None:
        return path.name
    start, end = (datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M") for time in (one.start, one.end))
    return f"{start} to {end}"


def _print(title: str, rows: list[tuple[str, Estimate]], as_json: bool) -> None:
    from panstream.algorithms.planning.tables import format_table
    from panstream.core.estimate import format_number
    from panstream.core.printed_value import has_useful_value, says_nothing
    from panstream.primitives.escaping import printable
    from panstream.privacy.rounding import rounded_up

    if as_json:
        for label, estimate in rows:
            typer.echo(json.dumps({"what": label, **estimate.to_json()}, allow_nan=False))
        return
    lines = []
    for label, estimate in rows:
        low, high = estimate.interval()
        value = format_number(estimate.value) if has_useful_value(estimate) else "-"
        span = f"{format_number(low)} to {format_number(high)}"
        lines.append((printable(label), value, "too few users to say" if says_nothing(estimate) else span))
    typer.echo(format_table(title, ("", "users", "95% interval"), lines, right={1, 2}))
    if rows:
        losses = max(estimate.claim.epsilon for _, estimate in rows)
        typer.echo(
            f"\nComputed from what was published, at no further loss. One user loses at most epsilon "
            f"{rounded_up(losses)} to the sketches of a line and one copy of the memory."
        )
