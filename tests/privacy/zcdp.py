"""Zero-concentrated losses, written down apart from the code that spends them."""

import math
from collections.abc import Sequence

from panstream.primitives.noise import DiscreteGaussian


def tables_rho(laws: Sequence[DiscreteGaussian], levels: int, contributions: int = 1) -> float:
    """Return the zCDP loss of the noise of tables: K²·levels times the sum of 1/(2·sigma²) over the tables."""
    return contributions**2 * levels * math.fsum(0.5 / law.sigma**2 for law in laws)
