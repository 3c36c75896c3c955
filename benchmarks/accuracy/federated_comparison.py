"""The federated table of docs/explanation/federated.md: every method, both forms of the thesis's, on 20 splits.

    python -m benchmarks.accuracy.federated_comparison --diabetes data/diabetes43.csv.gz
    python -m benchmarks.accuracy.federated_comparison --adult data/adult.csv.gz

Cross entropy on the held-out fifth at 3, 10 and 30 holders and four budgets. Every run is added to the file --runs as
soon as it is done, and a stopped command goes on where it was. Means, deviations and tables are made from that file.
``tools/prepare_diabetes.py`` writes the Diabetes table; Adult is UCI's, with the columns of
examples/data/adult-domain.toml.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pandas as pd

from panstream.models.networks.domain import Domain
from panstream.models.networks.records import Records
from panstream.papers.diabetes_table import read_table
from panstream.papers.figures.networks import PRINTED, SUMMED, ExperimentSetting, held_out, measure, references
from panstream.primitives.noise import SeededSource

HOLDERS = (3, 10, 30)
BUDGETS = (0.1, 0.5, 1.0, 2.0)
SPLITS = 20
THESIS = ("noisy ss (3.5)", "noisy mv (3.6)", "noisy model (3.7)")
OTHERS = ("private independent", "panstream: Gaussian sums", "panstream: federated tree")
LEFT_OUT = ("mean of local scores",)  # which only the figures show
KEYS = ["data", "holders", "epsilon", "method"]
HERE = Path(__file__).parent


def records(data: str, path: str) -> Records:
    if data == "diabetes":
        return read_table(str(Path(path).parent))
    return Records.load(Path(path), Domain.load(HERE.parent / "examples" / "data" / "adult-domain.toml"))


def split(data: str, path: str, holders: int, number: int) -> list[tuple[str, int, float, str, int, float]]:
    settings = [ExperimentSetting(holders=holders, epsilon=epsilon) for epsilon in BUDGETS]
    seed = SeededSource(1000 * number + holders)
    world = held_out(records(data, path), number)
    measured = measure(world, settings, seed, without=LEFT_OUT)
    found = [(holders, each.epsilon, bits) for each, bits in zip(settings, measured, strict=True)]
    if holders == HOLDERS[0]:
        found.append((0, math.inf, references(world, degree=1)))
    return [(data, *where, method, number, bits) for *where, each in found for method, bits in each.items()]


def run(data: str, path: str, runs: Path, jobs: int) -> None:
    done = set()
    if runs.exists():
        frame = pd.read_csv(runs)
        done = set(frame[frame["data"] == data][["holders", "split"]].itertuples(index=False, name=None))
    waiting = [(holders, number) for number in range(SPLITS) for holders in HOLDERS if (holders, number) not in done]
    with ProcessPoolExecutor(jobs) as pool:
        for rows in [pool.submit(split, data, path, *each) for each in waiting]:
            frame = pd.DataFrame(rows.result(), columns=[*KEYS, "split", "bits"])
            frame.to_csv(runs, mode="a", header=not runs.exists(), index=False)


def lines(table: pd.DataFrame, data: str) -> Iterator[str]:
    """Yield the Markdown table of the documentation."""
    cells = table[table["data"] == data].set_index(KEYS[1:])
    shown = [name + form for name in THESIS for form in (PRINTED, SUMMED)] + list(OTHERS)
    heads = [name.replace("noisy ", "").replace("panstream: ", "") for name in shown]
    yield f"| {data.title()}: M | ε | " + " | ".join(heads) + " |"
    yield "| --- " * (2 + len(shown)) + "|"
    for holders in HOLDERS:
        for epsilon in BUDGETS:
            row = [cells.loc[(holders, epsilon, name)] for name in shown]
            yield f"| {holders} | {epsilon:g} | " + " | ".join(f"{x['mean']:.2f} ± {x['std']:.2f}" for x in row) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare all methods on 20 splits.")
    parser.add_argument("--diabetes", help="the prepared table, with its domain beside it")
    parser.add_argument("--adult", help="adult.csv.gz")
    parser.add_argument("--runs", type=Path, default=Path("federated_runs.csv"), help="single runs are kept here")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    given = parser.parse_args()
    for data in ("diabetes", "adult"):
        if path := getattr(given, data):
            run(data, path, given.runs, given.jobs)
    table = pd.read_csv(given.runs).groupby(KEYS, sort=False)["bits"].agg(["mean", "std", "count"]).reset_index()
    table.round(4).to_csv(HERE / "federated_results.csv", index=False)
    for data in table["data"].unique():
        print("\n".join(lines(table, data)), end="\n\n")


if __name__ == "__main__":
    main()
