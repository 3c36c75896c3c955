"""What the partial-sum counters share: public parameters, input, the clock of slots, claims and errors.

A subclass gives a plan of partial sums and what it costs, and the transform of
:mod:`panstream.papers.intrusion_transform` does the rest; a counter that is not made of partial sums gives ``shape``,
``enter``, ``advance`` and ``answer`` itself.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream import checks
from panstream.algorithm import Algorithm
from panstream.codec import FieldLayout
from panstream.continual.counter_state import IDLE, Shape, TickState, empty_state, refresh_state, state_layout
from panstream.continual.noise_sum import NoiseParts, error_bound, half_width, noise_variance
from panstream.continual.slots import REFUSES, Amounts, Outside, Protects, SlotRange
from panstream.errors import BudgetExhausted, InvalidParameter, NotSupported
from panstream.estimate import Estimate, Estimates
from panstream.privacy.claim import Claim, Intrusions
from panstream.privacy.psums import psum_kappa
from panstream.randomness import DiscreteLaplace, Source

__all__ = ["MAX_HORIZON", "Answer", "SlotCounter"]

MAX_HORIZON = 1 << 62


@lru_cache(maxsize=1024)
def _law(kappa: Fraction | float) -> DiscreteLaplace:
    return DiscreteLaplace.at_most(kappa)


@dataclass(frozen=True, slots=True)
class Answer:
    """Released integers, what they add up to (in steps), and which draws that sum holds."""

    value: float
    released: tuple[int, ...]
    parts: NoiseParts


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotCounter(Algorithm[TickState]):
    """Base of the counters.

    Parameters
        epsilon: total loss; ``math.inf`` switches all noise off, for tests.
        horizon: how many slots there will be at most; None where the counter needs no such bound.
        lower, upper: range of one value; 0 and 1 count events, -1 and 1 count arrivals and departures.
        unit: "event" protects one value, added or removed; "slot" protects all that happened in one slot, exchanged
            for anything else in the range, and needs ``one_step_ticks``.
        fraction_bits: values are numbers, rounded to multiples of 2**-fraction_bits; 0 takes integers only.
        outside: "clip" moves values into the range; "refuse" refuses the batch and names the row, and has no claim: one value
            would decide whether all others of its batch count.
        one_step_ticks: a slot is filled and closed in one step by ``ticks`` and ``update`` is refused, so a slot needs
            no noise of its own before it closes.
        most_events: how many events one value given to ``ticks`` may stand for.
    """

    state_type: ClassVar[type[Any]] = TickState
    needs_horizon: ClassVar[bool] = False

    epsilon: float
    horizon: int | None = None
    lower: float = 0
    upper: float = 1
    unit: Protects = "event"
    fraction_bits: int = 0
    outside: Outside = "clip"
    one_step_ticks: bool = False
    most_events: int = 1

    def __post_init__(self) -> None:
        checks.positive(epsilon=self.epsilon)
        if self.horizon is None and self.needs_horizon:
            raise InvalidParameter(f"horizon must be given: {type(self).__name__} is bounded in time")
        if self.horizon is not None:
            checks.within(1, MAX_HORIZON, horizon=self.horizon)
        self.slot_range.check()
        if self.unit not in ("event", "slot"):
            raise InvalidParameter(f"unit must be 'event' or 'slot', got unit={self.unit!r}")
        checks.within(1, 1 << 20, most_events=self.most_events)
        if self.unit == "slot" and not (self.one_step_ticks and self.most_events == 1):
            # Over several steps nobody could enforce a slot's range without keeping its exact total.
            raise InvalidParameter("unit='slot' needs one_step_ticks=True and most_events=1")
        self.check()

    def check(self) -> None:
        """Raise InvalidParameter if a parameter of the subclass breaks its rule."""

    @property
    @abstractmethod
    def memberships(self) -> int:
        """Return how many noises one step of the data moves at worst: epsilon is divided by it."""

    @abstractmethod
    def answer_parts(self, time: int) -> NoiseParts:
        """Return which draws the answer after ``time`` slots holds, if nothing was refreshed."""

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """Return how many accumulators, released sums and kept noises the state holds."""

    @abstractmethod
    def enter(self, state: TickState, source: Source) -> None:
        """Open the first accumulators of an empty state, noised."""

    @abstractmethod
    def advance(
        self, state: TickState, totals: NDArray[np.int64], source: Source
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Add each total to a slot and close it; return the answers and their variances in steps, slot by slot."""

    @abstractmethod
    def answer(self, state: TickState) -> Answer:
        """Return the answer after the slots closed so far, from released numbers only."""

    @property
    def slot_range(self) -> SlotRange:
        """Return the range of one value."""
        return SlotRange(lower=self.lower, upper=self.upper, fraction_bits=self.fraction_bits, outside=self.outside)

    @property
    def sensitivity(self) -> int:
        """Return how many integer steps one protected unit moves a sum."""
        return self.slot_range.sensitivity(self.unit)

    @property
    def law(self) -> DiscreteLaplace:
        """Return the law of every draw."""
        return _law(psum_kappa(self.epsilon, self.memberships, self.sensitivity))

    @property
    def slot_draws(self) -> int:
        """Return how many draws a released sum of one slot holds: one if a tick is one step, else two."""
        return 1 if self.one_step_ticks else 2

    def begin(self, source: Source) -> TickState:
        """Return a fresh state, already noised."""
        state = empty_state(self.shape)
        self.enter(state, source)
        return state

    def total(self, state: TickState, places: list[int]) -> Answer:
        """Return what the released sums in ``places`` add up to."""
        released = tuple(int(number) for number in state.closed[places])
        return Answer(sum(released), released, ((int(state.closed_draws[places].sum()), self.law),))

    def claim(self) -> Claim:
        """Return the exact joint loss of one look at any time and all outputs."""
        private = math.isfinite(self.epsilon)
        claim = Claim(
            epsilon=self.epsilon,
            unit=self.unit,
            adjacency="add-remove" if self.unit == "event" else "replace",
            parts=self.loss_parts(),
            intrusions=Intrusions(unannounced=1, announced=-1),
            inputs="adaptive",
            releases=-1 if self.horizon is None else self.horizon,
            horizon=self.horizon,
            public=("how many slots were closed, and in how many steps",),
            note="" if private else "no noise: for tests only",
        )
        return claim if self.outside == "clip" else claim.without_privacy(REFUSES)

    def loss_parts(self) -> dict[str, float]:
        """Return what epsilon is made of, where it is made of several parts."""
        return {}

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return accumulators, released sums, kept noises, the numbers of their draws, and the time."""
        return state_layout(self.shape, MAX_HORIZON if self.horizon is None else self.horizon)

    def batch(self, values: Any) -> Amounts:
        """Check events of the open slot, one value a row."""
        if self.one_step_ticks:
            raise NotSupported("one_step_ticks=True fills and closes a slot in one step: call ticks(values)")
        return self.slot_range.amounts(values)

    def update(self, state: TickState, batch: Amounts, source: Source) -> None:
        """Add events to the open slot."""
        self._need_slots(state, 1)
        total = source.scratch.array(1, np.int64)
        np.sum(batch.values, keepdims=True, out=total)
        self.add(state, total)

    def add(self, state: TickState, total: NDArray[np.int64]) -> None:
        """Add the one-element array ``total`` to every open accumulator."""
        np.add(state.open, total, out=state.open, where=state.open_draws != IDLE)

    def tick(self, state: TickState, source: Source) -> Estimate:
        """Close the slot and return the estimate so far."""
        self._need_slots(state, 1)
        self.advance(state, np.zeros(1, np.int64), source)
        return self.release(state, source)

    def ticks(self, state: TickState, values: Any, source: Source) -> Estimates:
        """Take one value per slot, close each, and return all estimates. What ``update`` left open is in the first."""
        amounts = self.slot_range.amounts(values, self.most_events)
        try:
            self._need_slots(state, len(amounts))
            answers, variances = self.advance(state, amounts.values, source)
        finally:
            amounts.wipe()
        unit = 1 << self.fraction_bits
        return Estimates(
            value=answers / unit, standard_error=np.sqrt(variances) / unit, claim=self.claim(), name=self.label
        )

    def release(self, state: TickState, source: Source) -> Estimate:
        """Return the estimate of the last tick again: it is made of numbers that are public already."""
        if state.time == 0:
            raise NotSupported(f"{type(self).__name__} releases at ticks: call tick() first")
        found, unit = self.answer(state), 1 << self.fraction_bits

        def rule(level: float) -> tuple[float, float]:
            half = half_width(level, found.parts)
            return (found.value - half) / unit, (found.value + half) / unit

        return Estimate(
            value=found.value / unit,
            unbiased=found.value / unit,
            standard_error=math.sqrt(noise_variance(found.parts)) / unit,
            claim=self.claim(),
            name=self.label,
            released=found.released,
            rule=rule,
        )

    @property
    def label(self) -> str:
        """Return what the estimate is called."""
        return "count" if (self.lower, self.upper, self.fraction_bits) == (0, 1, 0) else "sum"

    def refresh(self, state: TickState, source: Source) -> None:
        """Add fresh noise to every open accumulator after an announced intrusion; any number of them is covered."""
        refresh_state(state, self.law, source)

    def error(self, *, beta: float, ticks: int | None = None) -> float:
        """Return the error after ``ticks`` slots that is exceeded with probability at most ``beta``.

        Without ``ticks`` it holds at every single slot up to the horizon, and is infinite where there is none.
        """
        if ticks is not None and not 1 <= ticks <= (self.horizon or MAX_HORIZON):
            raise InvalidParameter(f"ticks must be in 1..{self.horizon or MAX_HORIZON}, got ticks={ticks}")
        if math.isinf(self.epsilon):
            return 0.0
        if ticks is None and self.horizon is None:
            return math.inf
        times = [ticks] if ticks is not None else self.worst_times()
        return max(error_bound(beta, self.answer_parts(at)) for at in times) / (1 << self.fraction_bits)

    def worst_times(self) -> list[int]:
        """Return slots up to the horizon among which the noisiest answer is."""
        return [self.horizon or 1]

    def _need_slots(self, state: TickState, slots: int) -> None:
        last = MAX_HORIZON if self.horizon is None else self.horizon
        if state.time + slots > last:
            raise BudgetExhausted(f"the horizon of {last} slots leaves {last - state.time}, got {slots}")
