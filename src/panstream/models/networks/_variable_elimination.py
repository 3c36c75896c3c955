"""Variable elimination over factors: sums and maxima of products of small tables, one variable at a time.

The order is min-fill: next is the variable whose elimination connects the fewest pairs of unconnected neighbours, ties
by the smaller table. A table above the limit is refused before it is allocated.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from panstream.errors import NotSupported

LARGEST_FACTOR = 1 << 24  # cells; 128 MB of floats
_RESCALE_BELOW = 2.0**-100  # far from the smallest double, 2^-1074, whatever one further table multiplies in


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """A table with one axis per variable; ``variables`` are sorted."""

    variables: tuple[int, ...]
    values: NDArray[np.float64]

    @classmethod
    def of(cls, variables: Sequence[int], values: NDArray[np.float64]) -> Factor:
        """Return the factor with its axes sorted."""
        order = sorted(range(len(variables)), key=lambda axis: variables[axis])
        return cls(tuple(variables[axis] for axis in order), np.transpose(values, order))

    def reduced(self, evidence: Mapping[int, int]) -> Factor:
        """Return the factor with the observed variables fixed at their values."""
        index = tuple(evidence.get(variable, slice(None)) for variable in self.variables)
        return Factor(
            tuple(variable for variable in self.variables if variable not in evidence), np.asarray(self.values[index])
        )


def _elimination_order(
    scopes: Sequence[tuple[int, ...]], sizes: Sequence[int], eliminate: Collection[int], *, limit: int = LARGEST_FACTOR
) -> list[int]:
    """Return the variables of ``eliminate`` in min-fill order; raise NotSupported for a table above ``limit``."""
    neighbours: dict[int, set[int]] = {variable: set() for variable in eliminate}
    for scope in scopes:
        for variable in scope:
            neighbours.setdefault(variable, set()).update(scope)
    for variable, around in neighbours.items():
        around.discard(variable)
    order: list[int] = []
    remaining = set(eliminate)
    costs = {variable: _fill(variable, neighbours, sizes) for variable in remaining}
    while remaining:
        variable = min(remaining, key=lambda candidate: (costs[candidate], candidate))
        around = neighbours.pop(variable)
        _check_size(math.prod(sizes[neighbour] for neighbour in around) * sizes[variable], limit)
        for one in around:
            neighbours[one] |= around
            neighbours[one] -= {variable, one}
        remaining.discard(variable)
        order.append(variable)
        touched = around.union(*(neighbours[one] for one in around)) if around else set()
        costs.update({candidate: _fill(candidate, neighbours, sizes) for candidate in touched & remaining})
    return order


def _fill(variable: int, neighbours: Mapping[int, set[int]], sizes: Sequence[int]) -> tuple[int, int]:
    around = neighbours[variable]
    missing = sum(len(around - neighbours[one]) - 1 for one in around)
    return missing, math.prod(sizes[neighbour] for neighbour in around)


def _check_size(cells: int, limit: int) -> None:
    if cells > limit:
        raise NotSupported(
            f"exact inference would need a table of {cells} cells, above the limit of {limit}; "
            "ask for fewer attributes at once, use a network of lower degree, or sample from it instead"
        )


def sum_product(
    factors: Sequence[Factor], sizes: Sequence[int], keep: Sequence[int], *, limit: int = LARGEST_FACTOR
) -> tuple[NDArray[np.float64], float]:
    """Return the sum of the product over all variables but ``keep``, as (table with the axes of ``keep``, log2 scale).

    The table times ``2**scale`` is the sum; intermediate scaling prevents underflow of long products.
    """
    _check_size(math.prod(sizes[variable] for variable in keep), limit)
    pool = list(factors)
    scale = 0.0
    for _, axis, rest, tables in _eliminate(pool, sizes, keep, limit):
        joined, shift = _product(tables)
        pool.append(Factor(rest, np.asarray(joined.sum(axis=axis))))
        scale += shift
    axes = tuple(sorted(keep))
    full = np.ones(tuple(sizes[variable] for variable in axes))
    result, shift = _product(_aligned([*pool, Factor(axes, full)], sizes)[1])
    return np.transpose(result, [axes.index(variable) for variable in keep]), scale + shift


def maximise(
    factors: Sequence[Factor], sizes: Sequence[int], *, limit: int = LARGEST_FACTOR
) -> tuple[dict[int, int], float]:
    """Return the assignment with the largest product of the factors and log2 of that product."""
    with np.errstate(divide="ignore"):
        pool = [Factor(factor.variables, np.log2(factor.values)) for factor in factors]
    # The best value of each eliminated variable for every setting of the variables that are eliminated later.
    traces: list[tuple[int, tuple[int, ...], NDArray[np.int64]]] = []
    for variable, axis, rest, tables in _eliminate(pool, sizes, (), limit):
        joined = functools.reduce(np.add, tables)
        traces.append((variable, rest, np.asarray(joined.argmax(axis=axis))))
        pool.append(Factor(rest, np.asarray(joined.max(axis=axis))))
    best: dict[int, int] = {}
    for variable, scope, codes in reversed(traces):
        best[variable] = int(codes[tuple(best[other] for other in scope)])
    return best, float(sum(float(factor.values) for factor in pool))


def conditionals(
    factors: Sequence[Factor], sizes: Sequence[int], *, limit: int = LARGEST_FACTOR
) -> tuple[dict[int, tuple[tuple[int, ...], NDArray[np.float64]]], float]:
    """Return the normalised product as conditional tables by variable, and log2 of what it sums to.

    A table has an axis for each variable it depends on, all of them eliminated later, and its own variable last.
    """
    pool = list(factors)
    scale = 0.0
    by_variable: dict[int, tuple[tuple[int, ...], NDArray[np.float64]]] = {}
    for variable, axis, rest, tables in _eliminate(pool, sizes, (), limit):
        joined, shift = _product(tables)
        rows = np.moveaxis(joined, axis, -1)
        total = np.asarray(rows.sum(axis=-1))
        # A row whose condition has probability 0 is never used; make it uniform, so that it is a distribution.
        even = np.full(rows.shape, 1.0 / rows.shape[-1])
        by_variable[variable] = rest, np.divide(rows, total[..., None], out=even, where=total[..., None] > 0)
        pool.append(Factor(rest, total))
        scale += shift
    constant = math.prod(float(factor.values) for factor in pool)
    return by_variable, scale + (math.log2(constant) if constant > 0 else -math.inf)


def _eliminate(
    pool: list[Factor], sizes: Sequence[int], keep: Sequence[int], limit: int
) -> Iterator[tuple[int, int, tuple[int, ...], list[NDArray[np.float64]]]]:
    """Yield each variable to eliminate with its axis, the other variables of its factors, and the tables to multiply.

    Their factors are removed from ``pool``; the caller appends the factor that replaces them.
    """
    scopes = [factor.variables for factor in pool]
    others = {variable for scope in scopes for variable in scope} - set(keep)
    for variable in _elimination_order([*scopes, tuple(keep)], sizes, others, limit=limit):
        variables, tables = _aligned([factor for factor in pool if variable in factor.variables], sizes)
        pool[:] = [factor for factor in pool if variable not in factor.variables]
        yield variable, variables.index(variable), tuple(other for other in variables if other != variable), tables


def _aligned(factors: Sequence[Factor], sizes: Sequence[int]) -> tuple[tuple[int, ...], list[NDArray[np.float64]]]:
    """Return all variables of the factors, and the factors' tables with an axis for each, small tables first."""
    variables = tuple(sorted({variable for factor in factors for variable in factor.variables}))
    return variables, [
        factor.values.reshape(tuple(sizes[variable] if variable in factor.variables else 1 for variable in variables))
        for factor in sorted(factors, key=lambda candidate: candidate.values.size)
    ]


def _product(tables: Sequence[NDArray[np.float64]]) -> tuple[NDArray[np.float64], float]:
    """Return the product, divided by a power of two against underflow, and log2 of that power."""
    result = np.ones((1,) * tables[0].ndim)
    scale = 0.0
    for table in tables:
        result = result * table
        largest = float(result.max())
        if 0.0 < largest < _RESCALE_BELOW:
            shift = math.frexp(largest)[1]
            result = np.ldexp(result, -shift)  # exact: a power of two
            scale = scale + shift
    return result, scale
