"""Exact statistics of a holder's records, and private choices among families by them.

Exact numbers stay in the holder's process, cached next to the records; only noisy ones are sent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from panstream.models.networks.contingency import contingency
from panstream.models.networks.domain import Domain
from panstream.models.networks.information import mutual_information
from panstream.models.networks.records import Records
from panstream.primitives.noise import NoiseSource, SelectionRate
from panstream.privacy.table_loss import choice_rate, mutual_information_sensitivity

Family: TypeAlias = tuple[int, tuple[int, ...]]
"""A child and its parents."""

_SCORE_UNIT = 1 << 24  # a local score is a whole number of 2^-24 bits
_LARGEST_CACHE = 1 << 22
_SLACK = 2  # a score is rounded down to a whole number, and computed in floating point


class Statistics:
    """The exact counts and scores of one table of records, computed once each."""

    __slots__ = ("_cached_cells", "_scores", "_tables", "records")

    def __init__(self, records: Records) -> None:
        self.records = records
        self._scores: dict[tuple[int, ...], int] = {}
        self._tables: dict[tuple[int, ...], NDArray[np.int64]] = {}
        self._cached_cells = 0

    @property
    def domain(self) -> Domain:
        """Return the domain of the records."""
        return self.records.domain

    def exact(self, attributes: tuple[int, ...]) -> NDArray[np.int64]:
        """Return exact counts, cached up to 2^22 cells in all; callers must not write to them."""
        table = self._tables.get(attributes)
        if table is None:
            table = contingency(self.records, attributes)
            if self._cached_cells + table.size <= _LARGEST_CACHE:
                self._tables[attributes] = table
                self._cached_cells += table.size
        return table

    def score(self, family: tuple[int, ...]) -> int:
        """Return the mutual information of (*parents, child) in whole units of 2^-24 bits."""
        score = self._scores.get(family)
        if score is None:
            # The mutual information of two attributes is symmetric, so one table serves both directions.
            key = tuple(sorted(family)) if len(family) == 2 else family
            score = math.floor(mutual_information(self.exact(key)) * _SCORE_UNIT)
            self._scores[family] = score
        return score

    def sensitivity(self, binary: bool) -> int:
        """Return the sensitivity of a score in whole units, for this holder's own number of records.

        For families that are not binary it is the maximum of both formulas, so it is never below the binary one.
        """
        kinds = (True,) if binary else (True, False)
        records = max(1, len(self.records))
        return (
            math.ceil(max(mutual_information_sensitivity(records, binary=kind) for kind in kinds) * _SCORE_UNIT)
            + _SLACK
        )

    def is_binary(self, family: tuple[int, ...]) -> bool:
        """Return whether one side of a family (*parents, child) has two values only."""
        sizes = self.domain.sizes
        return sizes[family[-1]] <= 2 or math.prod(sizes[parent] for parent in family[:-1]) <= 2

    def vote(self, candidates: Sequence[Family], epsilon: float | Fraction, rng: NoiseSource) -> Family:
        """Choose a family by the exponential mechanism on mutual information.

        Privacy:
            Pure ``epsilon``, one record replaced: utilities are whole units whose sensitivity includes the rounding.
        """
        binary = all(self.is_binary((*parents, child)) for child, parents in candidates)
        utilities = np.array([self.score((*parents, child)) for child, parents in candidates], np.int64)
        rate = choice_rate(epsilon, self.sensitivity(binary))
        return candidates[rng.exponential(utilities, SelectionRate.at_most(rate))]


def needed_tables(placed: Sequence[int], parents: Sequence[tuple[int, ...]], degree: int) -> list[tuple[int, ...]]:
    """Return the N - k families whose tables suffice: the first k families are subsets of the next one."""
    chain = [(*parents[child], child) for child in placed]
    return chain[min(degree, len(chain) - 1) :]
