"""Specimens of the continual_users room: half of the population in the first slot, then a tick."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from panstream.algorithms.continual_users import ContinualBitmap, ContinualDensity, RetainedBitmap
from panstream.testing.conformance import Specimen
from tests.conformance.specimens.common import BAD_IDS, CANARY

__all__ = ["continual_users_specimens"]


def continual_users_specimens() -> list[Specimen]:
    """Return one specimen for every way to publish, and every unit."""
    base = ContinualDensity(universe=4000, epsilon=1.0, horizon=100)
    bits: dict[str, Any] = {
        "ContinualDensity, event": base,
        "ContinualDensity, unbounded": ContinualDensity(universe=4000, epsilon=1.0),
        "ContinualDensity, user": ContinualDensity(universe=4000, epsilon=1.0, horizon=100, unit="user"),
        "ContinualDensity, window": ContinualDensity(
            universe=4000, epsilon=1.0, horizon=100, unit="user-window", window=5
        ),
        "ContinualDensity, paid": ContinualDensity(universe=4000, epsilon=1.0, horizon=3, unit="user", method="paid"),
        "ContinualDensity, single answer": ContinualDensity(
            universe=4000, epsilon=1.0, horizon=1, unit="user", expected=400
        ),
        "ContinualDensity, deletions": ContinualDensity(universe=4000, epsilon=1.0, horizon=100, deletions=True),
    }
    found = [
        Specimen(
            name=name,
            algorithm=algorithm,
            batches=({"ids": list(range(2000))}, {"ids": [0, 0, 1]}, {"ids": []}),
            bad=BAD_IDS,
            truth=0.5,
            noiseless=replace(algorithm, epsilon=math.inf),
            canary=CANARY,
        )
        for name, algorithm in bits.items()
    ]
    for unit in ("event", "user"):
        bitmap = ContinualBitmap(epsilon=4.0, horizon=20, unit=unit, expected=2000, rows_of_cells=16)  # type: ignore[arg-type]
        found.append(
            Specimen(
                name=f"ContinualBitmap, {unit}",
                algorithm=bitmap,
                batches=({"ids": list(range(2000))}, {"ids": [5, 5]}, {"ids": []}),
                bad=({"ids": [2, None]}, {"ids": [1.5]}),
                truth=2000.0,
                canary=CANARY,
            )
        )
    found.append(
        Specimen(
            name="RetainedBitmap",
            algorithm=RetainedBitmap(epsilon=4.0, expected=2000, lags=2),
            batches=({"ids": list(range(2000))}, {"ids": [5, 5]}, {"ids": []}),
            bad=({"ids": [2, None]}, {"ids": [1.5]}),
            truth=2000.0,
            canary=CANARY,
        )
    )
    return found
