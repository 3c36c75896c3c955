"""The functions for published sketches in Spark: the same numbers as in Python, from a table that panstream wrote.

    python -m benchmarks.soak.spark_sketches

Needs PySpark and Java (``make spark``). Windows of users that overlap are published, written as Parquet, and read by
Spark, which counts, compares and unites them; exit code 1 if a number differs from what `Sketch` says.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from panstream.algorithms.distinct import Sketch, SketchBitmap, register_spark
from panstream.engine.reporting.sketch_store import StoredSketch, write_sketches

WEEK = 604_800.0
WEEKS = 4
START = 2_900 * WEEK


def published() -> list[StoredSketch]:
    """Return windows of 10,000 users, of whom 3,000 come again in the next."""
    sketches = []
    for week in range(WEEKS):
        monitor = SketchBitmap(epsilon=2.0, buckets=16_384).start()
        monitor.update(range(7_000 * week, 7_000 * week + 10_000))
        monitor.release()
        start = START + week * WEEK
        sketches.append(StoredSketch("weeks", Sketch.of(monitor, "weeks", start, start + WEEK)))
    return sketches


def differs(name: str, row: Any, estimate: Any) -> bool:
    """Print an answer of Spark, and return whether it is another than ``estimate``."""
    wanted = (estimate.value, *estimate.interval())
    drawn = tuple(row.asDict().values()) if row is not None else ()
    same = len(drawn) == 3 and all(
        math.isclose(one, other, rel_tol=1e-12) or (math.isnan(one) and math.isnan(other))
        for one, other in zip(drawn, wanted, strict=True)
    )
    print(f"{name:32} {', '.join(f'{number:,.1f}' for number in drawn):30} {'ok' if same else f'DIFFERS: {wanted}'}")
    return not same


def main() -> int:
    """Compare all answers; return the exit code."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # executors need panstream, too
    stored = published()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sketches.parquet"
        write_sketches(stored, path)
        session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        register_spark(session)
        session.read.parquet(str(path)).createOrReplaceTempView("weeks")
        sketches = [one.sketch for one in stored]
        counts = session.sql("SELECT sketch_count(sketch) AS users FROM weeks ORDER BY start").collect()
        pairs = session.sql(
            "SELECT sketch_overlap(a.sketch, b.sketch) AS users FROM weeks a JOIN weeks b "
            "ON b.start = a.end ORDER BY a.start"
        ).collect()
        unions = session.sql("SELECT sketch_union(collect_list(sketch)) AS users FROM weeks").collect()
        fields = session.sql("SELECT sketch_count(sketch).value AS value FROM weeks ORDER BY start").collect()
        session.stop()
    wrong = [len(counts) != WEEKS, len(pairs) != WEEKS - 1]
    wrong += [differs(f"count, week {i + 1}", row.users, sketches[i].count()) for i, row in enumerate(counts)]
    wrong += [
        differs(f"overlap, weeks {i + 1} and {i + 2}", row.users, sketches[i].intersection(sketches[i + 1]))
        for i, row in enumerate(pairs)
    ]
    wrong += [differs("union of all weeks", row.users, sketches[0].union(*sketches[1:])) for row in unions]
    wrong += [not math.isclose(row.value, sketch.count().value) for row, sketch in zip(fields, sketches, strict=True)]
    print("all as in Python" if not any(wrong) else "SPARK DIFFERS")
    return int(any(wrong))


if __name__ == "__main__":
    sys.exit(main())
