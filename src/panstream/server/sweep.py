"""Leaving nothing behind: buffers are overwritten, and objects that hold each other are not left to chance.

Python frees such objects only when its collector comes by. Errors of the HTTP parser are of that kind, and hold what the
parser stumbled over; so are connections.
"""

from __future__ import annotations

import asyncio
import gc

import numpy as np

from panstream.scratch import wipe

__all__ = ["Sweeper", "overwrite"]

_DELAY = 0.1  # seconds: at most ten collections a second, however many requests are refused


class Sweeper:
    """Runs the collector soon after it was asked to."""

    def __init__(self) -> None:
        self._asked = False

    @staticmethod
    def start() -> None:
        """Take note of what is there from the start: it need not be looked at each time. Call it before any request."""
        gc.collect()
        gc.freeze()

    @staticmethod
    def stop() -> None:
        """Have the collector look at everything again: the process may go on to something else."""
        gc.unfreeze()

    def soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Collect within a tenth of a second."""
        if not self._asked:
            self._asked = True
            loop.call_later(_DELAY, self._sweep)

    def _sweep(self) -> None:
        self._asked = False
        gc.collect()


def overwrite(data: object) -> None:
    """Fill a bytearray with zeros, and empty it."""
    if isinstance(data, bytearray) and data:
        wipe(np.frombuffer(data, np.uint8))
        data.clear()
