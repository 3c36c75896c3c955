"""How many different visitors? Noisy counts of real logs, with interval and exact truth side by side.

One visitor is protected with all of her rows: one copy of the state and the answer change the odds of a guess about
her by a factor of at most e^epsilon.

Runs on a bundled web log. Set PANSTREAM_DATA to a directory with nasa_19950801.tsv.gz, CollegeMsg.txt.gz and
online_retail.parquet to add a message network and an online shop.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet
from rich.console import Console
from rich.table import Table

from panstream import DistinctCount

BUNDLED = Path(__file__).parent / "data" / "nasa_hosts.txt.gz"
EPSILON = 1.0
BATCH = 5_000


def logs() -> Iterator[tuple[str, Any, int]]:
    """Yield a name, a column of ids, and the number of visitors that one would expect without looking."""
    folder = Path(os.environ.get("PANSTREAM_DATA", ""))
    if not (folder / "nasa_19950801.tsv.gz").is_file():
        yield "web log: hosts", csv.read_csv(BUNDLED, csv.ReadOptions(column_names=["host"]))["host"], 2_000
        return
    tabbed = csv.ParseOptions(delimiter="\t", quote_char=False)
    yield "web log: hosts", csv.read_csv(folder / "nasa_19950801.tsv.gz", parse_options=tabbed)["host"], 2_000
    named = csv.ReadOptions(column_names=["source", "target", "time"])
    spaced = csv.ParseOptions(delimiter=" ")
    messages = csv.read_csv(folder / "CollegeMsg.txt.gz", named, spaced)
    users = pa.chunked_array([*messages["source"].chunks, *messages["target"].chunks])
    yield "messages: users", users, 2_000
    shop = parquet.read_table(folder / "online_retail.parquet", columns=["CustomerID"])
    yield "shop: customers", pc.drop_null(shop["CustomerID"]), 5_000


def main() -> None:
    table = Table(title=f"Different visitors, epsilon {EPSILON:g} for each count", title_justify="left")
    for heading in ("log", "rows", "estimate", "95% interval", "truth", "inside"):
        table.add_column(heading, justify="left" if heading == "log" else "right")
    for name, ids, expected in logs():
        monitor = DistinctCount(EPSILON, expected=expected).start()
        for start in range(0, len(ids), BATCH):
            monitor.update(ids.slice(start, BATCH))
        estimate = monitor.release()
        low, high = estimate.interval()
        truth = pc.count_distinct(ids).as_py()
        inside = "yes" if low <= truth <= high else "no, as 1 in 20"
        interval = f"{low:,.0f} to {high:,.0f}"
        table.add_row(name, f"{len(ids):,}", f"{estimate.value:,.0f}", interval, f"{truth:,}", inside)
    console = Console()
    console.print(table)
    console.print("Why this algorithm, for the first log:", style="bold")
    console.print(DistinctCount(EPSILON, expected=2_000).explain())


if __name__ == "__main__":
    main()
