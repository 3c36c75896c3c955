"""Exact questions to a network: how likely is this, given that; what is the likeliest record that fits.

By variable elimination in min-fill order over the attributes that matter to the question. Answers cost no privacy: a
network that was learned privately may be asked anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.networks.elimination import LARGEST_FACTOR, maximise, sum_product
from panstream.networks.network import BayesianNetwork

__all__ = ["Evidence", "Explanation", "log_probability", "most_probable", "posterior", "probability"]

Evidence: TypeAlias = Mapping[str, str | float]
"""What is known: a category, or for a numeric attribute a number or the name of its bin, by the attribute's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The likeliest values of everything that was not observed, and log2 of the probability of all values together."""

    values: Mapping[str, str]
    log_probability: float


def posterior(
    network: BayesianNetwork, attributes: Sequence[str], given: Evidence | None = None, *, limit: int = LARGEST_FACTOR
) -> NDArray[np.float64]:
    """Return P(attributes | given), one axis per attribute in the order asked for; it sums to 1.

    A table of more than ``limit`` cells on the way is refused before it is made.

    >>> from panstream.networks import Domain
    >>> domain = Domain({"rain": ["no", "yes"], "wet": ["no", "yes"]})
    >>> tables = (np.array([0.75, 0.25]), np.array([[0.875, 0.125], [0.125, 0.875]]))
    >>> weather = BayesianNetwork(domain, ((), (0,)), tables)
    >>> posterior(weather, ["rain"], {"wet": "yes"}).tolist()
    [0.3, 0.7]
    """
    codes = _codes(network, given)
    wanted = tuple(network.domain.position(name) for name in attributes)
    if not wanted or len(set(wanted)) != len(wanted) or set(wanted) & set(codes):
        raise InvalidParameter("attributes must be at least one, each once, and none of them observed")
    table, _ = _summed(network, wanted, codes, limit)
    total = table.sum()
    if not total > 0:
        raise InvalidParameter("what is given has probability 0 under the network")
    result: NDArray[np.float64] = table / total
    return result


def log_probability(network: BayesianNetwork, given: Evidence, *, limit: int = LARGEST_FACTOR) -> float:
    """Return log2 of the probability that a record holds all these values; -inf if none can."""
    table, scale = _summed(network, (), _codes(network, given), limit)
    return math.log2(float(table)) + scale if table > 0 else -math.inf


def probability(network: BayesianNetwork, given: Evidence, *, limit: int = LARGEST_FACTOR) -> float:
    """Return the probability that a record holds all these values."""
    return float(2.0 ** log_probability(network, given, limit=limit))


def most_probable(
    network: BayesianNetwork, given: Evidence | None = None, *, limit: int = LARGEST_FACTOR
) -> Explanation:
    """Return the most probable explanation: the likeliest record among those that hold the given values."""
    codes = _codes(network, given)
    factors = [factor.reduced(codes) for factor in network.factors()]
    best, value = maximise(factors, network.domain.sizes, limit=limit)
    if value == -math.inf:
        raise InvalidParameter("what is given has probability 0 under the network")
    domain = network.domain
    values = {domain.names[at]: domain.labels(at)[best[at]] for at in sorted(best)}
    return Explanation(values=values, log_probability=value)


def _summed(
    network: BayesianNetwork, wanted: tuple[int, ...], codes: Mapping[int, int], limit: int
) -> tuple[NDArray[np.float64], float]:
    relevant = network.ancestors({*wanted, *codes})  # the rest sums to 1
    factors = [factor.reduced(codes) for factor in network.factors(relevant)]
    return sum_product(factors, network.domain.sizes, wanted, limit=limit)


def _codes(network: BayesianNetwork, given: Evidence | None) -> dict[int, int]:
    domain, codes = network.domain, {}
    for name, value in (given or {}).items():
        at = domain.position(name)
        bins = domain.attributes[at].bins
        if isinstance(value, str):
            codes[at] = domain.code(at, value)
        elif bins is not None:
            codes[at] = int(bins.codes(np.array([float(value)]))[0])
            if codes[at] < 0:
                raise InvalidParameter(f"the value given for {name!r} must lie inside its declared edges")
        else:
            codes[at] = domain.code(at, str(value))
    return codes
