"""Local search: add, drop or turn one arrow at a time as long as the BIC score grows.

BIC is the log-likelihood minus half of log2(n) bits for every free probability, so an arrow must pay for its table.
It reads tables only, so noisy ones that were released privately will do; the noise then adds spurious information,
which ``penalty`` above 1 can outweigh.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from panstream.errors import InvalidParameter
from panstream.networks.baselines import Parents, Tables
from panstream.networks.domain import Domain
from panstream.networks.information import conditional_entropy

__all__ = ["bic_score", "local_search"]

Change = tuple[tuple[int, tuple[int, ...]], ...]  # the children whose parents change, with their new parents


def bic_score(
    domain: Domain, tables: Tables, records: int, *, penalty: float = 1.0
) -> Callable[[int, tuple[int, ...]], float]:
    """Return the score of a family in bits: -n·H(child | parents) - penalty · log2(n)/2 · free probabilities."""
    if records < 1:
        raise InvalidParameter(f"records must be at least 1, got records={records}")
    sizes, price = domain.sizes, penalty * math.log2(records) / 2
    found: dict[tuple[int, tuple[int, ...]], float] = {}

    def score(child: int, parents: tuple[int, ...]) -> float:
        key = (child, parents)
        if key not in found:
            counts = np.maximum(tables((*parents, child)), 0)
            free = math.prod(sizes[each] for each in parents) * (sizes[child] - 1)
            found[key] = -records * conditional_entropy(counts) - price * free
        return found[key]

    return score


def local_search(
    domain: Domain,
    tables: Tables,
    records: int,
    *,
    degree: int = 2,
    penalty: float = 1.0,
    start: Parents | None = None,
    steps: int = 10_000,
) -> Parents:
    """Return a structure that no single added, dropped or turned arrow improves (hill climbing from ``start``).

    ``records`` is the public number of records; no attribute gets more than ``degree`` parents, so tables of
    ``degree + 1`` attributes suffice.
    """
    if degree < 1:
        raise InvalidParameter(f"degree must be at least 1, got degree={degree}")
    score = bic_score(domain, tables, records, penalty=penalty)
    parents = [tuple(sorted(family)) for family in start or ((),) * len(domain)]
    for _ in range(steps):
        best, gain = None, 1e-6
        for change in _changes(parents, degree):
            value = sum(score(child, family) - score(child, parents[child]) for child, family in change)
            if value > gain and not _cyclic(parents, change):
                best, gain = change, value
        if best is None:
            break
        for child, family in best:
            parents[child] = family
    return tuple(parents)


def _changes(parents: list[tuple[int, ...]], degree: int) -> Iterator[Change]:
    for child, family in enumerate(parents):
        for other in range(len(parents)):
            if other in family:
                dropped = tuple(each for each in family if each != other)
                yield ((child, dropped),)
                if len(parents[other]) < degree:
                    yield ((child, dropped), (other, tuple(sorted((*parents[other], child)))))
            elif other != child and len(family) < degree and child not in parents[other]:
                yield ((child, tuple(sorted((*family, other)))),)


def _cyclic(parents: list[tuple[int, ...]], change: Change) -> bool:
    """Return whether the change closes a cycle: then the changed child is among its own ancestors."""
    changed = dict(change)
    for start in changed:
        waiting, seen = list(changed[start]), set()
        while waiting:
            each = waiting.pop()
            if each == start:
                return True
            if each not in seen:
                seen.add(each)
                waiting.extend(changed.get(each, parents[each]))
    return False
