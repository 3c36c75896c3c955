"""Our methods against the thesis's and against private independent attributes, cell by cell, with pass or fail.

    PANSTREAM_DATA=... python experiments/federated_comparison.py --data adult --repetitions 20
    python experiments/federated_comparison.py --data seven --repetitions 100

Diabetes and Adult: cross entropy on the held-out fifth at 3, 10 and 30 holders and four budgets; a cell passes if the
better of our two methods lies below every algorithm of the thesis and below private independent attributes. Seven
attributes: excess bits over the true network at 10 holders and epsilon = 0.1; passes if the best algorithm of the
thesis has 2.5 times ours or more.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from federated_runner import OURS, PRIVATE_INDEPENDENT, REFERENCES, SCORES, THESIS, Cell, read, run, summary

from panstream.planning.text import aligned

FACTOR = 2.5


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare all methods, cell by cell.")
    parser.add_argument("--data", choices=("seven", "adult", "diabetes"), required=True)
    parser.add_argument("--out", type=Path, default=Path("figures"))
    parser.add_argument("--holders", type=int, nargs="*", default=[3, 10, 30])
    parser.add_argument("--epsilon", type=float, nargs="*", default=[0.1, 0.5, 1.0, 2.0])
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--table-only", action="store_true", help="print the table of what was measured before")
    given = parser.parse_args()
    path = given.out / f"federated_{given.data if given.data != 'seven' else 'seven_comparison'}.csv"
    holders, budgets = ([10], [0.1]) if given.data == "seven" else (given.holders, given.epsilon)
    if not given.table_only:
        for count in holders:  # one after the other, so that a stopped run has whole cells
            for epsilon in budgets:
                cells = [Cell(data=given.data, degree=1, holders=count, epsilon=epsilon)]
                run(
                    path,
                    given.data,
                    cells,
                    given.repetitions,
                    (*THESIS, *SCORES, *OURS, *PRIVATE_INDEPENDENT),
                    given.jobs,
                )
    print(report(path, given.data))


def report(path: Path, data: str) -> str:
    frame = read(path)
    table = summary(frame)
    means = table.set_index(["holders", "epsilon", "method"])["mean"]
    spread = table.set_index(["holders", "epsilon", "method"])["std"]
    counts = table.set_index(["holders", "epsilon", "method"])["count"]
    rows, passed = [], 0
    cells = sorted({(holders, epsilon) for holders, epsilon, _ in means.index if holders})
    floor = float(frame[frame["method"] == REFERENCES[2]]["bits"].mean()) if data == "seven" else 0.0
    for holders, epsilon in cells:
        at = (holders, epsilon)
        thesis = min(THESIS, key=lambda name, at=at: means[*at, name])
        ours = min(OURS, key=lambda name, at=at: means[*at, name])
        values = [means[*at, thesis] - floor, means[*at, PRIVATE_INDEPENDENT[0]] - floor, means[*at, ours] - floor]
        good = values[0] >= FACTOR * values[2] if data == "seven" else values[2] < min(values[:2])
        passed += good
        shown = [
            f"{value:.3f} ± {spread[*at, name]:.3f}"
            for value, name in zip(values, (thesis, PRIVATE_INDEPENDENT[0], ours), strict=True)
        ]
        name_of_thesis = thesis.removesuffix(", cut at holders")
        rows.append(
            (
                str(holders),
                f"{epsilon:g}",
                name_of_thesis,
                shown[0],
                shown[1],
                ours,
                shown[2],
                f"{counts[*at, ours]}",
                "pass" if good else "FAIL",
            )
        )
    head = (
        "holders",
        "epsilon",
        "best of the thesis",
        "bits",
        "private independent",
        "best of ours",
        "bits",
        "runs",
        "",
    )
    title = (
        f"{data}: {'excess bits' if data == 'seven' else 'cross entropy, bits a record'} (mean ± standard deviation)"
    )
    return aligned(title, head, rows, right={0, 1, 3, 4, 6, 7}) + f"\n\n{passed} of {len(cells)} cells pass"


if __name__ == "__main__":
    main()
