"""A specimen of every shipped algorithm, for the conformance suite and the audit."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from panstream.density.optbern import OptBern
from panstream.testing.checks import Specimen

__all__ = ["specimens"]

_CANARY = 8_103_482_173_001


def _density() -> list[Specimen]:
    base = OptBern(universe=400, epsilon=1.0)
    bad: tuple[dict[str, Any], ...] = (
        {"ids": [1, _CANARY]},
        {"ids": [2, None]},
        {"ids": ["canary-7f3a91"]},
        {"ids": [1.5]},
        {"ids": [3], "weight": [7]},
    )
    variants = {
        "OptBern": base,
        "OptBern, sampled": replace(base, universe=4000, sample=400),
        "OptBern, three releases": replace(base, releases=3),
        "OptBern, one announced intrusion": replace(base, announced=1, epsilon=2.0),
        "OptBern, deletions": replace(base, deletions=True),
    }
    return [
        Specimen(
            name=name,
            algorithm=algorithm,
            batches=({"ids": list(range(algorithm.population.size // 2))}, {"ids": [0, 0, 1]}, {"ids": []}),
            bad=bad,
            truth=0.5,
            noiseless=replace(algorithm, epsilon=math.inf, sample=None),
        )
        for name, algorithm in variants.items()
    ]


def specimens() -> list[Specimen]:
    """Return one specimen for every algorithm and every option that changes its claim."""
    return [*_density()]
