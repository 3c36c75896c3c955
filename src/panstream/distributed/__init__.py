"""State on many workers (sharded), or secret-shared on two machines (two_party)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from panstream.primitives.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from panstream.algorithms.secret_shared.presence import SharedGraphDensity as SharedGraphDensity

_MODULES = {
    "SharedGraphDensity": "panstream.algorithms.secret_shared.presence",
}

__all__ = sorted(_MODULES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES)
