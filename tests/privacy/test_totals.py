"""Total loss of one unit by several claims: the ledger's totals against exact joint losses of shipped algorithms."""

import math
from itertools import product

import numpy as np
import pytest

from panstream import ContinualCount
from panstream.algorithms.density import OptBern
from panstream.algorithms.distinct import Bitmap
from panstream.algorithms.turnstile import LegendreCounter
from panstream.privacy import Claim, Ledger
from panstream.privacy.ledger import _units_touched
from panstream.testing.enumeration import Enumerator, Step, Stream, release, tick, update

DAY = 86_400.0
HOUR = 3600.0


COUNTS = list(product(range(2), repeat=2))  # how often a user comes in each of two steps; then there is an answer


def joint(parts: list[tuple[Enumerator, list[Stream]]], most: int = 1, *, any_two: bool = False) -> float:
    """Return the exact loss of ``most`` rows to all outputs of several algorithms, and to one look at all of their
    states.

    Two streams are neighbours if one has up to ``most`` rows more, or ``any_two`` of them. Noises are independent, so
    likelihoods multiply. The look comes before the answer: a counter's start noise is then seen, and a view within the
    window has its exact chance.
    """
    worst = 0.0
    for look in range(3):
        laws = [[enumerator.view_law(world, look) for world in worlds] for enumerator, worlds in parts]
        for (i, one), (k, other) in product(enumerate(COUNTS), repeat=2):
            added = [b - a for a, b in zip(one, other, strict=True)]
            if not any_two and (min(added) < 0 or sum(added) > most):
                continue
            for more, less in ((i, k), (k, i)):
                ratios = (max(law[more][v] / law[less][v] for v in law[more].keys() & law[less]) for law in laws)
                worst = max(worst, math.log(math.prod(ratios)))
    return worst


def streams(one: Step, end: Step) -> list[Stream]:
    ((name, values),) = one.arguments
    return [(*(Step(one.verb, ((name, values * count),)) for count in pair), end) for pair in COUNTS]


DENSITY = OptBern(universe=1, epsilon=1.0)
VISITS = ContinualCount(epsilon=1.0, horizon=1)
BITMAP = Bitmap(epsilon=1.0, buckets=1, levels=1)
LEGENDRE = LegendreCounter(epsilon=0.7, universe=1, prime=7)


def parts_of(*algorithms: object) -> list[tuple[Enumerator, list[Stream]]]:
    parts = []
    for algorithm in algorithms:
        if isinstance(algorithm, ContinualCount):
            parts.append((Enumerator(algorithm, window=(-2, 4)), streams(update(values=[1]), tick())))
        else:
            parts.append((Enumerator(algorithm, window=(-1, 2)), streams(update([0]), release())))
    return parts


def ledger_of(*algorithms: object) -> Ledger:
    ledger = Ledger()
    for algorithm in algorithms:
        ledger.charge(type(algorithm).__name__, algorithm.claim())  # type: ignore[attr-defined]
    return ledger


@pytest.mark.slow
@pytest.mark.parametrize("algorithms", [(DENSITY, VISITS), (LEGENDRE, VISITS), (DENSITY, BITMAP, VISITS)])
def test_one_event_loses_at_most_the_total_and_more_than_any_claim_alone(algorithms: tuple[object, ...]) -> None:
    lost = joint(parts_of(*algorithms))
    total, _ = ledger_of(*algorithms).total("event")
    assert max(algorithm.claim().epsilon for algorithm in algorithms) < lost <= total  # type: ignore[attr-defined]


@pytest.mark.parametrize("algorithms", [(DENSITY, BITMAP), (DENSITY, LEGENDRE)])
def test_one_user_loses_the_total_whatever_she_does(algorithms: tuple[object, ...]) -> None:
    total, _ = ledger_of(*algorithms).total("user")
    assert 0.95 * total < joint(parts_of(*algorithms), any_two=True) <= total


@pytest.mark.slow
def test_density_and_count_lose_more_than_one_together() -> None:
    """DENSITY per user at 1 and COUNT(*) per event at 1: an event is in both, and a budget of 1 per event was kept
    on paper.
    """
    lost = joint(parts_of(DENSITY, VISITS))
    assert lost >= 1.35
    ledger = ledger_of(DENSITY, VISITS)
    assert ledger.total("event") == (2.0, 0.0)
    assert lost <= 2.0
    assert ledger.total("user") == (math.inf, 0.0)


@pytest.mark.slow
def test_a_bound_on_contributions_bounds_the_user_and_a_share_of_it_the_event() -> None:
    counted = ContinualCount(epsilon=1.0, horizon=1, contributions=2)
    ledger = ledger_of(DENSITY, counted)
    assert ledger.total("user") == (2.0, 0.0)
    assert ledger.total("event") == (1.5, 0.0)
    assert 1.0 < joint(parts_of(DENSITY, counted), 1) <= 1.5
    assert 1.8 < joint(parts_of(DENSITY, counted), 2) <= 2.0


@pytest.mark.slow
def test_without_a_bound_a_user_loses_with_every_event() -> None:
    assert [joint(parts_of(VISITS), most) for most in (1, 2)] == pytest.approx([1.0, 2.0])


def entry(unit: str, adjacency: str = "add-remove", window: float | None = None) -> Claim:
    return Claim(epsilon=1.0, unit=unit, adjacency=adjacency, window=window)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("unit", "window", "claim", "times"),
    [
        ("event", None, entry("event"), 1),
        ("event", None, entry("user"), 1),
        ("event", None, entry("user-window", window=DAY), 1),
        ("event", None, entry("edge"), 1),
        ("event", None, entry("slot", "replace"), 1),
        ("user-window", DAY, entry("user"), 1),
        ("user-window", DAY, entry("user-window", window=DAY), 1),
        ("user-window", DAY, entry("user-window", window=HOUR), 24),
        ("user-window", HOUR, entry("user-window", window=DAY), 1),
        ("user-window", 90.0, entry("user-window", window=60.0), 2),
        ("user-window", 60.0, entry("user-window", window=90.0), 2),
        ("user", None, entry("user"), 1),
        ("slot", None, entry("slot"), 1),
        ("user", None, entry("event"), None),
        ("user", None, entry("user-window", window=DAY), None),
        ("user", None, entry("slot", "replace"), None),
        ("user", None, entry("edge"), None),
        ("user-window", DAY, entry("event"), None),
        ("user-window", DAY, entry("slot", "replace"), None),
        ("user-window", None, entry("user-window", window=DAY), None),
        ("slot", None, entry("event"), None),
        ("edge", None, entry("event"), None),
        ("edge", None, entry("user"), None),
        ("record", None, entry("event"), None),
        ("event", None, entry("record", "replace"), None),
        ("event", None, entry("event", "replace"), None),
        ("user", None, entry("user", "replace"), None),
    ],
)
def test_how_many_units_of_a_claim_one_unit_touches(
    unit: str, window: float | None, claim: Claim, times: int | None
) -> None:
    touched = _units_touched(unit, "add-remove", window, claim)  # type: ignore[arg-type]
    assert (touched == times) if times is not None else isinstance(touched, str)
    twice = _units_touched(unit, "replace", window, claim)  # type: ignore[arg-type]
    if claim.adjacency == "add-remove" and times is not None:
        assert twice == 2 * times  # one is removed and another is added


@pytest.mark.parametrize("length", [1, 2, 3, 5, 6, 24])
@pytest.mark.parametrize("other", [1, 2, 3, 4, 7, 24])
def test_windows_of_two_lengths_meet_as_often_as_counted(length: int, other: int) -> None:
    """All windows of ``length`` in a common period, against those of the ``other`` length that share a second with
    them.
    """
    seconds = np.arange(length * other * 2)
    pairs = {(int(a), int(b)) for a, b in zip(seconds // length, seconds // other, strict=True)}
    most = max(sum(a == first for a, _ in pairs) for first in {a for a, _ in pairs})
    assert _units_touched("user-window", "add-remove", float(length), entry("user-window", window=float(other))) == most


def test_replace_totals_and_deltas() -> None:
    ledger = Ledger()
    ledger.charge("a", Claim(epsilon=0.5, delta=1e-6, unit="user"))
    ledger.charge("b", Claim(epsilon=0.25, unit="user", adjacency="replace"))
    assert ledger.total("user", "replace") == (1.25, pytest.approx(1e-6 * (1 + math.exp(0.5))))
    assert ledger.total("user") == (math.inf, 1e-6)
    assert "replaced by another" in ledger.totals()[0].reason
    hours = Ledger()
    hours.charge("hour", Claim(epsilon=0.1, delta=1e-9, unit="user-window", window=HOUR))
    epsilon, delta = hours.total("user-window", window=3 * HOUR)
    assert 0.3 <= epsilon < 0.3 + 1e-15
    assert delta == pytest.approx(1e-9 * (1 + math.exp(0.1) + math.exp(0.2)))
