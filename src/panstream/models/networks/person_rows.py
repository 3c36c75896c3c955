"""At most K rows of each person, so that a claim about a person with K rows holds whatever the table has."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidBatch
from panstream.models.networks.records import factorised, label_of
from panstream.primitives import validation as checks
from panstream.primitives.memory.scratch import wipe
from panstream.primitives.noise import NoiseSource


def rows_of_persons(persons: Any, contributions: int, rng: NoiseSource) -> NDArray[np.int64]:
    """Return the positions of the rows to use: at most ``contributions`` of each person, chosen at random.

    Args:
        persons: For every row, a value that identifies its person.
        contributions: Rows of one person at most.
        rng: Source of the choice.

    >>> with NoiseSource() as rng:
    ...     rows_of_persons(["ann", "bob", "ann", "ann"], 2, rng).size
    3
    """
    checks.require_at_least(1, contributions=contributions)
    codes, entries = factorised(persons)
    nobody = [code for code, entry in enumerate(entries) if label_of(entry) in (None, "")]
    unknown = np.isin(codes, [-1, *nobody])
    if unknown.any():
        raise InvalidBatch("a row does not say whose it is", row=int(unknown.argmax()))
    keys = rng.scratch.array(codes.size, np.uint64)
    rng.fill_words(keys)
    order = np.lexsort((keys, codes))
    by_person = codes[order]
    starts = np.flatnonzero(np.diff(by_person, prepend=-1))
    ranks = np.arange(codes.size) - np.repeat(starts, np.diff(np.append(starts, codes.size)))
    chosen = np.sort(order[ranks < contributions])
    for array in (codes, by_person, ranks, order):
        wipe(array)
    return chosen
