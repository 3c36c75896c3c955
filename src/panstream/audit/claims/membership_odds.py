"""What a stolen state file tells an intruder about one id. Asking is an intrusion."""

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
    """The factor by which the file changes the odds that the id was in the stream, and where it comes from."""

    factor: float
    prior: float
    limit: float  # the largest factor that the claim allows for the state
    reason: str

    @property
    def posterior(self) -> float:
        """Return the probability after the look."""
        odds = self.factor * self.prior / (1 - self.prior)
        return 1.0 if math.isinf(odds) else odds / (1 + odds)


def member_odds(data: bytes | Monitor[Any], member: Any, *, prior: float = 0.5) -> MembershipOdds:
    """Return what the bytes of a state, or one that is loaded already, say about ``member``, to someone who knows
    everything else about the stream.

    Every cell that the id can have touched is read; phases that announced intrusions ended count too. For a bitmap the
    factor is that for an id whose cell nobody else fell into, the most that it can be.
    """
    checks.require_probability(prior=prior)
    monitor = data if isinstance(data, Monitor) else Monitor[Any].from_bytes(data)
    algorithm = monitor.algorithm
    state = monitor.state
    name = type(algorithm).__name__
    law = getattr(algorithm, "law", None)
    if law is None or not hasattr(state, "bits") or not hasattr(state, "frozen"):
        raise NotSupported(f"the audit cannot read {name} states for one member")
    cell = _cell(algorithm, member)
    limit = math.exp(law.epsilon_state * (1 + len(state.frozen)))
    if cell is None:
        reason = "the id is not in the sample: the file says nothing about it"
        return MembershipOdds(factor=1.0, prior=prior, limit=limit, reason=reason)
    p0 = float(law.absent)
    p1 = float(law.present)
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
