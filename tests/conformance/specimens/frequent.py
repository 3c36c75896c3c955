"""Specimens of the frequent room."""

from __future__ import annotations

import math
from dataclasses import replace

from panstream.algorithms.heavy_hitters.prefix_sketch import FrequentItems
from panstream.testing.conformance import Specimen
from tests.conformance.specimens.common import CANARY

__all__ = ["frequent_specimens"]


def frequent_specimens() -> list[Specimen]:
    """Return pure and Gaussian noise, one life and two, events and users; the truth is the number of events."""
    names = [f"/page {i % 40}" for i in range(3000)]
    batches = ({"names": names}, {"names": ["/index", "/index"]}, {"names": []})
    bad = (
        {"names": ["a", None]},
        {"names": ["a", int(CANARY)]},
        {"names": [1.5]},
        {"names": f"x{CANARY}"},
    )
    base = FrequentItems(epsilon=4.0, max_item_bytes=4, width=64, row_width=64, rows=3)
    variants = {
        "FrequentItems": base,
        "FrequentItems, Gaussian, two lives of users": replace(base, delta=1e-6, releases=2, contributions=2),
    }
    return [
        Specimen(
            name=name,
            algorithm=algorithm,
            batches=batches,
            bad=bad,
            truth=3002.0,
            noiseless=replace(algorithm, epsilon=math.inf),
            canary=CANARY,
            other_key=replace(algorithm, key=1) if name == "FrequentItems" else None,
            truth_twice=6004.0,
        )
        for name, algorithm in variants.items()
    ]
