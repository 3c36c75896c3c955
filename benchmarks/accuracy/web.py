"""Answers about a site beside the truth.

    python -m benchmarks.accuracy.web [--runs 100] [--data DIRECTORY] [--out FILE]

A real log (NASA, 1 August 1995, 13 hours; DIRECTORY has nasa_19950801.tsv.gz), replayed as an access log with the
questions of `panstream web --logs`: visitors of the day, and the 20 largest sections and pages, each looked up in what
was published. Then a month of simulated days with visitors who come back: day, week and month, beside what a tool
with a daily salt reports, which adds up the visitors of days.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from panstream.algorithms.planning.tables import format_table
from panstream.engine.config.config import Config, read_config
from panstream.engine.presets.website import propose_queries
from panstream.engine.presets.website_spec import WebsiteSpec
from panstream.engine.reporting.point_queries import count_names
from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest
from panstream.engine.runtime.selector import Selector
from panstream.engine.sources.formats._access_log_columns import FILES
from panstream.engine.sources.formats.arrow_columns import from_arrow

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from shared.site_traffic import traffic

TOP = 20
NASA = "nasa_19950801.tsv.gz"


def asked(site: WebsiteSpec, *names: str, **stream: Any) -> Config:
    """Return some of the questions that are proposed for a site, without a store."""
    file = propose_queries(site).config()
    file["query"] = [query for query in file["query"] if query["name"] in names]
    file["store"] = {}
    file["stream"] = {**file["stream"], **stream}
    del file["stream"]["budget"]  # which names all questions
    return read_config(file)


# The real log.


def as_access_log(source: Path, target: Path) -> tuple[int, Counter[str], Counter[str]]:
    """Write the log in the common format; return visitors, and page views by section and page, counted one by one."""
    ends = tuple(f".{each}" for each in _expanded(FILES))
    visitors = set()
    sections = Counter[str]()
    pages = Counter[str]()
    with gzip.open(source, "rt", encoding="latin-1", newline="") as lines, target.open("w") as out:
        for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
            path = row["url"].replace('"', "%22").replace(" ", "%20")
            when = datetime.fromtimestamp(int(row["time"]), UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
            request = f'"{row["method"]} {path} HTTP/1.0" {row["response"]} {row["bytes"] or "-"}'
            out.write(f"{row['host']} - - [{when}] {request}\n")
            page = path.partition("?")[0]
            if row["method"] == "GET" and row["response"] in ("200", "304") and not page.lower().endswith(ends):
                visitors.add(row["host"])
                pages[page] += 1
                sections["/" + [*page.split("/"), ""][1]] += 1
    return len(visitors), sections, pages


def _expanded(pattern: str) -> Iterator[str]:
    """Yield the endings of a pattern in which a question mark makes one letter optional."""
    for word in pattern.split("|"):
        before, mark, after = word.partition("?")
        yield before + after
        if mark:
            yield before[:-1] + after


def real_log(folder: Path, data: Path, runs: int) -> str:
    visitors, sections, pages = as_access_log(data / NASA, folder / "access.log")
    names = ("visitors per day", "sections", "pages")
    config = asked(WebsiteSpec(site="nasa.gov", visitors=2_000, source="log"), *names)
    truth = {
        ("visitors per day", ""): visitors,
        **{("sections", name): count for name, count in sections.most_common(TOP)},
        **{("pages", name): count for name, count in pages.most_common(TOP)},
    }
    inside = Counter[tuple[str, str]]()
    first = {}
    listed_right = 0
    for _ in range(runs):
        with Engine(config) as engine:
            ingest(engine, [str(folder / "access.log")])
            engine.finish()
            found: dict[tuple[str, str], tuple[float, float, float]] = {}
            right = True
            for query, counts in (("sections", sections), ("pages", pages)):
                release = engine.log.last(query)
                assert release is not None
                looked = [name for about, name in truth if about == query]
                for each in count_names(release, engine.log.table(query, release.number), looked):
                    found[query, each["name"]] = (each["value"], *each["interval"])
                right &= all(
                    item["interval"][0] <= counts[item["name"]] <= item["interval"][1]
                    for item in release.record["items"]
                    if not item["name"].endswith("…")
                )
            daily = engine.log.last("visitors per day")
            assert daily is not None
            found["visitors per day", ""] = (daily.record["value"], *daily.record["interval"])
        listed_right += right
        first = first or found
        inside.update(key for key, (_, low, high) in found.items() if low <= truth[key] <= high)
    rows = [
        (query, name[:44], f"{count:,}", f"{first[query, name][0]:,.0f}", _range(*first[query, name][1:]), str(hits))
        for (query, name), count in truth.items()
        for hits in [inside[query, name]]
    ]
    head = ("question", "name", "truth", "first run", "95% interval", f"inside, of {runs}")
    text = format_table("NASA, 1 August 1995, 13 hours", head, rows, right=(2, 3, 5))
    least = min(inside[key] for key in truth)
    return (
        f"{text}\n\nleast often inside: {least} of {runs}; all names that were listed inside together: "
        f"{listed_right} of {runs}"
    )


def _range(low: float, high: float) -> str:
    return f"{low:,.0f} to {high:,.0f}"


# Simulated days.


def simulated(runs: int, visitors: int = 1_000) -> str:
    month = (datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)).date()
    start = datetime(month.year, month.month, 1, tzinfo=UTC).timestamp()  # of the last whole month
    length = month.day
    hours = list(traffic("example.org", days=length, visitors=visitors, until=start + length * 86400.0))
    days = [
        pa.Table.from_batches([hour.rows for hour in hours[24 * day : 24 * day + 24]]).combine_chunks().to_batches()[0]
        for day in range(length)
    ]
    people = [set(pc.unique(day.filter(pc.equal(day["event"], "view"))["visitor"]).to_pylist()) for day in days]
    names = ("visitors per day", "visitors per week", "visitors per month")
    config = asked(WebsiteSpec(site="example.org", visitors=visitors), *names)
    schema = RowSchema.of(config.stream, config.needed_columns)
    rows = [from_arrow(day, schema, label="the simulation") for day in days]
    answers: dict[tuple[str, str, str], list[tuple[float, float, float]]] = {}
    now = start

    def clock() -> float:
        return now

    for _ in range(runs):
        now = start
        with Engine(config, clock=clock, elapsed=clock) as engine, Selector(config) as select:
            engine.declare("http")
            for day in range(length):
                now = start + day * 86400.0
                engine.step()
                engine.apply(select(rows[day]), commit=False)
                select.wipe()
            now = start + length * 86400.0
            engine.step()
            for release in engine.log.history():
                value = (release.record["value"], *release.record["interval"])
                answers.setdefault((release.query, *release.record["window"]), []).append(value)
    table: dict[str, list[tuple[float, float, float, float]]] = {}  # truth, daily salt, mean answer, share inside
    for (query, *window), found in answers.items():
        first, last = (round((datetime.fromisoformat(edge).timestamp() - start) / 86400.0) for edge in window)
        span = people[max(0, first) : last]
        if first < 0 or last > length:
            continue  # a week that begins before the month, or ends after it
        truth = len(set().union(*span))
        salted = sum(map(len, span))
        values = np.array(found)
        inside = float(np.mean((values[:, 1] <= truth) & (truth <= values[:, 2])))
        table.setdefault(query, []).append((truth, salted, float(values[:, 0].mean()), inside))
    lines = []
    for query, entries in table.items():
        truth, salted, value, inside = np.mean(entries, axis=0)
        off = f"{100 * (salted / truth - 1):+.0f}%"
        lines.append(
            (query, str(len(entries)), f"{truth:,.0f}", f"{value:,.0f}", f"{100 * inside:.0f}%", f"{salted:,.0f}", off)
        )
    head = ("question", "windows", "truth, mean", "answer, mean", "inside", "daily salt", "its error")
    return format_table(f"{length} simulated days with returning visitors, {runs} runs", head, lines, right=range(1, 7))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--data", type=Path, help=f"where {NASA} is; without it, only the simulation")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    parts = [simulated(given.runs)]
    if given.data is not None:
        with tempfile.TemporaryDirectory() as folder:
            parts.append(real_log(Path(folder), given.data, given.runs))
    text = "\n\n".join(parts)
    print(text)
    if given.out is not None:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
