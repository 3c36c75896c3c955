"""Losses of one person over a period: the audit's product over windows is that of all windows enumerated at once."""

import functools
import itertools
import math
from typing import Any

import numpy as np
import pytest

from panstream.algorithms.density.optbern import OptBern
from panstream.audit import audit_case
from panstream.audit.claims.case import Case
from panstream.audit.claims.cases import cases_in
from panstream.audit.claims.person_periods import (
    ABSENT,
    COMES,
    Moment,
    PeriodEnumeration,
    PeriodWindow,
    consecutive_windows,
    one_copy,
)
from panstream.primitives.noise import DiscreteGaussian
from panstream.testing.enumeration import Enumerator, enumerate_streams, release

CASES = list(cases_in("person_periods"))
ONE_BIT = OptBern(universe=1, epsilon=1.0)


def at_once(algorithm: Any, looks: Moment) -> float:
    """Return the largest loss over the views of all windows together, one after the other."""
    enumerator = Enumerator(algorithm, window=(-2, 3))
    windows = []
    for look in looks:
        laws = [
            enumerator.view_law(world, look) for world in enumerate_streams([None, None, release()], [ABSENT, COMES])
        ]
        views = list(dict.fromkeys(view for law in laws for view in law))
        windows.append(np.array([[float(law.get(view, 0)) for view in views] for law in laws]))
    worst = 1.0
    for first, second in itertools.product(itertools.product(*windows), repeat=2):
        likely, unlikely = (functools.reduce(np.multiply.outer, world).ravel() for world in (first, second))
        possible = likely > 0
        worst = max(worst, float((likely[possible] / unlikely[possible]).max()))
    return math.log(worst)


@pytest.mark.parametrize("looks", [(1, None), (None, 3), (2, 1), (0, 2), (None, None)])
def test_the_product_over_windows_is_what_all_windows_together_lose(looks: Moment) -> None:
    found = PeriodEnumeration(consecutive_windows(ONE_BIT, 2), [looks])()
    assert found.loss == pytest.approx(at_once(ONE_BIT, looks), abs=1e-12)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_claims_are_reached_and_what_they_must_not_leave_out_exceeds_them(case: Case) -> None:
    finding = audit_case(case)
    assert finding.is_expected
    assert finding.exact is not None
    if case.kind == "production":
        assert finding.exact == pytest.approx(case.claimed, rel=1e-6)  # the claim is rounded up, and no larger
    else:
        assert finding.exact > case.claimed * 1.05


def test_rows_that_two_windows_share_cannot_be_the_worst_for_each() -> None:
    """Coming only after the copy, against only before it, is the worst for a window with a copy that has such a slot.

    For one that was copied before both slots it is nothing, so a shared pair loses less than the product of the worst.
    """
    first, same, other = (PeriodWindow(ONE_BIT, (*slots, release())) for slots in ((0, 1), (0, 1), (2, 3)))
    shared = PeriodEnumeration((first, same), [(1, 0)])().loss
    independent = PeriodEnumeration((first, other), [(1, 0)])().loss
    assert shared < independent - 1e-3


def test_half_of_the_gaussian_noise_exceeds_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in CASES if case.name == "One person, two windows of ContinualCount, delta 1e-06")
    kind = type(case.algorithm.engine)
    real = kind.law
    monkeypatch.setattr(kind, "law", lambda engine, *epoch: DiscreteGaussian.at_least(real(engine, *epoch).sigma / 2))
    finding = audit_case(case)
    assert finding.verdict == "fails"
    assert finding.exact is not None
    assert finding.exact > 1.9 * case.claimed


def test_two_copies_of_one_window_have_no_finite_loss() -> None:
    """As a window without noise has none; `known_mistakes` has two copies of one state."""
    silent = type("OptBern", (OptBern,), {"law": property(lambda self: _without_noise(OptBern.law.fget(self)))})  # type: ignore[attr-defined]
    windows = consecutive_windows(silent(universe=1, epsilon=1.0), 2)
    found = PeriodEnumeration(windows, one_copy([len(window.steps) for window in windows]))()
    assert math.isinf(found.loss)
    assert "copied: window" in found.witness


def _without_noise(law: Any) -> Any:
    from dataclasses import replace

    from panstream.primitives.noise import Coin

    return replace(law, absent=Coin(0), present=Coin(1))
