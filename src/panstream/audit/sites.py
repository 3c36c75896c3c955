"""Two bitmaps at two sites and their noisy union, driven as one algorithm so that the enumerator can follow a merge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.audit.exact import Scenario
from panstream.codec import FieldLayout, noised, public
from panstream.distinct.bitmap import Bitmap
from panstream.distinct.counting import BitmapState
from panstream.distinct.merged import MergedBitmap
from panstream.estimate import Estimate
from panstream.randomness import Source
from panstream.testing.enumerate import Step, release, update, worlds

__all__ = ["SitesState", "TwoSites", "both_sites_seen", "merged_state_seen"]


@dataclass(slots=True)
class SitesState:
    """The cells of both sites, then those of the merged bitmap, and how far things have come."""

    cells: NDArray[np.uint8] = noised()
    merged: int = public()
    released: int = public()


@dataclass(frozen=True)
class TwoSites:
    """Steps: ``update(site=0, 1, 2)`` (2 is both), ``look_first``, ``look_second``, ``join``, ``look_merged``, ``release``."""

    site: Bitmap
    user: int
    state_type: ClassVar[type[Any]] = SitesState

    @cached_property
    def merged(self) -> MergedBitmap:
        """Return what the two sites become."""
        with Source() as source:
            states = [self.site.begin(source) for _ in range(2)]
            algorithm, _ = self.site.merge(states[0], self.site, states[1], source)
        assert isinstance(algorithm, MergedBitmap)
        return algorithm

    def claim(self) -> Any:
        """Return the claim of the merged bitmap."""
        return self.merged.claim()

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return the cells of both sites, or of the union."""
        return {
            "cells": FieldLayout("bits", (None,)),
            "merged": FieldLayout("int", at_least=0, below=2),
            "released": FieldLayout("int", at_least=0),
        }

    def parameters(self) -> dict[str, Any]:
        """Return what the bytes name."""
        return {"user": self.user}

    def begin(self, source: Source) -> SitesState:
        """Start both sites."""
        cells = np.concatenate([self.site.begin(source).bits for _ in range(2)])
        return SitesState(cells=cells, merged=0, released=0)

    def batch(self, ids: Any = (), *, site: int = -1) -> _Where:
        """Return at which site the user comes; -1 is nowhere."""
        return _Where(site)

    def update(self, state: SitesState, batch: _Where, source: Source) -> None:
        """Let the user come."""
        if batch.site < 0:
            return
        if state.merged:
            self._put(state, 0, self.merged, source)
            return
        for place in (0, 1) if batch.site == 2 else (batch.site,):
            self._put(state, place, self.site, source)

    def _put(self, state: SitesState, place: int, algorithm: Any, source: Source) -> None:
        held = self._held(state, place)
        algorithm.update(held, algorithm.batch([self.user]), source)
        state.cells[place : place + 1] = held.bits

    def _held(self, state: SitesState, place: int) -> BitmapState:
        bits = state.cells[place : place + 1].copy()
        return BitmapState(bits=bits, frozen=np.empty((0, 1), np.uint8), released=state.released)

    def join(self, state: SitesState, source: Source) -> None:
        """Merge the two sites."""
        first, second = self._held(state, 0), self._held(state, 1)
        state.cells = self.site.merge(first, self.site, second, source)[1].bits
        state.merged = 1

    def look_first(self, state: SitesState, source: Source) -> Estimate:
        """Show the first site's cell."""
        return self._shown(int(state.cells[0]))

    def look_second(self, state: SitesState, source: Source) -> Estimate:
        """Show the second site's cell."""
        return self._shown(int(state.cells[1]))

    def look_merged(self, state: SitesState, source: Source) -> Estimate:
        """Show the merged cell."""
        return self._shown(int(state.cells[0]))

    def _shown(self, cell: int) -> Estimate:
        return Estimate(value=float(cell), standard_error=0.0, claim=self.claim(), released=(cell,))

    def release(self, state: SitesState, source: Source) -> Estimate:
        """Publish the merged count."""
        held = self._held(state, 0)
        estimate = self.merged.release(held, source)
        state.released = held.released
        return estimate


@dataclass(frozen=True, slots=True)
class _Where:
    site: int

    def wipe(self) -> None:
        """Nothing was copied."""


_COMING = [update(site=site) for site in (-1, 0, 1, 2)]


def both_sites_seen(releases: int = 1) -> Scenario:
    """Return: the user at any sites before and after a look at both, then the merge and the releases."""
    slots: list[Step | None] = [
        None,
        Step("look_first"),
        Step("look_second"),
        None,
        Step("join"),
        *[release()] * releases,
    ]
    return Scenario(worlds(slots, _COMING), (None,))


def merged_state_seen(releases: int = 1, *, late: bool = False) -> Scenario:
    """Return: a look at one site, the merge, a look at the union before the releases or after; the user comes anywhere."""
    look, published = [Step("look_merged")], [release()] * releases
    tail: list[Step | None] = [None, *published, None, *look] if late else [None, *look, None, *published]
    head: list[Step | None] = [None, Step("look_first"), None, Step("join")]
    streams = [(*before, *after) for before in worlds(head, _COMING) for after in worlds(tail, _COMING[:2])]
    return Scenario(streams, (None,))
