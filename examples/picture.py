"""Draw docs/pictures/clinic.svg: estimate and interval against the truth over a month, and what an intruder sees."""

import csv
import gzip
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

from panstream.algorithms.density import OptBern

ROOT = Path(__file__).parents[1]
PATIENTS = 50_000
EPSILON = 1.0
DAYS = 30


def main() -> None:
    with gzip.open(ROOT / "examples" / "data" / "clinic.csv.gz", "rt") as file:
        rows = [(int(row["time"][8:10]) - 1, int(row["patient"])) for row in csv.DictReader(file)]
    day, patient = np.array(rows).T
    monitor = OptBern(universe=PATIENTS, epsilon=EPSILON, releases=DAYS).start()
    truth = []
    value = []
    low = []
    high = []
    for today in range(DAYS):
        monitor.update(patient[day == today])
        estimate = monitor.release().scaled(PATIENTS, "patients")
        truth.append(np.unique(patient[day <= today]).size)
        value.append(estimate.value)
        low.append(estimate.interval()[0])
        high.append(estimate.interval()[1])
    days = np.arange(1, DAYS + 1)
    plt.rcParams.update({"font.size": 10, "svg.hashsalt": "panstream", "font.family": "sans-serif"})
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), width_ratios=(2, 1))
    left.fill_between(days, low, high, color="#b9d4ee", label="95% interval")
    left.plot(days, value, color="#1f5f9e", lw=1.8, label="published every evening")
    left.plot(days, truth, "k--", lw=1, label="truth (never stored)")
    left.set(xlabel="day of the month", ylabel="patients so far", title="30 daily releases, epsilon 1 in total")
    left.legend(frameon=False, loc="lower right")
    left.spines[["top", "right"]].set_visible(False)
    right.imshow(
        np.unpackbits(monitor.state.bits, bitorder="little")[: 100 * 100].reshape(100, 100),
        cmap="Blues",
        interpolation="nearest",
    )
    right.set(title="the memory an intruder copies", xticks=[], yticks=[], xlabel="10,000 of 50,000 noisy bits")
    figure.tight_layout()
    target = ROOT / "docs" / "pictures" / "clinic.svg"
    figure.savefig(target, metadata={"Date": None})
    print(target.name, target.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
