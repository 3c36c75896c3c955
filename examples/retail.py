"""A year of a web shop's orders and cancellations: who still holds anything, how much, how many hold a lot.

Each question has its own counter, which sees every order line as (customer, quantity) and forgets it. Beside the
noisy answers stand the exact ones, which need everything in the clear. Each question protects one customer with all
of her lines, against one copy of its state and its answer; the epsilons of the questions add up. Runs on the bundled
sample, or on ``online_retail.parquet`` in the directory named by PANSTREAM_DATA.
"""

import csv
import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream import HeavyHitterCount
from panstream.algorithms.turnstile import BlockCounter, LegendreCounter

# Customer numbers go from 12000 to 18999: public
FIRST = 12_000
NUMBERS = 7_000
EPSILON = 2.0
CROP = 500
HEAVY = 1_000
MIN_NET_WEIGHT = -500  # nobody is taken to send back 500 more than was bought this year


def order_lines() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    file = Path(os.environ.get("PANSTREAM_DATA", "")) / "online_retail.parquet"
    if file.exists():
        from pyarrow import parquet

        table = parquet.read_table(file, columns=["CustomerID", "Quantity"])
        table = table.filter(table["CustomerID"].is_valid())
        return table["CustomerID"].to_numpy().astype(np.int64), table["Quantity"].to_numpy().astype(np.int64)
    with gzip.open(Path(__file__).parent / "data" / "online_retail.csv.gz", "rt") as lines:
        rows = np.array([(int(row["CustomerID"]), int(row["Quantity"])) for row in csv.DictReader(lines)])
    return rows[:, 0], rows[:, 1]


def main() -> None:
    customers, quantities = order_lines()
    known: dict[str, Any] = {"universe": NUMBERS, "epsilon": EPSILON, "max_weight": 100_000}
    counters = {
        "customers whose net quantity is not 0": LegendreCounter(**known),
        f"sum of net quantities, each up to {CROP}": BlockCounter(**known, crop=CROP, largest=300_000),
        f"customers who hold {HEAVY:,} or more": HeavyHitterCount(
            **known, threshold=HEAVY, largest=300_000, min_net_weight=MIN_NET_WEIGHT
        ),
    }
    monitors = {name: counter.start() for name, counter in counters.items()}
    for start in range(0, customers.size, 50_000):
        rows = slice(start, start + 50_000)
        for monitor in monitors.values():
            monitor.update(customers[rows] - FIRST, weight=quantities[rows])

    net = np.bincount(customers - FIRST, quantities, NUMBERS)
    truths = (np.count_nonzero(net), np.minimum(np.abs(net), CROP).sum(), np.count_nonzero(net >= HEAVY))
    cancelled = np.count_nonzero(quantities < 0)
    print(f"{customers.size:,} order lines, {cancelled:,} of them returns; every question costs epsilon {EPSILON:g}\n")
    print(f"{'question':42}{'private':>11}{'95% interval':>25}{'exact':>11}")
    for (name, monitor), truth in zip(monitors.items(), truths, strict=True):
        estimate = monitor.release()
        low, high = estimate.interval()
        value = "between" if estimate.has_no_value else f"{estimate.value:,.0f}"
        print(f"{name:42}{value:>11}{f'{low:,.0f} to {high:,.0f}':>25}{truth:>11,.0f}")


if __name__ == "__main__":
    main()
