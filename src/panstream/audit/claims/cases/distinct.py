"""Distinct counts: bitmaps of one or two cells, shards, toggles, and two merged sites.

A control claims for the merged sites what one site loses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.continual.grid import GridBatch
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.distinct.bitmap_base import BitmapCounter
from panstream.algorithms.distinct.merged_bitmap import MergedBitmap
from panstream.algorithms.distinct.sketch_bitmap import SketchBitmap
from panstream.algorithms.distinct.toggling_bitmap import TogglingBitmap
from panstream.algorithms.randomized_bits import BitState
from panstream.audit.claims.case import Case
from panstream.audit.claims.exact import Scenario, case_of, presence_scenarios
from panstream.core.estimate import Estimate
from panstream.primitives.codec import FieldLayout, noised, public
from panstream.primitives.inputs import items
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.noise import Coin, NoiseSource
from panstream.privacy.joint_loss import symmetric_loss
from panstream.privacy.sketch_loss import SketchCoins, sketch_coins
from panstream.testing.enumeration import Step, enumerate_streams, release, update


def _id_in(algorithm: BitmapCounter, cell: int) -> int:
    """Return the smallest integer whose cell is ``cell``."""
    with Scratch() as scratch:
        cells = np.concatenate([chunk.copy() for chunk in algorithm.table.rows(items(range(512)), scratch)])
    return int(np.flatnonzero(cells == cell)[0])


def _case(option: str, algorithm: BitmapCounter, scenarios: list[Scenario], *, reach: int = 1) -> Case:
    name = type(algorithm).__name__
    return case_of(
        algorithm,
        window=(-reach, algorithm.buckets + reach),
        name=f"{name}, {option}" if option else name,
        scenarios=scenarios,
        sampled=name == "Bitmap" and not option,
        runs=3_000,  # a release fits a likelihood
    )


def _bitmaps() -> Iterator[Case]:
    user = _id_in(Bitmap(epsilon=1.0, buckets=1, levels=1), 0)
    nothing = update([])
    appear = update([user])
    twice = update([user, user])
    for kind in (Bitmap, TogglingBitmap):
        toggling = kind is TogglingBitmap
        actions = (nothing, update(insert=[user]), update(delete=[user])) if toggling else (nothing, appear, twice)
        yield _case("", kind(epsilon=1.0, buckets=1, levels=1), presence_scenarios(*actions))
        if not toggling:
            levels = kind(epsilon=1.0, buckets=1, levels=2)
            yield _case("two levels", levels, presence_scenarios(nothing, update([_id_in(levels, 1)])))
        released = kind(epsilon=1.0, buckets=1, levels=1, releases=2)
        yield _case("two releases", released, presence_scenarios(nothing, appear, releases=2))
        phases = kind(epsilon=2.0, buckets=1, levels=1, announced=1)
        yield _case("one announced intrusion", phases, presence_scenarios(nothing, appear, announced=1), reach=0)
        split = kind(epsilon=1.0, epsilon_state=0.5, buckets=1, levels=1)
        yield _case("given split", split, presence_scenarios(*(actions if toggling else actions[:2])))
        shard = kind(epsilon=1.0, buckets=2, levels=1, shards=2, owned=1)
        mine = _id_in(shard, 1)
        other = _id_in(shard, 0)
        scenarios = presence_scenarios(update([other]), update([mine, other]))
        yield _case("a shard", shard, scenarios[:1] if toggling else scenarios)


class _PublishedAsStored(SketchBitmap):
    """Publishes the stored cells without fresh flips."""

    @property
    def coins(self) -> SketchCoins:
        """Return coins that leave every cell as it is."""
        never = Coin(0)
        return replace(sketch_coins(self.epsilon), raised=never, retained=never.complement)


class _ClosedAgain(SketchBitmap):
    """Closes the window again after a crash, from the cells as they were, with fresh flips."""

    def release(self, state: BitState, rng: NoiseSource) -> Estimate:
        """Publish cells that are not stored in place of those from which they were drawn."""
        stored = state.bits.copy()
        estimate = SketchBitmap.release(self, state, rng)
        state.bits[:] = stored
        state.released = 0
        return estimate


def _sketches() -> Iterator[Case]:
    sketch = SketchBitmap(epsilon=1.0, buckets=1, levels=1)
    user = _id_in(sketch, 0)
    nothing = update([])
    come = update([user])
    streams = enumerate_streams([None, None, release()], [nothing, come, update([user, user])])
    yield _case("", sketch, [Scenario(streams)], reach=0)
    shard = SketchBitmap(epsilon=1.0, buckets=2, levels=1, shards=2, owned=1)
    other = _id_in(shard, 0)
    actions = [update([other]), update([_id_in(shard, 1), other])]
    yield _case("a shard", shard, [Scenario(enumerate_streams([None, None, release()], actions))], reach=0)
    yield case_of(
        _PublishedAsStored(epsilon=1.0, buckets=1, levels=1),
        enumerate_streams([None, None, release()], [nothing, come]),
        window=(0, 1),
        name="Stored cells published as they are",
        kind="control",
        claimed=sketch.claim().epsilon,
        represents="a cell that differs from what was copied earlier proves a visit in between",
        sampled=False,
    )
    yield case_of(
        _ClosedAgain(epsilon=1.0, buckets=1, levels=1),
        enumerate_streams([None, None, release(), release()], [nothing, come]),
        window=(0, 1),
        name="Window closed again after a crash",
        kind="control",
        claimed=sketch.claim().epsilon,
        represents="a sketch that was shown before it was stored is drawn again",
        sampled=False,
    )


@dataclass(slots=True)
class _SitesState:
    """The cells of both sites, or after the merge those of the union, and the public progress."""

    cells: NDArray[np.uint8] = noised()
    merged: int = public()
    released: int = public()


@dataclass(frozen=True)
class _TwoSites:
    """Two bitmaps at two sites and their noisy union, as one algorithm, so that a merge can be enumerated.

    Steps: ``update(site=0, 1, 2)`` (2 is both), ``look_first`` (a copy of the first site, later of the union),
    ``look_second``, ``join``, ``release``.
    """

    site: Bitmap
    user: int
    state_type: ClassVar[type[Any]] = _SitesState

    @cached_property
    def merged(self) -> MergedBitmap:
        """Return the algorithm of the merged sites."""
        with NoiseSource() as rng:
            states = [self.site.initial_state(rng) for _ in range(2)]
            algorithm, _ = self.site.merge(states[0], self.site, states[1], rng)
        assert isinstance(algorithm, MergedBitmap)
        return algorithm

    def claim(self) -> Any:
        """Return the claim of the merged bitmap."""
        return self.merged.claim()

    def layout(self) -> Mapping[str, FieldLayout]:
        """Return the layout of the cells and the progress."""
        return {
            "cells": FieldLayout("bits", (None,)),
            "merged": FieldLayout("int", at_least=0, below=2),
            "released": FieldLayout("int", at_least=0),
        }

    def parameters(self) -> dict[str, Any]:
        return {"user": self.user}

    def initial_state(self, rng: NoiseSource) -> _SitesState:
        cells = np.concatenate([self.site.initial_state(rng).bits for _ in range(2)])
        return _SitesState(cells=cells, merged=0, released=0)

    def batch(self, ids: Any = (), *, site: int = -1) -> GridBatch:
        """Return the site of the user's event; -1 for none."""
        return GridBatch(np.array([site], np.int64))

    def update(self, state: _SitesState, batch: GridBatch, rng: NoiseSource) -> None:
        """Add the user's event; after the merge there is one site only."""
        site = int(batch.rows[0])
        if site < 0:
            return
        algorithm: Any = self.merged if state.merged else self.site
        for index in (0,) if state.merged else (0, 1) if site == 2 else (site,):
            site_state = self._site_state(state, index)
            algorithm.update(site_state, algorithm.batch([self.user]), rng)
            state.cells[index : index + 1] = site_state.bits

    def _site_state(self, state: _SitesState, index: int) -> BitState:
        bits = state.cells[index : index + 1].copy()
        return BitState(bits=bits, frozen=np.empty((0, 1), np.uint8), released=state.released)

    def join(self, state: _SitesState, rng: NoiseSource) -> None:
        first, second = (self._site_state(state, index) for index in (0, 1))
        state.cells = self.site.merge(first, self.site, second, rng)[1].bits
        state.merged = 1

    def look_first(self, state: _SitesState, rng: NoiseSource) -> Estimate:
        """Return the first site's cell, or that of the union, as an output."""
        return self._shown(int(state.cells[0]))

    def look_second(self, state: _SitesState, rng: NoiseSource) -> Estimate:
        """Return the second site's cell as an output."""
        return self._shown(int(state.cells[1]))

    def _shown(self, cell: int) -> Estimate:
        return Estimate(value=float(cell), standard_error=0.0, claim=self.claim(), released=(cell,))

    def release(self, state: _SitesState, rng: NoiseSource) -> Estimate:
        union = self._site_state(state, 0)
        estimate = self.merged.release(union, rng)
        state.released = union.released
        return estimate


def _merged() -> Iterator[Case]:
    look = Step("look_first")
    join = Step("join")
    coming = [update(site=site) for site in (-1, 0, 1, 2)]
    # R = 3 and K = 5/4, the figures of docs/proofs/bitmap.md
    state = math.log(3)
    kappa = math.log(1.25)
    for releases in (1, 2):
        published = [release()] * releases
        site = Bitmap(
            epsilon=symmetric_loss(state, kappa, releases), epsilon_state=state, buckets=1, levels=1, releases=releases
        )
        sites = _TwoSites(site, _id_in(site, 0))
        # Events at any sites before and after a copy of both; or a copy of one, and of the union before or after its
        # release.
        both = enumerate_streams([None, look, Step("look_second"), None, join, *published], coming)
        tails: list[list[Step | None]] = [[None, look, None, *published], [None, *published, None, look]]
        heads = enumerate_streams([None, look, None, join], coming)
        union = [[(*head, *tail) for head in heads for tail in enumerate_streams(slots, coming[:2])] for slots in tails]
        seen = [Scenario(streams, (None,)) for streams in (both, *union)]
        name = "MergedBitmap" if releases == 1 else "MergedBitmap, two releases"
        case = case_of(sites, window=(-1, 2), name=name, scenarios=seen, sampled=False)
        yield replace(case, algorithm=sites.merged)
        if releases == 1:
            yield case_of(
                sites,
                both,
                window=(-1, 2),
                looks=(None,),
                name="Noisy OR with the single-state claim",
                kind="control",
                claimed=symmetric_loss(sites.merged.law.epsilon_state, kappa),
                represents="a user may be at every site, so the sites' losses add up "
                "(Sketch-Flip-Merge read as pan-private)",
                sampled=False,
            )


CASES = (_bitmaps, _sketches, _merged)
