"""Counters of partial sums: open accumulators that start as noise, released sums, and public counts of their draws."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.grid import Bounds, Grid, GridBatch, Outside, Protects
from panstream.algorithms.continual.noise_sum_tails import Law, NoiseParts, add_noise, error_bound, noise_variance
from panstream.algorithms.continual.ticker import Ticker
from panstream.core.estimate import Estimate, Estimates
from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks
from panstream.primitives.codec import FieldLayout, noise, noised, public
from panstream.primitives.noise import DiscreteGaussian, NoiseSource
from panstream.privacy.continual_loss import gaussian_losses, tree_law, tree_sigma

IDLE = -1  # number of draws of an accumulator that is not open
_CHUNK = 1 << 13  # slots closed at a time: bounds the noise that is in scratch memory

Shape = tuple[int, int, int]
"""Numbers of accumulators, of released sums, and of stored noises."""


@dataclass(slots=True)
class TickState:
    """What the machine holds between two steps, and all an intruder can copy."""

    open: NDArray[np.int64] = noised()  # accumulators; 0 in those that are not open
    closed: NDArray[np.int64] = noised()  # released sums that later answers need
    kept: NDArray[np.int64] = noise()  # noise of open segments, if the proof counts it as part of the view
    open_draws: NDArray[np.int64] = public()  # numbers of draws in the accumulators, or IDLE
    closed_draws: NDArray[np.int64] = public()
    kept_draws: NDArray[np.int64] = public()
    time: int = public()  # slots closed so far

    @property
    def sums(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]:
        """Return the arrays that kernels over slots change, and the time."""
        return self.open, self.closed, self.open_draws, self.closed_draws, self.time

    def part(self, first: int, shape: Shape, time: int) -> TickState:
        """Return the state of a counter inside this one, as views of the arrays from ``first`` on."""
        accumulators, closed, retained = shape
        return TickState(
            open=self.open[first : first + accumulators],
            closed=self.closed[first : first + closed],
            kept=self.kept[:retained],
            open_draws=self.open_draws[first : first + accumulators],
            closed_draws=self.closed_draws[first : first + closed],
            kept_draws=self.kept_draws[:retained],
            time=time,
        )

    def add(self, total: NDArray[np.int64]) -> None:
        """Add the one-element array ``total`` to every open accumulator."""
        np.add(self.open, total, out=self.open, where=self.open_draws != IDLE)

    def refresh(self, law: Law, rng: NoiseSource) -> None:
        """Add one draw to every open accumulator and every stored noise."""
        for values, draws in ((self.open, self.open_draws), (self.kept, self.kept_draws)):
            is_open = draws != IDLE
            seen = rng.scratch.array(int(is_open.sum()), np.int64)
            np.compress(is_open, values, out=seen)
            add_noise(seen, law, rng)
            values[is_open] = seen
            draws[is_open] += 1


@dataclass(frozen=True, slots=True)
class SlotBatch:
    """Slots to be closed: their totals (input), and their answers in steps with the draws in them (output)."""

    totals: NDArray[np.int64]
    answers: NDArray[np.float64]
    draws: NDArray[np.float64]

    def piece(self, start: int, stop: int) -> SlotBatch:
        """Return views of the slots from ``start`` to ``stop``."""
        return SlotBatch(self.totals[start:stop], self.answers[start:stop], self.draws[start:stop])


@dataclass(frozen=True, slots=True)
class CounterAnswer:
    """Released integers, the answer in steps that they give, and the draws in it."""

    value: float
    released: tuple[int, ...]
    parts: NoiseParts


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialSumCounter(Ticker[TickState]):
    """Base of the counters of partial sums. Subclasses give the abstract methods, and ``close`` or ``advance``.

    Args:
        lower: Lower end of the range of one value; 0 to count events, -1 to count arrivals and
            departures.
        upper: Upper end of the range of one value, 1 to count.
        resolution: Values are rounded to multiples of it; None takes integers only.
        max_events: How many events one value given to ``tick_many`` may stand for. Larger totals
            are clipped to max_events·lower and max_events·upper, which the name of such an
            answer states.
    """

    state_type: ClassVar[type[Any]] = TickState
    proof: ClassVar[str] = "continual-papers.md"
    needs_horizon: ClassVar[bool] = False
    max_slots: ClassVar[int] = 1 << 62

    lower: float = 0
    upper: float = 1
    unit: Protects = "event"
    resolution: float | None = None
    outside: Outside = "clip"
    one_step_ticks: bool = False
    max_events: int = 1

    def __post_init__(self) -> None:
        if self.horizon is None and self.needs_horizon:
            raise InvalidParameter(f"horizon must be given: {type(self).__name__} is bounded in time")
        checks.require_integer_in_range(1, 1 << 20, max_events=self.max_events)
        if self.unit == "slot" and self.max_events != 1:
            raise InvalidParameter(f"unit='slot' needs max_events=1, got max_events={self.max_events}")
        _ = self.grid
        Ticker.__post_init__(self)
        if self.delta:
            sigma = tree_sigma(self.epsilon, self.delta, self.memberships) * self.sensitivity
            self.require_drawable(sigma, sigma, self.sensitivity)

    @property
    @abstractmethod
    def memberships(self) -> int:
        """Return in how many noisy sums one event is at most: epsilon is divided by it."""

    @abstractmethod
    def answer_parts(self, time: int) -> NoiseParts:
        """Return the draws in the answer after ``time`` slots without refreshes."""

    @property
    @abstractmethod
    def shape(self) -> Shape:
        """Return the sizes of the state: accumulators, released sums and stored noises."""

    @abstractmethod
    def initialize(self, state: TickState, rng: NoiseSource) -> None:
        """Open the first accumulators of an empty state, and add their noise.

        Args:
            state: The state, which is changed.
            rng: Source of the noise.
        """

    def close(self, state: TickState, slots: SlotBatch, rng: NoiseSource) -> None:
        """Fill and close the slots; the caller, ``advance``, increments the time.

        Not abstract: a counter whose draws have more than one distribution overrides ``advance``, which multiplies
        draws by a single variance.

        Args:
            state: The state, which is changed.
            slots: The total of every slot.
            rng: Source of the noise.
        """
        raise NotImplementedError

    @abstractmethod
    def answer(self, state: TickState) -> CounterAnswer:
        """Return the answer after the slots closed so far, from released numbers only.

        Args:
            state: The state.
        """

    @property
    def grid(self) -> Grid:
        """Return the grid of one value."""
        if self.resolution is None:
            return Grid.whole_numbers(self.lower, self.upper, self.outside)
        return Grid.around_zero(self.lower, self.upper, self.resolution, 1, self.outside)

    @property
    def scale(self) -> float:
        """Return the length of a step."""
        return self.grid.step

    @property
    def sensitivity(self) -> int:
        """Return by how many steps one protected unit changes a sum."""
        return self.grid.sensitivity(self.unit)

    @property
    def law(self) -> Law:
        """Return the distribution of every draw."""
        return _law(self.epsilon, self.delta, self.memberships, self.sensitivity)

    @property
    def lone_slots(self) -> int:
        """Return how many noisy sums of a single slot one event can be in: in one-step ticks they have one draw."""
        return 1

    def gaussian_losses(self) -> tuple[float, float]:
        """Return what a copy with all outputs loses, as zCDP, and what the outputs alone lose."""
        assert isinstance(self.law, DiscreteGaussian)
        square = self.sensitivity**2
        single = square * self.lone_slots if self.one_step_ticks else 0
        return gaussian_losses([(self.law, self.memberships * square)], self.memberships, single)

    def overshoot(self, rho: float) -> float:
        """Return how far lattice noise can take the log-odds beyond those of normal noise of the zCDP ``rho``."""
        assert isinstance(self.law, DiscreteGaussian)
        return 2.0 * rho / self.sensitivity if self.law.sigma >= 1.0 else math.inf

    @property
    def slot_draws(self) -> int:
        """Return the number of draws in a released sum of one slot: one if a tick is one step, else two."""
        return 1 if self.one_step_ticks else 2

    def initial_state(self, rng: NoiseSource) -> TickState:
        """Return an empty state with its first accumulators open and noised."""
        state = self.empty_state()
        state.open_draws[:] = state.kept_draws[:] = IDLE
        self.initialize(state, rng)
        return state

    def advance(
        self, state: TickState, totals: NDArray[np.int64], rng: NoiseSource
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Add each total to a slot and close it; return the answers in steps and their variances, slot by slot.

        Args:
            state: The state, which is changed.
            totals: The total of every slot.
            rng: Source of the noise.
        """
        slots = SlotBatch(totals, np.empty(totals.size), np.empty(totals.size))
        for start in range(0, totals.size, _CHUNK):
            piece = slots.piece(start, start + _CHUNK)
            self.close(state, piece, rng)
            state.time += piece.totals.size
        return slots.answers, slots.draws * self.law.variance

    def noisy_slots(
        self, state: TickState, totals: NDArray[np.int64], rng: NoiseSource
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Release every slot as a sum of its own and open the next; return the noisy sums and the draws in each."""
        size = totals.size
        slots = rng.scratch.array(size + 1, np.int64)
        slots.fill(0)
        # The open slot has its start noise already; all later ones and the one left open get theirs here.
        if not self.one_step_ticks:
            add_noise(slots[1:], self.law, rng)
        slots[:1] = state.open
        state.open[:] = slots[size:]
        slots[:size] += totals
        add_noise(slots[:size], self.law, rng)
        draws = np.full(size, float(self.slot_draws))
        draws[0] = float(state.open_draws[0]) + 1.0
        state.open_draws[0] = self.slot_draws - 1
        return slots[:size], draws

    def total(self, state: TickState, indices: list[int]) -> CounterAnswer:
        """Return the sum of the released sums in ``indices``."""
        released = tuple(int(number) for number in state.closed[indices])
        return CounterAnswer(sum(released), released, ((int(state.closed_draws[indices].sum()), self.law),))

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return the layout of accumulators, released sums and stored noises, their draws, and the time."""
        accumulators, closed, retained = self.shape
        return {
            "open": FieldLayout("i8", (accumulators,)),
            "closed": FieldLayout("i8", (closed,)),
            "kept": FieldLayout("i8", (retained,)),
            "open_draws": FieldLayout("i8", (accumulators,), at_least=IDLE),
            "closed_draws": FieldLayout("i8", (closed,), at_least=0),
            "kept_draws": FieldLayout("i8", (retained,), at_least=IDLE),
            "time": FieldLayout("int", at_least=0, below=self.last_slot + 1),
        }

    def batch(self, values: Any) -> GridBatch:
        """Check events of the open slot, one value per row."""
        self.require_multi_step()
        return self.grid.read(values)

    def update(self, state: TickState, batch: GridBatch, rng: NoiseSource) -> None:
        """Add events to the open slot."""
        self.require_slots(state.time, 1)
        total = rng.scratch.array(1, np.int64)
        np.sum(batch.rows, keepdims=True, out=total)
        state.add(total)

    def tick(self, state: TickState, rng: NoiseSource) -> Estimate:
        """Close the slot and return the estimate so far."""
        self.require_slots(state.time, 1)
        self.advance(state, np.zeros(1, np.int64), rng)
        return self.release(state, rng)

    def tick_many(self, state: TickState, values: Any, rng: NoiseSource) -> Estimates:
        """Take one value per slot, close each, and return all estimates. What ``update`` left open is in the first."""
        steps = self.grid.read(values, self.max_events)
        try:
            self.require_slots(state.time, len(steps))
            answers, variances = self.advance(state, steps.rows, rng)
        finally:
            steps.wipe()
        error = np.sqrt(variances) * self.scale
        return Estimates(
            unclipped=answers * self.scale,
            standard_error=error,
            claim=self.claim(),
            name=self.slot_label,
            support=self.bounds(state.time - len(steps) + np.arange(1, len(steps) + 1)),
        )

    def bounds(self, slots: NDArray[np.int64]) -> Bounds:
        """Return the smallest and largest sum after ``slots`` slots; finite if only ``tick_many`` fills them."""
        return self.grid.bounds(self.weight_of(slots) * self.max_events if self.one_step_ticks else None)

    def weight_of(self, slots: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the sum of the weights of all slots in the answer after ``slots`` slots."""
        return slots.astype(np.float64)

    def release(self, state: TickState, rng: NoiseSource) -> Estimate:
        """Return the estimate of the last tick again; it uses only numbers that are public already."""
        self.require_tick(state.time)
        answer = self.answer(state)
        error = math.sqrt(noise_variance(answer.parts)) * self.scale
        return self.make_estimate(answer.value * self.scale, error, answer.parts, answer.released, state.time)

    @property
    def label(self) -> str:
        """Return what the estimate is called."""
        return "count" if (self.lower, self.upper, self.resolution) == (0, 1, None) else "sum"

    @property
    def slot_label(self) -> str:
        """Return the label with the range to which a slot's value is clipped."""
        low = self.max_events * self.lower
        high = self.max_events * self.upper
        return f"{self.label}, slots clipped to {low:g}..{high:g} (max_events={self.max_events})"

    def refresh(self, state: TickState, rng: NoiseSource) -> None:
        """Add fresh noise to every open accumulator after an announced intrusion; any number of them is covered."""
        state.refresh(self.law, rng)

    def error_bound(self, *, beta: float, ticks: int | None = None) -> float:
        """Return the error after ``ticks`` slots that is exceeded with probability at most ``beta``.

        Without ``ticks`` it holds at every single slot up to the horizon, and is infinite without a horizon.
        """
        noiseless_error = self.error_without_noise(ticks)
        if noiseless_error is not None:
            return noiseless_error
        times = [ticks] if ticks is not None else self.worst_times()
        return max(error_bound(beta, self.answer_parts(time)) for time in times) * self.scale

    def worst_times(self) -> list[int]:
        """Return slots up to the horizon, one of which has the noisiest answer."""
        return [self.horizon or 1]


@lru_cache(maxsize=256)
def _law(epsilon: float, delta: float, levels: int, sensitivity: int) -> Law:
    return tree_law(epsilon, delta, levels, sensitivity, sensitivity**2)
