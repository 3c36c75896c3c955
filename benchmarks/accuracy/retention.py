"""Errors and coverage of RETENTION: overlaps of two windows, and shares over 13, for five kinds of visitors.

    python -m benchmarks.accuracy.retention [--runs 200] [--users 5000] [--epsilon 2.66] [--seed SEED]
        [--two-machines] [--kind KIND]

On one machine, or for `SharedRetention` on two. For every kind and lags 1 and 4: the root mean squared error of the
overlap of the last windows over the error that is stated, the coverage of its 95% intervals, and the same of the share
over 13 windows. The released numbers are drawn from the law of the shipped coins; tests/algorithms/continual_users
compares the shipped steps with it.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual_users import RetainedBitmap
from panstream.algorithms.continual_users.retention_counts import RetentionCounts
from panstream.algorithms.secret_shared.retention import SharedRetention
from panstream.privacy.bitmap_loss import level_rates

LAGS = 4
KINDS = ("fresh", "decay", "loyal", "regular", "always")
SEED = 20260801
Ids = NDArray[np.int64]


def visits(kind: str, users: int, windows: int, rng: np.random.Generator) -> list[Ids]:
    """Return who comes in each window.

    "fresh": nobody comes twice. "decay": new users come again after j windows with chance .175·j^-.6. "loyal": 12%
    always come, the others once. "regular": everybody comes with chance .8. "always": everybody always comes.
    """
    if kind == "decay":
        new = round(0.55 * users)
        sets: list[list[Ids]] = [[] for _ in range(windows)]
        for start in range(-16, windows):
            ids = np.arange(new) + (start + 16) * new
            for later in range(max(start, 0), windows):
                gap = later - start
                sets[later].append(ids if gap == 0 else ids[rng.random(new) < 0.175 * gap**-0.6])
        return [np.concatenate(parts) for parts in sets]
    if kind == "regular":
        everybody = np.arange(round(users / 0.8))
        return [everybody[rng.random(everybody.size) < 0.8] for _ in range(windows)]
    regulars = {"fresh": 0.0, "loyal": 0.12, "always": 1.0}[kind]
    loyal = np.arange(round(regulars * users))
    return [np.concatenate([loyal, np.arange(loyal.size, users) + (w + 1) * users]) for w in range(windows)]


def released(algorithm: RetainedBitmap | SharedRetention, sets: list[Ids], rng: np.random.Generator) -> RetentionCounts:
    """Draw the released numbers of all windows, newest first, with a new hash."""
    buckets = algorithm.table.buckets
    levels = algorithm.table.levels
    lags = algorithm.lags
    cohorts = algorithm.cohorts
    law = algorithm.table.law
    shared = isinstance(algorithm, SharedRetention)
    size = 1 + max(int(ids.max(initial=0)) for ids in sets)
    chances = level_rates(buckets, levels) * buckets
    cells = rng.choice(levels, size, p=chances) * buckets + rng.integers(0, buckets, size)
    bits = []
    for ids in reversed(sets):
        occupied = np.zeros(levels * buckets, bool)
        occupied[cells[ids]] = True
        bits.append(occupied if shared else rng.random(levels * buckets) < np.where(occupied, law.p1, law.p0))

    def noisy(counts: list[Ids], kappa: float) -> Ids:
        table = np.array(counts)
        rate = -math.expm1(-kappa)
        for _ in range(2 if shared else 1):  # machines that draw
            table = table + rng.geometric(rate, table.shape) - rng.geometric(rate, table.shape)
        return table

    def per_level(chosen: NDArray[np.bool_]) -> Ids:
        return chosen.reshape(levels, buckets).sum(axis=1)

    compare = np.logical_xor if shared else np.logical_and
    ones = noisy([per_level(window) for window in bits], algorithm.rates.of_count)
    pairs = [per_level(compare(bits[c], bits[c + lag])) for c in range(cohorts) for lag in range(1, lags + 1)]
    compared = noisy(pairs, algorithm.rates.of_pair).reshape(cohorts, lags, levels)
    if not isinstance(algorithm, SharedRetention):
        return RetentionCounts(algorithm.model, ones, compared, len(sets))
    numbers = np.zeros((cohorts + lags, 1 + lags, levels), np.int64)
    numbers[:, 0] = ones
    numbers[:cohorts, 1:] = compared
    return algorithm.counts(numbers.ravel().tolist(), len(sets))


def measure(kind: str, algorithm: RetainedBitmap | SharedRetention, runs: int, seed: int) -> list[str]:
    """Return one line for each of two lags."""
    rng = np.random.default_rng(seed)
    windows = algorithm.cohorts + algorithm.lags
    sets = visits(kind, round(algorithm.expected), windows, rng)
    sizes = {lag: [len(np.intersect1d(sets[-1 - c - lag], sets[-1 - c])) for c in range(13)] for lag in (1, LAGS)}
    shares = {lag: sum(sizes[lag]) / sum(len(sets[-1 - c - lag]) for c in range(13)) for lag in sizes}
    claim = algorithm.claim()
    rows: dict[tuple[int, str], list[tuple[float, float, bool]]] = {}
    for _ in range(runs):
        counts = released(algorithm, sets, rng)
        for lag in sizes:
            for name, truth, estimate in (
                ("overlap", float(sizes[lag][0]), counts.returned(lag, claim)),
                ("share", shares[lag], counts.rate(lag, claim)),
            ):
                low, high = estimate.interval()
                row = (estimate.unclipped - truth, estimate.standard_error, low <= truth <= high)
                rows.setdefault((lag, name), []).append(row)
    lines = []
    for (lag, name), drawn in sorted(rows.items()):
        error, stated, inside = (np.array(column, float) for column in zip(*drawn, strict=True))
        rmse = math.sqrt(float((error**2).mean()))
        truth = sizes[lag][0] if name == "overlap" else shares[lag]
        lines.append(
            f"{kind:8} lag {lag} {name:8} true {truth:9.4g}  rmse {rmse:8.4g}  rmse/stated {rmse / stated.mean():.2f}  "
            f"covered {100 * inside.mean():.1f}%"
        )
    return lines


def main() -> None:
    """Print one line per kind of visitors, lag and answer."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.retention")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--users", type=int, default=5_000)
    parser.add_argument("--epsilon", type=float, default=2.66)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--two-machines", action="store_true")
    parser.add_argument("--kind", choices=KINDS, action="append", help="of visitors; all by default")
    arguments = parser.parse_args()
    users = arguments.users
    epsilon = arguments.epsilon
    layout = {"epsilon": epsilon, "expected": users, "lags": LAGS, "cohorts": 13}
    if arguments.two_machines:
        algorithm: RetainedBitmap | SharedRetention = SharedRetention(horizon=520, **layout)
        how = f"two machines, {algorithm.table.levels} x {algorithm.table.buckets:,} cells"
    else:
        algorithm = RetainedBitmap(**layout)
        how = f"epsilon_state {algorithm.epsilon_state:.3g}"
    print(f"{users:,} users a window, epsilon {epsilon:g}, {how}, {arguments.runs} runs")
    for kind in arguments.kind or KINDS:
        print("\n".join(measure(kind, algorithm, arguments.runs, arguments.seed)), flush=True)


if __name__ == "__main__":
    main()
