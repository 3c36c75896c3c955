"""What one person loses over a period, in sentences for a privacy statement."""

from __future__ import annotations

import math
from collections.abc import Iterable

from panstream.primitives.durations import format_duration
from panstream.privacy.odds import odds_bound
from panstream.privacy.person_loss import PERIOD, PersonShare, PersonTotal
from panstream.privacy.rounding import rounded_up

_FEW = 4  # questions that are named in a sentence
_LARGEST_FACTOR = 20.0  # epsilon from which a factor is written as a power
_USELESS = 7.0  # epsilon from which a guess of one in a hundred can become one of nine in ten


def person_sentences(total: PersonTotal, *, deeds: str, person: str, copied: str) -> list[str]:
    """Return what everything together shows about one person, or why there is no bound.

    Args:
        total: What one person loses over the period.
        deeds: What is hidden, as "whatever one visitor did".
        person: What one person is called, with an article or pronoun.
        copied: What an intruder copies, and how often.
    """
    span = f"in any {format_duration(total.period)}"
    if total.is_bounded:
        return [
            f"{deeds[0].upper()}{deeds[1:]} {span}: someone who copies {copied} and reads every answer can "
            f"{improved_odds(total.epsilon, total.stated_delta)}."
        ]
    sentences = [
        f"Not bounded: what all answers together show about {person} {span} has no limit, because "
        f"{_which(total)}, and nothing limits how many of them {person} can have."
    ]
    bounded = total.bounded
    if bounded.shares:
        sentences.append(
            f"Bounded: {deeds} {span}, someone who copies {copied} and reads every answer to "
            f"{_list(bounded.shares)} can {improved_odds(bounded.epsilon, bounded.stated_delta)}."
        )
    return sentences


def odds_factor(epsilon: float) -> str:
    """Return by how much the odds of a guess can change, in words."""
    if not math.isfinite(epsilon):
        return "any size (no limit)"
    return rounded_up(math.exp(epsilon)) if epsilon <= _LARGEST_FACTOR else f"e^{rounded_up(epsilon)}"


def improved_odds(epsilon: float, delta: float) -> str:
    """Return what can be done with the odds of a guess, with an example and the chance that it is more."""
    loss, chance = odds_bound(epsilon, delta)
    sure = math.ceil(1000 / (1 + math.exp(-loss))) / 10
    example = f"from 50% sure to {sure:g}% at most" if loss < _USELESS else "which limits hardly anything"
    return (
        f"improve her odds of a right guess about it by a factor of at most {odds_factor(loss)} ({example}"
        f"{one_in(chance)})"
    )


def one_in(chance: float) -> str:
    """Return the clause that excepts a chance from a bound; empty if it is 0."""
    if not chance:
        return ""
    return f", but for one chance in {_rounded_down(1 / chance)}" if chance < 1 else ", but for any chance"


def short_odds(share: PersonShare) -> str:
    """Return what one question adds, for a table."""
    if not math.isfinite(share.epsilon):
        return "not bounded"
    alone = PersonTotal(period=PERIOD, shares=(share,))  # Gaussian noise of many windows loses less than their sum
    loss, chance = odds_bound(alone.epsilon, alone.stated_delta)
    return f"{odds_factor(loss)}{one_in(chance)}"


def _rounded_down(number: float) -> str:
    unit = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return f"{int(number // unit) * unit:,}"


def _which(total: PersonTotal) -> str:
    """Return the questions without a bound, by name if they are few."""
    count = len(total.unbounded)
    if count > _FEW:
        return f"{count} of the {len(total.shares)} questions protect single rows"
    return f"{_list(total.unbounded)} {'protects' if count == 1 else 'protect'} single rows"


def _list(shares: Iterable[PersonShare]) -> str:
    *first, last = (f"“{share.name}”" for share in shares)
    return f"{', '.join(first)} and {last}" if first else last
