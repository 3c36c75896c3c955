"""How accurate may a pan-private algorithm be? Reconstruction of members as a function of the accuracy of answers.

    python -m benchmarks.accuracy.lower_bounds run  --out lower_bounds.csv
    python -m benchmarks.accuracy.lower_bounds plot --data lower_bounds.csv --out lower_bounds.svg

Four panels, after section 4 of Mir et al.: answers off by c·sqrt(m) to random queries (Theorem 12); a constant fraction
of arbitrary answers (Theorem 13); union queries with relative and additive error (Theorem 14); and the same intruder
against the state of panstream's own counters, where no decoder may be right more often than e**epsilon/(1 +
e**epsilon).
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.turnstile.legendre_counter import LegendreCounter
from panstream.primitives.packed_bits import unpack_bits
from panstream.testing.reconstruction import (
    accuracy_bound,
    answers_from_counters,
    answers_from_unions,
    decode_dot_products,
    decode_unions,
    decode_with_outliers,
    members_from_counters,
)

FIELDS = ("panel", "series", "x", "accuracy", "standard_error", "bound")
USERS = 128
QUERIES = 512
REPEAT = 16
OWN_USERS = 512
OWN_REPEAT = 8
Row = tuple[str, str, float, float, float, float]


def accuracies(right: list[float]) -> tuple[float, float]:
    values = np.array(right)
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(values.size))


def members_and_queries(rng: np.random.Generator, users: int, queries: int) -> tuple[Any, Any, Any]:
    members = rng.integers(0, 2, users).astype(np.uint8)
    asked = rng.integers(0, 2, (queries, users)).astype(np.uint8)
    return members, asked, asked @ members.astype(np.float64)


def too_accurate(rng: np.random.Generator) -> Iterator[Row]:
    """Answers off by up to c·sqrt(m), or by exactly that much one way or the other."""
    for c in (0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.2, 1.6, 2.4, 3.2, 4.8):
        reach = c * math.sqrt(USERS)
        right: dict[str, list[float]] = {"up to c·√m": [], "exactly ± c·√m": []}
        for _ in range(REPEAT):
            members, asked, exact = members_and_queries(rng, USERS, QUERIES)
            errors = {
                "up to c·√m": rng.uniform(-reach, reach, QUERIES),
                "exactly ± c·√m": reach * rng.choice([-1, 1], QUERIES),
            }
            for name, error in errors.items():
                right[name].append(float((decode_dot_products(asked, exact + error) == members).mean()))
        for name, found in right.items():
            yield ("accuracy", name, c, *accuracies(found), accuracy_bound(1.0))


def other_statistics(rng: np.random.Generator) -> Iterator[Row]:
    """Cropped sums and heavy-hitter counts of unions, off by up to effect·c·sqrt(m) (Corollaries 1 and 2)."""
    for name, effect in (("cropped sums, crop 8", 8.0), ("heavy hitters", 1.0)):
        for c in (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 4.8):
            right = []
            for _ in range(REPEAT):
                members, asked, exact = members_and_queries(rng, USERS, QUERIES)
                alone = effect * float(members.sum())
                unions = alone + effect * (asked.sum(axis=1, dtype=np.int64) - exact)
                reach = effect * c * math.sqrt(USERS)
                answers = unions + rng.uniform(-reach, reach, QUERIES)
                decoded = decode_dot_products(asked, answers_from_unions(asked, answers, alone, effect=effect))
                right.append(float((decoded == members).mean()))
            yield ("accuracy", name, c, *accuracies(right), accuracy_bound(1.0))


def partly_wrong(rng: np.random.Generator) -> Iterator[Row]:
    """A fraction of the answers is arbitrary; the others are good to sqrt(m)/20."""
    for share in (0.0, 0.05, 0.1, 0.15, 0.2, 0.239, 0.28, 0.32, 0.36, 0.4, 0.45, 0.5):
        right: dict[str, list[float]] = {"absolute deviations": [], "least squares": []}
        for _ in range(REPEAT // 2):
            members, asked, exact = members_and_queries(rng, USERS, QUERIES)
            answers = exact + rng.uniform(-1, 1, QUERIES) * 0.05 * math.sqrt(USERS)
            wrong = rng.random(QUERIES) < share
            answers[wrong] = rng.uniform(0, USERS, int(wrong.sum()))
            right["absolute deviations"].append(float((decode_with_outliers(asked, answers) == members).mean()))
            right["least squares"].append(float((decode_dot_products(asked, answers) == members).mean()))
        for name, found in right.items():
            yield ("outliers", name, share, *accuracies(found), accuracy_bound(1.0))


def unions(rng: np.random.Generator, users: int = 14, most: int = 4) -> Iterator[Row]:
    """Distinct counts of unions from an algorithm that uses its additive error well: it mistakes that many members."""
    for relative in (0.0, 0.1):
        for mistaken in range(most + 1):
            right = []
            for _ in range(REPEAT):
                chosen = rng.permutation(users)
                members, believed = np.zeros((2, users), np.uint8)
                members[chosen[:most]] = 1
                believed[chosen[mistaken : most + mistaken]] = 1
                asked = (rng.random((300, users)) < rng.uniform(0.05, 0.6, (300, 1))).astype(np.uint8)
                counts = (asked | believed).sum(axis=1).astype(np.float64)
                answers = counts * (1 + rng.uniform(-relative, relative, 300))
                slack = mistaken * (1 + relative)
                found = decode_unions(asked, answers, max_members=most, relative=relative, additive=slack)
                assert found is not None  # the members themselves always fit
                right.append(float((found & members).sum()) / most)
            yield ("unions", f"relative error {relative:g}", mistaken, *accuracies(right), most / users)


def our_own(rng: np.random.Generator) -> Iterator[Row]:
    """The state of our counters, copied once, with any number of queries asked of it."""
    for epsilon in (0.25, 0.5, 1.0, 2.0, 3.0, 4.0):
        right: dict[str, list[float]] = {
            "LegendreCounter, queries": [],
            "LegendreCounter, best": [],
            "OptBern, best": [],
        }
        for _ in range(OWN_REPEAT):
            members, asked, _ = members_and_queries(rng, OWN_USERS, 2 * OWN_USERS)
            counter = LegendreCounter(universe=OWN_USERS, epsilon=epsilon)
            monitor = counter.start()
            monitor.update(np.flatnonzero(members))
            stolen = monitor.state.counters
            decoded = decode_dot_products(asked, answers_from_counters(counter, stolen, asked))
            right["LegendreCounter, queries"].append(float((decoded == members).mean()))
            best = members_from_counters(counter, stolen)
            right["LegendreCounter, best"].append(float((best == members).mean()))
            bits = OptBern(universe=OWN_USERS, epsilon=epsilon).start()
            bits.update(np.flatnonzero(members))
            right["OptBern, best"].append(float((unpack_bits(bits.state.bits, OWN_USERS) == members).mean()))
        for name, found in right.items():
            mean = float(np.mean(found))
            error = math.sqrt(mean * (1 - mean) / (OWN_USERS * OWN_REPEAT))
            yield "ours", name, epsilon, mean, error, accuracy_bound(epsilon)


def run(out: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(FIELDS)
        for part in (too_accurate, other_statistics, partly_wrong, unions, our_own):
            for panel, series, x, accuracy, error, bound in part(rng):
                writer.writerow([panel, series, f"{x:g}", f"{accuracy:.4f}", f"{error:.4f}", f"{bound:.4f}"])
                if panel == "ours":
                    verdict = "within" if accuracy <= bound + 3 * error else "ABOVE"
                    print(f"{series:<26} epsilon {x:<5g} right {accuracy:.3f}, bound {bound:.3f}: {verdict}")


TITLES = {
    "accuracy": ("Answers off by c·√m", "c"),
    "outliers": ("Some answers arbitrary", "fraction of wrong answers"),
    "unions": ("Union queries, 4 members of 14", "additive error"),
    "ours": ("panstream's own state", "epsilon"),
}


def plot(data: Path, out: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with data.open() as file:
        rows = list(csv.DictReader(file))
    figure, axes = plt.subplots(1, 4, figsize=(17, 4.2), sharey=True, constrained_layout=True)
    for axis, (panel, (title, label)) in zip(axes, TITLES.items(), strict=True):
        mine = [row for row in rows if row["panel"] == panel]
        for series in dict.fromkeys(row["series"] for row in mine):
            points = [row for row in mine if row["series"] == series]
            x, y, error = ([float(row[key]) for row in points] for key in ("x", "accuracy", "standard_error"))
            axis.errorbar(x, y, yerr=[3 * e for e in error], marker="o", markersize=3, capsize=2, label=series)
        edge = sorted({(float(row["x"]), float(row["bound"])) for row in mine})
        name = "chance" if panel == "unions" else "bound e^ε/(1+e^ε)" + ("" if panel == "ours" else " at ε = 1")
        axis.plot([x for x, _ in edge], [y for _, y in edge], "k--", linewidth=1, label=name)
        axis.set(title=title, xlabel=label, ylim=(0, 1.03))
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8, loc="lower left")
    axes[0].set_xscale("log")
    axes[0].set_ylabel("share of users told right")
    figure.savefig(out, metadata={"Date": None} if out.suffix == ".svg" else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "plot"):
        command = commands.add_parser(name)
        default = "lower_bounds.csv" if name == "run" else "lower_bounds.svg"
        command.add_argument("--out", type=Path, default=Path(default))
        if name == "run":
            command.add_argument("--seed", type=int, default=1)
        else:
            command.add_argument("--data", type=Path, default=Path("lower_bounds.csv"))
    given = parser.parse_args()
    run(given.out, given.seed) if given.command == "run" else plot(given.data, given.out)


if __name__ == "__main__":
    main()
