"""A continual counter spread over workers: its exact joint loss by linear program, and why it is not worth its noise.

Every worker would hold an accumulator for the open node of each level. At a node's end the accumulators are added up
and released with fresh noise. ``panstream explain --shards`` compares this with one accumulator in one place.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from types import SimpleNamespace

import numpy as np
import pytest

from panstream.distributed.sharded.explain import shard_locations
from panstream.engine.planner.query_plan import plan_all
from tests.algorithms.continual.linear_view import cheapest_move
from tests.engine.runtime.streams import config, question

KAPPA = 0.4
RADIX = 2
LEVELS = 2
SLOTS = 4
Seen = tuple[int, int]  # a worker, and after which of its steps
Rate = Callable[[int], float | None]  # of the start noise on a worker; None if there is none


def node(level: int, slot: int) -> int:
    return slot // RADIX**level


def spread_loss(workers: int, looks: Iterable[tuple[Seen, ...]], start: Rate = lambda worker: KAPPA) -> float:
    """Return the largest loss over one event anywhere and all given looks, each with all released sums."""
    nodes = [(level, at) for level in range(LEVELS) for at in range(SLOTS // RADIX**level)]
    rates = {("release", *each): KAPPA for each in nodes}
    for each, worker in itertools.product(nodes, range(workers)):
        rate = start(worker)
        if rate is not None:
            rates[("start", *each, worker)] = rate
    draws = list(rates)
    steps = [(slot, worker) for slot in range(SLOTS) for worker in range(workers)]

    def shows(level: int, at: int, only: Iterable[int]) -> list[float]:
        return [float(draw[:3] == ("start", level, at) and draw[3] in only) for draw in draws]

    worst = 0.0
    for look in looks:
        matrix = []
        moved = []
        for level, at in nodes:
            row = shows(level, at, range(workers))
            row[draws.index(("release", level, at))] = 1.0
            matrix.append(row)
            moved.append([node(level, slot) == at for slot, _ in steps])
        for worker, step in look:
            for level in range(LEVELS):
                here = node(level, steps[step][0])
                matrix.append(shows(level, here, (worker,)))
                moved.append(
                    [node(level, slot) == here and by == worker and n <= step for n, (slot, by) in enumerate(steps)]
                )
        view = SimpleNamespace(matrix=np.array(matrix), kappas=np.array([rates[draw] for draw in draws]))
        shifts = np.array(moved, float).T
        worst = max([worst, *(cheapest_move(view, shift)[0] for shift in np.unique(shifts, axis=0))])  # type: ignore[arg-type]
    return worst


def on_one(workers: int) -> list[tuple[Seen, ...]]:
    return [((worker, step),) for worker in range(workers) for step in range(SLOTS * workers)]


def on_all(workers: int) -> list[tuple[Seen, ...]]:
    return [tuple((worker, step) for worker in range(workers)) for step in range(SLOTS * workers)]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_with_a_start_noise_on_every_worker_the_claim_is_that_of_one_machine(workers: int) -> None:
    claim = pytest.approx(LEVELS * KAPPA, abs=1e-9)
    assert spread_loss(workers, on_one(workers)) == claim
    assert spread_loss(workers, on_all(workers)) == claim


@pytest.mark.slow
def test_each_worker_once_at_different_times() -> None:
    times = range(SLOTS * 2)
    looks = [((0, first), (1, second)) for first, second in itertools.product(times, times)]
    assert spread_loss(2, looks) == pytest.approx(LEVELS * KAPPA, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("looks", [on_one(2), on_all(2)], ids=["one worker", "all workers"])
def test_less_start_noise_costs_more(looks: list[tuple[Seen, ...]]) -> None:
    assert spread_loss(2, looks, lambda worker: KAPPA * (1.05 if worker else 1)) > LEVELS * KAPPA * 1.04
    assert spread_loss(2, looks, lambda worker: None if worker else KAPPA) == math.inf


@pytest.mark.parametrize("workers", [2, 4, 7])
def test_what_is_printed_is_the_number_of_noises_in_a_released_sum(workers: int) -> None:
    plans = plan_all(config(question("sum", "SELECT SUM(value) FROM s", lower=0, upper=1)))
    (entry,) = shard_locations(plans, workers)
    assert entry["spread_factor"] == (workers + 1) / 2
    assert entry["spread_factor"] > 1, "never less noise than in one place"
