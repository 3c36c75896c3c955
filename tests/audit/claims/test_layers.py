"""The layers on their own: exact bounds against scipy, learned events, the linear program, Gaussian losses, odds,
pages.
"""

import json
import math
import sys
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from panstream.algorithms.density import OptBern
from panstream.algorithms.density.graph_density import GraphDensity
from panstream.algorithms.distinct import Bitmap
from panstream.algorithms.turnstile.legendre_counter import LegendreCounter
from panstream.audit import (
    Case,
    ExactLoss,
    Finding,
    Trial,
    audit_case,
    case_of,
    cases,
    gaussian_loss,
    learn_event,
    lower_bound,
    member_odds,
    register_case,
    select,
    to_html,
    to_json,
    to_markdown,
    unregister_case,
)
from panstream.audit.claims.exact import _cheapest_move
from panstream.audit.claims.monte_carlo import _clopper_pearson
from panstream.errors import InvalidBytes, InvalidParameter, MissingExtra, NotSupported
from panstream.primitives.noise import Coin, NoiseSource, SeededSource
from panstream.primitives.packed_bits import get_bit
from panstream.testing.enumeration import enumerate_streams, release, update
from panstream.testing.linear_views import LinearView


@given(st.integers(1, 500), st.floats(0, 1), st.floats(1e-9, 0.5))
@settings(max_examples=50, deadline=None)
def test_clopper_pearson_is_the_exact_test(runs: int, share: float, failure: float) -> None:
    """At the ends of the interval the binomial tails are half of the failure probability."""
    happened = round(runs * share)
    low, high = _clopper_pearson(happened, runs, failure)
    if happened > 0:
        assert stats.binom.sf(happened - 1, runs, low) == pytest.approx(failure / 2, rel=1e-5)
    if happened < runs:
        assert stats.binom.cdf(happened, runs, high) == pytest.approx(failure / 2, rel=1e-5)
    assert 0 <= low <= happened / runs <= high <= 1


def test_clopper_pearson_refuses_nonsense() -> None:
    for happened, runs, failure in ((3, 2, 0.1), (-1, 2, 0.1), (0, 0, 0.1), (1, 2, 0.0), (1, 2, 1.0)):
        with pytest.raises(InvalidParameter):
            _clopper_pearson(happened, runs, failure)


@pytest.mark.slow
def test_lower_bounds_hold_as_often_as_they_say() -> None:
    """Randomised response of loss ln 3, failure 10%: among 400 bounds at most 10% (+ 5 sd) are too high, and none
    is far off.
    """
    rng = SeededSource(3)
    coin = Coin(3 << 62)
    trial = Trial("heads", lambda side: bool(rng.bernoulli(coin if side else coin.complement, 1)[0]))
    losses = [lower_bound(trial, runs=200, failure=0.1).loss for _ in range(400)]
    assert sum(loss > math.log(3) for loss in losses) <= 40 + 5 * math.sqrt(36)
    assert np.median(losses) > 0.6


def test_an_event_can_be_learned() -> None:
    """Two dice, one of them loaded: six has probability 3/8 instead of 1/6."""
    rng = SeededSource(4)

    def throw(loaded: bool) -> int:
        return min(int(rng.uniform_below(8 if loaded else 6, 1)[0]) + 1, 6)

    trial = learn_event(throw, runs=2000, failure=0.01)
    bound = lower_bound(trial, runs=4000, failure=0.01)
    assert 0.5 < bound.loss <= math.log(9 / 4)
    assert "learned" in trial.event


@pytest.mark.slow
def test_the_dual_is_a_test_that_reaches_the_loss() -> None:
    """Random views: the program's value against brute force over small moves, and the dual's bound against the
    value.
    """
    rng = np.random.default_rng(1)
    for _ in range(20):
        matrix = rng.integers(-1, 2, (2, 4)).astype(float)
        move = rng.integers(-1, 2, 4).astype(float)
        kappas = rng.uniform(0.2, 1.0, 4)
        shift = matrix @ move
        loss, test = _cheapest_move(LinearView(None, matrix, kappas, shift[np.newaxis]), shift)
        tried = [
            float(kappas @ np.abs(z)) for z in product((-2, -1, 0, 1, 2), repeat=4) if np.allclose(matrix @ z, shift)
        ]
        assert loss <= min(tried) + 1e-9
        assert float(test @ shift) == pytest.approx(loss, abs=1e-8)
        assert np.all(np.abs(matrix.T @ test) <= kappas + 1e-8)
    loss, test = _cheapest_move(LinearView(None, np.array([[1.0], [0.0]]), np.ones(1), np.ones((1, 2))), np.ones(2))
    assert loss == math.inf
    assert test == pytest.approx([0.0, 1.0])


def test_gaussian_loss_is_the_divergence() -> None:
    """Rho is the Kullback–Leibler divergence of two shifted normal laws, and half the squared Mahalanobis distance."""
    rng = np.random.default_rng(2)
    root = rng.normal(size=(3, 3))
    covariance = root @ root.T
    shift = rng.normal(size=3)
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), shift)
    assert gaussian_loss(shift, covariance) == pytest.approx(float(whitened @ whitened) / 2)
    assert gaussian_loss(np.array([1.0, 1.0]), np.diag([1.0, 0.0])) == math.inf


def test_allowed_advantage() -> None:
    for epsilon in (0.1, 1.0, 5.0):
        finding = Finding(name="", kind="control", claimed=epsilon, exact=None, lower_bound=None, witness="")
        assert finding.allowed_advantage == pytest.approx((math.exp(epsilon) - 1) / (math.exp(epsilon) + 1))


@pytest.mark.slow
def test_a_membership_attack_on_stolen_files_stays_below_the_bound() -> None:
    """Guess by the odds of real snapshot bytes: the advantage is the state's tanh(eps_s/2), within the claim's
    bound.
    """
    algorithm = OptBern(universe=2, epsilon=1.0)

    def happens(member: bool) -> bool:
        monitor = algorithm.start()
        monitor.update([0, 1] if member else [1])
        return member_odds(monitor.to_bytes(), 0).factor > 1

    bound = lower_bound(Trial("the odds speak for the member", happens, attack=True), runs=800, failure=1e-6)
    share = (bound.happened[0] - bound.happened[1]) / 800
    assert bound.advantage <= math.tanh(algorithm.claim().epsilon / 2)
    expected = math.tanh(algorithm.law.epsilon_state / 2)
    assert share == pytest.approx(expected, abs=stats.norm.isf(1e-6) / math.sqrt(2 * 800))


@pytest.mark.parametrize("algorithm", [OptBern(universe=5, epsilon=1.0), OptBern(universe=5, epsilon=1.0, count=True)])
def test_odds_of_bits(algorithm: OptBern) -> None:
    law = algorithm.law if isinstance(algorithm, OptBern) else algorithm.bits.law
    monitor = algorithm.start()
    bits = monitor.state.bits
    for user in range(5):
        odds = member_odds(monitor.to_bytes(), user, prior=0.25)
        ratio = law.p1 / law.p0 if get_bit(bits, user) else (1 - law.p1) / (1 - law.p0)
        assert odds.factor == pytest.approx(ratio)
        assert 1 / odds.limit - 1e-9 <= odds.factor <= odds.limit + 1e-9
        assert odds.posterior == pytest.approx(ratio * 0.25 / (ratio * 0.25 + 0.75))


def test_odds_of_samples_phases_bitmaps_and_graphs() -> None:
    sampled = OptBern(universe=50, epsilon=1.0, sample=5).start().to_bytes()
    factors = [member_odds(sampled, user).factor for user in range(50)]
    assert sum(factor != 1.0 for factor in factors) == 5
    phased = OptBern(universe=3, epsilon=4.0, announced=1).start()
    phased.refresh(rows_since_copy=False)
    state = phased.algorithm.law.epsilon_state  # type: ignore[attr-defined]
    odds = member_odds(phased.to_bytes(), 1)
    assert abs(math.log(odds.factor)) == pytest.approx(2 * state) or odds.factor == pytest.approx(1.0)
    assert odds.limit == pytest.approx(math.exp(2 * state))
    bitmap = Bitmap(epsilon=math.inf, buckets=64, levels=8).start()
    bitmap.update(["ann", "bob"])
    assert member_odds(bitmap.to_bytes(), "ann").posterior == 1.0
    assert member_odds(bitmap.to_bytes(), "zoe").factor == 0.0
    graph = GraphDensity(vertices=4, epsilon=math.inf).start()
    graph.update([(1, 3)])
    assert member_odds(graph.to_bytes(), (3, 1)).posterior == 1.0
    assert member_odds(graph.to_bytes(), (0, 1)).factor == 0.0


def test_odds_are_refused_where_they_mean_nothing() -> None:
    with pytest.raises(NotSupported, match="LegendreCounter"):
        member_odds(LegendreCounter(universe=4, epsilon=1.0).start().to_bytes(), 1)
    with pytest.raises(InvalidParameter, match="prior"):
        member_odds(OptBern(universe=4, epsilon=1.0).start().to_bytes(), 1, prior=1.0)
    with pytest.raises(InvalidBytes):
        member_odds(b"nothing", 1)


def test_own_cases_are_registered_once_and_found() -> None:
    algorithm = OptBern(universe=1, epsilon=1.0)
    streams = enumerate_streams([None, None, release()], [update([]), update([0])])
    mine = register_case(case_of(algorithm, streams, window=(-1, 2), name="my very own"))
    try:
        assert cases()[-1] is mine
        assert select(["MY VERY"]) == [mine]
        with pytest.raises(InvalidParameter, match="already registered"):
            register_case(mine)
    finally:
        unregister_case("my very own")
    with pytest.raises(InvalidParameter, match="no case begins with 'my very own'"):
        select(["my very own"])
    assert {case.kind for case in select(["control"])} == {"control"}
    assert {case.name for case in select(["Bitmap"])} >= {"Bitmap", "Bitmap, two levels"}


@pytest.mark.parametrize(
    ("kind", "exact", "bound", "verdict"),
    [
        ("production", 1.0, 0.5, "holds"),
        ("production", 1.0 + 1e-5, None, "fails"),
        ("production", 0.5, 1.5, "fails"),
        ("control", 1.0, 0.5, "missed"),
        ("control", None, 1.5, "caught"),
        ("control", math.inf, None, "caught"),
    ],
)
def test_verdicts(kind: str, exact: float | None, bound: float | None, verdict: str) -> None:
    found = Finding(name="x", kind=kind, claimed=1.0, exact=exact, lower_bound=bound, witness="")  # type: ignore[arg-type]
    assert found.verdict == verdict


def test_bad_cases_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="nothing to measure"):
        Case(name="x", kind="control", claimed=1.0)
    with pytest.raises(InvalidParameter, match="claimed"):
        Case(name="x", kind="control", claimed=-1.0, exact=lambda: ExactLoss(loss=0.0))
    with pytest.raises(InvalidParameter, match="kind"):
        Case(name="x", kind="other", claimed=1.0, exact=lambda: ExactLoss(loss=0.0))  # type: ignore[arg-type]


def finding(name: str, exact: float | None) -> Finding:
    return Finding(name=name, kind="control", claimed=1.0, exact=exact, lower_bound=None, witness="<b>")


def test_reports() -> None:
    found = [finding("a <i>", math.inf), finding("b", 0.5)]
    rows = json.loads(to_json(found))
    assert [row["exact"] for row in rows] == ["inf", 0.5]
    assert {"name", "kind", "claimed", "exact", "lower_bound", "verdict"} <= set(rows[0])
    assert "| a <i> | 1.000 | ∞ | – | caught |" in to_markdown(found)
    page = to_html(found)
    assert "a &lt;i&gt;" in page
    assert "<b>" not in page
    assert "Wrong: b" in page
    assert page.count("<circle") == 2
    assert "http" not in page


def test_a_missing_solver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(MissingExtra, match="-m pip install 'scipy"):
        _clopper_pearson(1, 2, 0.1)
    tree = next(case for case in cases() if case.name == "KaryTree")
    with pytest.raises(MissingExtra, match="-m pip install 'scipy"):
        audit_case(tree)


def test_trials_use_a_secure_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs of a trial draw from the operating system, step by step."""
    case = next(case for case in cases() if case.name == "OptBern")
    assert case.exact is not None
    trial = case.exact().trial
    assert trial is not None
    opened: list[type] = []
    plain = NoiseSource.__init__

    def watched(self: NoiseSource) -> None:
        opened.append(type(self))
        plain(self)

    monkeypatch.setattr(NoiseSource, "__init__", watched)
    trial.happens(True)
    assert opened == [NoiseSource] * 4  # start, two updates, release
