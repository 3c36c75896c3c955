"""A person's loss at a delta: against the best adaptive intruder, exact laws on the integers, and brute force."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panstream.algorithms.continual.sums import ContinualCount
from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.heavy_hitters.prefix_sketch import FrequentItems
from panstream.primitives.noise import DiscreteGaussian
from panstream.privacy.claim import Claim
from panstream.privacy.composition import zcdp_epsilon, zcdp_rho
from panstream.privacy.continual_loss import gaussian_losses
from panstream.privacy.person_history import AskedQuery, worst_total
from panstream.privacy.person_loss import PERIOD, PersonShare, PersonTotal, WindowLoss
from panstream.privacy.person_renyi import conversion, pure_renyi, renyi_epsilon, share_divergences
from panstream.testing.enumeration import tick, update
from panstream.testing.linear_views import linear_views

DAY = 86_400.0
Bit = tuple[float, float, float]  # p0, p1, and the chance that a release shows the bit
Mass = tuple[float, float]  # of bit 0 and of bit 1


def bit(epsilon_state: float, kappa: float) -> Bit:
    p1 = 1 / (1 + math.exp(-epsilon_state))
    return 1 - p1, p1, 1 / (1 + math.exp(-kappa))


def loss_of(epsilon_state: float, kappa: float) -> WindowLoss:
    p0, p1, _ = bit(epsilon_state, kappa)
    return WindowLoss.of_bits(epsilon_state + math.log(1 - p1 + p1 * math.exp(kappa)), p0, p1, kappa, 1)


def shipped(algorithm: OptBern) -> Bit:
    law = algorithm.law
    return float(law.absent), float(law.present), 1 / (1 + math.exp(-law.noise.kappa))


def drawn(mass: Mass, came: int, p1: float) -> Mass:
    return ((mass[0] + mass[1]) * (1 - p1), (mass[0] + mass[1]) * p1) if came else mass


def best(windows: list[Bit], leaf: Callable[[float, float], float], looks: int = 1, only: int | None = None) -> float:
    """Return the largest sum over views of leaf(P0, P1) over all strategies that see every answer before they choose.

    She chooses in every window whether rows come in either world, before the copy and after it, and when it is made;
    with ``only`` it is made in that window, whatever was seen.
    """
    pairs = list(itertools.product((0, 1), repeat=2))

    def begin(at: int, left: int, x: float, y: float) -> float:
        if at == len(windows):
            return leaf(x, y)
        p0, p1, _ = windows[at]
        found = -math.inf
        for first in pairs:
            a, b = (drawn((z * (1 - p0), z * p0), came, p1) for z, came in zip((x, y), first, strict=True))
            if only is None or only != at:
                found = max(found, answer(at, left, a, b))
            if left and only in (None, at):
                total = 0.0
                for seen in (0, 1):
                    c, d = ((m[0], 0.0) if seen == 0 else (0.0, m[1]) for m in (a, b))
                    total += max(answer(at, left - 1, drawn(c, then[0], p1), drawn(d, then[1], p1)) for then in pairs)
                found = max(found, total)
        return found

    def answer(at: int, left: int, a: Mass, b: Mass) -> float:
        shown = windows[at][2]
        return sum(begin(at + 1, left, *(m[1] * one + m[0] * (1 - one) for m in (a, b))) for one in (shown, 1 - shown))

    return begin(0, looks, 1.0, 1.0)


def divergence(windows: list[Bit], order: float, **options: Any) -> float:
    return math.log(best(windows, lambda x, y: x**order * y ** (1 - order), **options)) / (order - 1)


def delta_at(windows: list[Bit], epsilon: float, **options: Any) -> float:
    return best(windows, lambda x, y: max(x - math.exp(epsilon) * y, 0.0), **options)


def one(loss: WindowLoss, windows: int = 1, open_: int = 1, opening: int = 0, name: str = "q") -> PersonShare:
    return PersonShare(name=name, loss=loss, windows=windows, open=open_, opening=opening, bounded_by="shape")


EQUAL = [(1.0, 0.5)] * 3
MIXED = [(0.6, 1.5), (2.0, 0.1), (0.9, 0.6)]


@pytest.mark.parametrize(
    ("spec", "order", "strategy", "theorem"),
    [
        (EQUAL, 2.0, 0.959478, 1.332606),
        (EQUAL, 8.0, 1.556947, 1.801156),
        (MIXED, 2.0, 2.075405, 2.171643),
        (MIXED, 8.0, 2.479108, 2.562111),
    ],
)
def test_theorem_two_bounds_the_best_adaptive_intruder(
    spec: list[tuple[float, float]], order: float, strategy: float, theorem: float
) -> None:
    """Reference values of an enumeration without product code."""
    found = divergence([bit(*each) for each in spec], order)
    assert found == pytest.approx(strategy, abs=1e-6)
    losses = [loss_of(*each) for each in spec]
    orders = np.array([order])
    answers = sum(float(pure_renyi(loss.answers, orders)[0]) for loss in losses)
    copied = max(float(pure_renyi(loss.joint, orders)[0]) for loss in losses)
    assert answers + copied == pytest.approx(theorem, abs=1e-6)
    assert found < answers + copied
    if spec is EQUAL:
        charged = float(share_divergences([one(losses[0], 3)], orders)[0, 0])
        assert found <= charged <= theorem + 1e-6


@pytest.mark.parametrize("windows", [1, 2, 3])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-6])
def test_no_adaptive_intruder_exceeds_the_total_of_shipped_bits(windows: int, epsilon: float, delta: float) -> None:
    algorithm = OptBern(universe=1, epsilon=epsilon)
    share = one(algorithm.window_loss(), windows)
    total = PersonTotal(period=PERIOD, shares=(share,), delta=delta)
    steps = [shipped(algorithm)] * windows
    assert delta_at(steps, total.epsilon) <= total.stated_delta + 1e-15
    for order in (1.5, 4.0, 32.0):
        assert divergence(steps, order) <= float(share_divergences([share], np.array([order]))[0, 0])


def test_halved_noise_and_second_copies_exceed_the_account() -> None:
    """Controls: what the account leaves out shows more than it claims."""
    algorithm = OptBern(universe=1, epsilon=1.0)
    p0, p1, _ = shipped(algorithm)
    share = one(algorithm.window_loss(), 2)
    claimed = float(share_divergences([share], np.array([64.0]))[0, 0])
    law = algorithm.law
    half = [(*bit(2 * math.log(p1 / p0), 0.0)[:2], 1 / (1 + math.exp(-2 * law.noise.kappa)))] * 2
    assert divergence(half, 64.0) > claimed
    assert divergence([shipped(algorithm)] * 2, 64.0, looks=2) > claimed


def test_the_worst_fixed_look_does_not_bound_one_that_is_chosen_after_an_answer() -> None:
    """Control: exact deltas of the best fixed look against the adaptive one, and Theorem 2, which bounds both."""

    def rr(epsilon: float) -> list[tuple[float, float]]:
        p = 1 / (1 + math.exp(-epsilon))
        return [(epsilon, p), (-epsilon, 1 - p)]

    def both(*laws: list[tuple[float, float]]) -> list[tuple[float, float]]:
        found = [(0.0, 1.0)]
        for law in laws:
            found = [(a + x, p * q) for a, p in found for x, q in law]
        return found

    def delta(law: list[tuple[float, float]], epsilon: float) -> float:
        return sum(p * max(0.0, 1 - math.exp(epsilon - x)) for x, p in law)

    noon = rr(2.0)
    midnight = both(rr(1.2), rr(1.2))
    fixed = max(delta(both(rr(0.4), look), 1.6) for look in (noon, midnight))
    adaptive = sum(p * max(delta(look, 1.6 - x) for look in (noon, midnight)) for x, p in rr(0.4))
    assert (fixed, adaptive) == (pytest.approx(0.3252, abs=5e-5), pytest.approx(0.3685, abs=5e-5))
    orders = 1.0 + np.geomspace(0.01, 100, 400)
    looks = np.maximum(pure_renyi(2.0, orders), 2 * pure_renyi(1.2, orders))
    epsilon = float((pure_renyi(0.4, orders) + looks + conversion(orders, adaptive)).min())
    assert epsilon > 1.6


def gaussian(sigma: float) -> tuple[DiscreteGaussian, np.ndarray]:
    law = DiscreteGaussian.at_least(sigma)
    reach = math.ceil(14 * sigma) + 3
    mass = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * law.sigma**2))
    return law, mass / mass.sum()


def shifted_renyi(mass: np.ndarray, shift: int, order: float) -> float:
    """Return the divergence of a law on the integers and the same law moved."""
    pad = np.zeros(abs(shift))
    base = np.concatenate([pad, mass, pad])
    moved = np.roll(base, shift)
    both = (base > 0) & (moved > 0)
    logs = order * np.log(base[both]) + (1 - order) * np.log(moved[both])
    return float(np.logaddexp.reduce(logs)) / (order - 1)


@pytest.mark.parametrize("sigma", [0.8, 1.0, 1.5, 3.0])
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("order", [1.001, 2.0, 6.0])
def test_gaussian_windows_lose_what_is_claimed(sigma: float, rows: int, order: float) -> None:
    """Exact sums: a look after k of K rows shows them, and the release the rest; or the release shows all."""
    law, mass = gaussian(sigma)
    joint, answers = gaussian_losses([(law, rows**2)], rows)
    release = shifted_renyi(np.convolve(mass, mass), rows, order)
    assert release <= order * answers * (1 + 1e-9) + 1e-12
    for before in range(rows + 1):
        look = shifted_renyi(mass, before, order) + shifted_renyi(mass, rows - before, order)
        assert look <= order * joint * (1 + 1e-9) + 1e-12
        assert look <= order * answers + order * (joint - answers) + 1e-9
    if sigma == 3.0 and rows == 2 and order == 6.0:  # reference values of the design
        assert release / order == pytest.approx(1 / 9, abs=1e-9)
        assert look / order == pytest.approx(2 / 9, abs=1e-9)
        assert (answers, joint) == (pytest.approx(1 / 9, abs=1e-9), pytest.approx(2 / 9, abs=1e-9))


def test_the_parity_of_a_sum_of_two_discrete_gaussians_is_paid_for() -> None:
    """Of small sigma: the sum of two is no discrete Gaussian, and loses more than one at some orders."""
    law, mass = gaussian(0.9)
    joint, answers = gaussian_losses([(law, 1)], 1)
    assert answers == joint
    law, mass = gaussian(1.6)
    joint, answers = gaussian_losses([(law, 1)], 1)
    order = 1.001
    exact = shifted_renyi(np.convolve(mass, mass), 1, order) / order
    assert answers > 0.25 / law.sigma**2
    assert exact <= answers < joint


def test_three_windows_of_the_shipped_count_and_one_copy() -> None:
    """Least squares on the view of shipped steps: (n + o)·K²/(2V); more with a second copy, or half of the noise."""
    count = ContinualCount(epsilon=1.0, delta=1e-6, horizon=1, contributions=2)
    world = [update([0]), update([0]), tick()]
    streams = [[update([1] * a), update([1] * b), tick()] for a, b in ((0, 2), (1, 1), (2, 0))]
    losses = {}
    for view in linear_views(count, world, streams):
        units = [np.linalg.lstsq(view.matrix / view.kappas, shift, rcond=None)[0] for shift in view.shifts]
        losses[view.look] = max(0.5 * float(unit @ unit) for unit in units)
    answers = losses[None]
    joint = max(losses.values())
    share = one(count.window_loss(), 3)
    claimed = float(share_divergences([share], np.array([5.0]))[0, 0]) / 5.0
    variance = 2 * count.engine.law().variance
    assert 2 * answers + joint == pytest.approx(claimed, rel=1e-9)
    assert claimed == pytest.approx((3 + 1) * 4 / (2 * variance), rel=1e-9)
    assert answers + 2 * joint > 1.2 * claimed  # two copies in different windows
    assert 4 * (2 * answers + joint) > 3.9 * claimed  # sigma halved, or a sender's clock that lets 2K rows through
    late = replace(share, open=2)
    assert float(share_divergences([late], np.array([5.0]))[0, 0]) / 5.0 == pytest.approx(answers + 2 * joint, rel=1e-9)


def test_reference_values() -> None:
    orders = np.array([2.0, 8.0, 32.0])
    assert pure_renyi(1.0, orders) == pytest.approx([0.735325664, 0.955248374, 0.989894784], abs=1e-9)
    loss = loss_of(1.0, 0.2)
    assert (loss.answers, loss.joint) == (pytest.approx(0.092181801, abs=1e-9), pytest.approx(1.15002078, abs=1e-9))
    days = PersonShare.of_windows("v", loss, window=DAY, period=PERIOD)
    assert days.epsilon == pytest.approx(3.915474822, abs=1e-8)
    late = PersonShare.of_windows("v", loss, window=DAY, period=PERIOD, lateness=60.0)
    assert late.epsilon == pytest.approx(4.9733138, abs=1e-8)
    # A count, K = 8 a day, 31 days, one open, rho = .02: V = 51,200.
    law = DiscreteGaussian.at_least(math.sqrt(25_600))
    joint, answers = gaussian_losses([(law, 64)], 8)
    assert 30 * answers + joint == pytest.approx(0.02, abs=1e-9)


@pytest.mark.parametrize("rho", [1e-8, 0.01, 0.3, 5.0, 400.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-3])
def test_gaussian_shares_alone_convert_like_zcdp(rho: float, delta: float) -> None:
    loss = WindowLoss(joint=9.0, answers=9.0, unused=9.0, delta=delta, rho_joint=rho, rho_answers=rho)
    found = renyi_epsilon([one(loss)], delta)
    exact = zcdp_epsilon(rho, delta)
    assert exact * (1 - 1e-9) <= found <= exact * (1 + 1e-4) + 1e-9


@given(st.floats(0.0, 30.0), st.floats(1.001, 1e6))
def test_pure_divergences_are_rounded_up(epsilon: float, order: float) -> None:
    found = float(pure_renyi(epsilon, np.array([order]))[0])
    p = 1 / (1 + math.exp(-epsilon))
    q = math.exp(-epsilon) * p
    exact = np.logaddexp(
        order * math.log(p) + (1 - order) * math.log(q), order * math.log(q) + (1 - order) * math.log(p)
    )
    assert float(exact) / (order - 1) <= found + 1e-12 * (1 + found)
    assert found <= epsilon
    assert found <= order * epsilon**2 / 2 * (1 + 1e-11)


def visitors() -> PersonShare:
    return PersonShare.of_windows(
        "visitors", OptBern(universe=100, epsilon=1.0).window_loss(), window=DAY, period=PERIOD
    )


def views(rows: int = 1, epsilon: float = 0.3) -> PersonShare:
    count = ContinualCount(epsilon=epsilon, delta=1e-8, horizon=1, contributions=rows)
    return PersonShare.of_windows("views", count.window_loss(), window=DAY, period=PERIOD)


def test_a_declared_delta_is_used_where_it_helps() -> None:
    pure = PersonTotal(period=PERIOD, shares=(visitors(),))
    declared = replace(pure, delta=1e-6)
    assert (pure.stated_delta, declared.stated_delta) == (0.0, 1e-6)
    assert declared.epsilon < pure.epsilon
    few = PersonTotal(period=PERIOD, shares=(one(OptBern(universe=100, epsilon=0.1).window_loss()),), delta=1e-6)
    assert few.stated_delta == 0.0  # added up, one window loses less than any delta could buy


def test_gaussian_windows_lose_with_the_root_of_their_number() -> None:
    total = PersonTotal(period=PERIOD, shares=(views(),), delta=1e-6)
    loss = views().loss
    assert loss is not None
    assert loss.rho_joint is not None
    assert total.epsilon == pytest.approx(zcdp_epsilon(16 * loss.rho_joint, 1e-6), rel=1e-4)  # (31 + 1)/2 joint losses
    assert total.epsilon < 0.5 * views().epsilon
    undeclared = replace(total, delta=0.0)
    assert undeclared.stated_delta == pytest.approx(31e-8)
    assert total.epsilon < undeclared.epsilon < views().epsilon
    mixed = PersonTotal(period=PERIOD, shares=(views(), visitors()), delta=1e-6)
    alone = PersonTotal(period=PERIOD, shares=(visitors(),), delta=1e-6)
    assert max(total.epsilon, alone.epsilon) < mixed.epsilon < total.epsilon + alone.epsilon
    assert f"delta {1e-6:.2g}" in mixed.text()


def test_announced_copies_and_groups_are_in_the_account() -> None:
    share = views()
    loss = share.loss
    assert loss is not None
    assert loss.rho_joint is not None
    once, thrice = (float(share_divergences([share], np.array([2.0]), copies)[0, 0]) / 2 for copies in (1, 3))
    assert thrice - once == pytest.approx(2 * loss.rho_joint / 2)
    assert float(share_divergences([share], np.array([2.0]), 1000)[0, 0]) / 2 == pytest.approx(31 * loss.rho_joint)
    twice = loss.times(2)
    assert twice.rho_joint == pytest.approx(2 * loss.rho_joint)
    bits = OptBern(universe=100, epsilon=1.0).window_loss()
    orders = np.array([4.0])
    grouped, single = (float(share_divergences([one(each, 31)], orders)[0, 0]) for each in (bits.times(3), bits))
    assert grouped == pytest.approx(3 * single)  # states with noise of their own


def test_deltas_without_zcdp_are_added_up() -> None:
    plain = one(WindowLoss.of_claim(Claim(epsilon=0.5, delta=1e-7, unit="user")), 2, name="plain")
    total = PersonTotal(period=PERIOD, shares=(plain, views()), delta=1e-6)
    rest = renyi_epsilon([views()], 8e-7)
    assert total.epsilon == pytest.approx(rest + 1.0, rel=1e-4)
    assert total.stated_delta == 1e-6
    small = replace(total, delta=1e-7)
    assert small.stated_delta > 1e-7  # nothing is left for the rest: its deltas add up, and exceed what was declared


def test_a_query_with_a_delta_never_understates_its_heavy_hitters() -> None:
    for rows in (None, 4):
        names = FrequentItems(epsilon=2.0, delta=1e-6, max_item_bytes=4, width=256, row_width=256, contributions=rows)
        loss = names.window_loss()
        assert loss.rho_joint is not None
        assert loss.rho_answers == pytest.approx(loss.rho_joint / 2)
        # One event's exact delta is smaller than that of its zCDP, so the same noise has a larger rho.
        assert loss.rho_joint >= zcdp_rho(2.0, 1e-6) * (1 - 1e-9) or rows


def asked(name: str, loss: WindowLoss, window: int | None, begin: float | None, end: float | None) -> AskedQuery:
    share = PersonShare.of_windows(name, loss, window=None if window is None else float(window), period=10.0)
    return AskedQuery(share=share, window=None if window is None else float(window), begin=begin, end=end)


LOSSES = [
    WindowLoss(joint=1.0, answers=0.1, unused=0.2),
    WindowLoss(joint=0.5, answers=0.5, unused=0.5, delta=1e-7, rho_joint=0.02, rho_answers=0.01),
    WindowLoss(joint=0.3, answers=0.3, unused=0.3, delta=1e-7),
]


@settings(max_examples=40, deadline=None)
@given(
    kinds=st.lists(st.tuples(st.sampled_from(LOSSES), st.one_of(st.none(), st.integers(1, 7))), min_size=1, max_size=3),
    changes=st.lists(st.integers(0, 30), min_size=0, max_size=2),
    delta=st.sampled_from([0.0, 1e-5]),
)
def test_the_worst_period_at_a_delta_is_that_of_brute_force(
    kinds: list[tuple[WindowLoss, int | None]], changes: list[int], delta: float
) -> None:
    spans = list(itertools.pairwise([None, *sorted(set(changes)), None]))
    queries = [asked(f"q{i}", loss, window, *spans[i % len(spans)]) for i, (loss, window) in enumerate(kinds)]
    found = worst_total(queries, 10.0, delta=delta)
    starts = np.arange(-60.0, 110.0, 0.25)
    counts = np.stack([query.windows_met(starts, 10.0) for query in queries])
    exact = 0.0
    for column in np.unique(counts, axis=1).T:
        shares = tuple(query.shortened(int(n)) for query, n in zip(queries, column, strict=True) if n)
        exact = max(exact, PersonTotal(period=10.0, shares=shares, delta=delta).epsilon)
    assert found.epsilon >= exact * (1 - 1e-9)
    if all(query.begin is not None and query.end is not None for query in queries):
        assert found.epsilon == pytest.approx(exact, rel=1e-6)


def test_what_has_no_bound_leaves_the_worst_of_the_rest() -> None:
    nothing = AskedQuery(share=PersonShare(name="events", loss=None, reason="protects one event"), window=1.0, end=3.0)
    found = worst_total([nothing, asked("q", LOSSES[0], 7, 20.0, None)], 10.0)
    alone = worst_total([asked("q", LOSSES[0], 7, 20.0, None)], 10.0)
    assert math.isinf(found.epsilon)
    assert found.bounded.epsilon == alone.epsilon > 0


def test_a_history_with_zcdp_is_read_back() -> None:
    loss = ContinualCount(epsilon=1.0, delta=1e-6, contributions=8, horizon=1).window_loss().times(3)
    query = AskedQuery(share=replace(views(), loss=loss), window=DAY)
    assert AskedQuery.from_json(query.to_json()) == query
