"""Published answers for tables, files and plots."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from panstream.engine.planner.open_domain import listed_names, note_of
from panstream.engine.reporting.combined_answers import combine_answers
from panstream.engine.storage.release_log import Release
from panstream.errors import InvalidParameter, import_optional
from panstream.primitives.escaping import csv_text, printable

if TYPE_CHECKING:
    from panstream.engine.runtime.engine import Engine

EXTRA = (
    *("group", "window", "end", "since", "gaps"),
    *("at_most_beyond", "description", "too_uncertain", "help", "key", "items", "listing_threshold"),
    *("answer", "lag", "cohort", "sketch"),
)
"""Fields of a record that only some answers have."""
_COLUMNS = (
    *("query", "number", "time", "window", "end", "value", "standard_error", "low", "high", "epsilon", "unit"),
    *("at_most_beyond", "description", "too_uncertain", "unclipped", "since", "gaps"),
)


def answers(engine: Engine) -> Iterator[dict[str, Any]]:
    """Yield the latest answer of every query and group: name, value, standard_error, interval, epsilon, claim.

    HAVING, ORDER BY and LIMIT of a statement say which of its groups, and in which order; the log has all of them.

    Args:
        engine: The engine whose log is read.
    """
    for _, release in visible_rows(engine, latest=True):
        yield _as_answer(release)


def visible_rows(engine: Engine, *, latest: bool = False) -> Iterator[tuple[str, Release]]:
    """Yield the name and the release of every answer that the statements show; with ``latest``, only of the last."""
    plans = {plan.config.name: plan for plan in engine.plans}
    for statement in engine.config.statements:
        view = statement.view
        parts = [plans[name] for name in statement.queries]
        claims = {output.name: plan.claim for plan in parts for output in plan.outputs} if view.combined else {}
        draws: dict[int, list[dict[str, Release]]] = {}
        if parts[0].config.names is not None:
            for release in _releases(engine, parts[0].series[0], latest=latest):
                yield from ((view.shown[0], name_release) for name_release in listed_names(release, view))
            continue
        for plan in parts:
            columns = ((group, output.name) for group in range(len(plan.groups)) for output in plan.outputs)
            for (group, name), series in zip(columns, plan.series, strict=True):
                for release in _releases(engine, series, latest=latest):
                    number = 0 if latest else release.number
                    if number not in draws:
                        draws[number] = [{} for _ in plan.groups]
                    draws[number][group][name] = release
        for _, drawn in sorted(draws.items()):
            for answers_of_group in drawn:
                for answer in view.combined:
                    combine_answers(answer, statement.name, answers_of_group, claims)
            values = [{name: release.record["value"] for name, release in row.items()} for row in drawn]
            for index in view.rows(parts[0].groups, values):
                yield from ((name, drawn[index][name]) for name in view.shown if name in drawn[index])


def _releases(engine: Engine, series: str, *, latest: bool) -> list[Release]:
    if not latest:
        return list(engine.log.history(series))
    last = engine.log.last(series)
    return [] if last is None else [last]


def notes(engine: Engine) -> Iterator[tuple[str, str]]:
    """Yield, for every statement with a list of names, its name and a sentence about what the latest list contains."""
    names = {plan.config.name for plan in engine.plans if plan.config.names is not None}
    for statement in engine.config.statements:
        if statement.queries[0] in names and (last := engine.log.last(statement.queries[0])) is not None:
            yield statement.name, note_of(last, statement.view)


def _as_answer(release: Release) -> dict[str, Any]:
    """Return a release as one flat JSON object."""
    record = release.record
    figures = {key: record[key] for key in ("value", "unclipped", "standard_error", "interval", "epsilon")}
    extra = {key: record[key] for key in EXTRA if key in record}
    about = {"number": release.number, "time": release.time}
    return {"name": release.query, **figures, **about, **extra, "claim": record["claim"]}


def history(engine: Engine) -> dict[str, list[Release]]:
    """Return all releases of the configured queries, by series."""
    return {name: list(engine.log.history(name)) for plan in engine.plans for name in plan.series}


def write_releases(engine: Engine, path: Path) -> int:
    """Write all releases, and their listed names, to a CSV or Parquet file; return the number of rows."""
    released = [release for releases in history(engine).values() for release in releases]
    exported = [row_release for release in released for row_release in (release, *listed_names(release))]
    rows = [_row(release) for release in exported]
    if path.suffix == ".csv":
        path.write_text(to_csv(exported), newline="")
    elif path.suffix == ".parquet":
        from panstream.engine.arrow import pa

        texts = ("query", "time", "window", "end", "unit", "description", "since", "gaps")
        whole = ("number", "at_most_beyond")
        kinds = {**dict.fromkeys(texts, pa.string()), **dict.fromkeys(whole, pa.int64()), "too_uncertain": pa.bool_()}
        types = [kinds.get(name, pa.float64()) for name in _COLUMNS]
        columns = [pa.array([row[index] for row in rows], type) for index, type in enumerate(types)]
        import pyarrow.parquet as parquet

        parquet.write_table(pa.table(columns, names=list(_COLUMNS)), path)
    else:
        raise InvalidParameter(f"the file of answers must end in .csv or .parquet, got {path.suffix!r}")
    return len(rows)


def csv_table(rows: Iterable[Iterable[Any]], lineterminator: str = "\r\n") -> str:
    """Return rows as CSV; texts are escaped for spreadsheets and terminals, see ``csv_text``."""
    out = io.StringIO()
    escaped = ([csv_text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    csv.writer(out, lineterminator=lineterminator).writerows(escaped)
    return out.getvalue()


def to_csv(releases: Iterable[Release]) -> str:
    """Return releases as CSV with a header line."""
    return csv_table([_COLUMNS, *map(_row, releases)])


def _row(release: Release) -> list[Any]:
    record = release.record
    low, high = record["interval"]
    cells = {
        **record,
        "query": release.query,
        "number": release.number,
        "time": release.time,
        "window": record.get("window", [None])[0],
        "low": low,
        "high": high,
        "epsilon": float(record["epsilon"]),
        "unit": record["claim"]["unit"],
        "too_uncertain": record.get("too_uncertain", False),
        "gaps": format_gaps(record),
    }
    return [cells.get(name) for name in _COLUMNS]


def format_gaps(record: Mapping[str, Any]) -> str | None:
    """Return the periods whose rows an answer has not seen, as ISO 8601 intervals; None if there are none."""
    return "; ".join("/".join(gap) for gap in record.get("gaps", ())) or None


def plot(engine: Engine, path: Path) -> None:
    """Plot the answers, with 95% intervals, of every query that has several; raise InvalidParameter if none has."""
    pictures = import_optional("matplotlib.figure", "drawing plots", "plots")
    series = {name: releases for name, releases in history(engine).items() if len(releases) > 1}
    if not series:
        raise InvalidParameter("there is nothing to plot: no query has answered more than once")
    figure = pictures.Figure(figsize=(8.0, 2.8 * len(series)), layout="constrained")
    for axis, (name, releases) in zip(figure.subplots(len(series), squeeze=False)[:, 0], series.items(), strict=True):
        # An answer without a value may still have an interval; its description says so.
        _draw(axis, name, [one for one in releases if one.record["value"] is not None or "description" in one.record])
    figure.savefig(path, dpi=130)


def _draw(axis: Any, name: str, releases: list[Release]) -> None:
    stamps = [release.record.get("end", release.time) for release in releases]
    starts = [release.record["window"][0] for release in releases if "window" in release.record]
    if len(set(starts)) == len(stamps):  # windows that are answered once are plotted at their start
        stamps = starts
    times = np.array([stamp.rstrip("Z") for stamp in stamps], "datetime64[s]")
    values = [math.nan if (value := release.record["value"]) is None else value for release in releases]
    ends = [release.record["interval"] for release in releases]
    low = [low if low is not None else value for (low, _), value in zip(ends, values, strict=True)]
    high = [high if high is not None else value for (_, high), value in zip(ends, values, strict=True)]
    axis.fill_between(times, low, high, color="#0072B2", alpha=0.2, linewidth=0)
    axis.plot(times, values, color="#0072B2", marker="." if len(values) < 60 else None)
    axis.set_title(f"{printable(name)}, with 95% interval", parse_math=False)
    axis.grid(True, color="#DDDDDD", linewidth=0.6)
    axis.tick_params(axis="x", labelrotation=20)
