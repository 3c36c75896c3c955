"""Closed forms against the papers' true losses, their inverses and each other."""

import math
import random
from decimal import Decimal, localcontext
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from panstream.errors import InvalidParameter
from panstream.privacy.joint_loss import (
    _pair_ratio,
    kappa_for,
    kappa_for_approx,
    kappa_for_pair,
    pair_loss,
    pair_state_loss,
    present_probability,
    symmetric_loss,
)

POSITIVE = st.floats(min_value=1e-4, max_value=20.0)

TRUE_LOSSES = {  # epsilon: (Dwork/Roth, OptBern, quantised Laplace) with the output noise as printed in the papers
    0.05: (3.374, 1.503, 1.524),
    0.1: (3.423, 1.573, 1.613),
    0.2: (3.522, 1.713, 1.787),
    0.5: (3.829, 2.143, 2.281),
}


@pytest.mark.parametrize("epsilon", TRUE_LOSSES)
def test_true_losses_of_the_published_output_noise(epsilon: float) -> None:
    e = math.exp(epsilon)
    pairs = ((0.5, 0.5 + epsilon / 4), (1 / (1 + e), e / (1 + e)), (math.exp(-epsilon / 2) / 2, 0.0))
    for (p0, p1), true in zip(pairs, TRUE_LOSSES[epsilon], strict=True):
        p1 = p1 or 1 - p0
        assert pair_loss(p0, p1, epsilon / (p1 - p0)) == pytest.approx(true, abs=5e-4)


@pytest.mark.slow
@given(st.floats(min_value=1e-4, max_value=10.0), POSITIVE, st.integers(1, 50))
def test_symmetric_form_is_the_general_one(epsilon_state: float, kappa: float, releases: int) -> None:
    if releases * kappa > 300:
        return
    p1 = present_probability(epsilon_state)
    assert symmetric_loss(epsilon_state, kappa, releases) == pytest.approx(
        pair_loss(1 - p1, p1, kappa, releases),
        rel=1e-8,  # 1 - p1 as a float has fewer digits
    )


@given(POSITIVE, POSITIVE, st.integers(1, 50))
def test_kappa_for_is_the_inverse(epsilon_state: float, kappa: float, releases: int) -> None:
    epsilon = symmetric_loss(epsilon_state, kappa, releases)
    assert kappa_for(epsilon, epsilon_state, releases) == pytest.approx(kappa, rel=1e-6)


@given(POSITIVE, POSITIVE, POSITIVE)
def test_losses_grow_with_every_argument(epsilon_state: float, kappa: float, more: float) -> None:
    base = symmetric_loss(epsilon_state, kappa)
    assert symmetric_loss(epsilon_state + more, kappa) > base
    assert symmetric_loss(epsilon_state, kappa + more) > base
    assert symmetric_loss(epsilon_state, kappa, 2) > base


def test_exact_values_of_the_reference() -> None:
    """R = 3, K = 5/4: e**epsilon = R(1 + R·K)/(1 + R) = 3·4.75/4."""
    assert math.exp(symmetric_loss(math.log(3), math.log(1.25))) == pytest.approx(3 * 4.75 / 4, rel=1e-14)


def test_no_noise_has_no_finite_loss() -> None:
    for epsilon_state, kappa in ((math.inf, 1.0), (1.0, math.inf), (math.inf, math.inf)):
        assert symmetric_loss(epsilon_state, kappa) == math.inf
    assert kappa_for(math.inf, 1.0) == math.inf


def test_a_state_that_takes_everything_leaves_nothing_to_release() -> None:
    with pytest.raises(InvalidParameter, match="epsilon_state must be below"):
        kappa_for(1.0, 1.0)


@pytest.mark.parametrize(("p0", "p1"), list(product((0.2, 0.4), (0.6, 0.9))))
def test_general_pair_by_brute_force(p0: float, p1: float) -> None:
    """Both orders, all histories of one bit, every output: an independent walk over short streams."""
    kappa = 0.7
    reach = 6

    def output(bit: int, n: int) -> float:
        return math.tanh(kappa / 2) * math.exp(-kappa * abs(n - bit))

    coins = {"absent": p0, "present": p1}
    worst = 0.0
    for order in ("look first", "output first"):
        laws = []
        for before, after in product(coins, (None, *coins)):
            law: dict[tuple[int, int], float] = {}
            for first in (0, 1):
                start = coins[before] if first else 1 - coins[before]
                for second in (0, 1):
                    stay = float(first == second)
                    move = stay if after is None else (coins[after] if second else 1 - coins[after])
                    for n in range(-reach, reach + 1):
                        seen, summed = (first, second) if order == "look first" else (second, first)
                        law[seen, n] = law.get((seen, n), 0.0) + start * move * output(summed, n)
            laws.append(law)
        for a, b in product(laws, laws):
            worst = max(worst, *(math.log(a[view] / b[view]) for view in a))
    assert pair_loss(p0, p1, kappa) == pytest.approx(worst, rel=1e-12)


@pytest.mark.parametrize("certain", [0.0, 1.0])
def test_a_coin_that_is_certain_gives_everything_away(certain: float) -> None:
    for pair in ((certain, 0.5), (0.5, certain), (certain, 1.0 - certain)):
        assert pair_loss(*pair, 1.0) == math.inf


@pytest.mark.parametrize("options", [(), (3,), (2, 2)], ids=str)
@pytest.mark.parametrize(("epsilon", "epsilon_state"), [(1.0, 0.3), (40.0, 2.0), (200.0, 0.01)])
def test_the_quick_kappa_is_near(epsilon: float, epsilon_state: float, options: tuple[int, ...]) -> None:
    assert kappa_for_approx(epsilon, epsilon_state, *options) == pytest.approx(
        kappa_for(epsilon, epsilon_state, *options), rel=1e-13
    )


def test_states_of_two_coins_and_losses_without_end() -> None:
    assert pair_state_loss(0.3, 0.5) == pytest.approx(math.log(0.5 / 0.3))
    assert pair_state_loss(0.3, 0.9) == pytest.approx(math.log(0.7 / 0.1))
    for certain in ((0.0, 0.5), (0.5, 1.0)):
        assert pair_state_loss(*certain) == math.inf
    assert kappa_for(1.0, 0.4) == kappa_for(1.0, 0.4, 1)
    assert kappa_for_pair(1.0, 0.3, 0.5) == kappa_for_pair(1.0, 0.3, 0.5, 1)


@pytest.mark.parametrize("epsilon", [0.001, 0.02, 1.0, 60.0])
@pytest.mark.parametrize("releases", [1, 3, 14])
def test_a_pair_uses_up_budgets_of_every_size(epsilon: float, releases: int) -> None:
    """Rare bits, which need a kappa far above epsilon; and coins so alike that the state takes half of the budget."""
    for p0, p1 in ((0.01, 0.01 * math.exp(min(epsilon, 2.0) / 2)), (0.5, 0.5 * math.exp(min(epsilon, 1.0) / 8))):
        kappa = kappa_for_pair(epsilon, p0, p1, releases)
        assert pair_loss(p0, p1, kappa, releases) == pytest.approx(epsilon, rel=1e-9)


def test_rounding_takes_no_pair_beyond_its_budget() -> None:
    draw = random.Random(3)
    for _ in range(60):
        p0 = draw.uniform(0.05, 0.5)
        p1 = draw.uniform(p0, 0.95)
        epsilon = pair_state_loss(p0, p1) + draw.uniform(0.1, 2.0)
        kappa = kappa_for_pair(epsilon, p0, p1)
        with localcontext(prec=50):
            growth = Decimal(kappa).exp()
            ratio = _pair_ratio(Decimal(p0), Decimal(p1), growth, 1 / growth)  # type: ignore[type-var]
            assert ratio.ln() <= Decimal(epsilon)


def test_a_pair_whose_state_takes_everything_is_refused() -> None:
    for p0, p1 in ((0.3, 0.5), (0.2, 0.8), (0.5, 0.9)):
        with pytest.raises(InvalidParameter, match="state alone must lose less"):
            kappa_for_pair(pair_state_loss(p0, p1), p0, p1)


@pytest.mark.parametrize(("p0", "p1"), [(0.2, 0.8), (0.4, 0.6), (0.1, 0.3), (0.6, 0.9)])
@pytest.mark.parametrize("releases", [1, 2, 3])
def test_arrivals_and_deletes_between_any_two_of_look_and_outputs(p0: float, p1: float, releases: int) -> None:
    """Every position of the copy among the outputs, outputs above or below all sums, an event or none before each."""
    kappa = 0.8
    outputs = (math.exp(kappa), math.exp(-kappa))
    copied_bits = (0, 1)
    worst = 0.0
    for copy_index in range(releases + 1):
        order = [outputs] * copy_index + [copied_bits] + [outputs] * (releases - copy_index)
        for view in product(*order):
            weights = []
            for events in product((None, p0, p1), repeat=len(view)):
                zero = 1 - p0
                one = p0
                for step, (value, drawn) in enumerate(zip(view, events, strict=True)):
                    if drawn is not None:
                        zero, one = (zero + one) * (1 - drawn), (zero + one) * drawn
                    if step == copy_index:
                        zero = zero * (value == 0)
                        one = one * (value == 1)
                    else:
                        one *= value
                weights.append(zero + one)
            worst = max(worst, math.log(max(weights) / min(weights)))
    assert pair_loss(p0, p1, kappa, releases) == pytest.approx(worst, rel=1e-12)
    if p0 + p1 == 1.0:
        assert symmetric_loss(math.log(p1 / p0), kappa, releases) == pytest.approx(worst, rel=1e-12)
