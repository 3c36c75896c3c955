"""Noisy tables of one and two attributes side by side, and their noise split in two.

*Thinning* (Neufeld et al. 2024): for normal noise of known size sd, y + g·sd·z and y - sd·z/g with normal z are
independent of each other. So what was fitted to the first has its error estimated without bias by the second: how long
to fit, and which model to take, is decided by what was released and costs nothing. The noise is discrete, so this rests
on nearly normal noise: the accuracy does, never the claim.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from panstream.models.networks.domain import Domain
from panstream.models.networks.noisy_tables import NoisyTable, smooth
from panstream.primitives.noise import DiscreteGaussian, NoiseSource

Half: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Thinned tables: of one attribute each, and of pairs."""

_THINNING = 0.5  # g
THINNED = math.hypot(1.0, _THINNING)
"""The noise of thinned tables over that of the tables themselves."""
_LAW = DiscreteGaussian.at_least(1024.0)


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredTables:
    """Noisy tables as shares of all records: ``ones`` (D) and ``pairs`` (D x D, symmetric) with 1/variance each.

    A weight of 0 marks what was not measured, the blocks of an attribute with itself among them.
    """

    sizes: tuple[int, ...]
    ones: NDArray[np.float64]
    one_weights: NDArray[np.float64]
    pairs: NDArray[np.float64]
    pair_weights: NDArray[np.float64]

    @property
    def starts(self) -> NDArray[np.int64]:
        """Return where each attribute's block begins."""
        return np.concatenate([[0], np.cumsum(self.sizes)])[:-1].astype(np.int64)

    @property
    def blocks(self) -> list[slice]:
        """Return the places of each attribute's categories."""
        return [slice(int(start), int(start) + size) for start, size in zip(self.starts, self.sizes, strict=True)]

    def thinned(self, rng: NoiseSource) -> Half:
        """Return (ones, pairs) with more noise, sqrt(1 + g²) times as much; `other_half` is independent of it."""
        ones = self.ones + _THINNING * spread(self.one_weights) * normal(rng, self.ones.shape)
        noise = np.triu(normal(rng, self.pairs.shape), 1)
        return ones, self.pairs + _THINNING * spread(self.pair_weights) * (noise + noise.T)

    def distance(self, half: Half, ones: NDArray[np.floating[Any]], pairs: NDArray[np.floating[Any]]) -> float:
        """Return the squared distance of a model's tables from what ``half`` does not see, a table's times its cells.

        That bounds the square of a table's total variation distance (Cauchy, Schwarz), whatever its noise. The noise of
        the unseen half costs the same whatever the model; models fitted to the same half can be compared.
        """
        gap = ones - other_half(self.ones, half[0])
        pair_gap = pairs - other_half(self.pairs, half[1])
        sizes = np.repeat(np.array(self.sizes, np.float64), self.sizes)
        squares = np.square(pair_gap, out=pair_gap)
        squares[self.pair_weights == 0] = 0.0
        return float(sizes @ ((self.one_weights > 0) * gap**2) + 0.5 * sizes @ squares @ sizes)


def other_half(noisy: NDArray[np.float64], half: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return y - sd·z/g, given y and y + g·sd·z."""
    return noisy - (half - noisy) / _THINNING**2


def normal(rng: NoiseSource, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return normal numbers in steps of 1/1024: where a fit starts and what thins released noise need no finer ones."""
    draws = np.zeros(math.prod(shape), np.int64)
    rng.add_discrete_gaussian(draws, _LAW)
    return draws.reshape(shape) / _LAW.sigma


def spread(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return standard deviations of weights 1/variance; 0 where nothing was measured."""
    return np.sqrt(np.divide(1.0, weights, out=np.zeros_like(weights), where=weights > 0))


def measured_tables_from(domain: Domain, records: int, tables: Sequence[NoisyTable]) -> MeasuredTables:
    """Return noisy tables of one and two attributes as a fit wants them; one-way tables of bins are smoothed."""
    sizes = domain.sizes
    ends = np.cumsum(sizes)
    blocks = [slice(int(end) - size, int(end)) for end, size in zip(ends, sizes, strict=True)]
    ones = np.zeros(ends[-1])
    one_weights = np.zeros(ends[-1])
    pairs = np.zeros((ends[-1], ends[-1]))
    pair_weights = np.zeros((ends[-1], ends[-1]))
    for table in tables:
        weight = (records / max(table.sigma, 0.5)) ** 2  # exact counts are no better than to half a record
        shares = np.asarray(table.counts, np.float64) / records
        if len(table.attributes) == 1:
            block = blocks[table.attributes[0]]
            curve, remaining_sigma = smooth(domain, table.attributes, shares, table.sigma / records)
            ones[block] = curve
            one_weights[block] = (1.0 / max(remaining_sigma, 0.5 / records)) ** 2
        else:
            one, other = (blocks[attribute] for attribute in table.attributes)
            pairs[one, other] = shares
            pair_weights[one, other] = weight
            pairs[other, one] = shares.T
            pair_weights[other, one] = weight
    return MeasuredTables(sizes, ones, one_weights, pairs, pair_weights)


def split_thinned(measured: MeasuredTables, half: Half, records: int, tables: Sequence[NoisyTable]) -> list[NoisyTable]:
    """Return thinned tables one by one, with the noise they have."""
    ones, pairs = half
    thinned = []
    for table in tables:
        blocks = [measured.blocks[attribute] for attribute in table.attributes]
        counts = records * (ones[blocks[0]] if len(blocks) == 1 else pairs[blocks[0], blocks[1]])
        thinned.append(NoisyTable(table.attributes, counts, THINNED * table.sigma))
    return thinned
