"""The estimators with truncated continuous values, of which the thesis prints no parameters."""

from __future__ import annotations

from dataclasses import dataclass

from panstream.papers.density_laws import TruncatedGaussianLaw, TruncatedLaplaceLaw
from panstream.papers.literal_density import LiteralDensity
from panstream.planning._stored_values import truncated_gaussian_values, truncated_laplace_values
from panstream.planning.density_published import GAUSSIAN, TRUNCATED_LAPLACE, PublishedEstimator

__all__ = ["PublishedTruncatedGaussian", "PublishedTruncatedLaplace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTruncatedLaplace(LiteralDensity):
    """A number in [0, 1] per sampled user: Laplace((1 ∓ ε)/2, 1) cut to the interval.

    "Data Analytics with Differential Privacy", section 4.4.4: means symmetric around 1/2 "so that the normalisation factors
    cancel". No further parameters are printed; we take those of Figure 4.6. The cut means lie only .23·ε apart.

    What is wrong: a stored number v moves the debiased mean by v over m times the distance of the means, about 4.4v/(ε·m), but
    the noise is for 1/m. An intruder who saw v and an output y far above compares e^(r·v), r = ε/distance, for a user left
    alone with the mean of e^(r·x) over the law of a re-drawn x; the other outputs lie between, and y far below is the mirror
    image. The maximum (``StoredValues.joint_loss``) is 2.880, 2.955, 3.119, 3.729 at ε = .05, .1, .2, .5, where 2ε is
    claimed: finite, unlike Laplace's, since v is bounded.
    """

    @property
    def law(self) -> TruncatedLaplaceLaw:
        """Return the two cut laws."""
        return TruncatedLaplaceLaw(epsilon=self.epsilon)

    @property
    def bounds(self) -> PublishedEstimator:
        """Return Hoeffding's bound on [0, 1]; none is printed."""
        return TRUNCATED_LAPLACE

    @property
    def state_loss(self) -> float:
        """Return the loss of a stored number."""
        return truncated_laplace_values(self.epsilon).state_loss


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTruncatedGaussian(LiteralDensity):
    """A number in [0, 1] per sampled user: Normal(0, 1/(2ε)) or Normal(1, 1/(2ε)) cut to the interval.

    "Data Analytics with Differential Privacy", section 4.4.4, "properly selecting their means and (common) variance". None are
    printed. These are the ones whose ratio e^(ε(2x - 1)) runs exactly from e^-ε to e^ε, so that the state loses ε.

    What is wrong: as for the truncated Laplace law the noise is for a sensitivity of 1/m, but one user moves the debiased mean
    by up to 1/m over the distance of the means, which is only .166·ε. True loss, as there: 4.287, 4.368, 4.532, 5.030 at
    ε = .05, .1, .2, .5.
    """

    @property
    def law(self) -> TruncatedGaussianLaw:
        """Return the two cut laws."""
        return TruncatedGaussianLaw(epsilon=self.epsilon)

    @property
    def bounds(self) -> PublishedEstimator:
        """Return Hoeffding's bound on [0, 1]; none is printed."""
        return GAUSSIAN

    @property
    def state_loss(self) -> float:
        """Return the loss of a stored number."""
        return truncated_gaussian_values(self.epsilon).state_loss
