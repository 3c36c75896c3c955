"""Rules of parameters: what they let pass, what they refuse, and the words they use."""

import math
from collections.abc import Callable
from fractions import Fraction

import pytest

from panstream.errors import InvalidParameter
from panstream.primitives import validation as checks


def test_what_keeps_the_rule_passes() -> None:
    checks.require_positive(epsilon=1e-300, kappa=Fraction(1, 3), sigma=math.inf)
    checks.require_at_least(1, releases=1, times=2.5)
    checks.require_integer_in_range(0, 7, announced=0, phases=7)
    checks.require_probability(beta=1e-9, alpha=0.999)
    checks.require_fraction(density=0, quantile=1.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: checks.require_positive(a=1, epsilon=0.0), "epsilon must be positive, got epsilon=0.0"),
        (lambda: checks.require_positive(epsilon=math.nan), "epsilon must be positive, got epsilon=nan"),
        (lambda: checks.require_at_least(1, releases=0), "releases must be at least 1, got releases=0"),
        (lambda: checks.require_integer_in_range(0, 7, announced=8), "announced must be in 0..7, got announced=8"),
        (lambda: checks.require_integer_in_range(1, 2**31 - 1, crop=0), "crop must be in 1..2**31 - 1, got crop=0"),
        (lambda: checks.require_integer_in_range(1, 2**20, bound=0), "bound must be in 1..2**20, got bound=0"),
        (lambda: checks.require_integer_in_range(1, 2**20 + 2, bound=0), "bound must be in 1..1048578, got bound=0"),
        (lambda: checks.require_probability(beta=1.0), "beta must be in (0, 1), got beta=1.0"),
        (lambda: checks.require_fraction(density=-0.1), "density must be in [0, 1], got density=-0.1"),
    ],
)
def test_what_does_not_is_refused_by_name(call: Callable[[], None], words: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        call()
    assert str(refused.value) == words


def test_what_is_missing_is_not_let_pass() -> None:
    with pytest.raises(InvalidParameter, match="must be a number"):
        checks.require_positive(epsilon=None)  # type: ignore[arg-type]
