"""Known lower bounds on errors, with numbers, to print beside the errors of what is shipped.

Each is proved in docs/explanation/lower-bounds.md or by the paper it cites.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from panstream.core.estimate import format_number
from panstream.primitives import validation as checks


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerBound:
    """What no algorithm of a kind can beat.

    Attributes:
        value: The bound.
        text: What is bounded, for which algorithms.
        citation: Where it is proved.
    """

    value: float
    text: str
    citation: str

    def __str__(self) -> str:
        return f"Known lower bound: {format_number(self.value)} {self.text} ({self.citation})."


def independent_parts_bound(epsilon: float, users: float, effect: float = 1.0) -> LowerBound:
    """Return the least standard error of an unbiased count where every user has an independent part of the state.

    effect·sqrt(users·R)/(R - 1), R = e**epsilon: a part with loss epsilon has a chi-square divergence of at most
    (R - 1)²/R.

    Args:
        epsilon: Loss of one user.
        users: Users that are present.
        effect: By how much a present user changes the answer.

    >>> round(independent_parts_bound(1.0, 10_000).value, 1)
    96.0
    """
    checks.require_positive(epsilon=epsilon, users=users, effect=effect)
    value = effect * math.sqrt(users) / (2.0 * math.sinh(min(epsilon, 700.0) / 2.0))
    return LowerBound(
        value=value,
        text=f"is the least standard error at {users:,.0f} users if each has an independent part of the state; "
        "whatever the state, errors below the order of the root of their number are impossible",
        citation="docs/explanation/lower-bounds.md; Mir et al. 2011, Corollary 1",
    )


def continual_count_bound(epsilon: float, ticks: int, beta: float = 0.05) -> LowerBound:
    """Return an error that some answer of a pure mechanism exceeds with probability above ``beta``.

    ln(T·(1 - beta)/beta)/(2·epsilon), for one copy or none: T streams with k events at one tick each are too many to
    tell apart.

    Args:
        epsilon: Loss of one event.
        ticks: Number of answers T.
        beta: Probability with which any answer may be further off.

    >>> round(continual_count_bound(1.0, 1 << 20).value, 1)
    8.4
    """
    checks.require_positive(epsilon=epsilon)
    checks.require_at_least(1, ticks=ticks)
    checks.require_probability(beta=beta)
    return LowerBound(
        value=max(math.log(ticks * (1.0 - beta) / beta), 0.0) / (2.0 * epsilon),
        text=f"is exceeded by one of {ticks:,} answers with a probability above {beta:g}, at delta = 0",
        citation="Dwork, Naor, Pitassi, Rothblum 2010; docs/explanation/lower-bounds.md",
    )


def listed_names_bound(
    epsilon: float, delta: float, max_item_bytes: int, *, beta: float = 0.05, wrong_names: float = 0.05
) -> LowerBound:
    """Return the events that a name needs to be listed with probability 1 - ``beta``, if any name is possible.

    ln[(1 - beta + c)/(w/D + c)]/epsilon with c = delta/(e**epsilon - 1), D = 256**max_item_bytes names, and w expected
    wrong names in a list of an empty stream.

    Args:
        epsilon: Loss of one event.
        delta: Slack of the loss.
        max_item_bytes: Longest name.
        beta: Probability that the name is missing.
        wrong_names: Expected number of wrong names in a list.

    >>> round(listed_names_bound(1.0, 0.0, 64).value), round(listed_names_bound(1.0, 1e-6, 64).value)
    (358, 14)
    """
    checks.require_positive(epsilon=epsilon, wrong_names=wrong_names)
    checks.require_at_least(1, max_item_bytes=max_item_bytes)
    checks.require_probability(beta=beta)
    log_share = math.log(wrong_names) - max_item_bytes * math.log(256.0)
    slack = delta / math.expm1(epsilon)
    log_below = log_share if slack == 0.0 else math.log(slack + math.exp(max(log_share, -700.0)))
    return LowerBound(
        value=max(math.log(1.0 - beta + slack) - log_below, 0.0) / epsilon,
        text=f"events are needed on a name of up to {max_item_bytes} bytes, by any algorithm that lists it with "
        f"probability {1.0 - beta:g} and an expected {wrong_names:g} wrong names at most",
        citation="docs/explanation/lower-bounds.md",
    )
