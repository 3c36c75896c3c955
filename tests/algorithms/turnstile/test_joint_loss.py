"""The exact joint loss of the shipped code, by enumeration, against the closed form and the claim."""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from panstream.algorithms.turnstile._residues import ResidueLaw
from panstream.algorithms.turnstile.block_counter import BlockCounter
from panstream.algorithms.turnstile.heavy_hitter_count import HeavyHitterCount
from panstream.algorithms.turnstile.legendre_counter import LegendreCounter
from panstream.algorithms.turnstile.modular_counter import ModularCounter, _CounterLaw, _CounterState
from panstream.algorithms.turnstile.profile_sketch import ProfileSketch
from panstream.errors import NotSupported
from panstream.primitives.noise import Coin, DiscreteLaplace, NoiseSource
from panstream.testing.enumeration import Enumerator, Step, Stream, enumerate_streams, refresh, release, update


def weights(*values: int) -> list[Step]:
    return [update(ids=[0], weight=[value]) for value in values]


SMALL = (
    [LegendreCounter(universe=1, epsilon=1.0, prime=p) for p in (7, 11, 19, 23, 31)]
    + [LegendreCounter(universe=1, epsilon=2.0, prime=3)]
    + [BlockCounter(universe=1, epsilon=0.7, crop=t, largest=(p - 1) * t) for p, t in ((3, 2), (7, 2), (7, 3), (11, 2))]
    + [HeavyHitterCount(universe=1, epsilon=1.5, threshold=2, min_net_weight=0, largest=r) for r in (5, 9)]
    + [HeavyHitterCount(universe=1, epsilon=1.5, threshold=4, steps=2, min_net_weight=0, largest=r) for r in (18, 34)]
    + [HeavyHitterCount(universe=1, epsilon=1.5, threshold=1, min_net_weight=-1, largest=8)]
    + [ProfileSketch(universe=1, epsilon=1.0, largest=1)]
)


def label(algorithm: ModularCounter) -> str:
    return f"{type(algorithm).__name__}-{algorithm.prime}x{algorithm.width}"


def window(algorithm: ModularCounter) -> tuple[int, int]:
    return (-1, 1 + (1 if isinstance(algorithm, ProfileSketch) else algorithm.sensitivity))


def exact_ratio(algorithm: ModularCounter) -> Fraction:
    """R·K**(n·sensitivity) as a rational: what the enumeration must find, digit by digit."""
    law = algorithm.law
    assert law.start is not None
    return law.start.ratio / law.noise.decay() ** (algorithm.releases * algorithm.sensitivity)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", SMALL, ids=label)
def test_joint_loss_is_exactly_the_closed_form_and_the_claim(algorithm: ModularCounter) -> None:
    far = algorithm.width * 2 + 1
    enumerator = Enumerator(algorithm, window=window(algorithm))
    loss = max(
        enumerator.joint_loss(enumerate_streams([None, None, release()], weights(0, 1, -far))),
        enumerator.joint_loss(enumerate_streams([None, release(), None], weights(0, 2, far))),
    )
    assert loss.ratio == exact_ratio(algorithm)
    claimed = algorithm.claim().epsilon
    assert claimed == pytest.approx(algorithm.epsilon, rel=1e-14)
    assert loss.epsilon == pytest.approx(claimed, rel=1e-12)
    assert loss.epsilon <= claimed + 1e-13


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", SMALL, ids=label)
def test_state_alone_loses_exactly_the_ratio_of_the_classes(algorithm: ModularCounter) -> None:
    every = [update(ids=[0], weight=[value]) for value in range(algorithm.modulus)]
    loss = Enumerator(algorithm, window=(0, 0)).joint_loss([(step,) for step in every])
    assert algorithm.law.start is not None
    assert loss.ratio == algorithm.law.start.ratio
    assert loss.epsilon == pytest.approx(algorithm.claim().parts["state"], rel=1e-12)


@pytest.mark.parametrize("releases", [2, 3])
def test_every_release_costs_kappa(releases: int) -> None:
    algorithm = LegendreCounter(universe=1, epsilon=1.0, prime=7, releases=releases)
    slots: list[Step | None] = [None, None, *([release()] * releases)]
    loss = Enumerator(algorithm, window=(-1, 2)).joint_loss(enumerate_streams(slots, weights(0, 1, 3)))
    assert loss.ratio == exact_ratio(algorithm)
    assert loss.epsilon == pytest.approx(algorithm.claim().epsilon, rel=1e-12)


def test_profile_sketch_on_a_larger_field() -> None:
    algorithm = ProfileSketch(universe=1, epsilon=1.0, largest=3)
    assert algorithm.prime == 7
    loss = Enumerator(algorithm, window=(0, 1)).joint_loss(enumerate_streams([None, None, release()], weights(0, 2)))
    assert loss.ratio == exact_ratio(algorithm)


def replacements() -> list[tuple[Stream, Stream]]:
    """Pairs of streams in which some weight of user 0 goes to user 1 instead, as in the paper's Definition 4."""
    pairs = []
    for first in (1, 3):
        for second in (0, 2):
            mine = (update(ids=[0], weight=[first]), update(ids=[0], weight=[second]), release())
            theirs = (update(ids=[1], weight=[first]), update(ids=[1], weight=[second]), release())
            pairs.append((mine, theirs))
    return pairs


@pytest.mark.parametrize("key", [0, 1])
def test_replacing_a_user_costs_twice_as_much(key: int) -> None:
    algorithm = LegendreCounter(universe=2, epsilon=1.0, prime=7, key=key, max_weight=3)
    loss = Enumerator(algorithm, window=(-1, 3)).pair_loss(replacements())
    assert loss.ratio == exact_ratio(algorithm) ** 2
    assert loss.epsilon == pytest.approx(algorithm.claim("replace").epsilon, rel=1e-12)
    assert algorithm.claim("replace").epsilon == 2 * algorithm.claim("add-remove").epsilon
    halved = replace(algorithm, adjacency="replace")
    assert halved.claim() == replace(halved, adjacency="add-remove", epsilon=0.5).claim("replace")
    tighter = Enumerator(halved, window=(-1, 3)).pair_loss(replacements())
    assert tighter.epsilon == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize(("buckets", "levels"), [(2, 1), (1, 2)])
def test_buckets_levels_and_multipliers_change_nothing(buckets: int, levels: int) -> None:
    """Open universe with others in the same cells, public multipliers, one noisy count a level: the same exact loss."""
    algorithm = LegendreCounter(buckets=buckets, levels=levels, epsilon=1.0, prime=3)
    others = update(ids=["bob", "eve"], weight=[1, 2])
    streams = enumerate_streams(
        [others, None, None, release()], [update(ids=["ann"], weight=[value]) for value in (0, 1)]
    )
    loss = Enumerator(algorithm, window=(-1, buckets + 1)).joint_loss(streams)
    assert loss.ratio == exact_ratio(algorithm)


@dataclass(frozen=True, slots=True, kw_only=True)
class Altered(LegendreCounter):
    """A counter that claims what it does not keep: wrong class weight, or wrong noise."""

    widen: float = 1.0
    halve: bool = False

    @property
    def law(self) -> _CounterLaw:
        law = LegendreCounter(universe=1, epsilon=self.epsilon, prime=self.prime).law
        assert law.start is not None and law.noise.numerator is not None
        start = law.start
        if self.widen != 1.0:
            wide = start.ratio * Fraction(self.widen) * Fraction((self.prime - 1) // 2, (self.prime + 1) // 2)
            start = ResidueLaw(self.prime, Coin.at_most(wide / (1 + wide)))
        noise = DiscreteLaplace(2 * law.noise.numerator) if self.halve else law.noise
        return replace(law, start=start, noise=noise)


@pytest.mark.parametrize("altered", [{"widen": 1.01}, {"halve": True}, {"widen": 1.0001}], ids=str)
def test_the_enumeration_catches_a_wrong_weight_and_a_wrong_scale(altered: dict[str, Any]) -> None:
    streams = enumerate_streams([None, None, release()], weights(0, 1, 3))
    control = Altered(universe=1, epsilon=1.0, prime=11)
    caught = replace(control, **altered)
    assert Enumerator(control, window=(-1, 2)).joint_loss(streams).epsilon <= control.claim().epsilon + 1e-13
    assert Enumerator(caught, window=(-1, 2)).joint_loss(streams).epsilon > caught.claim().epsilon + 5e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfNoise(HeavyHitterCount):
    """A bracket whose two numbers carry half the noise."""

    @property
    def law(self) -> _CounterLaw:
        law = HeavyHitterCount(**self.parameters()).law
        assert law.noise.numerator is not None
        return replace(law, noise=DiscreteLaplace(2 * law.noise.numerator))


@pytest.mark.slow
def test_the_enumeration_catches_a_bracket_with_half_the_noise() -> None:
    options: dict[str, Any] = {"epsilon": 1.5, "threshold": 4, "steps": 2, "min_net_weight": 0, "largest": 18}
    streams = enumerate_streams([None, None, release()], weights(0, 1, -5))
    control = HeavyHitterCount(universe=1, **options)
    caught = HalfNoise(universe=1, **options)
    assert control.sensitivity == 3
    found, too_much = (Enumerator(each, window=(-1, 4)).joint_loss(streams).epsilon for each in (control, caught))
    assert found == pytest.approx(1.5, rel=1e-12)
    assert too_much == pytest.approx(control.law.epsilon_state + 6 * control.law.kappa, rel=1e-9)
    assert too_much > caught.claim().epsilon + 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Readded(LegendreCounter):
    """What ``refresh`` could do: add a second start value to every counter."""

    def refresh(self, state: _CounterState, rng: NoiseSource) -> None:
        state.counters += self.initial_state(rng).counters
        state.counters %= self.prime


def test_fresh_noise_would_be_sound_but_unreadable_so_refresh_is_refused() -> None:
    algorithm = Readded(universe=1, epsilon=1.0, prime=7)
    streams = enumerate_streams([None, refresh(), None, None, release()], weights(0, 1))
    law = algorithm.law
    assert law.start is not None
    sound = Enumerator(algorithm, window=(-1, 2)).joint_loss(streams, looks=[None, 2, 3, 4, 5])  # one look a phase
    assert sound.epsilon == pytest.approx(2 * law.epsilon_state + law.kappa, rel=1e-12)

    for prime in (11, 43, 1019):
        start = ResidueLaw.at_most(prime, 1.0)
        noise = np.full(prime, 2 * (1 - start.at_zero) / (prime + 1))
        noise[np.arange(1, (prime + 1) // 2) ** 2 % prime] = 2 * start.at_zero / (prime - 1)
        spectrum = np.fft.fft(noise)
        power_once, power_twice = (np.sum(np.abs(spectrum[1:]) ** -e) for e in (2.0, 4.0))
        gap = math.tanh(0.5)
        # The only unbiased decoder of N ⋆ N divides by the spectrum twice: variance times about p/tanh².
        assert power_twice / power_once == pytest.approx(prime / gap**2, rel=0.35 if prime == 11 else 0.1)

    shipped = LegendreCounter(universe=4, epsilon=1.0)
    with pytest.raises(NotSupported, match=r"cannot be refreshed.* makes the variance 3\.7e\+19 times as large here"):
        shipped.start().refresh()


@pytest.mark.slow
@pytest.mark.parametrize("announced", [1, 2])
def test_an_announced_look_at_a_profile_costs_the_state_once_more(announced: int) -> None:
    """Rows before, between and after the looks; one unannounced look in the last phase."""
    algorithm = ProfileSketch(universe=1, epsilon=2.0, largest=1, announced=announced)
    slots: list[Step | None] = [None, *[refresh(), None] * announced, None, release()]
    streams = enumerate_streams(slots, weights(0, 1))
    last = range(2 * announced + 1, len(slots) + 1)
    loss = Enumerator(algorithm, window=(0, 1)).joint_loss(streams, looks=[None, *last])
    law = algorithm.law
    assert law.start is not None
    assert loss.ratio == law.start.ratio ** (announced + 1) / law.noise.decay() ** 2
    assert loss.epsilon == pytest.approx(algorithm.claim().epsilon, rel=1e-12)
    assert algorithm.claim().intrusions.announced == announced


def test_two_unannounced_looks_have_no_finite_loss() -> None:
    """Two copies of the state show the difference of two net weights exactly: refused, not charged."""
    algorithm = LegendreCounter(universe=1, epsilon=1.0, prime=7)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Twice(LegendreCounter):
        def refresh(self, state: _CounterState, rng: NoiseSource) -> None:
            """Nothing: a look that nobody notices."""

    seen = Twice(universe=1, epsilon=1.0, prime=7)
    assert seen.claim() == algorithm.claim()
    streams = enumerate_streams([refresh(), None], weights(0, 1))
    assert Enumerator(seen, window=(-1, 2)).joint_loss(streams, looks=[2]).epsilon == math.inf
