"""What OptBern says about its error, against the exact law of its release."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from panstream.algorithms.density.cropped_mean import CroppedMean, CroppedState
from panstream.algorithms.density.optbern import OptBern
from panstream.core.estimate import Estimate
from panstream.testing.sources import ScriptedSource
from tests.exact_law import ReleaseLaw, bits, sampled

USERS = 150


def law_of(counter: OptBern, present: int) -> ReleaseLaw:
    p0 = counter.law.p0
    p1 = counter.law.p1
    cells = counter.cells
    ones = sampled(USERS, present, cells, lambda k: bits({p1: k, p0: cells - k}))
    return ReleaseLaw.of(
        ones, counter.law.noise.kappa, lambda r: counter._decode((r,), np.array([cells]), 0), present / USERS
    )


@pytest.mark.slow
@pytest.mark.parametrize("sample", [None, 90])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("present", [0, 1, 40, 45, 75, 149, 150])
def test_standard_errors_are_exact_and_intervals_cover(present: int, epsilon: float, sample: int | None) -> None:
    counter = OptBern(universe=USERS, epsilon=epsilon, sample=sample)
    law = law_of(counter, present)
    assert law.bias() == pytest.approx(0, abs=1e-6)
    assert law.said_at_truth() == pytest.approx(law.deviation(), rel=0.01)
    assert 0.945 < law.coverage(0.95) < 0.975
    if 2 * law.deviation() < min(law.truth, 1 - law.truth):  # nearer to an end one side takes over from the other
        assert all(0.013 < missed < 0.0285 for missed in law.misses(0.95))


@pytest.mark.slow
@pytest.mark.parametrize("sample", [None, 90])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_the_error_bound_holds_everywhere_and_is_tight_somewhere(epsilon: float, sample: int | None) -> None:
    counter = OptBern(universe=USERS, epsilon=epsilon, sample=sample)
    for beta in (0.3, 0.05, 0.01):
        error = counter.error_bound(beta=beta)
        chances = [law_of(counter, present).beyond(error) for present in (0, 30, 75, 120, 150)]
        assert max(chances) < beta * 1.02
        assert max(chances) > beta * 0.55


@pytest.mark.parametrize("announced", [1, 2])
def test_after_announced_looks_the_variance_is_that_of_all_patterns(announced: int) -> None:
    """One cell: every pattern of its bits, decoded as the estimate does it, with the noise of every pattern's count."""
    counter = OptBern(universe=1, epsilon=4.0, announced=announced)
    law = counter.law
    gap = counter.law.p1 - counter.law.p0
    for there in (0, 1):
        moments = np.zeros(2)
        for pattern in range(1 << announced):
            frozen = bin(pattern).count("1")
            for last in (0, 1):
                # The user comes after the last look, so frozen bits are those of somebody absent.
                chance = law.p0**frozen * (1 - law.p0) ** (announced - frozen)
                p = law.p1 if there else law.p0
                chance *= p if last else 1 - p
                sizes = np.zeros(1 << announced, np.int64)
                ones = sizes.copy()
                sizes[pattern] = 1
                ones[pattern] = last
                value = counter._decode(tuple(map(int, ones)), sizes, announced).unbiased
                moments += chance * np.array([value, value**2])
        assert moments[0] == pytest.approx(there, abs=1e-9)
        assert counter._variance(float(there), announced) == pytest.approx(moments[1] - moments[0] ** 2, rel=1e-9)
    decoded = [(law.p1 - bit) / gap for bit in (0, 1)]
    noise = law.noise.variance / gap**2 * (decoded[0] ** 2 + decoded[1] ** 2) ** announced
    sizes = np.zeros(1 << announced, np.int64)
    sizes[0] = 1
    said = counter._decode(tuple(map(int, sizes * 0)), sizes, announced)
    inside = min(max(said.unbiased, 0.0), 1.0)
    assert said.standard_error == pytest.approx(math.sqrt(counter._variance(inside, announced) + noise), rel=1e-9)


def test_the_bound_after_announced_looks_allows_for_all_patterns() -> None:
    plain, looked = (OptBern(universe=USERS, epsilon=4.0, announced=announced) for announced in (0, 1))
    for counter, phases in ((plain, 0), (looked, 1)):
        gap = counter.law.p1 - counter.law.p0
        weights = ((counter.law.p1**2 + counter.law.p0**2) / gap**2) ** phases
        noise = counter.law.noise.variance * weights / (gap * USERS) ** 2
        worst = max(counter._variance(d / 64, phases) for d in range(65))
        assert counter.error_bound(beta=0.32) == pytest.approx(math.sqrt(worst + noise) + 0.5 / (gap * USERS), rel=0.02)


@pytest.mark.parametrize("times", [0, 1, 2, 3])
def test_cropped_means_say_their_own_quantiles(times: int) -> None:
    """All users came equally often, which has the largest variance of the bits at that mean; noise by convolution."""
    counter = CroppedMean(universe=USERS, epsilon=1.0, crop=3)
    law = counter.presence.law
    chance = law.p0 + (law.p1 - law.p0) * times / 3

    def said(ones: int) -> Estimate:
        empty = np.zeros(USERS, np.int32)
        state = CroppedState(counters=empty, bits=np.zeros((USERS + 7) // 8, np.uint8), released=0)
        return counter.release(state, ScriptedSource({0: ones}))

    found = ReleaseLaw.of(bits({chance: USERS}), law.noise.kappa, said, float(times))
    assert found.bias() == pytest.approx(0, abs=1e-5)
    assert found.said_at_truth() == pytest.approx(found.deviation(), rel=0.05)
    assert 0.94 < found.coverage(0.95) < (0.97 if times in (1, 2) else 0.98)  # at an end one side never misses


@pytest.mark.parametrize("beta", [0.3, 0.05, 0.01])
def test_cropped_means_keep_their_bound(beta: float) -> None:
    """The chance of a larger error than the bound, at the worst mean, is below beta and not far below."""
    counter = CroppedMean(universe=USERS, epsilon=1.0, crop=3)
    law = counter.presence.law
    chances = []
    scale = 3 / ((law.p1 - law.p0) * USERS)
    for times in range(4):
        chance = law.p0 + (law.p1 - law.p0) * times / 3
        found = ReleaseLaw.of(
            bits({chance: USERS}),
            law.noise.kappa,
            lambda r: SimpleNamespace(unbiased=(r - law.p0 * USERS) * scale),
            float(times),
        )
        chances.append(found.beyond(counter.error_bound(beta=beta)))
    assert beta * 0.5 < max(chances) < beta * 1.03
