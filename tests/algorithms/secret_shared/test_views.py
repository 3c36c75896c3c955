"""Every view of covered looks loses what the answers lose, exactly, through the shipped steps; the audit's controls are
the mistakes. The figures are those of docs/proofs/two-machines.md.
"""

import itertools
import math
import os
from typing import Any

import numpy as np
import pytest

from panstream.algorithms.secret_shared.ring import Ring
from panstream.algorithms.secret_shared.rules import Rule
from panstream.algorithms.secret_shared.running_sums import NoisyRunningSums
from panstream.algorithms.secret_shared.share_rules import OverwrittenBits
from panstream.audit.claims.cases import cases_in
from panstream.primitives.noise import DiscreteLaplace
from panstream.testing.secret_shared_views import SharedViews, covered_looks

HALF = DiscreteLaplace.at_most(math.log(2))  # e**-kappa = 1/2
# The loss of one draw modulo 3, and of two together
ONE = math.log(3 / 2)
TWO = 0.060624621816
NOBODY, COMES = ((np.array([h], np.uint8), np.array([v], np.uint8)) for h, v in ((0, 0), (1, 1)))
NONE = (np.zeros(1, np.int64),)
EVENT = (np.ones(1, np.int64),)


def bit(releases: int = 1) -> OverwrittenBits:
    return OverwrittenBits(cells=1, noise=HALF, releases=releases, ring=Ring(3))


def worlds(program: str, actions: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    choices = [range(len(actions)) if step == "rows" else (None,) for step in program.split("-")]
    found = [world for world in itertools.product(*choices) if actions[0] is not NONE or sum(filter(None, world)) <= 1]
    return [tuple(None if each is None else actions[each] for each in world) for world in found]


def largest(rule: Rule, program: str, actions: tuple[Any, ...]) -> float:
    views = SharedViews(rule)
    steps = program.split("-")
    return max(views.loss(steps, worlds(program, actions), looks) for looks in covered_looks(len(steps)))  # type: ignore[arg-type]


PROGRAMS: list[tuple[Rule, str, Any, float]] = [
    (bit(), "rows-answers", (NOBODY, COMES), ONE),
    (bit(), "rows-rows-answers", (NOBODY, COMES), ONE),
    (bit(), "rows-answers-rows", (NOBODY, COMES), ONE),
    (bit(), "rows-idle-idle-answers", (NOBODY, COMES), ONE),
    (bit(2), "rows-answers-idle-answers", (NOBODY, COMES), 2 * ONE),
    (
        NoisyRunningSums(width=1, radices=(1,), noise=HALF, releases=1, ring=Ring(3, wide=True)),
        "rows-rows-answers",
        (NONE, EVENT),
        ONE,
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "program", "actions", "loss"), PROGRAMS if os.environ.get("PANSTREAM_FULL") == "1" else PROGRAMS[:1]
)
def test_covered_looks_lose_what_the_answers_lose(rule: Rule, program: str, actions: Any, loss: float) -> None:
    """With PANSTREAM_FULL=1 for every reference program: a minute."""
    assert largest(rule, program, actions) == pytest.approx(loss, abs=1e-9)


@pytest.mark.slow
def test_a_look_at_the_front_end_shows_nothing_of_others() -> None:
    """In the step of somebody else's row and in the answer; A in epochs 0, 1 and 3, B in epoch 2."""
    looks = [("A", "epoch", 0), ("A", "epoch", 1), ("F", "step", 2), ("B", "epoch", 2), ("F", "step", 3)]
    views = SharedViews(bit())
    for other, loss in ((COMES, 0.0), (NOBODY, TWO)):
        both = [(mine, other, None) for mine in (NOBODY, COMES)]
        found = views.loss(["rows", "rows", "answers"], both, [*looks, ("A", "epoch", 3)])
        assert found == pytest.approx(loss, abs=1e-9)


@pytest.mark.slow
def test_every_known_mistake_of_two_machines_is_a_control() -> None:
    controls = [case for case in cases_in("secret_shared") if case.kind == "control"]
    assert len(controls) == 19
    found = {case.name: case.exact().loss for case in controls if case.exact is not None}
    finite = {name: loss for name, loss in found.items() if math.isfinite(loss)}
    assert finite == {
        "Answers without a common mask": pytest.approx(2 * ONE, abs=1e-9),
        "Release drawn again after a crash, two machines": pytest.approx(2 * math.log(5 / 4), abs=1e-9),
        "Half of the noise in the nodes of a live count": pytest.approx(0.2606659904, abs=1e-9),
        "Half of the noise from each machine": pytest.approx(1.6751386, abs=1e-6),
    }


SLOWEST = [("live counts", 2 * math.log(5 / 4)), ("retained windows", 3 * math.log(5 / 4))]  # up to a minute each


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("noisy cells, both once", 1.417066019786),
        ("a step taken again", math.log(5 / 4)),
        ("a tick taken again", math.log(5 / 4)),
        ("live counts, one tick", math.log(5 / 4)),
        *(SLOWEST if os.environ.get("PANSTREAM_FULL") == "1" else ()),
    ],
)
def test_losses_of_two_machines_are_exact(name: str, loss: float) -> None:
    """Noisy cells: an attacker who watches one machine and copies the other in one epoch learns what one copy of noisy
    cells shows. A step taken again: whatever rows the first attempt had, and whichever machines are copied, A, B, or
    one and then the other, nothing more is lost. Live counts: a user who comes at another tick is in two
    nodes. Retained windows: a window's number of ones, and its differences
    from the window before it and the one after.
    """
    (case,) = (case for case in cases_in("secret_shared") if case.name.endswith(name))
    assert case.exact is not None
    assert case.exact().loss == pytest.approx(loss, abs=1e-9)
