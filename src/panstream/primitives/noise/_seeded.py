"""A reproducible source for tests and experiments. Never for real data."""

from __future__ import annotations

import hashlib

import numpy as np
from cryptography.hazmat.primitives.ciphers import CipherContext

from panstream.primitives.noise.source import NoiseSource, counter_mode


class SeededSource(NoiseSource):
    """The same draws for the same seed. ``is_secure`` is False: claims made with it read epsilon = inf.

    Unlike `NoiseSource` it continues after being closed, so that one object serves a whole run.

    Args:
        seed: Any whole number.
    """

    __slots__ = ("_stream",)

    is_secure = False

    def __init__(self, seed: int) -> None:
        super().__init__()
        digest = hashlib.sha256(f"panstream seeded source {seed}".encode()).digest()
        self._stream: CipherContext = counter_mode(np.frombuffer(digest, np.uint8).copy())
        self._cipher = self._stream

    def close(self) -> None:
        """Wipe the arrays it returned; the stream of draws continues."""
        super().close()
        self._cipher = self._stream
