"""The two machines that hold shares, and the front end that deals to them: steps that are durable on both or on
neither, the wire between them, and the engine's states on top.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from panstream.primitives.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from panstream.distributed.two_party.local import InProcessTwoPartyTransport as InProcessTwoPartyTransport
    from panstream.distributed.two_party.monitor import TwoPartyMonitor as TwoPartyMonitor

_MODULES = {
    "InProcessTwoPartyTransport": "panstream.distributed.two_party.local",
    "TwoPartyMonitor": "panstream.distributed.two_party.monitor",
}

__all__ = sorted(_MODULES)

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _MODULES)
