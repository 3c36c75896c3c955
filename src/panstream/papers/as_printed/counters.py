"""The counters of Budaeva et al. 2013 as printed, with cleartext accumulators; their claims state the true loss.

The real Laplace noise is replaced by its integer counterpart of the same decay rate, which changes no loss given here.
The fields of the state are deliberately not declared as noised: they are cleartext.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.grid import GridBatch
from panstream.core.algorithm import Algorithm
from panstream.core.estimate import Estimate, Estimates
from panstream.errors import BudgetExhausted, NotSupported
from panstream.primitives import validation as checks
from panstream.primitives.codec import FieldLayout
from panstream.primitives.inputs import integers
from panstream.primitives.noise import DiscreteLaplace, NoiseSource
from panstream.privacy.claim import Claim
from panstream.privacy.continual_loss import binary_levels


@dataclass(slots=True)
class _ClearState:
    """Cleartext sums, noisy sums, the cleartext open slot, and the time."""

    sums: NDArray[np.int64]
    noisy: NDArray[np.int64]
    slot: NDArray[np.int64]
    time: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _LiteralCounter(Algorithm[_ClearState]):
    """Base class of the literal forms: one value from 0 to ``bound`` per slot, ``horizon`` slots, unit: a slot."""

    state_type: ClassVar[type[Any]] = _ClearState
    sums: ClassVar[int] = 1  # number of binary mechanisms in parallel

    epsilon: float
    horizon: int
    bound: int = 1

    def __post_init__(self) -> None:
        checks.require_positive(epsilon=self.epsilon)
        checks.require_integer_in_range(2, 1 << 40, horizon=self.horizon)
        checks.require_integer_in_range(1, 1 << 20, bound=self.bound)

    @property
    @abstractmethod
    def output_loss(self) -> float:
        """Return the true loss of all outputs without an intrusion."""

    @property
    def joint_loss(self) -> float:
        """Return the true loss of one copy and all outputs: infinite, since the sums in memory are cleartext."""
        return math.inf

    @property
    def rows(self) -> int:
        """Return the number of stored sums: the levels of each binary mechanism."""
        return self.sums * binary_levels(self.horizon)

    @abstractmethod
    def close(self, state: _ClearState, value: int, rng: NoiseSource) -> float:
        """Add one slot's value, publish, and return the estimate; ``state.time`` is the slot's number."""

    def released(self, state: _ClearState) -> tuple[int, ...]:
        """Return the noisy sums that the last estimate was computed from: those of the binary digits of the time."""
        noisy = state.noisy.reshape(self.sums, -1)
        return tuple(int(number) for number in noisy[:, _digits(state.time)].ravel())

    def claim(self) -> Claim:
        """Return the true loss; the note has the one that the paper states."""
        return Claim(
            epsilon=self.joint_loss,
            unit="slot",
            adjacency="replace",
            parts={"state": self.joint_loss, "output": self.output_loss},
            releases=self.horizon,
            horizon=self.horizon,
            note=f"published as {self.epsilon:g}-pan-private; the outputs alone lose {self.output_loss:.6g}",
        )

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return the layout of the sums, the open slot and the time."""
        return {
            "sums": FieldLayout("i8", (self.rows,)),
            "noisy": FieldLayout("i8", (self.rows,)),
            "slot": FieldLayout("i8", (1,)),
            "time": FieldLayout("int", at_least=0, below=self.horizon + 1),
        }

    def initial_state(self, rng: NoiseSource) -> _ClearState:
        sums, noisy = np.zeros((2, self.rows), np.int64)
        return _ClearState(sums, noisy, np.zeros(1, np.int64), 0)

    def batch(self, values: Any) -> GridBatch:
        """Check values for the open slot: integers from 0 to ``bound``."""
        checked, copied = integers(values, name="values", lower=0, upper=self.bound)
        return GridBatch(checked, (checked,) if copied else ())

    def update(self, state: _ClearState, batch: GridBatch, rng: NoiseSource) -> None:
        """Add the values to the cleartext open slot."""
        state.slot[0] += int(batch.rows.sum())

    def tick(self, state: _ClearState, rng: NoiseSource) -> Estimate:
        """Close the slot and publish; raise BudgetExhausted after ``horizon`` slots."""
        if state.time >= self.horizon:
            raise BudgetExhausted(f"the horizon of {self.horizon} slots is used up")
        value = int(state.slot[0])
        state.slot[0] = 0
        state.time += 1
        answer = self.close(state, value, rng)
        return Estimate(
            value=answer, standard_error=math.nan, claim=self.claim(), released=self.released(state), name="published"
        )

    def tick_many(self, state: _ClearState, values: Any, rng: NoiseSource) -> Estimates:
        """Close one slot per value; raise BudgetExhausted if they exceed the horizon."""
        checked = self.batch(values).rows
        if state.time + checked.size > self.horizon:
            raise BudgetExhausted(f"the horizon of {self.horizon} slots leaves {self.horizon - state.time}")
        answers = np.empty(checked.size)
        for row in range(checked.size):
            state.slot[0] += checked[row]
            answers[row] = self.tick(state, rng).value
        return Estimates(
            unclipped=answers, standard_error=np.full(answers.size, math.nan), claim=self.claim(), name="published"
        )

    def release(self, state: _ClearState, rng: NoiseSource) -> Estimate:
        """Raise NotSupported: the literal forms publish at ticks."""
        raise NotSupported("the literal forms publish at ticks only")

    def refresh(self, state: _ClearState, rng: NoiseSource) -> None:
        """Raise NotSupported: a cleartext sum cannot be refreshed."""
        raise NotSupported("the literal forms cannot be refreshed")

    def error_bound(self, *, beta: float) -> float:
        """Raise NotSupported: ``panstream.algorithms.planning.continual`` has the published bounds."""
        raise NotSupported("see panstream.algorithms.planning.continual for the published bounds")


def _digits(time: int) -> list[int]:
    return [level for level in range(time.bit_length()) if time >> level & 1]


def _binary_step(
    clear: NDArray[np.int64], noisy: NDArray[np.int64], time: int, value: int, noise: DiscreteLaplace, rng: NoiseSource
) -> int:
    """Run one step of Algorithm 2 and return its estimate: the sums below level i move into i, which gets noise."""
    level = (time & -time).bit_length() - 1
    clear[level] = clear[:level].sum() + value
    clear[:level] = 0
    noisy[:level] = 0
    noisy[level] = clear[level]
    rng.add_discrete_laplace(noisy[level : level + 1], noise)
    return int(noisy[_digits(time)].sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSimpleCounterI(_LiteralCounter):
    """2.3.2: the true count, published with fresh Lap(1/epsilon) noise at every slot.

    The outputs lose T·bound·epsilon, as the paper states (O(T·epsilon)); the count in memory is cleartext.
    """

    @property
    def output_loss(self) -> float:
        """Return T·bound·epsilon."""
        return self.horizon * self.epsilon * self.bound

    @property
    def rows(self) -> int:
        """Return 1: the count is the only sum."""
        return 1

    def close(self, state: _ClearState, value: int, rng: NoiseSource) -> float:
        """Add to the count and publish it with fresh noise."""
        state.sums[0] += value
        return self._publish(state, int(state.sums[0]), rng)

    def _publish(self, state: _ClearState, number: int, rng: NoiseSource) -> float:
        state.noisy[0] = number
        rng.add_discrete_laplace(state.noisy, DiscreteLaplace.at_most(self.epsilon))
        return float(state.noisy[0])

    def released(self, state: _ClearState) -> tuple[int, ...]:
        """Return the last output."""
        return (int(state.noisy[0]),)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPointNoise(PublishedSimpleCounterI):
    """5.1: each data point of 0..N gets Lap(1/epsilon) noise before its owner sends it.

    True loss N·epsilon, with any number of intrusions if a slot is filled and sent in one step; "epsilon" would need
    Lap(N/epsilon).
    """

    @property
    def output_loss(self) -> float:
        """Return N·epsilon."""
        return self.bound * self.epsilon

    @property
    def joint_loss(self) -> float:
        """Return N·epsilon: only sent numbers remain in memory."""
        return self.output_loss

    def close(self, state: _ClearState, value: int, rng: NoiseSource) -> float:
        """Publish the point with noise."""
        return self._publish(state, value, rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedBinary(_LiteralCounter):
    """Algorithm 2 with eps' = eps/(N·log2 T): an item enters floor(log2 T) + 1 sums, not log2 T.

    True loss of the outputs: epsilon·(floor(log2 T) + 1)/log2 T (2.0 at T = 2, 1.33 at 8, 1.17 at 64). With one copy of
    the cleartext sums: infinite. Theorem 3 states epsilon.
    """

    @property
    def law(self) -> DiscreteLaplace:
        """Return the noise of one sum, as printed."""
        return DiscreteLaplace.at_most(self.epsilon / (self.bound * math.log2(self.horizon)))

    @property
    def output_loss(self) -> float:
        """Return the loss of all floor(log2 T) + 1 sums of an item."""
        return self.epsilon * binary_levels(self.horizon) / math.log2(self.horizon)

    def close(self, state: _ClearState, value: int, rng: NoiseSource) -> float:
        """Run one step of Algorithm 2."""
        return _binary_step(state.sums, state.noisy, state.time, value, self.law, rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedInitialNoise(PublishedBinary):
    """Section 2.4.4 with noise at the start of every sum and none at its release.

    The outputs lose (floor(log2 T) + 1)·epsilon/log2 T as before; with one copy the loss is infinite, since a release
    minus the copied state is what arrived in between.
    """

    def initial_state(self, rng: NoiseSource) -> _ClearState:
        """Return a state whose sums start as noise."""
        state = _LiteralCounter.initial_state(self, rng)
        rng.add_discrete_laplace(state.sums, self.law)
        return state

    def close(self, state: _ClearState, value: int, rng: NoiseSource) -> float:
        """Add to every sum; publish the complete one without noise, and restart it and the lower ones."""
        state.sums += value
        level = (state.time & -state.time).bit_length() - 1
        state.noisy[level] = state.sums[level]
        state.sums[: level + 1] = 0
        rng.add_discrete_laplace(state.sums[: level + 1], self.law)
        return float(sum(self.released(state)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedHybrid(_LiteralCounter):
    """Theorem 4, the unbounded sum of 4.1: epsilon/2 for each part, with cleartext sums.

    The outputs lose at most epsilon; with one copy the loss is infinite. ``horizon`` bounds only the size of the state;
    the mechanism does not use it.
    """

    @property
    def output_loss(self) -> float:
        """Return the loss of the outputs, a little below epsilon: without an intrusion the theorem holds.

        Epoch k has at most 2**k - 1 slots, so an item enters at most k of the k + 1 sums that its noise allows for.
        """
        shares = [
            min((1 << epoch) - 1, self.horizon - (1 << epoch)).bit_length() / (epoch + 1)
            for epoch in range(self.horizon.bit_length())
        ]
        return self.epsilon / 2.0 * (1.0 + max(shares))

    @property
    def rows(self) -> int:
        """Return the number of sums: the logarithmic one and the levels of the largest epoch."""
        return 1 + self.horizon.bit_length()

    def close(self, state: _ClearState, value: int, rng: NoiseSource) -> float:
        """Feed the value to the logarithmic mechanism, and between powers of two to the epoch's binary mechanism."""
        state.sums[0] += value
        if state.time & (state.time - 1) == 0:
            rng.add_discrete_laplace(state.sums[:1], DiscreteLaplace.at_most(self.epsilon / 2 / self.bound))
            state.noisy[0] = state.sums[0]
            state.sums[1:] = state.noisy[1:] = 0
            return float(state.noisy[0])
        epoch = state.time.bit_length() - 1
        kappa = self.epsilon / 2 / (self.bound * (epoch + 1))  # Lap((log W + 1)/(epsilon/2)) for W = 2**epoch
        since = state.time - (1 << epoch)
        _binary_step(state.sums[1:], state.noisy[1:], since, value, DiscreteLaplace.at_most(kappa), rng)
        return float(sum(self.released(state)))

    def released(self, state: _ClearState) -> tuple[int, ...]:
        """Return the logarithmic output and the epoch's noisy sums."""
        since = state.time - (1 << state.time.bit_length() - 1)
        return (int(state.noisy[0]), *(int(state.noisy[1 + level]) for level in _digits(since)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedAverage(_LiteralCounter):
    """Algorithm 3 with eps' = eps/(2·log2 T) for count and sum alike.

    A value of 0 means "no data", the noise ignores how large a value may be, and nothing guards a small count. True
    loss of the outputs for values in 0..N: (1 + N)·(floor(log2 T) + 1)/(2·log2 T)·epsilon; 55.6·epsilon for N = 100 and
    T = 1024. With one copy: infinite.
    """

    sums: ClassVar[int] = 2

    @property
    def output_loss(self) -> float:
        """Return the loss of the noisy sums, whose noise ignores the bound of the values."""
        return self._average_loss(self.bound)

    def _average_loss(self, bound: int) -> float:
        return (1.0 + bound) * self.epsilon * binary_levels(self.horizon) / (2.0 * math.log2(self.horizon))

    def close(self, state: _ClearState, value: int, rng: NoiseSource) -> float:
        """Return the noisy sum over the noisy count; NaN if that is 0."""
        count, total = self._steps(state, (int(value != 0), value), (2, 2), rng)
        return total / count if count else math.nan

    def _steps(
        self, state: _ClearState, values: tuple[int, ...], shares: tuple[int, ...], rng: NoiseSource
    ) -> list[int]:
        """Feed each value to its binary mechanism, with noise of rate epsilon/(share·log2 T)."""
        clear = state.sums.reshape(self.sums, -1)
        noisy = state.noisy.reshape(self.sums, -1)
        laws = [DiscreteLaplace.at_most(self.epsilon / (share * math.log2(self.horizon))) for share in shares]
        return [_binary_step(clear[i], noisy[i], state.time, values[i], laws[i], rng) for i in range(self.sums)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedVariance(PublishedAverage):
    """Algorithm 4: a count with eps' = eps/log2 T, the average of the values, and that of their squares.

    True loss of the outputs: 5557·epsilon for values in 0..100 and T = 1024. With one copy: infinite.
    """

    sums: ClassVar[int] = 5

    @property
    def output_loss(self) -> float:
        """Return the loss of a count, of an average of the values and of an average of their squares."""
        count = self.epsilon * binary_levels(self.horizon) / math.log2(self.horizon)
        return count + self._average_loss(self.bound) + self._average_loss(self.bound**2)

    def close(self, state: _ClearState, value: int, rng: NoiseSource) -> float:
        """Return the paper's rolling variance of the noisy numbers; NaN where it divides by 0."""
        is_present = int(value != 0)
        values = (is_present, is_present, value, is_present, value * value)
        counts = self._steps(state, values, (1, 2, 2, 2, 2), rng)
        if counts[0] == 1 or not counts[1] or not counts[3]:
            return math.nan
        mean = counts[2] / counts[1]
        power = counts[4] / counts[3]
        return (power * counts[0] - counts[0] * mean**2) / (counts[0] - 1)
