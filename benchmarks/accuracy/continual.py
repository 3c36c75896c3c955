"""Errors and speed of the continual trees: exact figures, figures measured by driving the library, and targets.

Errors are mean squared errors times epsilon², averaged over all slots up to the horizon. Measured ones come from seeded
runs on an empty stream (noise does not depend on data) and carry their standard error.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks.verdicts import verdict
from panstream.algorithms.continual.least_squares_tree import LeastSquaresTree
from panstream.algorithms.continual.moments import ContinualMean, ContinualVariance
from panstream.algorithms.continual.noisy_tree import NoisyTree, TreeState
from panstream.algorithms.continual.sums import ContinualCount, KaryTree
from panstream.algorithms.continual.tree_shape import TreeShape, epoch_of
from panstream.core.monitor import Monitor
from panstream.papers.counters.event_counter import EventCounter
from panstream.primitives.noise import SeededSource

HORIZONS = (10, 14, 16, 20)
ONE_STEP = dict(zip(HORIZONS, (349, 1033, 1553, 3131), strict=True))
SEVERAL_STEPS = dict(zip(HORIZONS, (457, 1229, 1832, 3565), strict=True))
LEAST_SQUARES = dict(zip(HORIZONS, (118, 288, 413, 753), strict=True))
SPEED_RUNS = 7

Row = tuple[str, str, str, bool]


def at_most(name: str, figure: float, target: float, note: str = "") -> Row:
    return name, f"{figure:,.4g}{note}", f"<= {target:,.4g}", figure <= target


def at_least(name: str, figure: float, target: float, note: str = "") -> Row:
    return name, f"{figure:,.4g}{note}", f">= {target:,.4g}", figure >= target


def exact() -> Iterator[Row]:
    """Formulas, with continuous noise of variance 2/kappa² as in the tables that the targets come from."""
    for power in HORIZONS:
        for one_step, targets in ((True, ONE_STEP), (False, SEVERAL_STEPS)):
            tree = KaryTree(epsilon=1.0, horizon=1 << power, one_step_ticks=one_step)
            shape = tree.engine.shape(0)
            error = 2 * shape.levels**2 * shape.noise(1 << power).mean
            kind = "one-step ticks" if one_step else "several steps"
            yield at_most(f"tree, 2^{power}, {kind}, exact", error, targets[power])
            counter = EventCounter(epsilon=1.0, horizon=1 << power, one_step_ticks=one_step)
            ratio = counter.answer_parts(1)[0][0] * 2 * counter.memberships**2 / error
            yield at_least(f"event-level counter / tree, 2^{power}, {kind}, exact", ratio, 5.0)
        least = LeastSquaresTree(epsilon=1.0, horizon=1 << power)
        error = 2 * len(least.radices) ** 2 * least.noise(1 << 14)[0]
        yield at_most(f"least squares (not pan-private), 2^{power}, exact", error, 1.05 * LEAST_SQUARES[power])
    for one_step in (True, False):
        yield at_most(f"no horizon, epoch around 2^20, one-step={one_step}, exact", without_horizon(one_step), 5900.0)


def without_horizon(one_step: bool) -> float:
    epoch, _ = epoch_of(1 << 20, one_step)
    shapes = [TreeShape.of_epoch(e, one_step) for e in range(epoch + 1)]
    before = sum(2 * shape.rows**2 * shape.noise().last for shape in shapes[:-1])
    return before + 2 * shapes[-1].rows ** 2 * shapes[-1].noise().mean


def measured() -> Iterator[Row]:
    rng = SeededSource(1)
    for power, runs in ((10, 4000), (14, 500)):
        zeros = np.zeros(1 << power, np.int64)
        arrays: dict[str, Callable[[], NDArray[np.float64]]] = {
            "tree": lambda zeros=zeros: Monitor(tree_of(zeros.size), rng=rng).tick_many(zeros).unclipped,
            "event-level counter": lambda zeros=zeros: (
                Monitor(counter_of(zeros.size), rng=rng).tick_many(zeros).unclipped
            ),
            "least squares": lambda zeros=zeros: Monitor(least_of(zeros.size), rng=rng).tick_many(zeros).unclipped,
        }
        error = {name: squares([run() for _ in range(runs)]) for name, run in arrays.items()}
        for name, target in (("tree", ONE_STEP[power]), ("least squares", 1.05 * LEAST_SQUARES[power])):
            mean, spread = error[name]
            yield at_most(f"{name}, 2^{power}, one-step ticks, measured", mean, target, f" ± {spread:.2g}")
        ratio = error["event-level counter"][0] / error["tree"][0]
        yield at_least(f"event-level counter / tree, 2^{power}, measured", ratio, 5.0)
        mean, spread = squares(several_steps(1 << power, rng).T)
        yield at_most(f"tree, 2^{power}, several steps, measured", mean, SEVERAL_STEPS[power], f" ± {spread:.2g}")


def tree_of(horizon: int) -> KaryTree:
    return KaryTree(epsilon=1.0, horizon=horizon, one_step_ticks=True)


def counter_of(horizon: int) -> EventCounter:
    return EventCounter(epsilon=1.0, horizon=horizon, one_step_ticks=True)


def least_of(horizon: int) -> LeastSquaresTree:
    return LeastSquaresTree(epsilon=1.0, horizon=horizon)


def open_tree(engine: NoisyTree, slots: int, rng: SeededSource) -> TreeState:
    """Return a tree whose accumulators all start as noise."""
    layout = engine.layout(slots)
    values = {
        name: 0 if field.kind == "int" else np.zeros([size or 0 for size in field.shape], np.int64)
        for name, field in layout.items()
    }
    state = TreeState(**values)
    engine.open_all(state, rng)
    return state


def several_steps(horizon: int, rng: SeededSource, runs: int = 400) -> NDArray[np.float64]:
    """Close slot by slot, ``runs`` independent trees at once as the parts of one wide leaf."""
    shape = KaryTree(epsilon=1.0, horizon=horizon).engine.shape(0)
    engine = NoisyTree(1.0, 1, 1, runs, False, shape)
    state = open_tree(engine, horizon, rng)
    return np.array([engine.close(state, 1, None, rng)[0][0] for _ in range(horizon)])


def squares(errors: object) -> tuple[float, float]:
    means = [float(np.mean(np.square(run))) for run in errors]  # type: ignore[attr-defined]
    return statistics.fmean(means), statistics.stdev(means) / math.sqrt(len(means))


def budgets(runs: int = 4000) -> Iterator[Row]:
    """Noise of count, sum and sum of squares after one tick: Bernstein parts against a share of epsilon each."""
    rng = SeededSource(2)
    for kind, rows, share, target in (
        (ContinualMean, {"count": (1, 1), "sum of x": (0, 1)}, 2, 2.0),
        (ContinualVariance, {"count": (1, 1, 1), "sum of y": (-1, 0, 1), "sum of y²": (1, -1, 1)}, 3, 3.0),
    ):
        algorithm = kind(epsilon=1.0, horizon=1024, lower=0.0, upper=1.0)
        engine = NoisyTree(1.0, 1, 1, runs, False, algorithm.engine.shape(0))
        parts = [engine.close(open_tree(engine, 1024, rng), 1, None, rng)[0][0] for _ in range(algorithm.width)]
        split = NoisyTree(1.0 / share, 1, 1, runs, False, algorithm.engine.shape(0))
        apart = split.close(open_tree(split, 1024, rng), 1, None, rng)[0][0]
        for name, weights in rows.items():
            noise = sum(weight * part for weight, part in zip(weights, parts, strict=True))
            ratio = float(np.var(apart) / np.var(noise))
            yield at_least(f"{kind.__name__}: {name}, epsilon/{share} each / Bernstein", ratio, 0.95 * target)
        # Variances 2/kappa² of the same tree; a share of epsilon has the same levels and sensitivity 1.
        rate = algorithm.engine.law().kappa * algorithm.sensitivity
        thirds = KaryTree(epsilon=1.0 / 3, horizon=1024).engine.law().kappa
        heaviest = max(sum(weight**2 for weight in weights) for weights in rows.values())
        ratio = (rate / thirds) ** 2 / heaviest
        yield at_least(f"{kind.__name__}: worst sum, epsilon/3 each / Bernstein, exact", round(ratio, 6), target)


def speed() -> Iterator[Row]:
    values = np.random.default_rng(0).integers(0, 2, 1 << 20)
    for name, make, target in (
        ("KaryTree, one-step ticks", lambda: KaryTree(epsilon=1.0, horizon=1 << 20, one_step_ticks=True), 2.0),
        ("KaryTree", lambda: KaryTree(epsilon=1.0, horizon=1 << 20), 2.0),
        ("ContinualCount without horizon", lambda: ContinualCount(epsilon=1.0), 2.0),
        ("LeastSquaresTree", lambda: LeastSquaresTree(epsilon=1.0, horizon=1 << 20), 2.0),
    ):
        times = []
        for _ in range(SPEED_RUNS + 1):
            monitor = make().start()
            begun = time.process_time()
            monitor.tick_many(values)
            times.append(time.process_time() - begun)
        yield at_least(f"{name}, million ticks/s", values.size / statistics.median(times[1:]) / 1e6, target)
    monitor = KaryTree(epsilon=1.0, horizon=1 << 20).start()
    monitor.tick()
    begun = time.process_time()
    for _ in range(2000):
        monitor.tick()
    yield at_least("KaryTree, single tick() calls, thousand/s", 2000 / (time.process_time() - begun) / 1e3, 1.0)


def main() -> int:
    missed = 0
    for section in (exact, measured, budgets, speed):
        for name, figure, target, passed in section():
            missed += not verdict(name, figure, target, passed)
    print("all targets met" if not missed else f"{missed} target(s) missed")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
