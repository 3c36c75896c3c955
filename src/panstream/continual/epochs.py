"""Trees for streams without a horizon: one tree after another, each with one level more and about 14 times the slots.

Epoch e has a tree of e + 1 levels and a root over the whole epoch; when the root closes, its released sum stands for
the epoch from then on. An item is in e + 2 nodes of its own epoch and in none of any other, so every epoch has its own
noise, of rate epsilon/(e + 2), and the loss is epsilon for ever. The rule below is part of the format of stored states
and never changes.
"""

from __future__ import annotations

from functools import lru_cache

from panstream.continual.radices import Noise, TreeShape
from panstream.errors import InvalidParameter

__all__ = ["EPOCHS", "MOST_SLOTS", "epoch_noise", "epoch_of", "epoch_shape"]

EPOCHS = 16
MOST_SLOTS = 1 << 56  # fewer than all epochs together have, for either kind of tick
_CAPACITY_PER_LEVEL = {True: 21, False: 5}


@lru_cache(maxsize=64)
def epoch_shape(epoch: int, one_step_ticks: bool) -> TreeShape:
    """Return the tree of an epoch.

    >>> [epoch_shape(epoch, one_step_ticks=False).slots for epoch in range(5)]
    [6, 66, 816, 10626, 142506]
    """
    if not 0 <= epoch < EPOCHS:
        raise InvalidParameter(f"epoch must be in 0..{EPOCHS - 1}, got epoch={epoch}")
    levels = epoch + 1
    return TreeShape(levels, _CAPACITY_PER_LEVEL[one_step_ticks] * levels, one_step_ticks, rooted=True)


def epoch_of(slot: int, one_step_ticks: bool) -> tuple[int, int]:
    """Return the epoch that ``slot`` (from 1 on) lies in, and how many slots of it have then passed."""
    if not 1 <= slot <= MOST_SLOTS:
        raise InvalidParameter(f"slot must be in 1..{MOST_SLOTS}, got slot={slot}")
    epoch = 0
    while slot > epoch_shape(epoch, one_step_ticks).slots:
        slot -= epoch_shape(epoch, one_step_ticks).slots
        epoch += 1
    return epoch, slot


def epoch_noise(epoch: int, slots: int, one_step_ticks: bool) -> Noise:
    """Return the draws of the answers within an epoch; after its last slot the root is used as well."""
    shape = epoch_shape(epoch, one_step_ticks)
    noise = shape.noise(slots)
    if slots < shape.slots:
        return noise
    last = 1 / (1 / 2 + 1 / noise.last)  # the root's own sum holds two draws
    before = shape.noise(slots - 1)
    return Noise((before.mean * (slots - 1) + last) / slots, max(before.worst, last), last)
