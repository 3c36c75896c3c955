"""The formulas that Coq proved in proofs/, against the constants and the steps that are shipped. Needs no Coq."""

import itertools
import re
from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from panstream.algorithms.continual.sums import ContinualCount, KaryTree
from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.secret_shared.share_rules import OverwrittenBits
from panstream.primitives.noise import DiscreteLaplace
from panstream.primitives.noise.distributions import LAPLACE_BITS

PROOFS = Path(__file__).parents[2] / "proofs"
FILES = sorted(PROOFS.glob("*.v"))
PAGE = Path(__file__).parents[2] / "docs" / "proofs" / "machine-checked.md"


def exp_bounds(x: Fraction) -> tuple[Fraction, Fraction]:
    """Return rational numbers below and above e^x: Decimal's exp is correctly rounded."""
    with localcontext() as context:
        context.prec = 60
        exponent = Decimal(x.numerator) / Decimal(x.denominator)  # off by at most one unit in the 60th digit
        value = Fraction(exponent.exp())
    slack = value * Fraction(1, 10**55)
    return value - slack, value + slack


def rate_of(law: DiscreteLaplace) -> Fraction:
    """Return the rate of shipped noise, exactly: q = e^-rate in the proofs."""
    assert law.numerator is not None
    return Fraction(law.numerator, 1 << LAPLACE_BITS)


def mix(p: Fraction, x: Fraction) -> Fraction:
    """Return what ``mix`` is in proofs/Bit.v."""
    return 1 - p + p * x


BITS = [
    OptBern(universe=1_000, epsilon=epsilon, releases=releases)
    for epsilon, releases in ((0.1, 1), (1.0, 1), (1.0, 6), (4.0, 12))
] + [Bitmap(epsilon=epsilon, buckets=256, levels=8) for epsilon in (0.5, 1.0, 3.0)]


@pytest.mark.parametrize("algorithm", BITS, ids=repr)
def test_the_coins_of_bits_lose_at_most_the_claim(algorithm: Any) -> None:
    law = algorithm.law
    p0 = law.absent.probability
    p1 = law.present.probability
    assert p0 == 1 - p1  # the symmetric coins of joint_loss_symmetric, with rate = p1/p0
    claim = algorithm.claim()
    _, growth = exp_bounds(claim.releases * rate_of(law.noise))  # K^n, rounded up
    allowed, _ = exp_bounds(Fraction(claim.epsilon))
    loss = p1 / p0 * mix(p1, growth)
    assert loss <= allowed
    assert loss > allowed * (1 - Fraction(1, 10**6))  # nor is much more noise drawn than is claimed


@pytest.mark.parametrize("algorithm", [law for law in BITS if law.claim().releases == 1], ids=repr)
def test_the_answers_of_a_window_lose_what_is_charged(algorithm: Any) -> None:
    law = algorithm.law
    _, growth = exp_bounds(rate_of(law.noise))
    p0 = law.absent.probability
    p1 = law.present.probability
    loss = algorithm.window_loss()
    allowed, _ = exp_bounds(Fraction(loss.answers))
    factor = mix(p1, growth) / mix(p0, growth)  # answers_factor of proofs/Windows.v
    assert factor <= allowed <= factor * (1 + Fraction(1, 10**9))


@pytest.mark.parametrize(
    "tree",
    [
        ContinualCount(epsilon=1.0, horizon=1),
        ContinualCount(epsilon=0.3, horizon=1_000, contributions=7),
        KaryTree(epsilon=2.0, horizon=50, lower=-2, upper=5),
        ContinualCount(epsilon=1.0, horizon=1 << 20, one_step_ticks=True),
    ],
    ids=repr,
)
def test_the_noise_of_trees_loses_at_most_the_claim(tree: Any) -> None:
    shape = tree.engine.shape(0)
    bound = tree.sensitivity * (tree.contributions or 1)  # what the rows of one unit add to a node
    kappa = rate_of(tree.engine.law(0))
    loss = shape.rows * bound * kappa  # the exponent of tree_loss_of_unit
    assert loss <= Fraction(tree.epsilon)
    assert loss > Fraction(tree.epsilon) * (1 - Fraction(1, 10**6))


class _Masks:
    """A seed whose numbers are prescribed."""

    def __init__(self, *bits: NDArray[np.uint8]) -> None:
        self._bits: Iterator[NDArray[np.uint8]] = iter(bits)

    def bits(self, size: int) -> NDArray[np.uint8]:
        drawn = next(self._bits).copy()
        assert drawn.size == size
        return drawn


def test_the_shipped_step_is_the_one_that_was_proved() -> None:
    combinations = np.array(list(itertools.product((0, 1), repeat=9)), np.uint8)
    x, h, v, a, u_a, h_a, w_a, u_b, r = (np.packbits(column) for column in combinations.T)
    rule = OverwrittenBits(cells=len(combinations), noise=DiscreteLaplace.at_most(1.0))
    factor, term = rule.deal((h, v), _Masks(u_a, h_a, w_a), _Masks(u_b))
    held_a = rule.begin_update(_Masks(u_a, h_a, w_a), None)
    held_b = rule.begin_update(_Masks(u_b), (factor, term))
    share_a = a.copy()
    share_b = x ^ a
    sent_a = rule.outgoing_message(share_a, held_a).copy()
    sent_b = rule.outgoing_message(share_b, held_b).copy()
    rule.finish_update(share_a, sent_a.copy(), sent_b, held_a)
    rule.finish_update(share_b, sent_b.copy(), sent_a, held_b)
    rule.rerandomize(share_a, _Masks(r), first=True)
    rule.rerandomize(share_b, _Masks(r), first=False)
    # The definitions of proofs/TwoParty.v.
    b = x ^ a
    h_b = h ^ h_a
    w_b = (h & (u_a ^ u_b ^ v)) ^ w_a
    opened = (a ^ u_a) ^ (b ^ u_b)
    assert np.array_equal(factor, h_b)
    assert np.array_equal(term, w_b)
    assert np.array_equal(sent_a, a ^ u_a)
    assert np.array_equal(sent_b, b ^ u_b)
    assert np.array_equal(share_a, a ^ (opened & h_a) ^ w_a ^ r)
    assert np.array_equal(share_b, b ^ (opened & h_b) ^ w_b ^ r)
    assert np.array_equal(share_a ^ share_b, (h & v) | (~h & x))


def test_nothing_is_admitted() -> None:
    assert FILES
    for file in FILES:
        text = re.sub(r"\(\*.*?\*\)", "", file.read_text(), flags=re.DOTALL)
        assert not re.findall(r"\b(Admitted|admit|Axiom|Axioms|Parameter|Parameters|Conjecture)\b", text), file.name


def test_every_theorem_is_checked_for_axioms() -> None:
    stated = {
        name
        for file in FILES
        for name in re.findall(r"^\s*(?:Theorem|Corollary) (\w+)", file.read_text(), re.MULTILINE)
    }
    checked = set(re.findall(r"^Print Assumptions (\w+)", (PROOFS / "All.v").read_text(), re.MULTILINE))
    assert stated - {"joint_loss_symmetric"} <= checked  # joint_loss_of_releases rests on that one
    named = set(re.findall(r"`(\w+)`", PAGE.read_text())) & stated
    assert {"joint_loss", "tree_loss", "person_period", "step_is_right"} <= named
