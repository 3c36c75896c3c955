"""Smart meters: one home's live mean and variance, and the demand of 1,000 meters that add noise themselves.

First the bundled home: mean and variance so far, published every hour. One reading is protected, with all answers and
one copy of memory. Then 1,000 simulated meters with noise of their own: the sum has sqrt(1000) times the noise of one.
"""

from pathlib import Path

import numpy as np
from pyarrow.csv import read_csv
from rich.console import Console
from rich.progress import track
from rich.table import Table
from shared.band_plot import draw, target

from panstream import ContinualMean, ContinualSum, ContinualVariance

EPSILON = 1.0
MOST = 10.0  # kilowatts: what the main fuse lets through


def readings() -> np.ndarray:
    kilowatts = read_csv(Path(__file__).parent / "data" / "household_power.csv.gz")["kilowatts"].drop_null()
    return kilowatts.to_numpy()[: len(kilowatts) // 60 * 60].reshape(-1, 60)


def home(hours: np.ndarray) -> dict[str, list]:
    shared = {"epsilon": EPSILON / 2, "horizon": len(hours), "lower": 0.0, "upper": MOST}
    monitors = [kind(**shared).start() for kind in (ContinualMean, ContinualVariance)]
    answers: dict[str, list] = {"mean": [], "variance": []}
    for hour in hours:
        for monitor, column in zip(monitors, answers.values(), strict=True):
            monitor.update(hour)
            column.append(monitor.tick())
    return answers


def neighbourhood(hours: np.ndarray, console: Console) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(1)
    shared = {"horizon": len(hours), "lower": 0.0, "upper": MOST}
    meter = ContinualSum(epsilon=EPSILON, unit="slot", one_step_ticks=True, **shared)
    truth, published, variance = np.zeros((3, len(hours)))
    for _ in track(range(1000), "reading 1,000 meters", console=console, transient=True):
        usage = np.clip(np.roll(hours.mean(axis=1), 24 * random.integers(13)) * random.uniform(0.3, 1.7), 0, MOST)
        answers = meter.start().tick_many(usage)
        truth += np.cumsum(usage)
        published += answers.unclipped
        variance += answers.standard_error**2
    return tuple(sums / np.arange(1, len(hours) + 1) for sums in (truth, published, 1.96 * np.sqrt(variance)))


def main() -> None:
    out = target(__doc__, "smart_meters.png")
    console = Console()
    hours = readings()
    answers = home(hours)
    demand, published, half = neighbourhood(hours, console)
    so_far = [hours[: n + 1] for n in range(len(hours))]
    truth = {"mean": [x.mean() for x in so_far], "variance": [x.var(ddof=1) for x in so_far]}
    table = Table(title="Power so far (kW), published and true; one reading, or one meter's hour, is protected")
    for column in ("after hour", "home: mean", "true", "variance", "true", "1,000 meters: mean demand", "true"):
        table.add_column(column, justify="right")
    for at in (11, 23, 47, 95, 167, 239, len(hours) - 1):
        row = []
        for name, column in answers.items():
            row += [f"{column[at].value:.2f} ± {1.96 * column[at].standard_error:.2f}", f"{truth[name][at]:.2f}"]
        table.add_row(str(at + 1), *row, f"{published[at]:,.0f} ± {half[at]:,.0f}", f"{demand[at]:,.0f}")
    console.print(table)
    panels = []
    for name, column in answers.items():
        estimate, low, high = np.array([(answer.value, *answer.interval()) for answer in column]).T
        labels = {"title": f"one home: {name}", "ylabel": "kW" if name == "mean" else "kW²"}
        panels.append({"low": low, "high": high, "estimate": estimate, "truth": truth[name], **labels})
    labels = {"title": "1,000 private meters", "ylabel": "kW", "ylim": (0, 3000)}
    panels.append({"low": published - half, "high": published + half, "estimate": published, "truth": demand, **labels})
    draw(out, [{"x": np.arange(1, len(hours) + 1), "xlabel": "hour", **panel} for panel in panels])


if __name__ == "__main__":
    main()
