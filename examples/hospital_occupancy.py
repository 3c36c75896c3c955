"""Beds in use: admissions count +1, discharges -1, and the balance is published every hour for sixty days.

A stay is an admission and a discharge, so a patient is protected as a user of two rows: all 1,440 answers, the
announced copy of the memory and one more change the odds of a guess whether she was admitted by a factor of at most
e^epsilon. At midnight of day 30 the operator finds that the memory was copied, refreshes it, and goes on.
"""

import numpy as np
from rich.console import Console
from rich.table import Table
from shared.band_plot import draw, target

from panstream import ContinualCount

EPSILON = 1.0
DAYS = 60


def stays() -> tuple[np.ndarray, np.ndarray]:
    """Return admissions and discharges per hour: a busy town, a flu wave in the middle, stays of about five days."""
    chance = np.random.default_rng(11)
    hours = 24 * DAYS
    wave = 1 + 0.8 * np.exp(-(((np.arange(hours) / 24 - 30) / 7) ** 2))
    day = 1 + 0.6 * np.sin((np.arange(hours) % 24 - 8) / 24 * 2 * np.pi)
    admitted = chance.poisson(9 * wave * day)
    arrivals = np.repeat(np.arange(hours), admitted)
    leaves = arrivals + np.maximum(1, chance.lognormal(np.log(100), 0.7, arrivals.size).astype(int))
    discharged = np.bincount(leaves[leaves < hours], minlength=hours)
    return admitted, discharged


def main() -> None:
    out = target(__doc__, "hospital_occupancy.png")
    console = Console()
    admitted, discharged = stays()
    truth = np.cumsum(admitted - discharged)
    monitor = ContinualCount(epsilon=EPSILON, horizon=24 * DAYS, contributions=2).start()
    answers = []
    for hour in range(24 * DAYS):
        monitor.update([1] * int(admitted[hour]))
        monitor.update([-1] * int(discharged[hour]))
        answers.append(monitor.tick())
        if hour == 24 * 30 - 1:
            monitor.refresh()

    table = Table(title="Beds in use at noon", title_justify="left")
    for column in ("day", "published", "95% interval", "truth"):
        table.add_column(column, justify="right")
    for today in (2, 5, 10, 20, 30, 31, 40, 50, 60):
        at = 24 * (today - 1) + 11
        low, high = answers[at].interval()
        table.add_row(str(today), f"{answers[at].value:,.0f}", f"{low:,.0f} to {high:,.0f}", f"{truth[at]:,}")
    console.print(table)
    console.print(str(monitor.claim()))

    ends = np.array([estimate.interval() for estimate in answers])
    panel = {
        "x": np.arange(24 * DAYS) / 24 + 1,
        "low": ends[:, 0],
        "high": ends[:, 1],
        "estimate": [estimate.value for estimate in answers],
        "truth": truth,
        "title": "beds in use, published every hour",
        "xlabel": "day",
        "ylabel": "beds",
    }
    draw(out, [panel])


if __name__ == "__main__":
    main()
