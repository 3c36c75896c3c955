"""OptBern end to end: exact loss of the shipped code, mean squared error, coverage, bad input."""

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from panstream import Monitor
from panstream.algorithms.density import OptBern, presence
from panstream.algorithms.randomized_bits import MAX_PHASES, CoinPair
from panstream.errors import BudgetExhausted, InvalidBatch, InvalidParameter, NotSupported
from panstream.primitives.noise import Coin, DiscreteLaplace, SeededSource
from panstream.privacy import Intrusions
from panstream.privacy.budget_split import density_split, laplace_variance
from panstream.privacy.joint_loss import kappa_for, present_probability, symmetric_loss
from panstream.testing.enumeration import Enumerator, enumerate_streams, refresh, release, update
from tests.statistical import ALPHA, assert_mean

NOTHING = update([])
APPEAR = update([0])
TWICE = update([0, 0])
LEAVE = update(delete=[0])


def joint(algorithm: Any, slots: list[Any], actions: list[Any]) -> float:
    enumerator = Enumerator(algorithm, window=(-1, algorithm.cells + 1))
    return enumerator.joint_loss(enumerate_streams(slots, actions)).epsilon


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("universe", [1, 2, 3])
def test_claim_is_the_enumerated_joint_loss(epsilon: float, universe: int) -> None:
    """Look before, between and after; release last or in the middle, so that look and output come in both orders."""
    algorithm = OptBern(universe=universe, epsilon=epsilon)
    claimed = algorithm.claim().epsilon
    slots = [None, release(), None]
    if universe == 1:
        slots = [None, None, release(), None]
    measured = [joint(algorithm, slots, [NOTHING, APPEAR]), joint(algorithm, [None, None, release()], [NOTHING, TWICE])]
    assert max(measured) == pytest.approx(claimed, rel=1e-9)
    assert max(measured) <= claimed + 1e-12  # rounding of coins and noise is on the safe side
    assert claimed == pytest.approx(epsilon, rel=1e-9)


def test_claim_holds_with_other_users_around() -> None:
    algorithm = OptBern(universe=3, epsilon=1.0)
    others = [update([1, 2]), update([0, 1, 2]), update([1, 0, 2])]
    assert joint(algorithm, [update([2]), None, None, release()], others) == pytest.approx(1.0, rel=1e-9)


def test_claim_with_deletes() -> None:
    algorithm = OptBern(universe=1, epsilon=1.0, deletions=True)
    measured = joint(algorithm, [None, None, release(), None], [NOTHING, APPEAR, LEAVE])
    assert measured == pytest.approx(1.0, rel=1e-9)


def test_claim_of_several_releases() -> None:
    algorithm = OptBern(universe=1, epsilon=1.0, releases=3)
    slots = [None, release(), None, release(), None, release()]
    assert joint(algorithm, slots, [NOTHING, APPEAR]) <= 1.0 + 1e-12
    together = [None, None, release(), release(), release()]
    assert joint(algorithm, together, [NOTHING, APPEAR]) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("announced", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_claim_of_announced_intrusions(announced: int) -> None:
    algorithm = OptBern(universe=1, epsilon=1.0, announced=announced)
    slots: list[Any] = [None, refresh()] * announced + [None, None, release()]
    last_phase = range(2 * announced, len(slots) + 1)
    enumerator = Enumerator(algorithm, window=(-1, 2))
    loss = enumerator.joint_loss(enumerate_streams(slots, [NOTHING, APPEAR]), looks=[None, *last_phase])
    assert loss.epsilon == pytest.approx(1.0, rel=1e-9)


def test_two_looks_have_no_finite_loss() -> None:
    """An announced look that is not followed by a refresh: the second look compares the bits."""
    algorithm = OptBern(universe=1, epsilon=1.0)
    enumerator = Enumerator(algorithm, window=(0, 0))
    laws = []
    for world in ((APPEAR,), (NOTHING,)):
        first: dict[Any, Fraction] = {}
        start = enumerator.view_law((), 0)
        for (key,), weight in start.items():
            for chance, after, _ in enumerator.moves(key, world[0]):
                first[key, after] = first.get((key, after), Fraction(0)) + weight * chance
        laws.append(first)
    assert set(laws[0]) - set(laws[1])  # a bit that changed proves an arrival


def test_replacing_a_user_costs_twice() -> None:
    algorithm = OptBern(universe=2, epsilon=1.0)
    enumerator = Enumerator(algorithm, window=(-1, 3))
    zero = update([0])
    one = update([1])
    pairs = [((zero, NOTHING, release()), (one, NOTHING, release())), ((zero, one, release()), (one, zero, release()))]
    loss = enumerator.pair_loss(pairs).epsilon
    assert 1.0 < loss <= 2.0 + 1e-12


@pytest.mark.parametrize("sabotage", ["output noise halved", "p1 wider by 1%", "start without noise", "reused coin"])
def test_sabotage_is_caught(sabotage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = OptBern(universe=1, epsilon=1.0)
    law = algorithm.law
    broken: dict[str, CoinPair] = {
        "output noise halved": replace(law, noise=DiscreteLaplace.at_most(2 * law.noise.kappa)),
        "p1 wider by 1%": replace(law, present=Coin.at_most(Fraction(law.present.probability) * Fraction(101, 100))),
        "start without noise": replace(law, absent=Coin(0)),
        "reused coin": replace(law, present=Coin(1 << 64)),
    }
    monkeypatch.setattr(OptBern, "law", property(lambda self: broken[sabotage]))
    measured = joint(algorithm, [None, None, release()], [NOTHING, APPEAR])
    assert measured > algorithm.epsilon + 1e-3


def test_true_losses_of_the_published_output_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given the papers' output noise the enumerator finds the true losses, here at epsilon = .1."""
    epsilon = 0.1
    e = math.exp(epsilon)
    pairs = {
        3.423: (0.5, 0.5 + epsilon / 4),
        1.573: (1 / (1 + e), e / (1 + e)),
        1.613: (math.exp(-epsilon / 2) / 2, 1 - math.exp(-epsilon / 2) / 2),
    }
    algorithm = OptBern(universe=2, epsilon=1.0)
    for true, (p0, p1) in pairs.items():
        law = replace(
            algorithm.law,
            absent=Coin.at_most(p0),
            present=Coin.at_most(p1),
            noise=DiscreteLaplace.at_most(epsilon / (p1 - p0)),
        )
        monkeypatch.setattr(OptBern, "law", property(lambda self, law=law: law))
        assert joint(algorithm, [None, None, release()], [NOTHING, APPEAR]) == pytest.approx(true, abs=5e-4)


def mean_squared_error(universe: int, epsilon: float, *, quieter: float = 1.0) -> float:
    """Return the formula's, with the output noise divided by ``quieter``."""
    state, kappa = density_split(epsilon, universe)
    p1 = present_probability(state)
    return (p1 * (1 - p1) / universe + laplace_variance(quieter * kappa) / universe**2) / (2 * p1 - 1) ** 2


@pytest.mark.slow
@pytest.mark.parametrize(("universe", "runs"), [(300, 4_000), (100_000, 2_000)])
def test_mean_squared_error(universe: int, runs: int) -> None:
    """That of the formula within sampling error; among 300 users, half the output noise would be outside by far."""
    epsilon = 1.0
    density = 0.25
    algorithm = OptBern(universe=universe, epsilon=epsilon)
    expected = mean_squared_error(universe, epsilon)
    errors = []
    ids = np.arange(int(universe * density))
    for _ in range(runs):
        monitor = algorithm.start()
        monitor.update(ids)
        errors.append(monitor.release().unbiased - density)
    assert_mean(np.array(errors), 0.0, "bias", sd=math.sqrt(expected))
    # Output noise is a third of the variance at most, and has kurtosis 6: that of the errors is below 3.4.
    slack = stats.norm.isf(ALPHA / 2) * math.sqrt(2.4 / runs)
    ratio = float(np.square(errors).mean()) / expected
    assert abs(ratio - 1) < slack, f"{ratio:.3f} of the expected error"
    if universe == 300:
        assert mean_squared_error(universe, epsilon, quieter=2.0) / expected < 1 - 1.5 * slack


@pytest.mark.slow
@pytest.mark.parametrize("density", [0.01, 0.63])
@pytest.mark.parametrize(("universe", "sample"), [(2000, None), (20_000, 2000), (300, 60)])
def test_intervals_cover(universe: int, sample: int | None, density: float) -> None:
    """Coverage from ids to answers within 95% ± 1% plus the sampling error of 1,500 runs; ``test_exact_error`` has the
    law of the answers for all densities.
    """
    runs = 1500
    present = round(universe * density)
    rng = SeededSource(universe)
    covered = 0
    for run in range(runs):
        monitor = Monitor(OptBern(universe=universe, epsilon=1.0, sample=sample, key=run), rng=rng)
        monitor.update(np.arange(present))
        low, high = monitor.release().interval()
        covered += low <= present / universe <= high
    slack = stats.norm.isf(ALPHA) * math.sqrt(0.95 * 0.05 / runs)
    assert 0.94 - slack < covered / runs < 0.96 + slack


@pytest.mark.parametrize("announced", [1, 2])
def test_decoding_after_announced_intrusions_is_unbiased(announced: int) -> None:
    algorithm = OptBern(universe=400, epsilon=6.0, announced=announced)
    rng = SeededSource(announced)
    values = []
    errors = []
    for _ in range(400):
        monitor = Monitor(algorithm, rng=rng)
        for phase in range(announced):
            monitor.update(range(100 * phase, 100 * phase + 100))
            monitor.refresh(rows_since_copy=False)
        monitor.update(range(50, 150))
        estimate = monitor.release()
        values.append(estimate.unbiased)
        errors.append(estimate.standard_error)
    truth = (150 + 100 * (announced - 1) - (50 if announced > 1 else 0)) / 400
    assert_mean(np.array(values), truth, "freeze and start afresh")
    assert np.std(values) == pytest.approx(np.mean(errors), rel=0.35)


def test_a_refresh_that_was_not_paid_for_is_refused() -> None:
    monitor = OptBern(universe=10, epsilon=1.0).start()
    with pytest.raises(NotSupported, match="announced=0"):
        monitor.refresh(rows_since_copy=False)
    with pytest.raises(InvalidParameter, match="cannot be combined"):
        OptBern(universe=10, epsilon=1.0, announced=1, deletions=True)
    with pytest.raises(NotSupported, match="deletions"):
        OptBern(universe=10, epsilon=1.0, deletions=True).start().refresh()


def test_deletes_undo_arrivals() -> None:
    noiseless = OptBern(universe=10, epsilon=math.inf, deletions=True)
    monitor = noiseless.start()
    monitor.update(insert=[1, 2, 3], delete=[2])
    monitor.update([4, 5, 3, 9], weight=[1, 1, -1, -1])  # 9 was never inserted: allowed
    assert monitor.release().value == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("bad", "words", "row"),
    [
        ({"ids": [0, 5, 10]}, "ids", 2),
        ({"ids": [3, -1]}, "ids", 1),
        ({"ids": [1, 2], "weight": [1, -2]}, "weight", 1),
        ({"ids": [1, 2], "weight": [0, 1]}, "weight must be positive, or -1", 0),
        ({"ids": [1, 2], "weight": [1]}, "weight must have one value per id", None),
        ({"ids": [1], "delete": [1]}, "either ids or insert", None),
        ({}, "ids are missing", None),
    ],
)
def test_bad_batches(bad: dict[str, Any], words: str, row: int | None) -> None:
    algorithm = OptBern(universe=10, epsilon=1.0, deletions=True)
    keywords = dict(bad)
    ids = (keywords.pop("ids"),) if "ids" in keywords else ()
    with pytest.raises(InvalidBatch, match=words) as caught:
        algorithm.batch(*ids, **keywords)
    assert caught.value.row == row


def test_deletes_must_be_declared() -> None:
    algorithm = OptBern(universe=10, epsilon=1.0)
    with pytest.raises(InvalidBatch, match="deletions=True"):
        algorithm.batch(delete=[1])
    with pytest.raises(InvalidBatch, match="weight"):
        algorithm.batch([1], weight=-1)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"epsilon": 0.0}, "epsilon must be positive, got epsilon=0.0"),
        ({"epsilon": -1.0}, "epsilon must be positive, got epsilon=-1.0"),
        ({"epsilon": math.nan}, "epsilon must be positive"),
        ({"universe": 0}, "universe must be in"),
        ({"universe": 1.5}, "universe must be a number of users"),
        ({"sample": 11}, "sample must be in 1..10, got sample=11"),
        ({"sample": 0}, "sample must be in"),
        ({"releases": 0}, "releases must be at least 1"),
        ({"announced": -1}, "announced must be in"),
        ({"key": -1}, "key must be an integer in"),
    ],
)
def test_bad_parameters(bad: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        OptBern(**{"universe": 10, "epsilon": 1.0, **bad})


def test_error_shrinks_with_epsilon_and_sample() -> None:
    base = OptBern(universe=10_000, epsilon=1.0, sample=1000)
    assert replace(base, epsilon=2.0).error_bound(beta=0.05) < base.error_bound(beta=0.05) < base.error_bound(beta=0.01)
    assert replace(base, sample=None).error_bound(beta=0.05) < base.error_bound(beta=0.05)
    with pytest.raises(InvalidParameter, match="beta must be in"):
        base.error_bound(beta=0.0)


def test_one_release_then_refused_and_remembered() -> None:
    monitor = OptBern(universe=10, epsilon=1.0).start()
    first = monitor.release()
    with pytest.raises(BudgetExhausted, match="no paid release is left"):
        monitor.release()
    assert monitor.last_release is first


def test_equal_split_needs_more_noise_than_the_tight_accounting() -> None:
    assert symmetric_loss(0.5, 0.5) < 1.0
    assert kappa_for(1.0, 0.5) > 0.5


def test_state_is_m_bits_and_a_fixed_header() -> None:
    small, large = (OptBern(universe=u, epsilon=1.0).start().to_bytes() for u in (10_000, 90_000))
    assert len(large) - len(small) == 10_000
    assert len(small) - 1250 < 400


def test_chunks_are_joined_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "_CHUNK", 3)
    monitor = OptBern(universe=100, epsilon=math.inf, deletions=True).start()
    monitor.update(range(50))
    monitor.update(range(20), weight=[-1] * 20)
    assert monitor.release().value == pytest.approx(0.3)


def test_planned_error_and_foreseen_answer_are_the_formulas() -> None:
    """The noise of the answer counts for 40 users; (p1² + p0²)/gap² of it for every announced intrusion."""
    counter = OptBern(universe=40, epsilon=1.0, announced=2)
    law = counter.law
    users = 40
    gap = law.p1 - law.p0
    cells = (1 + law.p1 * law.p0 / gap**2) ** 3 - 1
    noise = law.noise.variance * ((law.p1**2 + law.p0**2) / gap**2) ** 2 / (gap * users) ** 2
    assert counter.standard_error(10) == pytest.approx(users * math.sqrt(cells / users + noise), rel=1e-12)
    assert OptBern(universe=10_000, epsilon=1.0).expected_estimate(3_000).value == pytest.approx(0.3, abs=1e-3)
    assert (
        counter.expected_estimate(50).released == counter.expected_estimate(40).released == (round(40 * law.p1),)
    )  # there are no more


@pytest.mark.parametrize(("users", "density"), [(300, 0.3), (1_000, 1.0), (2_500, 1.0)])
def test_planned_error_of_a_sample_counts_those_left_out(users: int, density: float) -> None:
    counter = OptBern(universe=1_000, epsilon=1.0, sample=100)
    law = counter.law
    gap = law.p1 - law.p0
    own = law.p1 * law.p0 / gap**2 / 100 + law.noise.variance / (100 * gap) ** 2
    left_out = density * (1 - density) / 100 * 900 / 999
    assert counter.standard_error(users) == pytest.approx(1_000 * math.sqrt(own + left_out), rel=1e-12)


def test_the_claim_covers_one_look_and_those_that_are_paid_for() -> None:
    claim = OptBern(universe=10, epsilon=1.0, announced=2).claim()
    assert claim.intrusions == Intrusions(unannounced=1, announced=2, freezes=True)


def test_no_state_is_refreshed_more_often_than_it_can_hold() -> None:
    algorithm = OptBern(universe=8, epsilon=1.0, announced=MAX_PHASES)
    with SeededSource(1) as rng:
        state = algorithm.start(rng)
        for _ in range(MAX_PHASES):
            algorithm.refresh_shard(state, algorithm.cells, rng)
        with pytest.raises(NotSupported, match=f"at most {MAX_PHASES} times"):
            algorithm.refresh_shard(state, algorithm.cells, rng)


@pytest.mark.parametrize("deletions", [False, True])
def test_rows_of_any_positive_weight_are_appearances(deletions: bool) -> None:
    algorithm = OptBern(universe=30, epsilon=math.inf, deletions=deletions, count=True)
    monitor = algorithm.start()
    monitor.update([1, 2, 3, 1], weight=[1, 7, 2**62, 300])
    monitor.update([4, 5], weight=12)
    if deletions:
        monitor.update([2], weight=-1)  # one delete is enough, whatever the weight of the insert
    assert monitor.release().value == pytest.approx(4 if deletions else 5)


def test_a_weighted_row_draws_the_coin_of_a_plain_one() -> None:
    """The same draws, so the same exact loss: the weight of a row is not part of any state."""
    for weights in ([1, 1, 1], [5, 2, 9]):
        state = OptBern(universe=8, epsilon=1.0).initial_state(SeededSource(1))
        algorithm = OptBern(universe=8, epsilon=1.0)
        algorithm.update(state, algorithm.batch([1, 1, 4], weight=weights), SeededSource(2))
        assert state.bits.tolist() == _plain_state()


def _plain_state() -> list[int]:
    algorithm = OptBern(universe=8, epsilon=1.0)
    state = algorithm.initial_state(SeededSource(1))
    algorithm.update(state, algorithm.batch([1, 1, 4]), SeededSource(2))
    bits: list[int] = state.bits.tolist()
    return bits
