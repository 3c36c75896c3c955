"""An answer: value, standard error, interval, and the claim it was made under."""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from panstream.primitives import validation as checks
from panstream.privacy.claim import Claim

IntervalRule = Callable[[float], tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A private answer.

    ``value`` lies within public bounds (``support``); ``unbiased`` is the same number before clipping. Add up, average
    or compare ``unclipped`` numbers: clipped ones are biased at the bounds. Where only an interval is known, ``value``
    and ``standard_error`` are NaN (null in JSON). For a minimum or maximum ``value`` is the edge beyond which at least
    one value lies, ``at_most_beyond`` the largest number beyond the next edge, and ``description`` expresses both in
    words. ``released`` are the noisy integers from which all else, intervals included, was computed: nothing else of
    the state was published.

    Args:
        value: The answer, within its public bounds; NaN where only an interval is known.
        standard_error: Its standard deviation; NaN where only an interval is known.
        claim: What has been lost by publishing it.
        name: What is estimated.
        unbiased: The same number before clipping; NaN if it is ``value``.
        support: The public bounds of the value.
        released: The noisy integers from which all else was computed.
        at_most_beyond: Of a minimum or maximum, the largest number of values beyond the next edge.
        text: The answer in words, where a number with an interval does not express it.
        interval_rule: Returns the interval at a level; None for a normal one.
    """

    value: float
    standard_error: float
    claim: Claim
    name: str = "estimate"
    unbiased: float = math.nan
    support: tuple[float, float] = (-math.inf, math.inf)
    released: tuple[int, ...] = ()
    at_most_beyond: int | None = None
    text: str = ""
    interval_rule: IntervalRule | None = field(default=None, repr=False, compare=False)

    @classmethod
    def clipped(cls, unbiased: float, support: tuple[float, float], **rest: Any) -> Estimate:
        """Return an estimate whose value is ``unbiased``, clipped to ``support``.

        Args:
            rest: Further fields of the estimate.
            unbiased: The value before clipping.
            support: The public bounds.
        """
        value = min(max(unbiased, support[0]), support[1])
        return cls(value=value, unbiased=unbiased, support=support, **rest)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return a confidence interval at ``level``, computed from the released numbers only.

        It is clipped to ``support``. If only a bound is left of it, although the answer has an error, the interval
        extends from there by the normal quantile times the standard error, so that it is never empty or too short.
        Clipping removes impossible values only, so the coverage is at least that of the unclipped interval.
        """
        checks.require_probability(level=level)
        half = NormalDist().inv_cdf((1 + level) / 2) * self.standard_error
        low = self.unclipped - half
        high = self.unclipped + half
        if self.interval_rule is not None:
            low, high = self.interval_rule(level)
        low = self._clip(low)
        high = self._clip(high)
        if low == high and self.standard_error > 0.0:
            low = self._clip(self.value - half)
            high = self._clip(self.value + half)
        return low, high

    def _clip(self, number: float) -> float:
        return max(min(number, self.support[1]), self.support[0])

    @property
    def unclipped(self) -> float:
        """Return the estimate before clipping, for sums, means and differences of answers."""
        return self.value if math.isnan(self.unbiased) else self.unbiased

    def within(self, lower: float, upper: float) -> Estimate:
        """Return the same answer with narrower public bounds.

        Args:
            lower: Smallest possible value.
            upper: Largest possible value.
        """
        support = max(self.support[0], lower), min(self.support[1], upper)
        value = min(max(self.unclipped, support[0]), support[1])
        return replace(self, value=value, unbiased=self.unclipped, support=support)

    def scaled(self, factor: float, name: str) -> Estimate:
        """Return the same answer in another unit (a density as a number of users, say).

        Args:
            factor: What value, error and bounds are multiplied by.
            name: What is estimated now.
        """
        checks.require_positive(factor=factor)
        rule = self.interval_rule

        def scaled_rule(level: float) -> tuple[float, float]:
            low, high = rule(level) if rule is not None else (0.0, 0.0)
            return low * factor, high * factor

        return replace(
            self,
            value=self.value * factor,
            standard_error=self.standard_error * factor,
            unbiased=self.unbiased * factor,
            support=(self.support[0] * factor, self.support[1] * factor),
            name=name,
            interval_rule=scaled_rule if rule is not None else None,
        )

    def to_json(self, level: float = 0.95) -> dict[str, Any]:
        """Return plain JSON values; a number that does not exist (no data yet, no point, an open end) is null.

        ``description`` is included where a number with an interval does not express the answer.

        Args:
            level: Confidence level of the interval.
        """
        claim = self.claim.to_json()
        words = {} if self.description is None else {"description": self.description}
        rank = {} if self.at_most_beyond is None else {"at_most_beyond": self.at_most_beyond}
        return {
            "name": self.name,
            "value": _finite(self.value),
            "unclipped": _finite(self.unclipped),
            "standard_error": _finite(self.standard_error),
            "interval": [_finite(end) for end in self.interval(level)],
            "level": level,
            **rank,
            **words,
            "epsilon": claim["epsilon"],
            "claim": claim,
        }

    @property
    def has_no_value(self) -> bool:
        """Return whether only an interval is known, without a best point in it."""
        return math.isnan(self.value) and math.isnan(self.standard_error)

    @property
    def description(self) -> str | None:
        """Return the answer in words, if it is not a number with an interval around it, else None."""
        if self.has_no_value:
            low, high = self.interval()
            return f"between {format_number(low)} and {format_number(high)} (95%)"
        return self.text or None

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        low, high = self.interval()
        loss = f"epsilon {self.claim.epsilon:.4g}" if self.claim.is_private else "no privacy"
        if self.description is not None:
            return f"{self.name}: {self.description.removesuffix(')')}; {loss})"
        figures = f"{format_number(self.value)} ± {format_number(self.standard_error)}"
        return f"{self.name} {figures} (95%: {format_number(low)} to {format_number(high)}; {loss})"

    def _repr_html_(self) -> str:
        low, high = self.interval()
        answer = self.description or format_number(self.value)
        rows = [(html.escape(self.name), f"<b>{html.escape(answer)}</b>")]
        if self.description is None:
            rows.append(("95% interval", f"{format_number(low)} to {format_number(high)}"))
            rows.append(("standard error", format_number(self.standard_error)))
        rows += [(name, html.escape(text)) for name, text in self.claim.rows()]
        cells = "".join(f"<tr><th style='text-align:left'>{n}</th><td>{t}</td></tr>" for n, t in rows)
        return f"<table>{cells}</table>"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimates:
    """One answer per tick, as columns.

    Args:
        unclipped: The answers before clipping.
        standard_error: Their standard deviations.
        claim: What has been lost by publishing them.
        name: What is estimated.
        support: The public bounds of the values.
    """

    unclipped: NDArray[np.float64]
    standard_error: NDArray[np.float64]
    claim: Claim
    name: str = "estimate"
    support: tuple[NDArray[np.float64] | float, NDArray[np.float64] | float] = (-math.inf, math.inf)

    @property
    def value(self) -> NDArray[np.float64]:
        """Return the answers, each clipped to the public bounds after its tick (``support``)."""
        return np.clip(self.unclipped, *self.support)

    def __len__(self) -> int:
        return int(self.unclipped.size)

    def __getitem__(self, tick: int) -> Estimate:
        lower, upper = (float(np.broadcast_to(ends, len(self))[tick]) for ends in self.support)
        return Estimate.clipped(
            float(self.unclipped[tick]),
            (lower, upper),
            standard_error=float(self.standard_error[tick]),
            claim=self.claim,
            name=self.name,
        )

    def interval(self, level: float = 0.95) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the lower and upper ends at ``level``, tick by tick (for each tick separately, not jointly).

        They are clipped as in `Estimate.interval`.
        """
        half = NormalDist().inv_cdf((1 + level) / 2) * self.standard_error
        outside = np.abs(self.value - self.unclipped) >= half
        centre = np.where(outside, self.value, self.unclipped)
        return np.clip(centre - half, *self.support), np.clip(centre + half, *self.support)


def symmetric_interval(centre: float, half_width: Callable[[float], float]) -> IntervalRule:
    """Return the rule of intervals that reach ``half_width(level)`` to either side of ``centre``."""

    def rule(level: float) -> tuple[float, float]:
        half = half_width(level)
        return centre - half, centre + half

    return rule


def normal_laplace_quantile(tail: float, sigma: float, kappa: float) -> float:
    """Return x with P(Normal(0, sigma) + Laplace(1/kappa) > x) = ``tail``, for ``tail`` below 1/2."""
    if math.isinf(kappa) or kappa * sigma > 1e4:
        return sigma * NormalDist().inv_cdf(1 - tail)
    high = math.hypot(sigma, math.sqrt(2) / kappa)
    target = math.log(tail)

    def excess(x: float) -> float:
        return math.log(max(_normal_laplace_tail(x, sigma, kappa), 1e-320)) - target

    while excess(high) > 0:
        high *= 2
    return bisect_decreasing(excess, 0.0, high)


def bisect_decreasing(function: Callable[[float], float], low: float, high: float, tolerance: float = 1e-9) -> float:
    """Return where a decreasing ``function`` is within ``tolerance`` of zero in low..high, by the Illinois method."""
    at_low = function(low)
    at_high = function(high)
    if at_low <= 0:
        return low
    if at_high >= 0:
        return high
    retained_end = 0  # the end that survived the last two rounds: its value is halved so that both ends move
    for _ in range(100):
        middle = (low * at_high - high * at_low) / (at_high - at_low)
        value = function(middle)
        if abs(value) <= tolerance or high - low <= tolerance * abs(high):
            return middle
        if value > 0:
            low = middle
            at_low = value
            at_high = at_high / 2 if retained_end > 0 else at_high
            retained_end = 1
        else:
            high = middle
            at_high = value
            at_low = at_low / 2 if retained_end < 0 else at_low
            retained_end = -1
    return high


def _normal_laplace_tail(x: float, sigma: float, kappa: float) -> float:
    if sigma == 0.0:
        return 0.5 * math.exp(-kappa * x)
    plain = 0.5 * math.erfc(x / (sigma * math.sqrt(2)))
    below = _exp_tail(-kappa * x + (kappa * sigma) ** 2 / 2, kappa * sigma - x / sigma)
    above = _exp_tail(kappa * x + (kappa * sigma) ** 2 / 2, kappa * sigma + x / sigma)
    return plain + 0.5 * (below - above)


def _exp_tail(exponent: float, z: float) -> float:
    """Return exp(exponent)·P(Normal > z) without overflow."""
    if z > 25:  # Mills' ratio, error below 1/z**4
        log_tail = -z * z / 2 - math.log(z * math.sqrt(2 * math.pi)) - 1 / (z * z)
    else:
        log_tail = math.log(max(0.5 * math.erfc(z / math.sqrt(2)), 1e-320))
    return math.exp(min(exponent + log_tail, 700.0))


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def format_number(number: float | None, digits: int = 4, *, infinite: str | None = None) -> str:
    """Format a number for people: a few significant digits, thousands separated.

    Args:
        number: The number, or None, for which the text is "no data".
        digits: Significant digits of numbers that are not printed as integers.
        infinite: Text for infinity instead of inf.

    >>> format_number(12345.6), format_number(999.6), format_number(999.6, 3), format_number(0.12345)
    ('12,346', '999.6', '1,000', '0.1235')
    """
    if number is None:
        return "no data"
    if not math.isfinite(number):
        return infinite if infinite is not None and math.isinf(number) else str(number)
    text = f"{number:.{digits}g}"
    return f"{number:,.0f}" if abs(float(text)) >= 10 ** min(digits, 3) else text


def format_interval(low: float | None, high: float | None) -> str:
    """Format an interval for people; an end that is None is open.

    >>> format_interval(12.0, 34.0), format_interval(12.0, None), format_interval(None, None)
    ('12 to 34', '12 or more', 'no limits')
    """
    if low is None and high is None:
        return "no limits"
    if high is None:
        return f"{format_number(low)} or more"
    return f"{format_number(high)} or less" if low is None else f"{format_number(low)} to {format_number(high)}"
