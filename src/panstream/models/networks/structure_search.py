"""Learn structures and parameters from tables, without adding noise.

All functions read *tables*: a function that returns the (possibly noisy) counts of a few attributes. With
``exact_tables(records)`` the result is not private; with tables that were released privately it is post-processing.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.models.networks.contingency import contingency
from panstream.models.networks.domain import Domain
from panstream.models.networks.information import entropy, mutual_information
from panstream.models.networks.network import BayesianNetwork, ancestors, topological_order
from panstream.models.networks.records import Records
from panstream.primitives import validation as checks

Parents: TypeAlias = tuple[tuple[int, ...], ...]
Tables: TypeAlias = Callable[[tuple[int, ...]], NDArray[Any]]
"""Returns the counts of some attributes, one axis each in the order of the argument; noisy counts may be negative."""


def exact_tables(records: Records) -> Tables:
    """Return the exact tables of the records. Not private.

    Args:
        records: The records to count.
    """
    return lambda attributes: contingency(records, attributes)


def marginal_tables(measured: Mapping[tuple[int, ...], NDArray[Any]]) -> Tables:
    """Return a lookup that sums tables from the smallest measured table with all the requested attributes.

    Args:
        measured: Tables by the positions of their attributes.

    >>> tables = marginal_tables({(0, 1): np.array([[1, 2], [3, 4]])})
    >>> tables((1,)).tolist(), tables((1, 0)).tolist()
    ([4, 6], [[1, 3], [2, 4]])
    """
    entries = sorted(((axes, np.asarray(table)) for axes, table in measured.items()), key=lambda entry: entry[1].size)
    exact = {frozenset(axes): [(axes, table)] for axes, table in reversed(entries)}

    def tables(attributes: tuple[int, ...]) -> NDArray[Any]:
        for axes, table in exact.get(frozenset(attributes), entries):
            if set(attributes) <= set(axes):
                rest = tuple(axis for axis, attribute in enumerate(axes) if attribute not in attributes)
                retained = [attribute for attribute in axes if attribute in attributes]
                return np.transpose(table.sum(axis=rest), [retained.index(attribute) for attribute in attributes])
        raise InvalidParameter(f"no table holds the attributes {attributes}")

    return tables


def _information_score(tables: Tables) -> Callable[[int, tuple[int, ...]], float]:
    """Return the score I(child; parents) in bits, with negative counts taken as 0, each family computed once."""
    return functools.cache(lambda child, parents: mutual_information(np.maximum(tables((*parents, child)), 0)))


def independent(domain: Domain) -> Parents:
    """Return the structure without edges. (The thesis calls this baseline "naive Bayes".)

    Args:
        domain: The attributes.
    """
    return ((),) * len(domain)


def naive_bayes(domain: Domain, target: int) -> Parents:
    """Return the structure in which ``target`` is the only parent of every other attribute.

    Args:
        domain: The attributes.
        target: Position of the only parent.
    """
    if not 0 <= target < len(domain):
        raise InvalidParameter(f"target must be in 0..{len(domain) - 1}, got target={target}")
    return tuple(() if attribute == target else (target,) for attribute in range(len(domain)))


def chow_liu(domain: Domain, tables: Tables, root: int = 0) -> Parents:
    """Return the tree that maximises the sum of mutual informations, directed away from ``root`` (Chow, Liu 1968).

    With exact tables no tree has a larger likelihood.

    Args:
        domain: The attributes.
        tables: Looks up the counts of any two attributes.
        root: Position of the attribute without parents.
    """
    if not 0 <= root < len(domain):
        raise InvalidParameter(f"root must be in 0..{len(domain) - 1}, got root={root}")
    score = _information_score(tables)
    parents: list[tuple[int, ...]] = [()] * len(domain)
    best = {
        attribute: (score(max(root, attribute), (min(root, attribute),)), root)
        for attribute in range(len(domain))
        if attribute != root
    }
    while best:  # Prim's algorithm
        child = max(best, key=lambda candidate: (best[candidate][0], -candidate))
        parents[child] = (best.pop(child)[1],)
        for attribute, (reached, _) in best.items():
            weight = score(max(child, attribute), (min(child, attribute),))
            if weight > reached:
                best[attribute] = (weight, child)
    return tuple(parents)


def greedy(
    domain: Domain,
    tables: Tables,
    degree: int,
    *,
    root: int = 0,
    score: Callable[[int, tuple[int, ...]], float] | None = None,
) -> Parents:
    """Return the structure that adds, one at a time, the attribute with the parents that score highest.

    The parents are ``min(degree, number placed)`` attributes that were placed before (Digalakis 2018, Algorithm 3.2,
    without noise). ``score(child, parents)`` is the mutual information unless given. ``degree = 1`` is Chow–Liu's tree.

    Args:
        domain: The attributes.
        tables: Looks up the counts of any ``degree + 1`` attributes.
        degree: Largest number of parents.
        root: Position of the attribute that is placed first.
        score: Score of a child with its parents; mutual information by default.
    """
    checks.require_at_least(1, degree=degree)
    score = score or _information_score(tables)
    placed = [root]
    parents: list[tuple[int, ...]] = [()] * len(domain)
    best: dict[int, tuple[float, tuple[int, ...]]] = {}
    while len(placed) < len(domain):
        size = min(degree, len(placed))
        *previous, last = placed  # sets without the attribute placed last were scored in earlier rounds
        fresh = [tuple(sorted((*chosen, last))) for chosen in itertools.combinations(previous, size - 1)]
        if size == len(placed):
            best.clear()  # sets have one attribute more from now on; earlier ones are too small
        for child in set(range(len(domain))) - set(placed):
            for family in fresh:
                value = score(child, family)
                if child not in best or value > best[child][0]:
                    best[child] = (value, family)
        child = max(best, key=lambda candidate: (best[candidate][0], -candidate))
        parents[child] = best.pop(child)[1]
        placed.append(child)
    return tuple(parents)


def largest_families(parents: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the families, as sorted positions, that lie within no other, large ones first.

    >>> largest_families([(), (0,), (0, 1), (1, 2)])
    [(0, 1, 2), (1, 2, 3)]
    """
    every = [tuple(sorted((*family, child))) for child, family in enumerate(parents)]
    largest: list[tuple[int, ...]] = []
    for family in sorted(every, key=len, reverse=True):
        if not any(set(family) <= set(other) for other in largest):
            largest.append(family)
    return largest


def fit_tables(domain: Domain, parents: Parents, tables: Tables, *, pseudocount: float = 1.0) -> BayesianNetwork:
    """Return the network whose tables are those of the counts, smoothed by ``pseudocount`` per cell.

    Args:
        domain: The attributes.
        parents: For each attribute the positions of its parents.
        tables: Looks up the counts of a family.
        pseudocount: What is added to every cell.

    >>> domain = Domain({"rain": ["no", "yes"], "wet": ["no", "yes"]})
    >>> counts = marginal_tables({(0, 1): np.array([[5, 1], [0, 4]])})
    >>> fit_tables(domain, ((), (0,)), counts, pseudocount=0).tables[1].tolist()
    [[0.8333333333333334, 0.16666666666666666], [0.0, 1.0]]
    """
    topological_order(parents)
    conditionals = [_conditional(tables((*family, child)), pseudocount) for child, family in enumerate(parents)]
    return BayesianNetwork(domain, parents, tuple(conditionals))


_Change = tuple[tuple[int, tuple[int, ...]], ...]  # the children whose parents change, with their new parents


def _bic_score(
    domain: Domain, tables: Tables, records: int, *, penalty: float = 1.0
) -> Callable[[int, tuple[int, ...]], float]:
    """Return the score of a family in bits: -n·H(child | parents) - penalty · log2(n)/2 · free probabilities."""
    checks.require_at_least(1, records=records)
    sizes = domain.sizes
    price = penalty * math.log2(records) / 2

    @functools.cache
    def score(child: int, parents: tuple[int, ...]) -> float:
        counts = np.maximum(tables((*parents, child)), 0)
        free = math.prod(sizes[parent] for parent in parents) * (sizes[child] - 1)
        return -records * max(0.0, entropy(counts) - entropy(counts.sum(axis=-1))) - price * free

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
    """Return a structure that no added, removed or reversed edge improves (hill climbing by BIC from ``start``).

    ``records`` is the public number of records; no attribute gets more than ``degree`` parents, so tables of
    ``degree + 1`` attributes suffice.

    Args:
        domain: The attributes.
        tables: Looks up the counts of any ``degree + 1`` attributes.
        records: Number of records, which is public.
        degree: Largest number of parents.
        penalty: Factor of BIC's penalty for parameters.
        start: Structure to begin with; no edges by default.
        steps: Largest number of changes.
    """
    checks.require_at_least(1, degree=degree)
    score = _bic_score(domain, tables, records, penalty=penalty)
    parents = [tuple(sorted(family)) for family in start or ((),) * len(domain)]
    for _ in range(steps):
        best = None
        gain = 1e-6
        for change in _changes(parents, degree):
            value = sum(score(child, family) - score(child, parents[child]) for child, family in change)
            if value > gain and not _cyclic(parents, change):
                best = change
                gain = value
        if best is None:
            break
        for child, family in best:
            parents[child] = family
    return tuple(parents)


def _changes(parents: list[tuple[int, ...]], degree: int) -> Iterator[_Change]:
    for child, family in enumerate(parents):
        for other in range(len(parents)):
            if other in family:
                dropped = tuple(parent for parent in family if parent != other)
                yield ((child, dropped),)
                if len(parents[other]) < degree:
                    yield ((child, dropped), (other, tuple(sorted((*parents[other], child)))))
            elif other != child and len(family) < degree and child not in parents[other]:
                yield ((child, tuple(sorted((*family, other)))),)


def _cyclic(parents: list[tuple[int, ...]], change: _Change) -> bool:
    """Return whether the change creates a cycle: then a changed child is among its own ancestors."""
    changed = list(parents)
    for child, family in change:
        changed[child] = family
    return any(child in ancestors(changed, family) for child, family in change)


def _conditional(counts: NDArray[Any], pseudocount: float = 1.0) -> NDArray[np.float64]:
    """Return the last axis given the others from (noisy) counts: clamp at 0, add ``pseudocount`` per cell, normalise.

    ``pseudocount = 1`` is the usual ``(c + 1) / (sum(c) + d)``; for noisy counts it should match the noise. A row
    without any weight becomes uniform.

    >>> _conditional(np.array([[3, 1], [0, 0]])).tolist()
    [[0.6666666666666666, 0.3333333333333333], [0.5, 0.5]]
    """
    if not pseudocount >= 0:
        raise InvalidParameter(f"pseudocount must be nonnegative, got pseudocount={pseudocount}")
    weights = np.maximum(np.asarray(counts, np.float64), 0.0) + pseudocount
    totals = weights.sum(axis=-1, keepdims=True)
    empty = totals == 0
    return np.where(empty, 1.0 / weights.shape[-1], weights / np.where(empty, 1.0, totals))
