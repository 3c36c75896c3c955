"""Claims about two machines, single and composed with others."""

from panstream.privacy.claim import Claim, Intrusions
from panstream.privacy.composition import compose_sequential
from panstream.privacy.secret_shared_loss import ASSUMPTION, noisy_claim, shared_claim, shared_law


def test_noise_follows_the_budget() -> None:
    assert shared_law(1.0, 4).kappa == 0.25
    assert shared_law(float("inf"), 4).numerator is None


def test_composed_claims_cover_what_both_cover() -> None:
    two = shared_claim(1.0, "user", 1, "the universe")
    both = compose_sequential([two, two])
    assert (both.epsilon, both.intrusions, both.assumption) == (2.0, Intrusions(unannounced=-1, machines=2), ASSUMPTION)
    mixed = compose_sequential([two, Claim(epsilon=0.5, unit="user")])
    assert mixed.intrusions == Intrusions(unannounced=1, announced=0, machines=1)
    assert mixed.assumption == ASSUMPTION


def test_noisy_cells_may_be_seen_at_both_machines_once() -> None:
    one = Claim(epsilon=1.0, unit="user", releases=3)
    claim = noisy_claim(one)
    assert (claim.epsilon, claim.unit, claim.releases, claim.assumption) == (1.0, "user", 3, ASSUMPTION)
    assert claim.intrusions == Intrusions(unannounced=-1, machines=2, together=1)
    assert claim.to_json()["intrusions"]["together"] == 1
    assert "any number, at one machine at a time (both in one epoch once at most)" in str(claim)
    assert ("assumption", ASSUMPTION) in claim.rows() and "assumption" not in dict(one.rows())


def test_claims_say_it() -> None:
    claim = shared_claim(1.0, "user", 2, "the universe")
    assert "any number, at one machine at a time (both never in one epoch)" in str(claim)
    stored = claim.to_json()
    assert stored["intrusions"] == {"unannounced": "any", "announced": 0, "per_phase": False, "machines": 2}
    assert stored["assumption"] == ASSUMPTION
    assert "assumption" not in Claim(epsilon=1.0, unit="user").to_json()
    assert "machines" not in Claim(epsilon=1.0, unit="user").to_json()["intrusions"]
