"""Randomised response: every answer is perturbed before anybody stores it, and the fraction of ones is estimated."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from panstream.core.estimate import Estimate, symmetric_interval
from panstream.primitives import validation as checks
from panstream.primitives.inputs import integers
from panstream.primitives.memory.scratch import clears_registers
from panstream.primitives.noise import Coin, NoiseSource, symmetric_coins
from panstream.privacy.claim import Claim, Intrusions

_FAIR_COINS = math.log(3.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomizedResponse:
    """The fraction of respondents who answer yes, from answers that each respondent perturbs before giving them.

    A respondent replaces the true answer b by 1 with probability R/(1+R) if b = 1 and 1/(1+R) if b = 0,
    R = e**epsilon. The default is the classical form with two fair coins (answer truthfully on heads, else toss again
    and answer yes on heads), which loses ln 3. There is no state: perturbed answers may be stored, copied and
    published.

    Privacy:
        Unit: one answer, exchanged for the other one. Everything ever computed from the perturbed answers loses exactly
        ``epsilon``, whoever sees it and however often. A respondent who answers m times loses m·epsilon.

    Error:
        With n answers, variance R/(n·(R-1)²) around the fraction among these respondents, whatever it is. For a survey
        whose respondents are known in advance, a curator with `OptBern` has nearly the same variance for the bits; one
        who stores answers in clear has 2/(n·epsilon)².

    Args:
        epsilon: Loss of one answer; ``math.inf`` switches the noise off, for tests.

    Examples:
        >>> survey = RandomizedResponse()
        >>> round(survey.epsilon, 4)
        1.0986
        >>> responses = survey.randomize([1] * 300 + [0] * 700)
        >>> abs(survey.estimate(responses).value - 0.3) < 0.2
        True

    Reference: Warner 1965; Digalakis et al. 2018, §2.1.3; Digalakis 2018, Algorithm 2.1.
    """

    proof: ClassVar[str] = "joint-loss.md"

    epsilon: float = _FAIR_COINS

    def __post_init__(self) -> None:
        checks.require_positive(epsilon=self.epsilon)

    @property
    def coins(self) -> tuple[Coin, Coin]:
        """Return the coins of a one among the responses to a true 0 and to a true 1."""
        return symmetric_coins(self.epsilon)

    def claim(self) -> Claim:
        """Return the loss of one answer to everybody who sees the responses."""
        return Claim(
            epsilon=self.epsilon,
            unit="event",
            adjacency="replace",
            intrusions=Intrusions(unannounced=-1),
            inputs="adaptive",
            locations=("memory", "disk"),
            releases=-1,
            public=("how many answers there are, and who answered",),
            note="" if math.isfinite(self.epsilon) else "no noise: for tests only",
        )

    @clears_registers
    def randomize(self, answers: Any) -> NDArray[np.uint8]:
        """Return one perturbed response per answer; draw once per answer, and store the response only.

        Args:
            answers: The true answers, 0 or 1.

        Raises:
            InvalidBatch: An answer is neither 0 nor 1; the error names its row, never the answer.
        """
        with NoiseSource() as rng:
            return self.draw(answers, rng)

    def draw(self, answers: Any, rng: NoiseSource) -> NDArray[np.uint8]:
        """Return one perturbed response per answer, with coins from ``rng``.

        Args:
            answers: The true answers, 0 or 1.
            rng: Source of the coins.
        """
        bits, copied = integers(answers, name="answers", lower=0, upper=1)
        try:
            absent, present = self.coins
            no = rng.bernoulli(absent, bits.size)
            yes = rng.bernoulli(present, bits.size)
            is_one = rng.scratch.array(bits.size, np.bool_)  # scratch memory is wiped after the step
            np.equal(bits, 1, out=is_one)
            responses = np.where(is_one, yes, no)
        finally:
            if copied:
                bits.fill(0)
        return responses

    def estimate(self, responses: Any) -> Estimate:
        """Return the estimated fraction of respondents whose true answer is 1; any number of times.

        Args:
            responses: Perturbed responses, 0 or 1, of `randomize`.

        Raises:
            InvalidBatch: A response is neither 0 nor 1.
            InvalidParameter: There is no response.
        """
        values, _ = integers(responses, name="responses", lower=0, upper=1)
        return self.estimate_from_count(int(values.sum()), int(values.size))

    def estimate_from_count(self, ones: int, count: int) -> Estimate:
        """Return the same from the number of ones among ``count`` responses.

        Args:
            ones: How many of them are 1.
            count: Number of responses.
        """
        checks.require_at_least(1, count=count)
        checks.require_integer_in_range(0, count, ones=ones)
        absent, present = (float(coin) for coin in self.coins)
        unbiased = (ones / count - absent) / (present - absent)
        return Estimate.clipped(
            unbiased,
            (0.0, 1.0),
            standard_error=self.standard_error(count),
            claim=self.claim(),
            name="fraction of ones",
            released=(ones,),
            interval_rule=symmetric_interval(unbiased, self._half_width(count)),
        )

    def standard_error(self, count: int) -> float:
        """Return the standard error of the fraction among ``count`` respondents, which does not depend on it."""
        checks.require_at_least(1, count=count)
        absent, present = (float(coin) for coin in self.coins)
        return math.sqrt(absent * present / count) / (present - absent)

    def error_bound(self, count: int, *, beta: float) -> float:
        """Return the error that is exceeded with probability at most about ``beta``, by the normal approximation.

        Args:
            count: Number of respondents.
            beta: Probability of a larger error.
        """
        checks.require_probability(beta=beta)
        return self._half_width(count)(1.0 - beta)

    def _half_width(self, count: int) -> Callable[[float], float]:
        if math.isinf(self.epsilon):
            return lambda level: 0.0
        absent, present = (float(coin) for coin in self.coins)
        step = 0.5 / (count * (present - absent))  # responses are counted in whole numbers
        error = self.standard_error(count)
        return lambda level: NormalDist().inv_cdf((1 + level) / 2) * error + step
