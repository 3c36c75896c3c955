"""Continual user counts: every history of one bit, with every copy and all answers, measured on the shipped code.

The controls are plausible forms that do not hold: the start counted as a change, one draw for a node, bits that toggle,
rows after the answer that a released start is for, and deletions at user level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from panstream.algorithms.continual_users.continual_bitmap import ContinualBitmap
from panstream.algorithms.continual_users.continual_density import ContinualDensity
from panstream.algorithms.continual_users.ones_counter import SetBitState
from panstream.algorithms.continual_users.retained_bitmap import RetainedBitmap, RetainedState
from panstream.audit.claims.case import Case, ExactLoss
from panstream.audit.claims.exact import Scenario, case_of
from panstream.core.estimate import Estimate
from panstream.primitives.noise import NoiseSource
from panstream.privacy.person_loss import PersonShare
from panstream.privacy.retained_loss import RetainedRates
from panstream.testing.bit_views import TOGGLE, BitView, Losses, views
from panstream.testing.enumeration import enumerate_streams, tick, update

_TICKS = 3
_SINGLE: dict[str, Any] = {
    "epsilon": 1.35,
    "horizon": 1,
    "unit": "user",
    "method": "paid",
    "levels": 0,
    "epsilon_state": math.log(3),
    "start_rate": 0.2,
}
Loss = Callable[[Losses], float]


def _measured(algorithm: Any, ticks: int, loss: Loss, draws: int | None = None) -> ExactLoss:
    """Return the largest loss over all copies; ``draws`` replaces the number of draws of every node."""
    losses: list[tuple[float, int | None]] = []
    for view in views(algorithm, ticks):
        seen = view if draws is None else BitView(view.look, view.weights, np.full_like(view.draws, draws), view.kappas)
        losses.append((loss(Losses(seen, ticks, algorithm.table.law.p1)), view.look))
    worst, look = max(losses, key=lambda pair: pair[0])
    return ExactLoss(loss=worst, witness=f"looked at after {look} tick(s)")


def _case(name: str, algorithm: Any, loss: Loss, ticks: int = _TICKS, **options: Any) -> Case:
    draws = options.pop("draws", None)
    case_options = {"kind": "production", "claimed": algorithm.claim().epsilon, **options}
    return Case(name=name, algorithm=algorithm, exact=partial(_measured, algorithm, ticks, loss, draws), **case_options)


def _fixed(levels: int, **options: Any) -> dict[str, Any]:
    return {"epsilon": 1.0, "levels": levels, "epsilon_state": 0.7, "start_rate": 0.0, **options}


def _production() -> Iterator[Case]:
    one = partial(ContinualDensity, universe=1)
    event = {"method": "event", "horizon": _TICKS}
    user = {"method": "user", "horizon": _TICKS, "unit": "user"}
    yield _case("ContinualDensity, event, one level", one(**_fixed(1, **event)), Losses.of_event)
    yield _case("ContinualDensity, event, two levels", one(**_fixed(2, **event)), Losses.of_event)
    yield _case("ContinualDensity, start released", one(**_fixed(2, **event, start_rate=0.05)), Losses.of_event)
    sampled = (ContinualDensity(universe=2, sample=1, key=key, **_fixed(1, **event)) for key in range(64))
    yield _case(
        "ContinualDensity, sampled", next(density for density in sampled if _watches_first(density)), Losses.of_event
    )
    leave = partial(Losses.of_event, steps=(0, 1, -1))
    yield _case("ContinualDensity, deletions", one(**_fixed(1, **event, deletions=True)), leave)
    yield _case("ContinualDensity, unbounded", one(**_fixed(1, method="event")), Losses.of_event, 2)
    yield _case("ContinualDensity, user", one(**_fixed(1, **user)), Losses.of_user)
    few = one(**_fixed(1, **user, contributions=_TICKS + 1))
    yield _case("ContinualDensity, few rows", few, Losses.of_user)
    span = one(**_fixed(1, **{**user, "unit": "user-window"}, window=_TICKS))
    yield _case("ContinualDensity, window", span, Losses.of_user)
    single = one(**_SINGLE)
    streams = enumerate_streams([None, None, tick()], [update([]), update([0])])
    yield case_of(single, streams, window=(-1, 2), name="ContinualDensity, single answer")
    cell = partial(ContinualBitmap, buckets=1, rows_of_cells=1)
    shared = cell(**_SINGLE)
    around = [
        enumerate_streams([None, other, None, tick()], [update([]), update([0])]) for other in (update([]), update([1]))
    ]
    yield case_of(
        shared, window=(-1, 2), name="ContinualBitmap, single answer", scenarios=[Scenario(stream) for stream in around]
    )
    yield _case("ContinualBitmap, event", cell(**_fixed(1, **event)), Losses.of_event)
    yield _case("ContinualBitmap, user", cell(**_fixed(1, **user)), Losses.of_user)
    yield _case("ContinualBitmap, few rows", cell(**_fixed(1, **user, contributions=_TICKS)), Losses.of_user)
    yield _case("ContinualBitmap, unbounded", cell(**_fixed(1, method="event")), Losses.of_event, 2)


def _watches_first(algorithm: ContinualDensity) -> bool:
    """Return whether user 0 is in the sample."""
    return int(algorithm.population.permute(np.zeros(1, np.int64), np.empty(1, np.int64))[0]) == 0


class _CountsTheStart(ContinualDensity):
    """Counts the initial bit as a change: the first open nodes contain it. A control: never use it."""

    def initial_state(self, rng: NoiseSource) -> SetBitState:
        """Start correctly, then add the initial bit."""
        state = ContinualDensity.initial_state(self, rng)
        state.open += int(state.bits[0] & 1)
        return state


class _GoesOn(ContinualBitmap):
    """Takes rows after the answer that the start was released for. A control: never use it."""

    def update(self, state: SetBitState, batch: Any, rng: NoiseSource) -> None:
        """Redraw the bits of the batch at any time."""
        self.table.update(state.cells, batch, rng)


def _controls() -> Iterator[Case]:
    event: dict[str, Any] = {"universe": 1, "method": "event", "horizon": _TICKS}
    user = {**event, "method": "user", "unit": "user"}
    control = partial(_case, kind="control")
    counted: Any = _CountsTheStart(**_fixed(2, **event))
    yield control("Tree that counts the start as a change", counted, Losses.of_event, represents="twice the constant")
    yield control(
        "Toggled bit in a tree",
        ContinualDensity(**_fixed(1, **event)),
        partial(Losses.of_event, steps=(0, TOGGLE)),
        represents="an event turns a toggled or modular counter for ever: eps_s + (2T-1)·kappa, more than T releases",
    )
    yield control(
        "One draw in a node, user level",
        ContinualDensity(**_fixed(1, **{**user, "horizon": 5})),
        Losses.of_user,
        5,
        draws=1,
        represents="a single draw bends at 0, so that every flicker of the bit costs first order",
    )
    late = enumerate_streams([None, None, tick(), None], [update([]), update([0])])
    yield case_of(
        _GoesOn(buckets=1, rows_of_cells=1, **_SINGLE),
        late,
        window=(-1, 2),
        name="Rows after the answer whose start was released",
        kind="control",
        represents="a user who comes after the answer loses eps_s + f(kappa + kappa_0)",
    )
    yield control(
        "Deletions in a tree, user level",
        ContinualDensity(**_fixed(1, **user)),
        partial(Losses.of_user, steps=(0, 1, -1)),
        represents="a user who comes and leaves moves the mean of her bit at every tick",
    )


class _HalfNoise(RetainedBitmap):
    """Draws release noise of twice the rate that was paid for."""

    def __post_init__(self) -> None:
        RetainedBitmap.__post_init__(self)
        object.__setattr__(self, "rates", RetainedRates(2 * self.rates.of_count, 2 * self.rates.of_pair))


class _SameCells(RetainedBitmap):
    """Starts a window with the cells of the one before it."""

    def tick(self, state: RetainedState, rng: NoiseSource) -> Estimate:
        """Close the window and leave its cells where they are."""
        estimate = RetainedBitmap.tick(self, state, rng)
        state.bits[:] = state.retained[0]
        return estimate


class _ClosedAgain(RetainedBitmap):
    """Shows the answers of a window before they are stored, and draws them again after a crash."""

    def tick(self, state: RetainedState, rng: NoiseSource) -> Estimate:
        """Publish numbers, and leave the cells as they were."""
        before = (state.bits.copy(), state.retained.copy())
        estimate = RetainedBitmap.tick(self, state, rng)
        state.bits[:], state.retained[:] = before
        return estimate


def _retained() -> Iterator[Case]:
    """Yield one window, with a user in the next one; two windows of one person; and what must not be done."""
    cell: dict[str, Any] = {"epsilon": 2.0, "epsilon_state": 1.0, "expected": 1, "buckets": 1, "levels": 1}
    cell |= {"lags": 1, "cohorts": 1}
    nothing = update([])
    come = update([0])
    retained = RetainedBitmap(**cell)
    share = PersonShare.of_windows("query", retained.window_loss(), window=1.0, period=1.0, retained=1)
    closed = [None, None, tick(), come, tick()]
    options: dict[str, Any] = {"window": (-1, 2), "sampled": False}
    yield case_of(retained, enumerate_streams(closed, [nothing, come]), name="RetainedBitmap", **options)
    yield case_of(
        retained,
        enumerate_streams([None, tick(), None, tick()], [nothing, come]),
        name="RetainedBitmap, two windows of one person",
        claimed=share.epsilon,
        **options,
    )
    for kind, name, steps, represents in (
        (_HalfNoise, "Retained windows with half the noise", closed, "noise for two answers about a window, not four"),
        (
            _SameCells,
            "Next window starts with the same cells",
            [come, tick(), None],
            "a cell that differs from the retained one proves an arrival",
        ),
        (
            _ClosedAgain,
            "Window closed again, retained",
            [None, None, tick(), tick()],
            "answers that were shown before they were stored are drawn again",
        ),
    ):
        yield case_of(
            kind(**cell),
            enumerate_streams(steps, [nothing, come]),
            name=name,
            kind="control",
            claimed=retained.claim().epsilon,
            represents=represents,
            **options,
        )


CASES = (_production, _retained, _controls)
