"""What one person loses over a period, in sentences for a privacy statement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from panstream.engine.config.config import Config
from panstream.engine.planner.person_period import person_word, planned_person_total
from panstream.engine.planner.query_plan import QueryPlan
from panstream.primitives.durations import format_duration
from panstream.privacy.person_loss import PersonShare, PersonTotal
from panstream.privacy.rounding import rounded_up

_LARGEST_FACTOR = 20.0  # epsilon from which a factor is written as a power


def person_sentences(config: Config, plans: Sequence[QueryPlan], *, copied: str) -> list[str]:
    """Return the loss to everything together, or why there is no bound; ``copied`` is what an intruder copies."""
    total = planned_person_total(config, plans)
    person = person_word(config)
    deeds = f"whatever one {person} did in any {format_duration(total.period)}"
    if total.is_bounded:
        view = f"someone who copies {copied} once and reads every answer"
        return [f"{deeds[0].upper()}{deeds[1:]}: {view} can {_odds(total)}."]
    sentences = [
        f"What one {person} loses in all is not bounded: {_names(total.unbounded)} protect single rows, and nothing "
        f"limits how many of them one {person} has."
    ]
    bounded = total.bounded
    if bounded.shares:
        sentences.append(
            f"Someone who copies {copied} once and reads every answer to {_names(bounded.shares)} can, {deeds}, "
            f"{_odds(bounded)}."
        )
    return sentences


def odds_factor(epsilon: float) -> str:
    """Return by how much the odds of a guess can change, in words."""
    if not math.isfinite(epsilon):
        return "any size (no limit)"
    return rounded_up(math.exp(epsilon)) if epsilon <= _LARGEST_FACTOR else f"e^{rounded_up(epsilon)}"


def _odds(total: PersonTotal) -> str:
    but = f", but for a delta of {total.stated_delta:.1g}" if total.stated_delta else ""
    return f"improve her odds of a right guess about it by a factor of at most {odds_factor(total.epsilon)}{but}"


def _names(shares: Iterable[PersonShare]) -> str:
    return ", ".join(f"“{share.name}”" for share in shares)
