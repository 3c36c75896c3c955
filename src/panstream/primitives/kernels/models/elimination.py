"""Sizes of junction trees: greedy elimination of a graph, for many graphs that differ by one group of edges.

Compiled because a private choice needs the size for every candidate.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from panstream.primitives.kernels.jit import njit


@njit(cache=True, nogil=True)
def eliminate(graph: NDArray[np.bool_], log_sizes: NDArray[np.float64], cliques: NDArray[np.bool_]) -> float:
    """Eliminate the vertex with the smallest clique first; fill a row of ``cliques`` per vertex, return all cells.

    ``graph`` is symmetric and changed: the edges that elimination adds remain in it.
    """
    vertices = log_sizes.size
    waiting = np.ones(vertices, np.bool_)
    cells = 0.0
    for step in range(vertices):
        best = -1
        smallest = np.inf
        for vertex in range(vertices):
            if waiting[vertex]:
                size = log_sizes[vertex]
                for other in range(vertices):
                    if waiting[other] and graph[vertex, other]:
                        size += log_sizes[other]
                if size < smallest - 1e-9:
                    smallest = size
                    best = vertex
        cells += math.exp(smallest)
        waiting[best] = False
        for one in range(vertices):
            cliques[step, one] = one == best or (waiting[one] and graph[best, one])
        for one in range(vertices):
            for other in range(vertices):
                if one != other and one != best and other != best and cliques[step, one] and cliques[step, other]:
                    graph[one, other] = True
    return cells


@njit(cache=True, nogil=True)
def cells_with_edges(
    graph: NDArray[np.bool_], log_sizes: NDArray[np.float64], edges: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the cells of the cliques if one edge is added, for each row of ``edges`` (a loop adds nothing)."""
    cells = np.empty(len(edges))
    cliques = np.zeros(graph.shape, np.bool_)
    for row in range(len(edges)):
        extended = graph.copy()
        extended[edges[row, 0], edges[row, 1]] = True
        extended[edges[row, 1], edges[row, 0]] = True
        cells[row] = eliminate(extended, log_sizes, cliques)
    return cells
