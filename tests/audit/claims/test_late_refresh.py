"""Announced copies that are noticed late, from the shipped code: a row comes between the copy and the refresh.

Every audited stream with an announced copy is changed so that the refresh comes one step later. Algorithms that add
noise keep their claim; those that freeze the state have no finite loss.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from panstream.algorithms.density import OptBern, RefreshableCroppedMean
from panstream.algorithms.distinct import Bitmap, TogglingBitmap
from panstream.audit import cases
from panstream.audit.claims.case import Case
from panstream.audit.claims.exact import Enumeration, LinearProgram, Scenario
from panstream.testing.enumeration import Enumerator, Step, copied, enumerate_streams, late_refresh, release, update

NOTHING = update([])
APPEAR = update([0])
FREEZING = [
    OptBern(universe=1, epsilon=2.0, announced=1),
    Bitmap(epsilon=2.0, buckets=1, levels=1, announced=1),
    TogglingBitmap(epsilon=2.0, buckets=1, levels=1, announced=1),
    RefreshableCroppedMean(universe=1, epsilon=2.0, crop=2),
]


def late(stream: Sequence[Step]) -> tuple[Step, ...]:
    """Return the stream with every refresh one step after its copy."""
    steps: list[Step] = []
    for step in stream:
        if step.verb == "refresh":
            steps.append(copied())
            continue
        follows = bool(steps) and steps[-1].verb == "copied"
        steps += [step, late_refresh()] if follows else [step]
    return tuple(steps)


def last_phase(stream: Sequence[Step]) -> tuple[int | None, ...]:
    """Return no look, and every look after the last refresh."""
    last = max(at for at, step in enumerate(stream, 1) if step.verb == "late_refresh")
    return (None, *range(last, len(stream) + 1))


def noticed_late(case: Case) -> Any:
    """Return what measures a case with late refreshes; None where it has no announced copy."""
    exact: Any = case.exact
    if isinstance(exact, LinearProgram) and any(step.verb == "refresh" for step in exact.stream):
        stream = late(exact.stream)
        return replace(
            exact, stream=stream, neighbours=[late(one) for one in exact.neighbours], looks=last_phase(stream)
        )
    if isinstance(exact, Enumeration):
        scenarios = [
            Scenario([late(one) for one in each.streams], last_phase(late(each.streams[0])))
            for each in exact.scenarios
            if each.streams and any(step.verb == "refresh" for step in each.streams[0])
        ]
        return replace(exact, scenarios=scenarios) if scenarios else None
    return None


PRODUCTION = [case for case in cases() if case.kind == "production" and hasattr(case.algorithm, "refresh")]
ADDING_NOISE = {
    case.name: (case, exact)
    for case in PRODUCTION
    if not case.algorithm.freezes and (exact := noticed_late(case)) is not None
}


def test_claims_say_which_algorithms_freeze() -> None:
    announced = [case.algorithm for case in PRODUCTION if case.algorithm.claim().intrusions.announced]
    assert all(each.freezes == each.claim().intrusions.freezes for each in announced)
    assert {type(each).__name__ for each in announced if each.freezes} >= {type(each).__name__ for each in FREEZING}
    assert not any(case.algorithm.claim().intrusions.freezes for case in PRODUCTION if not case.algorithm.freezes)
    text = str(FREEZING[0].claim())
    assert "the announced one is covered only if no row was applied between the copy and the refresh" in text
    assert "at any time" not in text


@pytest.mark.slow
@pytest.mark.parametrize("name", ADDING_NOISE)
def test_fresh_noise_covers_a_copy_however_late_it_is_noticed(name: str) -> None:
    case, exact = ADDING_NOISE[name]
    assert exact().loss <= case.claimed + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", FREEZING, ids=lambda each: type(each).__name__)
def test_one_row_between_copy_and_refresh_makes_the_answers_alone_tell_it(algorithm: Any) -> None:
    """Nobody looks a second time: the answer uses the exact number of frozen ones."""
    slots = [None, copied(), None, late_refresh(), release()]
    loss = Enumerator(algorithm, window=(-1, 2)).joint_loss(enumerate_streams(slots, [NOTHING, APPEAR]), looks=[None])
    assert math.isinf(loss.epsilon)


@pytest.mark.parametrize("algorithm", FREEZING[:3], ids=lambda each: type(each).__name__)
def test_without_a_row_in_between_the_claim_is_exact(algorithm: Any) -> None:
    slots = [None, copied(), late_refresh(), None, None, release()]
    streams = enumerate_streams(slots, [NOTHING, APPEAR])
    loss = Enumerator(algorithm, window=(-1, 2)).joint_loss(streams, looks=[None, *range(3, 7)])
    assert loss.epsilon == pytest.approx(algorithm.claim().epsilon, rel=1e-9)


@pytest.mark.parametrize("algorithm", FREEZING, ids=lambda each: type(each).__name__)
def test_a_copy_that_rows_followed_is_not_frozen_and_keeps_the_claim(algorithm: Any) -> None:
    """Left alone, the state loses no more than the claim for that one copy, whenever it was made."""
    monitor = algorithm.start()
    monitor.update([0])
    before = monitor.to_bytes()
    for rows, reason in ((True, "rows were applied since"), (None, "rows may have been applied since")):
        assert str(monitor.refresh(rows_since_copy=rows)) == f"not covered: {reason}"
        assert monitor.to_bytes() == before
    streams = enumerate_streams([None, None, None, release()], [NOTHING, APPEAR])
    loss = Enumerator(algorithm, window=(-1, 2)).joint_loss(streams)
    assert loss.epsilon <= algorithm.claim().epsilon + 1e-12
    assert monitor.refresh(rows_since_copy=False).covered
    assert monitor.to_bytes() != before
