"""Noisy tables of one and two attributes in two arrays, and thinning of their noise into independent halves.

*Thinning* (Neufeld et al. 2024): for normal noise of known size sd, y + g·sd·z and y - sd·z/g with normal z are
independent of each other. So the second estimates without bias the error of a model fitted to the first. The number of
steps and the kind of model are chosen this way, from released numbers only, at no privacy loss. The noise is discrete
and only nearly normal; accuracy depends on that, the claim does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from panstream.models.networks._tilted_forest import category_blocks
from panstream.models.networks.domain import Domain
from panstream.models.networks.noisy_tables import NoisyTable, smooth
from panstream.primitives.noise import DiscreteGaussian, NoiseSource

Half: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Thinned tables: of one attribute each, and of pairs."""

_THINNING = 0.5  # g
_THINNED_NOISE = math.hypot(1.0, _THINNING)  # standard deviation of thinned tables over that of the tables
_GAUSSIAN = DiscreteGaussian.at_least(1024.0)


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredTables:
    """Noisy tables as shares of all records: ``ones`` (D) and ``pairs`` (D x D, symmetric) with 1/variance each.

    A weight of 0 marks cells that were not measured, among them the blocks of an attribute with itself.
    """

    sizes: tuple[int, ...]
    ones: NDArray[np.float64]
    one_weights: NDArray[np.float64]
    pairs: NDArray[np.float64]
    pair_weights: NDArray[np.float64]

    @property
    def blocks(self) -> list[slice]:
        """Return the columns of each attribute's categories."""
        return category_blocks(self.sizes)

    def thinned(self, rng: NoiseSource) -> Half:
        """Return (ones, pairs) with sqrt(1 + g²) times the noise, such that `other_half` is independent of them."""
        ones = self.ones + _THINNING * spread(self.one_weights) * normal(rng, self.ones.shape)
        noise = np.triu(normal(rng, self.pairs.shape), 1)
        return ones, self.pairs + _THINNING * spread(self.pair_weights) * (noise + noise.T)

    def distance(self, half: Half, ones: NDArray[np.floating[Any]], pairs: NDArray[np.floating[Any]]) -> float:
        """Return the squared distance of a model's tables from the other half, each table's weighted by its cells.

        By Cauchy-Schwarz that bounds the square of a table's total variation distance. The noise of the other half adds
        the same amount for every model on average, so models fitted to one half can be compared by it.
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
    """Return normal numbers in steps of 1/1024, which is fine enough for starting points of fits and for thinning."""
    draws = np.zeros(math.prod(shape), np.int64)
    rng.add_discrete_gaussian(draws, _GAUSSIAN)
    return draws.reshape(shape) / _GAUSSIAN.sigma


def spread(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard deviations that belong to weights 1/variance; 0 where the weight is 0."""
    return np.sqrt(np.divide(1.0, weights, out=np.zeros_like(weights), where=weights > 0))


def measured_tables_from(domain: Domain, records: int, tables: Sequence[NoisyTable]) -> MeasuredTables:
    """Arrange noisy tables of one and two attributes in two arrays; one-way tables of bins are smoothed."""
    blocks = category_blocks(domain.sizes)
    columns = sum(domain.sizes)
    ones = np.zeros(columns)
    one_weights = np.zeros(columns)
    pairs = np.zeros((columns, columns))
    pair_weights = np.zeros((columns, columns))
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
    return MeasuredTables(domain.sizes, ones, one_weights, pairs, pair_weights)


def split_thinned(measured: MeasuredTables, half: Half, records: int, tables: Sequence[NoisyTable]) -> list[NoisyTable]:
    """Return the thinned arrays as separate tables with their noise."""
    ones, pairs = half
    thinned = []
    for table in tables:
        blocks = [measured.blocks[attribute] for attribute in table.attributes]
        counts = records * (ones[blocks[0]] if len(blocks) == 1 else pairs[blocks[0], blocks[1]])
        thinned.append(NoisyTable(table.attributes, counts, _THINNED_NOISE * table.sigma))
    return thinned
