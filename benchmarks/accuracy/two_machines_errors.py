"""Errors of statistics on two machines, through the shipped steps and estimators, beside what was promised.

    python -m benchmarks.accuracy.two_machines_errors [runs]

One process plays all three parties; noise is real, and errors do not depend on where the parties run. Distinct counts
draw cells as so many users would fill them, continual counts open every answer of a whole horizon. Live counts are 95%
errors: 1.96 root mean squared errors over 1,000 ticks, while 20,000 users come one after the other.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import numpy as np

from panstream.algorithms.continual.sums import ContinualCount
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.secret_shared.capped_counts import SharedCroppedSum
from panstream.algorithms.secret_shared.continual import SharedContinual
from panstream.algorithms.secret_shared.continual_presence import SharedContinualDensity, SharedContinualDistinct
from panstream.algorithms.secret_shared.counted_bits import NoisyBitCounts
from panstream.algorithms.secret_shared.presence import SharedDensity, SharedDistinct
from panstream.algorithms.secret_shared.ring import Keystream
from panstream.algorithms.secret_shared.share_rules import draw_noise
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.noise import NoiseSource


def noised(counts: np.ndarray, law: object) -> list[int]:
    """Return what is opened: the true numbers and a draw of each machine."""
    with NoiseSource() as rng:
        return [int(each) for each in counts + sum(draw_noise(counts.size, law, rng) for _ in range(2))]  # type: ignore[arg-type]


def distinct(statistic: SharedDistinct, users: int, runs: int, rng: np.random.Generator) -> float:
    """Return the relative root mean squared error."""
    levels = statistic.levels
    buckets = statistic.buckets
    shares = np.array([2.0 ** -(level + 1) for level in range(levels - 1)] + [2.0 ** -(levels - 1)])
    errors = []
    for _ in range(runs):
        came = rng.multinomial(users, shares / shares.sum())
        full = np.array(
            [np.count_nonzero(np.bincount(rng.integers(0, buckets, each), minlength=buckets)) for each in came]
        )
        errors.append(statistic.estimate(noised(full, statistic.law), 1).unbiased / users - 1)
    return math.sqrt(float(np.mean(np.square(errors))))


def row(what: str, found: float, promised: float, one: str) -> None:
    """Print one figure beside its promise."""
    print(f"{what:62s} {found:10.4g} {promised:10.4g} {found / promised - 1:+7.1%}   {one}", flush=True)


def main(runs: int) -> None:
    """Print all figures."""
    rng = np.random.default_rng()
    print(f"{'':62s} {'found':>10s} {'promised':>10s} {'off':>7s}   one machine")
    for buckets, users, promised in ((16384, 100_000, 0.0041), (4096, 100_000, 0.0098), (4096, 1_000, 0.0086)):
        shared = SharedDistinct(epsilon=1.0, buckets=buckets)
        default = Bitmap(epsilon=1.0).relative_error(users)
        row(
            f"distinct, {users:,} users, {buckets} x 24, relative error",
            distinct(shared, users, runs, rng),
            promised,
            f"{default:.4f}",
        )
    density = SharedDensity(universe=100_000, epsilon=1.0, count=True)
    found = [density.estimate(noised(np.array([50_000]), density.law), 1).unbiased - 50_000 for _ in range(10 * runs)]
    row("known population of 100,000, users", math.sqrt(float(np.mean(np.square(found)))), 1.92, "322")
    cropped = SharedCroppedSum(universe=20_000, epsilon=1.0, crop=16)
    found = [cropped.estimate(noised(np.array([90_000]), cropped.law), 1).unbiased - 90_000 for _ in range(10 * runs)]
    row("sum of min(appearances, 16), 20,000 users", math.sqrt(float(np.mean(np.square(found)))), 32.0, "4,956")
    for power, promised, one in ((10, 237.0, "323 / 426"), (14, 576.0, "905 / 1,106"), (16, 840.0, "1,351 / 1,623")):
        ticks = SharedContinual.of(ContinualCount(epsilon=1.0, horizon=1 << power))
        at = np.unique(np.linspace(1, 1 << power, 1 << 12).astype(int))
        planned = float(np.mean([ticks.variance_at(int(each)) for each in at]))
        row(f"count over 2**{power} ticks, mean squared error (planned)", planned, promised, one)
    horizon = 1 << 10
    ticks = SharedContinual.of(ContinualCount(epsilon=1.0, horizon=horizon))
    row("count over 2**10 ticks, mean squared error (simulated)", simulated(ticks, max(2, runs // 5)), 237.0, "")
    live = SharedContinualDensity(universe=20_000, epsilon=1.0, releases=1000, count=True)
    table = SharedContinualDistinct.sized(1.0, expected=20_000, releases=1000)
    paid = 1.96 * SharedDensity(universe=20_000, epsilon=1.0, releases=1000).standard_error(1.0)
    some = max(2, runs // 100)
    alone = SharedContinualDensity(universe=20_000, epsilon=2.0, releases=1000, count=True)
    for what, statistic, one in (
        ("live count, known population, 1,000 ticks", live, f"{paid:,.0f} paid one by one"),
        ("live count, bitmap, 1,000 ticks", table, f"{paid:,.0f} paid one by one"),
        ("  population, where a user as a whole loses 1", alone, f"{paid / 2:,.0f} paid one by one"),
    ):
        planned = 1.96 * math.sqrt(float(np.mean([planned_variance(statistic, tick) for tick in range(1, 1001)])))
        row(what, 1.96 * live_error(statistic, some, rng), planned, one)


def planned_variance(statistic: SharedContinualDensity | SharedContinualDistinct, tick: int) -> float:
    """Return the planned variance of the number of users after a tick."""
    users = 20.0 * tick
    if isinstance(statistic, SharedContinualDistinct):
        return (users * statistic.relative_error(users, tick)) ** 2
    return statistic.standard_error(users, tick) ** 2


def live_error(
    statistic: SharedContinualDensity | SharedContinualDistinct, runs: int, rng: np.random.Generator
) -> float:
    """Return the root mean squared error of a live count over its ticks."""
    rule = statistic.rule
    users = 20_000
    ticks = statistic.releases
    buckets = statistic.buckets * statistic.levels if isinstance(statistic, SharedContinualDistinct) else 0
    assert not buckets or statistic.levels == 1  # type: ignore[union-attr]
    errors = []
    for _ in range(runs):
        noise = tree_noise(rule, ticks)
        came = users * np.arange(1, ticks + 1) // ticks
        cells = rng.integers(0, buckets, users) if buckets else np.arange(users)
        fresh = np.zeros(users, bool)
        fresh[np.unique(cells, return_index=True)[1]] = True
        ones = np.cumsum(fresh)[came - 1]
        answers = [
            statistic.estimate([int(one + drawn)], tick + 1)
            for tick, (one, drawn) in enumerate(zip(ones, noise, strict=True))
        ]
        errors.append(np.mean([(answer.unbiased - true) ** 2 for answer, true in zip(answers, came, strict=True)]))
    return math.sqrt(float(np.mean(errors)))


def tree_noise(rule: NoisyBitCounts, ticks: int) -> list[int]:
    """Return the noise of every answer, drawn and rounded by both machines, with no cell set."""
    small = NoisyBitCounts(cells=1, radices=rule.radices, noise=rule.noise, releases=ticks)
    sent = np.zeros(1, np.uint8)
    drawn = []
    with NoiseSource() as rng, Scratch() as scratch:
        shares = [small.start(rng) for _ in range(2)]
        for tick in range(ticks):
            key = np.zeros(32, np.uint8)
            total = 0
            for first, share in zip((True, False), shares, strict=True):
                held = replace(
                    small.tree.hold_answer(Keystream(key, scratch), None, tick, rng),
                    masks=(sent, np.zeros(1, np.uint32)),
                )
                total += int(small.answer(share, sent.copy(), sent, held, first=first)[0])
            drawn += small.ring.centred(np.array([total % small.ring.modulus], np.uint64))
    return drawn


def simulated(ticks: SharedContinual, runs: int) -> float:
    """Return the mean squared error of all answers of some runs, with nothing counted."""
    rule = ticks.rule
    empty = np.empty(0, np.uint8)
    total = 0.0
    for _ in range(runs):
        with NoiseSource() as rng:
            shares = [rule.start(rng) for _ in range(2)]
            for tick in range(ticks.horizon):
                parts = [
                    rule.answer(share, empty, empty, rule.hold_answer(None, None, tick, rng), first=True)  # type: ignore[arg-type]
                    for share in shares
                ]
                rule.ring.add(parts[0], parts[1])
                total += float(ticks.estimate(rule.ring.centred(parts[0]), tick + 1).unclipped) ** 2
    return total / runs / ticks.horizon


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2_000)
