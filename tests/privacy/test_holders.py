"""What a holder adds up, by hand."""

import math

import pytest

from panstream.privacy.claim import Intrusions
from panstream.privacy.composition import zcdp_epsilon
from panstream.privacy.holders import Loss, record_claim


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


def test_nothing_asked_is_nothing_lost() -> None:
    some = Loss(epsilon=0.5, rho=0.25)
    assert Loss() + some == some
    assert Loss(epsilon=0.5) == Loss(epsilon=0.5, rho=0.0)
    assert Loss(rho=0.25) == Loss(epsilon=0.0, rho=0.25)


def test_a_claim_about_a_record_covers_no_look_at_the_holder() -> None:
    claim = record_claim(0.5, 1e-6)
    assert (claim.epsilon, claim.delta, claim.unit, claim.adjacency) == (0.5, 1e-6, "record", "replace")
    assert claim.intrusions == Intrusions(unannounced=0)
