"""Mistakes that seem harmless, as controls: a stored threshold, a table that fills up, a release drawn again.

The algorithms in this module are broken copies. Never use them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.grid import GridBatch
from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.randomized_bits import BitState
from panstream.audit.claims.case import Case
from panstream.audit.claims.exact import Scenario, case_of
from panstream.core.estimate import Estimate
from panstream.primitives.codec import FieldLayout, noised, public
from panstream.primitives.noise import DiscreteLaplace, NoiseSource, symmetric_coins
from panstream.primitives.packed_bits import draw_packed_bits, popcount
from panstream.privacy.claim import Claim
from panstream.testing.enumeration import copied, enumerate_streams, late_refresh, refresh, release, update

_NOTHING = update([])
_APPEAR = update([0])


class _ReNoised(OptBern):
    """Does not count releases, as if a state from before the release was restored: it draws new noise each time."""

    def release(self, state: BitState, rng: NoiseSource) -> Estimate:
        """Release as if for the first time."""
        state.released = 0
        estimate = OptBern.release(self, state, rng)
        state.released = 0
        return estimate


class _Unnoticed(OptBern):
    """An intrusion that is not noticed: the state is copied and not refreshed."""

    def refresh(self, state: BitState, rng: NoiseSource) -> None:
        """Leave the copied state unchanged."""


@dataclass(slots=True)
class _ThresholdState(BitState):
    """The bits, and the noisy threshold that is stored for later comparisons."""

    threshold: NDArray[np.int64] = noised()


class _StoredThreshold(OptBern):
    """AboveThreshold on the number of ones: answers whether a noisy count reaches a stored noisy threshold."""

    state_type: ClassVar[type[Any]] = _ThresholdState

    @property
    def textbook_loss(self) -> float:
        """Return the textbook's loss of any number of “no” answers: that of the bits, the threshold and one answer."""
        return self.law.epsilon_state + 2 * self.law.noise.kappa

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return the layout of the bits and the threshold."""
        return {**OptBern.layout(self), "threshold": FieldLayout("i8", (1,))}

    def initial_state(self, rng: NoiseSource) -> _ThresholdState:
        bits = draw_packed_bits(self.law.absent, self.cells, rng)
        threshold = np.ones(1, np.int64)
        rng.add_discrete_laplace(threshold, self.law.noise)
        return _ThresholdState(bits=bits, frozen=np.empty((0, bits.size), np.uint8), released=0, threshold=threshold)

    def release(self, state: Any, rng: NoiseSource) -> Estimate:
        """Publish whether the noisy count reaches the threshold."""
        count = np.array([popcount(state.bits)])
        rng.add_discrete_laplace(count, self.law.noise)
        above = int(count[0] >= state.threshold[0])
        return Estimate(value=float(above), standard_error=0.0, claim=self.claim(), released=(above,))


@dataclass(slots=True)
class _TableState:
    """The users in the table, and a bit for each."""

    users: NDArray[np.int64] = noised()
    bits: NDArray[np.uint8] = noised()
    released: int = public()


@dataclass(frozen=True)
class _DropWhenFull:
    """Stores OptBern's bit for the first ``capacity`` users, and ignores all others."""

    state_type: ClassVar[type[Any]] = _TableState

    capacity: int
    epsilon: float

    def claim(self) -> Claim:
        return Claim(epsilon=self.epsilon, unit="user")

    def parameters(self) -> dict[str, Any]:
        return {"capacity": self.capacity, "epsilon": self.epsilon}

    def layout(self) -> Mapping[str, FieldLayout]:
        return {
            "users": FieldLayout("i8", (self.capacity,)),
            "bits": FieldLayout("bits", (self.capacity,)),
            "released": FieldLayout("int", at_least=0),
        }

    def initial_state(self, rng: NoiseSource) -> _TableState:
        return _TableState(users=np.full(self.capacity, -1), bits=np.zeros(self.capacity, np.uint8), released=0)

    def batch(self, ids: Any) -> GridBatch:
        return GridBatch(np.array(ids, np.int64))

    def update(self, state: _TableState, batch: GridBatch, rng: NoiseSource) -> None:
        """Add users while the table has free slots."""
        for user in batch.rows.tolist():
            matches = np.flatnonzero(state.users == user)
            free = matches if matches.size else np.flatnonzero(state.users < 0)
            if free.size:
                state.users[free[0]] = user
                state.bits[free[0]] = rng.bernoulli(symmetric_coins(self.epsilon / 2)[1], 1)[0]

    def release(self, state: _TableState, rng: NoiseSource) -> Estimate:
        ones = np.array([int(state.bits.sum())])
        rng.add_discrete_laplace(ones, DiscreteLaplace.at_most(self.epsilon / 2))
        return Estimate(value=float(ones[0]), standard_error=math.nan, claim=self.claim(), released=(int(ones[0]),))


def _mistake_cases() -> Iterator[Case]:
    """Yield one control per mistake."""
    control = partial(case_of, kind="control", sampled=False)
    both = [_NOTHING, _APPEAR]
    yield control(
        _ReNoised(universe=1, epsilon=1.0),
        enumerate_streams([None, None, release(), release()], both),
        window=(0, 1),
        name="Release drawn again after a crash",
        represents="a crash between publishing and storing: the restored state draws new noise for the same release",
    )
    threshold = _StoredThreshold(universe=1, epsilon=1.0)
    yield control(
        threshold,
        enumerate_streams([None, None, *[release()] * 6], both),
        window=(-3, 4),
        looks=(1,),
        name="Sparse vector with a stored threshold",
        claimed=threshold.textbook_loss,
        represents="Dwork and Roth, Algorithm 1 (AboveThreshold): an intruder reads the noisy threshold, so every “no” "
        "costs again",
    )
    yield control(
        _DropWhenFull(capacity=1, epsilon=1.0),
        enumerate_streams([None, None, release()], both),
        window=(-1, 2),
        name="Table that drops users when it is full",
        represents="a first-come table instead of a sample fixed beforehand: who is in it shows who came",
    )
    yield case_of(
        _Unnoticed(universe=1, epsilon=1.0),
        enumerate_streams([refresh(), None], both),
        window=(-1, 2),
        looks=(2,),
        name="Two copies of the state at different times",
        kind="control",
        represents="backups, write-ahead logs, virtual machine images: a claim covers one look, two have no finite "
        "loss",
    )
    yield control(
        OptBern(universe=1, epsilon=1.0, announced=1),
        enumerate_streams([copied(), None, late_refresh(), release()], both),
        window=(-1, 2),
        looks=(None, 3, 4),
        name="Array frozen after a row that followed the copy",
        represents="an intrusion that is noticed late: what is frozen is not what the intruder saw, so both together "
        "are two looks at one phase",
    )
    first = update([0])
    second = update([1])
    swapped = [((first, second, release()), (second, first, release()))]
    moved = [((first, _NOTHING, release()), (second, _NOTHING, release()))]
    yield control(
        OptBern(universe=2, epsilon=1.0),
        window=(-1, 3),
        name="Replaced user with the add-remove claim",
        scenarios=[Scenario(pairs=swapped + moved)],
        represents="replacing one user by another costs up to twice as much",
    )


CASES = (_mistake_cases,)
