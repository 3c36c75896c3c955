"""The odds that one id was in the stream, given a copied state file. Computing them is an intrusion."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from panstream.core.monitor import Monitor
from panstream.errors import NotSupported
from panstream.primitives import validation as checks
from panstream.primitives.inputs import items
from panstream.primitives.memory.scratch import Scratch
from panstream.primitives.packed_bits import get_bit


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipOdds:
    """The factor by which the file changes the odds that the id was in the stream, and its reason."""

    factor: float
    prior: float
    limit: float  # the largest factor that the claim allows for the state
    reason: str

    @property
    def posterior(self) -> float:
        """Return the probability that the id was in the stream, given the file."""
        odds = self.factor * self.prior / (1 - self.prior)
        return 1.0 if math.isinf(odds) else odds / (1 + odds)


def member_odds(data: bytes | Monitor[Any], member: Any, *, prior: float = 0.5) -> MembershipOdds:
    """Return the odds of ``member`` given a state, or its bytes, for an attacker who has the rest of the stream.

    All cells that the id may have updated are read, also those of phases before announced intrusions. For a bitmap the
    factor is that of an id whose cell no other id shares, which is the maximum.

    Raises:
        NotSupported: the algorithm's state has no cells of single ids.
    """
    checks.require_probability(prior=prior)
    monitor = data if isinstance(data, Monitor) else Monitor[Any].from_bytes(data)
    algorithm = monitor.algorithm
    state = monitor.state
    name = type(algorithm).__name__
    coins = getattr(algorithm, "law", None)
    if coins is None or not hasattr(state, "bits") or not hasattr(state, "frozen"):
        raise NotSupported(f"the audit cannot read {name} states for one member")
    cell = _cell(algorithm, member)
    limit = math.exp(coins.epsilon_state * (1 + len(state.frozen)))
    if cell is None:
        reason = "the id is not in the sample: the file says nothing about it"
        return MembershipOdds(factor=1.0, prior=prior, limit=limit, reason=reason)
    p0 = float(coins.absent)
    p1 = float(coins.present)
    factor = 1.0
    shown = [get_bit(row, cell) for row in (*state.frozen, state.bits)]
    for bit in shown:
        high, low = (p1, p0) if bit else (1 - p1, 1 - p0)
        factor *= high / low if low else math.inf
    return MembershipOdds(factor=factor, prior=prior, limit=limit, reason=f"its cell shows {''.join(map(str, shown))}")


def _cell(algorithm: Any, member: Any) -> int | None:
    if hasattr(algorithm, "table"):
        with Scratch() as scratch:
            return int(next(iter(algorithm.table.rows(items([member]), scratch)))[0])
    number = int(algorithm.batch([member]).cells[0])
    population = algorithm.population
    if not population.permuted:
        return number
    user_index = np.array([number], np.int64)
    placed = int(population.permute(user_index, user_index)[0])
    return placed if placed < population.sampled else None
