"""Greedy choice of parents, one attribute a round, each by a private choice among all families that are allowed.

Either ``degree`` k is given and every attribute takes min(k, placed) parents, or families are limited by theta-usefulness:
the noise of a family's table must leave its average cell visible (Zhang et al. 2017, section 4.5).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from panstream.errors import InvalidParameter
from panstream.networks.counting import contingency
from panstream.networks.domain import Domain
from panstream.networks.learned import Progress, silent
from panstream.networks.records import Records
from panstream.networks.scores import Score
from panstream.networks.budget import Purse, portions
from panstream.randomness import Source

__all__ = ["Families", "greedy_families", "largest_families", "useful_cells"]

LARGEST_DEGREE = 4


def useful_cells(records: int, attributes: int, epsilon: float, theta: float) -> float:
    """Return how many cells a family's table may have: n·epsilon/(2·d·theta).

    >>> useful_cells(39_073, 13, 0.6, 4.0)
    225.42...
    """
    return records * epsilon / (2.0 * attributes * theta)


@dataclass(frozen=True, slots=True, kw_only=True)
class Families:
    """Which sets of parents a child may have: of size ``degree``, or as large as ``cells`` allows."""

    degree: int | None = None
    cells: float = math.inf

    def __post_init__(self) -> None:
        if self.degree is not None and self.degree < 0:
            raise InvalidParameter(f"degree must be at least 0, got degree={self.degree}")

    def parents(
        self, domain: Domain, child: int, placed: Sequence[int], newest: int | None
    ) -> Iterator[tuple[int, ...]]:
        """Yield allowed parent sets among ``placed``; with ``newest``, only those that hold it."""
        others = [each for each in placed if each != newest]
        fixed = () if newest is None else (newest,)
        if self.degree is not None:
            for rest in itertools.combinations(others, min(self.degree, len(placed)) - len(fixed)):
                yield tuple(sorted((*rest, *fixed)))
            return
        for size in range(min(LARGEST_DEGREE, len(placed)) - len(fixed) + 1):
            for rest in itertools.combinations(others, size):
                family = tuple(sorted((*rest, *fixed)))
                if math.prod(domain.sizes[each] for each in (*family, child)) <= self.cells:
                    yield family


def greedy_families(
    records: Records,
    score: Score,
    families: Families,
    purse: Purse,
    share: Fraction,
    source: Source,
    progress: Progress = silent,
) -> tuple[tuple[int, ...], ...]:
    """Return the parents of every attribute: d - 1 private choices that cost ``share`` in all.

    The first attribute is the one with the most values (public), so that it never has to be anybody's child.
    """
    domain = records.domain
    if score.name == "F" and any(size != 2 for size in domain.sizes):
        raise InvalidParameter("score F needs attributes with two values each; use R")
    first = int(np.argmax(domain.sizes))
    placed = [first]
    parents: list[tuple[int, ...]] = [()] * len(domain)
    rest = [each for each in range(len(domain)) if each != first]
    sensitivity = score.sensitivity(len(records), all(size == 2 for size in domain.sizes))
    each_share = portions(share, [1.0] * max(len(rest), 1))
    scores: dict[int, dict[tuple[int, ...], int]] = {child: {} for child in rest}
    newest: int | None = first
    while rest:
        progress("choosing parents", (len(placed) - 1) / len(domain))
        for child in rest:
            _extend(records, score, families, child, placed, newest, scores[child])
        candidates = [(child, family) for child in rest for family in scores[child]]
        utilities = np.array([scores[child][family] for child, family in candidates], np.int64)
        chosen = purse.choose("structure", utilities, sensitivity, each_share[len(placed) - 1], source)
        child, family = candidates[chosen]
        parents[child] = family
        placed.append(child)
        rest.remove(child)
        newest = child
    return tuple(parents)


def _extend(
    records: Records,
    score: Score,
    families: Families,
    child: int,
    placed: Sequence[int],
    newest: int | None,
    known: dict[tuple[int, ...], int],
) -> None:
    """Add the scores of families that hold the newest attribute; drop what is no longer allowed."""
    domain = records.domain
    full = families.degree is not None and len(placed) <= families.degree
    if families.degree == 0 or (families.degree is None and not known):
        known[()] = score.units(contingency(records, (child,))[None, :])
        if families.degree == 0:
            return
    if full:  # every attribute placed so far is a parent: last round's families are too small
        known.clear()
        newest = None
    for family in families.parents(domain, child, placed, newest):
        if family not in known:
            known[family] = score.units(contingency(records, (*family, child)))


def largest_families(parents: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return the families (sorted positions) that are in no other: the N - k tables that need noise.

    >>> largest_families([(), (0,), (0, 1), (1, 2)])
    [(0, 1, 2), (1, 2, 3)]
    """
    families = sorted({tuple(sorted((*above, child))) for child, above in enumerate(parents)}, key=len, reverse=True)
    kept: list[tuple[int, ...]] = []
    for family in families:
        if not any(set(family) <= set(other) for other in kept):
            kept.append(family)
    return sorted(kept)
