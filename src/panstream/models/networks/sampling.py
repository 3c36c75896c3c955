"""Sample records from a network, attribute by attribute, parents first.

*Independent* records: a category is chosen by comparing a uniform 63-bit integer with integer thresholds. Each
probability is off by at most 2^-62 beyond the rounding of the table itself, and a category of probability 0 is never
sampled.

*Balanced* records: independent draws add a sampling error to every count. Instead, among the records with the same
parents' values, each category gets its expected number, rounded up or down at random, and a random order assigns it.
Each record still has the network's distribution, but the records are not independent of each other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.models.networks.mixture import Mixture
from panstream.models.networks.network import BayesianNetwork
from panstream.models.networks.records import Records
from panstream.primitives.noise import NoiseSource

_BLOCK = 1 << 15
_BITS = 63


def sample(network: BayesianNetwork | Mixture, size: int, rng: NoiseSource) -> Records:
    """Draw ``size`` independent records from the network's distribution.

    Sampling a network that was learned privately reads no records, so it has no privacy loss.

    Args:
        network: The model to sample.
        size: Number of records.
        rng: Source of the draws.

    >>> from panstream.models.networks import Domain
    >>> domain = Domain({"coin": ["heads", "tails"]})
    >>> fair = BayesianNetwork(domain, ((),), (np.array([0.5, 0.5]),))
    >>> with NoiseSource() as rng:
    ...     heads = sample(fair, 1000, rng).to_columns()["coin"].count("heads")
    >>> 300 < heads < 700
    True
    """
    from panstream.primitives.kernels.models.prior_sampling import draw_attribute

    if isinstance(network, Mixture):
        return _visible(network, sample(network.with_component(), size, rng))
    if size < 0:
        raise InvalidParameter(f"size must be nonnegative, got size={size}")
    domain = network.domain
    order = network.order
    codes = np.zeros((len(domain), size), np.uint16)
    steps = [_thresholds(table) for table in network.tables]
    parents = [np.array(family, np.int64) for family in network.parents]
    sizes = [np.array([domain.sizes[parent] for parent in family], np.int64) for family in network.parents]
    words: NDArray[np.uint64] = rng.scratch.array(min(size, _BLOCK), np.uint64)
    for start in range(0, size, _BLOCK):
        piece = words[: min(_BLOCK, size - start)]
        for attribute in order:
            if domain.sizes[attribute] > 1:
                rng.fill_words(piece)
                draw_attribute(codes, start, attribute, parents[attribute], sizes[attribute], steps[attribute], piece)
    return Records(domain, codes)


def _visible(mixture: Mixture, drawn: Records) -> Records:
    """Return the records without the hidden component."""
    return Records(mixture.domain, np.ascontiguousarray(drawn.codes[1:]))


def _thresholds(table: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return per row of a conditional table the cumulative probabilities times 2^63, rounded down, without the last."""
    rows = table.reshape(-1, table.shape[-1])
    cumulative = np.cumsum(rows, axis=1)
    cumulative /= cumulative[:, -1:]  # thresholds after the last possible category are then exactly 1
    return np.ascontiguousarray(np.ldexp(cumulative[:, :-1], _BITS).astype(np.uint64))


def balanced_sample(network: BayesianNetwork | Mixture, size: int, rng: NoiseSource) -> Records:
    """Return ``size`` records by systematic sampling within the groups of equal parents.

    Args:
        network: The model to sample.
        size: Number of records.
        rng: Source of the draws.

    >>> from panstream.models.networks import Domain
    >>> domain = Domain({"coin": ["heads", "tails"]})
    >>> fair = BayesianNetwork(domain, ((),), (np.array([0.5, 0.5]),))
    >>> with NoiseSource() as rng:
    ...     balanced_sample(fair, 1000, rng).to_columns()["coin"].count("heads")
    500
    """
    if isinstance(network, Mixture):
        return _visible(network, balanced_sample(network.with_component(), size, rng))
    if size < 0:
        raise InvalidParameter(f"size must be nonnegative, got size={size}")
    sizes = network.domain.sizes
    codes = np.zeros((len(sizes), size), np.uint16)
    if size == 0:
        return Records(network.domain, codes)
    words = rng.scratch.array(size, np.uint64)
    for child in network.order:
        table = network.tables[child].reshape(-1, sizes[child])
        group = np.zeros(size, np.int64)
        for parent in network.parents[child]:
            group = group * sizes[parent] + codes[parent]
        rng.fill_words(words)
        order = np.lexsort((words, group))
        members = np.bincount(group, minlength=len(table))
        starts = np.cumsum(members) - members
        rng.fill_words(words[: min(len(table), size)])
        offsets = np.zeros(len(table))
        used = np.flatnonzero(members)
        offsets[used] = words[: used.size] / 2.0**64
        sorted_group = group[order]
        quantiles = (np.arange(size) - starts[sorted_group] + offsets[sorted_group]) / members[sorted_group]
        # Search one sorted array for all groups: the cumulative row of group g plus g.
        steps = np.minimum(np.cumsum(table, axis=1), 1.0)
        steps[:, -1] = 1.0
        lifted = (steps + np.arange(len(table))[:, None]).reshape(-1)
        drawn = np.searchsorted(lifted, quantiles + sorted_group, side="right") - sorted_group * sizes[child]
        codes[child, order] = np.clip(drawn, 0, sizes[child] - 1)
    return Records(network.domain, codes)
