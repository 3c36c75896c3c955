"""A mixture over several holders, from one question for the tables of all attributes and pairs."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from panstream.errors import InvalidParameter
from panstream.models.federated._questions import Table
from panstream.models.federated.analyst import FederatedModel, Federation
from panstream.models.federated.secure_sums import MARGIN
from panstream.models.networks.noisy_tables import NoisyTable
from panstream.models.networks.pair_fit import fit_pair_model
from panstream.primitives import validation as checks
from panstream.primitives.noise import NoiseSource
from panstream.privacy.composition import zcdp_rho

_ONES = 0.3  # share of rho for the tables of single attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedPairs:
    """A mixture, or a forest, from the noisy tables of all attributes and pairs, asked for in one question.

    Args:
        epsilon: Loss of every record.
        delta: The claimed delta.
        secure: Whether the tables can be read only as a sum over all holders.
        colluders: How many holders may collude with the analyst; by default a third of them.
        dropouts: How many others may fail after the sum was closed; by default one of five holders or more.

    **Privacy.** (epsilon, delta) towards every record, replace-one. With ``secure`` the tables can be read only as a
    sum over all holders, with the noise of one holder instead of sqrt(M) times as much. The claim then holds against an
    analyst that colludes with up to ``colluders`` of the M holders (a third of them by default), and it is
    computational (X25519, HKDF-SHA256, AES-256-CTR, Ed25519). Holders need a roster for it.

    Needs two attributes or more.
    """

    epsilon: float
    delta: float = 1e-6
    secure: bool = False
    colluders: int | None = None
    dropouts: int | None = None

    def __post_init__(self) -> None:
        checks.require_finite(epsilon=self.epsilon)
        checks.require_probability(delta=self.delta)
        if not self.secure and (self.colluders is not None or self.dropouts is not None):
            raise InvalidParameter("colluders and dropouts are for secure sums: give secure=True too")

    def run(self, federation: Federation) -> FederatedModel:
        """Ask one question (two with ``secure``: keys first), then fit a mixture to the sums.

        Args:
            federation: The holders.
        """
        domain = federation.domain
        if len(domain) < 2:
            raise InvalidParameter("all pairs need two attributes or more")
        rho = zcdp_rho(self.epsilon, self.delta) * (1 - 2 * MARGIN)
        tables = []
        for size, part in ((1, _ONES), (2, 1 - _ONES)):
            sets = list(itertools.combinations(range(len(domain)), size))
            weights = [math.prod(domain.sizes[attribute] for attribute in attributes) ** (2 / 3) for attributes in sets]
            scale = part * rho / math.fsum(weights)
            tables += [
                Table(attributes=attributes, budget=scale * weight)
                for attributes, weight in zip(sets, weights, strict=True)
            ]
        if self.secure:
            sums = federation.secure_sums(tables, colluders=self.colluders, dropouts=self.dropouts)
        else:
            sums = federation.sums("gaussian", tables)
        noisy = [
            NoisyTable(*measurement) for measurement in zip(sums.attributes, sums.tables, sums.deviations, strict=True)
        ]
        federation.report("fitting the mixture")
        with NoiseSource() as rng:
            network = fit_pair_model(domain, sums.records, noisy, rng)
        method = "all pairs, secure sums" if self.secure else "all pairs"
        assumption = sums.claim_assumption(rho, self.delta)
        return federation.finish(
            network, method, epsilon=self.epsilon, delta=self.delta, assumption=assumption, tables=len(tables)
        )
