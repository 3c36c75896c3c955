"""Error against the length of the stream, for every continual counter: run to CSV, then plot from it.

    python -m benchmarks.accuracy.continual_error run     # writes the CSV beside this file, about three minutes
    python -m benchmarks.accuracy.continual_error plot    # draws docs/pictures/continual_error.svg and .png from it

The figure is the mean over all slots of the squared error, times epsilon², on an empty stream with ticks of one step:
what the counters' own standard errors predict, and what was measured. A window or a decayed sum answers another
question; they are drawn against the length of their (effective) window.
"""

import argparse
import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from panstream.algorithms.continual.decayed_sum import DecayedSum
from panstream.algorithms.continual.sums import ContinualCount
from panstream.algorithms.continual.windowed_sum import WindowedSum
from panstream.errors import MissingExtra
from panstream.papers.counters.binary import BinaryMechanism
from panstream.papers.counters.event_counter import EventCounter
from panstream.papers.counters.hybrid import HybridMechanism
from panstream.papers.counters.simple_counters import SimpleCounterI, SimpleCounterII
from panstream.primitives.noise import SeededSource

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_suffix(".csv")
PICTURE = ROOT / "docs" / "pictures" / "continual_error"
EPSILON = 0.1
SHARED: dict[str, Any] = {"epsilon": EPSILON, "one_step_ticks": True}
POWERS = range(6, 21)
Build = Callable[[int], Any]

COUNTERS: dict[str, Build] = {
    "simple I": lambda t: SimpleCounterI(**SHARED, horizon=t),
    "simple II (unbounded)": lambda t: SimpleCounterII(**SHARED),
    "hybrid, event-level (unbounded)": lambda t: HybridMechanism(**SHARED, bounded="EventCounter"),
    "hybrid, binary (unbounded)": lambda t: HybridMechanism(**SHARED),
    "event-level": lambda t: EventCounter(**SHARED, horizon=t),
    "binary": lambda t: BinaryMechanism(**SHARED, horizon=t),
    "default tree (unbounded)": lambda t: ContinualCount(**SHARED),
    "default tree": lambda t: ContinualCount(**SHARED, horizon=t),
    "window of T slots": lambda t: WindowedSum(**SHARED, window=t),
    "exponential decay 1 - 1/T": lambda t: DecayedSum(**SHARED, decay="exponential", rate=1 - 1 / t),
}


def measure(build: Build, slots: int, runs: int, seed: int) -> tuple[float, float]:
    """Return predicted and measured mean squared error times epsilon²; a window is measured once it is full."""
    rng = SeededSource(seed)
    squared = []
    predicted = 0.0
    for _ in range(runs):
        counter = build(slots)
        warm = slots if isinstance(counter, WindowedSum | DecayedSum) else 0
        answers = counter.tick_many(counter.initial_state(rng), np.zeros(warm + slots, np.int64), rng)
        squared.append(float((answers.unclipped[warm:] ** 2).mean()))
        predicted = float((answers.standard_error[warm:] ** 2).mean())
        rng.close()
    return predicted * EPSILON**2, float(np.mean(squared)) * EPSILON**2


def run(target: Path, powers: list[int]) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with target.open("w", newline="") as file, Progress(*columns) as progress:
        writer = csv.writer(file)
        writer.writerow(["counter", "slots", "runs", "predicted", "measured"])
        task = progress.add_task("", total=len(powers) * len(COUNTERS))
        for power in powers:
            runs = max(2, min(100, (1 << 18) >> power))
            for seed, (name, build) in enumerate(COUNTERS.items()):
                progress.update(task, description=f"T = 2^{power:<2} {name:<32}")
                predicted, measured = measure(build, 1 << power, runs, 100 * power + seed)
                writer.writerow([name, 1 << power, runs, f"{predicted:.6g}", f"{measured:.6g}"])
                progress.advance(task)


def plot(table: Path, picture: Path) -> None:
    try:
        from matplotlib import pyplot as plt
    except ImportError:
        raise MissingExtra("plotting", "plots") from None
    with table.open() as file:
        rows = list(csv.DictReader(file))
    plt.rcParams.update({"font.size": 9, "svg.hashsalt": "panstream"})
    figure, axes = plt.subplots(figsize=(9.5, 5))
    colours = plt.get_cmap("tab20").colors
    for name, colour in zip(COUNTERS, colours[::2] + colours[1::2], strict=False):
        mine = [row for row in rows if row["counter"] == name]
        slots = [int(row["slots"]) for row in mine]
        style = "-" if "default" in name else ":" if "window" in name or "decay" in name else "--"
        width = 2.2 if "default" in name else 1.2
        axes.plot(slots, [float(row["predicted"]) for row in mine], style, lw=width, color=colour, label=name)
        axes.plot(slots, [float(row["measured"]) for row in mine], "o", ms=3, color=colour)
    axes.set(xscale="log", yscale="log", xlabel="slots T", ylabel="mean squared error × epsilon²", ylim=(30, 1e8))
    axes.set_xscale("log", base=2)
    axes.set_title("Pan-private counters: lines predicted, dots measured (few runs where T is large)")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    figure.tight_layout()
    for suffix in (".svg", ".png"):
        figure.savefig(picture.with_suffix(suffix), metadata={"Date": None} if suffix == ".svg" else None, dpi=110)
        print(picture.with_suffix(suffix))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "plot"))
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    parser.add_argument("--largest", type=int, default=POWERS[-1], help="largest power of two")
    arguments = parser.parse_args()
    if arguments.what == "run":
        run(arguments.table, [power for power in POWERS if power <= arguments.largest])
    else:
        plot(arguments.table, arguments.picture)


if __name__ == "__main__":
    main()
