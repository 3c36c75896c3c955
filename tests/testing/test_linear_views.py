"""The view matrix of hand-made linear code, and code that is not linear."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from panstream.core.estimate import Estimate
from panstream.errors import InvalidParameter
from panstream.primitives.codec import noised, public
from panstream.primitives.noise import DiscreteLaplace, NoiseSource
from panstream.privacy.claim import Claim
from panstream.testing.enumeration import refresh, tick, update
from panstream.testing.linear_views import linear_views, ticks
from panstream.testing.sources import ScriptedSource

LAW = DiscreteLaplace.at_most(0.25)


@dataclass
class State:
    total: np.ndarray = noised()
    time: int = public()


@dataclass
class Doubling:
    """A noised sum that is released twice over with fresh noise; ``power`` makes it non-linear."""

    power: int = 1

    def initial_state(self, rng: NoiseSource) -> State:
        state = State(np.zeros(1, np.int64), 0)
        rng.add_discrete_laplace(state.total, LAW)
        return state

    def batch(self, values: Any) -> int:
        return int(sum(values))

    def update(self, state: State, batch: int, rng: NoiseSource) -> None:
        state.total += batch

    def refresh(self, state: State, rng: NoiseSource) -> None:
        rng.add_discrete_laplace(state.total, LAW)

    def tick(self, state: State, rng: NoiseSource) -> Estimate:
        shown = 2 * state.total**self.power
        rng.add_discrete_laplace(shown, LAW)
        state.time += 1
        released = (int(shown[0]),)
        return Estimate(value=0.0, standard_error=0.0, claim=Claim(epsilon=1.0, unit="event"), released=released)


def test_view_matrix() -> None:
    stream = [update([0]), tick(), refresh(), update([0]), tick()]
    other = [update([3]), *stream[1:]]
    views = linear_views(Doubling(), stream, [other], looks=[None, 1, 5])
    # Draws: start, release, refresh, release. Seen: release, announced look, release, and the look's state.
    expected = [[2, 1, 0, 0], [1, 0, 0, 0], [2, 0, 2, 1]]
    assert views[0].matrix.tolist() == expected
    assert views[1].matrix.tolist() == [*expected, [1, 0, 0, 0]]
    assert views[2].matrix.tolist() == [*expected, [1, 0, 1, 0]]
    assert [view.shifts.tolist() for view in views] == [[[6, 3, 6]], [[6, 3, 6, 3]], [[6, 3, 6, 3]]]
    assert views[0].kappas.tolist() == [0.25] * 4
    assert [view.look for view in linear_views(Doubling(), stream, [])] == [None, 0, 1, 2, 3, 4, 5]
    assert linear_views(Doubling(), stream, [], looks=[None], amplitude=8)[0].matrix.tolist() == expected


def test_code_that_is_not_linear_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="Doubling is not linear"):
        linear_views(Doubling(power=2), [tick()], [])


def test_scripted_source() -> None:
    rng = ScriptedSource({1: 5})
    values = np.zeros(3, np.int64)
    rng.add_discrete_laplace(values, LAW)
    assert values.tolist() == [0, 5, 0]
    assert rng.kappas == [0.25] * 3
    with pytest.raises(TypeError):
        rng.uniform_below(3, 1)


def test_steps_of_whole_slots() -> None:
    assert ticks([1, 2]).verb == "tick_many"
    assert dict(ticks([1, 2]).arguments) == {"values": (1, 2)}
