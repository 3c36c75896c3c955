"""Inputs chosen after seeing earlier answers: the claims hold against every strategy, and a mechanism that needs
fixed inputs is caught.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar

import pytest

from panstream import CroppedMean, HeavyFraction
from panstream.algorithms.density import OptBern, QuantisedLaplace
from panstream.algorithms.distinct import Bitmap, TogglingBitmap
from panstream.algorithms.turnstile import LegendreCounter
from panstream.core.algorithm import Algorithm
from panstream.core.estimate import Estimate
from panstream.errors import InvalidParameter
from panstream.primitives.codec import FieldLayout, noised, public
from panstream.primitives.noise import NoiseSource
from panstream.primitives.noise.distributions import exp_fraction
from panstream.privacy import Claim
from panstream.testing.enumeration import Enumerator, Step, Stream, enumerate_streams, refresh, release, tick, update
from tests.conformance.specimens import specimens
from tests.testing.adaptive import Choices, adaptive_delta, adaptive_loss

NOTHING = update([])
COMES = update([0])
TWICE = update([0, 0])


def fixed_delta(
    enumerator: Enumerator, first: Stream, second: Stream, epsilon: float, *, look: int | None = None
) -> Fraction:
    """Return the smallest delta at ``epsilon`` between two streams that were fixed beforehand."""
    growth = exp_fraction(Fraction(epsilon))
    law, other = (enumerator.view_law(stream, look) for stream in (first, second))
    return sum(
        (max(weight - growth * other.get(view, Fraction(0)), Fraction(0)) for view, weight in law.items()), Fraction(0)
    )


def choices(slots: list[Step | None], actions: list[Step]) -> Choices:
    """Return every pair of actions where a slot is open: what the unit does in either world."""
    pairs = list(product(actions, repeat=2))
    return [pairs if slot is None else [(slot, slot)] for slot in slots]


CASES: dict[str, tuple[Any, list[Step | None], list[Step]]] = {
    "OptBern": (OptBern(universe=1, epsilon=1.0, releases=2), [None, release(), None, release()], [NOTHING, COMES]),
    "OptBern among others": (
        OptBern(universe=2, epsilon=1.0),
        [None, None, release()],
        [update([1]), update([1, 0]), update([0, 1, 0])],
    ),
    "OptBern, deletions": (
        OptBern(universe=1, epsilon=1.0, deletions=True),
        [None, None, release()],
        [NOTHING, update(insert=[0]), update(delete=[0])],
    ),
    "OptBern, announced": (
        OptBern(universe=1, epsilon=1.0, announced=1),
        [None, refresh(), None, release()],
        [NOTHING, COMES],
    ),
    "QuantisedLaplace": (QuantisedLaplace(universe=1, epsilon=1.0), [None, None, release()], [NOTHING, COMES]),
    "Bitmap": (Bitmap(epsilon=1.0, buckets=1, levels=1), [None, None, release()], [NOTHING, COMES]),
    "TogglingBitmap": (
        TogglingBitmap(epsilon=1.0, buckets=1, levels=1),
        [None, None, release()],
        [NOTHING, COMES, TWICE],
    ),
    "LegendreCounter": (
        LegendreCounter(epsilon=1.0, universe=1, prime=7),
        [None, None, release()],
        [NOTHING, COMES, update([0], weight=-2)],
    ),
    "CroppedMean": (CroppedMean(universe=1, epsilon=1.0, crop=2), [None, None, release()], [NOTHING, COMES]),
    "HeavyFraction": (HeavyFraction(universe=1, epsilon=1.0, threshold=2), [None, None, release()], [NOTHING, COMES]),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_no_strategy_beats_the_claim_or_the_worst_fixed_streams(case: str) -> None:
    algorithm, slots, actions = CASES[case]
    enumerator = Enumerator(algorithm, window=(-1, 3))
    last = slots.index(refresh()) + 1 if refresh() in slots else 0  # the unannounced look comes after it
    adaptive = adaptive_loss(enumerator, choices(slots, actions), look_from=last)
    fixed = enumerator.joint_loss(enumerate_streams(slots, actions), [None, *range(last, len(slots) + 1)]).epsilon
    assert adaptive == pytest.approx(fixed, rel=1e-12)
    assert adaptive <= algorithm.claim().epsilon
    assert algorithm.claim().inputs == "adaptive"
    assert adaptive > 0.3 * algorithm.claim().epsilon


def test_at_the_claim_no_strategy_finds_anything_and_below_it_one_does() -> None:
    algorithm, slots, actions = CASES["OptBern"]
    enumerator = Enumerator(algorithm, window=(-1, 2))
    open_to = choices(slots, actions)
    assert adaptive_delta(enumerator, open_to, algorithm.claim().epsilon) == 0
    lower = adaptive_delta(enumerator, open_to, 0.5)
    assert 0 < lower < 1
    streams = enumerate_streams(slots, actions)
    pairs = product(streams, streams, (None, *range(5)))
    assert lower >= max(fixed_delta(enumerator, one, other, 0.5, look=look) for one, other, look in pairs)


@dataclass(slots=True)
class _Guessed:
    word: int = noised()
    there: int = noised()
    told: int = public()


@dataclass(frozen=True, slots=True, kw_only=True)
class Guessing(Algorithm[_Guessed]):
    """The textbook example: it publishes a secret word, and whoever then says the word learns whether a user came.

    A stream that was fixed beforehand says it by chance only, once in ``words``. Jain, Raskhodnikova, Sivakumar and
    Smith (2023) separate the two notions for counting in this way: what is published is fed back.
    """

    state_type: ClassVar[type[Any]] = _Guessed

    words: int

    def claim(self) -> Claim:
        return Claim(epsilon=0.0, delta=1.0 / self.words, unit="user")

    def layout(self) -> Mapping[str, FieldLayout]:
        return {name: FieldLayout("int") for name in ("word", "there", "told")}

    def initial_state(self, rng: NoiseSource) -> _Guessed:
        return _Guessed(word=int(rng.uniform_below(self.words, 1)[0]), there=0, told=0)

    def batch(self, ids: Any = (), guess: Any = None) -> Any:
        return list(ids), guess

    def update(self, state: _Guessed, batch: Any, rng: NoiseSource) -> None:
        ids, guess = batch
        state.there |= bool(ids)
        state.told |= guess == state.word

    def release(self, state: _Guessed, rng: NoiseSource) -> Estimate:
        value = float(self.words + state.there if state.told else state.word)
        return Estimate(value=value, unbiased=value, standard_error=0.0, claim=self.claim(), name="", released=())

    def refresh(self, state: _Guessed, rng: NoiseSource) -> None:
        raise NotImplementedError

    def error_bound(self, *, beta: float) -> float:
        return 0.0


def test_a_mechanism_for_fixed_inputs_only_is_caught_by_the_adaptive_adversary_and_missed_by_the_other() -> None:
    words = 8
    enumerator = Enumerator(Guessing(words=words), window=(0, 0))
    say = [update([], guess=word) for word in range(words)]
    fixed = [
        fixed_delta(
            enumerator, (update(there), release(), one, release()), (update(()), release(), one, release()), 0.0
        )
        for there, one in product([(0,), ()], say)
    ]
    assert max(fixed) == Fraction(1, words) == Fraction(Guessing(words=words).claim().delta)
    pairs = [(update([0]), update([])), (update([]), update([0])), (update([]), update([]))]
    steps = [pairs, [(release(), release())], [(one, one) for one in say], [(release(), release())]]
    assert adaptive_delta(enumerator, steps, 0.0, look_from=None) == 1
    unhelpful = [pairs, [(one, one) for one in say], [(release(), release())]]  # she must guess before she is told
    assert adaptive_delta(enumerator, unhelpful, 0.0, look_from=None) == Fraction(1, words)
    assert Guessing(words=words).claim().inputs == "fixed"


def test_what_a_look_shows_may_be_used_too() -> None:
    """Nothing is published before the guess: the word is read in the state."""
    enumerator = Enumerator(Hidden(words=4), window=(0, 0))
    say = [(update([], guess=word),) * 2 for word in range(4)]
    steps: Choices = [say, [(update([0]), update([]))], [(release(), release())]]
    assert adaptive_delta(enumerator, steps, 0.0, look_from=None) == Fraction(1, 4)
    assert adaptive_delta(enumerator, steps, 0.0) == 1


class Hidden(Guessing):
    """The same without publishing the word."""

    __slots__ = ()

    def release(self, state: _Guessed, rng: NoiseSource) -> Estimate:
        shown = super().release(state, rng)
        return shown if state.told else replace(shown, value=0.0)


def test_only_few_steps_and_the_same_steps_in_both_worlds() -> None:
    enumerator = Enumerator(OptBern(universe=1, epsilon=1.0), window=(-1, 2))
    with pytest.raises(InvalidParameter, match="at most 4"):
        adaptive_loss(enumerator, choices([None] * 5, [NOTHING]))
    with pytest.raises(InvalidParameter, match="same thing"):
        adaptive_loss(enumerator, [[(release(), tick())]])
    certain = Enumerator(OptBern(universe=1, epsilon=math.inf), window=(-1, 2))
    assert adaptive_loss(certain, choices([None, release()], [NOTHING, COMES])) == math.inf


@pytest.mark.parametrize("specimen", specimens(), ids=str)
def test_shipped_stream_algorithms_say_adaptive_exactly_where_it_is_proved(specimen: Any) -> None:
    """What the proof needs besides fresh randomness in every step: a loss of every view by itself, or zCDP."""
    claim = specimen.algorithm.claim()
    proved = not claim.delta or specimen.algorithm.window_loss().rho_joint is not None
    assert claim.inputs == ("adaptive" if proved else "fixed")
