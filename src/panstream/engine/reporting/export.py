"""What was published, for tables, files and plots."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from panstream.engine.planner.open_domain import listed_names, note_of
from panstream.engine.storage.release_log import Release
from panstream.errors import InvalidParameter, import_optional
from panstream.primitives.escaping import csv_text, printable

if TYPE_CHECKING:
    from panstream.engine.runtime.engine import Engine

EXTRA = (
    *("group", "window", "end", "since", "gaps"),
    *("at_most_beyond", "description", "too_uncertain", "help", "key", "items", "listing_threshold"),
)
"""Fields of a record that only some answers have."""
_COLUMNS = (
    *("query", "number", "time", "window", "end", "value", "standard_error", "low", "high", "epsilon", "unit"),
    *("at_most_beyond", "description", "too_uncertain", "unclipped", "since", "gaps"),
)


def answers(engine: Engine) -> Iterator[dict[str, Any]]:
    """Yield the latest answer of every query and group: name, value, standard_error, interval, epsilon, claim.

    HAVING, ORDER BY and LIMIT of a statement say which of its groups, and in which order; the log has all of them.
    """
    for _, release in visible_rows(engine, latest=True):
        yield _as_answer(release)


def visible_rows(engine: Engine, *, latest: bool = False) -> Iterator[tuple[str, Release]]:
    """Yield what statements show of all their releases, or of the latest: the name of every answer, and the release."""
    plans = {plan.config.name: plan for plan in engine.plans}
    for statement in engine.config.statements:
        view = statement.view
        parts = [plans[name] for name in statement.queries]
        draws: dict[int, list[dict[str, Release]]] = {}
        if parts[0].config.names is not None:
            found = _releases(engine, parts[0].series[0], latest=latest)
            yield from ((view.shown[0], each) for release in found for each in listed_names(release, view))
            continue
        for plan in parts:
            places = ((group, output.name) for group in range(len(plan.groups)) for output in plan.outputs)
            for (group, name), series in zip(places, plan.series, strict=True):
                for release in _releases(engine, series, latest=latest):
                    number = 0 if latest else release.number
                    if number not in draws:
                        draws[number] = [{} for _ in plan.groups]
                    draws[number][group][name] = release
        for _, drawn in sorted(draws.items()):
            values = [{name: release.record["value"] for name, release in each.items()} for each in drawn]
            for place in view.rows(parts[0].groups, values):
                yield from ((name, drawn[place][name]) for name in view.shown if name in drawn[place])


def _releases(engine: Engine, series: str, *, latest: bool) -> list[Release]:
    if not latest:
        return list(engine.log.history(series))
    last = engine.log.last(series)
    return [] if last is None else [last]


def notes(engine: Engine) -> Iterator[tuple[str, str]]:
    """Yield what the latest lists of names promise: the name of every statement that has one, and a sentence."""
    names = {plan.config.name for plan in engine.plans if plan.config.names is not None}
    for statement in engine.config.statements:
        if statement.queries[0] in names and (last := engine.log.last(statement.queries[0])) is not None:
            yield statement.name, note_of(last, statement.view)


def _as_answer(release: Release) -> dict[str, Any]:
    """Return a release as one flat object."""
    record = release.record
    figures = {key: record[key] for key in ("value", "unclipped", "standard_error", "interval", "epsilon")}
    extra = {key: record[key] for key in EXTRA if key in record}
    about = {"number": release.number, "time": release.time}
    return {"name": release.query, **figures, **about, **extra, "claim": record["claim"]}


def history(engine: Engine) -> dict[str, list[Release]]:
    """Return everything that the configured queries published, per query and group."""
    return {name: list(engine.log.history(name)) for plan in engine.plans for name in plan.series}


def write_releases(engine: Engine, path: Path) -> int:
    """Write all releases to a CSV or Parquet file; return how many."""
    released = [release for releases in history(engine).values() for release in releases]
    found = [each for release in released for each in (release, *listed_names(release))]
    rows = [_row(release) for release in found]
    if path.suffix == ".csv":
        path.write_text(to_csv(found), newline="")
    elif path.suffix == ".parquet":
        from panstream.engine.arrow import pa

        texts = ("query", "time", "window", "end", "unit", "description", "since", "gaps")
        whole = ("number", "at_most_beyond")
        kinds = {**dict.fromkeys(texts, pa.string()), **dict.fromkeys(whole, pa.int64()), "too_uncertain": pa.bool_()}
        types = [kinds.get(name, pa.float64()) for name in _COLUMNS]
        columns = [pa.array([row[at] for row in rows], type) for at, type in enumerate(types)]
        import pyarrow.parquet as parquet

        parquet.write_table(pa.table(columns, names=list(_COLUMNS)), path)
    else:
        raise InvalidParameter(f"the file of answers must end in .csv or .parquet, got {path.suffix!r}")
    return len(rows)


def to_csv(releases: Iterable[Release]) -> str:
    """Return releases as CSV with a header line; texts are escaped for spreadsheets, see ``csv_text``."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(_COLUMNS)
    writer.writerows([csv_text(cell) if isinstance(cell, str) else cell for cell in _row(each)] for each in releases)
    return out.getvalue()


def _row(release: Release) -> list[Any]:
    record = release.record
    low, high = record["interval"]
    window = record.get("window", [None])[0]
    epsilon = float(record["epsilon"])
    figures = [record["value"], record["standard_error"], low, high, epsilon]
    more = [
        record["claim"]["unit"],
        record.get("at_most_beyond"),
        record.get("description"),
        record.get("too_uncertain", False),
    ]
    more.append(record["unclipped"])
    seen = [record.get("since"), format_gaps(record)]
    return [release.query, release.number, release.time, window, record.get("end"), *figures, *more, *seen]


def format_gaps(record: Mapping[str, Any]) -> str | None:
    """Return the times whose rows an answer has not seen, as ISO 8601 intervals; None if there are none."""
    return "; ".join("/".join(gap) for gap in record.get("gaps", ())) or None


def plot(engine: Engine, path: Path) -> None:
    """Draw the answers of every query with more than one, with their 95% intervals."""
    pictures = import_optional("matplotlib.figure", "drawing plots", "plots")
    series = {name: releases for name, releases in history(engine).items() if len(releases) > 1}
    if not series:
        raise InvalidParameter("there is nothing to plot: no query has answered more than once")
    figure = pictures.Figure(figsize=(8.0, 2.8 * len(series)), layout="constrained")
    for axis, (name, releases) in zip(figure.subplots(len(series), squeeze=False)[:, 0], series.items(), strict=True):
        # without a value, there may be an interval
        drawn = [each for each in releases if each.record["value"] is not None or "description" in each.record]
        _draw(axis, name, drawn)
    figure.savefig(path, dpi=130)


def _draw(axis: Any, name: str, releases: list[Release]) -> None:
    stamps = [release.record.get("end", release.time) for release in releases]
    starts = [release.record["window"][0] for release in releases if "window" in release.record]
    if len(set(starts)) == len(stamps):  # a window that is answered once stands where it begins, as days do
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
