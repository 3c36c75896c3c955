"""Density of a dynamic graph: which fraction of all possible undirected edges has appeared."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.algorithms.density.presence import Presence, PresenceBatch
from panstream.algorithms.density.universe import Members
from panstream.algorithms.randomized_bits import CoinPair
from panstream.core.estimate import Estimate
from panstream.errors import InvalidBatch
from panstream.primitives import validation as checks
from panstream.primitives.inputs import integers
from panstream.privacy.claim import Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphDensity(Presence):
    """The fraction of a graph's possible undirected edges that have appeared in a stream of edges.

    An edge (u, v) with u < v has the number u·(2n-u-1)/2 + v-u-1 among n(n-1)/2; every sampled edge has a noisy bit.

    Privacy:
        Unit: **edge**. Whether two given vertices are connected is protected as in `OptBern`; whether a *vertex*
        takes part in the graph at all is not (node level): a vertex with d edges loses up to d·epsilon.
        Proof: docs/proofs/joint-loss.md, Theorem 1.

    Error:
        As `OptBern` with the edges as users.

    Args:
        sample: How many edges have a bit; all of them by default, which has no sampling error.
        deletions: Whether rows may remove edges (excludes announced intrusions).
        vertices: Number of vertices, which are numbered from 0.

    Examples:
        >>> monitor = GraphDensity(vertices=400, epsilon=1.0).start()
        >>> monitor.update([(u, v) for u in range(200) for v in range(u)])
        >>> abs(monitor.release().value - 0.2494) < 0.05
        True

    Reference: "Improved pan-private stream density estimation", section 2 (dynamic graphs).
    """

    theorem: ClassVar[str] = "Theorem 1"

    vertices: int
    universe: Members = field(init=False, repr=False, compare=False)  # the possible edges

    def __post_init__(self) -> None:
        checks.require_integer_in_range(2, 1 << 31, vertices=self.vertices)
        object.__setattr__(self, "universe", self.vertices * (self.vertices - 1) // 2)
        Presence.__post_init__(self)

    @property
    def law(self) -> CoinPair:
        """Return the symmetric pair of coins and the release noise at the best split."""
        return self._optimal_law()

    def claim(self) -> Claim:
        """Return OptBern's claim about one edge."""
        return replace(Presence.claim(self), unit="edge", public=("the vertices, the sample of edges and its key",))

    def batch(self, edges: Any = None, weight: Any = None, *, insert: Any = None, delete: Any = None) -> PresenceBatch:
        """Check edges given as pairs, as a two-column array, or as (sources, targets) of two arrays.

        Args:
            edges: The edges; each is an arrival.
            weight: +1 for arrivals and -1 for deletions, one for all edges or one each.
            insert: Edges that arrive.
            delete: Edges that are deleted.
        """
        indices = [None if pairs is None else self._edge_indices(pairs) for pairs in (edges, insert, delete)]
        copies = [array for array in indices if array is not None]
        try:
            batch = Presence.batch(self, indices[0], weight, insert=indices[1], delete=indices[2])
        except InvalidBatch:
            for array in copies:
                array.fill(0)
            raise
        return replace(batch, owned=(*batch.owned, *copies))

    def _edge_indices(self, pairs: Any) -> NDArray[np.int64]:
        first, second = _columns(pairs)
        u, u_copied = integers(first, name="edges (first vertex)", lower=0, upper=self.vertices - 1)
        v, v_copied = integers(second, name="edges (second vertex)", lower=0, upper=self.vertices - 1)
        if u.size != v.size:
            raise InvalidBatch(f"edges must have two ends, got {u.size} and {v.size}")
        loops = np.flatnonzero(u == v)
        low = np.minimum(u, v)
        high = np.maximum(u, v)
        numbers: NDArray[np.int64] = low * (2 * self.vertices - low - 1) // 2 + high - low - 1
        for array, is_copy in ((u, u_copied), (v, v_copied), (low, True), (high, True)):
            if is_copy:
                array.fill(0)
        if loops.size:
            raise InvalidBatch("an edge must join two different vertices", row=int(loops[0]))
        return numbers

    def _decode(self, released: tuple[int, ...], sizes: NDArray[np.int64], phases: int) -> Estimate:
        return replace(Presence._decode(self, released, sizes, phases), name="graph density")


def _columns(pairs: Any) -> tuple[Any, Any]:
    """Return the two columns of pairs, of an (n, 2) array, or of a tuple of two arrays."""
    if isinstance(pairs, np.ndarray):
        if pairs.ndim == 2 and pairs.shape[1] == 2:
            return pairs[:, 0], pairs[:, 1]
    elif isinstance(pairs, tuple) and len(pairs) == 2 and all(isinstance(side, np.ndarray) for side in pairs):
        return pairs
    elif isinstance(pairs, list | tuple):
        for row, pair in enumerate(pairs):
            if not isinstance(pair, list | tuple) or len(pair) != 2:
                raise InvalidBatch("an edge must be a pair of vertices", row=row)
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    raise InvalidBatch("edges must be pairs, a two-column array, or a tuple of two arrays")
