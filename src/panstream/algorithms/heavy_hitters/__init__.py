"""Heavy hitters of an open domain: noised tables of prefixes and counts, their decoder, and the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from panstream.primitives.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from panstream.algorithms.heavy_hitters.prefix_sketch import FrequentItems as FrequentItems

_MODULES = {
    "FrequentItems": "panstream.algorithms.heavy_hitters.prefix_sketch",
}

__all__ = sorted(_MODULES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES)
