"""Prior sampling: records drawn from a network, attribute by attribute, parents first.

A category is chosen by comparing a uniform 63-bit integer with integer thresholds, so what is drawn is exactly the
thresholds' law: each probability is off by at most 2^-62 beyond the rounding of the table itself, and a category of
probability 0 is never drawn.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.networks.network import BayesianNetwork
from panstream.networks.records import Records
from panstream.randomness import Source

__all__ = ["sample", "thresholds"]

_BLOCK = 1 << 15
_BITS = 63


def sample(network: BayesianNetwork, size: int, source: Source) -> Records:
    """Draw ``size`` independent records from the network's distribution.

    Sampling a network that was learned privately looks at no data, so it costs no privacy.

    >>> from panstream.networks import Domain
    >>> domain = Domain({"coin": ["heads", "tails"]})
    >>> fair = BayesianNetwork(domain, ((),), (np.array([0.5, 0.5]),))
    >>> with Source() as source:
    ...     heads = sample(fair, 1000, source).to_columns()["coin"].count("heads")
    >>> 300 < heads < 700
    True
    """
    from panstream._kernels.prior import draw_attribute

    if size < 0:
        raise InvalidParameter(f"size must be nonnegative, got size={size}")
    domain, order = network.domain, network.order
    codes = np.zeros((len(domain), size), np.uint16)
    steps = [thresholds(table) for table in network.tables]
    parents = [np.array(family, np.int64) for family in network.parents]
    sizes = [np.array([domain.sizes[each] for each in family], np.int64) for family in network.parents]
    words: NDArray[np.uint64] = source.scratch.array(min(size, _BLOCK), np.uint64)
    for start in range(0, size, _BLOCK):
        piece = words[: min(_BLOCK, size - start)]
        for each in order:
            if domain.sizes[each] > 1:
                source.fill_words(piece)
                draw_attribute(codes, start, each, parents[each], sizes[each], steps[each], piece)
    return Records(domain, codes)


def thresholds(table: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return per row of a conditional table the cumulative probabilities times 2^63, rounded down, without the last."""
    rows = table.reshape(-1, table.shape[-1])
    cumulative = np.cumsum(rows, axis=1)
    cumulative /= cumulative[:, -1:]  # what follows the last possible category is then exactly 1
    return np.ascontiguousarray(np.ldexp(cumulative[:, :-1], _BITS).astype(np.uint64))
