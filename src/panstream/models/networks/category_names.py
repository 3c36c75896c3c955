"""Categories that nobody listed: those of a column that occur often enough to be named with differential privacy."""

from __future__ import annotations

from typing import Any

import numpy as np

from panstream.errors import InvalidBatch
from panstream.models.networks.records import factorised, label_of
from panstream.primitives.memory.scratch import wipe
from panstream.primitives.noise import NoiseSource
from panstream.privacy import Claim
from panstream.privacy.category_loss import category_noise, category_threshold
from panstream.privacy.composition import claim_of_person
from panstream.privacy.holder_loss import record_claim

_MAX_CATEGORIES = 65_000  # codes have 16 bits, and "other" needs one


def frequent_categories(
    column: Any, epsilon: float, delta: float, rng: NoiseSource, *, contributions: int = 1
) -> list[str]:
    """Return the categories of a column whose noisy count reaches the threshold, in the order of their names.

    Args:
        column: The values: a list, an array, or a column of a table. Nulls are left out.
        epsilon: Loss of a person.
        delta: Probability that a category of only this person is named.
        rng: Source of the noise.
        contributions: Records of one person at most.

    **Privacy**: (epsilon, delta), a record replaced, or up to ``contributions`` of them (docs/proofs/networks.md,
    Categories that nobody listed). How long it takes depends on how many categories there are.

    >>> with NoiseSource() as rng:
    ...     frequent_categories(["flu"] * 500 + ["gout"] * 400 + ["a rare one"], 1.0, 1e-6, rng)
    ['flu', 'gout']
    """
    threshold = category_threshold(epsilon, delta, contributions)
    codes, entries = factorised(column)
    counts = np.bincount(codes[codes >= 0], minlength=len(entries)).astype(np.int64)
    wipe(codes)
    # Values that are written alike, such as 1 and 1.0, are one category.
    labels = [label_of(entry) for entry in entries]
    distinct = sorted({label for label in labels if label is not None})
    position = {label: index for index, label in enumerate(distinct)}
    noisy = np.zeros(len(distinct), np.int64)
    for label, count in zip(labels, counts.tolist(), strict=True):
        if label is not None:
            noisy[position[label]] += count
    wipe(counts)
    rng.add_discrete_laplace(noisy, category_noise(epsilon, contributions))
    named = [label for label, count in zip(distinct, noisy.tolist(), strict=True) if count >= threshold]
    wipe(noisy)
    if len(named) > _MAX_CATEGORIES:
        raise InvalidBatch(
            f"more than {_MAX_CATEGORIES} values are frequent: if the column holds numbers, declare a range instead"
        )
    return named


def categories_claim(epsilon: float, delta: float, contributions: int | None = None) -> Claim:
    """Return the claim about the named categories of one or more columns.

    Args:
        epsilon: Loss for all columns together.
        delta: The same.
        contributions: Records of one person at most; None protects one record.
    """
    claim = record_claim(
        epsilon / (contributions or 1),
        delta,
        releases=1,
        public=("the number of records",),
        note="not pan-private: whoever holds the records keeps them",
    )
    return claim_of_person(claim, epsilon, contributions)
