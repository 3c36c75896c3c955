"""Distinct counts of the fastest databases on one thread, on the same Arrow column as ours, and what ran them.

Peers that are not installed are left out. Times are CPU time, which other work on the machine disturbs least; rounds
take turns, and a ratio is shown with its lowest and highest round.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import pyarrow as pa

ROUNDS = 7
FLAGS = ("avx2", "avx512f", "vaes", "bmi2", "sha_ni")
Call = Callable[[], object]


def machine() -> dict[str, str]:
    """Return the processor, those of its flags that the kernels depend on, and how busy the machine is."""
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.exists() else ""
    facts = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    facts = {name.strip(): value.strip() for name, value in facts.items()}
    name = facts.get("model name", platform.processor() or platform.machine())
    family = f", family {facts['cpu family']} model {facts['model']}" if "cpu family" in facts else ""
    flags = set(facts.get("flags", "").split())
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return {
        "processor": name + family,
        "flags": " ".join(flag for flag in FLAGS if flag in flags) or "unknown",
        "cores": str(os.cpu_count()),
        "load": load,
    }


def described(facts: dict[str, str] | None = None) -> str:
    """Return the facts of a machine in a line; of this one unless they are given."""
    facts = facts or machine()
    return f"{facts['processor']} ({facts['flags']}), {facts['cores']} cores, load {facts['load']}"


def anchors(column: Any) -> dict[str, Call]:
    """Return one query for each database that is installed; the column is where that database wants it."""
    makers = {"datafusion": _datafusion, "chdb": _clickhouse, "duckdb": _duckdb, "polars": _polars}
    found: dict[str, Call] = {}
    for module, make in makers.items():
        if importlib.util.find_spec(module) is None:
            print(f"{module} is not installed: left out")
        else:
            name, call = make(pa.table({"x": column}))
            found[name] = call
    return found


def _datafusion(table: pa.Table) -> tuple[str, Call]:
    from datafusion import SessionConfig, SessionContext

    context = SessionContext(SessionConfig().with_target_partitions(1))
    context.register_record_batches("data", [table.to_batches()])
    return "DataFusion approx_distinct", lambda: context.sql("SELECT approx_distinct(x) FROM data").collect()


def _clickhouse(table: pa.Table) -> tuple[str, Call]:
    from chdb import session

    database = session.Session()
    name = f"data{id(table)}"
    database.query("CREATE DATABASE IF NOT EXISTS peers")
    database.query(f"CREATE TABLE peers.{name} ENGINE = Memory AS SELECT x FROM Python(table)")
    query = f"SELECT uniq(x) FROM peers.{name} SETTINGS max_threads = 1"
    return "ClickHouse uniq", lambda: database.query(query, "CSV")


def _duckdb(table: pa.Table) -> tuple[str, Call]:
    import duckdb

    database = duckdb.connect(config={"threads": 1})
    database.register("data", table)
    query = "SELECT approx_count_distinct(x) FROM data"
    return "DuckDB approx_count_distinct", lambda: database.execute(query).fetchall()


def _polars(table: pa.Table) -> tuple[str, Call]:
    import polars

    series = polars.from_arrow(table)["x"]  # type: ignore[index]
    return "Polars approx_n_unique", series.approx_n_unique


def cpu_seconds(call: Call) -> float:
    """Return the CPU time of a call, of all threads of this process."""
    start = time.process_time()
    call()
    return time.process_time() - start


def in_turns(calls: dict[str, Call], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Return the CPU seconds of every call in every round; a first round warms up and does not count."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for round_ in range(rounds + 1):
        for name, call in calls.items():
            seconds = cpu_seconds(call)
            if round_:
                found[name].append(seconds)
    return found


def ratio(ours: list[float], theirs: list[float]) -> tuple[float, float, float]:
    """Return the median of how many times faster ours was, and its lowest and highest round."""
    found = [other / mine for mine, other in zip(ours, theirs, strict=True)]
    return statistics.median(found), min(found), max(found)
