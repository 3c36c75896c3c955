"""Smart meters: one home's live mean and variance, and a neighbourhood's demand from 1,000 meters that never tell.

First the bundled home: 60 readings fill each hour's slot, and at its end mean and variance so far are published. One
reading is protected, whatever hour it fell into. Then 1,000 simulated meters, each with noise of its own on every
sum it keeps: the utility adds up what they publish, and the noise grows with sqrt(1000) only.
"""

import csv
import gzip
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from shared.band_plot import draw, target

from panstream import ContinualMean, ContinualSum, ContinualVariance

EPSILON = 1.0  # kilowatts: what the main fuse lets through
MOST = 10.0
METERS = 1000


def readings() -> np.ndarray:
    with gzip.open(Path(__file__).parent / "data" / "household_power.csv.gz", "rt") as file:
        kilowatts = [float(row["kilowatts"]) for row in csv.DictReader(file) if row["kilowatts"]]
    return np.array(kilowatts[: len(kilowatts) // 60 * 60]).reshape(-1, 60)


def home(hours: np.ndarray) -> dict[str, list]:
    shared = {"horizon": len(hours), "lower": 0.0, "upper": MOST}
    monitors = [kind(epsilon=EPSILON / 2, **shared).start() for kind in (ContinualMean, ContinualVariance)]
    answers: dict[str, list] = {"mean": [], "variance": []}
    for hour in hours:
        for monitor, column in zip(monitors, answers.values(), strict=True):
            monitor.update(hour)
            column.append(monitor.tick())
    return answers


def neighbourhood(hours: np.ndarray, console: Console) -> tuple[np.ndarray, ...]:
    chance = np.random.default_rng(1)
    hourly = hours.mean(axis=1)
    shared = {"horizon": len(hours), "lower": 0.0, "upper": MOST}
    meter = ContinualSum(epsilon=EPSILON, unit="slot", one_step_ticks=True, **shared)
    truth, published, variance = np.zeros((3, len(hours)))
    for _ in track(range(METERS), "reading 1,000 meters", console=console, transient=True):
        usage = np.clip(np.roll(hourly, 24 * chance.integers(13)) * chance.uniform(0.3, 1.7), 0, MOST)
        answers = meter.start().tick_many(usage)
        truth = truth + np.cumsum(usage)
        published = published + answers.unclipped
        variance += answers.standard_error**2
    return tuple(sums / np.arange(1, len(hours) + 1) for sums in (truth, published, 1.96 * np.sqrt(variance)))


def main() -> None:
    out = target(__doc__, "smart_meters.png")
    console = Console()
    hours = readings()
    answers, (demand, published, half) = home(hours), neighbourhood(hours, console)
    so_far = [hours[: n + 1].ravel() for n in range(len(hours))]
    truth = {"mean": [x.mean() for x in so_far], "variance": [x.var(ddof=1) for x in so_far]}
    table = Table(title="Power so far (kW), published and true; one reading, or one meter's hour, is protected")
    for column in ("after hour", "home: mean", "true", "variance", "true", "1,000 meters: mean demand", "true"):
        table.add_column(column, justify="right")
    for at in (11, 23, 47, 95, 167, 239, len(hours) - 1):
        mean = answers["mean"][at]
        variance = answers["variance"][at]
        row = [f"{mean.value:.2f} ± {1.96 * mean.standard_error:.2f}", f"{truth['mean'][at]:.2f}"]
        row += [f"{variance.value:.2f} ± {1.96 * variance.standard_error:.2f}", f"{truth['variance'][at]:.2f}"]
        table.add_row(str(at + 1), *row, f"{published[at]:,.0f} ± {half[at]:,.0f}", f"{demand[at]:,.0f}")
    console.print(table)
    x = np.arange(1, len(hours) + 1)
    panels = []
    for name, column in answers.items():
        low, high = np.array([estimate.interval() for estimate in column]).T
        values = [estimate.value for estimate in column]
        panel = {"x": x, "low": low, "high": high, "estimate": values, "truth": truth[name], "xlabel": "hour"}
        panels.append(panel | {"title": f"one home: {name}", "ylabel": "kW" if name == "mean" else "kW²"})
    panel = {"x": x, "low": published - half, "high": published + half, "estimate": published, "truth": demand}
    draw(out, [*panels, panel | {"title": "1,000 private meters", "xlabel": "hour", "ylabel": "kW", "ylim": (0, 3000)}])


if __name__ == "__main__":
    main()
