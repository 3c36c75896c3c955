"""Two real streams through the engine again and again: do the 95% intervals hold what they promise?

python -m benchmarks.accuracy.real_streams [--runs 200] [--data DIRECTORY]

A web log (NASA, part of one day of 1995) and a shop's invoices (Online Retail, cancellations are negative quantities)
from the directory named by PANSTREAM_DATA or --data, each with one configuration of several questions. Every run starts
from fresh noise. "coverage" is the share of answers whose interval holds the true answer, which DuckDB computes without
panstream; answers of one run depend on each other, so the band is 0.95 less four standard errors between runs.
Intervals may cover more: those of sketches allow for the worst case.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from panstream.engine.config.config import read_config
from panstream.engine.reporting.export import history
from panstream.engine.rows.row_batch import RowSchema
from panstream.engine.runtime.engine import Engine
from panstream.engine.runtime.ingest import ingest_all
from panstream.engine.runtime.selector import Selector
from panstream.engine.sources import TableSource

PROMISED = 0.95
Truths = Mapping[str, Sequence[float]]


@dataclass(slots=True)
class Case:
    """A stream, its questions, and the true answers in the order in which answers come."""

    name: str
    table: pa.Table
    config: dict[str, Any]
    truths: dict[str, list[float]]
    hits: dict[str, list[float]] = field(default_factory=dict)
    seen: dict[str, list[float]] = field(default_factory=dict)

    def run(self) -> None:
        """Answer all questions once, and note how many intervals hold the truth."""
        config = read_config(self.config)
        schema = RowSchema.of(config.stream, config.needed_columns)
        source = TableSource(self.table.combine_chunks(), schema)
        with Selector(config) as select, Engine(config) as engine:
            ingest_all(engine, source, select)
            engine.finish()
            found = history(engine)
        for name, truths in self.truths.items():
            records = [release.record for release in found[name]]
            if len(records) != len(truths):
                raise SystemExit(f"{self.name}, {name}: {len(records)} answers, expected {len(truths)}")
            inside = [_holds(record, truth) for record, truth in zip(records, truths, strict=True)]
            self.hits.setdefault(name, []).append(statistics.fmean(inside))
            self.seen.setdefault(name, []).append(records[-1]["value"])

    def rows(self) -> list[tuple[str, float, float, float, float, float, int]]:
        """Return name, truth, mean and deviation of the last answer, coverage, the least that is fine, answers a
        run.
        """
        found = []
        for name, hits in self.hits.items():
            single = math.sqrt(PROMISED * (1 - PROMISED) / len(hits))
            spread = statistics.stdev(hits) / math.sqrt(len(hits)) if len(hits) > 1 else single
            least = PROMISED - 4 * (single if len(self.truths[name]) == 1 else max(spread, single / 4))
            values = self.seen[name]
            spread_of = statistics.stdev(values) if len(values) > 1 else 0.0
            truths = self.truths[name]
            found.append(
                (name, truths[-1], statistics.fmean(values), spread_of, statistics.fmean(hits), least, len(truths))
            )
        return found


def _holds(record: Mapping[str, Any], truth: float) -> bool:
    low, high = record["interval"]
    return (low is None or low <= truth) and (high is None or truth <= high)


def question(name: str, sql: str, epsilon: float = 1.0, **settings: Any) -> dict[str, Any]:
    return {"name": name, "sql": sql, "epsilon": epsilon, **settings}


def truth(table: pa.Table, sql: str) -> list[float]:
    """Return the first column of a query's rows, by DuckDB."""
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    connection.register("s", table)
    return [float(row[0]) for row in connection.execute(sql).fetchall()]


def web_log(table: pa.Table) -> Case:
    """Questions to a web log: host, time (seconds), response, bytes."""
    hosts = table["host"].unique().to_pylist()
    known = hosts + [f"host-{number}.example.org" for number in range(2000)]
    codes = ["200", "304", "302", "404"]
    hours = "SELECT DISTINCT time // 3600 AS h FROM s"
    queries = [
        question("hosts", "SELECT COUNT(DISTINCT host) FROM log", expected=2500),
        question("known hosts", "SELECT DENSITY(host) FROM log", universe=known),
        question("requests", "SELECT COUNT(*) FROM log", every="1 hour", horizon=24),
        question("bytes", "SELECT AVG(bytes) FROM log WHERE response = '200'", lower=0, upper=50_000),
        question("spread", "SELECT STDDEV_POP(bytes) FROM log", lower=0, upper=50_000),
        question("hosts an hour", "SELECT COUNT(DISTINCT host) FROM log", epsilon=2.0, expected=400, window="1 hour"),
        question("large", "SELECT QUANTILE_CONT(bytes, 0.9) FROM log", lower=0, upper=1 << 17),
        question("active", "SELECT CROPPED_SUM(host, 1, 10) FROM log", epsilon=2.0, expected=1 << 15),
        question("responses", "SELECT response, COUNT(*) FROM log GROUP BY response", groups={"response": codes}),
    ]
    clipped = "least(greatest(bytes, 0), 50000)::DOUBLE"
    truths = {
        "hosts": truth(table, "SELECT count(DISTINCT host) FROM s"),
        "known hosts": [len(hosts) / len(known)],
        "requests": truth(table, f"SELECT (SELECT count(*) FROM s WHERE time // 3600 <= h) FROM ({hours}) ORDER BY h"),
        "bytes": truth(table, f"SELECT avg({clipped}) FROM s WHERE response = '200'"),
        "spread": truth(table, f"SELECT stddev_pop({clipped}) FROM s"),
        "hosts an hour": truth(table, "SELECT count(DISTINCT host) FROM s GROUP BY time // 3600 ORDER BY time // 3600"),
        "large": truth(table, "SELECT quantile_disc(bytes, 0.9) FROM s"),
        "active": truth(table, "SELECT sum(least(n, 10)) FROM (SELECT count(*) AS n FROM s GROUP BY host)"),
        **{
            f"responses [response={code}]": truth(table, f"SELECT count(*) FROM s WHERE response = '{code}'")
            for code in codes
        },
    }
    columns = {"host": "string", "time": "int", "response": "string", "bytes": "int"}
    stream = {"name": "log", "user": "host", "time": "time", "columns": columns}
    return Case("web log", table, {"stream": stream, "query": queries}, truths)


def retail(table: pa.Table) -> Case:
    """Questions to invoice lines that add and take away: customer, quantity, price, country, date."""
    countries = ["United Kingdom", "Germany", "France", "EIRE"]
    people = {"universe": 20_000, "max_weight": 100_000}
    signed = "least(greatest(quantity, -500), 500)"
    value = "least(greatest(quantity * price, -2000.0), 2000.0)"
    months = "SELECT DISTINCT epoch(date)::BIGINT // 2592000 AS m FROM s"
    queries = [
        question("customers", "SELECT COUNT(DISTINCT customer) FROM shop", **people),
        question("units", "SELECT SUM(quantity) FROM shop", lower=-500, upper=500),
        question(
            "turnover", "SELECT SUM(quantity * price) FROM shop", lower=-2000, upper=2000, every="30 days", horizon=13
        ),
        question(
            "units by country",
            "SELECT country, SUM(quantity) FROM shop GROUP BY country",
            lower=-500,
            upper=500,
            groups={"country": countries},
        ),
        question("up to 100 units", "SELECT CROPPED_SUM(customer, quantity, 100) FROM shop", epsilon=2.0, **people),
        question(
            "1000 units or more",
            "SELECT HEAVY_HITTERS(customer, quantity, 1000) FROM shop",
            epsilon=2.0,
            lower=-1000,
            **people,
        ),
    ]
    net = "(SELECT customer, sum(quantity) AS n FROM s GROUP BY customer)"
    truths = {
        "customers": truth(table, f"SELECT count(*) FROM {net} WHERE n <> 0"),
        "units": truth(table, f"SELECT sum({signed}) FROM s"),
        "turnover": truth(
            table,
            f"SELECT (SELECT sum({value}) FROM s WHERE epoch(date)::BIGINT // 2592000 <= m) FROM ({months}) ORDER BY m",
        ),
        "up to 100 units": truth(table, f"SELECT sum(least(abs(n), 100)) FROM {net}"),
        "1000 units or more": truth(table, f"SELECT count(*) FROM {net} WHERE n >= 1000"),
        **{
            f"units by country [country={each}]": truth(table, f"SELECT sum({signed}) FROM s WHERE country = '{each}'")
            for each in countries
        },
    }
    columns = {"customer": "int", "quantity": "int", "price": "double", "country": "string", "date": "timestamp"}
    stream = {"name": "shop", "user": "customer", "weight": "quantity", "time": "date", "columns": columns}
    return Case("retail", table, {"stream": stream, "query": queries}, truths)


def read_web_log(directory: Path) -> pa.Table:
    import pyarrow.csv as csv

    table = csv.read_csv(
        directory / "nasa_19950801.tsv.gz",
        read_options=csv.ReadOptions(encoding="latin1"),
        parse_options=csv.ParseOptions(delimiter="\t", quote_char=False),
    )
    return table.select(["host", "time", "response", "bytes"]).cast(
        pa.schema([("host", pa.string()), ("time", pa.int64()), ("response", pa.string()), ("bytes", pa.int64())])
    )


def read_retail(directory: Path) -> pa.Table:
    """Return the lines that have a customer: others belong to nobody and would be bad rows."""
    import pyarrow.compute as compute
    import pyarrow.parquet as parquet

    table = parquet.read_table(directory / "online_retail.parquet")
    table = table.filter(compute.is_valid(table["CustomerID"]))
    names = {
        "CustomerID": "customer",
        "Quantity": "quantity",
        "UnitPrice": "price",
        "Country": "country",
        "InvoiceDate": "date",
    }
    return table.select(list(names)).rename_columns(list(names.values()))


def report(case: Case) -> bool:
    good = True
    print(f"\n{case.name}: {case.table.num_rows:,} rows, {len(next(iter(case.hits.values())))} runs")
    print(f"{'question':<38}{'truth':>13}{'mean answer':>13}{'sd':>11}{'answers':>9}{'coverage':>10}{'at least':>10}")
    for name, true, mean, spread, coverage, least, answers in case.rows():
        fine = coverage >= least
        good &= fine
        figures = f"{true:>13,.6g}{mean:>13,.6g}{spread:>11,.4g}{answers:>9}{coverage:>10.3f}{least:>10.3f}"
        print(f"{name:<38}{figures}  {'pass' if fine else 'FAIL'}", flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--data", type=Path, default=os.environ.get("PANSTREAM_DATA"))
    options = parser.parse_args()
    if options.data is None:
        raise SystemExit("set PANSTREAM_DATA to the directory that holds the data files")
    data = Path(options.data)
    good = True
    for case in (web_log(read_web_log(data)), retail(read_retail(data))):
        for _ in range(options.runs):
            case.run()
        good &= report(case)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
