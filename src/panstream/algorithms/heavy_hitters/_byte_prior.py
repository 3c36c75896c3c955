"""Priors of a name's next byte: fixed at first, then learned from names already decoded, which are public."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def default_byte_prior() -> Numbers:
    """Return the probabilities of a byte: 94% printable ASCII, 5% bytes of other characters, 1% control codes."""
    chances = np.full(256, 0.01 / 33)
    chances[0x20:0x7F] = 0.94 / 95
    chances[0x80:] = 0.05 / 128
    return chances


def learned_byte_prior(names: Iterable[bytes]) -> Numbers:
    """Return the smoothed probability of every byte after every byte in ``names``; a name begins after byte 0."""
    flat = default_byte_prior()
    single = np.zeros(256)
    pairs = np.zeros((256, 256))
    for name in names:
        letters = np.frombuffer(name, np.uint8)
        np.add.at(single, letters, 1.0)
        np.add.at(pairs, (np.concatenate([[0], letters[:-1]]).astype(np.intp), letters), 1.0)
    any_byte = (single + 20 * flat) / (single.sum() + 20)
    learned: Numbers = 0.9 * (pairs + 10 * any_byte) / (pairs.sum(1, keepdims=True) + 10) + 0.1 * flat
    return learned


def symbol_priors(letters: Numbers, bits: int) -> list[Numbers]:
    """Return log priors of a byte's symbols: table p has a row for each last byte and p symbols of this one."""
    next_letters = np.broadcast_to(letters, (256, 256))
    priors = []
    for part in range(8 // bits):
        sums = (
            next_letters.reshape(256, 1 << (bits * (part + 1)), -1).sum(2).reshape(256, 1 << (bits * part), 1 << bits)
        )
        priors.append(np.log(sums / sums.sum(2, keepdims=True)).reshape(-1, 1 << bits))
    return priors
