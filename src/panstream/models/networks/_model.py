"""Base class of models: exact marginals, posteriors and likelihoods of a distribution over records.

Queries to a model that was learned privately are post-processing and have no privacy loss.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.models.networks._variable_elimination import LARGEST_FACTOR
from panstream.models.networks.domain import Domain
from panstream.models.networks.records import Records

Evidence: TypeAlias = Mapping[str, str | float]
"""Observed values by attribute: a category, or a number, a date or the name of a bin where the attribute has bins."""


class Model(ABC):
    """A distribution over the records of a domain."""

    __slots__ = ()

    domain: Domain

    @abstractmethod
    def _summed(
        self, wanted: tuple[int, ...], codes: Mapping[int, int], limit: int
    ) -> tuple[NDArray[np.float64], float]:
        """Return P(wanted, codes) as a table over 2^scale, and the scale."""

    @abstractmethod
    def log_likelihoods(self, records: Records) -> NDArray[np.float64]:
        """Return log2 of the probability of each record; -inf for one that cannot occur.

        Args:
            records: Records of the same domain.
        """

    def marginal(self, attributes: Sequence[int]) -> NDArray[np.float64]:
        """Return the exact joint distribution of some attributes, one axis each, by variable elimination."""
        if len(set(attributes)) != len(attributes):
            raise InvalidParameter("attributes must be distinct positions")
        table, scale = self._summed(tuple(attributes), {}, LARGEST_FACTOR)
        return np.ldexp(table, int(scale))

    def posterior(
        self, attributes: Sequence[str], given: Evidence | None = None, *, limit: int = LARGEST_FACTOR
    ) -> NDArray[np.float64]:
        """Return P(attributes | given), one axis per attribute in the order of the argument; it sums to 1.

        Raises NotSupported, before it is allocated, if an intermediate table would have more than ``limit`` cells.

        >>> from panstream.models.networks import BayesianNetwork
        >>> domain = Domain({"rain": ["no", "yes"], "wet": ["no", "yes"]})
        >>> tables = (np.array([0.75, 0.25]), np.array([[0.875, 0.125], [0.125, 0.875]]))
        >>> BayesianNetwork(domain, ((), (0,)), tables).posterior(["rain"], {"wet": "yes"}).tolist()
        [0.3, 0.7]
        """
        codes = self._codes(given)
        wanted = tuple(self.domain.position(name) for name in attributes)
        if not wanted or len(set(wanted)) != len(wanted) or set(wanted) & set(codes):
            raise InvalidParameter("attributes must be at least one, each once, and none of them observed")
        table, _ = self._summed(wanted, codes, limit)
        total = table.sum()
        if not total > 0:
            raise InvalidParameter("the observed values have probability 0 under the network")
        result: NDArray[np.float64] = table / total
        return result

    def log_probability(self, given: Evidence, *, limit: int = LARGEST_FACTOR) -> float:
        """Return log2 of the probability that a record has all these values; -inf if it is 0."""
        table, scale = self._summed((), self._codes(given), limit)
        return math.log2(float(table)) + scale if table > 0 else -math.inf

    def probability(self, given: Evidence, *, limit: int = LARGEST_FACTOR) -> float:
        """Return the probability that a record has all these values."""
        return float(2.0 ** self.log_probability(given, limit=limit))

    def log_likelihood(self, records: Records) -> float:
        """Return log2 of the probability of all records together."""
        return float(self.log_likelihoods(records).sum())

    def cross_entropy(self, records: Records) -> float:
        """Return the mean of -log2 probability over the records, in bits per record."""
        if not len(records):
            raise InvalidParameter("cross entropy needs at least one record")
        return -self.log_likelihood(records) / len(records)

    def _codes(self, evidence: Evidence | None) -> dict[int, int]:
        domain = self.domain
        codes = {}
        for name, value in (evidence or {}).items():
            position = domain.position(name)
            bins = domain.attributes[position].bins
            if isinstance(value, str) and (bins is None or not bins.dates or value in domain.labels(position)):
                codes[position] = domain.code(position, value)
            elif bins is not None:
                codes[position] = int(bins.codes(np.array([bins.number(value)]))[0])
                if codes[position] < 0:
                    raise InvalidParameter(f"the value given for {name!r} must lie inside its declared edges")
            else:
                codes[position] = domain.code(position, str(value))
        return codes

    def _require_same_domain(self, domain: Domain) -> None:
        if domain != self.domain:
            raise InvalidParameter("the records or the other network must have the same domain")
