"""A keyed hash of client addresses: the server counts connections by bucket, and stores no address."""

from __future__ import annotations

import hashlib
import socket
from typing import Any

from panstream.primitives.noise.entropy import random_id

BUCKETS = 1 << 16
_MAPPED = bytes(10) + b"\xff\xff"  # prefix of an IPv4 address in IPv6


class AddressHash:
    """Hashes addresses with a random key, so that no other client can choose an address for the same bucket."""

    def __init__(self) -> None:
        self._key = random_id(16)

    def bucket(self, address: Any) -> int:
        """Return the bucket of a socket address: of IPv6 by its 64-bit network, which one owner has."""
        text = str(address[0]).partition("%")[0]
        try:
            packed = socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
        except OSError:
            return 0
        prefix = packed[12:] if packed.startswith(_MAPPED) else packed[:8]
        return int.from_bytes(hashlib.blake2b(prefix, digest_size=2, key=self._key).digest())
