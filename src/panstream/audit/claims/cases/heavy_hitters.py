"""Frequent items: the linear program on all cells, and controls without start noise, release noise or a restart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.heavy_hitters.prefix_sketch import FrequentItems, FrequentState
from panstream.audit.claims.case import Case
from panstream.audit.claims.exact import linear_case, with_update_replaced
from panstream.core.estimate import Estimate
from panstream.primitives.noise import NoiseSource
from panstream.testing.enumeration import Step, refresh, release, update


class _Shown(FrequentItems):
    """The library's sketch, whose release has all its cells: everything else is computed from them."""

    def read(self, levels: NDArray[np.int32], rows: NDArray[np.int32], *, draws: int) -> Any:
        """Return an estimate that releases the cells."""
        cells = (*levels.ravel().tolist(), *rows.ravel().tolist())
        return Estimate(value=0.0, standard_error=0.0, claim=self.claim(), released=cells)

    def joined(self, state: FrequentState, rng: NoiseSource) -> Estimate:
        """Merge with a site without events; publishes nothing."""
        mine = replace(state)
        _, both = self.merge(mine, self, FrequentItems.initial_state(self, rng), rng)
        state.levels = both.levels
        state.rows = both.rows
        state.draws = both.draws
        return Estimate(value=0.0, standard_error=0.0, claim=self.claim())


class _WithSecondSite(_Shown):
    """A release together with that of another site, which had an event; their sum is published too."""

    def release(self, state: FrequentState, rng: NoiseSource) -> Any:
        """Publish the cells of both sites and their sums."""
        other = FrequentItems.initial_state(self, rng)
        self.update(other, self.batch(["b"]), rng)
        cells = [_Shown.release(self, site_state, rng).released for site_state in (state, other)]
        both = tuple(map(sum, zip(*cells, strict=True)))
        return Estimate(value=0.0, standard_error=0.0, claim=self.claim(), released=(*cells[0], *cells[1], *both))


class _NoStart(_Shown):
    """Starts with zeros."""

    def initial_state(self, rng: NoiseSource) -> FrequentState:
        state = FrequentItems.initial_state(self, rng)
        state.levels.fill(0)
        state.rows.fill(0)
        return state


class _NoFresh(_Shown):
    """Publishes the state without fresh noise."""

    def release(self, state: FrequentState, rng: NoiseSource) -> Any:
        shown = self.read(state.levels, state.rows, draws=1)
        fresh = self.initial_state(rng)
        state.levels = fresh.levels
        state.rows = fresh.rows
        return shown


class _PaidOnce(_Shown):
    """Noise for as many cells as a short name has symbols."""

    @property
    def _budget(self) -> tuple[float, float, int, int, int]:
        return self.epsilon, self.delta, self.levels // self.repeats, self.rows, 1


class _NotRestarted(_Shown):
    """Continues to count after a release instead of starting again."""

    def release(self, state: FrequentState, rng: NoiseSource) -> Any:
        """Publish with fresh noise without a restart."""
        levels = state.levels.copy()
        rows = state.rows.copy()
        self._add_noise(levels, rows, rng)
        return self.read(levels, rows, draws=2)


class _Unnoticed(_Shown):
    """An intrusion that is not noticed, before another."""

    def refresh(self, state: FrequentState, rng: NoiseSource) -> None:
        """Leave the copied state unchanged."""


def _frequent_cases() -> Iterator[Case]:
    """Yield one release, several, announced intrusions, users, and the controls."""
    tiny = _Shown(epsilon=1.0, max_item_bytes=1, width=16, rows=2, row_width=4)
    event = update(["b"])
    one = [event, event, release()]
    two = [event, release(), event, release(), event]
    seen = [event, refresh(), event, refresh(), event, release()]

    def case(name: str, algorithm: FrequentItems, stream: list[Step], **options: Any) -> Case:
        neighbours = with_update_replaced(stream, update(["b", "a"]))
        case = linear_case(algorithm, stream, neighbours, name=name, sampled=False, runs=200, **options)
        return case if case.kind == "control" else replace(case, algorithm=FrequentItems(**algorithm.parameters()))

    yield case("FrequentItems", tiny, one)
    yield case("FrequentItems, two lives", replace(tiny, releases=2), two)
    yield case("FrequentItems, announced intrusions", tiny, seen, looks=(None, 4, 5, 6))
    yield case("FrequentItems, two sites merged", tiny, [event, Step("joined"), event, release()])
    short = {"max_item_bytes": 2, "repeats": 2}
    yield case("FrequentItems, short names on twice the levels", replace(tiny, **short), one)
    sites = _WithSecondSite(**tiny.parameters())
    yield case("FrequentItems, published tables of two sites added", sites, one)
    users = replace(tiny, contributions=2)
    pair = [[update(["b", "a", "a"]), *one[1:]], [update(["b", "a"]), update(["b", "a"]), *one[2:]]]
    both = linear_case(users, one, pair, name="FrequentItems, a user of two events", sampled=False, runs=200)
    yield replace(both, algorithm=FrequentItems(**users.parameters()))

    def control(name: str, kind: type[FrequentItems], stream: list[Step], represents: str, **options: Any) -> Case:
        broken = kind(epsilon=1.0, max_item_bytes=1, width=16, rows=2, row_width=4, releases=4)
        return case(name, broken, stream, kind="control", represents=represents, **options)

    yield control("frequent items without start noise", _NoStart, one, "noise at the release only")
    yield control("frequent items without release noise", _NoFresh, one, "one noise for state and answer")
    yield control(
        "frequent items that go on after a release", _NotRestarted, two, "two releases of one life at one price"
    )
    paid_once = _PaidOnce(epsilon=1.0, width=16, rows=2, row_width=4, **short)
    yield case(
        "frequent items whose repeats are not paid for", paid_once, one, kind="control",
        represents="noise for the symbols of a short name, each of which is on two levels",
    )  # fmt: skip
    yield control(
        "frequent items with two looks", _Unnoticed, seen, "two looks without a refresh", looks=(None, 4, 5, 6)
    )


CASES = (_frequent_cases,)
