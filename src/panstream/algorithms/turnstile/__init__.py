"""Statistics of integer updates of any sign: a modular counter per user or bucket, and moments from signed sketches.

``modular_counter`` is the base of the modular counters and ``signed_sketch`` that of the moments; ``_placement`` maps
ids to counters, ``_residues`` and ``_linear_estimate`` decode what modular counters release.
"""

from panstream.algorithms.turnstile.block_counter import BlockCounter
from panstream.algorithms.turnstile.heavy_hitter_count import HeavyHitterCount
from panstream.algorithms.turnstile.inner_product import InnerProduct
from panstream.algorithms.turnstile.legendre_counter import LegendreCounter
from panstream.algorithms.turnstile.profile_sketch import ProfileSketch
from panstream.algorithms.turnstile.second_moment import SecondMoment
from panstream.algorithms.turnstile.statistic import Statistic

__all__ = [
    "BlockCounter",
    "HeavyHitterCount",
    "InnerProduct",
    "LegendreCounter",
    "ProfileSketch",
    "SecondMoment",
    "Statistic",
]
