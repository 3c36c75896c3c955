"""The exact joint loss of every counter of the papers, by linear program on the view matrix of the shipped code.

Every case: one look after any step (or none), an event in any step, all outputs; ticks of one and of several steps.
"""

import math

import pytest

from panstream.algorithms.continual.decayed_sum import DecayedSum
from panstream.algorithms.continual.windowed_sum import WindowedSum
from panstream.papers.counters.binary import BinaryMechanism
from panstream.papers.counters.event_counter import EventCounter
from panstream.papers.counters.hybrid import HybridMechanism
from panstream.papers.counters.logarithmic import LogarithmicMechanism
from panstream.papers.counters.simple_counters import SimpleCounterI, SimpleCounterII
from tests.algorithms.continual.view_matrix import refresh, slots_in_one_step, slots_of_steps, ticks, update, views

pytestmark = pytest.mark.slow

EPSILON = 0.7
TOLERANCE = 1e-7

BOUNDED = [BinaryMechanism, SimpleCounterI, EventCounter]
UNBOUNDED = {
    "simple two": lambda **k: SimpleCounterII(**k),
    "logarithmic": lambda **k: LogarithmicMechanism(**k),
    "hybrid binary": lambda **k: HybridMechanism(**k),
    "hybrid event": lambda **k: HybridMechanism(bounded="EventCounter", **k),
    "hybrid simple": lambda **k: HybridMechanism(bounded="SimpleCounterI", **k),
    "window 1": lambda **k: WindowedSum(window=1, **k),
    "window 3": lambda **k: WindowedSum(window=3, **k),
    "window 4": lambda **k: WindowedSum(window=4, **k),
    "exponential": lambda **k: DecayedSum(decay="exponential", rate=0.5, **k),
    "polynomial": lambda **k: DecayedSum(decay="polynomial", rate=1.0, **k),
}


def loss_of(algorithm, slots, updates):
    steps = slots_in_one_step(slots) if updates == 0 else slots_of_steps(slots, updates)
    return views(algorithm, steps).loss()


@pytest.mark.parametrize(("horizon", "updates"), [*((t, n) for t in (1, 2, 5, 8) for n in (0, 1)), (3, 2)])
@pytest.mark.parametrize("kind", BOUNDED)
def test_bounded_counters_lose_exactly_their_claim(kind, horizon, updates):
    algorithm = kind(epsilon=EPSILON, horizon=horizon, one_step_ticks=updates == 0)
    assert loss_of(algorithm, horizon, updates) == pytest.approx(algorithm.claim().epsilon, abs=TOLERANCE)


@pytest.mark.parametrize("updates", [0, 1, 2])
@pytest.mark.parametrize("name", UNBOUNDED)
def test_unbounded_counters_lose_exactly_their_claim(name, updates):
    algorithm = UNBOUNDED[name](epsilon=EPSILON, one_step_ticks=updates == 0)
    slots = 9 if updates == 0 else 5 if updates == 1 else 4
    assert loss_of(algorithm, slots, updates) == pytest.approx(algorithm.claim().epsilon, abs=TOLERANCE)


@pytest.mark.parametrize("updates", [0, 1])
@pytest.mark.parametrize("kind", BOUNDED)
@pytest.mark.parametrize("horizon", [7, 9, 16])
def test_bounded_counters_at_longer_horizons(kind, horizon, updates):
    algorithm = kind(epsilon=EPSILON, horizon=horizon, one_step_ticks=updates == 0)
    assert loss_of(algorithm, horizon, updates) == pytest.approx(EPSILON, abs=TOLERANCE)


@pytest.mark.parametrize(("slots", "updates"), [(16, 0), (10, 1)])
@pytest.mark.parametrize("name", UNBOUNDED)
def test_unbounded_counters_on_more_slots(name, slots, updates):
    algorithm = UNBOUNDED[name](epsilon=EPSILON, one_step_ticks=updates == 0)
    assert loss_of(algorithm, slots, updates) == pytest.approx(EPSILON, abs=TOLERANCE)


@pytest.mark.parametrize("one_step_ticks", [False, True])
@pytest.mark.parametrize("name", ["binary", "simple one", "event", *UNBOUNDED])
def test_any_number_of_announced_looks_costs_no_more(name, one_step_ticks):
    bounded = dict(zip(["binary", "simple one", "event"], BOUNDED, strict=True))
    shared = {"epsilon": EPSILON, "one_step_ticks": one_step_ticks}
    algorithm = bounded[name](horizon=6, **shared) if name in bounded else UNBOUNDED[name](**shared)
    steps = []
    for step in slots_in_one_step(6) if one_step_ticks else slots_of_steps(4, 1):
        steps += [step, refresh()]
    del steps[-3:]  # the last phase is long enough for an unannounced look before and after an event
    last = max(at for at, step in enumerate(steps) if step == refresh()) + 1
    looks = [None, *range(last, len(steps) + 1)]
    found = views(algorithm, steps).loss(looks)
    assert found <= EPSILON + TOLERANCE
    # Noise of a refresh can only help counters whose noise is shared by many outputs; the others lose exactly epsilon.
    if name not in ("simple one", "event", "hybrid event", "hybrid simple"):
        assert found == pytest.approx(EPSILON, abs=TOLERANCE)


def test_two_looks_without_a_refresh_in_between_have_no_finite_loss():
    algorithm = BinaryMechanism(epsilon=EPSILON, horizon=4)
    steps = [update(0), refresh(), update(0), update(0), refresh(), update(0)]
    found = views(algorithm, steps)
    assert found.loss([2]) == math.inf  # a look right after the first refresh, then data, then the second look
    assert found.loss([6]) <= EPSILON + TOLERANCE


@pytest.mark.parametrize("kind", BOUNDED)
def test_larger_values_move_proportionally_more(kind):
    algorithm = kind(epsilon=EPSILON, horizon=5, lower=-3, upper=2)
    assert views(algorithm, slots_of_steps(5, 1), event=-3).loss() == pytest.approx(EPSILON, abs=TOLERANCE)
    assert views(algorithm, slots_of_steps(5, 1), event=2).loss() == pytest.approx(EPSILON * 2 / 3, abs=TOLERANCE)


@pytest.mark.parametrize("kind", BOUNDED)
def test_a_slot_may_be_exchanged_for_any_other(kind):
    algorithm = kind(epsilon=EPSILON, horizon=4, lower=-3, upper=2, unit="slot", one_step_ticks=True)
    steps = [ticks(-3)] * 4
    assert algorithm.claim().unit == "slot"
    assert views(algorithm, steps, event=5).loss() == pytest.approx(EPSILON, abs=TOLERANCE)


@pytest.mark.parametrize("kind", BOUNDED)
def test_an_array_of_slots_is_one_step(kind):
    algorithm = kind(epsilon=EPSILON, horizon=7)
    found = views(algorithm, [ticks(0, 0, 0), update(0), ticks(0, 0), ticks(0, 0)])
    assert found.loss() <= EPSILON + TOLERANCE
    assert found.loss() > EPSILON / 3
