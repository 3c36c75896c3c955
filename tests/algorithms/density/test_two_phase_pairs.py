"""Dwork's pair, quantised Laplace and fixed levels: exact claims, worse than OptBern, bad parameters."""

import math
from typing import Any

import pytest

from panstream.algorithms.density import DworkPair, FixedLevel, OptBern, QuantisedLaplace
from panstream.errors import InvalidParameter
from panstream.privacy.joint_loss import kappa_for_pair, pair_loss, pair_state_loss
from panstream.testing.enumeration import Enumerator, enumerate_streams, refresh, release, update

NOTHING = update([])
APPEAR = update([0])
LEAVE = update(delete=[0])


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("kind", [DworkPair, QuantisedLaplace])
def test_claim_is_the_enumerated_joint_loss(kind: Any, epsilon: float) -> None:
    algorithm = kind(universe=1, epsilon=epsilon, deletions=True)
    enumerator = Enumerator(algorithm, window=(-1, 2))
    actions = [NOTHING, APPEAR, LEAVE]
    last = enumerator.joint_loss(enumerate_streams([None, None, release()], actions)).epsilon
    first = enumerator.joint_loss(enumerate_streams([None, release(), None], actions)).epsilon
    assert max(first, last) == pytest.approx(epsilon, rel=1e-9)
    assert algorithm.claim().epsilon == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("kind", [DworkPair, QuantisedLaplace])
def test_announced_intrusions(kind: Any) -> None:
    algorithm = kind(universe=1, epsilon=2.0, announced=1)
    streams = enumerate_streams([None, refresh(), None, None, release()], [NOTHING, APPEAR])
    loss = Enumerator(algorithm, window=(-1, 2)).joint_loss(streams, looks=[None, 2, 3, 4, 5])
    assert loss.epsilon == pytest.approx(2.0, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("kind", [DworkPair, QuantisedLaplace])
def test_optbern_has_the_smaller_error(kind: Any, epsilon: float) -> None:
    for universe in (100, 10_000):
        ours = OptBern(universe=universe, epsilon=epsilon).error_bound(beta=0.05)
        assert ours < kind(universe=universe, epsilon=epsilon).error_bound(beta=0.05)


def test_kappa_for_a_pair_uses_the_whole_budget() -> None:
    for p0, p1, releases in ((0.5, 0.6, 1), (0.3, 0.6, 4)):
        kappa = kappa_for_pair(1.5, p0, p1, releases)
        assert pair_loss(p0, p1, kappa, releases) == pytest.approx(1.5, rel=1e-12)
    with pytest.raises(InvalidParameter, match="state alone must lose less"):
        kappa_for_pair(0.1, 0.2, 0.8)
    assert pair_state_loss(0.0, 0.5) == math.inf


def test_dworks_pair_needs_a_small_epsilon() -> None:
    with pytest.raises(InvalidParameter, match="epsilon must be below 4"):
        DworkPair(universe=10, epsilon=4.0).claim()


def test_fixed_level_is_optbern_on_a_sample() -> None:
    level = FixedLevel(universe=1001, epsilon=1.0, level=2)
    assert level.cells == 251
    sampled = OptBern(universe=1001, epsilon=1.0, sample=251)
    assert level.law == sampled.law
    assert level.error_bound(beta=0.1) == sampled.error_bound(beta=0.1)
    assert "sample" not in level.parameters()
    for bad in (-1, 63):
        with pytest.raises(InvalidParameter, match="level must be in"):
            FixedLevel(universe=10, epsilon=1.0, level=bad)


@pytest.mark.parametrize(("epsilon", "announced"), [(0.5, 0), (1.0, 0), (1.0, 1)])
def test_quantised_laplace_keeps_the_paper_s_coin(epsilon: float, announced: int) -> None:
    """The sign of a value with Laplace noise of scale 2 over the phase's half of epsilon, as the paper quantises it."""
    law = QuantisedLaplace(universe=10, epsilon=epsilon, announced=announced).law
    half = epsilon / 2 / (announced + 1)
    expected = 1 - math.exp(-half / 2) / 2
    assert float(law.present) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("announced", [1, 3])
def test_dworks_coins_share_the_budget_among_the_phases(announced: int) -> None:
    shared = DworkPair(universe=10, epsilon=1.2, announced=announced).law
    alone = DworkPair(universe=10, epsilon=1.2 / (announced + 1)).law
    assert (shared.absent, shared.present) == (alone.absent, alone.present)
    assert float(shared.present) == pytest.approx(0.5 + 1.2 / 8 / (announced + 1))
    with pytest.raises(InvalidParameter, match=f"below {4 * (announced + 1)}"):
        _ = DworkPair(universe=10, epsilon=4.0 * (announced + 1), announced=announced).law
