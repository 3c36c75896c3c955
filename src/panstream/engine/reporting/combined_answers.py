"""Answers that are computed from the released answers of several states, such as a sum per user.

Privacy: post-processing of published answers; it has no loss of its own. The claim is that of all of them together.

Error: The intervals of the published answers hold together with 95% (Bonferroni), and the interval of the combined one
is the range of its formula over them. So it covers, whatever the shape and the correlation of their errors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from panstream.engine.sql.formulas import evaluate, range_of, state_values_in
from panstream.engine.sql.result_view import CombinedAnswer
from panstream.engine.storage.release_log import Release
from panstream.privacy.claim import Claim
from panstream.privacy.composition import compose_sequential

_LEVEL = 0.95
_HELP = "a divisor may be 0: larger groups, a longer window or a larger epsilon"
_COMMON = ("group", "window", "end", "since", "gaps")


def combine_answers(
    answer: CombinedAnswer, statement: str, releases: dict[str, Release], claims: Mapping[str, Claim]
) -> None:
    """Add a combined answer to the releases of one group and one moment, unless one of its parts is missing.

    Args:
        answer: Its name and formula.
        statement: Name of the statement.
        releases: By name.
        claims: The claims of the parts, by name.
    """
    names = [str(what) for what in dict.fromkeys(state_values_in(answer.formula))]
    if any(name not in releases for name in names):
        return
    records = {name: releases[name].record for name in names}
    low, high = range_of(answer.formula, {name: _ends(record) for name, record in records.items()})
    value, unclipped = (
        evaluate(answer.formula, lambda what, field=field: _number(records[str(what)][field], math.nan))  # type: ignore[misc]
        for field in ("value", "unclipped")
    )
    claim = compose_sequential([_of_one_unit(claims[name], claims, names) for name in _first_of_state(names, claims)])
    first = releases[names[0]]
    record: dict[str, Any] = {
        "value": _plain(min(max(value, low), high)),
        "unclipped": _plain(unclipped),
        "standard_error": None,  # a quotient of noisy numbers has none
        "interval": [_plain(low), _plain(high)],
        "level": _LEVEL,
        "epsilon": claim.to_json()["epsilon"],
        **{field: first.record[field] for field in _COMMON if field in first.record},
    }
    if (math.isinf(low) and math.isinf(high)) or math.isnan(value):
        record |= {"too_uncertain": True, "help": _HELP}
    label = first.query.partition(" [")[2] if "group" in first.record else ""
    name = f"{statement}.{answer.name}" + (f" [{label}" if label else "")
    releases[answer.name] = replace(first, query=name, record={**record, "claim": claim.to_json()})


def _ends(record: Mapping[str, Any]) -> tuple[float, float]:
    low, high = record["interval"]
    return _number(low, -math.inf), _number(high, math.inf)


def _number(value: float | None, default: float) -> float:
    return default if value is None else value


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _first_of_state(names: list[str], claims: Mapping[str, Claim]) -> list[str]:
    """Return one name for every state: answers from one state are paid for once."""
    states = {id(claims[name]): name for name in reversed(names)}
    return list(states.values())


def _of_one_unit(claim: Claim, claims: Mapping[str, Claim], names: list[str]) -> Claim:
    """Return a claim about one event, if not all claims are about the same unit: an event is part of each."""
    if len({(claims[name].unit, claims[name].window) for name in names}) == 1 or claim.unit == "event":
        return claim
    epsilon = claim.epsilon if claim.event_epsilon is None else claim.event_epsilon
    return replace(claim, unit="event", window=None, epsilon=epsilon, event_epsilon=None, parts={})
