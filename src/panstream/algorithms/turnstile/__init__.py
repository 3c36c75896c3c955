"""Statistics of integer updates of any sign: a modular counter per user or bucket, and moments from signed sketches.

``counter`` is what the modular counters share and ``signed`` what the moments do, ``placement`` finds an id's counter,
``residues`` and ``linear`` read what modular counters show.
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
