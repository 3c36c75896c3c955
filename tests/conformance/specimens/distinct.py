"""Specimens of the distinct room and of its front door."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from panstream.algorithms.density.optbern import OptBern
from panstream.algorithms.distinct.bitmap import Bitmap
from panstream.algorithms.distinct.merged_bitmap import MergedBitmap
from panstream.algorithms.distinct.sketch_bitmap import SketchBitmap
from panstream.algorithms.distinct.toggling_bitmap import TogglingBitmap
from panstream.testing.conformance import Specimen
from tests.conformance.specimens.common import BAD_IDS, CANARY

__all__ = ["distinct_specimens"]

_BAD: tuple[dict[str, Any], ...] = (
    {"ids": ["a", None]},
    {"ids": ["a", int(CANARY)]},
    {"ids": [1.5]},
    {"ids": f"x{CANARY}"},
)


def distinct_specimens() -> list[Specimen]:
    """Return one specimen for every algorithm and option that changes its claim."""
    ids = [f"user {i}" for i in range(3000)]
    batches: tuple[dict[str, Any], ...] = ({"ids": ids}, {"ids": ids[:100]}, {"ids": []})
    base = Bitmap(buckets=256, levels=16, epsilon=2.0, expected=3000.0)
    variants: dict[str, Any] = {
        "Bitmap": base,
        "Bitmap, three releases": replace(base, releases=3),
        "Bitmap, one announced intrusion": replace(base, announced=1, epsilon=4.0),
        "SketchBitmap": SketchBitmap(buckets=256, levels=16, epsilon=2.0, expected=3000.0),
        "MergedBitmap": MergedBitmap(buckets=256, levels=16, expected=3000.0, sites=(1.0, 1.0), kappa=0.2),
    }
    found = [
        Specimen(
            name=name,
            algorithm=algorithm,
            batches=batches,
            bad=_BAD,
            truth=3000.0,
            canary=CANARY,
            other_key=replace(algorithm, key=1) if name == "Bitmap" else None,
        )
        for name, algorithm in variants.items()
    ]
    toggling = TogglingBitmap(buckets=256, levels=16, epsilon=2.0, expected=3000.0)
    found.append(
        Specimen(
            name="TogglingBitmap",
            algorithm=toggling,
            batches=({"ids": ids}, {"ids": []}),
            bad=_BAD,
            truth=3000.0,
            canary=CANARY,
        )
    )
    bits = OptBern(universe=400, epsilon=1.0, count=True)
    found.append(
        Specimen(
            name="OptBern, count",
            algorithm=bits,
            batches=({"ids": list(range(200))}, {"ids": [0, 1]}),
            bad=BAD_IDS,
            truth=200.0,
            noiseless=replace(bits, epsilon=float("inf")),
            canary=CANARY,
        )
    )
    return found
