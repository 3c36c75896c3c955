"""The enumerator against laws worked out by hand, and against sampling of the same code."""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from panstream.algorithms.density import OptBern
from panstream.core.estimate import Estimate
from panstream.errors import InvalidParameter
from panstream.primitives.codec import noised
from panstream.primitives.noise import Coin, DiscreteLaplace, NoiseSource
from panstream.privacy import Claim
from panstream.testing.enumeration import Enumerator, enumerate_streams, release, snapshot, update
from panstream.testing.sources import ScriptedSource, outcomes
from tests.statistical import assert_fits
from tests.zero_noise import ZeroNoiseSource

THIRD = Coin((1 << 64) // 3)


def test_outcomes_walk_every_path_once() -> None:
    def step(rng: NoiseSource) -> tuple[int, ...]:
        first = rng.bernoulli(THIRD, 2)
        if first.any():
            return (*map(int, first), int(rng.uniform_below(3, 1)[0]))
        return tuple(map(int, first))

    law = {result: weight for weight, result in outcomes(step)}
    assert len(law) == 1 + 3 * 3
    assert sum(law.values()) == 1
    p = THIRD.probability
    assert law[0, 0] == (1 - p) ** 2
    assert law[1, 0, 2] == p * (1 - p) / 3


def test_certain_coins_do_not_branch() -> None:
    assert [weight for weight, _ in outcomes(lambda rng: rng.bernoulli(Coin(0), 5).sum())] == [1]


def test_laplace_sums_have_their_exact_weight() -> None:
    law = DiscreteLaplace.at_most(0.5)

    def step(rng: NoiseSource) -> int:
        values = np.array([2], np.int64)
        rng.add_discrete_laplace(values, law)
        return int(values[0])

    found = {result: float(weight) for weight, result in outcomes(step, (-3, 6))}
    assert sorted(found) == list(range(-3, 7))
    for y, weight in found.items():
        assert weight == pytest.approx(math.tanh(0.25) * math.exp(-0.5 * abs(y - 2)), rel=1e-14)


@pytest.mark.slow
def test_view_law_agrees_with_running_the_code() -> None:
    """Every path of the enumerator, with its probability, against 6,000 real runs."""
    algorithm = OptBern(universe=2, epsilon=3.0)
    stream = (update([0]), release(), update([1]))
    law = Enumerator(algorithm, window=(-15, 17)).view_law(stream, 2)
    assert float(sum(law.values())) == pytest.approx(1.0, abs=1e-9)
    seen: Counter[Any] = Counter()
    runs = 6_000
    for _ in range(runs):
        monitor = algorithm.start()
        monitor.update([0])
        estimate = monitor.release()
        output = ("release", estimate.released, estimate.value, estimate.standard_error)
        seen[(output, snapshot(monitor.state))] += 1
    views = list(law)
    expected = np.array([float(law[view]) * runs for view in views])
    counts = np.array([seen.pop(view, 0) for view in views])
    assert not seen, "a view occurred that the enumerator calls impossible"
    assert_fits(counts, expected, "view law")


@dataclass(slots=True)
class Clear:
    bit: int = noised()


class Literal(OptBern):
    """Publishes and stores the truth: the enumerator must say that there is no bound."""

    def initial_state(self, rng: NoiseSource) -> Any:
        return Clear(bit=0)

    def update(self, state: Any, batch: Any, rng: NoiseSource) -> None:
        state.bit |= len(batch) > 0

    def release(self, state: Any, rng: NoiseSource) -> Estimate:
        return Estimate(value=float(state.bit), standard_error=0.0, claim=Claim(epsilon=1.0, unit="user"))


def test_a_leak_has_no_finite_loss_and_a_witness() -> None:
    loss = Enumerator(Literal(universe=1, epsilon=1.0), window=(0, 0)).joint_loss(
        enumerate_streams([None, release()], [update([]), update([0])])
    )
    assert loss.epsilon == math.inf
    assert loss.streams is not None
    assert loss.streams[0] != loss.streams[1]
    assert loss.view


def test_equal_streams_lose_nothing() -> None:
    algorithm = OptBern(universe=1, epsilon=1.0)
    assert Enumerator(algorithm, window=(-1, 2)).joint_loss([(update([0]), release())]).epsilon == 0.0


def test_misuse_is_named() -> None:
    algorithm = OptBern(universe=1, epsilon=1.0)
    with pytest.raises(InvalidParameter, match="window must not be empty"):
        Enumerator(algorithm, window=(1, 0))
    with pytest.raises(InvalidParameter, match="same number of steps"):
        Enumerator(algorithm, window=(0, 1)).joint_loss([(update([0]),), ()])


def test_a_script_moves_one_draw() -> None:
    for impulse in (None, 0, 1, 2):
        rng = ScriptedSource({} if impulse is None else {impulse: 1})
        values = np.zeros(2, np.int64)
        rng.add_discrete_laplace(values, DiscreteLaplace.at_most(0.5))
        rng.add_discrete_laplace(values[:1], DiscreteLaplace.at_most(0.25))
        assert values.tolist() == {None: [0, 0], 0: [1, 0], 1: [0, 1], 2: [1, 0]}[impulse]
        assert rng.kappas == [0.5, 0.5, 0.25]
    with pytest.raises(TypeError, match="no place"):
        ScriptedSource({}).bernoulli(THIRD, 1)
    with pytest.raises(TypeError, match="no place"):
        ScriptedSource({}).uniform_below(2, 1)


def test_zero_noise_source_shows_the_likelier_side() -> None:
    rng = ZeroNoiseSource()
    assert rng.bernoulli(THIRD, 2).tolist() == [0, 0]
    assert rng.bernoulli(THIRD.complement, 2).tolist() == [1, 1]
    assert rng.uniform_below(9, 2).tolist() == [0, 0]
    values = np.array([5], np.int64)
    rng.add_discrete_laplace(values, DiscreteLaplace.at_most(0.1))
    assert values.tolist() == [5]
