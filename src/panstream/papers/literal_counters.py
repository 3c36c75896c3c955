"""What the literal forms of "Private Aggregate Computations on Streams" share: clear accumulators and a true claim.

The real Laplace noise is replaced by its integer counterpart of the same decay rate, which changes no loss given here. The
fields of the state are left undeclared on purpose: they hold data in the clear.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream import checks
from panstream.algorithm import Algorithm
from panstream.batch import integers
from panstream.codec import FieldLayout
from panstream.continual.slots import Amounts
from panstream.errors import BudgetExhausted, NotSupported
from panstream.estimate import Estimate, Estimates
from panstream.privacy.claim import Claim, Intrusions
from panstream.randomness import DiscreteLaplace, Source

__all__ = ["LiteralCounter", "LiteralState", "binary_step"]


@dataclass(slots=True)
class LiteralState:
    """Clear sums, noisy sums, the open slot in the clear, and the time."""

    sums: NDArray[np.int64]
    noisy: NDArray[np.int64]
    slot: NDArray[np.int64]
    time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteralCounter(Algorithm[LiteralState]):
    """Base of the literal forms: one value from 0 to ``bound`` per slot, ``horizon`` slots, unit: a slot."""

    state_type: ClassVar[type[Any]] = LiteralState

    epsilon: float
    horizon: int
    bound: int = 1

    def __post_init__(self) -> None:
        checks.positive(epsilon=self.epsilon)
        checks.within(2, 1 << 40, horizon=self.horizon)
        checks.within(1, 1 << 20, bound=self.bound)

    @property
    @abstractmethod
    def output_loss(self) -> float:
        """Return the true loss of all outputs, if nobody ever sees the state."""

    @property
    def joint_loss(self) -> float:
        """Return the true loss of one look and all outputs: the sums in memory are clear."""
        return math.inf

    @property
    @abstractmethod
    def rows(self) -> int:
        """Return how many sums are kept."""

    @abstractmethod
    def close(self, state: LiteralState, value: int, source: Source) -> float:
        """Take one slot's value, publish, and return the estimate; ``state.time`` is the slot's number."""

    @abstractmethod
    def released(self, state: LiteralState) -> tuple[int, ...]:
        """Return the noisy sums that the last estimate was computed from."""

    def claim(self) -> Claim:
        """Return the true loss, not the one that the paper states."""
        return Claim(
            epsilon=self.joint_loss,
            unit="slot",
            adjacency="replace",
            parts={"state": self.joint_loss, "output": self.output_loss},
            releases=self.horizon,
            horizon=self.horizon,
            note=f"published as {self.epsilon:g}-pan-private; the outputs alone lose {self.output_loss:.6g}",
        )

    def output_claim(self) -> Claim:
        """Return the true loss if the state is never seen."""
        return Claim(
            epsilon=self.output_loss,
            unit="slot",
            adjacency="replace",
            intrusions=Intrusions(unannounced=0),
            releases=self.horizon,
            horizon=self.horizon,
        )

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return the sums, the open slot and the time."""
        return {
            "sums": FieldLayout("i8", (self.rows,)),
            "noisy": FieldLayout("i8", (self.rows,)),
            "slot": FieldLayout("i8", (1,)),
            "time": FieldLayout("int", at_least=0, below=self.horizon + 1),
        }

    def begin(self, source: Source) -> LiteralState:
        """Return sums of nothing."""
        return LiteralState(np.zeros(self.rows, np.int64), np.zeros(self.rows, np.int64), np.zeros(1, np.int64), 0)

    def batch(self, values: Any) -> Amounts:
        """Check values of the open slot."""
        checked, copied = integers(values, name="values", lower=0, upper=self.bound)
        return Amounts(checked, (checked,) if copied else ())

    def update(self, state: LiteralState, batch: Amounts, source: Source) -> None:
        """Add to the open slot, in the clear."""
        state.slot[0] += int(batch.values.sum())

    def tick(self, state: LiteralState, source: Source) -> Estimate:
        """Close the slot and publish."""
        if state.time >= self.horizon:
            raise BudgetExhausted(f"the horizon of {self.horizon} slots is used up")
        value, state.slot[0] = int(state.slot[0]), 0
        state.time += 1
        answer = self.close(state, value, source)
        return Estimate(
            value=answer, standard_error=math.nan, claim=self.claim(), released=self.released(state), name="published"
        )

    def ticks(self, state: LiteralState, values: Any, source: Source) -> Estimates:
        """Close one slot per value."""
        checked = self.batch(values).values
        if state.time + checked.size > self.horizon:
            raise BudgetExhausted(f"the horizon of {self.horizon} slots leaves {self.horizon - state.time}")
        answers = np.empty(checked.size)
        for row in range(checked.size):
            state.slot[0] += checked[row]
            answers[row] = self.tick(state, source).value
        return Estimates(
            value=answers, standard_error=np.full(answers.size, math.nan), claim=self.claim(), name="published"
        )

    def release(self, state: LiteralState, source: Source) -> Estimate:
        """Refuse: the literal forms publish at ticks."""
        raise NotSupported("the literal forms publish at ticks only")

    def refresh(self, state: LiteralState, source: Source) -> None:
        """Refuse: nothing makes a clear sum safe again."""
        raise NotSupported("the literal forms cannot be refreshed")

    def error(self, *, beta: float) -> float:
        """Refuse: see ``panstream.planning.continual`` for the published bounds."""
        raise NotSupported("see panstream.planning.continual for the published bounds")


def binary_step(
    clear: NDArray[np.int64], noisy: NDArray[np.int64], time: int, value: int, law: DiscreteLaplace, source: Source
) -> int:
    """Do what Algorithm 2 does at ``time`` and return its estimate: sums below i move into i, noise comes on top."""
    level = (time & -time).bit_length() - 1
    clear[level] = clear[:level].sum() + value
    clear[:level] = 0
    noisy[:level] = 0
    noisy[level] = clear[level]
    source.add_discrete_laplace(noisy[level : level + 1], law)
    return int(noisy[[i for i in range(noisy.size) if time >> i & 1]].sum())
