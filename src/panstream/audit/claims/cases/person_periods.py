"""One person over a period of several windows, of which one copy shows those that are readable at one moment.

Claims are computed as `explain` and the ledger compute them: docs/proofs/person-period.md, Theorem 1. The controls are
what that theorem must not leave out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from panstream.algorithms.continual.sums import ContinualCount
from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.audit.claims.case import Case
from panstream.audit.claims.person_periods import (
    GaussianPeriod,
    Moment,
    PeriodEnumeration,
    PeriodWindow,
    consecutive_windows,
    one_copy,
)
from panstream.privacy.person_loss import PERIOD, PersonShare, PersonTotal, WindowLoss
from panstream.testing.enumeration import Stream, release, tick, update

_ONE_BIT = OptBern(universe=1, epsilon=1.0)
_TWO_ANSWERS = OptBern(universe=1, epsilon=1.0, releases=2)
_CELL = Bitmap(epsilon=1.5, buckets=1, levels=1)
_CLOSED = len(consecutive_windows(_ONE_BIT, 1)[0].steps)  # steps of a window, the last of which is its answer


def _share(algorithm: Any, windows: int, *, open_: int = 1, opening: int = 0) -> PersonShare:
    loss = algorithm.window_loss()
    return PersonShare(name="query", loss=loss, windows=windows, open=open_, opening=opening, bounded_by="shape")


def _case(
    name: str, shares: Sequence[PersonShare], windows: tuple[PeriodWindow, ...], moments: Sequence[Moment], **rest: Any
) -> Case:
    options = {"kind": "production", "algorithm": windows[0].algorithm, **rest}
    claimed = options.pop("claimed", PersonTotal(period=PERIOD, shares=tuple(shares)).epsilon)
    return Case(
        name=f"One person, {name}",
        claimed=claimed,
        exact=PeriodEnumeration(windows, moments, window=(-3, 5)),
        **options,
    )


def _periods() -> Iterator[Case]:
    """Yield two and three windows, of bits and of cells, with one answer and two, and windows of other lengths."""
    for algorithm, name in ((_ONE_BIT, "OptBern"), (_TWO_ANSWERS, "OptBern, two answers"), (_CELL, "Bitmap")):
        for count, number in ((2, "two"), (3, "three")):
            windows = consecutive_windows(algorithm, count, releases=algorithm.releases)
            yield _case(
                f"{number} windows of {name}",
                [_share(algorithm, count)],
                windows,
                one_copy([len(window.steps) for window in windows]),
            )
    short, later = consecutive_windows(_ONE_BIT, 2)
    long = PeriodWindow(_ONE_BIT, (0, 1, 2, 3, release()))
    at_once: list[Moment] = [
        *((step, None, step) for step in range(3)),
        (3, None, 2),
        *((None, step, 2 + step) for step in range(4)),
    ]
    yield _case(
        "two windows and one across both", [_share(_ONE_BIT, 2), _share(_ONE_BIT, 1)], (short, later, long), at_once
    )
    windows = consecutive_windows(_ONE_BIT, 3)
    boundary: list[Moment] = [moment for step in range(_CLOSED + 1) for moment in ((step, 0, None), (None, step, 0))]
    yield _case("old and new windows readable at once", [_share(_ONE_BIT, 3, opening=1)], windows, boundary)
    yield _case("two of three windows open for late rows", [_share(_ONE_BIT, 3, open_=2)], windows, _two_open())


def _gaussian() -> Iterator[Case]:
    """Yield windows of a count with a delta, of which each holds at most two rows of the person."""
    rows = 2
    delta = 1e-6
    count = ContinualCount(epsilon=1.0, delta=delta, horizon=1, contributions=rows)
    nothing = update([])
    splits = [(early, late) for early, late in product(range(rows + 1), repeat=2) if 0 < early + late <= rows]
    streams: list[Stream] = [(update([1] * early), update([1] * late), tick()) for early, late in splits]

    def case(name: str, windows: int, moments: Sequence[Moment], **options: Any) -> Case:
        share = PersonShare(name="query", loss=count.window_loss(), windows=windows, contributions=rows)
        return Case(
            name=f"One person, {name}, delta {delta:g}",
            claimed=PersonTotal(period=PERIOD, shares=(share,), delta=delta).epsilon,
            exact=GaussianPeriod(count, (nothing, nothing, tick()), streams, moments, delta),
            algorithm=count,
            **{"kind": "production", **options},
        )

    yield case("two windows of ContinualCount", 2, one_copy([_CLOSED] * 2))
    yield case("three windows of ContinualCount", 3, one_copy([_CLOSED] * 3))
    yield case(
        "copies of two windows charged as one",
        2,
        list(product(range(_CLOSED + 1), repeat=2)),
        kind="control",
        represents="a backup, or an intruder who comes back in the next window: two states, each behind half its noise",
    )


def _two_open() -> list[Moment]:
    """Return the moments at which two neighbours of three windows are open."""
    steps = range(_CLOSED + 1)
    return [moment for one, two in product(steps, steps) for moment in ((one, two, None), (None, one, two))]


def _left_out() -> Iterator[Case]:
    """Yield what is lost where the account leaves something out."""
    windows = consecutive_windows(_ONE_BIT, 2)
    three = consecutive_windows(_ONE_BIT, 3)
    steps = range(_CLOSED + 1)
    yield _case(
        "copies of two windows charged as one",
        [_share(_ONE_BIT, 2)],
        windows,
        list(product(steps, steps)),
        kind="control",
        represents="a backup, or an intruder who comes back in the next window: the claim covers one copy",
    )
    yield _case(
        "two open windows charged as one",
        [_share(_ONE_BIT, 3)],
        three,
        _two_open(),
        kind="control",
        represents="windows that wait for late rows: a copy shows each of them with rows of the person",
    )
    yield _case(
        "lost state started again and charged once",
        [_share(_ONE_BIT, 2)],
        three,
        one_copy([_CLOSED] * 3),
        kind="control",
        represents="a process that ends without storing its state: its window begins again with other noise",
    )
    law = _TWO_ANSWERS.law
    never, once = (
        float(1 - coin.probability) + float(coin.probability) * math.exp(2 * law.noise.kappa)
        for coin in (law.absent, law.present)
    )
    far_out = WindowLoss(joint=1.0, answers=math.log(once / never), unused=1.0)
    yield _case(
        "all answers far out taken for the worst",
        [PersonShare(name="query", loss=far_out, windows=2, open=0)],
        consecutive_windows(_TWO_ANSWERS, 2, slots=1, releases=2),
        [(None, None)],
        kind="control",
        represents="several answers of one state: coming again between two of them, on different sides, loses more",
    )


CASES = (_periods, _gaussian, _left_out)
