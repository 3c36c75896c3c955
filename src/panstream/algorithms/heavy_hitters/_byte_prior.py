"""How likely a byte is after another: flat at first, then learned from names that are decoded, and so public."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def default_byte_prior() -> Numbers:
    """Return the chances of a byte: mostly printable ASCII, then parts of other characters, then control codes."""
    chances = np.full(256, 0.01 / 33)
    chances[0x20:0x7F] = 0.94 / 95
    chances[0x80:] = 0.05 / 128
    return chances


def learned_byte_prior(names: Iterable[bytes]) -> Numbers:
    """Return the chances of every byte after every byte, in names already decoded, smoothed. A name begins after 0."""
    flat = default_byte_prior()
    single = np.zeros(256)
    pairs = np.zeros((256, 256))
    for name in names:
        letters = np.frombuffer(name, np.uint8)
        np.add.at(single, letters, 1.0)
        np.add.at(pairs, (np.concatenate([[0], letters[:-1]]).astype(np.intp), letters), 1.0)
    alone = (single + 20 * flat) / (single.sum() + 20)
    learned: Numbers = 0.9 * (pairs + 10 * alone) / (pairs.sum(1, keepdims=True) + 10) + 0.1 * flat
    return learned


def symbol_priors(letters: Numbers, bits: int) -> list[Numbers]:
    """Return log priors of the symbols of a byte: table p has a row for the last byte and the p symbols so far."""
    next_letters = np.broadcast_to(letters, (256, 256))
    priors = []
    for part in range(8 // bits):
        sums = (
            next_letters.reshape(256, 1 << (bits * (part + 1)), -1).sum(2).reshape(256, 1 << (bits * part), 1 << bits)
        )
        priors.append(np.log(sums / sums.sum(2, keepdims=True)).reshape(-1, 1 << bits))
    return priors
