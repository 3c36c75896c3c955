"""Statistics of integer updates of any sign: a modular counter per user or bucket, and moments from signed sketches.

``modular_counter`` is the base of the modular counters and ``signed_sketch`` that of the moments; ``_placement`` maps
ids to counters, ``_residues`` and ``_linear_estimate`` decode what modular counters release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from panstream.primitives.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from panstream.algorithms.turnstile.block_counter import BlockCounter as BlockCounter
    from panstream.algorithms.turnstile.heavy_hitter_count import HeavyHitterCount as HeavyHitterCount
    from panstream.algorithms.turnstile.inner_product import InnerProduct as InnerProduct
    from panstream.algorithms.turnstile.legendre_counter import LegendreCounter as LegendreCounter
    from panstream.algorithms.turnstile.profile_sketch import ProfileSketch as ProfileSketch
    from panstream.algorithms.turnstile.second_moment import SecondMoment as SecondMoment
    from panstream.algorithms.turnstile.statistic import Statistic as Statistic

_MODULES = {
    "BlockCounter": "panstream.algorithms.turnstile.block_counter",
    "HeavyHitterCount": "panstream.algorithms.turnstile.heavy_hitter_count",
    "InnerProduct": "panstream.algorithms.turnstile.inner_product",
    "LegendreCounter": "panstream.algorithms.turnstile.legendre_counter",
    "ProfileSketch": "panstream.algorithms.turnstile.profile_sketch",
    "SecondMoment": "panstream.algorithms.turnstile.second_moment",
    "Statistic": "panstream.algorithms.turnstile.statistic",
}

__all__ = sorted(_MODULES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES)
