"""Tables added up over several holders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from panstream.errors import InvalidParameter
from panstream.models.federated.secure_sums import sums_assumption
from panstream.models.networks import structure_search as baselines
from panstream.privacy.composition import zcdp_epsilon

# A sum of cells further than this many standard deviations from the number of records does not come from the noise
# that was asked for: a Gaussian exceeds 20 with probability 6e-89, a Laplace variable with 5e-13.
_MAX_DEVIATIONS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SummedTables:
    """Tables added up over the holders that answered; ``deviations`` are the noise's standard deviations per cell.

    The last two are for secure sums: how many parts of the noise are enough for the
    claim, and what it assumes about the holders.
    """

    attributes: tuple[tuple[int, ...], ...]
    tables: tuple[NDArray[np.int64], ...]
    deviations: tuple[float, ...]
    records: int
    holders: int
    noise_parts: int = 1
    assumption: str = ""

    def claim_assumption(self, rho: float, delta: float) -> str:
        """Return the assumption of the claim of a run whose sums cost ``rho``; empty if they are not secure sums.

        Args:
            rho: The loss of the sums.
            delta: The claimed delta.
        """
        if not self.assumption:
            return ""
        return sums_assumption([self.assumption], zcdp_epsilon(rho * self.noise_parts, delta))

    def lookup(self) -> baselines.Tables:
        """Return a lookup of tables by attributes in any order; it sums smaller tables from these."""
        return baselines.marginal_tables(dict(zip(self.attributes, self.tables, strict=True)))


def check_totals(tables: Sequence[NDArray[np.int64]], deviations: Sequence[float], records: int, label: str) -> None:
    """Refuse tables whose cells do not add up to about the number of records.

    Args:
        tables: The tables.
        deviations: Standard deviation of the noise in a cell, by table.
        records: The number of records.
        label: Subject and verb of the error message.

    Raises:
        InvalidParameter: A table is too far off for its noise.
    """
    for table, deviation in zip(tables, deviations, strict=True):
        off = abs(float(table.sum(dtype=np.float64)) - records)
        if off > _MAX_DEVIATIONS * max(deviation, 1.0) * math.sqrt(table.size):
            raise InvalidParameter(f"{label} not add up to the number of records, even with the noise")
