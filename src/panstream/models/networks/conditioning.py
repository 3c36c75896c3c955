"""Condition a model on values of some attributes, as a model that can be sampled.

Evidence about an attribute is a weight for each of its categories: 1 for an observed value, the fraction of a bin that
lies in a range, 0 for everything else. Variable elimination then yields a conditional table per variable, and these
tables form a network, in general with other parents. For a mixture, the component remains as a hidden attribute.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.models.networks._variable_elimination import Factor, conditionals
from panstream.models.networks.bins import EVERYWHERE, Within
from panstream.models.networks.domain import Attribute, Domain
from panstream.models.networks.mixture import Mixture
from panstream.models.networks.network import BayesianNetwork
from panstream.models.networks.records import Records, whole_numbers
from panstream.models.networks.sampling import balanced_sample, sample
from panstream.primitives.noise import NoiseSource

Condition: TypeAlias = str | float | tuple[float, float]
"""A category, a number, a date, or a range with both ends; text as ``40..65``, ``65..`` and ``..40`` is a range too."""

# Noise and smoothing give more than this to combinations that no record has, so below it a model has no information.
_MIN_PROBABILITY = 1e-9
_SHOWN_LABELS = 12


@dataclass(frozen=True, slots=True, eq=False)
class ConditionedModel:
    """A model of the records that agree with the evidence, the evidence's probability, and ranges for sampled numbers.

    The first ``hidden`` attributes of the ``network`` are not part of a record.

    Args:
        domain: The attributes of a record.
        network: The network with the evidence applied.
        hidden: How many attributes, from the first on, are not part of a record.
        probability: Probability of the evidence.
        within: Ranges for the numbers that are sampled from a bin, by attribute.
    """

    domain: Domain
    network: BayesianNetwork
    hidden: int
    probability: float
    within: dict[str, Within]

    def marginal(self, attributes: Sequence[int]) -> NDArray[np.float64]:
        """Return the exact joint distribution of some attributes, one axis each.

        Args:
            attributes: Positions or names of the attributes.
        """
        return self.network.marginal([attribute + self.hidden for attribute in attributes])

    def draw(self, size: int, rng: NoiseSource, *, independent: bool = False) -> Records:
        """Sample records that agree with the evidence; balanced, or independent of each other.

        Args:
            size: Number of records.
            rng: Source of the draws.
            independent: Whether the records are independent of each other.
        """
        drawn = (sample if independent else balanced_sample)(self.network, size, rng)
        return Records(self.domain, drawn.codes[self.hidden :])


def condition(model: BayesianNetwork | Mixture, evidence: Mapping[str, Condition]) -> ConditionedModel:
    """Return the model given some values; raise InvalidParameter if their probability is below 1e-9.

    Args:
        model: The model.
        evidence: For each observed attribute its value, its values, or a range.

    >>> domain = Domain({"rain": ["no", "yes"], "wet": ["no", "yes"]})
    >>> tables = (np.array([0.75, 0.25]), np.array([[0.875, 0.125], [0.125, 0.875]]))
    >>> conditioned = condition(BayesianNetwork(domain, ((), (0,)), tables), {"wet": "yes"})
    >>> conditioned.probability, conditioned.marginal((0,)).round(3).tolist()
    (0.3125, [0.3, 0.7])
    """
    hidden = int(isinstance(model, Mixture))
    network = model.with_component() if isinstance(model, Mixture) else model
    factors = [Factor.of(network.family(position), table) for position, table in enumerate(network.tables)]
    within = {}
    for name, condition in evidence.items():
        position = model.domain.position(name)
        weights, within[name] = _weights(model.domain.attributes[position], condition)
        factors.append(Factor((position + hidden,), weights))
    conditional_tables, scale = conditionals(factors, network.domain.sizes)
    probability = 2.0**scale
    if not probability >= _MIN_PROBABILITY:
        raise InvalidParameter(
            f"the condition has a probability of {probability:.1g} under the model; "
            f"below {_MIN_PROBABILITY:g} the answer would be meaningless"
        )
    parents, tables = zip(*(conditional_tables[position] for position in range(len(network.domain))), strict=True)
    return ConditionedModel(
        model.domain, BayesianNetwork(network.domain, parents, tables), hidden, min(probability, 1.0), within
    )


def _weights(attribute: Attribute, condition: Condition) -> tuple[NDArray[np.float64], Within]:
    """Return the weight of every category, and the range that numbers are sampled from."""
    single = np.zeros(attribute.size)
    if isinstance(condition, str) and condition in attribute.labels:
        single[attribute.labels.index(condition)] = 1.0
        return single, EVERYWHERE
    bins = attribute.bins
    limits = _range(attribute, condition)
    if bins is None:
        numbers = whole_numbers(attribute)
        if numbers is None or limits is None:
            raise _unknown(attribute)
        inside = [number is not None and limits[0] <= number <= limits[1] for number in numbers]
        return np.array(inside, np.float64), EVERYWHERE
    if limits is None:
        raise _unknown(attribute)
    if limits[0] == limits[1]:  # a single number: its bin, and the number itself
        code = int(bins.codes(np.array([limits[0]]))[0])
        if code < 0:
            raise InvalidParameter(f"the value given for {attribute.name!r} must lie inside its declared edges")
        single[code] = 1.0
        return single, limits
    covered = bins.covered(limits)
    return np.append(covered, np.zeros(attribute.size - covered.size)), limits


def _range(attribute: Attribute, condition: Condition) -> Within | None:
    """Return the condition as a range of numbers, or None if it is neither a number nor a range."""
    number = float if attribute.bins is None else attribute.bins.number
    low, separator, high = condition.partition("..") if isinstance(condition, str) else ("", "", "")
    try:
        if isinstance(condition, tuple):
            limits = (number(condition[0]), number(condition[1]))
        elif separator:
            limits = (number(low) if low else -math.inf, number(high) if high else math.inf)
        else:
            limits = (number(condition), number(condition))
    except (TypeError, ValueError):
        return None
    if not limits[0] <= limits[1]:
        raise InvalidParameter(f"the range given for {attribute.name!r} must begin before it ends")
    return limits


def _unknown(attribute: Attribute) -> InvalidParameter:
    labels = ", ".join(attribute.labels[:_SHOWN_LABELS]) + (", …" if attribute.size > _SHOWN_LABELS else "")
    more = "; a number or a range such as 40..65 would do too" if attribute.bins is not None else ""
    return InvalidParameter(f"{attribute.name!r} has no such category; it has {labels}{more}")
