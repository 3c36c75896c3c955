"""A Bayesian network: a distribution over records as a product of small conditional tables.

Queries are answered exactly, by variable elimination over the relevant attributes. Queries to a network that was
learned privately are post-processing and have no privacy loss.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter, NotSupported
from panstream.models.networks._model import Evidence, Model
from panstream.models.networks._variable_elimination import LARGEST_FACTOR, Factor, maximise, sum_product
from panstream.models.networks.domain import Domain
from panstream.models.networks.records import Records

_MAX_ROUNDING = 1e-9  # rows that miss 1 by more are rejected
_NORMALISED = 1e-12  # rows that miss 1 by less are stored as they are


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The most probable values of the unobserved attributes, and log2 of the probability of all values together.

    Args:
        values: The most probable value of every unobserved attribute.
        log_probability: Logarithm (base 2) of the probability of all values together.
    """

    values: Mapping[str, str]
    log_probability: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BayesianNetwork(Model):
    """A domain, the parents of each attribute and its table: ``tables[i][parents' codes..., code]``.

    ``tables[i]`` has the shape ``(*sizes of parents[i], size of i)`` and its last axis sums to 1 (within 1e-9; it is
    then normalised). Parents are positions in the domain; the arrows must not form a cycle. Tables are read-only.

    Args:
        domain: The attributes.
        parents: For each attribute the positions of its parents.
        tables: For each attribute its conditional probabilities: an axis per parent, and the last one for itself.

    >>> domain = Domain({"rain": ["no", "yes"], "wet": ["no", "yes"]})
    >>> network = BayesianNetwork(domain, ((), (0,)), (np.array([0.5, 0.5]), np.array([[1.0, 0.0], [0.5, 0.5]])))
    >>> network.entropy()
    1.5
    """

    domain: Domain
    parents: tuple[tuple[int, ...], ...]
    tables: tuple[NDArray[np.float64], ...]

    def __post_init__(self) -> None:
        parents = tuple(tuple(int(parent) for parent in family) for family in self.parents)
        if len(parents) != len(self.domain) or len(self.tables) != len(self.domain):
            raise InvalidParameter(f"parents and tables must have one entry for each of {len(self.domain)} attributes")
        topological_order(parents)
        object.__setattr__(self, "parents", parents)
        object.__setattr__(
            self, "tables", tuple(self._checked(position, table) for position, table in enumerate(self.tables))
        )

    def _checked(self, position: int, table: NDArray[Any]) -> NDArray[np.float64]:
        name = self.domain.names[position]
        sizes = self.domain.sizes
        shape = tuple(sizes[attribute] for attribute in (*self.parents[position], position))
        values = np.array(table, np.float64, order="C")
        if values.shape != shape:
            raise InvalidParameter(f"the table of {name!r} must have shape {shape}, got {values.shape}")
        if not (values.min() >= 0 and values.max() <= 1 + _MAX_ROUNDING):
            raise InvalidParameter(f"the table of {name!r} must hold probabilities")
        totals = values.sum(axis=-1, keepdims=True)
        if np.abs(totals - 1).max() > _MAX_ROUNDING:
            raise InvalidParameter(f"the table of {name!r} must sum to 1 over its last axis")
        if np.abs(totals - 1).max() > _NORMALISED:  # else a network that is read back would change in its last bit
            values /= totals
        values.flags.writeable = False
        return values

    def __repr__(self) -> str:
        return f"BayesianNetwork({len(self.domain)} attributes, degree {self.degree}, {self.parameters} parameters)"

    @property
    def order(self) -> tuple[int, ...]:
        """Return the attributes in topological order: parents before children."""
        return topological_order(self.parents)

    @property
    def degree(self) -> int:
        """Return the largest number of parents of an attribute."""
        return max(len(family) for family in self.parents)

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Return the edges as (parent, child)."""
        return tuple((parent, child) for child, family in enumerate(self.parents) for parent in family)

    @property
    def parameters(self) -> int:
        """Return the number of free probabilities."""
        return sum(table.size - table.size // table.shape[-1] for table in self.tables)

    def family(self, position: int) -> tuple[int, ...]:
        """Return the parents of an attribute and then the attribute itself: the axes of its table.

        Args:
            position: Position of the attribute.
        """
        return (*self.parents[position], position)

    def ancestors(self, positions: Collection[int]) -> set[int]:
        """Return the attributes and all their ancestors.

        Args:
            positions: Positions of the attributes.
        """
        return ancestors(self.parents, positions)

    def most_probable(self, given: Evidence | None = None, *, limit: int = LARGEST_FACTOR) -> Explanation:
        """Return the most probable explanation: the most probable record among those with the given values.

        Args:
            given: For each observed attribute its label.
            limit: Largest number of cells of a table of the computation.
        """
        domain = self.domain
        factors = self._factors(range(len(self.domain)), self._codes(given))
        best, value = maximise(factors, domain.sizes, limit=limit)
        if value == float("-inf"):
            raise InvalidParameter("the observed values have probability 0 under the network")
        values = {domain.names[position]: domain.labels(position)[best[position]] for position in sorted(best)}
        return Explanation(values=values, log_probability=value)

    def _factors(self, positions: Collection[int], codes: Mapping[int, int]) -> list[Factor]:
        return [
            Factor.of(self.family(position), self.tables[position]).reduced(codes) for position in sorted(positions)
        ]

    def _summed(
        self, wanted: tuple[int, ...], codes: Mapping[int, int], limit: int
    ) -> tuple[NDArray[np.float64], float]:
        relevant = self.ancestors({*wanted, *codes})  # the rest sums to 1
        return sum_product(self._factors(relevant, codes), self.domain.sizes, wanted, limit=limit)

    def log_likelihoods(self, records: Records) -> NDArray[np.float64]:
        """Return log2 of the probability of each record; -inf for one that cannot occur."""
        from panstream.primitives.kernels.models.contingency import add_looked_up

        self._require_same_domain(records.domain)
        totals = np.zeros(len(records))
        sizes = self.domain.sizes
        for position, table in enumerate(self.tables):
            family = self.family(position)
            with np.errstate(divide="ignore"):
                logs = np.log2(table).reshape(-1)
            shape = np.array([sizes[attribute] for attribute in family], np.int64)
            add_looked_up(records.codes, np.array(family, np.int64), shape, logs, totals)
        return totals

    def cross_entropy_from(self, truth: BayesianNetwork) -> float:
        """Return the exact mean of -log2 probability under ``truth``, in bits: its entropy plus the KL divergence."""
        self._require_same_domain(truth.domain)
        total = 0.0
        for position, table in enumerate(self.tables):
            weights = truth.marginal(self.family(position))
            possible = weights > 0
            with np.errstate(divide="ignore"):
                total -= float((weights[possible] * np.log2(table[possible])).sum())
        return total

    def entropy(self) -> float:
        """Return the exact entropy of the network's distribution, in bits."""
        total = 0.0
        for position, table in enumerate(self.tables):
            weights = self.marginal(self.parents[position]) if self.parents[position] else np.ones(())
            logs = np.log2(table, where=table > 0, out=np.zeros_like(table))
            total -= float((weights * (table * logs).sum(axis=-1)).sum())
        return total

    def joint(self) -> NDArray[np.float64]:
        """Return the joint distribution, one axis per attribute; raise NotSupported above 2^22 cells."""
        if self.domain.cells > 1 << 22:
            raise NotSupported(f"the joint table would have {self.domain.cells} cells; ask for marginals instead")
        return self.marginal(range(len(self.domain)))


def ancestors(parents: Sequence[Sequence[int]], positions: Collection[int]) -> set[int]:
    """Return the attributes and all their ancestors under ``parents``."""
    reached: set[int] = set()
    waiting = list(positions)
    while waiting:
        attribute = waiting.pop()
        if attribute not in reached:
            reached.add(attribute)
            waiting.extend(parents[attribute])
    return reached


def topological_order(parents: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return the attributes so that parents come first, then by position; raise InvalidParameter on a cycle."""
    count = len(parents)
    for child, family in enumerate(parents):
        if len(set(family)) != len(family) or child in family or not all(0 <= parent < count for parent in family):
            raise InvalidParameter(
                f"the parents of attribute {child} must be other attributes, each once, below {count}"
            )
    placed: list[int] = []
    done: set[int] = set()
    waiting = list(range(count))
    while waiting:
        ready = [attribute for attribute in waiting if done.issuperset(parents[attribute])]
        if not ready:
            raise InvalidParameter("the arrows must not form a cycle")
        placed.extend(ready)
        done.update(ready)
        waiting = [attribute for attribute in waiting if attribute not in done]
    return tuple(placed)
