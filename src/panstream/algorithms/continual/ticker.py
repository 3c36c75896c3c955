"""Base of the algorithms that answer at ticks: parameters, horizon, claim, and the interval of an answer."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.grid import Bounds, Outside
from panstream.algorithms.continual.noise_sum_tails import NoiseParts, half_width
from panstream.core.algorithm import Algorithm
from panstream.core.estimate import Estimate, symmetric_interval
from panstream.errors import BudgetExhausted, InvalidParameter, NotSupported
from panstream.primitives import validation as checks
from panstream.primitives.noise import NoiseSource
from panstream.privacy.claim import Adjacency, Claim, Intrusions, Unit
from panstream.privacy.composition import gaussian_tail, zcdp_epsilon, zcdp_rho
from panstream.privacy.person_loss import WindowLoss

StateT = TypeVar("StateT")

_SMALLEST_SIGMA = 2.0**-5  # as in DiscreteGaussian.at_least
LARGEST_SIGMA = 2.0**20
_REFUSES = 'outside="refuse" lets one value decide whether all others of its batch count'


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticker(Algorithm[StateT]):
    """Base of the algorithms that answer at ticks.

    A property with the name of a parameter below is the value for subclasses that do not have this parameter.

    Args:
        epsilon: Total loss; ``math.inf`` switches all noise off, for tests.
        delta: 0 for discrete Laplace noise, whose loss is at most ``epsilon``; above 0 for discrete Gaussian noise:
            one copy and all outputs lose (epsilon, delta).
        horizon: How many ticks there will be at most; None for a stream without end.
        lower: Lower end of the range of a value.
        upper: Upper end of the range of a value.
        resolution: Length of a step to which values are rounded.
        outside: "clip" moves values into the range, silently: a warning would reveal a single value. "refuse" refuses
            the batch and names the row, and has no claim: one value would decide whether all others of its batch count.
        unit: "event" protects one value, added or removed; "slot" protects all that happened in
            one slot, exchanged for anything else in the range, and needs ``one_step_ticks``.
        one_step_ticks: Every slot is filled and closed in one step by ``tick_many``; ``update`` is
            refused and an open slot needs no noise.
        contributions: Protect a user with at most this many rows instead of one event.
    """

    max_slots: ClassVar[int] = 1 << 56

    epsilon: float
    horizon: int | None = None

    @property
    def delta(self) -> float:
        """Return the delta of the claim."""
        return 0.0

    @property
    def unit(self) -> Unit:
        """Return the protected unit."""
        return "event"

    @property
    def adjacency(self) -> Adjacency:
        """Return whether neighbouring streams differ in an event's presence or in its value."""
        return "add-remove"

    @property
    def contributions(self) -> int | None:
        """Return how many rows of a user are protected together."""
        return None

    @property
    def outside(self) -> Outside:
        """Return what happens to values outside the range."""
        return "clip"

    @property
    def one_step_ticks(self) -> bool:
        """Return whether a slot is filled and closed in one step."""
        return False

    def __post_init__(self) -> None:
        self._check_numbers()
        if self.unit not in ("event", "slot"):
            raise InvalidParameter(f"unit must be 'event' or 'slot', got unit={self.unit!r}")
        if self.unit == "slot" and not (self.one_step_ticks and self.contributions is None):
            # Over several steps a slot's range could be enforced only with its exact total in the state.
            raise InvalidParameter("unit='slot' needs one_step_ticks=True and no contributions")
        self.check()

    def _check_numbers(self) -> None:
        checks.require_positive(epsilon=self.epsilon)
        checks.require_delta(delta=self.delta)
        if self.contributions is not None:
            checks.require_at_least(1, contributions=self.contributions)
        if self.horizon is not None:
            checks.require_integer_in_range(1, self.max_slots, horizon=self.horizon)

    def require_drawable(self, smallest: float, largest: float, steps: int) -> None:
        """Raise InvalidParameter if Gaussian noise of a sigma in this range cannot be drawn exactly."""
        if math.isinf(self.epsilon):
            return
        if largest > LARGEST_SIGMA:
            raise InvalidParameter(
                f"epsilon must be larger for items of {steps} steps, or the resolution coarser, "
                f"got epsilon={self.epsilon} and delta={self.delta}"
            )
        if smallest < _SMALLEST_SIGMA:
            raise InvalidParameter(
                f"epsilon must be smaller: less noise cannot be drawn exactly, got epsilon={self.epsilon}"
            )

    @abstractmethod
    def tick(self, state: StateT, rng: NoiseSource) -> Estimate:
        """Close the slot and return the estimate so far.

        Args:
            state: The state, which is changed.
            rng: Source of the noise.
        """

    def check(self) -> None:
        """Raise InvalidParameter if a parameter of the subclass is out of range."""

    @property
    def last_slot(self) -> int:
        """Return how many slots there may be."""
        return self.max_slots if self.horizon is None else self.horizon

    @property
    def scale(self) -> float:
        """Return the length of a step in the unit of the answer."""
        return 1.0

    @property
    def label(self) -> str:
        """Return what the estimate is called."""
        return "sum"

    @property
    def slot_label(self) -> str:
        """Return the name of an estimate of slots filled by ``tick_many``, with the range they are clipped to.

        The range is part of every answer. A warning or an error when something is clipped would depend on a single
        value and so reveal it to every reader of the message or of a log.
        """
        return self.label

    @property
    def protected(self) -> tuple[Unit, Adjacency]:
        """Return the unit of the claim and its adjacency."""
        if self.unit == "slot":
            return "slot", "replace"
        return "event" if self.contributions is None else "user", self.adjacency

    @property
    def counts_events(self) -> bool:
        """Return whether the number of events is public: it is if neighbours differ in an event's value only."""
        return self.protected[1] == "replace" and self.unit != "slot"

    def loss_parts(self) -> dict[str, float]:
        """Return the parts of epsilon by name, if it has several."""
        return {}

    def parameters(self) -> dict[str, Any]:
        """Return the public parameters that rebuild this value; a delta of 0 is left out, as stored states do."""
        parameters = Algorithm.parameters(self)
        if not self.delta:
            parameters.pop("delta", None)
        return parameters

    def gaussian_losses(self) -> tuple[float, float]:
        """Return what a copy with all outputs loses, as zCDP, and what the outputs alone lose, where delta > 0."""
        raise NotImplementedError

    def overshoot(self, rho: float) -> float:
        """Return how far lattice noise can take the log-odds beyond those of normal noise of the zCDP ``rho``."""
        return math.inf

    def claim(self) -> Claim:
        """Return the joint loss of one copy at any time and all outputs."""
        unit, adjacency = self.protected
        events = ("the number of events in every slot",) if self.counts_events else ()
        claim = Claim.of_rows(
            self.epsilon,
            self.contributions,
            unit=unit,
            adjacency=adjacency,
            parts=self.loss_parts(),
            intrusions=Intrusions(unannounced=1, announced=-1),
            inputs="adaptive",
            releases=-1 if self.horizon is None else self.horizon,
            horizon=self.horizon,
            public=("how many slots were closed, and in how many steps", *events),
        )
        if self.outside != "clip":
            return claim.without_privacy(_REFUSES)
        if not self.delta or not claim.is_private:
            return claim
        rho = zcdp_rho(self.epsilon, self.delta) / (self.contributions or 1) ** 2
        event = claim.event_epsilon and min(zcdp_epsilon(rho, self.delta), self.epsilon)
        return replace(claim, delta=self.delta, event_epsilon=event)

    def window_loss(self) -> WindowLoss:
        """Return what one unit loses to a state with and without a copy of it."""
        claim = self.claim()
        loss = WindowLoss.of_claim(claim)
        if not claim.delta:
            return loss
        joint, answers = self.gaussian_losses()
        return replace(loss, rho_joint=joint, rho_answers=answers)

    def loss_exceeds(self, times: float = 1.0) -> float:
        """Return an upper bound on the probability that one unit loses more than ``times`` epsilon."""
        if not self.claim().delta:
            return 0.0
        rho = self.gaussian_losses()[0]
        return gaussian_tail(rho, times * self.epsilon, self.overshoot(rho))

    def empty_state(self) -> StateT:
        """Return a state in which all arrays and numbers are 0."""
        values: dict[str, Any] = {
            name: 0 if field.kind == "int" else np.zeros([size or 0 for size in field.shape], np.int64)
            for name, field in self.layout().items()
        }
        state: StateT = self.state_type(**values)
        return state

    def bounds(self, slots: NDArray[np.int64]) -> Bounds:
        """Return the smallest and largest possible answers after ``slots`` slots, from public parameters only."""
        return -math.inf, math.inf

    def make_estimate(
        self, value: float, error: float, parts: NoiseParts, released: tuple[int, ...], slots: int
    ) -> Estimate:
        """Return the answer after ``slots`` slots, whose noise is the sum of the draws ``parts``."""
        lower, upper = (float(np.max(end)) for end in self.bounds(np.array([slots])))
        return Estimate.clipped(
            value,
            (lower, upper),
            standard_error=error,
            claim=self.claim(),
            name=self.slot_label if self.one_step_ticks else self.label,
            released=released,
            interval_rule=symmetric_interval(value, lambda level: self.scale * half_width(level, parts)),
        )

    def error_without_noise(self, ticks: int | None) -> float | None:
        """Return 0 without noise, infinity if there is neither ``ticks`` nor a horizon, and None otherwise."""
        if ticks is not None:
            checks.require_integer_in_range(1, self.last_slot, ticks=ticks)
        if math.isinf(self.epsilon):
            return 0.0
        return math.inf if ticks is None and self.horizon is None else None

    def require_slots(self, closed: int, slots: int) -> None:
        """Raise BudgetExhausted if the horizon does not allow ``slots`` more slots after ``closed``."""
        if closed + slots > self.last_slot:
            remaining = self.last_slot - closed
            if not remaining:
                raise BudgetExhausted(f"all {self.last_slot} ticks allowed by horizon={self.last_slot} have been used")
            raise BudgetExhausted(f"horizon={self.last_slot} allows {remaining} more ticks, got {slots}")

    def require_multi_step(self) -> None:
        """Raise NotSupported if slots are filled and closed in one step: the caller would leave one open."""
        if self.one_step_ticks:
            raise NotSupported("one_step_ticks=True fills and closes a slot in one step: call ticks(values)")

    def require_tick(self, closed: int) -> None:
        """Raise NotSupported before the first tick."""
        if closed == 0:
            raise NotSupported(f"{type(self).__name__} releases at ticks: call tick() first")
