"""A mixture: a Bayesian network with one hidden parent of all attributes, so that every pair may be dependent.

Given its component, a record's attributes are independent, or form a forest whose tables each component tilts. The
component is not part of a record. All two-way tables of the model are cheap to compute, so all of them can be fitted
together (`panstream.models.networks._mixture_fit`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter, NotSupported
from panstream.models.networks._model import Model
from panstream.models.networks._tilted_forest import TiltedForest
from panstream.models.networks.domain import Domain
from panstream.models.networks.network import BayesianNetwork
from panstream.models.networks.records import Records
from panstream.models.networks.structure_search import chow_liu, fit_tables, marginal_tables

_BLOCK = 4096  # records at a time
_COMPONENT_BLOCK = 25  # components whose two-way tables are in memory together
_HIDDEN = "component"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Mixture(Model):
    """Weights of K components and, for each attribute, a table ``tables[i][component, code]`` whose rows sum to 1.

    Without a ``forest`` the tables are the components' own. With one, component k has P(x | parent) in proportion to
    the forest's table times ``tables[i][k, x]``.

    Args:
        domain: The attributes.
        weights: Probability of each component.
        tables: For each attribute a row of probabilities, or of factors, per component.
        forest: The network that the tables modify; None if they stand for themselves.

    >>> domain = Domain({"rain": ["no", "yes"], "wet": ["no", "yes"]})
    >>> table = np.array([[1.0, 0.0], [0.25, 0.75]])
    >>> mixture = Mixture(domain, np.array([0.5, 0.5]), (table, table))
    >>> mixture.posterior(["rain"], {"wet": "yes"}).tolist()
    [0.25, 0.75]
    """

    domain: Domain
    weights: NDArray[np.float64]
    tables: tuple[NDArray[np.float64], ...]
    forest: BayesianNetwork | None = None

    def __post_init__(self) -> None:
        if np.ndim(self.weights) != 1 or not np.size(self.weights):
            raise InvalidParameter("weights must be one number per component")
        domain = self._with_hidden()
        parents = ((), *((0,) for _ in self.tables))
        weights, *tables = BayesianNetwork(domain, parents, (self.weights, *self.tables)).tables  # checked
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "tables", tuple(tables))
        if self.forest is None:
            return
        self._require_same_domain(self.forest.domain)
        if self.forest.degree > 1:
            raise InvalidParameter("the forest of a mixture must have at most one parent for each attribute")
        if not all((self._tilted(attribute).sum(axis=-1) > 0).all() for attribute in range(len(self.domain))):
            raise InvalidParameter("every component of a mixture must leave each row of the forest a possible category")

    def __repr__(self) -> str:
        shape = "products" if self.forest is None else f"forests of {len(self.forest.edges)} edges"
        return f"Mixture({len(self.domain)} attributes, {len(self.weights)} {shape}, {self.parameters} parameters)"

    @property
    def parameters(self) -> int:
        """Return the number of free probabilities."""
        free = len(self.weights) * (1 + sum(self.domain.sizes) - len(self.domain)) - 1
        return free + (self.forest.parameters if self.forest is not None else 0)

    def _with_hidden(self) -> Domain:
        name = _HIDDEN
        while name in self.domain.names:
            name += "_"
        return self.domain.preceded_by(name, [str(component) for component in range(len(self.weights))])

    def _tilted(self, attribute: int) -> NDArray[np.float64]:
        """Return the forest's table of an attribute times the components', component first; rows do not sum to 1."""
        assert self.forest is not None
        return self.forest.tables[attribute] * (
            self.tables[attribute] if not self.forest.parents[attribute] else self.tables[attribute][:, None]
        )

    def _families(self) -> tuple[list[tuple[int, ...]], list[NDArray[np.float64]]]:
        """Return each attribute's parents within a component, and its conditional table with the component first."""
        if self.forest is None:
            return [()] * len(self.tables), list(self.tables)
        tilted = [self._tilted(attribute) for attribute in range(len(self.tables))]
        return list(self.forest.parents), [table / table.sum(axis=-1, keepdims=True) for table in tilted]

    def with_component(self) -> BayesianNetwork:
        """Return the same distribution as a network whose first attribute, ``component``, is the hidden parent."""
        parents, tables = self._families()
        shifted = [(0, *(parent + 1 for parent in family)) for family in parents]
        return BayesianNetwork(self._with_hidden(), ((), *shifted), (self.weights, *tables))

    def nearest_tree(self) -> BayesianNetwork:
        """Return the tree network nearest to the mixture (Chow, Liu 1968), which has its strongest dependences."""
        sizes = self.domain.sizes
        flat = [np.full(size, 1.0 / size) for size in sizes]
        shape = TiltedForest(sizes, [None] * len(sizes), flat) if self.forest is None else TiltedForest.of(self.forest)
        with np.errstate(divide="ignore"):
            tilts = np.log(np.concatenate(self.tables, axis=1))
        pieces = [slice(start, start + _COMPONENT_BLOCK) for start in range(0, len(self.weights), _COMPONENT_BLOCK)]
        pairs = np.sum([shape.tables(self.weights[piece], tilts[piece]).pairs for piece in pieces], axis=0)
        marginals: dict[tuple[int, ...], NDArray[np.float64]] = {
            (one, other): pairs[shape.blocks[one], shape.blocks[other]]
            for one, other in itertools.combinations(range(len(sizes)), 2)
        }
        if len(sizes) == 1:
            marginals[(0,)] = self.marginal((0,))
        tables = marginal_tables(marginals)
        return fit_tables(self.domain, chow_liu(self.domain, tables), tables, pseudocount=0.0)

    def _summed(
        self, wanted: tuple[int, ...], codes: Mapping[int, int], limit: int
    ) -> tuple[NDArray[np.float64], float]:
        if self.forest is not None:
            shifted = {attribute + 1: code for attribute, code in codes.items()}
            return self.with_component()._summed(tuple(attribute + 1 for attribute in wanted), shifted, limit)
        shape = tuple(self.domain.sizes[attribute] for attribute in wanted)
        if max(len(self.weights) * math.prod(shape[:-1]), math.prod(shape)) > limit:
            raise NotSupported(f"a table of more than {limit} cells would be needed; ask for fewer attributes")
        with np.errstate(divide="ignore"):
            logs = np.log2(self.weights) + sum(
                np.log2(self.tables[attribute][:, code]) for attribute, code in codes.items()
            )
        scale = float(math.floor(logs.max())) if np.isfinite(logs.max()) else 0.0
        rows = np.exp2(logs - scale)[:, None]
        if not wanted:
            return np.asarray(rows.sum()), scale
        for attribute in wanted[:-1]:
            rows = (rows[:, :, None] * self.tables[attribute][:, None, :]).reshape(len(rows), -1)
        return (rows.T @ self.tables[wanted[-1]]).reshape(shape), scale

    def log_likelihoods(self, records: Records) -> NDArray[np.float64]:
        """Return log2 of the probability of each record; -inf for one that cannot occur."""
        self._require_same_domain(records.domain)
        parents, tables = self._families()
        with np.errstate(divide="ignore"):
            first = np.log2(self.weights)
            logs = [np.ascontiguousarray(np.moveaxis(np.log2(table), 0, -1)) for table in tables]
        totals = np.empty(len(records))
        for start in range(0, len(records), _BLOCK):
            codes = records.codes[:, start : start + _BLOCK]
            component_logs = first + sum(
                table[tuple(codes[attribute] for attribute in (*family, child))]
                for child, (family, table) in enumerate(zip(parents, logs, strict=True))
            )
            totals[start : start + _BLOCK] = np.logaddexp2.reduce(component_logs, axis=1)
        return totals
