"""The share of rows that no answer could use, published with noise and charged like any other release.

Two noisy counters count usable and unusable rows. Every row is in exactly one of them, so adding or removing a row
changes one counter by one, and both together cost what each of them does (parallel composition). K rows of one user
change them by K in total. Proof: docs/proofs/totals.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from panstream.engine.config.config import Config, QueryConfig
from panstream.engine.runtime.engine import Engine
from panstream.engine.sql.parser import Output, ParsedQuery
from panstream.engine.sql.state_sharing import Aggregate
from panstream.errors import InvalidParameter
from panstream.privacy.claim import Claim
from panstream.privacy.rounding import equal_share, remainder, round_down

_USUAL_EPSILON = 0.05  # charged by ``run`` for the share of unusable rows in files
PART = 20  # a one-off query charges 1 / PART of its epsilon for the share
_KEY = "unusable"
_NAME = "unusable rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusableShare:
    """The share of rows that could not be used, from 0 to 1, with its 95% interval; without a value if the noisy
    counts say that there are no rows.
    """

    value: float | None
    low: float
    high: float
    claim: Claim

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "name": _NAME,
            "value": self.value,
            "standard_error": None,
            "interval": [self.low, self.high],
            "epsilon": self.claim.to_json()["epsilon"],
            "claim": self.claim.to_json(),
        }

    def __str__(self) -> str:
        point = "not known" if self.value is None else f"about {self.value:.1%}"
        return f"Rows that could not be used: {point} (95%: {self.low:.1%} to {self.high:.1%})."


def is_published_for(queries: Sequence[QueryConfig]) -> bool:
    """Return whether a share can be published without weakening what the queries protect.

    It can protect single rows, if one of the queries protects no more than that, or users with at most K rows, if all
    queries do. Without a bound on a user's rows, the number of her unusable ones is unbounded, too.
    """
    return any(_protects_event(query) for query in queries) or all(
        query.contributions is not None and query.window is None for query in queries
    )


def _protects_event(query: QueryConfig) -> bool:
    if query.parsed.aggregate.of_users:
        return query.unit == "event"
    return query.contributions is None


def epsilon_for_files(config: Config) -> float:
    """Return the epsilon that ``run`` charges for the share when it reads files; 0 if it publishes none.

    Unless declared, it is 0 if there is a budget, or if users without a bound on their rows are protected.
    """
    if config.stream.unusable_epsilon is not None:
        return config.stream.unusable_epsilon
    limited = bool(config.stream.budget) or config.stream.person.epsilon is not None
    can_publish = config.two_party is None and not limited and is_published_for(config.queries)
    return _USUAL_EPSILON if can_publish else 0.0


def with_paid_share(config: Config, epsilon: float) -> Config:
    """Return the configuration with a share for a part of ``epsilon``, and queries that cost the rest."""
    if math.isinf(epsilon):
        return with_share(config, epsilon)
    part = round_down(equal_share(epsilon, PART))
    factor = Fraction(remainder(epsilon, part)) / Fraction(epsilon)
    queries = tuple(replace(query, epsilon=round_down(Fraction(query.epsilon) * factor)) for query in config.queries)
    return with_share(replace(config, queries=queries), part)


def with_share(config: Config, epsilon: float) -> Config:
    """Return the configuration with two more counters, of usable and of unusable rows.

    A declared epsilon is part of their name: with another one, a stored configuration gets other counters, which are
    charged on top.

    Raises:
        InvalidParameter: The share cannot be published without weakening what the queries protect.
    """
    if config.two_party is not None:
        raise InvalidParameter("the share of unusable rows cannot be counted on two machines: set unusable_epsilon = 0")
    if not is_published_for(config.queries):
        raise InvalidParameter(
            "the share of unusable rows protects single rows, and these queries protect users: give each of them "
            "contributions, the most rows of one user, or set unusable_epsilon = 0"
        )
    max_share = None
    if not any(_protects_event(query) for query in config.queries):
        max_share = max(query.contributions or 1 for query in config.queries)
    name = _NAME if max_share is None else f"{_NAME}, {max_share} of one user"
    if config.stream.unusable_epsilon is not None:
        name += f", epsilon {epsilon!r}"
    counters = QueryConfig(
        name=name,
        sql="",
        parsed=ParsedQuery(
            aggregate=Aggregate.COUNT,
            stream=config.stream.name,
            outputs=(Output(name="count", aggregate=Aggregate.COUNT),),
            group_by=(_KEY,),
        ),
        epsilon=epsilon,
        statement=name,
        groups={_KEY: (False, True)},
        groups_per_user=1,  # a user's K rows move both counters by K together, and each row loses epsilon / K
        contributions=max_share,
        of_unusable=True,
    )
    return replace(config, queries=(*config.queries, counters))


def published_share(engine: Engine) -> UnusableShare | None:
    """Return the published share of an engine, None if there is none."""
    plan = next((plan for plan in engine.plans if plan.config.of_unusable), None)
    if plan is None:
        return None
    usable, unusable = (engine.log.last(series) for series in plan.series)
    if usable is None or unusable is None:
        return None
    (low_used, high_used), (low_bad, high_bad) = (
        [max(0.0, float("inf") if end is None else end) for end in release.record["interval"]]
        for release in (usable, unusable)
    )
    bad = max(0.0, unusable.record["value"])
    rows = bad + max(0.0, usable.record["value"])
    return UnusableShare(
        value=bad / rows if rows else None,
        low=low_bad / (low_bad + high_used) if low_bad else 0.0,
        high=high_bad / (high_bad + low_used) if high_bad else 0.0,
        claim=plan.claim,
    )
