"""The profiles of `panstream web`: what one visitor loses, which questions are useful, how exact, and whether it is so.

    python -m benchmarks.accuracy.web_profiles [--runs 100] [--data DIRECTORY] [--copies 5] [--out FILE]

First what is planned at 1,000, 10,000 and 100,000 visitors a day. Then the page views of a real log (NASA, 1 August
1995; the bundled sample, or all of it if DIRECTORY has nasa_19950801.tsv.gz) are sent as beacons, with and
without numbers of browsers and to two machines, and answers are compared with counts made one by one. A cap leaves
out what one browser sends beyond it: intervals are about what is counted, and the bias is how much less that is.

With ``--copies`` the counter is measured on so many copies of the log's visitors, as a larger site would see them, and
on a second log of which no default was chosen: the messages of the busiest day of a social network, if DIRECTORY has
CollegeMsg.txt.gz; a message is a page view, and whom it is to is the page.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from panstream.algorithms.planning.tables import format_table
from panstream.distributed.two_party.local import InProcessTwoPartyTransport
from panstream.distributed.two_party.session import open_engine
from panstream.engine.config.config import Config, read_config
from panstream.engine.config.website import MADE
from panstream.engine.planner.sender_bounds import sender_caps
from panstream.engine.presets.website import Proposal, propose_queries
from panstream.engine.presets.website_spec import WebsiteSpec
from panstream.engine.reporting.point_queries import count_names
from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.selector import Selector
from panstream.engine.sources.formats._access_log_columns import FILES
from panstream.engine.sources.formats.arrow_columns import from_arrow
from panstream.primitives.sender_counts import SentCounts
from panstream.privacy.rounding import rounded_up

SAMPLE = Path(__file__).parents[2] / "examples" / "data" / "nasa_19950801.log.gz"
NASA = "nasa_19950801.tsv.gz"
MESSAGES = "CollegeMsg.txt.gz"
SIZES = (1_000, 10_000, 100_000)
PROFILES = ("default", "counter", "two machines")
TOP = 10
MACHINES = {
    "machines": ["https://a.example:8443", "https://b.example:8443"],
    "names": ["a", "b"],
    "certificate": "front.pem",
    "key": "front.key",
    "authority": "authority.pem",
}
VIEW = tuple[str, str, float]  # host, path and time
_LINE = re.compile(r'(\S+) \S+ \S+ \[([^\]]+)\] "GET (\S+)[^"]*" (?:200|304) ')
_FILE = re.compile(rf"\.(?:{FILES})$", re.IGNORECASE)


def spec(profile: str, visitors: int) -> WebsiteSpec:
    return WebsiteSpec(
        site="example.org",
        visitors=visitors,
        counter=profile == "counter",
        machines=MACHINES if profile == "two machines" else None,
    )


# Planned.


def planned() -> str:
    tables = []
    for profile in PROFILES:
        proposals = [propose_queries(spec(profile, visitors)) for visitors in SIZES]
        names = [question.name for question in proposals[0].site.questions()]
        rows = [
            ("one visitor, 30 days", *map(_person, proposals)),
            ("one page view, the other questions", *map(_page_view, proposals)),
            ("useful questions", *(f"{len(proposal.asked)} of {len(names)}" for proposal in proposals)),
        ]
        for name in names:
            rows.append((name, *(_error(proposal, name) for proposal in proposals)))
        head = ("", *(f"{visitors:,} a day" for visitors in SIZES))
        tables.append(format_table(f"{profile}: errors (95%) and windows", head, rows, right=()))
    return "\n\n".join(tables)


def _person(proposal: Proposal) -> str:
    total = proposal.person_total()
    bounded = total.bounded
    delta = f", {bounded.stated_delta:.0e}" if bounded.stated_delta else ""
    count = "all" if not total.unbounded else f"{len(bounded.shares)} of {len(total.shares)}"
    return f"{rounded_up(bounded.epsilon)}{delta} to {count}"


def _page_view(proposal: Proposal) -> str:
    epsilon, delta = proposal.page_view_loss()
    return f"{rounded_up(epsilon)}, {delta:.0e}" if epsilon else "-"


def _error(proposal: Proposal, name: str) -> str:
    for candidate in proposal.asked:
        if candidate.question.name == name:
            window = "" if candidate.threshold is not None else f", {candidate.window}"
            return f"{candidate.exactness}{window}"
    return "left out"


# Measured.


def views_of(path: Path) -> list[VIEW]:
    """Return the page views of a log, in the common format or as tab-separated values, by time."""
    with gzip.open(path, "rt", encoding="latin-1", newline="") as lines:
        found = _of_table(lines) if path.name.endswith(".tsv.gz") else _of_log(lines)
        return sorted(found, key=lambda view: view[2])


def _of_log(lines: Iterable[str]) -> Iterator[VIEW]:
    for line in lines:
        match = _LINE.match(line)
        if match is not None and not _FILE.search(page := match[3].partition("?")[0]):
            yield match[1], page, datetime.strptime(match[2], "%d/%b/%Y:%H:%M:%S %z").timestamp()


def _of_table(lines: Iterable[str]) -> Iterator[VIEW]:
    for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
        page = row["url"].partition("?")[0]
        if row["method"] == "GET" and row["response"] in ("200", "304") and not _FILE.search(page):
            yield row["host"], page, float(row["time"])


def messages_of(path: Path) -> list[VIEW]:
    """Return the messages of the busiest day, as page views of their senders."""
    with gzip.open(path, "rt") as lines:
        rows = [(sender, f"/{int(to) % 8}/{to}", float(time)) for sender, to, time in map(str.split, lines)]
    busiest = Counter(int(time // 86_400) for _, _, time in rows).most_common(1)[0][0]
    return sorted((row for row in rows if row[2] // 86_400 == busiest), key=lambda view: view[2])


def copied(views: list[VIEW], copies: int) -> list[VIEW]:
    """Return the views of so many sites with the same visitors, each of whom is another one."""
    return [(f"{host} {copy}", page, time) for host, page, time in views for copy in range(copies)]


def beacons(views: list[VIEW], config: Config) -> pa.RecordBatch:
    """Return the views as the server has them after parsing, numbered by one sender for each host if that is asked."""
    caps = sender_caps(config.queries)
    senders: dict[str, SentCounts] = {}
    ids = {host: number for number, host in enumerate(dict.fromkeys(host for host, _, _ in views))}
    numbers = [senders.setdefault(host, SentCounts(caps)).number(("view", "entry"), time) for host, _, time in views]
    columns: dict[str, Any] = {
        "visitor": pa.array([ids[host] for host, _, _ in views], pa.int64()),
        "path": pa.array([page for _, page, _ in views]),
        "section": pa.array([_section(page) for _, page, _ in views]),
        "entry": pa.array([True] * len(views)),
        "event": pa.array(["view"] * len(views)),
        "value": pa.nulls(len(views), pa.float64()),
        "sender_counts": pa.array(numbers),
        **{name: pa.array([""] * len(views)) for name in MADE if name not in ("path", "section", "entry")},
    }
    return pa.RecordBatch.from_pydict({name: columns[name] for name in config.stream.columns})


def _section(page: str) -> str:
    return "/" + [*page.split("/"), ""][1]


def counted(views: list[VIEW], cap: int | None) -> list[VIEW]:
    """Return the first views of every host, of which a query counts so many."""
    seen = Counter[str]()
    kept = []
    for view in views:
        seen[view[0]] += 1
        if cap is None or seen[view[0]] <= cap:
            kept.append(view)
    return kept


def truths(views: list[VIEW], cap: int | None) -> dict[tuple[str, str], int]:
    """Return the figures that answers are compared with, made from the first views of every host."""
    kept = counted(views, cap)
    sections = Counter(_section(page) for _, page, _ in views).most_common(TOP)
    pages = Counter(page for _, page, _ in views).most_common(TOP)
    by_section = Counter(_section(page) for _, page, _ in kept)
    by_page = Counter(page for _, page, _ in kept)
    return {
        ("visitors per day", ""): len({host for host, _, _ in views}),
        ("page views per day", ""): len(kept),
        **{("sections", name): by_section[name] for name, _ in sections},
        **{("pages", name): by_page[name] for name, _ in pages},
    }


def day_config(profile: str, visitors: int) -> Config:
    """Return the questions of one day that are compared, with the epsilons that are proposed."""
    values = propose_queries(spec(profile, visitors)).config()
    names = ("visitors per day", "page views per day", "sections", "pages")
    values["query"] = [query for query in values["query"] if query["name"] in names]
    values["store"] = {"directory": "state"} if profile == "two machines" else {}  # replaced by a temporary one
    del values["stream"]["budget"]
    return read_config(values)


def measure(views: list[VIEW], config: Config, runs: int) -> dict[tuple[str, str], list[tuple[float, float, float]]]:
    """Return value and 95% interval of every compared answer, in every run."""
    schema = RowSchema.of(config.stream, config.needed_columns)
    rows = from_arrow(beacons(views, config), schema, label="the log")
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    wanted = [key for key in truths(views, None) if key[0] in {query.name for query in config.queries}]
    clock = partial(float, views[0][2])
    for _ in range(runs):
        with _engine(config, clock) as engine, Selector(config) as select:
            engine.declare("http")
            engine.step()
            engine.apply(select(rows), commit=False)
            engine.finish()
            for query in {name for name, _ in wanted}:
                release = engine.log.last(query)
                assert release is not None
                if config.query(query).names is None:
                    found.setdefault((query, ""), []).append((release.record["value"], *release.record["interval"]))
                    continue
                looked = [name for about, name in wanted if about == query]
                for each in count_names(release, engine.log.table(query, release.number), looked):
                    found.setdefault((query, each["name"]), []).append((each["value"], *each["interval"]))
    return found


@contextmanager
def _engine(config: Config, clock: Callable[[], float]) -> Iterator[Engine]:
    """Open an engine on this machine, or on two that are simulated in this process."""
    if not config.stream.machines:
        with Engine(config, clock=clock, elapsed=clock) as engine:
            yield engine
        return
    with tempfile.TemporaryDirectory() as folder:
        transport = InProcessTwoPartyTransport(Path(folder), config.stream.name)
        stored = replace(config, directory=Path(folder) / "front")
        with open_engine(stored, transport=transport, clock=clock, elapsed=clock) as engine:
            yield engine


def measured(views: list[VIEW], profile: str, runs: int, visitors: int = 2_000) -> str:
    everything = truths(views, None)
    config = day_config(profile, visitors)
    caps = {query.name: query.contributions for query in config.queries}
    found = measure(views, config, runs)
    rows = []
    for (query, name), answers in found.items():
        truth = truths(views, caps[query])[query, name]
        whole = everything[query, name]
        inside = sum(low <= truth <= high for _, low, high in answers)
        mean = sum(value for value, _, _ in answers) / runs
        reach = sum(high - low for _, low, high in answers) / (2 * runs)
        bias = "" if truth == whole else f"{100 * (truth / whole - 1):+.1f}%"
        rows.append(
            (
                query,
                name[:40],
                f"{whole:,}",
                f"{truth:,}",
                bias,
                f"{mean:,.0f}",
                f"±{100 * reach / max(whole, 1):.0f}%",
                str(inside),
            )
        )
    head = ("question", "name", "all", "counted", "bias of cap", "answer, mean", "95%", f"inside, of {runs}")
    return format_table(f"{profile}: a real log of {len(views):,} page views", head, rows, right=(2, 3, 4, 5, 6, 7))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--data", type=Path, help=f"where {NASA} is; without it, the bundled sample")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--copies", type=int, help="measure the counter on so many copies of the visitors, only")
    given = parser.parse_args()
    views = views_of(SAMPLE if given.data is None else given.data / NASA)
    if given.copies is not None:
        logs = [views, *([] if given.data is None else [messages_of(given.data / MESSAGES)])]
        larger = [copied(log, given.copies) for log in logs]
        text = "\n\n".join(measured(log, "counter", given.runs, len({host for host, _, _ in log})) for log in larger)
    else:
        text = "\n\n".join([planned(), *(measured(views, profile, given.runs) for profile in PROFILES)])
    print(text)
    if given.out is not None:
        given.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
