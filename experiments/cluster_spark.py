"""Distinct users of a Spark DataFrame: runs panstream.cluster.spark on a local Spark and checks the answer.

make spark
"""

from __future__ import annotations

from panstream.cluster.spark import distinct


def main() -> None:
    from pyspark.sql import SparkSession, functions

    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        frame = session.range(0, 400_000, 1, 4).select(
            functions.concat(functions.lit("user-"), (functions.col("id") % 100_000).cast("string")).alias("user")
        )
        estimate = distinct(frame, "user", epsilon=1.0, expected=100_000)
        print(estimate)
        assert abs(estimate.value / 100_000 - 1) < 6 * estimate.standard_error / 100_000
    finally:
        session.stop()


if __name__ == "__main__":
    main()
