"""What a holder adds up, by hand."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from panstream.privacy.claim import Intrusions
from panstream.privacy.composition import zcdp_epsilon, zcdp_rho
from panstream.privacy.holder_loss import Loss, record_claim


def test_losses_add_up_in_both_currencies() -> None:
    assert Loss(epsilon=0.5, rho=0.25) + Loss(epsilon=1.5, rho=0.5) == Loss(epsilon=2.0, rho=0.75)
    assert Loss.pure([1.0, 2.0]) == Loss(epsilon=3.0, rho=0.5 + 2.0)
    assert Loss.of_choice(2.0) == Loss(epsilon=2.0, rho=0.5)
    assert Loss.gaussian([0.25, 0.5]) == Loss(epsilon=math.inf, rho=0.75)
    assert Loss.pure([]) == Loss(epsilon=0.0, rho=0.0)


def test_a_total_is_pure_without_delta_and_converted_with_it() -> None:
    loss = Loss.pure([0.1] * 50)
    assert loss.at(0.0) == pytest.approx(5.0)
    assert loss.at(1e-6) == zcdp_epsilon(loss.rho, 1e-6) < 5.0
    assert Loss.gaussian([0.1]).at(0.0) == math.inf


def test_a_few_pure_questions_cost_their_sum_where_rho_converts_to_more() -> None:
    loss = Loss.pure([1.0])
    assert zcdp_epsilon(loss.rho, 1e-6) > 5.0
    assert loss.at(1e-6) == 1.0
    assert loss.is_within(1.0, 1e-6) and not loss.is_within(0.99, 1e-6)
    many = Loss.pure([0.1] * 50)
    assert many.is_within(4.0, 1e-6) and not many.is_within(4.0, 0.0)
    mixed = Loss.pure([1.0]) + Loss.gaussian([0.001])  # no pure total is left, and rho counts the pure question too
    assert not mixed.is_within(2.0, 1e-6)
    assert mixed.is_within(zcdp_epsilon(0.501, 1e-6) * 1.0001, 1e-6)


@dataclass(frozen=True)
class Mechanism:
    """What a question costs, and the law of its answer for each of two neighbours."""

    loss: Loss
    here: np.ndarray
    there: np.ndarray

    @classmethod
    def randomised_response(cls, epsilon: float) -> "Mechanism":
        true = 1 / (1 + math.exp(-epsilon))
        return cls(Loss.pure([epsilon]), np.array([true, 1 - true]), np.array([1 - true, true]))

    @classmethod
    def discrete_gaussian(cls, rho: float) -> "Mechanism":
        """Counts 0 and 1; what lies beyond 15 has a probability below 1e-9."""
        numbers = np.arange(-15, 17)
        laws = [np.exp(-rho * (numbers - count) ** 2) for count in (0, 1)]
        return cls(Loss.gaussian([rho]), laws[0] / laws[0].sum(), laws[1] / laws[1].sum())


EPSILON = 1.0
DELTA = 0.05
Allows = Callable[[list[Loss]], bool]


def largest_delta(
    allows: Allows, menu: list[Mechanism], spent: list[Loss], here: np.ndarray, there: np.ndarray
) -> np.ndarray:
    """Return delta at EPSILON for the best analyst, whose questions, within the filter, may depend on answers."""
    best = np.maximum(here - math.exp(EPSILON) * there, 0)
    for mechanism in menu:
        after = [*spent, mechanism.loss]
        if allows(after):
            one = np.multiply.outer(here, mechanism.here)
            other = np.multiply.outer(there, mechanism.there)
            best = np.maximum(best, largest_delta(allows, menu, after, one, other).sum(axis=-1))
    return best


def test_the_filter_holds_for_every_strategy_of_asking() -> None:
    """Pure and Gaussian questions in every adaptive order; separate filters for each kind would be too weak."""
    menu = [
        Mechanism.randomised_response(EPSILON / 2),
        Mechanism.randomised_response(EPSILON / 4),
        Mechanism.discrete_gaussian(zcdp_rho(EPSILON, DELTA) / 2),
    ]

    def shipped(losses: list[Loss]) -> bool:
        return sum(losses, Loss()).is_within(EPSILON, DELTA)

    def one_filter_per_kind(losses: list[Loss]) -> bool:
        pure = [loss for loss in losses if math.isfinite(loss.epsilon)]
        gaussian = [loss for loss in losses if math.isinf(loss.epsilon)]
        return sum(pure, Loss()).is_within(EPSILON, 0.0) and sum(gaussian, Loss()).is_within(EPSILON, DELTA)

    one = np.ones(())
    assert 0.0 < largest_delta(shipped, menu, [], one, one) <= DELTA
    assert largest_delta(one_filter_per_kind, menu, [], one, one) > 2 * DELTA


def test_nothing_asked_is_nothing_lost() -> None:
    some = Loss(epsilon=0.5, rho=0.25)
    assert Loss() + some == some
    assert Loss(epsilon=0.5) == Loss(epsilon=0.5, rho=0.0)
    assert Loss(rho=0.25) == Loss(epsilon=0.0, rho=0.25)


def test_a_claim_about_a_record_covers_no_look_at_the_holder() -> None:
    claim = record_claim(0.5, 1e-6)
    assert (claim.epsilon, claim.delta, claim.unit, claim.adjacency) == (0.5, 1e-6, "record", "replace")
    assert claim.intrusions == Intrusions(unannounced=0)
