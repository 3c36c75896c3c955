"""Mistakes that look harmless: a stored threshold, a table that fills up, a release drawn again, a claim for one site."""

from __future__ import annotations

import math
from typing import Any

from panstream.audit.case import Case
from panstream.audit.controls.presence import DropWhenFull, Fill, ReNoised, StoredThreshold, Unnoticed
from panstream.audit.exact import Enumeration, Scenario
from panstream.audit.shipped.distinct import id_in
from panstream.audit.sites import TwoSites, both_sites_seen
from panstream.density.optbern import OptBern
from panstream.distinct.bitmap import Bitmap
from panstream.privacy.joint import symmetric_loss
from panstream.testing.enumerate import refresh, release, update, worlds

__all__ = ["mistake_controls"]

NOTHING, APPEAR = update([]), update([0])


def _merged_claim() -> Case:
    state, kappa = math.log(3), math.log(1.25)
    site = Bitmap(epsilon=symmetric_loss(state, kappa), epsilon_state=state, buckets=1, levels=1)
    sites = TwoSites(site, id_in(site, 0))
    return Case(
        name="Noisy OR with the single-state claim",
        kind="control",
        claimed=symmetric_loss(sites.merged.law.epsilon_state, kappa),
        exact=Enumeration(sites, (-1, 2), [both_sites_seen()]),
        stands_for="a user may be at every site, so the sites' losses add up (Sketch-Flip-Merge read as pan-private)",
    )


def _enumerated(
    name: str, algorithm: Any, stands_for: str, scenario: Scenario, window: tuple[int, int], **more: Any
) -> Case:
    return Case(
        name=name,
        kind="control",
        claimed=more.pop("claimed", algorithm.claim().epsilon),
        exact=Enumeration(algorithm, window, [scenario]),
        algorithm=algorithm,
        stands_for=stands_for,
        **more,
    )


def mistake_controls() -> list[Case]:
    """Return the mistakes."""
    both = [NOTHING, APPEAR]
    threshold = StoredThreshold(universe=1, epsilon=1.0)
    return [
        _enumerated(
            "Release drawn again after a crash",
            ReNoised(universe=1, epsilon=1.0),
            "a crash between publishing and storing: the restored state draws new noise for the same release",
            Scenario(worlds([None, None, release(), release()], both)),
            (0, 1),
        ),
        _enumerated(
            "Sparse vector with a stored threshold",
            threshold,
            "Dwork and Roth, Algorithm 1 (AboveThreshold): an intruder reads the noisy threshold, so every “no” costs again",
            Scenario(worlds([None, None, *[release()] * 6], both), (1,)),
            (-3, 4),
            claimed=threshold.textbook_loss,
        ),
        _enumerated(
            "Table that drops users when it is full",
            DropWhenFull(capacity=1, epsilon=1.0),
            "a first-come table instead of a sample fixed beforehand: who is in it shows who came",
            Scenario(worlds([None, None, release()], [Fill(), Fill(0)])),
            (-1, 2),
        ),
        _enumerated(
            "Two copies of the state at different times",
            Unnoticed(universe=1, epsilon=1.0),
            "backups, write-ahead logs, virtual machine images: a claim covers one look, two have no finite loss",
            Scenario(worlds([refresh(), None], both), (2,)),
            (-1, 2),
            sampled=True,
            quick_runs=500,
        ),
        _merged_claim(),
        _enumerated(
            "Replaced user with the add-remove claim",
            OptBern(universe=2, epsilon=1.0),
            "replacing one user by another costs up to twice as much",
            Scenario(
                pairs=[
                    ((update([0]), update([1]), release()), (update([1]), update([0]), release())),
                    ((update([0]), NOTHING, release()), (update([1]), NOTHING, release())),
                ]
            ),
            (-1, 3),
        ),
    ]
