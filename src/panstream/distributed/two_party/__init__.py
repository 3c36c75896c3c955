"""States that are secret-shared between two machines: the two-party commit, its transport, and the dealer.

`Participant` is one of the machines; `TwoPartyBackend` is the dealer, which splits rows into shares and gives an engine
its states. A step is durable on both machines or on neither.
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
