"""A published network of six binary attributes and one ternary one, with an entropy of 5.12 bits.

The thesis draws such a network (Figure 3.3) without printing its tables. This one was built once by
``experiments/seven_attributes.py``, before any method was run on it, and is kept as it is.
"""

from __future__ import annotations

from importlib import resources

from panstream.networks.files import from_json
from panstream.networks.network import BayesianNetwork

__all__ = ["seven_attributes"]


def seven_attributes() -> BayesianNetwork:
    """Return the network.

    >>> network = seven_attributes()
    >>> network.domain.sizes, f"{network.entropy():.2f}"
    ((2, 2, 2, 2, 2, 2, 3), '5.12')
    """
    return from_json(resources.files("panstream.networks").joinpath("seven_attributes.json").read_text("utf-8"))
