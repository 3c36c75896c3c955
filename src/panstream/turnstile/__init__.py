"""Statistics of integer updates of any sign, one modular counter per user or bucket.

``counter`` is what all of them share, ``placement`` finds an id's counter, ``residues`` and ``linear`` read what they
show.
"""

from panstream.turnstile.block import BlockCounter
from panstream.turnstile.heavy import HeavyHitterCount
from panstream.turnstile.legendre import LegendreCounter
from panstream.turnstile.profile import ProfileSketch

__all__ = ["BlockCounter", "HeavyHitterCount", "LegendreCounter", "ProfileSketch"]
