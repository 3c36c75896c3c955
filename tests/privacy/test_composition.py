"""Composition against plain arithmetic, the textbook bounds and OpenDP's accountant."""

import math
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from panstream import ContinualCount
from panstream.algorithms.continual.least_squares_tree import LeastSquaresTree
from panstream.errors import InvalidParameter
from panstream.privacy import (
    Claim,
    Intrusions,
    compose_parallel,
    compose_per_holder,
    compose_repeated,
    compose_sequential,
    composition,
    group_privacy,
)
from panstream.privacy.composition import _zcdp_delta, claim_of_person, per_record_epsilon, zcdp_epsilon, zcdp_rho

LOSSES = st.lists(st.floats(0.01, 5.0), min_size=1, max_size=6)


def claims(losses: list[float]) -> list[Claim]:
    return [Claim(epsilon=loss, unit="user", parts={"state": loss / 2, "output": loss / 2}) for loss in losses]


@given(LOSSES)
def test_sequential_adds_and_parallel_takes_the_worst(losses: list[float]) -> None:
    together = compose_sequential(claims(losses))
    assert together.epsilon == pytest.approx(sum(losses))
    assert together.parts["state"] == pytest.approx(sum(losses) / 2)
    assert together.releases == len(losses)
    assert compose_parallel(claims(losses)).epsilon == max(losses)


@pytest.mark.parametrize("join", [compose_sequential, compose_parallel])
def test_together_claims_hold_as_long_as_all_of_them(join: Any) -> None:
    some = [replace(Claim(epsilon=1.0, unit="user"), horizon=horizon) for horizon in (9, None, 5, 7)]
    assert join(some).horizon == 5
    assert join(some[1:2]).horizon is None


def test_failure_probabilities_add_up_below_one_and_the_largest_counts_in_parallel() -> None:
    some = [Claim(epsilon=1.0, delta=delta, unit="user") for delta in (0.1, 0.3, 0.2)]
    assert compose_sequential(some).delta == pytest.approx(0.6)
    assert compose_parallel(some).delta == 0.3
    assert 0.999 < compose_sequential(some * 4).delta < 1.0


def test_claims_together_cover_the_fewest_looks_that_one_of_them_covers() -> None:
    some = [Claim(epsilon=1.0, unit="user", intrusions=Intrusions(unannounced=u, announced=a)) for u, a in LOOKS]
    assert compose_sequential(some).intrusions == Intrusions(unannounced=2, announced=1)
    assert compose_parallel(some).intrusions == Intrusions(unannounced=2, announced=1)
    endless = Intrusions(unannounced=-1, announced=-1)
    assert compose_sequential([replace(some[0], intrusions=endless)] * 2).intrusions == endless


def test_one_claim_that_freezes_makes_all_of_them_wait_for_a_still_stream() -> None:
    adds, freezes, no_refresh = (
        Claim(epsilon=1.0, unit="user", intrusions=intrusions)
        for intrusions in (Intrusions(announced=-1), Intrusions(announced=1, freezes=True), Intrusions())
    )
    assert compose_sequential([adds, freezes]).intrusions == Intrusions(announced=1, freezes=True)
    assert compose_parallel([adds, adds]).intrusions == Intrusions(announced=-1)
    assert compose_sequential([freezes, no_refresh]).intrusions == Intrusions()


LOOKS = [(3, 2), (-1, 1), (2, -1), (4, 5)]  # unannounced and announced; -1 for any number
STRONG = Claim(
    epsilon=1.0,
    unit="event",
    intrusions=Intrusions(unannounced=1, announced=-1, per_phase=True),
    inputs="adaptive",
    locations=("memory", "disk"),
    horizon=None,
    note="strong",
    public=("a",),
    event_epsilon=0.25,
)
WEAK = Claim(
    epsilon=0.5,
    unit="event",
    intrusions=Intrusions(unannounced=0, announced=3),
    locations=("memory",),
    horizon=24,
    note="not pan-private: the state holds the exact sum",
    public=("b",),
)


@pytest.mark.parametrize("compose", [compose_sequential, compose_parallel])
@pytest.mark.parametrize("order", [[STRONG, WEAK], [WEAK, STRONG], [WEAK, STRONG, WEAK]])
def test_the_weaker_of_each_thing_is_promised_in_any_order(compose: Any, order: list[Claim]) -> None:
    """A counter that is not pan-private composes into nothing that claims to be."""
    composed = compose(order)
    assert composed.intrusions == Intrusions(unannounced=0, announced=3, per_phase=False)
    assert composed.inputs == "fixed"
    assert compose([STRONG, STRONG]).inputs == "adaptive"
    assert composed.locations == ("memory",)
    assert composed.horizon == 24
    assert set(composed.note.split("; ")) == {"strong", WEAK.note}
    assert set(composed.public) == {"a", "b"}
    assert composed.event_epsilon == (0.25 + 0.5 * (len(order) - 1) if compose is compose_sequential else 0.5)


def test_a_tree_that_is_not_pan_private_stays_so_in_company() -> None:
    exact = LeastSquaresTree(epsilon=1.0, horizon=8).claim()
    private = ContinualCount(epsilon=1.0, horizon=8).claim()
    for order in ([exact, private], [private, exact]):
        assert str(compose_sequential(order).intrusions) == "none"
        assert "not pan-private" in compose_sequential(order).note


def test_claims_about_different_places_cover_none() -> None:
    memory, disk = (replace(CLAIM, locations=(location,)) for location in ("memory", "disk"))
    both = compose_sequential([memory, disk])
    assert both.locations == ()
    assert str(both.intrusions) == "none"
    assert dict(both.rows())["intrusions"] == "none (nowhere)"


def test_parallel_refuses_what_may_move_from_one_part_to_another() -> None:
    """One record leaves the first part and enters the second: both tables change, and both losses count."""
    tables = [Claim(epsilon=loss, unit="record", adjacency="replace") for loss in (0.5, 1.0)]
    with pytest.raises(InvalidParameter, match="does not hold for replace-one"):
        compose_parallel(tables)
    apart = compose_per_holder(tables)
    assert apart.epsilon == 1.0
    assert "protected separately" in apart.note
    with pytest.raises(InvalidParameter, match="use parallel"):
        compose_per_holder([replace(table, adjacency="add-remove") for table in tables])
    for compose in (compose_parallel, compose_per_holder, compose_sequential):
        with pytest.raises(InvalidParameter, match="must not be empty"):
            compose([])


def test_why_parallel_does_not_hold_for_replace_by_enumeration() -> None:
    """Counts of two halves of a table under discrete Laplace noise, one record moved from the first half to the
    second.
    """
    epsilon = 1.0
    reach = 6

    def law(count: int) -> dict[int, float]:
        return {n: math.tanh(epsilon / 2) * math.exp(-epsilon * abs(n - count)) for n in range(-reach, reach + 1)}

    before = (law(2), law(1))
    after = (law(1), law(2))
    views = product(before[0], before[1])
    lost = max(math.log(before[0][a] * before[1][b] / (after[0][a] * after[1][b])) for a, b in views)
    assert lost == pytest.approx(2 * epsilon)


@pytest.mark.slow
@given(st.floats(0.01, 5.0), st.integers(1, 1000))
def test_repeated_is_sequential_of_copies(loss: float, times: int) -> None:
    (claim,) = claims([loss])
    assert compose_repeated(claim, times).epsilon == pytest.approx(compose_sequential([claim] * times).epsilon)
    assert compose_repeated(claim, times).releases == times


def test_a_hundred_compositions_cost_a_hundred_times() -> None:
    """The mistake of a published accountant: .506 where 15.3 is due."""
    assert compose_repeated(Claim(epsilon=0.153, unit="user"), 100).epsilon == pytest.approx(15.3)


def test_different_units_are_never_added() -> None:
    with pytest.raises(InvalidParameter, match="different units"):
        compose_sequential([Claim(epsilon=1.0, unit="user"), Claim(epsilon=1.0, unit="event")])
    with pytest.raises(InvalidParameter, match="different units"):
        compose_sequential([Claim(epsilon=1.0, unit="user"), Claim(epsilon=1.0, unit="user", adjacency="replace")])
    day, hour = (Claim(epsilon=1.0, unit="user-window", window=length) for length in (86_400.0, 3600.0))
    with pytest.raises(InvalidParameter, match="got user-window of 1 day .*, user-window of 1 hour"):
        compose_sequential([day, hour])


@pytest.mark.parametrize("rho", [0.001, 0.1, 1.0, 5.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_zcdp_conversion_agrees_with_opendp(rho: float, delta: float) -> None:
    dp.enable_features("contrib")
    space = dp.atom_domain(T=dp.i64), dp.absolute_distance(T=dp.i64)
    scale = math.sqrt(1 / (2 * rho))
    peer = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale)).map(1)
    assert zcdp_epsilon(rho, delta) == pytest.approx(peer.epsilon(delta), rel=1e-3)
    assert _zcdp_delta(rho, zcdp_epsilon(rho, delta)) == pytest.approx(delta, rel=1e-6)


def test_zcdp_edges() -> None:
    assert zcdp_epsilon(0.0, 1e-6) == 0.0
    assert _zcdp_delta(0.0, 0.0) == 0.0
    with pytest.raises(InvalidParameter, match="delta must be in"):
        zcdp_epsilon(1.0, 0.0)


def test_a_repeated_delta_stays_below_one() -> None:
    """Three times 0.4 is no promise at all, but still a probability."""
    claim = compose_repeated(Claim(epsilon=1.0, delta=0.4, unit="user"), 3)
    assert claim.delta == 1 - 2**-53
    assert compose_repeated(Claim(epsilon=1.0, delta=0.25, unit="user"), 3).delta == 0.75


CLAIM = Claim(epsilon=1.0, unit="user", releases=1)


def test_unlimited_releases_stay_unlimited_and_none_stay_none() -> None:
    unlimited = replace(CLAIM, releases=-1)
    none = replace(CLAIM, releases=0)
    assert compose_sequential([CLAIM, unlimited]).releases == compose_repeated(unlimited, 3).releases == -1
    assert compose_repeated(none, 3).releases == compose_sequential([none, none]).releases == 0
    assert compose_sequential([none, CLAIM]).releases == 1
    assert compose_repeated(replace(CLAIM, releases=2), 3).releases == 6


@pytest.mark.parametrize("delta", [0.0, 1.0, 1.5, -0.1])
def test_delta_is_a_probability_between(delta: float) -> None:
    for convert in (zcdp_rho, zcdp_epsilon):
        with pytest.raises(InvalidParameter, match="delta must be in"):
            convert(1.0, delta)


def test_parts_grow_with_the_whole() -> None:
    claim = replace(CLAIM, parts={"state": 0.75, "output": 0.25})
    for many in (compose_repeated(claim, 4), group_privacy(claim, 4), compose_sequential([claim] * 4)):
        assert many.parts == {"state": 3.0, "output": 1.0}
        assert many.epsilon == 4.0
    assert group_privacy(claim, 1) == compose_repeated(claim, 1) == claim
    for none in (0, -1):
        with pytest.raises(InvalidParameter, match="size must be at least 1"):
            group_privacy(claim, none)
        with pytest.raises(InvalidParameter, match="times must be at least 1"):
            compose_repeated(claim, none)


def test_groups_of_claims_with_delta() -> None:
    """delta·(e**(k·eps) - 1)/(e**eps - 1), at most 1; k·delta without epsilon; nothing without delta."""
    claim = replace(CLAIM, epsilon=0.5, delta=1e-6)
    assert group_privacy(claim, 3).delta == pytest.approx(1e-6 * (math.exp(1.5) - 1) / (math.exp(0.5) - 1))
    assert group_privacy(replace(claim, epsilon=0.0), 3).delta == pytest.approx(3e-6)
    assert 0.999 < group_privacy(replace(claim, epsilon=400.0), 2).delta < 1.0
    assert group_privacy(replace(claim, delta=0.0), 3).delta == 0.0
    assert group_privacy(replace(claim, epsilon=400.0, delta=0.0), 3).delta == 0.0  # pure claims stay pure


@pytest.mark.parametrize(("rho", "epsilon"), [(1.0, 1.0), (4.0, 0.5), (0.3, 0.1), (0.05, 2.0), (2.0, 30.0)])
def test_delta_is_the_smallest_over_all_orders(rho: float, epsilon: float) -> None:
    """Canonne, Kamath, Steinke 2020: e**((a-1)(a·rho-epsilon))/(a-1)·(1-1/a)**a for the best a > 1, of which some
    are below 2.
    """
    excess = np.logspace(-6, 3, 90_001)
    order = 1 + excess
    logs = excess * (order * rho - epsilon) - np.log(excess) + order * (np.log(excess) - np.log(order))
    assert _zcdp_delta(rho, epsilon) == pytest.approx(min(math.exp(logs.min()), 1.0), rel=1e-6)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-9), (0.1, 1e-6), (8.0, 1e-5), (0.5, 0.01)])
def test_the_largest_rho_of_a_small_budget_is_the_inverse_both_ways(epsilon: float, delta: float) -> None:
    rho = zcdp_rho(epsilon, delta)
    assert 0.0 < rho < epsilon
    assert _zcdp_delta(rho, epsilon) == pytest.approx(delta, rel=1e-9, abs=0.0)
    assert zcdp_epsilon(rho, delta) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), [(2.0, 0.9), (1.0, 0.7), (0.2, 0.5), (5.0, 0.99)])
def test_a_large_delta_allows_a_rho_above_epsilon(
    epsilon: float, delta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def counted(rho: float, epsilon: float) -> float:
        nonlocal calls
        calls += 1
        assert calls < 1000, "the search does not end"
        return _zcdp_delta(rho, epsilon)

    monkeypatch.setattr(composition, "_zcdp_delta", counted)
    zcdp_rho.cache_clear()
    rho = zcdp_rho(epsilon, delta)
    assert rho > epsilon
    assert _zcdp_delta(rho, epsilon) == pytest.approx(delta, rel=1e-9)


def exact_delta(rho: float, epsilon: float) -> Decimal:
    """Return the delta of Corollary 13 with fifty digits; alpha by bisection on the slope."""
    with localcontext(prec=50):
        loss = Decimal(rho)
        allowed = Decimal(epsilon)
        one = Decimal(1)
        low = one + Decimal("1e-30")
        high = (allowed + 1) / (2 * loss) + 3
        for _ in range(170):
            middle = (low + high) / 2
            slope = (2 * middle - 1) * loss - allowed + (one - 1 / middle).ln()
            low, high = (middle, high) if slope < 0 else (low, middle)
        return ((high - 1) * (high * loss - allowed) + high * (one - 1 / high).ln() - (high - 1).ln()).exp()


@pytest.mark.parametrize(("rho", "delta"), [(0.01, 1e-9), (0.5, 1e-6), (3.0, 0.01)])
def test_conversions_are_on_the_safe_side_and_next_to_exact(rho: float, delta: float) -> None:
    epsilon = zcdp_epsilon(rho, delta)
    assert exact_delta(rho, epsilon) <= Decimal(delta) < exact_delta(rho, epsilon * (1 - 1e-11))
    most = zcdp_rho(epsilon, delta)
    assert exact_delta(most, epsilon) <= Decimal(delta) < exact_delta(most * (1 + 1e-11), epsilon)


@pytest.mark.parametrize("contributions", [1, 2, 7])
@pytest.mark.parametrize("delta", [0.0, 1e-9, 1e-3])
def test_the_records_of_a_person_lose_at_most_the_whole(delta: float, contributions: int) -> None:
    """Pure losses add up exactly; zCDP grows with the square (Bun, Steinke 2016, Proposition 1.9)."""
    for epsilon in (0.1, 1.0, 4.0):
        part = per_record_epsilon(epsilon, delta, contributions)
        if delta == 0.0:
            assert Fraction(part) * contributions <= Fraction(epsilon)
            assert part == pytest.approx(epsilon / contributions)
        else:
            whole = contributions**2 * zcdp_rho(part, delta)
            assert whole <= zcdp_rho(epsilon, delta) * (1 + 1e-15)
            assert whole == pytest.approx(zcdp_rho(epsilon, delta), rel=1e-6)
    person = claim_of_person(Claim(epsilon=0.25, unit="record"), 1.0, 4)
    assert (person.epsilon, person.unit, person.event_epsilon) == (1.0, "user", 0.25)
    assert "at most 4 records of one person" in person.note
