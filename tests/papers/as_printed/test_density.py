"""The literal density estimators: their true losses by enumeration and quadrature, and the laws that the figures
use.
"""

import math
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import panstream
from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.planning.density_published import DWORK, OPTBERN, ppds_failure, roth_sample_size
from panstream.core.catalogue import ALGORITHMS
from panstream.errors import BudgetExhausted, InvalidBatch, InvalidParameter, NotSupported
from panstream.papers.as_printed.density import (
    PublishedDwork,
    PublishedLaplace,
    PublishedOptBern,
    PublishedQuantisedLaplace,
    PublishedTruncatedGaussian,
    PublishedTruncatedLaplace,
)
from panstream.papers.as_printed.density_base import LiteralDensity
from panstream.papers.as_printed.density_distributions import LevelDistribution, laplace_quantile
from panstream.papers.as_printed.density_ppds import PublishedPPDS, _walk, levels_of
from panstream.papers.figures._simulate import (
    _run_ppds,
    literal_estimates,
    ppds_estimate,
    presence_estimates,
    previous_events,
)
from panstream.primitives.noise import SeededSource
from panstream.privacy.joint_loss import pair_loss
from panstream.testing.enumeration import Enumerator, enumerate_streams, release, update
from tests.statistical import ALPHA, assert_mean, assert_same_law

NOTHING = update([])
APPEAR = update([0])
TWICE = update([0, 0])
LEAVE = update(delete=[0])
LITERAL: list[type[LiteralDensity]] = [
    PublishedDwork,
    PublishedOptBern,
    PublishedQuantisedLaplace,
    PublishedLaplace,
    PublishedTruncatedLaplace,
    PublishedTruncatedGaussian,
]
BITS = LITERAL[:3]


@pytest.mark.parametrize(
    ("epsilon", "dwork", "optbern", "quantised"),
    [(0.05, 3.374, 1.503, 1.524), (0.1, 3.423, 1.573, 1.613), (0.2, 3.522, 1.713, 1.787), (0.5, 3.829, 2.143, 2.281)],
)
def test_claims_are_the_true_losses(epsilon: float, dwork: float, optbern: float, quantised: float) -> None:
    for kind, true in zip(BITS, (dwork, optbern, quantised), strict=True):
        for universe in (1, 1000):
            claim = kind(universe=universe, epsilon=epsilon).claim()
            assert claim.epsilon == pytest.approx(true, abs=5e-4)
            assert claim.epsilon > 2 * epsilon
            assert f"published as {2 * epsilon:g}-pan-private" in claim.note
    for infinite in (
        PublishedLaplace(universe=9, epsilon=epsilon),
        PublishedPPDS(universe=9, epsilon=epsilon, sample=4),
    ):
        assert math.isinf(infinite.claim().epsilon)


@pytest.mark.parametrize("kind", BITS)
@pytest.mark.parametrize("universe", [1, 2])
@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_claims_are_the_enumerated_losses_of_the_code(kind: type[Any], universe: int, epsilon: float) -> None:
    algorithm = kind(universe=universe, epsilon=epsilon, integer_noise=True)
    enumerator = Enumerator(algorithm, window=(-1, universe + 1))
    actions = [NOTHING, APPEAR, LEAVE] if universe == 1 else [NOTHING, APPEAR, TWICE]
    measured = enumerator.joint_loss(enumerate_streams([None, None, release()], actions)).epsilon
    claimed = algorithm.claim()
    assert measured == pytest.approx(claimed.epsilon, rel=1e-9)
    unseen = enumerator.joint_loss(enumerate_streams([None, None], actions)).epsilon
    assert unseen == pytest.approx(claimed.parts["state"], rel=1e-9)
    assert unseen <= epsilon + 1e-12  # this much of the promise holds


def test_a_centre_above_one_half_breaks_the_state() -> None:
    """ "Any c in (0, 4/5]": at epsilon .5 and c = .8 the bits alone lose 4.579."""
    for centre, state in ((0.3, 0.5), (0.5, 0.5), (0.8, 4.579)):
        algorithm = PublishedOptBern(universe=1, epsilon=0.5, centre=centre, integer_noise=True)
        enumerator = Enumerator(algorithm, window=(-1, 2))
        assert enumerator.joint_loss(enumerate_streams([None, None], [NOTHING, APPEAR])).epsilon == pytest.approx(
            state, abs=5e-4
        )
        joint = enumerator.joint_loss(enumerate_streams([None, None, release()], [NOTHING, APPEAR, LEAVE])).epsilon
        assert joint == pytest.approx(algorithm.claim().epsilon, rel=1e-9)
        assert algorithm.claim().parts["state"] == pytest.approx(state, abs=5e-4)
    with pytest.raises(InvalidParameter, match="centre must be"):
        PublishedOptBern(universe=1, epsilon=0.5, centre=0.81)


Density = Callable[[float], float]


def brute_loss(
    laws: tuple[Density, Density], values: Any, weigh: Callable[[Density, float], float], rate: float
) -> float:
    """Joint loss of one stored value: what the intruder sees, then an output, for every pair of histories."""
    worst = 0.0
    outputs = [-60.0, 60.0, *np.linspace(-0.5, 1.5, 41)]
    redrawn = {(law, y): weigh(laws[law], y) for law in (0, 1) for y in outputs}
    for seen, y in product(values, outputs):
        kept = math.exp(-rate * abs(y - seen))
        weights = [laws[first](seen) * after for first in (0, 1) for after in (kept, redrawn[0, y], redrawn[1, y])]
        worst = max(worst, math.log(max(weights) / min(weights)))
    return worst


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 0.5])
@pytest.mark.parametrize("kind", [PublishedTruncatedLaplace, PublishedTruncatedGaussian])
def test_truncated_losses_by_quadrature(kind: type[LiteralDensity], epsilon: float) -> None:
    if kind is PublishedTruncatedLaplace:
        frozen = [stats.laplace(0.5 + sign * epsilon / 2, 1.0) for sign in (-1, 1)]
    else:
        frozen = [stats.norm(mean, math.sqrt(0.5 / epsilon)) for mean in (0.0, 1.0)]
    masses = [float(law.cdf(1) - law.cdf(0)) for law in frozen]
    laws = tuple(
        (lambda x, law=law, mass=mass: float(law.pdf(x)) / mass) for law, mass in zip(frozen, masses, strict=True)
    )
    kinks = [(1 - epsilon) / 2, 0.5, (1 + epsilon) / 2]
    means = [integrate.quad(lambda x, law=law: x * law(x), 0, 1, points=kinks)[0] for law in laws]
    rate = epsilon / (means[1] - means[0])  # a value moves the debiased mean by value/(m·gap), noise 1/(ε·m)

    def weigh(law: Density, y: float) -> float:
        breaks = sorted({*kinks, min(max(y, 0.0), 1.0)})
        return float(integrate.quad(lambda x: law(x) * math.exp(-rate * abs(y - x)), 0, 1, points=breaks)[0])

    expected = brute_loss(laws, np.linspace(0, 1, 21), weigh, rate)  # type: ignore[arg-type]
    claim = kind(universe=5, epsilon=epsilon).claim()
    assert claim.epsilon == pytest.approx(expected, rel=1e-6)
    assert claim.parts["state"] == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("levels", [2, 3, 4, 8])
def test_quantised_losses_by_summing(levels: int) -> None:
    epsilon = 0.2
    law = LevelDistribution.quantised_laplace(epsilon, levels)
    rate = epsilon / (law.mean(True) - law.mean(False))
    chances = (law.absent, law.present)
    worst = 0.0
    outputs = [-100.0, 100.0, *law.points, *np.linspace(-8, 8, 101)]
    for seen, y in product(range(levels), outputs):
        near = [math.exp(-rate * abs(y - point) + rate * abs(y)) for point in law.points]
        mixed = [sum(p * w for p, w in zip(chance, near, strict=True)) for chance in chances]
        weights = [chance[seen] * after for chance in chances for after in (near[seen], *mixed)]
        worst = max(worst, math.log(max(weights) / min(weights)))
    algorithm = PublishedQuantisedLaplace(universe=5, epsilon=epsilon, levels=levels)
    assert algorithm.claim().epsilon == pytest.approx(worst, rel=1e-9)


def test_laplace_loses_more_than_any_bound() -> None:
    """Seen value 0, output y: a re-drawn user weighs 1 + |y| (convolution of two Laplace laws) where a kept one
    weighs 2.
    """
    losses = []
    for y in (10.0, 1e3, 1e5):
        redrawn = integrate.quad(lambda x, y=y: 0.5 * math.exp(y - abs(y - x) - abs(x)), -30, y + 30, points=[0, y])[0]
        losses.append(math.log(redrawn))
    assert losses == pytest.approx([math.log((1 + y) / 2) for y in (10.0, 1e3, 1e5)], rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", LITERAL)
def test_literal_forms_are_unbiased_with_the_printed_error(kind: type[LiteralDensity]) -> None:
    """N = 1,500 runs of the class itself, 40 users sampled of 60, 21 present."""
    runs = 1500
    algorithm = kind(universe=60, epsilon=0.5, sample=40)
    estimates = drive(algorithm, np.arange(21), runs)
    assert_mean(estimates, 21 / 60, f"{kind.__name__} is unbiased")
    law = algorithm.law
    d = 21 / 60
    gap = law.mean(True) - law.mean(False)
    bits = (d * law.variance(True) + (1 - d) * law.variance(False)) / gap**2
    exact = bits / 40 + d * (1 - d) / 40 * (60 - 40) / 59 + 2 / (40 * 0.5) ** 2
    assert_mean((estimates - d) ** 2, exact, f"{kind.__name__} has the error of the formula")
    printed = {
        PublishedDwork: 2 * (2 * 40 + 1) / (40 * 0.5) ** 2,
        PublishedOptBern: 1 / (4 * 40 * math.tanh(0.25) ** 2) + 2 / (40 * 0.5) ** 2,
        PublishedLaplace: 2 * (40 + 1) / (40 * 0.5) ** 2,
    }
    if kind in printed:
        assert algorithm.mean_squared_error == pytest.approx(printed[kind], rel=1e-12)
    if kind is not PublishedLaplace:  # there the paper leaves out the sample's share
        assert algorithm.mean_squared_error >= exact


def drive(algorithm: Any, present: Any, runs: int, seed: int = 5) -> Any:
    """Return estimates of the class itself; five users arrive twice, which must change nothing."""
    rng = SeededSource(seed)
    estimates = []
    for _ in range(runs):
        with rng as step:
            state = algorithm.initial_state(step)
            algorithm.update(state, algorithm.batch([*present, *present[:5]]), step)
            estimates.append(algorithm.release(state, step).value)
    return np.array(estimates)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options"), [*((kind, {}) for kind in LITERAL), (PublishedQuantisedLaplace, {"levels": 4})], ids=str
)
def test_simulated_law_is_the_law_of_the_class(kind: type[Any], options: dict[str, int]) -> None:
    runs = 1500
    algorithm = kind(universe=30, epsilon=0.4, sample=12, **options)
    simulated = literal_estimates(algorithm, np.full(runs, 11), np.random.default_rng(3))
    p = stats.ks_2samp(drive(algorithm, np.arange(11), runs), simulated).pvalue
    assert p > ALPHA, f"{kind.__name__}: p = {p:.2e}"


@pytest.mark.slow
@pytest.mark.parametrize("sample", [None, 15])
def test_simulated_law_of_what_we_ship(sample: int | None) -> None:
    runs = 1500
    rng = SeededSource(9)
    released = []
    for run in range(runs):
        algorithm = OptBern(universe=40, epsilon=1.5, sample=sample, key=run)
        with rng as step:
            state = algorithm.initial_state(step)
            algorithm.update(state, algorithm.batch(np.arange(25)), step)
            released.append(algorithm.release(state, step).unbiased)
    simulated = presence_estimates(algorithm, np.full(runs, 25), np.random.default_rng(8))
    assert_same_law(np.round(released, 9), np.round(simulated, 9), "OptBern")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (PublishedLaplace, lambda e, mean: stats.laplace(0.5 + (mean - 0.5) * e)),
        (PublishedTruncatedGaussian, lambda e, mean: _cut_normal(mean, math.sqrt(0.5 / e))),
    ],
)
def test_draws_of_real_values(kind: type[LiteralDensity], expected: Any) -> None:
    law = kind(universe=5, epsilon=0.4).law
    rng = SeededSource(1)
    for present in (False, True):
        with rng as step:
            values = law.draw(present, 20_000, step)
        assert stats.kstest(values, expected(0.4, float(present)).cdf).pvalue > ALPHA
        assert values.mean() == pytest.approx(law.mean(present), abs=0.06)


def _cut_normal(mean: float, sd: float) -> Any:
    return stats.truncnorm((0 - mean) / sd, (1 - mean) / sd, loc=mean, scale=sd)


def test_draws_of_cut_laplace_values() -> None:
    law = PublishedTruncatedLaplace(universe=5, epsilon=0.4).law
    rng = SeededSource(1)
    for present in (False, True):
        whole = stats.laplace(0.7 if present else 0.3)
        with rng as step:
            values = law.draw(present, 20_000, step)
        low = whole.cdf(0)
        high = whole.cdf(1)
        assert (
            stats.kstest(values, lambda x, whole=whole, low=low, high=high: (whole.cdf(x) - low) / (high - low)).pvalue
            > ALPHA
        )
        assert law.mean(present) == pytest.approx(
            integrate.quad(lambda x, whole=whole: x * whole.pdf(x), 0, 1, points=[0.3, 0.7])[0] / (high - low)
        )


def test_laplace_quantile_is_scipys() -> None:
    grid = np.linspace(0.001, 0.999, 999)
    assert laplace_quantile(grid) == pytest.approx(stats.laplace.ppf(grid), abs=1e-12)


# PPDS


@pytest.mark.parametrize("times", [1, 2, 3, 4])
def test_ppds_loses_more_with_every_appearance(times: int) -> None:
    """The class itself: with room for one id, a user who came k times rarely leaves the level at 0."""
    epsilon = 0.5
    algorithm = PublishedPPDS(universe=4, epsilon=epsilon, sample=1, factor=1, shift=0, integer_noise=True)
    enumerator = Enumerator(algorithm, window=(-1, 2))
    loss = enumerator.joint_loss([(update([2] * times),), (update([]),)])
    assert loss.epsilon >= times * math.log1p(math.exp(epsilon)) - 1e-9


def test_ppds_takes_even_ids_for_all_or_none() -> None:
    """Every other user is present, but the estimates lie far from 1/2: the sample is a class of residues."""
    algorithm = PublishedPPDS(universe=4096, epsilon=2.0, sample=300)
    rng = SeededSource(4)
    far = 0
    for _ in range(40):
        with rng as step:
            state = algorithm.initial_state(step)
            algorithm.update(state, algorithm.batch(np.arange(0, 4096, 2)), step)
            far += abs(algorithm.release(state, step).value - 0.5) > 0.3
    assert far == 40


@settings(max_examples=60, deadline=None)
@given(data=st.data(), bits=st.integers(1, 6), capacity=st.integers(1, 12))
def test_ppds_by_arrays_is_ppds_by_events(data: st.DataObject, bits: int, capacity: int) -> None:
    universe = data.draw(st.integers(2 ** (bits - 1), 2**bits))
    stream = np.array(data.draw(st.lists(st.integers(0, universe - 1), max_size=80)), np.int64)
    events = universe + stream.size
    coins = np.array(data.draw(st.lists(st.booleans(), min_size=events, max_size=events)), np.bool_)
    factor = 2 * data.draw(st.integers(0, 2 ** (bits - 1) - 1)) + 1
    heights = levels_of(np.arange(universe), bits, factor, data.draw(st.integers(0, 2**bits - 1)))
    ids = np.concatenate([np.arange(universe), stream])
    members: dict[int, int] = {}
    level = _walk(members, 0, ids, heights[ids], coins.astype(np.uint8), capacity)
    assert _run_ppds(heights[ids], coins, previous_events(stream, universe), capacity) == (level, len(members))


@pytest.mark.slow
def test_ppds_simulation_has_the_law_of_the_class() -> None:
    runs = 2000
    algorithm = PublishedPPDS(universe=50, epsilon=1.0, sample=10)
    stream = np.concatenate([np.arange(20), np.arange(5)])
    previous = previous_events(stream, 50)
    rng = np.random.default_rng(2)
    simulated = [ppds_estimate(algorithm, stream, previous, rng) for _ in range(runs)]
    assert stats.ks_2samp(drive(algorithm, np.arange(20), runs, seed=11), simulated).pvalue > ALPHA


def test_levels_are_trailing_zeros() -> None:
    for factor, shift in ((1, 0), (5, 3), (31, 17)):
        expected = []
        for u in range(32):
            hashed = (factor * u + shift) % 32
            expected.append(5 if hashed == 0 else (hashed & -hashed).bit_length() - 1)
        assert levels_of(np.arange(32), 5, factor, shift).tolist() == expected
        assert sorted(expected).count(0) == 16


def test_ppds_without_overflow_keeps_everyone() -> None:
    algorithm = PublishedPPDS(universe=64, epsilon=30.0, sample=65)
    with SeededSource(1) as step:
        state = algorithm.initial_state(step)
        algorithm.update(state, algorithm.batch([3, 5, 3]), step)
    assert (state.level, state.members.tolist()) == (0, [3, 5])
    assert algorithm.error_bound(beta=0.05) == 1.0 or algorithm.error_bound(beta=0.05) > 0


# parameters


def test_sample_sizes() -> None:
    assert OPTBERN.sample_size(0.5, 0.1, 0.05) == 5679
    roth = roth_sample_size(0.5, 0.1, 0.05)
    assert roth == math.ceil(200 * math.log(20) / 0.0025)
    with pytest.raises(InvalidParameter, match="sample must be in 1..1000"):
        PublishedDwork(universe=1000, epsilon=0.5, sample=roth)


def test_error_inverts_the_papers_bound() -> None:
    algorithm = PublishedDwork(universe=100_000, epsilon=0.5, sample=20_000)
    alpha = algorithm.error_bound(beta=0.05)
    assert DWORK.failure_bound(0.5, alpha, 20_000) == pytest.approx(0.05, rel=1e-5)
    assert PublishedDwork(universe=10, epsilon=0.1).error_bound(beta=0.05) == 1.0
    ppds = PublishedPPDS(universe=100_000, epsilon=0.5, sample=5000)
    alpha = ppds.error_bound(beta=0.1)
    assert ppds_failure(0.5, alpha, 5000, 100_000) == pytest.approx(0.1, rel=1e-5)
    with pytest.raises(InvalidParameter, match="beta must be in"):
        algorithm.error_bound(beta=1.0)


@pytest.mark.parametrize(
    ("kind", "bad", "words"),
    [
        (PublishedDwork, {"epsilon": 2.0}, "epsilon must be positive"),
        (PublishedOptBern, {"epsilon": -1.0}, "epsilon must be positive"),
        (PublishedOptBern, {"epsilon": math.inf}, "epsilon must be positive"),
        (PublishedLaplace, {"universe": 0}, "universe must be in"),
        (PublishedLaplace, {"sample": 11}, "sample must be in 1..10, got sample=11"),
        (PublishedLaplace, {"integer_noise": True}, "integer_noise needs an estimator that stores bits"),
        (PublishedQuantisedLaplace, {"levels": 1}, "levels must be in"),
        (PublishedPPDS, {"sample": 0}, "sample must be at least 1"),
        (PublishedPPDS, {"sample": 3, "factor": 2}, "factor must be odd"),
        (PublishedPPDS, {"sample": 3, "shift": 16}, "shift must be in"),
        (PublishedPPDS, {"sample": 3, "epsilon": 0.0}, "epsilon must be positive"),
        (PublishedPPDS, {"sample": 3, "universe": 0}, "universe must be in"),
    ],
)
def test_bad_parameters(kind: type[Any], bad: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        kind(**{"universe": 10, "epsilon": 0.5, **bad})


def test_verbs_that_are_refused() -> None:
    rng = SeededSource(0)
    for algorithm in (PublishedDwork(universe=10, epsilon=0.5), PublishedPPDS(universe=10, epsilon=0.5, sample=4)):
        state: Any = algorithm.initial_state(rng)
        algorithm.release(state, rng)
        with pytest.raises(BudgetExhausted):
            algorithm.release(state, rng)
        with pytest.raises(NotSupported, match="cannot be refreshed"):
            algorithm.refresh(state, rng)
        with pytest.raises(InvalidBatch, match="ids are missing"):
            algorithm.batch(None)
        with pytest.raises(InvalidBatch, match="row 1"):
            algorithm.batch([1, 10])
    with pytest.raises(NotSupported, match="real numbers"):
        PublishedLaplace(universe=10, epsilon=0.5).layout()


def test_states_that_are_levels_have_bytes() -> None:
    """Encoded and read again under a name that the catalogue does not know."""
    from panstream.primitives import codec

    algorithms: list[Any] = [
        PublishedQuantisedLaplace(universe=20, epsilon=0.5, sample=7, levels=4),
        PublishedPPDS(universe=20, epsilon=0.5, sample=7),
    ]
    for algorithm in algorithms:
        state = algorithm.initial_state(SeededSource(3))
        data = codec.encode(type(algorithm).__name__, algorithm.parameters(), state, algorithm.layout())
        again = codec.decode(data, algorithm.state_type, algorithm.layout())
        for name in algorithm.layout():
            assert np.array_equal(getattr(again, name), getattr(state, name))


def test_deletes_are_drawn_as_absent() -> None:
    algorithm = PublishedOptBern(universe=50, epsilon=30.0)
    rng = SeededSource(2)
    state = algorithm.initial_state(rng)
    algorithm.update(state, algorithm.batch(range(20), delete=range(10)), rng)
    assert np.flatnonzero(state.stored).tolist() == list(range(10, 20))


def test_literal_forms_are_not_for_production() -> None:
    names = {kind.__name__ for kind in (*LITERAL, PublishedPPDS)}
    assert not names & set(ALGORITHMS)
    assert not names & set(panstream.__all__)


def test_noise_on_the_debiased_mean_is_worth_more_per_bit() -> None:
    """Noise of 1/(ε·m) on the debiased mean is worth κ = ε/(p1 - p0) on the integer, whatever the sample size."""
    for kind in BITS:
        law = kind(universe=9, epsilon=0.3).law
        assert isinstance(law, LevelDistribution)
        p0 = law.absent[1]
        p1 = law.present[1]
        assert kind(universe=9, epsilon=0.3).claim().epsilon == pytest.approx(pair_loss(p0, p1, 0.3 / (p1 - p0)))


def test_the_table_of_the_documentation() -> None:
    page = Path(__file__).parents[3] / "docs" / "explanation" / "what-the-papers-promise.md"
    kinds = {kind.__name__: kind for kind in (*LITERAL, PublishedPPDS)}
    rows = re.findall(r"^\| .* \| `(\w+)(?:\(levels=(\d)\))?` \| (.*) \|$", page.read_text(), re.MULTILINE)
    assert {name for name, _, _ in rows} == set(kinds)
    for name, levels, losses in rows:
        extra: dict[str, int] = {"levels": int(levels)} if levels else {}
        extra |= {"sample": 10} if name == "PublishedPPDS" else {}
        for epsilon, printed in zip((0.05, 0.1, 0.2, 0.5), losses.split(" | "), strict=True):
            true = kinds[name](universe=100, epsilon=epsilon, **extra).claim().epsilon
            assert float(printed) == pytest.approx(true, abs=5e-4)
