"""Errors and coverage of published sketches: overlaps against the Fisher bound, unions of days, and two real streams.

    python -m benchmarks.accuracy.sketches pairs [--runs RUNS] [--seed SEED] [--users USERS]
    python -m benchmarks.accuracy.sketches unions [--runs RUNS] [--seed SEED] [--users USERS]
    python -m benchmarks.accuracy.sketches files NASA_TSV RETAIL_PARQUET [--runs RUNS] [--seed SEED]

The long form has 2,000 runs. Published cells are drawn from the law of the shipped coins, a new hash for every run;
tests/algorithms/distinct/test_sketch.py compares the shipped steps with it. The Fisher bound is that of all counts of
patterns of cells, for fixed users.
"""

from __future__ import annotations

import argparse
import gzip
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.distinct import Sketch
from panstream.core.estimate import Estimate
from panstream.primitives.packed_bits import pack_bits
from panstream.privacy.bitmap_loss import level_rates
from panstream.privacy.sketch_loss import sketch_coins

LEVELS = 20
SEED = 20260802
_DIGITS = 24
Ids = NDArray[np.int64]


def published(sets: list[Ids], buckets: int, epsilon: float, rng: np.random.Generator) -> list[Sketch]:
    """Draw the sketches of some sets, with a new hash and coins of their own."""
    coins = sketch_coins(epsilon)
    pi0, pi1 = map(float, coins.published)
    size = 1 + max(int(ids.max(initial=0)) for ids in sets)
    cells = rng.choice(LEVELS, size, p=level_rates(buckets, LEVELS) * buckets) * buckets
    cells += rng.integers(0, buckets, size)
    sketches = []
    for ids in sets:
        occupied = np.zeros(LEVELS * buckets, np.uint8)
        occupied[cells[ids]] = 1
        bits = pack_bits(occupied)
        bits ^= flips(pi0, bits.size, rng)  # pi1 is 1 - pi0, up to rounding
        sketches.append(
            Sketch(
                bits=bits.tobytes(),
                buckets=buckets,
                levels=LEVELS,
                hash="fold",
                key="0" * 32,
                pi0=pi0,
                pi1=pi1,
                epsilon=coins.published_loss,
                joint=coins.joint_loss,
            )
        )
    return sketches


def flips(chance: float, size: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return ``size`` bytes of bits that are 1 with a probability, up to 2**-24: a comparison, digit by digit."""
    bits = np.zeros(size, np.uint8)
    for digit in reversed(f"{round(chance * (1 << _DIGITS)):0{_DIGITS}b}"):
        drawn = ~np.frombuffer(rng.bytes(size), np.uint8)
        bits = drawn | bits if digit == "1" else drawn & bits
    return bits


def fisher_error(users: int, both: int, buckets: int, epsilon: float) -> float:
    """Return the smallest standard error of |A and B| for two sets of ``users``."""
    pi0, pi1 = map(float, sketch_coins(epsilon).published)
    channel = np.array([[1 - pi0, 1 - pi1], [pi0, pi1]])
    flips = np.kron(channel, channel)
    information = np.zeros((3, 3))
    for rate in level_rates(buckets, LEVELS):
        one = math.exp(-rate * users)
        either = math.exp(-rate * (2 * users - both))
        chances = flips @ np.array([either, one - either, one - either, 1 - 2 * one + either])

        def slope(a: float, b: float, u: float, rate: float = rate) -> NDArray[np.float64]:
            return flips @ (-rate * np.array([u, a - u, b - u, u - a - b]))

        slopes = np.stack([slope(one, 0.0, either), slope(0.0, one, either), slope(one, one, either)])
        information += buckets * (slopes / chances) @ slopes.T  # about A only, B only, both
    covariance = np.linalg.inv(information) - np.diag([users - both, users - both, both])
    return math.sqrt(covariance[2, 2])


def table_for(users: float) -> int:
    """Return the buckets of a table for two sets of ``users``."""
    return 1 << round(math.log2(1.6 * users))


def summarise(draw: Callable[[], tuple[Estimate, float]], runs: int) -> tuple[float, float]:
    """Return the root mean squared error, and the share of 95% intervals that cover the truth."""
    squares = 0.0
    inside = 0
    for _ in range(runs):
        estimate, truth = draw()
        low, high = estimate.interval()
        squares += (estimate.unclipped - truth) ** 2
        inside += low <= truth <= high
    return math.sqrt(squares / runs), inside / runs


def pairs(runs: int, rng: np.random.Generator, sizes: list[int]) -> None:
    """Print error and coverage of overlaps of two sets of users of some sizes."""
    print(f"{runs} runs\n  users  overlap  epsilon    rmse  rmse/Fisher  covered")
    for users in sizes:
        for epsilon in (1.0, 2.0):
            for share in (0.0, 0.05, 0.3, 0.9):
                both = round(share * users)
                buckets = table_for(users)
                first = np.arange(users)
                second = np.arange(users) + users - both

                def draw(
                    first: Ids = first, second: Ids = second, buckets: int = buckets, both: int = both
                ) -> tuple[Estimate, float]:
                    one, other = published([first, second], buckets, epsilon, rng)  # noqa: B023  # called in this round
                    return one.intersection(other), float(both)

                rmse, covered = summarise(draw, runs)
                ratio = rmse / fisher_error(users, both, buckets, epsilon)
                print(
                    f"{users:7,} {share:8.0%} {epsilon:8g} {rmse:7.0f} {ratio:12.3f} {100 * covered:7.1f}%", flush=True
                )


def unions(runs: int, rng: np.random.Generator, sizes: list[int]) -> None:
    """Print error and coverage of unions of 2 to 30 days, of which each shares half of its users with the next."""
    print(f"{runs} runs\n  a day  days  epsilon  95% error of the union  covered  value printed")
    for users in sizes:
        for days in (2, 7, 14, 30):
            for epsilon in (1.0, 2.0, 3.0):
                sets = [np.arange(users) + day * users // 2 for day in range(days)]
                truth = users * (days + 1) / 2
                buckets = table_for(truth / 2)
                useful = inside = 0
                squares = 0.0
                for _ in range(runs):
                    first, *others = published(sets, buckets, epsilon, rng)
                    estimate = first.union(*others)
                    low, high = estimate.interval()
                    if not estimate.has_no_value:
                        useful += 1
                        squares += (estimate.unclipped - truth) ** 2
                    inside += low <= truth <= high
                print(
                    f"{users:7,} {days:5} {epsilon:8g} {196 * math.sqrt(squares / max(useful, 1)) / truth:22.0f}% "
                    f"{100 * inside / runs:8.1f}% {100 * useful / runs:13.0f}%",
                    flush=True,
                )


def files(nasa: str, retail: str, runs: int, rng: np.random.Generator) -> None:
    """Print overlaps and a union of two halves of a day of a web server, and of the months of a shop."""
    import pyarrow.parquet as parquet

    with gzip.open(nasa, "rt", errors="replace") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines]
    head = rows[0]
    hosts = np.unique([row[head.index("host")] for row in rows[1:]], return_inverse=True)[1]
    times = np.array([float(row[head.index("time")]) for row in rows[1:]])
    half = times < (times.min() + times.max()) / 2
    _of_file("NASA, two halves of a day", [np.unique(hosts[half]), np.unique(hosts[~half])], runs, rng)
    table = parquet.read_table(retail, columns=["CustomerID", "InvoiceDate"]).to_pandas().dropna()
    months = table["InvoiceDate"].dt.to_period("M").astype(str)
    customers = np.unique(table["CustomerID"].astype(int), return_inverse=True)[1]
    sets = [np.unique(customers[months == month]) for month in sorted(set(months))[:12]]
    _of_file("retail, months", sets, runs, rng)


def _of_file(name: str, sets: list[Ids], runs: int, rng: np.random.Generator) -> None:
    users = np.mean([ids.size for ids in sets])
    buckets = table_for(2 * users)
    both = float(np.intersect1d(sets[0], sets[1]).size)
    some = sets[:7]
    either = float(np.unique(np.concatenate(some)).size)
    for epsilon in (1.0, 2.0, 4.0):
        rows: list[tuple[float, float, bool, bool]] = []
        for _ in range(runs):
            sketches = published(some, buckets, epsilon, rng)
            overlap = sketches[0].intersection(sketches[1])
            union = sketches[0].union(*sketches[1:])
            low, high = overlap.interval()
            least, most = union.interval()
            errors = (overlap.unclipped - both, union.unclipped - either)
            rows.append((*errors, low <= both <= high, least <= either <= most))
        overlap_errors, union_errors, first, second = (np.array(column, float) for column in zip(*rows, strict=True))
        printed = union_errors[np.isfinite(union_errors)]  # of unions that have a value
        union_error = 1.96 * np.sqrt((printed**2).mean()) if printed.size else math.nan
        print(
            f"{name}, epsilon {epsilon:g}: {sets[0].size:,} and {sets[1].size:,} users, {both:,.0f} in both "
            f"±{1.96 * np.sqrt((overlap_errors**2).mean()):.0f}, covered {100 * first.mean():.1f}%; {either:,.0f} in "
            f"{len(some)} ±{union_error:.0f} where a value is printed ({100 * printed.size / runs:.0f}%), covered "
            f"{100 * second.mean():.1f}%",
            flush=True,
        )


def main() -> None:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.sketches")
    parser.add_argument("measurement", choices=["pairs", "unions", "files"])
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--users", type=int, action="append", help="a size of a set; all by default")
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    if arguments.measurement == "files":
        files(*arguments.paths, arguments.runs, rng)
    elif arguments.measurement == "pairs":
        pairs(arguments.runs, rng, arguments.users or [1_000, 10_000, 100_000])
    else:
        unions(arguments.runs, rng, arguments.users or [1_000, 10_000])


if __name__ == "__main__":
    main()
