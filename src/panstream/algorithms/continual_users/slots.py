"""Several slots in one call: the ids of one after another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from panstream.core.estimate import Estimate, Estimates
from panstream.primitives.noise import NoiseSource


def tick_each(algorithm: Any, state: Any, values: Sequence[Any], rng: NoiseSource) -> Estimates:
    """Take the ids of one slot after another, close each, and return all estimates.

    All ids are checked before the first slot changes the state.

    Args:
        algorithm: An algorithm that takes ids and answers at ticks.
        state: Its state, which is changed.
        values: The ids of each slot.
        rng: Source of the noise.
    """
    algorithm.require_slots(state.ticks, len(values))
    estimates: list[Estimate] = []
    batches: list[Any] = []
    try:
        for ids in values:
            batches.append(algorithm.batch(ids))
        for batch in batches:
            algorithm.update(state, batch, rng)
            estimates.append(algorithm.tick(state, rng))
    finally:
        for batch in batches:
            batch.wipe()
    return Estimates(
        unclipped=np.array([estimate.unclipped for estimate in estimates]),
        standard_error=np.array([estimate.standard_error for estimate in estimates]),
        claim=algorithm.claim(),
        name=algorithm.label,
        support=estimates[0].support if estimates else (-math.inf, math.inf),
    )
