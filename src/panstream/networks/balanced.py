"""Records whose counts follow the network as closely as whole numbers can: sampling without its own noise.

Independent draws add a sampling error of their own to every count. Here, among the records that share their parents'
values, each category gets its expected number, rounded up or down at random; who gets which is random. On average every
record still has the network's distribution, but the records are not independent of each other.
"""

from __future__ import annotations

import math

import numpy as np

from panstream.errors import InvalidParameter
from panstream.networks.network import BayesianNetwork
from panstream.networks.records import Records
from panstream.randomness import Source

__all__ = ["balanced_sample", "numeric_columns"]


def balanced_sample(network: BayesianNetwork, size: int, source: Source) -> Records:
    """Return ``size`` records by systematic sampling within the groups of equal parents.

    >>> from panstream.networks import Domain
    >>> domain = Domain({"coin": ["heads", "tails"]})
    >>> fair = BayesianNetwork(domain, ((),), (np.array([0.5, 0.5]),))
    >>> with Source() as source:
    ...     balanced_sample(fair, 1000, source).to_columns()["coin"].count("heads")
    500
    """
    if size < 0:
        raise InvalidParameter(f"size must be nonnegative, got size={size}")
    sizes = network.domain.sizes
    codes = np.zeros((len(sizes), size), np.uint16)
    if size == 0:
        return Records(network.domain, codes)
    words = source.scratch.array(size, np.uint64)
    for child in network.order:
        table = network.tables[child].reshape(-1, sizes[child])
        group = np.zeros(size, np.int64)
        for parent in network.parents[child]:
            group = group * sizes[parent] + codes[parent]
        source.fill_words(words)
        order = np.lexsort((words, group))
        members = np.bincount(group, minlength=len(table))
        starts = np.cumsum(members) - members
        source.fill_words(words[: min(len(table), size)])
        offsets = np.zeros(len(table))
        used = np.flatnonzero(members)
        offsets[used] = words[: used.size] / 2.0**64
        sorted_group = group[order]
        places = (np.arange(size) - starts[sorted_group] + offsets[sorted_group]) / members[sorted_group]
        # One sorted array for all groups: the cumulative row of group g, lifted by g.
        steps = np.minimum(np.cumsum(table, axis=1), 1.0)
        steps[:, -1] = 1.0
        lifted = (steps + np.arange(len(table))[:, None]).reshape(-1)
        found = np.searchsorted(lifted, places + sorted_group, side="right") - sorted_group * sizes[child]
        codes[child, order] = np.clip(found, 0, sizes[child] - 1)
    return Records(network.domain, codes)


def numeric_columns(records: Records, source: Source) -> dict[str, list[object]]:
    """Return columns of labels, and of numbers drawn evenly from the bins where an attribute has bins.

    A bin without end gives its finite edge; whole numbers stay whole; a missing value is ``None``.
    """
    columns: dict[str, list[object]] = {}
    for attribute, row, labels in zip(
        records.domain.attributes, records.codes, records.to_columns().values(), strict=True
    ):
        if attribute.bins is None:
            columns[attribute.name] = list(labels)
            continue
        edges, last = attribute.bins.edges, len(attribute.bins.edges) - 2
        words = source.scratch.array(row.size, np.uint64)
        source.fill_words(words)
        values: list[object] = []
        for code, share in zip(row.tolist(), (words / 2.0**64).tolist(), strict=True):
            if code > last:
                values.append(None)
                continue
            low, high = edges[code], edges[code + 1]
            if not (math.isfinite(low) and math.isfinite(high)):
                low = high = low if math.isfinite(low) else high if math.isfinite(high) else 0.0
            if attribute.bins.whole:
                first, count = math.ceil(low), max(math.ceil(high) - math.ceil(low) + (code == last), 1)
                values.append(first + min(int(share * count), count - 1))
            else:
                values.append(low + share * (high - low))
        columns[attribute.name] = values
    return columns
