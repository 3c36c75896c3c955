"""The profile sketch: every function exactly unbiased, variances, several questions of one release."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.algorithms.turnstile.profile_sketch import ProfileSketch
from panstream.algorithms.turnstile.statistic import DISTINCT, Statistic
from panstream.errors import InvalidParameter, NotSupported
from panstream.primitives.noise import SeededSource
from panstream.privacy.turnstile_loss import refresh_factor
from tests.algorithms.turnstile.helpers import SEED, assert_covers, assert_unbiased, churn, exact_counts

N = 200
QUESTIONS = [
    DISTINCT,
    Statistic.cropped_moment(1, 4),
    Statistic.cropped_moment(2, 4),
    Statistic.cropped_moment(0.5, 9),
    Statistic.heavy_hitters(3),
    Statistic.incidence(5),
]


@pytest.mark.parametrize("signed", [True, False])
def test_every_question_is_exactly_unbiased_for_every_net_weight(signed: bool) -> None:
    """The exact law of the counter, by enumeration, applied to the decoder gives f(a) back."""
    sketch = ProfileSketch(universe=1, epsilon=1.0, largest=9, signed=signed)
    assert sketch.prime == (19 if signed else 11)
    for net in range(-9 if signed else 0, 10):
        law = [float(mean) for mean in exact_counts(sketch, net)]
        assert sum(law) == pytest.approx(1.0)
        for question in QUESTIONS:
            decoder, spread = sketch.decoder(question)
            wanted = float(question.at(np.array([net]))[0])
            assert np.dot(law, decoder) == pytest.approx(wanted, abs=1e-9)
            assert np.dot(law, decoder**2) - wanted**2 == pytest.approx(spread[net % sketch.prime], rel=1e-9, abs=1e-9)


@given(st.lists(st.floats(-100, 100), min_size=23, max_size=23), st.floats(0.1, 5.0))
@settings(max_examples=40, deadline=None)
def test_any_function_can_be_decoded(values: list[float], epsilon: float) -> None:
    sketch = ProfileSketch(universe=50, epsilon=epsilon, largest=11)
    table = np.array(values)
    question = Statistic("table", lambda a: table[a % 23])
    decoder, _ = sketch.decoder(question)
    law = sketch.law.start
    assert law is not None
    squares = {r * r % 23 for r in range(1, 23)}
    noise = np.array([2 * law.at_zero / 22 if u in squares else 2 * (1 - law.at_zero) / 24 for u in range(23)])
    back = [sum(noise[u] * decoder[(a + u) % 23] for u in range(23)) for a in range(23)]
    assert back == pytest.approx(values, abs=1e-7 * max(1.0, float(abs(decoder).max())))


@pytest.mark.slow
def test_unbiased_on_a_stream_with_deletes() -> None:
    rng = np.random.default_rng(8)
    net = np.minimum(rng.geometric(0.2, 3000), 20) * rng.choice([-1, 0, 1], 3000)
    sketch = ProfileSketch(universe=3000, epsilon=2.0, largest=20)
    ids, weights = churn(net, rng)
    source = SeededSource(SEED)
    batch = sketch.batch(ids, weight=weights)
    answers: dict[str, list[Any]] = {question.name: [] for question in QUESTIONS}
    for _ in range(N):
        with source:
            state = sketch.initial_state(source)
            sketch.update(state, batch, source)
            release = sketch.release(state, source)
        for question in QUESTIONS:
            answers[question.name].append(sketch.read(release, question))
    for question in QUESTIONS:
        estimates = answers[question.name]
        values = np.array([estimate.unbiased for estimate in estimates])
        truth = float(question.at(net).sum())
        assert_unbiased(values, truth)
        assert_covers(estimates, truth)
        assert values.std() == pytest.approx(estimates[0].standard_error, rel=0.2)


def seen_once(sketch: ProfileSketch, net: Any, rng: SeededSource) -> Any:
    """Return a release after an announced intrusion with half of every weight on either side of it."""
    ids = np.arange(len(net))
    early = net // 2
    with rng:
        state = sketch.initial_state(rng)
        sketch.update(state, sketch.batch(ids, weight=early), rng)
        sketch.refresh(state, rng)
        sketch.update(state, sketch.batch(ids, weight=net - early), rng)
        return sketch.release(state, rng)


def test_after_an_announced_intrusion_answers_are_unbiased_at_the_stated_error() -> None:
    net = np.repeat([0, 1, 2, 3], 1500)
    sketch = ProfileSketch(universe=6000, epsilon=4.0, largest=3, signed=False, announced=1)
    assert sketch.prime == 7
    rng = SeededSource(SEED)
    releases = [seen_once(sketch, net, rng) for _ in range(150)]
    for question in (DISTINCT, Statistic.cropped_moment(1, 2), Statistic.heavy_hitters(3)):
        estimates = [sketch.read(release, question) for release in releases]
        values = np.array([estimate.unbiased for estimate in estimates])
        truth = float(question.at(net).sum())
        assert_unbiased(values, truth)
        assert_covers(estimates, truth)
        assert values.std() == pytest.approx(estimates[0].standard_error, rel=0.2)
    before = ProfileSketch(universe=6000, epsilon=4.0, largest=3, signed=False)
    price = sketch.error_bound(beta=0.05) / before.error_bound(beta=0.05)
    assert 3 < price < 20
    assert sketch.expected_estimate(4500).standard_error == pytest.approx(
        sketch.read(releases[0], DISTINCT).standard_error, rel=0.1
    )


@pytest.mark.parametrize(("asked", "each"), [({}, 1), ({"crop": 2}, 2), ({"threshold": 2}, 1)])
def test_what_is_foreseen_is_what_users_at_the_crop_or_threshold_count_for(asked: Any, each: int) -> None:
    sketch = ProfileSketch(universe=300, epsilon=1.0, largest=3, **asked)
    assert sketch.expected_estimate(100).value == 100 * each


@pytest.mark.parametrize("asked", [{}, {"crop": 2}, {"threshold": 2}])
def test_refreshes_are_counted_beside_releases(asked: Any) -> None:
    sketch = ProfileSketch(universe=300, epsilon=math.inf, largest=3, announced=2, releases=3, **asked)
    monitor = sketch.start()
    truth = 2 * 100 if "crop" in asked else 100
    for refreshed in range(3):
        if refreshed:
            monitor.refresh()
        monitor.update(range(100), weight=3 if not refreshed else 0)
        estimate = monitor.release()
        assert (estimate.value, estimate.released[-1]) == (truth, refreshed)
        monitor = type(monitor).from_bytes(monitor.to_bytes())
    with pytest.raises(NotSupported, match="built with announced=2"):
        monitor.refresh()


def test_variance_per_user_as_designed() -> None:
    """About sum (f - mean f)²/tanh²(epsilon_state/2); 83 for min(a, 16) at g = 1019 and epsilon_state = 1."""
    prime = 1019
    f = np.minimum(np.arange(prime), 16)
    per_user = math.sqrt(((f - f.mean()) ** 2).sum() * refresh_factor(1.0, prime) / prime)
    assert per_user == pytest.approx(83, abs=1)
    assert refresh_factor(1.0, prime) == pytest.approx(prime / math.tanh(0.5) ** 2, rel=0.01)
    sketch = ProfileSketch(universe=20_000, epsilon=1.0, largest=509)
    _, spread = sketch.decoder(DISTINCT)
    assert math.sqrt(spread.max()) == pytest.approx(1 / math.tanh(sketch.law.epsilon_state / 2), rel=0.01)


def test_without_noise_it_is_exact() -> None:
    rng = np.random.default_rng(1)
    net = rng.integers(-9, 10, 500)
    sketch = ProfileSketch(universe=500, epsilon=math.inf, largest=9)
    monitor = sketch.start()
    monitor.update(np.arange(500), weight=net)
    release = monitor.release()
    assert release.value == np.count_nonzero(net)
    for question in QUESTIONS:
        answer = sketch.read(release, question)
        assert answer.value == pytest.approx(question.at(net).sum())
        assert (answer.standard_error, answer.claim.epsilon) == (0.0, math.inf)


def test_a_sample_and_buckets_scale_and_state_their_bias() -> None:
    net = np.tile([0, 1, 2, 5], 1000)
    sampled = ProfileSketch(universe=4000, sample=2000, epsilon=math.inf, largest=9)
    monitor = sampled.start()
    monitor.update(np.arange(4000), weight=net)
    answer = monitor.release()
    assert answer.value == pytest.approx(3000, abs=5 * answer.standard_error)
    assert answer.standard_error == pytest.approx(math.sqrt(4000**2 * 0.75 * 0.25 / 2000 * 2000 / 3999), rel=0.05)
    hashed = ProfileSketch(buckets=400_000, epsilon=math.inf, largest=99)
    monitor = hashed.start()
    monitor.update([f"u{i}" for i in range(4000)], weight=net)
    bias = hashed.collision_bias(3000, 1.0)
    assert abs(hashed.read(monitor.release(), Statistic.incidence(5)).value - 1000) <= bias
    assert sampled.collision_bias(3000, 1.0) == 0.0
    assert sampled.error_bound(beta=0.05) == sampled.error_of(DISTINCT, beta=0.05) > 0


def test_questions_and_parameters_are_checked() -> None:
    sketch = ProfileSketch(universe=10, epsilon=1.0, largest=5)
    monitor = sketch.start()
    release = monitor.release()
    with pytest.raises(InvalidParameter, match="one finite number"):
        sketch.read(release, Statistic("log", lambda a: np.log(np.abs(a), where=a != 0, out=np.full(a.shape, np.nan))))
    with pytest.raises(InvalidParameter, match="must come from this sketch"):
        ProfileSketch(universe=10, epsilon=1.0, largest=50).read(release, DISTINCT)
    for bad in ({"largest": 0}, {"largest": 1 << 30}):
        with pytest.raises(InvalidParameter, match="largest must be"):
            ProfileSketch(universe=10, epsilon=1.0, **bad)
    with pytest.raises(InvalidParameter, match="levels must be 1"):
        ProfileSketch(buckets=10, levels=3, epsilon=1.0, largest=5)
    for wrong in (
        lambda: Statistic.cropped_moment(0, 3),
        lambda: Statistic.cropped_moment(1, 0),
        lambda: Statistic.heavy_hitters(0),
    ):
        with pytest.raises(InvalidParameter, match="must be"):
            wrong()


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3, 2), (1, 4)])
def test_without_noise_only_the_sample_errs(low: int, high: int) -> None:
    """Two of five users drawn without replacement, each at one end of what the question asks for: counted sample by
    sample.
    """
    question = Statistic("ends", lambda a: np.where(a > 0, high, low))
    sketch = ProfileSketch(universe=5, sample=2, epsilon=math.inf, largest=9)
    for many in range(6):
        users = [high] * many + [low] * (5 - many)
        answers = [5 / 2 * (one + other) for one, other in itertools.combinations(users, 2)]
        assert sketch._linear(question).variance(sum(users)) == pytest.approx(np.var(answers))
    whole = ProfileSketch(universe=5, epsilon=math.inf, largest=9)
    assert whole._linear(question).error(0.01) == 0.0
    assert whole._linear(question).support == (5 * low, 5 * high)
