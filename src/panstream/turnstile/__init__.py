"""Statistics of integer updates of any sign: a modular counter per user or bucket, and moments from signed sketches.

``counter`` is what the modular counters share and ``signed`` what the moments do, ``placement`` finds an id's counter,
``residues`` and ``linear`` read what modular counters show.
"""

from panstream.turnstile.block import BlockCounter
from panstream.turnstile.heavy import HeavyHitterCount
from panstream.turnstile.inner_product import InnerProduct
from panstream.turnstile.legendre import LegendreCounter
from panstream.turnstile.profile import ProfileSketch
from panstream.turnstile.second_moment import SecondMoment

__all__ = ["BlockCounter", "HeavyHitterCount", "InnerProduct", "LegendreCounter", "ProfileSketch", "SecondMoment"]
