"""What happens to a state after an announced intrusion, the same way in every room.

Bits and bitmap cells are *frozen*: what the intruder saw becomes a public constant and a new array starts at its
noise. Re-flipping the seen bits in place could not be decoded, leaving them would have no finite loss
(docs/proofs/joint-loss.md, Theorem 3). Accumulators get *fresh noise on every open one* and go on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from panstream.errors import NotSupported
from panstream.packed import toss_all, unpacked
from panstream.randomness import Coin, Source

__all__ = ["MAX_PHASES", "freeze", "pattern_of", "pattern_weights"]

MAX_PHASES = 7


def freeze(
    frozen: NDArray[np.uint8], bits: NDArray[np.uint8], cells: int, absent: Coin, source: Source
) -> NDArray[np.uint8]:
    """Return ``frozen`` with the seen ``bits`` added as a row; ``bits`` itself, of so many ``cells``, starts afresh in place."""
    if len(frozen) >= MAX_PHASES:
        raise NotSupported(f"a state can be refreshed at most {MAX_PHASES} times")
    seen = np.concatenate([frozen, bits[np.newaxis]])
    toss_all(absent, cells, source, bits)
    return seen


def pattern_of(frozen: NDArray[np.uint8], cells: int) -> NDArray[np.intp]:
    """Return for every cell the public number whose bit j is what was seen in phase j."""
    pattern = np.zeros(cells, np.intp)
    for phase, row in enumerate(frozen):
        pattern |= unpacked(row, cells).astype(np.intp) << phase
    return pattern


def pattern_weights(phases: int, p0: float, p1: float) -> NDArray[np.float64]:
    """Return for every pattern the product over phases of (p1 - bit)/(p1 - p0).

    Its mean over a user's bits is 1 if the user was absent in all these phases and 0 otherwise, so it decodes
    "absent so far" without bias.
    """
    weights = np.ones(1)
    for _ in range(phases):
        weights = np.concatenate([weights * p1, weights * (p1 - 1.0)]) / (p1 - p0)
    return weights
