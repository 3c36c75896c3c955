"""Categories that nobody listed: the law of what is named, for all small tables that differ in one person's records.

The source puts each noisy count just at or just below the threshold, and multiplies the probabilities of that, which
are summed from the law of the noise that the shipped code draws from. Losses are the least epsilon at the claimed
delta.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from panstream.audit.claims.case import Case, ExactLoss
from panstream.models.networks.category_names import categories_claim, frequent_categories
from panstream.primitives.noise import DiscreteLaplace, NoiseSource
from panstream.privacy.category_loss import category_threshold

_Table: TypeAlias = tuple[str, ...]
_Law: TypeAlias = dict[tuple[str, ...], float]
_REACH = np.arange(-400, 401)


class _BranchingSource(NoiseSource):
    """Names the categories of ``path``, and multiplies the probabilities of naming these and no others."""

    __slots__ = ("chance", "path", "threshold")

    is_secure = False

    def __init__(self, threshold: int, path: tuple[bool, ...]) -> None:
        super().__init__()
        self.threshold = threshold
        self.path = path
        self.chance = 1.0

    def add_discrete_laplace(self, values: NDArray[np.int64], law: DiscreteLaplace) -> None:
        """Put the counts beside the threshold."""
        weights = np.exp(-law.kappa * np.abs(_REACH))
        for position, (count, is_named) in enumerate(zip(values.tolist(), self.path, strict=True)):
            above = float(weights[self.threshold - count <= _REACH].sum() / weights.sum())
            self.chance *= above if is_named else 1.0 - above
            values[position] = self.threshold - (not is_named)


@dataclass(frozen=True)
class _NamingLoss:
    """Tables of ``records`` values that differ in ``replaced`` of them, named for one of ``contributions`` records."""

    epsilon: float
    delta: float
    contributions: int
    replaced: int
    records: int

    def __call__(self) -> ExactLoss:
        """Return the largest loss at delta over all neighbours."""
        laws = {table: self._law(table) for table in combinations_with_replacement("abc", self.records)}
        worst = 0.0
        witness = ""
        for rest in combinations_with_replacement("abc", self.records - self.replaced):
            near = [tuple(sorted((*rest, *own))) for own in combinations_with_replacement("abc", self.replaced)]
            for one, other in product(near, repeat=2):
                loss = _loss(laws[one], laws[other], self.delta)
                if loss > worst:
                    worst = loss
                    witness = f"{''.join(one)} against {''.join(other)}; the named values"
        return ExactLoss(loss=worst, witness=witness)

    def _law(self, table: _Table) -> _Law:
        threshold = category_threshold(self.epsilon, self.delta, self.contributions)
        law: _Law = {}
        for path in product((False, True), repeat=len(set(table))):
            with _BranchingSource(threshold, path) as rng:
                named = frequent_categories(
                    list(table), self.epsilon, self.delta, rng, contributions=self.contributions
                )
                law[tuple(named)] = law.get(tuple(named), 0.0) + rng.chance
        return law


def _loss(one: _Law, other: _Law, delta: float) -> float:
    """Return the least epsilon >= 0 at which ``one`` exceeds e**epsilon times ``other`` by at most delta in all."""
    pairs = [(chance, other.get(named, 0.0)) for named, chance in one.items()]
    pairs.sort(key=lambda pair: pair[0] / pair[1] if pair[1] else math.inf, reverse=True)
    excess = 0.0
    seen = 0.0
    loss = 0.0
    for chance, against in pairs:  # the outcomes with the largest ratios, one more each time
        excess += chance
        seen += against
        if excess > delta * (1 + 1e-12):
            loss = max(loss, math.log((excess - delta) / seen) if seen else math.inf)
    return loss


def _naming_cases() -> Iterator[Case]:
    """Yield one case for a record, one for a person of two, and the person of two under the claim for a record."""
    for name, contributions, records in (  # enough records for two categories near the threshold
        ("Categories that nobody listed, delta 0.01", 1, 16),
        ("Categories that nobody listed, two records of a person, delta 0.01", 2, 28),
    ):
        yield Case(
            name=name,
            kind="production",
            claimed=categories_claim(1.5, 0.01, contributions).epsilon,
            exact=_NamingLoss(1.5, 0.01, contributions, contributions, records),
        )
    yield Case(
        name="Categories named as if a person had one record",
        kind="control",
        claimed=1.5,
        exact=_NamingLoss(1.5, 0.01, 1, 2, 16),
        represents="a threshold for one record on a table of visits, of which a person has two",
    )


CASES = (_naming_cases,)
