"""Distinct: bitmaps of one or two cells, shards, toggles, and two sites that are merged."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from panstream.audit.case import Case
from panstream.audit.exact import Enumeration, Scenario
from panstream.audit.shipped.density import presence_scenarios
from panstream.audit.sites import TwoSites, both_sites_seen, merged_state_seen
from panstream.batch import items
from panstream.distinct.bitmap import Bitmap
from panstream.distinct.counting import CellCounter
from panstream.distinct.toggling import TogglingBitmap
from panstream.privacy.joint import symmetric_loss
from panstream.scratch import Scratch
from panstream.testing.enumerate import release, update, worlds

__all__ = ["distinct_cases", "id_in"]


def id_in(algorithm: CellCounter, cell: int) -> int:
    """Return the first integer that falls into ``cell``."""
    with Scratch() as scratch:
        found = np.concatenate([chunk.copy() for chunk in algorithm.table.rows(items(range(512)), scratch)])
    return int(np.flatnonzero(found == cell)[0])


def _case(name: str, algorithm: Any, scenarios: list[Scenario], *, reach: int = 1, sampled: bool = False) -> Case:
    return Case(
        name=name,
        kind="production",
        claimed=algorithm.claim().epsilon,
        exact=Enumeration(algorithm, (-reach, algorithm.buckets + reach), scenarios),
        algorithm=algorithm,
        sampled=sampled,
        quick_runs=500,
        runs=3_000,  # a release fits a likelihood
    )


def _bitmaps() -> list[Case]:
    one = {"buckets": 1, "levels": 1}
    plain = Bitmap(epsilon=1.0, **one)
    user = id_in(plain, 0)
    nothing, come, twice = update([]), update([user]), update([user, user])
    levels = Bitmap(epsilon=1.0, buckets=1, levels=2)
    deep = id_in(levels, 1)
    split = Bitmap(epsilon=1.0, epsilon_state=0.5, **one)
    shard = Bitmap(epsilon=1.0, buckets=2, levels=1, shards=2, owned=1)
    mine, other = id_in(shard, 1), id_in(shard, 0)
    found = [
        _case("Bitmap", plain, presence_scenarios([nothing, come, twice]), sampled=True),
        _case("Bitmap, two levels", levels, presence_scenarios([nothing, update([deep])])),
        _case(
            "Bitmap, two releases",
            Bitmap(epsilon=1.0, releases=2, **one),
            presence_scenarios([nothing, come], releases=2),
        ),
        _case(
            "Bitmap, one announced intrusion",
            Bitmap(epsilon=2.0, announced=1, **one),
            presence_scenarios([nothing, come], announced=1),
            reach=0,
        ),
        _case("Bitmap, given split", split, presence_scenarios([nothing, come])),
        _case("Bitmap, a shard", shard, presence_scenarios([update([other]), update([mine, other])])),
    ]
    toggled = [nothing, update(insert=[user]), update(delete=[user])]
    state = TogglingBitmap(epsilon=1.0, epsilon_state=0.5, **one)
    return [
        *found,
        _case("TogglingBitmap", TogglingBitmap(epsilon=1.0, **one), presence_scenarios(toggled)),
        _case(
            "TogglingBitmap, two releases",
            TogglingBitmap(epsilon=1.0, releases=2, **one),
            presence_scenarios([nothing, come], releases=2),
        ),
        _case(
            "TogglingBitmap, one announced intrusion",
            TogglingBitmap(epsilon=2.0, announced=1, **one),
            presence_scenarios([nothing, come], announced=1),
            reach=0,
        ),
        _case("TogglingBitmap, given split", state, presence_scenarios(toggled)),
        _case(
            "TogglingBitmap, a shard",
            TogglingBitmap(epsilon=1.0, buckets=2, levels=1, shards=2, owned=1),
            [Scenario(worlds([None, None, release()], [update([other]), update([mine, other])]))],
        ),
    ]


def _merged() -> list[Case]:
    found = []
    for releases in (1, 2):
        # R = 3 and K = 5/4, the figures of docs/proofs/bitmap.md
        state, kappa = math.log(3), math.log(1.25)
        site = Bitmap(
            epsilon=symmetric_loss(state, kappa, releases), epsilon_state=state, buckets=1, levels=1, releases=releases
        )
        sites = TwoSites(site, id_in(site, 0))
        found.append(
            Case(
                name="MergedBitmap" if releases == 1 else "MergedBitmap, two releases",
                kind="production",
                claimed=sites.merged.claim().epsilon,
                exact=Enumeration(
                    sites,
                    (-1, 2),
                    [both_sites_seen(releases), merged_state_seen(releases), merged_state_seen(releases, late=True)],
                ),
                algorithm=sites.merged,
            )
        )
    return found


def distinct_cases() -> list[Case]:
    """Return the cases of the distinct room."""
    return [*_bitmaps(), *_merged()]
