"""Shared by the federated experiments: data, methods, repetitions to CSV, pictures from CSV.

Data come from the directory named by PANSTREAM_DATA (or --data): diabetes43.csv.gz with diabetes43-domain.json,
adult.csv.gz. The network of seven attributes ships with panstream. Records are dealt round robin to the holders; for
real data a fifth is held out and cross entropy is measured there, for the network it is exact.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from panstream.federated import (
    AverageScores,
    FederatedTree,
    Federation,
    GaussianSums,
    Holder,
    IndependentMarginals,
    MajorityVoting,
    NoisyModel,
    NoisyStatistics,
)
from panstream.networks import BayesianNetwork, Domain, Records
from panstream.networks.baselines import fit_tables, greedy, independent, tables_of
from panstream.networks.files import seven_attributes
from panstream.networks.sampling import sample
from panstream.randomness import Source

DELTA = 1e-6
RECORDS = 40_000
FIELDS = ("data", "degree", "holders", "epsilon", "method", "repetition", "bits", "seconds")
Row = tuple[str, int, int, float, str, int, float, float]

THESIS = ("noisy ss (3.5)", "noisy ss (3.5), cut at holders", "noisy mv (3.6)", "noisy model (3.7)")
SCORES = ("mean of local scores", "median of local scores")
OURS = ("Gaussian sums", "federated tree")
PRIVATE_INDEPENDENT = ("private independent", "private independent, by size")
REFERENCES = ("independent, no privacy", "greedy, no privacy", "true network")


def private_methods(epsilon: float, degree: int) -> dict[str, Any]:
    """Every method at one budget; the thesis's are pure, ours and the private independent ones at delta = 1e-6."""
    return {
        THESIS[0]: NoisyStatistics(epsilon=epsilon, degree=degree),
        THESIS[1]: NoisyStatistics(epsilon=epsilon, degree=degree, clip_at_holder=True),
        THESIS[2]: MajorityVoting(epsilon=epsilon, degree=degree),
        THESIS[3]: NoisyModel(epsilon=epsilon, degree=degree),
        SCORES[0]: AverageScores(epsilon=epsilon, degree=degree, average="mean"),
        SCORES[1]: AverageScores(epsilon=epsilon, degree=degree, average="median"),
        OURS[0]: GaussianSums(epsilon=epsilon, delta=DELTA, degree=degree),
        OURS[1]: FederatedTree(epsilon=epsilon, delta=DELTA),
        PRIVATE_INDEPENDENT[0]: IndependentMarginals(epsilon=epsilon, delta=DELTA),
        PRIVATE_INDEPENDENT[1]: IndependentMarginals(epsilon=epsilon, delta=DELTA, by_size=True),
    }


def data_directory() -> Path:
    given = os.environ.get("PANSTREAM_DATA")
    if not given:
        raise SystemExit("set PANSTREAM_DATA to the directory that holds the data files")
    return Path(given)


def diabetes() -> Records:
    """43 attributes, one record per patient, integer codes; the domain file is the public schema."""
    folder = data_directory()
    schema = json.loads((folder / "diabetes43-domain.json").read_text("utf-8"))
    frame = pd.read_csv(folder / "diabetes43.csv.gz")
    domain = Domain({name: list(labels) for name, labels in schema.items()})
    return Records(domain, np.ascontiguousarray(frame[list(schema)].to_numpy(np.uint16).T))


def adult() -> Records:
    """13 attributes: without fnlwgt and education, ages by 5 years, hours by 10, gains and losses cut at round
    amounts.
    """
    frame = pd.read_csv(data_directory() / "adult.csv.gz", keep_default_na=False)
    frame.columns = [name.strip() for name in frame.columns]
    codes: dict[str, np.ndarray[Any, Any]] = {}
    domain: dict[str, list[str]] = {}
    for name in frame.columns.drop(["fnlwgt", "education", "split"], errors="ignore"):
        column = frame[name]
        if name == "age":
            found, size = ((column - 17) // 5).to_numpy(), 15
        elif name == "hours-per-week":
            found, size = ((column - 1) // 10).to_numpy(), 10
        elif name == "capital-gain":
            found, size = np.searchsorted([1, 5000, 10000, 20000], column.to_numpy(), side="right"), 5
        elif name == "capital-loss":
            found, size = np.searchsorted([1, 1500, 2000], column.to_numpy(), side="right"), 4
        else:
            # The categories are those of the data's public description, which all occur.
            found, labels = pd.factorize(column, sort=True)
            domain[name] = [str(label) for label in labels]
            codes[name] = found
            continue
        domain[name], codes[name] = [str(each) for each in range(size)], found
    return Records(Domain(domain), np.array(list(codes.values()), np.uint16))


@dataclass(frozen=True, slots=True)
class Repetition:
    """The training records of one repetition and how to measure a network."""

    train: Records
    bits: Callable[[BayesianNetwork], float]
    truth: BayesianNetwork | None = None


def repetition(data: str, number: int) -> Repetition:
    if data == "seven":
        truth = seven_attributes()
        with Source() as source:
            train = sample(truth, RECORDS, source)
        return Repetition(train, lambda network: network.cross_entropy_from(truth), truth)
    records = {"diabetes": diabetes, "adult": adult}[data]()
    order = np.random.default_rng(number).permutation(len(records))
    cut = int(0.8 * len(records))
    test = records.take(order[cut:])
    return Repetition(records.take(order[:cut]), lambda network: network.cross_entropy(test))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One point of a figure."""

    data: str
    degree: int
    holders: int
    epsilon: float


def measure(number: int, data: str, cells: Sequence[Cell], methods: Sequence[str]) -> list[Row]:
    """Run all cells of one repetition on the same records."""
    rows: list[Row] = []
    world = repetition(data, number)
    for degree in sorted({cell.degree for cell in cells}):
        for name, network in references(world, degree).items():
            rows.append((data, degree, 0, math.inf, name, number, world.bits(network), 0.0))
    holders: list[Holder] = []
    for cell in sorted(cells, key=lambda each: each.holders):
        if len(holders) != cell.holders:
            parts = world.train.split(cell.holders)
            holders = [Holder(f"holder {at}", part, epsilon=math.inf) for at, part in enumerate(parts, 1)]
        for name, method in private_methods(cell.epsilon, cell.degree).items():
            if name not in methods:
                continue
            start = time.perf_counter()
            network = method.run(Federation(world.train.domain, holders)).network
            seconds = time.perf_counter() - start
            rows.append(
                (data, cell.degree, cell.holders, cell.epsilon, name, number, world.bits(network), round(seconds, 3))
            )
    return rows


def references(world: Repetition, degree: int) -> dict[str, BayesianNetwork]:
    domain, tables = world.train.domain, tables_of(world.train)
    found = {
        REFERENCES[0]: fit_tables(domain, independent(domain), tables),
        REFERENCES[1]: fit_tables(domain, greedy(domain, tables, degree), tables),
    }
    if world.truth is not None:
        found[REFERENCES[2]] = world.truth
    return found


def run(path: Path, data: str, cells: Sequence[Cell], repetitions: int, methods: Sequence[str], jobs: int) -> None:
    """Write one row per method, cell and repetition; go on where an earlier run stopped."""
    found = _done(path)
    done = {number for number in range(repetitions) if all((*_key(cell), number) in found for cell in cells)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="") as file, ProcessPoolExecutor(jobs) as pool:
        writer = csv.writer(file)
        if path.stat().st_size == 0:
            writer.writerow(FIELDS)
        waiting = [number for number in range(repetitions) if number not in done]
        tasks = [
            pool.submit(measure, number, data, [c for c in cells if (*_key(c), number) not in found], list(methods))
            for number in waiting
        ]
        for task in tasks:
            writer.writerows(task.result())
            file.flush()


def _key(cell: Cell) -> tuple[int, int, float]:
    return cell.degree, cell.holders, cell.epsilon


def _done(path: Path) -> set[tuple[int, int, float, int]]:
    """The cells and repetitions that an earlier run has written."""
    if not path.exists():
        return set()
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {(int(row["degree"]), int(row["holders"]), float(row["epsilon"]), int(row["repetition"])) for row in rows}


def read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path)


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean, standard deviation and number of repetitions per cell and method."""
    keys = ["data", "degree", "holders", "epsilon", "method"]
    return frame.groupby(keys, sort=False)["bits"].agg(["mean", "std", "count"]).reset_index()


STYLE = {
    THESIS[0]: ("tab:red", "-", "o"),
    THESIS[1]: ("tab:orange", "-", "o"),
    THESIS[2]: ("tab:purple", "-", "s"),
    THESIS[3]: ("tab:brown", "-", "^"),
    SCORES[0]: ("tab:pink", ":", "."),
    SCORES[1]: ("tab:olive", ":", "."),
    OURS[0]: ("tab:blue", "-", "D"),
    OURS[1]: ("tab:green", "-", "D"),
    PRIVATE_INDEPENDENT[0]: ("grey", "-", "x"),
    REFERENCES[0]: ("grey", "--", ""),
    REFERENCES[1]: ("black", "--", ""),
    REFERENCES[2]: ("black", ":", ""),
}


def _frame(cells: Sequence[Cell]) -> pd.DataFrame:
    """The cells, and for each degree the one without privacy, to pick rows of a larger file."""
    rows = [(cell.degree, cell.holders, cell.epsilon) for cell in cells]
    rows += [(degree, 0, math.inf) for degree in {cell.degree for cell in cells}]
    return pd.DataFrame(list(dict.fromkeys(rows)), columns=["degree", "holders", "epsilon"])


def plot(path: Path, picture: Path, x: str, title: str, log: bool, cells: Sequence[Cell]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    table = summary(read(path).merge(_frame(cells), how="inner"))
    fixed = table[table["method"].isin(REFERENCES)]
    varying = table[~table["method"].isin(REFERENCES)]
    figure, axes = plt.subplots(figsize=(8.0, 5.0))
    for name, (colour, line, marker) in STYLE.items():
        part = varying[varying["method"] == name].sort_values(x)
        if len(part):
            error = part["std"] / np.sqrt(part["count"])
            axes.errorbar(part[x], part["mean"], error, color=colour, ls=line, marker=marker, ms=4, lw=1.2, label=name)
        for mean in fixed[fixed["method"] == name]["mean"]:
            axes.axhline(mean, color=colour, ls=line, lw=1.0, label=name)
    if log:
        axes.set_xscale("log")
    if varying["mean"].max() > 2.5 * varying["mean"].min():
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
    values = sorted(varying[x].unique())
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
    axes.set_xlabel({"epsilon": "privacy budget ε of every holder", "holders": "holders", "degree": "degree"}[x])
    axes.set_ylabel("cross entropy (bits a record)")
    axes.set_title(title, fontsize=10)
    handles: dict[str, Any] = {}
    for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
        handles.setdefault(label, handle)
    axes.legend(
        handles.values(),
        handles.keys(),
        fontsize=7,
        ncols=4,
        loc="upper center",
        bbox_to_anchor=(0.5, -0.13),
        frameon=False,
    )
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(picture)
    plt.close(figure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure of 002, chapter 3."""

    key: str
    title: str
    data: str
    x: str
    log: bool
    repetitions: int
    cells: tuple[Cell, ...]
    store: str = ""  # figures of the same data share one file of measurements
    methods: tuple[str, ...] = (*THESIS, *SCORES, *OURS, *PRIVATE_INDEPENDENT)

    @classmethod
    def over(cls, x: str, values: Sequence[float], **given: Any) -> Figure:
        point = {
            "degree": given.pop("degree", 1),
            "holders": given.pop("holders", 3),
            "epsilon": given.pop("epsilon", 0.1),
        }
        cells = tuple(Cell(data=given["data"], **{**point, x: value}) for value in values)
        return cls(x=x, cells=cells, **given)


def main(figure: Figure) -> None:
    parser = argparse.ArgumentParser(description=figure.title)
    parser.add_argument("--out", type=Path, default=Path("figures"), help="directory for the CSV file and the picture")
    parser.add_argument("--repetitions", type=int, default=figure.repetitions)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    given = parser.parse_args()
    path = given.out / f"federated_{figure.store or figure.key}.csv"
    run(path, figure.data, figure.cells, given.repetitions, figure.methods, given.jobs)
    picture = given.out / f"federated_{figure.key}.svg"
    plot(path, picture, figure.x, figure.title, figure.log, figure.cells)
    for line in lines(path, figure.x, figure.cells):
        print(line)
    print(f"wrote {path} and {picture}")


def lines(path: Path, x: str, cells: Sequence[Cell]) -> Iterator[str]:
    table = summary(read(path).merge(_frame(cells), how="inner"))
    for value, part in table.groupby(x):
        yield f"{x} {value:g}"
        for row in part.sort_values("mean").itertuples():
            yield f"    {row.mean:9.4f} ± {row.std:.4f}  {row.method}"


def write_results(folder: Path, target: Path) -> None:
    """Mean, standard deviation and number of runs of everything measured in a folder, as one small file."""
    names = sorted(folder.glob("federated_*.csv"))
    frames = [summary(read(name)).assign(figure=name.stem.removeprefix("federated_")) for name in names]
    pd.concat(frames).round(5).to_csv(target, index=False)


if __name__ == "__main__":
    write_results(Path("figures"), Path(__file__).parent / "federated_results.csv")
